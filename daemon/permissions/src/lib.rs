//! Decides whether a tool call may run: `deny > mode > ask > allow > policy > default`. Pure: no disk, no clock.
//!
//! [`RuleSet::parse`] reads rules, [`RuleSet::decide`] judges one call, [`RuleSet::proposal`] says which rule would allow
//! it next time, [`mentions`] tells which paths a command names so that somebody looks where they lead, and
//! [`RuleSet::denied_paths`] what a sandbox should hide. Invariants: adding a deny rule never allows more; what can not be
//! understood is never allowed by a rule, and asks where a deny rule may mean it; a deny rule that can not be read makes
//! everything it might have forbidden ask; nobody loosens a rule of the machine. Absent on purpose: the disk, the clock,
//! asking, and remembering answers.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod access;
mod code;
pub mod command;
mod decide;
mod evaluated;
mod git;
mod matching;
pub mod mentions;
mod mode;
mod names;
mod naming;
mod numeric;
mod paths;
mod programs;
mod propose;
mod readonly;
mod rule;
mod runners;
mod shield;
mod texts;
mod uncertain;
mod unwrap;
mod verdict;
mod words;

pub use access::{Access, Below, Category, Unconfined};
pub use decide::DecideInput;
pub use mode::Mode;
pub use names::TOOL_NAMES;
pub use propose::{folder_rule, propose_rule};
pub use rule::{Effect, RuleError, RuleSet, check_rule};
pub use shield::DeniedPaths;
pub use verdict::{DecidedBy, Decision, Verdict};
