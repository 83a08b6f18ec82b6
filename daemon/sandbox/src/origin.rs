//! Where a process comes from: was it started by a tool call?
//!
//! A command that the model runs can start any program of the user's, also a client of the daemon, and must not be able
//! to answer its own approvals. It is known by its kin and not by its words: an ancestor that this daemon has started,
//! or the mark of a tool call in the environment of an ancestor or of a member of its session. A process that gives up
//! all of that (a new session, a clean environment, and a parent that has ended) is not known any more, unless the
//! kernel hands such orphans to a process that is marked (a subreaper), or the sandbox keeps them from the socket.

/// What is known of where a process comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No tool call has started it, as far as can be told.
    Elsewhere,
    /// This process has started it, through others perhaps.
    Ours,
    /// It comes from these tool calls, of whichever daemon.
    ToolCalls(Vec<String>),
    /// It is gone, or out of sight.
    Unknown,
}

/// Where the process of this number comes from. Blocking. Where the OS does not tell, nothing comes from a tool call.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn origin_of(_pid: u32) -> Origin {
    Origin::Elsewhere
}

/// Where the process of this number comes from. Blocking.
#[cfg(target_os = "linux")]
#[must_use]
pub fn origin_of(pid: u32) -> Origin {
    linux::origin_of(pid)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;

    use super::Origin;
    use crate::marked::TOOL_CALL_VARIABLE;
    use crate::proc_table::{all, row};

    /// Ancestors that are looked at; more would be a circle.
    const ANCESTORS_MAX: usize = 512;

    pub(super) fn origin_of(pid: u32) -> Origin {
        let Some(peer) = row(pid).filter(|row| !row.ended) else { return Origin::Unknown };
        let own = std::process::id();
        let mut kin = BTreeSet::from([pid]);
        let mut next = peer.parent;
        while next > 1 && kin.len() < ANCESTORS_MAX && kin.insert(next) {
            if next == own {
                return Origin::Ours;
            }
            next = row(next).map_or(0, |row| row.parent);
        }
        // The daemon's own session may be the user's terminal, when it runs in the foreground.
        let own_session = row(own).map_or(0, |row| row.session);
        if peer.session > 1 && peer.session != own_session {
            kin.extend(all().iter().filter(|row| row.session == peer.session).map(|row| row.pid));
        }
        let marks: BTreeSet<String> = kin.into_iter().filter_map(mark).collect();
        if marks.is_empty() { Origin::Elsewhere } else { Origin::ToolCalls(marks.into_iter().collect()) }
    }

    /// The tool call whose id a process carries in the environment that it was started with.
    fn mark(pid: u32) -> Option<String> {
        // Processes of other users do not show it, and can not connect either.
        let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let name = format!("{TOOL_CALL_VARIABLE}=");
        let found = environ.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(name.as_bytes()))?;
        std::str::from_utf8(found).ok().map(str::to_owned)
    }

    #[cfg(test)]
    mod tests {
        use std::process::{Command, Stdio};

        use super::*;

        #[test]
        fn children_are_ours_and_what_is_gone_is_not_known() {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            assert_eq!(origin_of(child.id()), Origin::Ours);
            child.kill().unwrap();
            let pid = child.id();
            child.wait().unwrap();
            assert_eq!(origin_of(pid), Origin::Unknown);
            assert_ne!(origin_of(std::process::id()), Origin::Ours);
        }
    }
}
