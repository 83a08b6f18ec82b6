//! What a tool may ask of the run it is part of.

use std::fmt;

use futures::future::BoxFuture;
use mcode_events::tool::TaskItem;
use mcode_ids::ProcessId;

/// What became of a question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskOutcome {
    /// The user's answer.
    Answered(String),
    /// Nobody is there to answer.
    NobodyThere,
    /// The run was cancelled first.
    Cancelled,
}

/// A process that a tool has started and that the log must know of before it is waited for.
#[derive(Debug, Clone)]
pub struct StartedProcess {
    /// Its id.
    pub process_id: ProcessId,
    /// The OS's number and group.
    pub pid: u32,
    /// Start time in kernel ticks.
    pub started_ticks: u64,
    /// The command line, for people.
    pub command: String,
    /// Whether it may outlive its tool call.
    pub background: bool,
}

/// Something that people should know of, whoever looks at the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// In words.
    pub text: String,
    /// The files that it is about.
    pub subject: String,
    /// Whether any of them was moved aside.
    pub moved: bool,
}

/// Implemented by the agent; every call is recorded in the log before it has an effect.
pub trait ToolPort: Send + Sync + fmt::Debug {
    /// Asks the user and waits for the answer.
    fn ask(&self, question: String, options: Vec<String>, multiple: bool) -> BoxFuture<'_, AskOutcome>;
    /// Replaces the task list.
    fn set_tasks(&self, items: Vec<TaskItem>) -> BoxFuture<'_, ()>;
    /// Notes that a process lives.
    fn process_started(&self, process: StartedProcess) -> BoxFuture<'_, ()>;
    /// Notes that a process and its group are gone. A background process that ends after its call has ended tells
    /// the model so: `notice` is given to it as soon as the run allows, and starts a turn if the run is idle.
    fn process_exited(
        &self,
        process_id: ProcessId,
        exit_code: Option<i32>,
        reason: String,
        notice: Option<String>,
    ) -> BoxFuture<'_, ()>;
    /// Tells people of files that a command should not have touched: in the thread and in the record of permissions.
    fn warn(&self, warning: Warning) -> BoxFuture<'_, ()>;
    /// Whether the call may read this resolved path, which it came upon by walking a folder that it was allowed to
    /// read. A rule may forbid the file, or ask about it, though the folder is allowed.
    fn may_read(&self, path: &std::path::Path) -> bool;
    /// More output of a running command, for people who watch; not stored, may be dropped.
    fn output(&self, text: &str);
}
