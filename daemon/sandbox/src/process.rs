//! The border: what is to be run, and the running thing.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;

/// What to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandSpec {
    /// Program and arguments; the program is looked up on the `PATH` of `env`.
    pub argv: Vec<String>,
    /// Where.
    pub cwd: PathBuf,
    /// The whole environment; nothing of the daemon's own is added.
    pub env: BTreeMap<String, String>,
    /// Whether standard input is a pipe that can be written to; else it is closed (reads end at once).
    pub stdin: bool,
    /// File mode mask of the command, on Unix; `None` keeps the daemon's own.
    pub umask: Option<u32>,
    /// What it may touch; `None` for everything its user may.
    pub policy: Option<Arc<Policy>>,
}

/// Tells a process from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The OS's number, and that of the process group.
    pub pid: u32,
    /// Start time in the kernel's own ticks; 0 where the OS does not tell.
    pub started_ticks: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitState {
    /// Exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal, on Unix.
    pub signal: Option<i32>,
}

/// A command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program is not there or may not be run.
    #[error("cannot run '{program}' in {}", cwd.display())]
    Start {
        /// The program.
        program: String,
        /// Where.
        cwd: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Its policy could not be made ready, so it was not started.
    #[error("the sandbox of a command could not be set up, so it was not run")]
    Policy(#[source] io::Error),
    /// The folder to run in is not there.
    #[error("the folder {} does not exist", .0.display())]
    NoSuchFolder(PathBuf),
    /// The program that tends commands did not do its part, so the command was not run.
    #[error("the command was not run: {0}")]
    Host(String),
}
