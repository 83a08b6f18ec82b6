//! What everything takes on the disk: the database, bodies, and every other folder that mcode writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mcode_ids::{ProjectId, ThreadId};
use mcode_store::{SpaceRow, Store};

use crate::error::ThreadError;
use crate::registry::Threads;

/// Files and folders that are counted in one place; with more of them its size is told as the least that it is.
const COUNTED_MAX: u64 = 1_000_000;

/// A place on the disk that mcode writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What is there, in words.
    pub what: &'static str,
    /// The folder.
    pub folder: PathBuf,
    /// Only what begins so in it; empty for everything.
    pub prefix: &'static str,
    /// Whose it is.
    pub of: PlaceOf,
}

/// How a place is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceOf {
    /// It is of nobody.
    All,
    /// A folder for each thread, named by its id.
    Threads,
    /// A depot for each root.
    Depots,
}

/// What a place takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What is there, in words.
    pub what: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Whether there is more than was counted.
    pub more: bool,
}

/// What a project takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectUse {
    /// In the database, and bodies.
    pub row: SpaceRow,
    /// Bytes of states of its files.
    pub checkpoint_bytes: u64,
    /// Bytes of its threads' temporary files and of what was moved aside.
    pub temporary_bytes: u64,
}

impl ProjectUse {
    /// All of it.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let row = self.row.log_bytes.saturating_add(self.row.body_bytes);
        row.saturating_add(self.checkpoint_bytes).saturating_add(self.temporary_bytes)
    }
}

/// What everything takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskUse {
    /// Size of the database in bytes, how much of it is free, and how much the index of what was said.
    pub database: (u64, u64, u64),
    /// Place by place, the largest first.
    pub parts: Vec<Part>,
    /// By project, the largest first.
    pub projects: Vec<(ProjectId, ProjectUse)>,
}

impl Threads {
    /// What everything takes on the disk.
    pub async fn space(&self) -> Result<DiskUse, ThreadError> {
        let store = &self.deps().store;
        let space = store.space().await?;
        let mut projects: BTreeMap<ProjectId, ProjectUse> = space
            .projects
            .into_iter()
            .map(|(project_id, row)| (project_id, ProjectUse { row, ..ProjectUse::default() }))
            .collect();
        let places = self.deps().places.clone();
        let counted = tokio::task::spawn_blocking(move || places.iter().map(count).collect::<Vec<_>>());
        let mut parts = Vec::new();
        for (part, shares) in counted.await.map_err(|error| ThreadError::Store(Box::new(error)))? {
            parts.extend((part.bytes > 0).then_some(part));
            for (share, bytes) in shares {
                let Some(project_id) = owner(store, &share).await? else { continue };
                let used = projects.entry(project_id).or_default();
                match share {
                    Share::Root(root) => {
                        used.checkpoint_bytes += bytes;
                        if used.row.root.is_empty() {
                            used.row.root = root;
                        }
                    }
                    Share::Thread(_) => used.temporary_bytes += bytes,
                }
            }
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let mut projects: Vec<(ProjectId, ProjectUse)> = projects.into_iter().collect();
        projects.sort_by_key(|(_, used)| std::cmp::Reverse(used.bytes()));
        Ok(DiskUse { database: (space.database_bytes, space.free_bytes, space.index_bytes), parts, projects })
    }
}

/// Whose a part of a place is.
enum Share {
    Root(String),
    Thread(ThreadId),
}

async fn owner(store: &Store, share: &Share) -> Result<Option<ProjectId>, ThreadError> {
    Ok(match share {
        Share::Root(root) => store.project_of_root(root.clone()).await?,
        Share::Thread(thread_id) => store.thread(*thread_id).await?.map(|row| row.project_id),
    })
}

/// Counts a place. Blocking.
fn count(place: &Place) -> (Part, Vec<(Share, u64)>) {
    let mut part = Part { what: place.what, path: place.folder.clone(), bytes: 0, more: false };
    let mut shares = Vec::new();
    let mut left = COUNTED_MAX;
    for entry in std::fs::read_dir(&place.folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(place.prefix)) else { continue };
        let bytes = size(&entry.path(), &mut left);
        part.bytes += bytes;
        let share = match place.of {
            PlaceOf::All => None,
            PlaceOf::Threads => name.parse().ok().map(Share::Thread),
            PlaceOf::Depots => mcode_checkpoints::Depot::root_of_folder(&entry.path()).map(Share::Root),
        };
        shares.extend(share.map(|share| (share, bytes)));
    }
    part.more = left == 0;
    (part, shares)
}

/// What a file, or a folder with everything in it, takes. Links are not followed.
fn size(path: &Path, left: &mut u64) -> u64 {
    let mut bytes = 0;
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop() {
        let Ok(about) = path.symlink_metadata() else { continue };
        *left = left.saturating_sub(1);
        if *left == 0 {
            return bytes;
        }
        if about.is_dir() {
            open.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            bytes += taken(&about);
        }
    }
    bytes
}

/// What a file takes: one with holes takes less than its length.
#[cfg(unix)]
fn taken(about: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    about.blocks().saturating_mul(512)
}

#[cfg(not(unix))]
fn taken(about: &std::fs::Metadata) -> u64 {
    about.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_by_whom_it_is_of_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let thread = ThreadId::from_uuid(mcode_env::IdGen::next(&mcode_env::SystemIds));
        let folder = dir.path().join("aside");
        std::fs::create_dir_all(folder.join(thread.to_string()).join("deep")).unwrap();
        std::fs::write(folder.join(thread.to_string()).join("deep/file"), vec![1; 10_000]).unwrap();
        std::fs::write(folder.join("other"), vec![1; 5_000]).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("/", folder.join("everything")).unwrap();
        let place = Place { what: "moved aside", folder: folder.clone(), prefix: "", of: PlaceOf::Threads };
        let (part, shares) = count(&place);
        assert!((15_000..40_000).contains(&part.bytes) && !part.more, "{part:?}");
        assert!(matches!(shares[..], [(Share::Thread(of), 10_000..=20_000)] if of == thread));
        let (part, shares) = count(&Place { prefix: "oth", of: PlaceOf::All, ..place.clone() });
        assert!((5_000..9_000).contains(&part.bytes) && shares.is_empty(), "{part:?}");
        assert_eq!(count(&Place { folder: dir.path().join("none"), ..place }).0.bytes, 0);
        // A place with more files than are counted says so.
        let mut left = 2;
        assert!(size(&folder, &mut left) < 15_000 && left == 0);
    }
}
