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
    max.checked_add(1).map_or(mixed, |bound| mixed % bound)
}

/// Bytes that nobody can guess, from the operating system.
///
/// # Errors
/// When the system has none to give.
pub fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    rand::TryRngCore::try_fill_bytes(&mut rand::rngs::OsRng, &mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_seed_are_the_same_and_rise() {
        let ids = |seed| -> Vec<Uuid> {
            let source = SeededIds::new(seed);
            (0..100).map(|_| source.next()).collect()
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
        assert!(ids(3).windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ids(4)[0].get_version_num(), 7);
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random_bytes::<32>().unwrap(), random_bytes::<32>().unwrap());
    }

    #[test]
    fn system_ids_rise() {
        let ids: Vec<Uuid> = (0..1000).map(|_| SystemIds.next()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn jitter_stays_within_its_bound() {
        assert_eq!(jitter(0), 0);
        assert!((0..1000).all(|_| jitter(3) <= 3));
        assert!((0..1000).any(|_| jitter(1000) != jitter(1000)));
        assert!((0..10).any(|_| jitter(u64::MAX) != 0));
    }
}
