//! Events: what happened, in the order in which it happened.

use mcode_ids::{
    ApprovalId, GoalId, InputId, ItemId, ProcessId, ProjectId, QuestionId, RunId, Seq, StepId, ThreadId, ToolCallId,
    TurnId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::ease::Ease;
use crate::message::{Message, Part, Role};
use crate::plan::{Plan, PlanOutcome};
use crate::run::{Delivery, Parked, RunError, RunOptions, RunStatus};
use crate::tool::{TaskItem, ToolCall, ToolResult};
use crate::usage::{Usage, UsagePurpose};

/// A durable fact about a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The thread.
    pub thread_id: ThreadId,
    /// Its place in the thread: gapless from 1.
    pub seq: Seq,
    /// When it was appended, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// The turn it belongs to.
    pub turn_id: Option<TurnId>,
    /// What happened.
    pub body: EventBody,
}

/// An event that has no place in the log yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// The turn it belongs to.
    pub turn_id: Option<TurnId>,
    /// What happened.
    pub body: EventBody,
}

impl NewEvent {
    /// A fact about the thread itself.
    #[must_use]
    pub const fn of_thread(body: EventBody) -> Self {
        Self { run_id: None, turn_id: None, body }
    }

    /// A fact about a run.
    #[must_use]
    pub const fn of_run(run_id: RunId, turn_id: Option<TurnId>, body: EventBody) -> Self {
        Self { run_id: Some(run_id), turn_id, body }
    }
}

/// Why an approval ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// May run, this once.
    Allowed,
    /// May run, and the proposed rule was kept.
    AllowedAlways,
    /// May not run.
    Denied,
    /// Nobody answered in time; the same as denied.
    Expired,
    /// The run ended first.
    Withdrawn,
}

impl ApprovalOutcome {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::AllowedAlways => "allowed_always",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A pending question whether a tool call may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Its id.
    pub approval_id: ApprovalId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// What would happen: the command, or a diff. Bounded.
    pub preview: String,
    /// Why it is asked, naming the rule if one decided it.
    pub why: String,
    /// When silence becomes a refusal, milliseconds since 1970 UTC.
    pub deadline_ms: Option<i64>,
    /// The narrowest useful rule that would allow it for good.
    pub proposed_rule: Option<String>,
    /// The threads above the one that asks, nearest first: people there are asked too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<ThreadId>,
}

/// A question that the model asked the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its id.
    pub question_id: QuestionId,
    /// The call that asks.
    pub tool_call_id: ToolCallId,
    /// What is asked.
    pub question: String,
    /// Answers to choose from; empty for free text.
    pub options: Vec<String>,
    /// Whether several may be chosen.
    pub multiple: bool,
}

