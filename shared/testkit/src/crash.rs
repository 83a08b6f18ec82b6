//! Killing the daemon while it works, again and again, and looking at what it left.
//!
//! The moments are random but repeatable: `MCODE_TEST_SEED` gives the seed, which is printed when a round fails.

pub mod aftermath;
pub mod load;
pub mod rounds;

use std::time::Duration;

use crate::daemon::{Running, TestDaemon};

/// Seed when the environment gives none.
const SEED: u64 = 0x006d_636f_6465;

/// A plan of kills.
#[derive(Debug, Clone, Copy)]
pub struct Crashes {
    /// How many times the daemon is killed.
    pub rounds: u32,
    /// The kill comes at a random moment up to this long after the load began.
    pub within: Duration,
}

impl Crashes {
    /// Each round: `load` starts clients, `kill -9` hits the daemon at a random moment, the clients are ended, the daemon
    /// starts again, and `check` panics if anything is not as it has to be.
    pub fn run(
        self,
        daemon: &mut TestDaemon,
        mut load: impl FnMut(&TestDaemon, u32) -> Vec<Running>,
        mut check: impl FnMut(&TestDaemon, u32),
    ) {
        let seed = seed();
        let mut moments = Moments(seed | 1);
        for round in 0..self.rounds {
            let failed = FailedRound { seed, round };
            let clients = load(daemon, round);
            // Not a wait for anything: the random moment is the point.
            std::thread::sleep(moments.next_within(self.within));
            daemon.kill9();
            drop(clients);
            daemon.restart();
            check(daemon, round);
            std::mem::forget(failed);
        }
    }
}

/// The seed of the environment, or the usual one.
#[must_use]
pub fn seed() -> u64 {
    std::env::var("MCODE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED)
}

/// Says how to repeat a round that panicked.
struct FailedRound {
    seed: u64,
    round: u32,
}

impl Drop for FailedRound {
    #[allow(clippy::print_stderr, reason = "belongs into the output of the failed test")]
    fn drop(&mut self) {
        eprintln!("crash round {} failed; repeat it with MCODE_TEST_SEED={}", self.round, self.seed);
    }
}

/// xorshift: all that is needed to spread moments.
struct Moments(u64);

impl Moments {
    fn one_in(&mut self, many: u64) -> bool {
        (self.next() >> 16).is_multiple_of(many)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn next_within(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.next() % most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_spread_and_repeatable() {
        let take = |seed| {
            let mut moments = Moments(seed);
            (0..100).map(|_| moments.next_within(Duration::from_millis(100))).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        let early = take(7).iter().filter(|moment| moment.as_millis() < 50).count();
        assert!((20..80).contains(&early), "{early} of 100 in the first half");
    }
}
