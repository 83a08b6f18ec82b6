//! A lock between processes, by a file: whoever holds it may change what it stands for. The system lets go of it when its
//! holder dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often a lock that is held is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The lock while it is held.
#[derive(Debug)]
pub(crate) struct Held(#[allow(dead_code, reason = "held for its drop")] File);

/// Takes the lock of `path`, waiting for it at most `wait`.
///
/// # Errors
/// `TimedOut` when it is not let go of in time, or what the system says.
pub(crate) async fn take(path: &Path, wait: Duration) -> io::Result<Held> {
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        // Opened each time: whoever cleans up may have removed the file of the last look.
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => return Ok(Held(file)),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < deadline => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("{} is held by another process for {} s", path.display(), wait.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holds_it_and_the_next_gets_it_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let first = take(&path, Duration::ZERO).await.unwrap();
        assert_eq!(take(&path, Duration::from_millis(40)).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let waiting = take(&path, Duration::from_secs(20));
        let release = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(waiting, release);
        assert!(second.is_ok());
    }
}
