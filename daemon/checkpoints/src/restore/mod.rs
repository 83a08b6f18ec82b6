//! Bringing back what an agent changed.
//!
//! First a plan, which only looks ([`plan`]); then a journal of what is going to be done, so that a restore that is cut
//! off can be finished ([`journal`]); then path by path, each checked again at the last moment ([`carry`]).

mod carry;
pub(crate) mod journal;
mod place;
mod plan;
mod view;

pub use carry::{Failure, Restored};
pub use journal::Interrupted;
pub use plan::{Action, Choice, Conflict, ConflictKind, Pick, Plan, Span};
