//! The vocabulary of the event log, and the pure folds that turn it into state.
//!
//! An [`Event`] is a durable fact about one thread. [`ThreadState`] is the fold of a thread's events and can always
//! be rebuilt from them. This crate owns the stored form (serde): a change of a payload needs a new `version` and an
//! upcaster, and kinds are never removed or reused; golden files in `tests/golden` hold the promise.
//! Absent on purpose: IO, clocks, and anything a prompt needs beyond what was said.

pub mod audit;
pub mod blob;
mod branching;
pub mod checkpoint;
pub mod closing;
pub mod depth;
pub mod ease;
pub mod event;
pub mod message;
pub mod plan;
pub mod run;
pub mod state;
pub mod tool;
pub mod usage;

pub use audit::{AuditEntry, AuditKind};
pub use blob::{BlobError, BlobRef, Blobs};
pub use branching::ForkPoint;
pub use checkpoint::{ChangedFile, Changes, Checkpoint, CheckpointMark};
pub use closing::closing_events;
pub use ease::Ease;
pub use event::{Event, EventBody, NewEvent};
pub use message::{Message, Opaque, Origin, Part, Role};
pub use plan::{Plan, PlanMark, PlanOutcome};
pub use run::{Delivery, QueuedInput, RunError, RunErrorKind, RunOptions, RunStatus};
pub use state::ThreadState;
pub use tool::{ResultPart, TaskItem, TaskStatus, ToolCall, ToolCallStatus, ToolResult};
pub use usage::Usage;
