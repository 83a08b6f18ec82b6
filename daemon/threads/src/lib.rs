//! Threads at work: one actor per loaded thread, the only writer of its log.
//!
//! [`Threads`] finds or wakes actors and answers questions that need no actor from the store. An actor appends before
//! it publishes, owns the run that is at work, and gives everything that was started exactly one terminal event: when
//! its run ends, when it is cancelled, and, through [`recovery`], when the daemon is found to have died.
//! [`RuleBook`] says which permission rules count where and now, [`trust`] what of a project may be used, [`audit`] keeps
//! the record; `porting.rs` and `importing.rs` are how threads leave and come in. Read `actor.rs` first. Absent on
//! purpose: transport, prompts, tools.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod actor;
mod adopting;
mod asking;
pub mod audit;
pub mod branching;
pub mod checkpoints;
mod closing;
pub mod command;
pub mod deps;
mod ending;
pub mod error;
mod held;
mod identity;
mod importing;
mod inputs;
mod lookouts;
mod mending;
mod pending;
pub mod permissions;
pub mod plans;
mod porting;
pub mod project;
pub mod recovery;
pub mod registry;
mod resending;
pub mod resuming;
mod retaining;
pub mod rules;
mod run;
mod searching;
mod signals;
pub mod space;
pub mod spending;
mod starting;
mod titling;
pub mod trust;
mod waking;

pub use audit::Caller;
pub use checkpoints::{Depots, Differences, Restore, RestoreOutcome, RestorePick};
pub use command::{
    Answered, Asker, Bounds, Change, GrantScope, NewFork, NewInput, NewRun, NewThread, Resend, Resolution,
    RunSurroundings, Started,
};
pub use deps::{Deps, RuleChange};
pub use error::ThreadError;
pub use importing::{Brought, IMPORTED, Listed, Outcome, chosen};
pub use mcode_agent::secrets::{looks_like_a_key, redact};
pub use mcode_agent::{Gates, LiveKey, LiveState, Treasury};
pub use mcode_checkpoints::{DiffBody, FileDiff};
pub use mcode_config::{PermissionTest, RuleSource, WrittenRule};
pub use mcode_events::audit::AuditEntry;
pub use mcode_events::checkpoint::CheckpointMark;
pub use mcode_histories::foreign::{Found as Conversation, Maker, Places, Report};
pub use mcode_permissions::{Access, Effect, Mode};
pub use mcode_store::{
    ArchiveError, AuditCheck, AuditRow, Check, Copied, Fault, Found, GRACE_MS, GrantRow, KEEP_TAG, Leaving, Mended,
    Page, PlanFilter, PlanRow, ProjectRow, RunRow, Said, SearchFilter, StoreError, ThreadFilter, ThreadRow, TreeFilter,
    TreeRow, UsageFilter, UsageGroup, UsageReport, UsageRow, UsageSums,
};
pub use mcode_tools::shell::{ProcessRow, Stage};
pub use permissions::{Described, Explain, Explanation, GrantPlace, ListedRule};
pub use plans::{PlanShelf, ShownPlan};
pub use porting::{ExportForm, PIECES_AHEAD};
pub use project::Resolved;
pub use registry::{Subscription, Threads};
pub use retaining::Retention;
pub use rules::{Place, RuleBook};
pub use searching::Latest;
pub use space::{DiskUse, Part, ProjectUse};
pub use titling::TITLE_SYSTEM;
pub use trust::{ProjectTrust, TrustItem, TrustState};
