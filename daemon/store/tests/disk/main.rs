//! The store on a real disk: what it keeps, what it notices, and what it does when there is no space.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

mod backup;
mod care;
mod chain;
mod damage;
#[cfg(target_os = "linux")]
mod failing;
mod forgetting;
mod forks;
mod importing;
mod keeping;
mod lists;
mod projects;
mod retention;
mod rig;
mod search;
mod space;
mod torn;
mod usage;
