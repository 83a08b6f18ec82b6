//! The one reader of time, time zones, randomness, environment variables and the working directory.
//!
//! Everything else takes these as inputs, so tests decide them. [`Clock`] and [`IdGen`] have one real and one
//! scripted implementation; [`Dirs`] answers where mcode keeps its files; [`files`] reads them within bounds and writes
//! them atomically, and [`lock`] keeps other processes away from them meanwhile.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

pub mod clock;
pub mod dirs;
pub mod files;
pub mod ids;
pub mod lock;
pub mod process;
pub mod zone;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use dirs::{Dirs, DirsError, further_managed_file, managed_file};
pub use ids::{IdGen, SeededIds, SystemIds, random_bytes};
pub use lock::FileLock;
pub use zone::Zone;
