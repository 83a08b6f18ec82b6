//! The store on a real disk: what it keeps, what it notices, and what it does when there is no space.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

mod chain;
mod damage;
mod keeping;
mod lists;
mod rig;
mod space;
mod usage;
