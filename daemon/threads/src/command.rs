//! What can be asked of a thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_events::audit::AuditEntry;
use mcode_events::event::NewEvent;
use mcode_events::message::Part;
use mcode_events::run::{ApprovalPolicy, Delivery, RunLimits, RunTrigger, ThinkingLevel};
use mcode_events::state::ThreadState;
use mcode_ids::{ApprovalId, InputId, QuestionId, RequestId, RunId, Seq, ThreadId};
use mcode_permissions::Mode;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::error::ThreadError;

/// A client's surroundings for one run; never stored.
#[derive(Debug, Clone)]
pub struct RunSurroundings {
    /// The client's environment.
    pub client_env: Arc<BTreeMap<String, String>>,
    /// The same without secrets, for tools.
    pub tool_env: Arc<BTreeMap<String, String>>,
    /// The client's file mode mask.
    pub umask: u32,
}

/// The loosest that a run may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// What is done about calls that would be asked.
    pub approval: ApprovalPolicy,
    /// The mode.
    pub mode: Mode,
    /// What it may use up.
    pub limits: RunLimits,
}

impl Bounds {
    /// Those of a program of which nothing more is known.
    pub const LEAST: Self = Self { approval: ApprovalPolicy::Ask, mode: Mode::Build, limits: RunLimits::NONE };
}

/// Who asks for a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asker {
    /// A person, or a program that speaks for one.
    Person,
    /// A program that a tool call has started: its run may have no more than that call's run had.
    Tool(Bounds),
    /// A process that can not be looked at; as little as a tool of a run that asks.
    Unknown,
}

impl Asker {
    /// The loosest that its run may be; `None` is whatever it asks for.
    #[must_use]
    pub const fn at_most(self) -> Option<Bounds> {
        match self {
            Self::Person => None,
            Self::Tool(bounds) => Some(bounds),
            Self::Unknown => Some(Bounds::LEAST),
        }
    }

    /// Who is said to have begun its run.
    #[must_use]
    pub const fn trigger(self) -> RunTrigger {
        match self {
            Self::Person => RunTrigger::Person,
            Self::Tool(_) => RunTrigger::Tool,
            Self::Unknown => RunTrigger::Unknown,
        }
    }
}

/// A thread to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewThread {
    /// Where it works: absolute.
    pub cwd: String,
    /// What it is called; empty for the default.
    pub title: String,
    /// `provider/model`, resolved.
    pub model: String,
    /// Its mode.
    pub mode: Mode,
    /// Whether it goes when its run ends.
    pub ephemeral: bool,
}

/// A run to be started.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// An idle thread to go on with.
    pub thread_id: Option<ThreadId>,
    /// What the user says.
    pub parts: Vec<Part>,
    /// `provider/model`, if the user named one.
    pub model: Option<String>,
    /// Mode, if the user named one.
    pub mode: Option<Mode>,
    /// How much to think.
    pub thinking: Option<ThinkingLevel>,
    /// What to do about undecided tool calls; `None` is as configured.
    pub approval: Option<ApprovalPolicy>,
    /// Who asks for it.
    pub asker: Asker,
    /// Whether somebody is there to answer.
    pub interactive: bool,
    /// Whether nobody waits for its end.
    pub detached: bool,
    /// Limits.
    pub limits: RunLimits,
    /// Where the client stands: absolute.
    pub cwd: String,
    /// Further folders.
    pub add_dirs: Vec<String>,
    /// Title of a new thread.
    pub title: String,
    /// What the final answer has to satisfy.
    pub answer_schema: Option<Value>,
    /// Whether a new thread goes when its run ends.
    pub ephemeral: bool,
    /// Says it in the place of an earlier message of `thread_id`.
    pub resend: Option<Resend>,
    /// The client's surroundings.
    pub surroundings: RunSurroundings,
    /// Makes a retry safe, with a hash of the request.
    pub request: Option<(RequestId, String)>,
}

/// A message of the user's that is said again, changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resend {
    /// The event of the message; `None` is the last one.
    pub at: Option<Seq>,
    /// Whether the thread stays as it is, and the run begins in a fork of it.
    pub in_fork: bool,
}

/// More input for a thread with a run at work.
#[derive(Debug, Clone)]
pub struct NewInput {
    /// When it is given.
    pub delivery: Delivery,
    /// What the user says.
    pub parts: Vec<Part>,
    /// The run it is meant for; `None` is whichever is at work.
    pub run_id: Option<RunId>,
    /// Makes a retry safe, with a hash of the request.
    pub request: Option<(RequestId, String)>,
}

/// A run that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// The thread.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// The last seq before the run's first event.
    pub seq: Seq,
}

