//! Decides whether a tool call may run: `deny > mode > ask > allow > policy > default`. Pure: no disk, no clock.
//!
//! [`RuleSet::parse`] reads rules, [`RuleSet::decide`] judges one call, [`RuleSet::proposal`] says which rule would allow
//! it next time, [`mentions`] tells which paths a command names so that somebody looks where they lead, and
//! [`RuleSet::denied_paths`] what a sandbox should hide. Invariants: adding a deny rule never allows more; what can not be
//! understood is never allowed by a rule, and asks where a deny rule may mean it; a deny rule that can not be read makes
//! everything it might have forbidden ask; nobody loosens a rule of the machine. Absent on purpose: the disk, the clock,
//! asking, and remembering answers.
//!
//! To read it: `access` (what a call does), `rule` with `vocabulary` (names that rules begin with), `matching` (patterns)
//! and `paths`; `command` takes a shell command apart into `words`, with `unwrap` (programs that run programs), `texts`
//! (texts that are run) and `evaluated` (expressions); `decide` puts them together, and asks `readonly` and `runners`
//! (what looks, what runs), `touched` (files that a command names, against rules; `mentions` for the disk), `git`,
//! `code` and `uncertain` (what can not be known). What is known of programs is in `tables`.

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
mod numeric;
mod paths;
mod propose;
mod readonly;
mod rule;
mod runners;
mod shield;
mod tables;
mod texts;
mod touched;
mod uncertain;
mod unwrap;
mod verdict;
mod vocabulary;
mod words;

pub use access::{Access, Below, Category, Unconfined};
pub use decide::DecideInput;
pub use mode::Mode;
pub use paths::SECRET_PLACES;
pub use propose::{folder_rule, propose_rule};
pub use rule::{Effect, RuleError, RuleSet, check_rule};
pub use shield::DeniedPaths;
pub use verdict::{DecidedBy, Decision, Verdict};
pub use vocabulary::TOOL_NAMES;
