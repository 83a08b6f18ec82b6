//! Whether the database that is open is still the one at its path.
//!
//! An open file that was removed can be written to without an error, and all of it is lost at the end.

use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// The file that was opened.
#[derive(Debug)]
pub(crate) struct Presence {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Presence {
    /// Remembers the file at this path.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.to_path_buf(), identity: identity(path) }
    }

    /// # Errors
    /// [`StoreError::Removed`] when the path leads to nothing or to another file now.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.identity.is_some() && identity(&self.path) != self.identity {
            return Err(StoreError::Removed { path: self.path.clone() });
        }
        Ok(())
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The system lets nobody remove a file that is open.
#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<(u64, u64)> {
    None
}
