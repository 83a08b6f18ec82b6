//! The fold: a thread's state from its events.
//!
//! [`ThreadState::apply`] is total: any prefix of any log gives a state, and an event that makes no sense where it
//! stands changes nothing. Histories are shared pointers, so a copy of the state for a running agent is cheap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mcode_ids::{
    ApprovalId, ItemId, ProcessId, ProjectId, QuestionId, RunId, Seq, StepId, ThreadId, ToolCallId, TurnId,
};
use serde::{Deserialize, Serialize};

use crate::branching::ForkPoint;
use crate::checkpoint::CheckpointMark;
use crate::ease::Ease;
use crate::event::{ApprovalOutcome, ApprovalRequest, Event, EventBody, Question};
use crate::message::{Message, Role};
use crate::plan::PlanMark;
use crate::run::{QueuedInput, RunRecord, RunStatus};
use crate::tool::{TaskItem, ToolCall, ToolResult};
use crate::usage::Usage;

/// Something the model said, was told, or got back from a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// A complete message.
    Message {
        /// The message.
        message: Message,
        /// Its turn.
        turn_id: Option<TurnId>,
    },
    /// What a tool gave back.
    ToolResult {
        /// The tool.
        name: String,
        /// The result.
        result: ToolResult,
    },
}

/// A message that is being written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenMessage {
    /// Who writes.
    pub role: Role,
    /// Text that is safe in the log.
    pub text: String,
    /// Reasoning that is safe in the log.
    pub thinking: String,
}

/// A process that the log believes to be alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProcess {
    /// The run that started it.
    pub run_id: Option<RunId>,
    /// The call that started it.
    pub tool_call_id: ToolCallId,
    /// The OS's number for it, which is its process group too.
    pub pid: u32,
    /// When the kernel started it, in its own clock ticks; tells a reused pid.
    pub started_ticks: u64,
    /// What it runs.
    pub command: String,
    /// Whether it may outlive its tool call.
    pub background: bool,
}

/// What somebody was asked about a tool call, and the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The question.
    pub request: ApprovalRequest,
    /// The answer.
    pub outcome: ApprovalOutcome,
    /// What was said.
    pub reason: String,
}

/// Everything that was started and has no terminal event yet.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OpenItems {
    /// The active run.
    pub run: Option<RunId>,
    /// The active turn.
    pub turn: Option<TurnId>,
    /// The active step.
    pub step: Option<StepId>,
    /// Messages being written.
    pub messages: BTreeMap<ItemId, OpenMessage>,
    /// Tool calls that run.
    pub tool_calls: BTreeMap<ToolCallId, ToolCall>,
    /// Approvals that wait.
    pub approvals: BTreeMap<ApprovalId, ApprovalRequest>,
    /// Questions that wait.
    pub questions: BTreeMap<QuestionId, Question>,
    /// Processes that live.
    pub processes: BTreeMap<ProcessId, OpenProcess>,
    /// Approvals of tool calls that run, once they are settled.
    pub settled: BTreeMap<ToolCallId, Settled>,
    /// Answers to questions of tool calls that run.
    pub replies: BTreeMap<ToolCallId, Option<String>>,
    /// Tool calls that somebody was asked about and that have taken effect since.
    pub begun: BTreeSet<ToolCallId>,
}

impl OpenItems {
    /// Whether nothing is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this open call was asked about and has not taken effect, whatever the answer.
    #[must_use]
    pub fn is_untouched(&self, call: ToolCallId) -> bool {
        let asked = self.settled.contains_key(&call) || self.approvals.values().any(|it| it.tool_call_id == call);
        asked && !self.begun.contains(&call)
    }

    /// What somebody was asked about this open call.
    #[must_use]
    pub fn asked_about(&self, call: ToolCallId) -> Option<&ApprovalRequest> {
        let settled = self.settled.get(&call).map(|settled| &settled.request);
        settled.or_else(|| self.approvals.values().find(|request| request.tool_call_id == call))
    }
}

