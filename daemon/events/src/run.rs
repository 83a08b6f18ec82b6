//! Runs, what they were asked to do, and how they end.

use std::collections::BTreeMap;

use mcode_ids::{GoalId, InputId, RunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::Part;

/// How a run ended, or where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The agent is at work.
    Running,
    /// The agent waits for an approval or an answer.
    Waiting,
    /// The model stopped by itself.
    Done,
    /// It could not go on; the error says why.
    Failed,
    /// The user cancelled.
    Cancelled,
    /// The daemon ended while it ran.
    Interrupted,
}

impl RunStatus {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Who has to do something about an error; decides a client's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunErrorKind {
    /// The run itself did not reach its end (exit 1).
    Run,
    /// Wrong request (exit 2).
    Usage,
    /// Wrong or missing configuration (exit 3).
    Config,
    /// Permission was refused or nobody could give it (exit 4).
    Permission,
    /// The model or its provider failed (exit 5).
    Model,
    /// A budget, step or token limit was reached (exit 7).
    Limit,
    /// The time limit was reached (exit 124).
    Timeout,
    /// Cancelled or interrupted (exit 130).
    Interrupted,
    /// A fault of ours (exit 70).
    Internal,
}

impl RunErrorKind {
    /// The exit status of a client whose run ended this way.
    #[must_use]
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Run => 1,
            Self::Usage => 2,
            Self::Config => 3,
            Self::Permission => 4,
            Self::Model => 5,
            Self::Limit => 7,
            Self::Timeout => 124,
            Self::Interrupted => 130,
            Self::Internal => 70,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Usage => "usage",
            Self::Config => "config",
            Self::Permission => "permission",
            Self::Model => "model",
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
            Self::Internal => "internal",
        }
    }
}

/// Why a run did not end well, for people and scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// Who has to act.
    pub kind: RunErrorKind,
    /// A stable name, such as `MODEL_OVERLOADED`.
    pub reason: String,
    /// What failed, on what.
    pub message: String,
    /// What to do next; may be empty.
    pub hint: String,
}

/// When an input that arrives during a run is given to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Before the next step of the running turn.
    Steer,
    /// As a turn of its own, when the running turn has ended.
    Queue,
}

/// Something the user said that waits for its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedInput {
    /// Names it, so that it can be taken back.
    pub input_id: InputId,
    /// When it is given.
    pub delivery: Delivery,
    /// What was said.
    pub parts: Vec<Part>,
}

/// What is done about tool calls that no rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    /// Ask, and wait for whoever answers.
    #[default]
    Ask,
    /// Refuse without asking.
    Deny,
    /// Allow without asking; deny rules still hold.
    All,
}

/// How much the model thinks before it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingLevel {
    /// Not at all, where the model allows that.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    Xhigh,
}

impl ThinkingLevel {
    /// All of them, from the least.
    pub const ALL: [Self; 5] = [Self::Off, Self::Low, Self::Medium, Self::High, Self::Xhigh];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// The level of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// Limits of a run; `None` is no limit beyond the daemon's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RunLimits {
    /// Most steps (model requests).
    pub max_steps: Option<u32>,
    /// Most tokens in and out together.
    pub max_tokens: Option<u64>,
    /// Most US dollars.
    pub max_cost_usd: Option<f64>,
    /// Most milliseconds from start to end.
    pub max_time_ms: Option<u64>,
}

impl RunLimits {
    /// No limit beyond the daemon's own.
    pub const NONE: Self = Self { max_steps: None, max_tokens: None, max_cost_usd: None, max_time_ms: None };

    /// The narrower of both.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        fn least<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(if other < one { other } else { one }),
                (one, other) => one.or(other),
            }
        }
        Self {
            max_steps: least(self.max_steps, other.max_steps),
            max_tokens: least(self.max_tokens, other.max_tokens),
            max_cost_usd: least(self.max_cost_usd, other.max_cost_usd),
            max_time_ms: least(self.max_time_ms, other.max_time_ms),
        }
    }
}

