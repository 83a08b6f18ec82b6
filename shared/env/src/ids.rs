//! Making ids: UUIDv7 from the clock and randomness.

use std::fmt;
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use uuid::Uuid;

use crate::clock::{Clock, SystemClock};

/// Makes new UUIDv7s; typed ids wrap them.
pub trait IdGen: Send + Sync + fmt::Debug {
    /// A fresh UUID, later than every earlier one of the same generator.
    fn next(&self) -> Uuid;
}

/// Ids from the machine's clock and randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdGen for SystemIds {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that makes ids")]
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Ids that are the same in every run with the same seed: a fixed time, then counter and seeded random bits.
#[derive(Debug)]
pub struct SeededIds(Mutex<(StdRng, u64)>);

impl SeededIds {
    /// A generator whose ids depend on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new((StdRng::seed_from_u64(seed), 0)))
    }
}

impl IdGen for SeededIds {
    fn next(&self) -> Uuid {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.1 += 1;
        let mut random = [0u8; 10];
        state.0.fill_bytes(&mut random);
        uuid::Builder::from_unix_timestamp_millis(978_307_200_000 + state.1, &random).into_uuid()
    }
}

/// A random number in `0..=max`, for spreading retries.
#[must_use]
pub fn jitter(max: u64) -> u64 {
    if max == 0 {
        return 0;
    }
    let mixed = SystemIds.next().as_u128() as u64 ^ SystemClock.now().millis().unsigned_abs();
    mixed % (max + 1)
}
