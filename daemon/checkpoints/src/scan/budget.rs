//! How long a look may take, and whether it is still wanted.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use mcode_env::{Clock, Timestamp};

use crate::error::CheckpointError;

/// Two looks at the clock count for no more milliseconds than this: the machine may have slept between them, or the clock
/// was set.
const STEP_MS_MAX: u64 = 2000;

/// Time that is used up.
#[derive(Debug)]
pub(crate) struct Budget<'a> {
    clock: &'a dyn Clock,
    stop: &'a AtomicBool,
    limit_ms: u64,
    last: AtomicI64,
    spent: AtomicU64,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, stop: &'a AtomicBool, limit_ms: u64) -> Self {
        Self { clock, stop, limit_ms, last: AtomicI64::new(clock.now().millis()), spent: AtomicU64::new(0) }
    }

    /// Fails when it is used up, or when the depot was stopped.
    pub(crate) fn check(&self) -> Result<(), CheckpointError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CheckpointError::Stopped);
        }
        let now = self.clock.now();
        let last = Timestamp::from_millis(self.last.swap(now.millis(), Ordering::Relaxed));
        let step = now.millis_since(last).min(STEP_MS_MAX);
        if self.spent.fetch_add(step, Ordering::Relaxed) + step > self.limit_ms {
            return Err(CheckpointError::TooSlow { limit_ms: self.limit_ms });
        }
        Ok(())
    }
}
