//! A run at work, as its thread holds it, and how its end is told.

use std::sync::{Arc, OnceLock};

use mcode_agent::RunOutcome;
use mcode_events::run::{RunError, RunErrorKind, RunStatus};
use mcode_ids::RunId;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::command::{Reply, RunSurroundings};

/// Who ended a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    User,
    Timeout,
    Shutdown,
}

/// A run at work.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    pub(crate) run_id: RunId,
    pub(crate) cancel: CancellationToken,
    pub(crate) task: JoinHandle<RunOutcome>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) surroundings: RunSurroundings,
    cause: Arc<OnceLock<Cause>>,
    /// Those who wait for the end.
    pub(crate) waiting: Vec<Reply<()>>,
    /// Ends the agent when its thread goes away without having seen its end, as when the actor panics.
    #[allow(dead_code, reason = "held for its drop")]
    guard: DropGuard,
}

impl ActiveRun {
    pub(crate) fn new(
        run_id: RunId,
        cancel: CancellationToken,
        task: JoinHandle<RunOutcome>,
        deadline: Option<Instant>,
        surroundings: RunSurroundings,
    ) -> Self {
        let guard = cancel.clone().drop_guard();
        let (cause, waiting) = (Arc::new(OnceLock::new()), Vec::new());
        Self { run_id, cancel, task, deadline, surroundings, cause, waiting, guard }
    }

    /// Ends the run; the first cause counts.
    pub(crate) fn end(&mut self, cause: Cause) {
        let _ = self.cause.set(cause).is_ok();
        self.deadline = None;
        self.cancel.cancel();
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause.get().copied()
    }
}

/// How a run ended, from what the agent says and who ended it from outside.
pub(crate) fn ending(
    outcome: Result<RunOutcome, tokio::task::JoinError>,
    cause: Option<Cause>,
    time_limit_ms: Option<u64>,
) -> RunOutcome {
    let outcome = outcome.unwrap_or_else(|error| RunOutcome {
        status: RunStatus::Failed,
        error: Some(RunError {
            kind: RunErrorKind::Internal,
            reason: "INTERNAL".to_owned(),
            message: format!("the agent crashed: {error}"),
            hint: "this is a fault of mcode; 'mcode daemon logs' has the details".to_owned(),
        }),
        structured: None,
    });
    if outcome.status != RunStatus::Cancelled {
        return outcome;
    }
    match cause {
        Some(Cause::Timeout) => RunOutcome {
            status: RunStatus::Failed,
            error: Some(RunError {
                kind: RunErrorKind::Timeout,
                reason: "TIME_LIMIT".to_owned(),
                message: match time_limit_ms {
                    Some(limit) => format!("timed out after {} s", limit as f64 / 1000.0),
                    None => "timed out".to_owned(),
                },
                hint: "raise --timeout and go on with --thread".to_owned(),
            }),
            structured: None,
        },
        Some(Cause::Shutdown) => RunOutcome {
            status: RunStatus::Interrupted,
            error: Some(interrupted("the daemon was stopped")),
            structured: None,
        },
        Some(Cause::User) | None => outcome,
    }
}

/// The error of a run that the daemon did not see to its end.
pub(crate) fn interrupted(message: &str) -> RunError {
    RunError {
        kind: RunErrorKind::Interrupted,
        reason: "INTERRUPTED".to_owned(),
        message: message.to_owned(),
        hint: "go on with: mcode ask -c \"go on\"; or --thread with an id of 'mcode threads list'".to_owned(),
    }
}
