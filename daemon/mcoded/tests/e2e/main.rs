//! The whole thing through its front door: `mcode` talks to `mcoded`, which talks to a scripted model server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(clippy::print_stdout, reason = "a test that draws lots says which")]
#![allow(unused_must_use, reason = "`Output::ok` is an assertion; often that is all that is wanted of a command")]

mod answering;
mod approving;
mod asking;
mod catalogue;
mod chaos;
mod closing;
mod denying;
mod ending;
mod explaining;
mod filling;
mod hiding;
mod histories;
mod hosting;
mod importing;
mod keeping;
mod logging_in;
mod models;
mod money;
mod packs;
mod planning;
mod planting;
mod porting;
mod resending;
mod resuming;
mod ruling;
mod sandboxed;
mod setup;
mod sharing;
mod starting;
mod status;
mod steering;
mod storage;
mod streams;
mod structured;
mod surviving;
mod telling;
mod terminal;
mod threads;
mod trusting;
mod undoing;
mod waking;
mod watching;
mod wires;
mod working;
