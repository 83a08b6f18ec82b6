//! Threads at work: one actor per loaded thread, the only writer of its log.
//!
//! [`Threads`] finds or wakes actors and answers questions that need no actor from the store. An actor appends before
//! it publishes, owns the run that is at work, and gives everything that was started exactly one terminal event: when
//! its run ends, when it is cancelled, and, through [`recovery`], when the daemon is found to have died.
//! Read `actor.rs` first. Absent on purpose: transport, prompts, tools.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod actor;
mod adopting;
pub mod command;
pub mod deps;
mod ending;
pub mod error;
mod inputs;
mod pending;
pub mod project;
pub mod recovery;
pub mod registry;
mod run;
mod starting;

pub use command::{Answered, NewInput, NewRun, NewThread, Resolution, RunSurroundings, Started};
pub use deps::Deps;
pub use error::ThreadError;
pub use mcode_agent::{LiveKey, LiveState};
pub use mcode_store::{Page, ProjectRow, RunRow, StoreError, ThreadFilter, ThreadRow};
pub use mcode_tools::shell::{ProcessRow, Stage};
pub use registry::{Subscription, Threads};
