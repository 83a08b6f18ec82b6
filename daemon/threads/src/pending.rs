//! Approvals and questions that a run waits for.

use std::collections::BTreeMap;

use mcode_agent::{ApprovalAnswer, RecordError};
use mcode_ids::{ApprovalId, QuestionId};
use tokio::sync::oneshot;

/// Where a run waits for an answer of this kind.
type Waiting<T> = oneshot::Sender<Result<T, RecordError>>;

/// The run's ends of what waits. The facts themselves are in the log.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    approvals: BTreeMap<ApprovalId, (Option<i64>, Waiting<ApprovalAnswer>)>,
    questions: BTreeMap<QuestionId, Waiting<Option<String>>>,
}

impl Pending {
    pub(crate) fn add_approval(&mut self, id: ApprovalId, deadline_ms: Option<i64>, reply: Waiting<ApprovalAnswer>) {
        self.approvals.insert(id, (deadline_ms, reply));
    }

    pub(crate) fn add_question(&mut self, id: QuestionId, reply: Waiting<Option<String>>) {
        self.questions.insert(id, reply);
    }

    /// Gives the answer to the run; a run that no longer waits does not mind.
    pub(crate) fn settle_approval(&mut self, id: ApprovalId, answer: ApprovalAnswer) {
        if let Some((_, reply)) = self.approvals.remove(&id) {
            let _ = reply.send(Ok(answer)).is_ok();
        }
    }

    /// Gives the answer to the run.
    pub(crate) fn settle_question(&mut self, id: QuestionId, answer: Option<String>) {
        if let Some(reply) = self.questions.remove(&id) {
            let _ = reply.send(Ok(answer)).is_ok();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.approvals.clear();
        self.questions.clear();
    }

    /// The earliest deadline, in milliseconds since 1970 UTC.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.approvals.values().filter_map(|(deadline, _)| *deadline).min()
    }

    /// Approvals whose deadline has passed.
    pub(crate) fn expired(&self, now_ms: i64) -> Vec<ApprovalId> {
        self.approvals
            .iter()
            .filter(|(_, (deadline, _))| deadline.is_some_and(|deadline| deadline <= now_ms))
            .map(|(id, _)| *id)
            .collect()
    }
}
