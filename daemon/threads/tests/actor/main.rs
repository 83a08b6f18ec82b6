//! Threads at work on a real store, with a model that answers from a script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]
#![allow(missing_docs, unreachable_pub)]

mod ending;
mod inputs;
mod limits;
mod recovery;
mod resending;
mod resuming;
mod retaining;
mod rig;
mod space;
mod starting;
mod waking;
