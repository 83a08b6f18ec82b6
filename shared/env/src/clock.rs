//! Wall-clock time.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment: milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment this many milliseconds after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This moment moved by `millis` (may be negative); saturates.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> u64 {
        let diff = self.0.saturating_sub(earlier.0);
        if diff < 0 { 0 } else { diff.unsigned_abs() }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => fmt::Display::fmt(&moment, f),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// Tells the time. Timers are tokio's; this is for what is written down.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands still until it is moved. Starts at 2001-01-01 UTC.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl Default for ManualClock {
    fn default() -> Self {
        Self(AtomicI64::new(978_307_200_000))
    }
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance_millis(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_utc_and_never_overflow() {
        assert_eq!(ManualClock::default().now().to_string(), "2001-01-01T00:00:00Z");
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), format!("{} ms", i64::MAX));
        let (early, late) = (Timestamp::from_millis(5), Timestamp::from_millis(7));
        assert_eq!((late.millis_since(early), early.millis_since(late)), (2, 0));
        assert_eq!(Timestamp::from_millis(i64::MAX).plus_millis(1).millis(), i64::MAX);
        assert_eq!(Timestamp::from_millis(i64::MAX).millis_since(Timestamp::from_millis(i64::MIN)), i64::MAX as u64);
    }

    #[test]
    fn the_manual_clock_moves_only_when_told() {
        let clock = ManualClock::default();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.advance_millis(1500);
        assert_eq!(clock.now().millis_since(start), 1500);
        // The machine's clock is past the manual one's start.
        assert!(SystemClock.now() > start);
    }
}
