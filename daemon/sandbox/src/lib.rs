//! The one place that starts OS processes.
//!
//! Every command runs in a session and process group of its own, with standard input closed unless asked for, output
//! read through a bounded [`Spool`], and an end that takes the whole group with it. Identity of a process is (pid,
//! start time), so that a reused pid is never killed. Absent on purpose: what may run (see `mcode-permissions`).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod environment;
pub mod marked;
pub mod origin;
pub mod process;
pub mod runner;
pub mod shell;
pub mod spool;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
#[cfg(target_os = "linux")]
mod proc_table;

pub use environment::{strip_secrets, tool_environment};
pub use marked::{TOOL_CALL_VARIABLE, kill_marked};
pub use origin::{Origin, origin_of};
pub use process::{CommandSpec, ExitState, ProcessIdentity, SpawnError};
pub use runner::{Child, Group, KILL_GRACE, LocalRunner, OutputPipe, kill_orphan};
pub use shell::{Shell, ShellCommand, ShellKind, shell_for};
pub use spool::Spool;