/// The state of a thread at a seq.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadState {
    /// The thread.
    pub thread_id: ThreadId,
    /// The last event that is folded in.
    pub last_seq: Seq,
    /// When the thread was made, milliseconds since 1970 UTC.
    pub created_at_ms: i64,
    /// When its last event was appended.
    pub updated_at_ms: i64,
    /// The project it belongs to.
    pub project_id: Option<ProjectId>,
    /// Where it works.
    pub cwd: String,
    /// The root of the work tree that it was made in; empty where that is not known.
    pub root: String,
    /// What it is called.
    pub title: String,
    /// `provider/model`.
    pub model: String,
    /// `build`, `plan` or `explore`.
    pub mode: String,
    /// Whether it is put away.
    pub archived: bool,
    /// Whether it is kept at the top.
    pub pinned: bool,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The thread that it was forked from.
    pub forked: Option<ForkPoint>,
    /// Whether it is forgotten when its run ends.
    pub ephemeral: bool,
    /// What was said, in order.
    pub history: Vec<Arc<Entry>>,
    /// The event of each entry of the history.
    pub said_at: Vec<Seq>,
    /// The beginning of what the user said last, in one line.
    pub preview: String,
    /// What of it a model is not given any more, by its name: each has its own window.
    #[serde(default)]
    pub eases: BTreeMap<String, Ease>,
    /// What is unfinished.
    pub open: OpenItems,
    /// Inputs that wait.
    pub queue: Vec<QueuedInput>,
    /// Runs, oldest first.
    pub runs: Vec<RunRecord>,
    /// The model's task list.
    pub tasks: Vec<TaskItem>,
    /// Plans that were submitted, oldest first.
    #[serde(default)]
    pub plans: Vec<PlanMark>,
    /// What all of it cost.
    pub usage: Usage,
    /// States of the project's files that were kept, oldest first.
    pub checkpoints: Vec<Arc<CheckpointMark>>,
    /// Files as the tools last saw them: resolved path to BLAKE3.
    pub files: BTreeMap<String, String>,
}

impl ThreadState {
    /// The state before the first event.
    #[must_use]
    pub fn new(thread_id: ThreadId) -> Self {
        Self {
            thread_id,
            last_seq: Seq::ZERO,
            created_at_ms: 0,
            updated_at_ms: 0,
            project_id: None,
            cwd: String::new(),
            root: String::new(),
            title: String::new(),
            model: String::new(),
            mode: String::new(),
            archived: false,
            pinned: false,
            tags: Vec::new(),
            forked: None,
            ephemeral: false,
            history: Vec::new(),
            said_at: Vec::new(),
            preview: String::new(),
            eases: BTreeMap::new(),
            open: OpenItems::default(),
            queue: Vec::new(),
            runs: Vec::new(),
            tasks: Vec::new(),
            plans: Vec::new(),
            usage: Usage::default(),
            checkpoints: Vec::new(),
            files: BTreeMap::new(),
        }
    }

    /// The run with this id.
    #[must_use]
    pub fn run(&self, run_id: RunId) -> Option<&RunRecord> {
        self.runs.iter().rev().find(|run| run.run_id == run_id)
    }

    /// The model that somebody named last for a run in this mode.
    #[must_use]
    pub fn chosen_model(&self, mode: &str) -> Option<&str> {
        let named = self.runs.iter().rev().map(|run| &run.options).find(|run| run.model_given && run.mode == mode);
        named.map(|run| run.model.as_str())
    }

    /// What of the history this model is not given any more.
    #[must_use]
    pub fn ease_of(&self, model: &str) -> Ease {
        self.eases.get(model).copied().unwrap_or_default()
    }

    /// The run that is at work.
    #[must_use]
    pub fn active_run(&self) -> Option<&RunRecord> {
        self.open.run.and_then(|run_id| self.run(run_id))
    }

