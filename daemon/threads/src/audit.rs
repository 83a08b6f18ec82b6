//! The record of permissions through the daemon: what was decided, by which rule, and who answered.

use mcode_events::audit::{AuditEntry, AuditKind};
use mcode_events::event::{ApprovalOutcome, ApprovalRequest};
use mcode_ids::{RunId, ThreadId};
use mcode_permissions::Mode;
use mcode_store::{AuditCheck, AuditRow, Page};

use crate::command::Bounds;
use crate::error::ThreadError;
use crate::registry::Threads;

/// A thread whose tool call has started a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// The thread.
    pub thread_id: ThreadId,
    /// What its last run may do, if it had any.
    pub run: Option<Bounds>,
}

/// Most characters of what somebody wrote in a record.
const BRIEF_CHARS_MAX: usize = 500;

/// The beginning of a text that somebody wrote, for a record.
pub(crate) fn brief(text: &str) -> String {
    text.chars().take(BRIEF_CHARS_MAX).collect()
}

/// The end of an approval, for the record.
pub(crate) fn answered(
    request: &ApprovalRequest,
    outcome: ApprovalOutcome,
    by: &str,
    reason: &str,
    (thread_id, run_id): (ThreadId, Option<RunId>),
) -> AuditEntry {
    AuditEntry {
        tool: request.tool.clone(),
        why: brief(reason),
        asker: "model".to_owned(),
        answerer: brief(by),
        thread_id: Some(thread_id),
        run_id,
        tool_call_id: Some(request.tool_call_id),
        approval_id: Some(request.approval_id),
        ..AuditEntry::new(AuditKind::Answered, outcome.as_str())
    }
}

impl Threads {
    /// The record, newest first.
    ///
    /// # Errors
    /// When the store can not be read, or the token is none of this list.
    pub async fn decisions(
        &self,
        thread_id: Option<ThreadId>,
        page_size: u32,
        page_token: Option<String>,
    ) -> Result<Page<AuditRow>, ThreadError> {
        Ok(self.deps().store.audit_records(thread_id, page_size, page_token).await?)
    }

    /// Looks through the whole record for what was changed or removed.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn check_decisions(&self) -> Result<AuditCheck, ThreadError> {
        Ok(self.deps().store.check_audit().await?)
    }

    /// The run that one of these tool calls belongs to, if one of them is of this daemon: what it may do, and its mode.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn caller(&self, tool_calls: &[String]) -> Result<Option<Caller>, ThreadError> {
        for id in tool_calls.iter().filter_map(|id| id.parse().ok()) {
            let Some(thread_id) = self.deps().store.thread_of_call(id).await? else { continue };
            let state = self.state(thread_id).await?;
            let run = state.runs.last().map(|run| Bounds {
                approval: run.options.approval,
                mode: Mode::of_log(&run.options.mode),
                limits: crate::waking::limits_left(run),
            });
            return Ok(Some(Caller { thread_id, run }));
        }
        Ok(None)
    }

    /// Refuses what a tool call wanted that only a person may do, and records that it did.
    pub async fn refuse_tool(&self, what: &str, who: &str) -> ThreadError {
        let entry = AuditEntry {
            subject: brief(what),
            why: "it was started by a tool call of this daemon".to_owned(),
            asker: brief(who),
            answerer: "mcoded".to_owned(),
            ..AuditEntry::new(AuditKind::Refused, "deny")
        };
        if let Err(error) = self.deps().store.audit(vec![entry]).await {
            tracing::warn!(%error, "a refusal could not be recorded");
        }
        ThreadError::NotForTools(format!("{what} is for people: a program that a tool call has started may not"))
    }
}
