//! What a run of a history is said to have been.

use mcode_events::run::{ApprovalPolicy, RunError, RunErrorKind, RunLimits, RunOptions, RunTrigger};

/// Why a run ended that somebody stopped.
pub(crate) fn interruption() -> RunError {
    RunError {
        kind: RunErrorKind::Interrupted,
        reason: "INTERRUPTED".to_owned(),
        message: "it was interrupted before it was imported".to_owned(),
        hint: String::new(),
    }
}

/// Options as those of a person who is not there any more: nothing in them is of use to a later run.
pub(crate) fn options(model: String, cwd: String) -> RunOptions {
    RunOptions {
        model,
        mode: "build".to_owned(),
        thinking: None,
        approval: ApprovalPolicy::Ask,
        interactive: false,
        limits: RunLimits::NONE,
        cwd,
        add_dirs: Vec::new(),
        answer_schema: None,
        trigger: RunTrigger::Person,
        model_given: false,
        detached: false,
        goal_id: None,
        kept: None,
        key_source: String::new(),
    }
}