/// What happened. Serialised as `{"kind": …, fields}`; a golden file per kind keeps the form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are named by the types they hold; the variants say what happened")]
pub enum EventBody {
    /// The thread exists.
    ThreadCreated {
        project_id: ProjectId,
        cwd: String,
        /// The root of the work tree that `cwd` is in. Logs of earlier versions do not say.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        root: String,
        title: String,
        model: String,
        mode: String,
        ephemeral: bool,
    },
    /// It has another title.
    TitleChanged { title: String },
    /// It works in another mode from here on.
    ModeChanged { mode: String },
    /// It uses another model from here on.
    ModelChanged { model: String },
    /// It was archived or brought back.
    ArchivedChanged { archived: bool },
    /// It is kept at the top, or not any more.
    PinnedChanged { pinned: bool },
    /// It is found by these words from here on.
    TagsChanged { tags: Vec<String> },
    /// What is before was written by another thread up to `parent_seq`; from here on this one goes its own way.
    ThreadForked { parent_id: ThreadId, parent_seq: Seq, title: String },
    /// What was said after `to_seq` is not given to the model any more; the task list is what it was then.
    Rewound { to_seq: Seq, tasks: Vec<TaskItem> },
    /// The user said something while a run was at work.
    InputQueued { input_id: InputId, delivery: Delivery, parts: Vec<Part> },
    /// A queued input was given to the model (its message follows) or taken back.
    InputTaken { input_id: InputId, delivered: bool },
    /// The agent began.
    RunStarted { options: RunOptions },
    /// The agent waits for the user, or for a provider (`parked`), or goes on.
    RunStatusChanged {
        status: RunStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parked: Option<Parked>,
    },
    /// Another daemon goes on with the run.
    RunResumed {},
    /// The agent ended.
    RunFinished { status: RunStatus, error: Option<RunError>, usage: Usage, structured: Option<Value> },
    /// An input is being worked on.
    TurnStarted { turn_id: TurnId },
    /// The assistant stopped.
    TurnFinished { turn_id: TurnId, status: RunStatus },
    /// A model request begins; `model` is the one that is asked first. Who answered is in the message.
    StepStarted { step_id: StepId, model: String },
    /// A model request and its tool calls have ended.
    StepFinished { step_id: StepId, status: RunStatus, stop_reason: String },
    /// A message begins to be written.
    MessageStarted { item_id: ItemId, role: Role },
    /// So much of an unfinished message is safe.
    MessageCheckpointed { item_id: ItemId, text: String, thinking: String },
    /// A message is complete.
    MessageFinished { message: Message },
    /// A message will never be complete; what there is of it is not given to the model again as an answer.
    MessageDiscarded { item_id: ItemId, status: RunStatus, text: String, reason: String },
    /// A tool is about to run (or to be refused).
    ToolCallStarted { call: ToolCall, item_id: ItemId },
    /// A tool call that somebody was asked about takes effect from here on.
    ToolCallBegun { tool_call_id: ToolCallId },
    /// A tool call has ended.
    ToolCallFinished { name: String, result: ToolResult },
    /// Somebody has to say whether a tool call may run.
    ApprovalRequested { request: ApprovalRequest },
    /// The question was settled.
    ApprovalResolved { approval_id: ApprovalId, outcome: ApprovalOutcome, by: String, reason: String },
    /// The model asked the user something.
    QuestionAsked { question: Question },
    /// The user answered, or nobody did (`answer` is `None`).
    QuestionAnswered { question_id: QuestionId, answer: Option<String> },
    /// An OS process was started for a tool call.
    ProcessStarted {
        process_id: ProcessId,
        tool_call_id: ToolCallId,
        pid: u32,
        started_ticks: u64,
        command: String,
        background: bool,
    },
    /// That process and its group are gone.
    ProcessExited { process_id: ProcessId, exit_code: Option<i32>, reason: String },
    /// The model's task list.
    TasksChanged { items: Vec<TaskItem> },
    /// A model is given less of the history from here on.
    HistoryEased { model: String, ease: Ease },
    /// A model request was paid for.
    UsageRecorded {
        model: String,
        usage: Usage,
        /// What the request was for.
        #[serde(default, skip_serializing_if = "UsagePurpose::is_work")]
        purpose: UsagePurpose,
        /// Whether the model's price was known. Logs of earlier versions do not say; a cost above zero had a price.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        priced: bool,
        /// The goal that it was for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goal_id: Option<GoalId>,
    },
    /// The model has submitted a plan; it waits for an answer.
    PlanSubmitted { plan: Plan },
    /// What became of a submitted plan.
    PlanSettled { tool_call_id: ToolCallId, outcome: PlanOutcome, comment: String },
    /// A state of the project's files was kept.
    CheckpointTaken { checkpoint: Checkpoint },
    /// Files were brought back to what they were; `before` names the state that this can be undone to.
    FilesRestored { before: String, files: Vec<String>, left: u32 },
    /// Something the user should know.
    Notice { level: String, text: String },
    /// A kind that this version does not know, or a payload that it can not read; kept as it is.
    #[serde(skip)]
    Opaque { kind: String, version: u32, payload: String },
}

