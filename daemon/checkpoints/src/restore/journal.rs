//! The journal of a restore that is being carried out: what is going to be done, written before anything is.
//!
//! Each action says what is there and what will be, so that doing it again does no harm: what is as it should be already
//! is left, what is as it was is done, anything else is somebody's change.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::SnapshotId;
use crate::restore::plan::Action;

/// Files that a restore writes begin so until they get their names.
const PREFIX: &str = ".mcode-restore-";

/// A restore that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupted {
    /// The state before it began.
    pub undo: SnapshotId,
    /// How many paths it was to change; some of them are changed.
    pub actions: usize,
}

/// What is going to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Tells this restore's own files from others.
    pub(crate) token: String,
    /// The state before it.
    pub(crate) undo: SnapshotId,
    /// Snapshots whose contents it needs.
    pub(crate) needs: Vec<SnapshotId>,
    pub(crate) actions: Vec<Action>,
}

impl Journal {
    pub(crate) fn new(undo: SnapshotId, needs: Vec<SnapshotId>, actions: Vec<Action>) -> Result<Self, CheckpointError> {
        let token = mcode_env::random_bytes::<8>().map_err(CheckpointError::io("read", Path::new("/dev/random")))?;
        let token = token.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { token, undo, needs, actions })
    }

    /// The name under which the n-th action writes.
    pub(crate) fn name(&self, number: usize) -> Vec<u8> {
        format!("{PREFIX}{}-{number}", self.token).into_bytes()
    }

    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join("journal")
    }

    /// The journal of a depot, when a restore was cut off or is being carried out.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, CheckpointError> {
        let path = Self::path(folder);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(CheckpointError::io("read", &path))?,
        };
        let damaged = |error: serde_json::Error| CheckpointError::io("read", &path)(error.into());
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Writes it; when this returns, it survives a power cut.
    pub(crate) fn write(&self, depot: &Depot) -> Result<(), CheckpointError> {
        let path = Self::path(&depot.folder);
        let fault = || CheckpointError::io("write", &path);
        let text = serde_json::to_vec(self).map_err(|error| fault()(error.into()))?;
        depot.disk.replace(&path, &text).map_err(fault())
    }

    /// Removes it: the restore has come to its end.
    pub(crate) fn remove(depot: &Depot) -> Result<(), CheckpointError> {
        let path = Self::path(&depot.folder);
        depot.disk.remove(&path).map_err(CheckpointError::io("remove", &path))?;
        depot.disk.sync_folder(&depot.folder).map_err(CheckpointError::io("write", &depot.folder))
    }
}

/// How names begin that a restore which was cut off has left in the project.
pub(crate) fn leftover(folder: &Path) -> Option<Vec<u8>> {
    let journal = Journal::read(folder).ok().flatten()?;
    Some(format!("{PREFIX}{}-", journal.token).into_bytes())
}
