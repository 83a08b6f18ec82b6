//! What is kept takes as little as it can: free pages go back to the system, and the WAL is emptied, a little at a time.

use std::collections::BTreeMap;

use mcode_ids::ProjectId;
use rusqlite::Connection;

use crate::Store;
use crate::error::{ReadError, StoreError};

/// Pages that are given back at once: some milliseconds, and appends wait meanwhile.
const PAGES_AT_ONCE: u32 = 64;

/// Free pages that stay for what comes next.
const FREE_PAGES_KEPT: i64 = 256;

/// The size of the WAL from which on it is emptied when nothing is written, in bytes.
const WAL_BYTES_MAX: u64 = 1024 * 1024;

/// The largest database that is made anew at a start so that it can give pages back, in bytes: that takes a second or two
/// and as much space again, once.
const REMADE_BYTES_MAX: i64 = 256 * 1024 * 1024;

/// Bodies that are looked up in one read.
const BODIES_AT_ONCE: u32 = 500;

/// What a project takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpaceRow {
    /// Its root folder.
    pub root: String,
    /// Threads of it.
    pub threads: u64,
    /// Bytes of payload in the log.
    pub log_bytes: u64,
    /// Bytes of its bodies; one that several projects have counts for each.
    pub body_bytes: u64,
}

/// What everything takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Space {
    /// By project.
    pub projects: BTreeMap<ProjectId, SpaceRow>,
    /// Size of the database in bytes.
    pub database_bytes: u64,
    /// How much of it is free.
    pub free_bytes: u64,
    /// Size of the index of what was said in bytes.
    pub index_bytes: u64,
}

impl Store {
    /// What everything takes on the disk.
    pub async fn space(&self) -> Result<Space, ReadError> {
        let mut space = self.readers.run(|reader| Ok(tables(reader.connection)?)).await?;
        let mut after = (String::new(), String::new());
        loop {
            let from = after.clone();
            let named = self
                .readers
                .run(move |reader| {
                    let rows = named(reader.connection, &from)?;
                    let sized = rows.into_iter().map(|row| (reader.blobs.size(&row.0), row));
                    Ok(sized.collect::<Vec<_>>())
                })
                .await?;
            let Some((_, last)) = named.last().cloned() else { return Ok(space) };
            after = last;
            for (bytes, (_, project)) in named {
                if let Ok(project) = project.parse() {
                    space.projects.entry(project).or_default().body_bytes += bytes;
                }
            }
        }
    }

    /// Gives some space back; whether there may be more to do. For when nothing else is to be done.
    pub async fn tidy_some(&self) -> Result<bool, StoreError> {
        let wal = self.readers.wal();
        self.writer
            .tend(move |connection| {
                let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
                if free > FREE_PAGES_KEPT && gives_back(connection)? {
                    give_back(connection)?;
                    return Ok(true);
                }
                if std::fs::metadata(&wal).is_ok_and(|meta| meta.len() > WAL_BYTES_MAX) {
                    // Readers that are at work keep it; then it is tried again.
                    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                }
                Ok(false)
            })
            .await
    }
}

/// Whether the file can become smaller.
fn gives_back(connection: &Connection) -> rusqlite::Result<bool> {
    let mode: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    Ok(mode == 2)
}

fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
    let mut rows = statement.query([])?;
    // A page goes with each step.
    while rows.next()?.is_some() {}
    Ok(())
}

/// Makes an older database anew, so that it can give pages back. One that is too large, or has no space for it, stays.
pub(crate) fn make_able(connection: &Connection) -> Result<(), StoreError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if gives_back(connection)? || pragma("page_count")?.saturating_mul(pragma("page_size")?) > REMADE_BYTES_MAX {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    // Without space for it, or where the file is damaged, it is as good as it was.
    connection.execute_batch("VACUUM").ok();
    Ok(())
}

fn tables(connection: &Connection) -> rusqlite::Result<Space> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = |pages: i64, size: i64| u64::try_from(pages.saturating_mul(size)).unwrap_or(0);
    let size = pragma("page_size")?;
    let index: i64 =
        connection.query_row("SELECT coalesce(sum(octet_length(block)), 0) FROM said_data", [], |row| row.get(0))?;
    let mut space = Space {
        projects: BTreeMap::new(),
        database_bytes: bytes(pragma("page_count")?, size),
        free_bytes: bytes(pragma("freelist_count")?, size),
        index_bytes: u64::try_from(index).unwrap_or(0),
    };
    let mut statement = connection.prepare(
        "SELECT t.project_id, coalesce(p.root, t.root), count(*), coalesce(sum((
             SELECT sum(octet_length(e.payload)) FROM events e WHERE e.thread_id = t.thread_id)), 0)
         FROM threads t LEFT JOIN projects p ON p.project_id = t.project_id GROUP BY t.project_id",
    )?;
    let rows = statement.query_map([], |row| {
        let number = |at: usize| row.get::<_, i64>(at).map(|value| u64::try_from(value).unwrap_or(0));
        let (threads, log_bytes) = (number(2)?, number(3)?);
        Ok((row.get::<_, String>(0)?, SpaceRow { root: row.get(1)?, threads, log_bytes, body_bytes: 0 }))
    })?;
    for row in rows {
        let (project, row) = row?;
        if let Ok(project) = project.parse() {
            space.projects.insert(project, row);
        }
    }
    Ok(space)
}

/// Bodies and the projects that name them, after one of them.
fn named(connection: &Connection, after: &(String, String)) -> rusqlite::Result<Vec<(String, String)>> {
    connection
        .prepare_cached(
            "SELECT DISTINCT n.hash, t.project_id FROM named n JOIN threads t ON t.thread_id = n.thread_id
             WHERE (n.hash, t.project_id) > (?1, ?2) AND n.hash >= ?1 ORDER BY n.hash, t.project_id LIMIT ?3",
        )?
        .query_map(rusqlite::params![after.0, after.1, BODIES_AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}
