//! The tools that a model can call.
//!
//! A [`Tool`] describes itself ([`ToolSpec`]), says what a call would touch ([`Tool::plan`]) so that permissions can
//! decide, and runs it. Results are bounded text and media; what is cut goes to a blob whose total is stated. Tools
//! never decide permissions, never write the log, and treat their arguments as hostile.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod arguments;
pub mod ask;
mod blocking;
pub mod bounds;
pub mod edit;
pub mod fs;
pub mod ledger;
pub mod output;
pub mod port;
pub mod registry;
pub mod search;
pub mod shell;
pub mod submit_plan;
pub mod tasks;
pub mod tool;

pub use bounds::{Bounds, CallBounds, OwnPlaces, Reach};
pub use ledger::FileLedger;
pub use output::{MAX_RESULT_BYTES, cut_to_blob};
pub use port::{AskOutcome, ToolPort};
pub use registry::{ToolSet, check_arguments, file_tools};
pub use tool::{CallContext, CallPlan, Submission, Tool, ToolFailure, ToolOutput, ToolSpec};