/// Who began a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunTrigger {
    /// A person, or a program that speaks for one.
    #[default]
    Person,
    /// The end of a command in the background.
    Background,
    /// A program that a tool call has started.
    Tool,
    /// A process that could not be looked at.
    Unknown,
}

impl RunTrigger {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Background => "background",
            Self::Tool => "tool",
            Self::Unknown => "unknown",
        }
    }

    /// For the stored form, which leaves out what is usual.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    const fn is_person(&self) -> bool {
        matches!(self, Self::Person)
    }
}

/// What another daemon needs to go on with a run. No secret is in it: of the client's environment only variables with
/// well-known names, none of which holds a key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kept {
    /// What commands are run with.
    pub env: BTreeMap<String, String>,
    /// The client's file mode mask.
    pub umask: u32,
    /// Whether the daemon reaches the run's models by itself as the run did with what its client gave: same key, same
    /// server, same proxy.
    pub own_access: bool,
}

/// That nobody asks a model before some time: its provider has said so, and the run waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// `provider/model`.
    pub model: String,
    /// When it can be asked again, milliseconds since 1970 UTC.
    pub until_ms: i64,
    /// Whether that counts for all models of the account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_account: bool,
}

/// What a run was asked to be. Secrets are not part of it: they are never stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// `provider/model`.
    pub model: String,
    /// `build`, `plan` or `explore`.
    pub mode: String,
    /// How much to think; `None` is the model's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// What to do about undecided tool calls.
    pub approval: ApprovalPolicy,
    /// Whether somebody is there to answer approvals and questions.
    pub interactive: bool,
    /// Limits.
    #[serde(default)]
    pub limits: RunLimits,
    /// Where the client stands: an absolute path.
    pub cwd: String,
    /// Further folders the run may work in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_dirs: Vec<String>,
    /// A JSON Schema that the final answer has to satisfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Value>,
    /// Who began it.
    #[serde(default, skip_serializing_if = "RunTrigger::is_person")]
    pub trigger: RunTrigger,
    /// Whether the model was named for this run: the thread keeps it for the mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub model_given: bool,
    /// Whether nobody waits for its end: it may wait long for a provider, and others go first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// The goal that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_id: Option<GoalId>,
    /// For the next daemon; runs of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Where the key for the model was from when the run began, in some words; never any of the key. Empty in runs of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_source: String,
}

impl RunOptions {
    /// Whether nobody sits and waits for the run.
    #[must_use]
    pub const fn is_background(&self) -> bool {
        self.detached || matches!(self.trigger, RunTrigger::Background)
    }
}

/// A run as the fold knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub run_id: RunId,
    /// What it was asked to be.
    pub options: RunOptions,
    /// How it stands.
    pub status: RunStatus,
    /// When it began, milliseconds since 1970.
    pub started_at_ms: i64,
    /// When it ended.
    pub ended_at_ms: Option<i64>,
    /// Why it did not end well.
    pub error: Option<RunError>,
    /// Steps begun.
    pub steps: u32,
    /// Times that another daemon has gone on with it.
    #[serde(default)]
    pub resumed: u32,
    /// What it waits for, if that is a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
    /// What it cost.
    pub usage: crate::usage::Usage,
}

impl RunRecord {
    /// The exit status of a client that waited for it: `None` while it goes on.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match (self.status, &self.error) {
            (RunStatus::Running | RunStatus::Waiting, _) => None,
            (RunStatus::Done, None) => Some(0),
            (_, Some(error)) => Some(error.kind.exit_code()),
            (RunStatus::Cancelled | RunStatus::Interrupted, None) => Some(RunErrorKind::Interrupted.exit_code()),
            (RunStatus::Failed, None) => Some(RunErrorKind::Run.exit_code()),
        }
    }
}
