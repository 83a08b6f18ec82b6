//! Every write of this crate, in its depot and in the project: one place, so that tests can end the process or fill the
//! disk at each of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes files. In tests it may be told to fail.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) faults: std::sync::Arc<faults::Faults>,
}

impl Disk {
    /// Comes before each change of the disk. Does nothing outside tests.
    #[cfg(not(test))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests have it fail")]
    pub(crate) fn step(&self, _what: &'static str) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn step(&self, what: &'static str) -> io::Result<()> {
        self.faults.step(what)
    }

    /// Makes a file that only its owner may read, and that was not there.
    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        self.step("create")?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        options.open(path)
    }

    pub(crate) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.step("write") {
            // What a full disk leaves behind is a part.
            file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        file.write_all(bytes)
    }

    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        self.step("sync")?;
        file.sync_all()
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename")?;
        fs::rename(from, to)
    }

    /// Removes a file; one that is not there is no error.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove")?;
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Has the names of a folder on the disk.
    pub(crate) fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step("sync folder")?;
        #[cfg(unix)]
        match File::open(path)?.sync_all() {
            // Some network file systems do not know it.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {}
            other => return other,
        }
        #[cfg(not(unix))]
        let _ = path;
        Ok(())
    }

    /// Replaces a file as a whole.
    pub(crate) fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.step("replace")?;
        mcode_env::files::write_atomic(path, content)
    }
}

#[cfg(test)]
pub(crate) mod faults {
    //! Faults at the n-th change of the disk.
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

    /// What the process ends with when it is told to end.
    pub(crate) const ENDED: i32 = 42;

    /// What happens at the step that is counted down to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// The process is gone: no destructor runs, nothing is cleaned up.
        End = 1,
        /// No space is left, from this step on.
        Full = 2,
    }

    #[derive(Default)]
    pub(crate) struct Faults {
        left: AtomicI64,
        fault: AtomicU8,
        steps: AtomicI64,
        meddling: Mutex<Option<(&'static str, Meddling)>>,
    }

    /// What somebody else does at that very moment.
    type Meddling = Box<dyn FnOnce() + Send>;

    impl std::fmt::Debug for Faults {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Faults")
        }
    }

    impl Faults {
        /// Lets `steps` steps pass.
        pub(crate) fn after(&self, steps: i64, fault: Fault) {
            self.left.store(steps, Ordering::SeqCst);
            self.fault.store(fault as u8, Ordering::SeqCst);
        }

        /// Has somebody else do something right before the next step of this name.
        pub(crate) fn meddle(&self, what: &'static str, meddling: impl FnOnce() + Send + 'static) {
            *self.meddling.lock().unwrap() = Some((what, Box::new(meddling)));
        }

        pub(crate) fn none(&self) {
            self.fault.store(0, Ordering::SeqCst);
        }

        /// How many steps there were.
        pub(crate) fn steps(&self) -> i64 {
            self.steps.load(Ordering::SeqCst)
        }

        pub(crate) fn step(&self, what: &'static str) -> io::Result<()> {
            self.steps.fetch_add(1, Ordering::SeqCst);
            let due = self.meddling.lock().unwrap().take_if(|(at, _)| *at == what);
            if let Some((_, meddling)) = due {
                meddling();
            }
            let fault = self.fault.load(Ordering::SeqCst);
            if fault == 0 || self.left.fetch_sub(1, Ordering::SeqCst) > 0 {
                return Ok(());
            }
            if fault == Fault::End as u8 {
                std::process::exit(ENDED);
            }
            Err(io::Error::new(io::ErrorKind::StorageFull, what))
        }
    }
}
