//! The one place that starts OS processes.
//!
//! Every command runs in a session and process group of its own, with standard input closed unless asked for, bounded
//! output, and an end that takes all it started with it. Commands of tools are tended by [`hosted`], so that they
//! outlive the daemon. Identity of a process is (pid, start time), so that a reused pid is never killed.
//!
//! A [`Policy`] says what a command may touch. [`Grounds`] make it from a project and the user's [`Settings`]; the
//! kernel holds it, as far as [`self_test`] finds that it can; [`Denied`] adds what the user's deny rules stand for; a
//! [`Watch`] tells what could not be held, and moves [`aside`] what was planted. The table of
//! what is held by what is in `daemon/ARCHITECTURE.md`; `tests/escapes` tries each line of it. Reading order:
//! [`policy`], [`layout`], `linux/mod.rs`. Absent on purpose: what may run (see `mcode-permissions`).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod aside;
pub mod confine;
pub mod denied;
pub mod environment;
mod git;
mod git_config;
pub mod hosted;
pub mod layout;
mod listening;
mod listing;
pub mod marked;
mod names;
pub mod origin;
pub mod policy;
pub mod process;
#[cfg(unix)]
pub mod proxy;
mod remembered;
#[cfg(windows)]
pub mod restricted;
pub mod runner;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
pub mod self_test;
pub mod settings;
pub mod shell;
pub mod watch;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(not(target_os = "linux"))]
#[path = "orphans_elsewhere.rs"]
mod orphans;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
#[cfg(target_os = "linux")]
mod proc_table;
#[cfg(any(windows, test))]
#[cfg_attr(not(windows), allow(dead_code, reason = "here it is only tested"))]
mod spool;

pub use confine::Strength;
pub use denied::Denied;
pub use environment::tool_environment;
pub use hosted::{About, Ended, Hosted, HostedSpec, Hosts, InputError, Output, Progress, Survivor};
pub use layout::Grounds;
pub use marked::{TOOL_CALL_VARIABLE, kill_marked};
pub use origin::{Origin, origin_of};
pub use orphans::{adopt_orphans, tend_orphans};
pub use policy::{Network, Policy, Quotas};
pub use process::{CommandSpec, ExitState, ProcessIdentity, SpawnError};
pub use runner::{Child, Group, KILL_GRACE, Keeping, LocalRunner, OutputPipe, Start, kill_orphan, prepared};
pub use self_test::{self_test, self_test_in};
pub use settings::{NetworkRule, Settings};
pub use shell::{Shell, ShellCommand, ShellKind, shell_for};
pub use watch::{Change, Watch};
