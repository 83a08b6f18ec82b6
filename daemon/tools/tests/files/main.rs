//! The file tools on real files: public fault reports by their case, bad input, patches, and every limit.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

mod bad_input;
mod edit_faults;
mod limits;
mod patches;
mod rig;
mod search_faults;
mod views;
