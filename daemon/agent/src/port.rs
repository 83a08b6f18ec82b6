//! The border between a run and its thread.

use std::sync::Arc;

use mcode_events::audit::{AuditEntry, AuditKind};
use mcode_events::event::{ApprovalOutcome, ApprovalRequest, EventBody, NewEvent, Question};
use mcode_events::run::{Delivery, QueuedInput};
use mcode_events::state::ThreadState;
use mcode_ids::{ApprovalId, ProcessId, RunId, ThreadId, ToolCallId, TurnId};
use mcode_text::truncate_middle;
use mcode_tools::port::Warning;
use tokio::sync::{mpsc, oneshot};

/// Signals that may wait for the thread; more make the run wait.
pub const SIGNALS_MAX: usize = 256;
/// Most bytes of names of files in the record of permissions.
const SUBJECT_BYTES_MAX: usize = 1024;

/// A fact could not be recorded; the run has to end without further effects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The thread has ended.
    #[error("the thread is closed")]
    Closed,
    /// The log can not be written.
    #[error("the log cannot be written: {0}")]
    Log(String),
}

/// What became of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// The outcome.
    pub outcome: ApprovalOutcome,
    /// What whoever settled it said.
    pub reason: String,
}

/// What a run tells its thread, and waits for.
#[derive(Debug)]
pub enum AgentSignal {
    /// Record facts; the answer comes when they are on the disk.
    Record {
        /// The facts.
        events: Vec<NewEvent>,
        /// The state with them folded in.
        reply: oneshot::Sender<Result<Arc<ThreadState>, RecordError>>,
    },
    /// Take the inputs that wait for this place, and record that they were taken, with their messages.
    TakeInputs {
        /// Which place.
        delivery: Delivery,
        /// The turn that they become part of.
        turn_id: TurnId,
        /// The run.
        run_id: RunId,
        /// The inputs, oldest first.
        reply: oneshot::Sender<Result<Vec<QueuedInput>, RecordError>>,
    },
    /// Put something into the record of permissions; answered when it is on the disk.
    Audit {
        /// What happened.
        entry: Box<AuditEntry>,
        /// Answered when it is recorded.
        reply: oneshot::Sender<Result<(), RecordError>>,
    },
    /// Record an approval request and wait for its end.
    AwaitApproval {
        /// The run.
        run_id: RunId,
        /// The turn.
        turn_id: TurnId,
        /// The request.
        request: ApprovalRequest,
        /// Its end.
        reply: oneshot::Sender<Result<ApprovalAnswer, RecordError>>,
    },
    /// Wait for the end of an approval that an earlier daemon has asked for; it may be settled already.
    AwaitSettled {
        /// Which.
        approval_id: ApprovalId,
        /// The call that it is about.
        tool_call_id: ToolCallId,
        /// Its end.
        reply: oneshot::Sender<Result<ApprovalAnswer, RecordError>>,
    },
    /// Record a question and wait for its answer. One that an earlier daemon has recorded for the same call is not asked
    /// again.
    AwaitAnswer {
        /// The run.
        run_id: RunId,
        /// The turn.
        turn_id: TurnId,
        /// The question.
        question: Question,
        /// The answer; `None` when there will be none.
        reply: oneshot::Sender<Result<Option<String>, RecordError>>,
    },
    /// A process has ended, perhaps long after its run.
    ProcessExited {
        /// The run that started it.
        run_id: RunId,
        /// The process.
        process_id: ProcessId,
        /// Its exit status.
        exit_code: Option<i32>,
        /// In words.
        reason: String,
        /// What the model should be told.
        notice: Option<String>,
        /// Answered when it is recorded.
        reply: oneshot::Sender<()>,
    },
}

/// A run's line to its thread.
#[derive(Debug, Clone)]
pub struct RunPort {
    run_id: RunId,
    signals: mpsc::Sender<AgentSignal>,
}

impl RunPort {
    /// A line for this run.
    #[must_use]
    pub const fn new(run_id: RunId, signals: mpsc::Sender<AgentSignal>) -> Self {
        Self { run_id, signals }
    }

