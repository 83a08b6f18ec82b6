//! Which states of files nobody may drop, and of which projects some may go.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use mcode_checkpoints::SnapshotId;

/// The latest states of threads with a run at work, and the roots of which a thread is gone since the last sweep.
#[derive(Debug, Default)]
pub(crate) struct Held {
    states: Mutex<BTreeMap<u64, (PathBuf, SnapshotId)>>,
    runs: AtomicU64,
    left: Mutex<BTreeSet<PathBuf>>,
}

impl Held {
    /// A number for a run.
    pub(crate) fn run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed)
    }

    /// The latest state that a run's thread knows; `None` ends that.
    pub(crate) fn hold(&self, run: u64, root: &Path, id: Option<SnapshotId>) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        match id {
            Some(id) => drop(states.insert(run, (root.to_path_buf(), id))),
            None => drop(states.remove(&run)),
        }
    }

    /// The states of a root that are held: they never make room for others.
    pub(crate) fn of(&self, root: &Path) -> HashSet<SnapshotId> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.values().filter(|(of, _)| of == root).map(|(_, id)| *id).collect()
    }

    /// Notes that a thread of a root is gone: states of files that only it knew may go.
    pub(crate) fn left(&self, root: PathBuf) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(root);
    }

    /// The roots that were noted since the last time.
    pub(crate) fn take_left(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}
