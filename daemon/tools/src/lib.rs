//! The tools that a model can call.
//!
//! A [`Tool`] describes itself ([`ToolSpec`]), says what a call would touch ([`Tool::plan`]) so that permissions can
//! decide, and runs it. Results are bounded text and media; what is cut goes to a blob whose total is stated. Tools
//! never decide permissions, never write the log, and treat their arguments as hostile.

pub mod ledger;
pub mod port;
pub mod tool;

pub use ledger::FileLedger;
pub use port::{AskOutcome, ToolPort};
pub use tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};
