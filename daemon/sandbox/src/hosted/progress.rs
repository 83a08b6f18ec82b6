//! What daemon and host tell each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hosts::Hosted;
use crate::confine::Experience;
use crate::process::{CommandSpec, ExitState};

/// Whose a command is: enough for the next daemon to give it back to its thread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Id of the process; names its folder, so letters, digits and `_` only.
    pub process_id: String,
    /// The thread.
    pub thread_id: String,
    /// The tool call that asked for it.
    pub tool_call_id: String,
    /// The command, shortened for people.
    pub command: String,
    /// What it was given beyond the sandbox, in a word of whoever has it run.
    pub given: String,
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What a host is to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostedSpec {
    /// The command.
    pub command: CommandSpec,
    /// Whose it is.
    pub about: About,
    /// How long it may take; kept by the host, also when no daemon runs.
    pub limit: Option<Duration>,
    /// Whether it was started to outlive its call: its limit then holds for all that it starts, and less of its output
    /// is kept.
    pub background: bool,
    /// What the daemon knows of the sandbox here; `None` lets the host find out. Set by [`super::Hosts::start`].
    pub experience: Option<Experience>,
    /// Gives it a terminal for its input and output, in place of pipes. Not on Windows.
    pub terminal: Option<Terminal>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself.
    Exited(ExitState),
    /// It, or what it left behind, reached this time limit and was killed.
    TimedOut(Duration),
    /// It was killed on request, and why.
    Killed(String),
    /// Nobody saw, and why not.
    Lost(String),
}

/// Where a command stands. A host of another version may leave out what it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Milliseconds since its start.
    pub age_ms: u64,
    /// Bytes it has printed.
    pub output_bytes: u64,
    /// How it ended; what it started may still run.
    pub ended: Option<Ended>,
    /// Milliseconds from its start to its end.
    pub took_ms: u64,
    /// Nothing of it runs any more.
    pub gone: bool,
    /// Bytes of input it has taken.
    pub input_taken: u64,
    /// Bytes of input that wait until it takes them.
    pub input_waiting: u64,
    /// Whether it takes more.
    pub input_open: bool,
    /// Whether it outlives its call: started so, or put there since.
    pub background: bool,
    /// Its time limit.
    pub limit: Option<Duration>,
}

/// What a command's processes use, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processes.
    pub processes: u32,
    /// Processor time of those that run, in milliseconds.
    pub cpu_ms: u64,
    /// Resident memory in bytes; shared pages count for each.
    pub rss_bytes: u64,
}

/// Input could not be given to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It takes none: it has ended, its input was closed, or it never had any.
    #[error("it takes no input")]
    Closed,
    /// It has not read what it was given before.
    #[error("it has not read its earlier input")]
    Full,
}

/// A command that an earlier daemon started and this one has found.
#[derive(Debug)]
pub struct Survivor {
    /// Whose it is.
    pub about: About,
    /// The command.
    pub hosted: Hosted,
}