impl EventBody {
    /// The stored name of the kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::ThreadCreated { .. } => "thread_created",
            Self::TitleChanged { .. } => "title_changed",
            Self::ModeChanged { .. } => "mode_changed",
            Self::ModelChanged { .. } => "model_changed",
            Self::ArchivedChanged { .. } => "archived_changed",
            Self::PinnedChanged { .. } => "pinned_changed",
            Self::TagsChanged { .. } => "tags_changed",
            Self::ThreadForked { .. } => "thread_forked",
            Self::Rewound { .. } => "rewound",
            Self::InputQueued { .. } => "input_queued",
            Self::InputTaken { .. } => "input_taken",
            Self::RunStarted { .. } => "run_started",
            Self::RunStatusChanged { .. } => "run_status_changed",
            Self::RunResumed {} => "run_resumed",
            Self::RunFinished { .. } => "run_finished",
            Self::TurnStarted { .. } => "turn_started",
            Self::TurnFinished { .. } => "turn_finished",
            Self::StepStarted { .. } => "step_started",
            Self::StepFinished { .. } => "step_finished",
            Self::MessageStarted { .. } => "message_started",
            Self::MessageCheckpointed { .. } => "message_checkpointed",
            Self::MessageFinished { .. } => "message_finished",
            Self::MessageDiscarded { .. } => "message_discarded",
            Self::ToolCallStarted { .. } => "tool_call_started",
            Self::ToolCallBegun { .. } => "tool_call_begun",
            Self::ToolCallFinished { .. } => "tool_call_finished",
            Self::ApprovalRequested { .. } => "approval_requested",
            Self::ApprovalResolved { .. } => "approval_resolved",
            Self::QuestionAsked { .. } => "question_asked",
            Self::QuestionAnswered { .. } => "question_answered",
            Self::ProcessStarted { .. } => "process_started",
            Self::ProcessExited { .. } => "process_exited",
            Self::TasksChanged { .. } => "tasks_changed",
            Self::HistoryEased { .. } => "history_eased",
            Self::UsageRecorded { .. } => "usage_recorded",
            Self::PlanSubmitted { .. } => "plan_submitted",
            Self::PlanSettled { .. } => "plan_settled",
            Self::CheckpointTaken { .. } => "checkpoint_taken",
            Self::FilesRestored { .. } => "files_restored",
            Self::Notice { .. } => "notice",
            Self::Opaque { kind, .. } => kind,
        }
    }

    /// The run has this status, for another reason than its provider.
    #[must_use]
    pub const fn status(status: RunStatus) -> Self {
        Self::RunStatusChanged { status, parked: None }
    }

    /// The version of the stored form that this build writes.
    #[must_use]
    pub const fn version(&self) -> u32 {
        match self {
            Self::Opaque { version, .. } => *version,
            _ => 1,
        }
    }

    /// The stored form: JSON.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::Opaque { payload, .. } => Ok(payload.clone()),
            body => serde_json::to_string(body),
        }
    }

    /// Reads a stored form. A kind that this build does not know becomes [`EventBody::Opaque`]; a known kind whose
    /// payload does not read is an error, so that damage is never taken for news.
    pub fn decode(kind: &str, version: u32, payload: &str) -> Result<Self, serde_json::Error> {
        if version > 1 || !KINDS.contains(&kind) {
            return Ok(Self::Opaque { kind: kind.to_owned(), version, payload: payload.to_owned() });
        }
        let body: Self = serde_json::from_str(payload)?;
        if body.kind() != kind {
            let told = format!("the payload is a {}, not a {kind}", body.kind());
            return Err(serde::de::Error::custom(told));
        }
        Ok(body)
    }
}

/// The kind of what is shown in the place of an event that cannot be read.
pub const DAMAGED: &str = "damaged";

impl EventBody {
    /// What takes the place of an event that cannot be read; `what` says why, in plain words.
    #[must_use]
    pub fn damaged(what: &str) -> Self {
        let payload = serde_json::json!({ "what": what }).to_string();
        Self::Opaque { kind: DAMAGED.to_owned(), version: 1, payload }
    }

    /// Why an event cannot be read; `None` for all that can.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        let Self::Opaque { kind, payload, .. } = self else { return None };
        if kind != DAMAGED {
            return None;
        }
        let value: serde_json::Value = serde_json::from_str(payload).unwrap_or_default();
        Some(value["what"].as_str().unwrap_or("it is damaged").to_owned())
    }
}

/// Every kind this build can read, in the order of [`EventBody`].
pub const KINDS: &[&str] = &[
    "thread_created",
    "title_changed",
    "mode_changed",
    "model_changed",
    "archived_changed",
    "pinned_changed",
    "tags_changed",
    "thread_forked",
    "rewound",
    "input_queued",
    "input_taken",
    "run_started",
    "run_status_changed",
    "run_resumed",
    "run_finished",
    "turn_started",
    "turn_finished",
    "step_started",
    "step_finished",
    "message_started",
    "message_checkpointed",
    "message_finished",
    "message_discarded",
    "tool_call_started",
    "tool_call_begun",
    "tool_call_finished",
    "approval_requested",
    "approval_resolved",
    "question_asked",
    "question_answered",
    "process_started",
    "process_exited",
    "tasks_changed",
    "history_eased",
    "usage_recorded",
    "plan_submitted",
    "plan_settled",
    "checkpoint_taken",
    "files_restored",
    "notice",
];
