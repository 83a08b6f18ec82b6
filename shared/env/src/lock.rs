//! Locks between processes, by files: whoever holds one may change what it stands for. The system lets go of a lock when
//! its holder dies. The files are never removed: removing one would let two processes hold "the" lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often a lock that is held is looked at again.
pub const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A lock while it is held; it is free again when this is dropped.
#[derive(Debug)]
pub struct FileLock(#[allow(dead_code, reason = "held for its drop")] File);

impl FileLock {
    /// Takes the lock of `path` if nobody has it. The file is made if need be, readable for its owner alone; a link is not
    /// followed.
    ///
    /// # Errors
    /// What the system says of the file.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock of `path`, waiting for it at most `wait`. Blocks its thread.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when it is not let go of in time, or what the system says of the file.
    pub fn take(path: &Path, wait: Duration) -> io::Result<Self> {
        let mut left = wait;
        loop {
            if let Some(taken) = Self::try_take(path)? {
                return Ok(taken);
            }
            if left.is_zero() {
                return Err(held(path, wait));
            }
            let pause = LOOK_EVERY.min(left);
            std::thread::sleep(pause);
            left -= pause;
        }
    }
}

/// The error of who has waited so long for the lock of `path`.
#[must_use]
pub fn held(path: &Path, wait: Duration) -> io::Error {
    let message = format!("{} is held by another process for {} s", path.display(), wait.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_the_next_gets_it_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let first = FileLock::try_take(&path).unwrap().unwrap();
        assert!(FileLock::try_take(&path).unwrap().is_none());
        let late = FileLock::take(&path, Duration::from_millis(40)).unwrap_err();
        assert!(late.kind() == io::ErrorKind::TimedOut && late.to_string().contains("x.lock"), "{late}");
        let waits = std::thread::spawn({
            let path = path.clone();
            move || FileLock::take(&path, Duration::from_secs(20))
        });
        drop(first);
        assert!(waits.join().unwrap().is_ok());
        assert!(path.exists(), "it is never removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), folder.path().join("x.lock")).unwrap();
        assert!(FileLock::try_take(&folder.path().join("x.lock")).is_err());
        assert!(!folder.path().join("elsewhere").exists());
    }
}