    /// The run.
    #[must_use]
    pub const fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Records facts of a turn; returns the state with them, once they are on the disk.
    pub async fn record(&self, turn_id: TurnId, bodies: Vec<EventBody>) -> Result<Arc<ThreadState>, RecordError> {
        let events = bodies.into_iter().map(|body| NewEvent::of_run(self.run_id, Some(turn_id), body)).collect();
        let (reply, answer) = oneshot::channel();
        self.send(AgentSignal::Record { events, reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?
    }

    /// Tells people of files that a command should not have touched, and puts that into the record of permissions.
    pub(crate) async fn warn(
        &self,
        warning: Warning,
        thread_id: ThreadId,
        tool_call_id: ToolCallId,
    ) -> Result<(), RecordError> {
        let entry = AuditEntry {
            tool: "shell".to_owned(),
            subject: truncate_middle(&warning.subject, SUBJECT_BYTES_MAX),
            why: warning.text.clone(),
            asker: "model".to_owned(),
            answerer: "sandbox".to_owned(),
            thread_id: Some(thread_id),
            run_id: Some(self.run_id),
            tool_call_id: Some(tool_call_id),
            ..AuditEntry::new(AuditKind::Planted, if warning.moved { "moved" } else { "told" })
        };
        self.audit(entry).await?;
        // Of no turn: the run may have ended, but whoever looks at it is told.
        let body = EventBody::Notice { level: "warning".to_owned(), text: warning.text };
        let (reply, answer) = oneshot::channel();
        self.send(AgentSignal::Record { events: vec![NewEvent::of_run(self.run_id, None, body)], reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?.map(drop)
    }

    /// The inputs that wait for this place; they are recorded as taken, with their messages.
    pub async fn take_inputs(&self, turn_id: TurnId, delivery: Delivery) -> Result<Vec<QueuedInput>, RecordError> {
        let (reply, answer) = oneshot::channel();
        self.send(AgentSignal::TakeInputs { delivery, turn_id, run_id: self.run_id, reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?
    }

    /// Puts a decision into the record of permissions, before it has an effect.
    pub async fn audit(&self, entry: AuditEntry) -> Result<(), RecordError> {
        let (reply, answer) = oneshot::channel();
        self.send(AgentSignal::Audit { entry: Box::new(entry), reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?
    }

    /// Asks for an approval and waits for its end.
    pub async fn await_approval(
        &self,
        turn_id: TurnId,
        request: ApprovalRequest,
    ) -> Result<ApprovalAnswer, RecordError> {
        let (reply, answer) = oneshot::channel();
        self.send(AgentSignal::AwaitApproval { run_id: self.run_id, turn_id, request, reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?
    }

    /// Waits for the end of an approval that an earlier daemon has asked for.
    pub async fn await_settled(&self, request: &ApprovalRequest) -> Result<ApprovalAnswer, RecordError> {
        let (reply, answer) = oneshot::channel();
        let (approval_id, tool_call_id) = (request.approval_id, request.tool_call_id);
        self.send(AgentSignal::AwaitSettled { approval_id, tool_call_id, reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?
    }

    /// Asks the user and waits for the answer.
    pub async fn await_answer(&self, turn_id: TurnId, question: Question) -> Result<Option<String>, RecordError> {
        let (reply, answer) = oneshot::channel();
        self.send(AgentSignal::AwaitAnswer { run_id: self.run_id, turn_id, question, reply }).await?;
        answer.await.map_err(|_| RecordError::Closed)?
    }

    /// Notes the end of a process.
    pub async fn process_exited(
        &self,
        process_id: ProcessId,
        exit_code: Option<i32>,
        reason: String,
        notice: Option<String>,
    ) -> Result<(), RecordError> {
        let (reply, answer) = oneshot::channel();
        let signal = AgentSignal::ProcessExited { run_id: self.run_id, process_id, exit_code, reason, notice, reply };
        self.send(signal).await?;
        answer.await.map_err(|_| RecordError::Closed)
    }

    async fn send(&self, signal: AgentSignal) -> Result<(), RecordError> {
        self.signals.send(signal).await.map_err(|_| RecordError::Closed)
    }
}
