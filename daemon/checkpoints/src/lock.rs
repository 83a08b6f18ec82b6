//! The lock of a depot: one process at a time changes it. The system lets go of it when its holder dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

use mcode_env::Clock;

use crate::error::CheckpointError;

/// How often a lock that is held is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The lock while it is held.
#[derive(Debug)]
pub(crate) struct Held(#[allow(dead_code, reason = "held for its drop")] File);

/// Takes the lock of `path`, waiting for at most `wait_ms`. The file is never removed: two could hold "the" lock then.
pub(crate) fn take(path: &Path, clock: &dyn Clock, wait_ms: u64) -> Result<Held, CheckpointError> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    let file = options.open(path).map_err(CheckpointError::io("open the lock", path))?;
    let start = clock.now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Held(file)),
            Err(TryLockError::Error(error)) => return Err(CheckpointError::io("lock", path)(error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let waited_ms = clock.now().millis_since(start);
        if waited_ms >= wait_ms {
            return Err(CheckpointError::Busy { path: path.to_path_buf(), waited_ms });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
