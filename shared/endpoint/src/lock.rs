//! Advisory locks on files that are never removed: removing one would let two processes hold "the" lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::EndpointError;

/// First pause between two tries.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause between two tries.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Bytes of a lock file that are read: a process id and a path.
const SIGNED_BYTES_MAX: u64 = 4096;

/// Opens a lock file, making it if need be; links are not followed.
pub(crate) fn open(path: &Path) -> Result<File, EndpointError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path).map_err(EndpointError::io("open the lock file", path))
}

/// Takes the lock if it is free.
pub(crate) fn try_lock(file: &File, path: &Path) -> Result<bool, EndpointError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(EndpointError::Io { action: "lock", path: path.to_path_buf(), source }),
    }
}

/// Takes the lock of a file that stands for something only one process may use, and writes into it our process id and
/// where we can be reached. Waits for at most `wait`; the lock is held until the returned file is dropped.
///
/// # Errors
/// [`EndpointError::LockHeld`] with the holder, [`EndpointError::Io`].
pub async fn lock_file(path: &Path, reached_at: &Path, wait: Duration) -> Result<File, EndpointError> {
    let mut file = lock_within(path, wait).await?;
    sign(&file)
        .and_then(|()| write!(file, "\n{}", reached_at.display()))
        .map_err(EndpointError::io("write the lock file", path))?;
    Ok(file)
}

/// Takes the lock, waiting for at most `wait`.
pub(crate) async fn lock_within(path: &Path, wait: Duration) -> Result<File, EndpointError> {
    let file = open(path)?;
    let start = Instant::now();
    let mut pause = PAUSE_MIN;
    while !try_lock(&file, path)? {
        if start.elapsed() >= wait {
            let waited_ms = start.elapsed().as_millis();
            return Err(EndpointError::LockHeld { path: path.to_path_buf(), pid: holder(path), waited_ms });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Ok(file)
}

/// Writes our process id into a file whose lock we hold, for messages.
pub(crate) fn sign(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(std::process::id().to_string().as_bytes())
}

/// The process id in a lock file.
pub(crate) fn holder(path: &Path) -> Option<u32> {
    signed(path)?.lines().next()?.trim().parse().ok()
}

/// Where the holder of a lock that [`lock_file`] gave can be reached.
#[must_use]
pub fn holder_reached_at(path: &Path) -> Option<PathBuf> {
    signed(path)?.lines().nth(1).filter(|line| !line.is_empty()).map(PathBuf::from)
}

/// Nothing where the system keeps others from reading a locked file.
fn signed(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(SIGNED_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_held_lock_is_reported_with_its_holder_and_free_after_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let first = lock_within(&path, Duration::ZERO).await.unwrap();
        sign(&first).unwrap();
        let error = lock_within(&path, Duration::from_millis(5)).await.unwrap_err();
        assert!(matches!(&error, EndpointError::LockHeld { .. }), "{error}");
        #[cfg(unix)]
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(first);
        let second = lock_file(&path, Path::new("/run/a socket"), Duration::ZERO).await.unwrap();
        #[cfg(unix)]
        assert_eq!((holder(&path), holder_reached_at(&path)), (Some(std::process::id()), Some("/run/a socket".into())));
        drop(second);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "keep").unwrap();
        std::os::unix::fs::symlink(&precious, dir.path().join("x.lock")).unwrap();
        assert!(open(&dir.path().join("x.lock")).is_err());
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "keep");
    }
}
