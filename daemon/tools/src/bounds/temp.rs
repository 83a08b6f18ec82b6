//! Folders of threads: for temporary files, for what was moved aside, and for what the next daemon has to know.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mcode_ids::ThreadId;

use super::Bounds;

/// How long a thread's temporary files stay after the last was made or removed right in their folder.
const TEMP_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Beside the folders of threads: how things were before the commands that run.
const WATCHES: &str = "watches";
/// What was moved aside, where no place is named for it.
const ASIDE: &str = "aside";

/// The folder for temporary files of a thread, for a command that runs. With the last of them it goes, if it is empty.
#[derive(Debug)]
pub struct TempUse {
    bounds: Arc<Bounds>,
    thread: ThreadId,
}

impl TempUse {
    /// Makes the folder if there is none.
    ///
    /// # Errors
    /// When it can not be made.
    pub(crate) fn begin(bounds: &Arc<Bounds>, thread: ThreadId) -> io::Result<Self> {
        let mut temps = bounds.temps.lock().unwrap_or_else(PoisonError::into_inner);
        mcode_env::files::create_private_dir(&bounds.temp_of(thread))?;
        *temps.entry(thread).or_default() += 1;
        Ok(Self { bounds: Arc::clone(bounds), thread })
    }
}

impl Drop for TempUse {
    fn drop(&mut self) {
        let mut temps = self.bounds.temps.lock().unwrap_or_else(PoisonError::into_inner);
        let left = temps.get_mut(&self.thread).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            temps.remove(&self.thread);
            // What holds something stays until it is swept.
            std::fs::remove_dir(self.bounds.temp_of(self.thread)).ok();
        }
    }
}

impl Bounds {
    /// The folder that holds each thread's temporary files.
    #[must_use]
    pub fn temp(&self) -> &Path {
        &self.places.temp
    }

    /// A thread's temporary files; the folder is there while a command of the thread runs, or it is not empty.
    pub(super) fn temp_of(&self, thread: ThreadId) -> PathBuf {
        self.places.temp.join(thread.to_string())
    }

    /// Where what the commands of a thread planted goes.
    pub(crate) fn aside(&self, thread: ThreadId) -> PathBuf {
        let folder = &self.places.aside;
        let folder = if folder.as_os_str().is_empty() { self.places.temp.join(ASIDE) } else { folder.clone() };
        folder.join(thread.to_string())
    }

    /// Where it is put down how things were before each command.
    pub(crate) fn watches(&self) -> PathBuf {
        self.places.temp.join(WATCHES)
    }

    /// Removes what was left alone for [`TEMP_KEPT`]: temporary files of threads, and records of commands whose end no
    /// daemon saw. Blocking.
    pub fn sweep(&self) {
        let own = [WATCHES, ASIDE].map(|name| self.places.temp.join(name));
        let records = std::fs::read_dir(&own[0]).into_iter().flatten();
        for entry in std::fs::read_dir(&self.places.temp).into_iter().flatten().chain(records).flatten() {
            let path = entry.path();
            let age =
                entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed().unwrap_or_default());
            if own.contains(&path) || !age.is_ok_and(|age| age > TEMP_KEPT) {
                continue;
            }
            let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            if let Err(error) = removed {
                tracing::warn!(%error, "a thread's temporary files could not be removed");
            }
        }
    }
}
