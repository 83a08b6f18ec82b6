//! Folders of threads: for temporary files, for what was moved aside, and for what the next daemon has to know.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mcode_ids::ThreadId;

use super::Bounds;

/// How long a thread's temporary files stay after the last was made or removed right in their folder.
const TEMP_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long what was moved aside stays after the last was moved into its thread's folder.
const ASIDE_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
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
        self.all_aside().join(thread.to_string())
    }

    fn all_aside(&self) -> PathBuf {
        let folder = &self.places.aside;
        if folder.as_os_str().is_empty() { self.places.temp.join(ASIDE) } else { folder.clone() }
    }

    /// Where it is put down how things were before each command.
    pub(crate) fn watches(&self) -> PathBuf {
        self.places.temp.join(WATCHES)
    }

    /// Removes the temporary files of a thread that is forgotten. What was moved aside of it stays until it is swept.
    /// Blocking.
    pub fn forget(&self, thread: ThreadId) {
        let folder = self.temp_of(thread);
        if let Err(error) = std::fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%thread, %error, "the temporary files of a thread could not be removed");
        }
    }

    /// Removes what was left alone for [`TEMP_KEPT`]: temporary files of threads, and records of commands whose end no
    /// daemon saw; and what was moved aside after [`ASIDE_KEPT`]. Blocking.
    pub fn sweep(&self) {
        let own = [WATCHES, ASIDE].map(|name| self.places.temp.join(name));
        sweep_folder(&self.places.temp, TEMP_KEPT, &own);
        sweep_folder(&own[0], TEMP_KEPT, &[]);
        sweep_folder(&self.all_aside(), ASIDE_KEPT, &[]);
    }
}

/// Removes what lies in a folder and was not changed for so long.
fn sweep_folder(folder: &Path, kept: Duration, but: &[PathBuf]) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let age = entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed().unwrap_or_default());
        if but.contains(&path) || !age.is_ok_and(|age| age > kept) {
            continue;
        }
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        if let Err(error) = removed {
            tracing::warn!(%error, "files of a thread that were left alone for long could not be removed");
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, File};
    use std::time::SystemTime;

    use mcode_env::{IdGen, SystemIds};

    use super::*;
    use crate::bounds::{OwnPlaces, Settings};

    #[test]
    fn what_was_moved_aside_stays_for_a_month_and_temporary_files_for_a_week() {
        let root = tempfile::tempdir().unwrap();
        let (temp, aside) = (root.path().join("tmp"), root.path().join("aside"));
        let places = OwnPlaces { temp, aside, ..OwnPlaces::default() };
        let bounds = Bounds::new(Arc::new(Settings::default), places);
        let threads: Vec<ThreadId> = (0..3).map(|_| ThreadId::from_uuid(SystemIds.next())).collect();
        for (thread, days) in threads.iter().zip([1, 8, 31]) {
            for folder in [bounds.temp_of(*thread), bounds.aside(*thread)] {
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("x"), "x").unwrap();
                let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60 + 60);
                File::open(&folder).unwrap().set_modified(then).unwrap();
            }
        }
        bounds.sweep();
        let left = |of: &dyn Fn(ThreadId) -> PathBuf| threads.iter().map(|it| of(*it).exists()).collect::<Vec<_>>();
        assert_eq!(left(&|thread| bounds.temp_of(thread)), [true, false, false]);
        assert_eq!(left(&|thread| bounds.aside(thread)), [true, true, false]);
        bounds.forget(threads[0]);
        assert!(!bounds.temp_of(threads[0]).exists() && bounds.aside(threads[0]).exists());
    }
}