/// Where and how long a rule counts that is kept with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrantScope {
    /// Everywhere: in the user's file, unless it ends.
    #[default]
    User,
    /// In the thread that asked.
    Thread,
    /// In the project of that thread.
    Project,
}

/// What somebody decided about an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Which.
    pub approval_id: ApprovalId,
    /// Whether it may run.
    pub allow: bool,
    /// Whether the proposed rule is kept.
    pub always: bool,
    /// Where it counts then.
    pub scope: GrantScope,
    /// Until when, milliseconds since 1970 UTC.
    pub until_ms: Option<i64>,
    /// What was said.
    pub reason: String,
    /// Who decided.
    pub by: String,
}

/// A settled approval or question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Where it is in the log.
    pub seq: Seq,
    /// The rule that was kept.
    pub rule: Option<String>,
}

/// What of a thread is changed; `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// What it is called.
    pub title: Option<String>,
    /// Whether it is put away.
    pub archived: Option<bool>,
    /// Whether it is kept at the top.
    pub pinned: Option<bool>,
    /// Words to find it by.
    pub tags: Option<Vec<String>>,
    /// Where the thread was seen; the change is refused when it has moved on.
    pub expected: Option<Seq>,
}

/// A thread that goes its own way from a point of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFork {
    /// The other thread.
    pub parent_id: ThreadId,
    /// The last event that both share; `None` is the latest.
    pub at: Option<Seq>,
    /// What the new one is called; empty for the same.
    pub title: String,
    /// Makes a retry safe, with a hash of the request.
    pub request: Option<(RequestId, String)>,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ThreadError>>;

/// A message to an actor.
#[derive(Debug)]
pub(crate) enum Command {
    Create {
        thread: NewThread,
        request: Option<(RequestId, String)>,
        reply: Reply<Seq>,
    },
    Fork {
        fork: NewFork,
        reply: Reply<Seq>,
    },
    Change {
        change: Change,
        reply: Reply<Seq>,
    },
    /// Facts about the thread itself.
    Record {
        events: Vec<NewEvent>,
        reply: Reply<Seq>,
    },
    /// Answered with how much of the history is not given to the model any more.
    Rewind {
        to: Seq,
        reply: Reply<u32>,
    },
    Start {
        run: Box<NewRun>,
        reply: Reply<Started>,
    },
    Input {
        input: NewInput,
        reply: Reply<(InputId, Seq)>,
    },
    Cancel {
        run_id: RunId,
        reply: Reply<()>,
    },
    Resolve {
        resolution: Resolution,
        reply: Reply<Answered>,
    },
    Answer {
        question_id: QuestionId,
        answer: String,
        reply: Reply<Answered>,
    },
    State {
        reply: Reply<Arc<ThreadState>>,
    },
    /// Ends everything of the thread; with `delete` the thread is forgotten too. Answered with how many commands ran.
    End {
        delete: bool,
        reply: Reply<u32>,
    },
    /// Forgets the thread by the policy of what is kept, when it is at `expected` and nothing of it is in use.
    Retire {
        expected: Seq,
        entry: Box<AuditEntry>,
        reply: Reply<u32>,
    },
    /// Whether the run at work, if there is one, goes on under the next daemon when that is left commands and what waits.
    Outlasts {
        reply: Reply<bool>,
    },
    /// The log was mended: it is read anew. The text is what the thread is told; empty is nothing.
    Mended {
        text: String,
        reply: Reply<()>,
    },
    /// `keep` leaves commands to the next daemon.
    Close {
        keep: bool,
        reply: Reply<()>,
    },
}

impl Command {
    /// Answers a command that can not be carried out.
    pub(crate) fn fail(self, error: ThreadError) {
        match self {
            Self::Create { reply, .. }
            | Self::Fork { reply, .. }
            | Self::Change { reply, .. }
            | Self::Record { reply, .. } => {
                drop(reply.send(Err(error)));
            }
            Self::Rewind { reply, .. } | Self::End { reply, .. } | Self::Retire { reply, .. } => {
                drop(reply.send(Err(error)))
            }
            Self::Start { reply, .. } => drop(reply.send(Err(error))),
            Self::Input { reply, .. } => drop(reply.send(Err(error))),
            Self::Cancel { reply, .. } | Self::Close { reply, .. } | Self::Mended { reply, .. } => {
                drop(reply.send(Err(error)))
            }
            Self::Resolve { reply, .. } | Self::Answer { reply, .. } => drop(reply.send(Err(error))),
            Self::State { reply } => drop(reply.send(Err(error))),
            Self::Outlasts { reply } => drop(reply.send(Err(error))),
        }
    }
}
