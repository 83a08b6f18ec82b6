//! All names in the folders of a project, with the files that they stand for, remembered from one command to the next.
//!
//! As [`crate::listing`], whose stamps it goes by, but of everything, also of what git ignores and of installed packages:
//! what a deny rule names may lie anywhere.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::listing::{Stamp, settled, stamp};

/// Most names of one folder that are looked at.
const NAMES_MAX: usize = 50_000;
/// Most names that are remembered, of all folders; beyond it all are read anew.
const REMEMBERED_MAX: usize = 1_000_000;

/// What a folder holds.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Folders.
    pub(crate) folders: Vec<OsString>,
    /// Everything else but links, with its number on the disk (0 where there is none).
    pub(crate) files: Vec<(OsString, u64)>,
    /// Symbolic links.
    pub(crate) links: Vec<OsString>,
    /// Whether all names were looked at.
    pub(crate) complete: bool,
    /// What was last found in it, and by which patterns.
    judged: Mutex<Option<(u64, Arc<Judged>)>>,
}

/// Which names of a folder some patterns are about.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Names that may not be looked at.
    pub(crate) view: Vec<OsString>,
    /// Names that may not be changed.
    pub(crate) edit: Vec<OsString>,
    /// Folders in which more may be found.
    pub(crate) below: Vec<OsString>,
}

#[derive(Default)]
struct Known {
    folders: HashMap<PathBuf, (Stamp, Arc<Names>)>,
    names: usize,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

impl Names {
    /// What patterns find here; `key` stands for the patterns, and what `judge` finds for it is remembered.
    pub(crate) fn judged(&self, key: u64, judge: impl FnOnce(&Self) -> Judged) -> Arc<Judged> {
        let mut known = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((by, judged)) if *by == key => Arc::clone(judged),
            _ => {
                let judged = Arc::new(judge(self));
                *known = Some((key, Arc::clone(&judged)));
                judged
            }
        }
    }

    fn count(&self) -> usize {
        self.folders.len() + self.files.len() + self.links.len() + 1
    }
}

/// What a folder holds; `None` when it can not be read.
pub(crate) fn of(folder: &Path) -> Option<Arc<Names>> {
    let stamp = stamp(folder);
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match (known.folders.get(folder), stamp) {
        (Some((seen, names)), Some(now)) if *seen == now => return Some(Arc::clone(names)),
        _ => drop(known),
    }
    let names = Arc::new(read(folder)?);
    if let Some(stamp) = stamp.filter(settled) {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.names >= REMEMBERED_MAX {
            *known = Known::default();
        }
        known.names += names.count();
        if let Some((_, old)) = known.folders.insert(folder.to_path_buf(), (stamp, Arc::clone(&names))) {
            known.names = known.names.saturating_sub(old.count());
        }
    }
    Some(names)
}

fn read(folder: &Path) -> Option<Names> {
    let mut found = Names { complete: true, ..Names::default() };
    for (count, entry) in folder.read_dir().ok()?.flatten().enumerate() {
        if count >= NAMES_MAX {
            found.complete = false;
            break;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.folders.push(entry.file_name());
        } else if kind.is_symlink() {
            found.links.push(entry.file_name());
        } else {
            found.files.push((entry.file_name(), number(&entry)));
        }
    }
    Some(found)
}

#[cfg(unix)]
fn number(entry: &std::fs::DirEntry) -> u64 {
    std::os::unix::fs::DirEntryExt::ino(entry)
}

#[cfg(not(unix))]
fn number(_entry: &std::fs::DirEntry) -> u64 {
    0
}
