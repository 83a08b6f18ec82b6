//! A lock between processes, waited for without holding up a thread.

use std::io;
use std::path::Path;
use std::time::Duration;

use mcode_env::lock::{FileLock, LOOK_EVERY, held};

/// Takes the lock of `path`, waiting for it at most `wait`.
///
/// # Errors
/// `TimedOut` when it is not let go of in time, or what the system says.
pub(crate) async fn take(path: &Path, wait: Duration) -> io::Result<FileLock> {
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        // Opened each time: whoever cleans up may have removed the file of the last look.
        if let Some(taken) = FileLock::try_take(path)? {
            return Ok(taken);
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(held(path, wait));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