    /// Whether the run at work waits for its provider: nobody was asked anything and no tool runs.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        let open = &self.open;
        let nobody_asked = open.approvals.is_empty() && open.questions.is_empty() && open.tool_calls.is_empty();
        nobody_asked && open.turn.is_some() && self.active_run().is_some_and(|run| run.status == RunStatus::Waiting)
    }

    /// One word for lists: `idle`, `running` or `waiting`.
    #[must_use]
    pub fn activity(&self) -> &'static str {
        match self.active_run().map(|run| run.status) {
            None => "idle",
            Some(RunStatus::Waiting) => "waiting",
            Some(_) => "running",
        }
    }

    /// Folds one event in.
    pub fn apply(&mut self, event: &Event) {
        self.last_seq = event.seq;
        self.updated_at_ms = event.at_ms;
        match &event.body {
            EventBody::ThreadCreated { project_id, cwd, root, title, model, mode, ephemeral } => {
                self.created_at_ms = event.at_ms;
                self.project_id = Some(*project_id);
                self.cwd.clone_from(cwd);
                self.root.clone_from(root);
                self.title.clone_from(title);
                self.model.clone_from(model);
                self.mode.clone_from(mode);
                self.ephemeral = *ephemeral;
            }
            EventBody::TitleChanged { title } => self.title.clone_from(title),
            EventBody::ModeChanged { mode } => {
                self.mode.clone_from(mode);
                // One that is of a run is of how that goes on.
                if let Some(run) = event.run_id.and_then(|_| self.active_run_mut()) {
                    run.options.mode.clone_from(mode);
                }
            }
            EventBody::PlanSubmitted { .. } | EventBody::PlanSettled { .. } => self.apply_plan(event),
            EventBody::ModelChanged { model } => self.model.clone_from(model),
            EventBody::ArchivedChanged { archived } => self.archived = *archived,
            EventBody::PinnedChanged { pinned } => self.pinned = *pinned,
            EventBody::TagsChanged { tags } => self.tags.clone_from(tags),
            EventBody::ThreadForked { .. } | EventBody::Rewound { .. } => self.apply_branching(event),
            EventBody::InputQueued { input_id, delivery, parts } => {
                self.queue.push(QueuedInput { input_id: *input_id, delivery: *delivery, parts: parts.clone() });
            }
            EventBody::InputTaken { input_id, .. } => self.queue.retain(|input| input.input_id != *input_id),
            EventBody::TasksChanged { items } => self.tasks.clone_from(items),
            EventBody::UsageRecorded { usage, .. } => {
                self.usage.add(usage);
                if let Some(run) = self.active_run_mut() {
                    run.usage.add(usage);
                }
            }
            EventBody::HistoryEased { model, ease } => {
                let eased = self.eases.entry(model.clone()).or_default();
                *eased = eased.and(*ease);
            }
            EventBody::CheckpointTaken { checkpoint } => self.checkpoints.push(Arc::new(CheckpointMark {
                checkpoint: checkpoint.clone(),
                seq: event.seq,
                at_ms: event.at_ms,
                turn_id: event.turn_id,
            })),
            EventBody::FilesRestored { .. } | EventBody::Notice { .. } | EventBody::Opaque { .. } => {}
            _ => self.apply_activity(event),
        }
    }

    fn say(&mut self, seq: Seq, entry: Entry) {
        if let Entry::Message { message, .. } = &entry
            && message.role == Role::User
        {
            self.preview = message.preview();
        }
        self.history.push(Arc::new(entry));
        self.said_at.push(seq);
    }

    fn apply_activity(&mut self, event: &Event) {
        match &event.body {
            EventBody::RunStarted { .. }
            | EventBody::RunStatusChanged { .. }
            | EventBody::RunResumed {}
            | EventBody::RunFinished { .. } => {
                self.apply_run(event);
            }
            EventBody::TurnStarted { turn_id } => self.open.turn = Some(*turn_id),
            EventBody::TurnFinished { turn_id, .. } => {
                self.open.turn = self.open.turn.filter(|open| open != turn_id);
            }
            EventBody::StepStarted { step_id, .. } => {
                self.open.step = Some(*step_id);
                if let Some(run) = self.active_run_mut() {
                    run.steps += 1;
                }
            }
            EventBody::StepFinished { step_id, .. } => {
                self.open.step = self.open.step.filter(|open| open != step_id);
            }
            EventBody::ProcessStarted { process_id, tool_call_id, pid, started_ticks, command, background } => {
                let process = OpenProcess {
                    run_id: event.run_id,
                    tool_call_id: *tool_call_id,
                    pid: *pid,
                    started_ticks: *started_ticks,
                    command: command.clone(),
                    background: *background,
                };
                self.open.processes.insert(*process_id, process);
            }
            EventBody::ProcessExited { process_id, .. } => {
                self.open.processes.remove(process_id);
            }
            EventBody::ApprovalRequested { request } => {
                self.open.approvals.insert(request.approval_id, request.clone());
            }
            EventBody::ApprovalResolved { approval_id, outcome, reason, .. } => {
                let request = self.open.approvals.remove(approval_id);
                if let Some(request) = request.filter(|it| self.open.tool_calls.contains_key(&it.tool_call_id)) {
                    let (call, reason) = (request.tool_call_id, reason.clone());
                    self.open.settled.insert(call, Settled { request, outcome: *outcome, reason });
                }
            }
            EventBody::QuestionAsked { question } => {
                self.open.questions.insert(question.question_id, question.clone());
            }
            EventBody::QuestionAnswered { question_id, answer } => {
                let question = self.open.questions.remove(question_id);
                if let Some(question) = question.filter(|it| self.open.tool_calls.contains_key(&it.tool_call_id)) {
                    self.open.replies.insert(question.tool_call_id, answer.clone());
                }
            }
            _ => self.apply_speech(event),
        }
    }

    fn apply_run(&mut self, event: &Event) {
        let Some(run_id) = event.run_id else { return };
        match &event.body {
            EventBody::RunStarted { options } => {
                self.open.run = Some(run_id);
                self.runs.push(RunRecord {
                    run_id,
                    options: options.clone(),
                    status: RunStatus::Running,
                    started_at_ms: event.at_ms,
                    ended_at_ms: None,
                    error: None,
                    steps: 0,
                    resumed: 0,
                    parked: None,
                    usage: Usage::default(),
                });
            }
            EventBody::RunStatusChanged { status, parked } => {
                if let Some(run) = self.active_run_mut() {
                    run.status = *status;
                    run.parked.clone_from(parked);
                }
            }
            EventBody::RunResumed {} => {
                if let Some(run) = self.active_run_mut() {
                    run.resumed += 1;
                }
            }
            EventBody::RunFinished { status, error, .. } => {
                if let Some(run) = self.runs.iter_mut().rev().find(|run| run.run_id == run_id) {
                    run.status = *status;
                    run.error.clone_from(error);
                    run.ended_at_ms = Some(event.at_ms);
                    run.parked = None;
                }
                self.open.run = self.open.run.filter(|open| *open != run_id);
            }
            _ => {}
        }
    }

    fn apply_speech(&mut self, event: &Event) {
        match &event.body {
            EventBody::MessageStarted { item_id, role } => {
                let message = OpenMessage { role: *role, text: String::new(), thinking: String::new() };
                self.open.messages.insert(*item_id, message);
            }
            EventBody::MessageCheckpointed { item_id, text, thinking } => {
                if let Some(message) = self.open.messages.get_mut(item_id) {
                    message.text.push_str(text);
                    message.thinking.push_str(thinking);
                }
            }
            EventBody::MessageFinished { message } => {
                self.open.messages.remove(&message.item_id);
                self.say(event.seq, Entry::Message { message: message.clone(), turn_id: event.turn_id });
            }
            EventBody::MessageDiscarded { item_id, .. } => {
                self.open.messages.remove(item_id);
            }
            EventBody::ToolCallStarted { call, .. } => {
                self.open.tool_calls.insert(call.tool_call_id, call.clone());
            }
            EventBody::ToolCallBegun { tool_call_id } if self.open.tool_calls.contains_key(tool_call_id) => {
                self.open.begun.insert(*tool_call_id);
            }
            EventBody::ToolCallFinished { name, result } => {
                self.open.tool_calls.remove(&result.tool_call_id);
                self.open.settled.remove(&result.tool_call_id);
                self.open.replies.remove(&result.tool_call_id);
                self.open.begun.remove(&result.tool_call_id);
                for file in &result.files {
                    match &file.hash {
                        Some(hash) => self.files.insert(file.path.clone(), hash.clone()),
                        None => self.files.remove(&file.path),
                    };
                }
                self.say(event.seq, Entry::ToolResult { name: name.clone(), result: result.clone() });
            }
            _ => {}
        }
    }

    fn active_run_mut(&mut self) -> Option<&mut RunRecord> {
        let run_id = self.open.run?;
        self.runs.iter_mut().rev().find(|run| run.run_id == run_id)
    }
}
