//! The real daemon, started, killed and started again.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod home;
mod places;
mod starting;
mod surroundings;
