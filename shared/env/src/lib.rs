//! The one reader of time, time zones, randomness, environment variables and the working directory.
//!
//! Everything else takes these as inputs, so tests decide them. [`Clock`] and [`IdGen`] have one real and one
//! scripted implementation; [`Dirs`] answers where mcode keeps its files; [`files`] writes files atomically.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

pub mod clock;
pub mod dirs;
pub mod files;
pub mod ids;
pub mod process;
pub mod zone;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use dirs::{Dirs, DirsError, further_managed_file, managed_file};
pub use ids::{IdGen, SeededIds, SystemIds, random_bytes};
pub use zone::Zone;
