//! A command and everything it started, seen from its host.
//!
//! On Linux the host inherits whatever loses its parent, so the tree is all descendants of the host, in whatever
//! session or group. Elsewhere it is the group that the command leads.

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::progress::Usage;
use crate::process::ProcessIdentity;

/// How often stopping is tried before killing: each time what was started meanwhile is found.
#[cfg(target_os = "linux")]
const STOP_PASSES_MAX: u32 = 50;

/// A command with all it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// The host.
    pub host: ProcessIdentity,
    /// The command, which leads a session.
    pub command: ProcessIdentity,
}

impl Tree {
    /// Numbers of the processes that run. Where the OS only tells that some do, the command's.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        members(*self)
    }

    /// What they use; nothing where the OS does not tell.
    #[must_use]
    pub fn usage(&self) -> Usage {
        usage(*self)
    }

    /// Asks all of it to end.
    pub fn terminate(&self) {
        signal(*self, Signal::TERM);
    }

    /// Kills the host, if its number is still its own. What it tended is not touched.
    pub(super) fn kill_host(&self) {
        if crate::os::still_runs(self.host)
            && let Some(pid) = pid_of(self.host.pid)
        {
            rustix::process::kill_process(pid, Signal::KILL).ok();
        }
    }

    /// Kills all that is there now. What is forking faster is stopped first, so that one call is enough most times.
    pub fn kill(&self) {
        #[cfg(target_os = "linux")]
        stop(*self);
        signal(*self, Signal::KILL);
    }
}

/// The process that bears this number now.
#[must_use]
pub fn identify(pid: u32) -> ProcessIdentity {
    crate::os::identity_of(pid)
}

#[cfg(target_os = "linux")]
fn members(tree: Tree) -> Vec<u32> {
    crate::proc_table::descendants(tree.host).into_iter().map(|row| row.pid).collect()
}

#[cfg(not(target_os = "linux"))]
fn members(tree: Tree) -> Vec<u32> {
    let alive = pid_of(tree.command.pid).is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
    if alive { vec![tree.command.pid] } else { Vec::new() }
}

#[cfg(target_os = "linux")]
fn usage(tree: Tree) -> Usage {
    let members = members(tree);
    let mut sum = Usage { processes: u32::try_from(members.len()).unwrap_or(u32::MAX), ..Usage::default() };
    for (cpu_ms, rss_bytes) in members.into_iter().filter_map(crate::proc_table::usage) {
        sum.cpu_ms += cpu_ms;
        sum.rss_bytes += rss_bytes;
    }
    sum
}

#[cfg(not(target_os = "linux"))]
fn usage(_tree: Tree) -> Usage {
    Usage::default()
}

#[cfg(target_os = "linux")]
fn signal(tree: Tree, signal: Signal) {
    let rows = crate::proc_table::descendants(tree.host);
    let group = pid_of(tree.command.pid).filter(|_| rows.iter().any(|row| row.group == tree.command.pid));
    if let Some(group) = group {
        // At once, so that a pipeline does not see one of its parts end before the others.
        rustix::process::kill_process_group(group, signal).ok();
    }
    for pid in rows.iter().filter(|row| row.group != tree.command.pid).filter_map(|row| pid_of(row.pid)) {
        rustix::process::kill_process(pid, signal).ok();
    }
}

#[cfg(not(target_os = "linux"))]
fn signal(tree: Tree, signal: Signal) {
    if let Some(group) = pid_of(tree.command.pid) {
        rustix::process::kill_process_group(group, signal).ok();
    }
}

/// Stops everything, until nothing new turns up: what is stopped does not fork.
#[cfg(target_os = "linux")]
fn stop(tree: Tree) {
    let mut stopped = std::collections::BTreeSet::new();
    for _ in 0..STOP_PASSES_MAX {
        let new: Vec<u32> = members(tree).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            return;
        }
        for pid in new {
            if let Some(raw) = pid_of(pid) {
                rustix::process::kill_process(raw, Signal::STOP).ok();
            }
            stopped.insert(pid);
        }
    }
}

/// A number that may be signalled: never "every process", never init's.
fn pid_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 1)?)
}
