//! What the folders of a project hold, remembered from one command to the next: most of them do not change, and each
//! command looks through all of them.
//!
//! The time of a folder's last change of status is believed: unlike that of its content, nobody can set it back.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
#[cfg(unix)]
use std::time::Duration;

/// Most names of one folder that are looked at.
const NAMES_MAX: usize = 20_000;
/// Most folders that are remembered; beyond it all are read anew.
const REMEMBERED_MAX: usize = 20_000;
/// A folder that changed so shortly before it was read may have changed again within the same tick of the clock.
#[cfg(unix)]
const TICK: Duration = Duration::from_millis(50);
/// Folders of package managers, large and not worked in. They come last: whoever is held to a look can make one too.
const SKIPPED: [&str; 3] = ["node_modules", ".venv", "__pycache__"];
/// Marks a folder that can be made again, such as cargo's `target`; what is in it comes last too.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// What is known of a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Names of the folders in it that are to be looked at.
    pub(crate) folders: Vec<OsString>,
    /// Names of those that are to be looked at when there is nothing else.
    pub(crate) later: Vec<OsString>,
    /// Whether it holds a `.git`.
    pub(crate) git: bool,
    /// Whether it is a repository without a work tree.
    pub(crate) bare: bool,
    /// Whether it can be made again.
    pub(crate) cache: bool,
    /// Whether all names were looked at.
    pub(crate) complete: bool,
}

/// When a folder was changed, and which it is.
pub(crate) type Stamp = (i64, i64, u64, u64);

/// Listings by folder, with how the folder was when it was read.
type Known = HashMap<PathBuf, (Stamp, Arc<Listing>)>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// What a folder holds; `None` when it can not be read.
pub(crate) fn of(folder: &Path) -> Option<Arc<Listing>> {
    let stamp = stamp(folder);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match (known.get(folder), stamp) {
        (Some((seen, listing)), Some(now)) if *seen == now => return Some(Arc::clone(listing)),
        _ => drop(known),
    }
    let listing = Arc::new(read(folder)?);
    if let Some(stamp) = stamp.filter(settled) {
        known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(folder.to_path_buf(), (stamp, Arc::clone(&listing)));
    }
    Some(listing)
}

fn read(folder: &Path) -> Option<Listing> {
    let mut found = Listing { complete: true, ..Listing::default() };
    let mut parts = 0;
    for (count, entry) in folder.read_dir().ok()?.flatten().enumerate() {
        if count >= NAMES_MAX {
            found.complete = false;
            break;
        }
        let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
        match name.to_str() {
            Some(".git") => found.git = true,
            Some(CACHE_TAG) => found.cache = true,
            Some(known) if SKIPPED.contains(&known) => found.later.extend(kind.is_dir().then_some(name)),
            known => {
                parts += usize::from(matches!(known, Some("HEAD" | "objects" | "refs")));
                found.folders.extend(kind.is_dir().then_some(name));
            }
        }
    }
    found.bare = parts == 3;
    Some(found)
}

#[cfg(unix)]
pub(crate) fn stamp(folder: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let found = folder.symlink_metadata().ok()?;
    Some((found.ctime(), found.ctime_nsec(), found.ino(), found.dev()))
}

/// Nothing here tells that a folder is as it was.
#[cfg(not(unix))]
pub(crate) fn stamp(_folder: &Path) -> Option<Stamp> {
    None
}

/// This moment, less what the times of files lag behind; `None` where nothing tells when files were made.
#[cfg(unix)]
pub(crate) fn shortly_before_now() -> Option<std::time::SystemTime> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let since = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    Some(std::time::SystemTime::UNIX_EPOCH + since.checked_sub(TICK)?)
}

#[cfg(not(unix))]
pub(crate) fn shortly_before_now() -> Option<std::time::SystemTime> {
    None
}

/// Whether the folder has been as it is for a while.
#[cfg(unix)]
pub(crate) fn settled(stamp: &Stamp) -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let age = (now.tv_sec - stamp.0) * 1_000_000_000 + (now.tv_nsec - stamp.1);
    u64::try_from(age).is_ok_and(|age| Duration::from_nanos(age) > TICK)
}

#[cfg(not(unix))]
pub(crate) fn settled(_stamp: &Stamp) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_changed_is_read_again_even_when_its_date_is_set_back() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().canonicalize().unwrap();
        let old = std::fs::File::open(&folder).unwrap();
        let date = old.metadata().unwrap().modified().unwrap();
        while !settled(&stamp(&folder).unwrap()) {
            std::thread::yield_now();
        }
        assert!(!of(&folder).unwrap().git);
        assert!(Arc::ptr_eq(&of(&folder).unwrap(), &of(&folder).unwrap()), "it is not remembered");
        std::fs::create_dir(folder.join(".git")).unwrap();
        old.set_modified(date).unwrap();
        assert!(of(&folder).unwrap().git);
    }
}
