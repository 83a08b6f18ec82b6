//! Having the kernel hold a [`crate::Policy`], and finding out whether it can.

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub(crate) use crate::linux::{Confined, Kept, strength};
#[cfg(target_os = "linux")]
use crate::linux::{Known, known, learn};
#[cfg(target_os = "macos")]
pub(crate) use crate::macos::{Confined, Kept, strength};
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) use elsewhere::{Confined, Kept, strength};
#[cfg(not(target_os = "linux"))]
use untried::{Known, known, learn};

/// What this machine can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strength {
    /// The kernel holds policies.
    Enforced {
        /// By what, such as `landlock-7+seccomp` (with the version of its interface) or `seatbelt`.
        by: String,
        /// Whether namespaces can be had too: on Linux, without them, what is fixed can be written, sockets can be
        /// reached, and modes and owners of one's own files elsewhere can be changed.
        namespaces: bool,
        /// Whether the number of a command's own processes can be held: by a control group or, for users other than
        /// root, by a user namespace.
        processes: bool,
        /// Whether the memory of a command, with all it starts, can be held: by a control group.
        memory: bool,
        /// What is not held, one sentence each, with what is missing for it.
        lacks: Vec<String>,
    },
    /// Nothing is held, and why.
    None(String),
}

impl Strength {
    /// Whether policies are held.
    #[must_use]
    pub fn enforced(&self) -> bool {
        matches!(self, Self::Enforced { .. })
    }

    /// What is not held, one sentence each.
    #[must_use]
    pub fn lacks(&self) -> Vec<String> {
        match self {
            Self::Enforced { lacks, .. } => lacks.clone(),
            Self::None(reason) => vec![format!("commands are not held to anything: {reason}")],
        }
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforced { by, namespaces, processes, memory, .. } => {
                let namespaces = if *namespaces { "+namespaces" } else { "" };
                let processes = if *processes { "+processes" } else { "" };
                let memory = if *memory { "+memory" } else { "" };
                write!(f, "{by}{namespaces}{processes}{memory}")
            }
            Self::None(reason) => write!(f, "none:{reason}"),
        }
    }
}

/// What was found out about this machine by trying. The daemon tells each process that starts a command for it, which
/// need not try again then.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Experience(Known);

impl Experience {
    /// What this process has found out; tries what it has not. Blocking.
    #[must_use]
    pub fn gather() -> Self {
        Self(known())
    }

    /// Takes it over, unless this process has found out already.
    pub fn share(self) {
        learn(self.0);
    }
}

#[cfg(not(target_os = "linux"))]
mod untried {
    use serde::{Deserialize, Serialize};

    /// Nothing is tried here.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub(super) struct Known;

    pub(super) fn known() -> Known {
        Known
    }

    pub(super) fn learn(Known: Known) {}
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod elsewhere {
    use std::io;
    use std::path::Path;

    use super::Strength;
    use crate::policy::Policy;

    /// Never made: no policy can be held here.
    #[derive(Debug)]
    pub(crate) enum Confined {}

    /// Never made, likewise.
    #[derive(Debug)]
    pub(crate) enum Kept {}

    impl Kept {
        pub(crate) fn started(&mut self, _command: u32, _members: impl Fn() -> Vec<u32>) -> io::Result<()> {
            match *self {}
        }
    }

    impl Confined {
        pub(crate) fn prepare(_policy: &Policy, _cwd: &Path) -> io::Result<(Self, Kept)> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "commands can not be sandboxed on this system yet"))
        }

        pub(crate) fn runner(&self) -> Option<(&'static str, Vec<String>)> {
            match *self {}
        }

        #[cfg(unix)]
        pub(crate) fn enter(&mut self) -> io::Result<()> {
            match *self {}
        }
    }

    /// A job object ends a command with all it started, and its token has no privileges: nothing else is held back.
    #[cfg(windows)]
    const REASON: &str = "on Windows a command has no rights of an administrator and is ended with all it started, but \
                          may touch whatever its user may";
    #[cfg(not(windows))]
    const REASON: &str = "commands can not be sandboxed on this system yet";

    pub(crate) fn strength() -> Strength {
        Strength::None(REASON.to_owned())
    }
}
