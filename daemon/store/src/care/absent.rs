//! Whether the folder of bodies is the one that it was.
//!
//! A disk that is not mounted leaves an empty folder behind. Whoever mends then would give up all bodies, and set aside
//! all events that have theirs there.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::Store;
use crate::error::{ReadError, StoreError};

/// Bodies that are looked up in one read.
const AT_ONCE: u32 = 500;

/// From so many named bodies on it is told by how many of them are missing; fewer may well be lost one by one.
const TELLING_MIN: u64 = 8;

/// What of the bodies that events name is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Bodies {
    folder: PathBuf,
    named: u64,
    there: u64,
    is_empty: bool,
}

impl Bodies {
    /// What makes the folder look as if it were not the one; `None` when it does not.
    pub(crate) fn absent(&self) -> Option<String> {
        let most = self.named >= TELLING_MIN && self.there.saturating_mul(2) < self.named;
        let none = self.named > 0 && self.is_empty;
        (none || most).then(|| {
            format!(
                "the folder of bodies {} {} {} of the {} bodies that events name; it looks as if its disk were not mounted",
                self.folder.display(),
                if self.is_empty { "is empty and has" } else { "has only" },
                self.there,
                self.named
            )
        })
    }
}

impl Store {
    /// Counts the bodies that are there, without reading them.
    pub(crate) async fn bodies(&self) -> Result<Bodies, ReadError> {
        let (folder, is_empty) = (self.blobs.folder().to_path_buf(), self.blobs.shelves().is_empty());
        let mut bodies = Bodies { folder, is_empty, ..Bodies::default() };
        let mut after = String::new();
        loop {
            let from = after.clone();
            let hashes = self
                .readers
                .run(move |reader| {
                    let hashes = hashes(reader.connection, &from)?;
                    let there = hashes.iter().filter(|hash| reader.blobs.is_there(hash)).count();
                    Ok((hashes.len() as u64, there as u64, hashes.into_iter().next_back()))
                })
                .await?;
            let (named, there, Some(last)) = hashes else { return Ok(bodies) };
            after = last;
            bodies.named += named;
            bodies.there += there;
        }
    }

    /// Refuses to go on where bodies would be given up that most likely are only out of reach.
    pub(crate) async fn expect_bodies(&self) -> Result<(), StoreError> {
        match self.bodies().await?.absent() {
            Some(what) => Err(StoreError::BodiesAbsent(what)),
            None => Ok(()),
        }
    }
}

fn hashes(connection: &Connection, after: &str) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare_cached("SELECT DISTINCT hash FROM named WHERE hash > ?1 ORDER BY hash LIMIT ?2")?
        .query_map(rusqlite::params![after, AT_ONCE], |row| row.get(0))?
        .collect()
}
