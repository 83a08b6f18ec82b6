//! What the model believes each file holds: the hash of the content it last saw or wrote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mcode_events::tool::FileVersion;

/// Per thread; filled from the log when the thread is loaded, then kept by the file tools.
#[derive(Debug, Default)]
pub struct FileLedger(Mutex<BTreeMap<PathBuf, String>>);

impl FileLedger {
    /// A ledger that knows these files: resolved path and BLAKE3 hash.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(Mutex::new(files.into_iter().map(|(path, hash)| (PathBuf::from(path), hash)).collect()))
    }

    /// Whether the model has seen no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files().is_empty()
    }

    /// The hash the model last saw of a resolved path.
    #[must_use]
    pub fn seen(&self, path: &Path) -> Option<String> {
        self.files().get(path).cloned()
    }

    /// Notes what the model now knows of a file; give the result to the log in [`crate::ToolOutput::files`].
    pub fn note(&self, path: &Path, hash: Option<String>) -> FileVersion {
        match &hash {
            Some(hash) => self.files().insert(path.to_path_buf(), hash.clone()),
            None => self.files().remove(path),
        };
        FileVersion { path: path.to_string_lossy().into_owned(), hash }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
