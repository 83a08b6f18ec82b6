//! The folder of a host: what the next daemon finds.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::progress::{About, Progress};
use super::tree::Tree;

/// The file with what was printed.
pub const OUTPUT: &str = "output";
/// The file with the [`Status`].
pub const STATUS: &str = "status";
/// The socket at which the host listens.
pub const CONTROL: &str = "control";
/// The status while it is written.
const STATUS_NEW: &str = "status.new";
/// Longest status that is read.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;

/// What is known of a command when nobody is there to ask.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Whose it is.
    pub about: About,
    /// The command and its host.
    pub tree: Tree,
    /// Where it stood when this was written: after its start, after its end, and when all of it was gone.
    pub progress: Progress,
}

/// Makes a folder that its user alone may enter; one that is there is fine.
///
/// # Errors
/// When the system refuses.
pub fn create_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).recursive(true).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Replaces the status in `folder` in one step. Not synced: it has to survive the daemon, not the machine, whose
/// processes do not survive either.
///
/// # Errors
/// When the system refuses.
pub fn write_status(folder: &Path, status: &Status) -> io::Result<()> {
    let new = folder.join(STATUS_NEW);
    File::create(&new)?.write_all(&serde_json::to_vec(status)?)?;
    fs::rename(new, folder.join(STATUS))
}

/// The status in `folder`; `None` when there is none yet.
///
/// # Errors
/// When it can not be read or is no status.
pub fn read_status(folder: &Path) -> io::Result<Option<Status>> {
    let path = folder.join(STATUS);
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(found) if found.len() > STATUS_BYTES_MAX => {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the status is too long to be one"));
        }
        Ok(_) => {}
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

/// Takes a host's folder away.
pub fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, folder = %folder.display(), "the folder of an ended command could not be removed");
    }
}

/// Removes the folder when nobody holds it any more, if it was given up.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    given_up: AtomicBool,
}

impl Kept {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, given_up: AtomicBool::new(false) }
    }

    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.given_up.load(Ordering::Relaxed) {
            remove(&self.path);
        }
    }
}
