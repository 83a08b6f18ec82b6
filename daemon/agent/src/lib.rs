//! The agent: runs turns of steps until the model stops.
//!
//! [`drive`] is one run. It decides with pure functions ([`prompt`], [`repetition`], [`limits`]) and acts at the edge;
//! it never writes the log: it signals its thread through [`RunPort`], which answers when the facts are on the disk.
//! So an intent is always recorded before its effect, and a crash at any point finds only closed or closable items.
//! Runs meet each other at the [`Gates`] of providers and at the [`Treasury`]; both are in memory alone.
//! Live text goes to the [`LiveLane`], which keeps no history. Absent on purpose: storage, transport, OS processes.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod adopted;
pub mod answer;
pub mod aside;
mod asking;
mod attempt;
pub mod calls;
mod chain;
pub mod drive;
mod easing;
pub mod gates;
pub mod limits;
pub mod live;
pub mod media;
mod paying;
pub mod permit;
pub mod plans;
pub mod port;
mod preview;
pub mod prompt;
mod reach;
pub mod repetition;
pub mod rules;
pub mod secrets;
mod shallow;
pub mod snapshots;
pub mod step;
pub mod treasury;

pub use adopted::{AdoptedCall, AdoptedPort, Resumption, resume};
pub use aside::{Aside, AsideAnswer, AsideRequest};
pub use drive::{RunContext, RunOutcome, RunServices, drive};
pub use gates::Gates;
pub use live::{LiveItem, LiveKey, LiveLane, LiveState};
pub use port::{AgentSignal, ApprovalAnswer, RecordError, RunPort};
pub use rules::LiveRules;
pub use secrets::RunSecrets;
pub use snapshots::{Care, RunSnapshots, TakeSnapshot, TakenSnapshot};
pub use treasury::Treasury;
