//! Having the kernel hold a [`crate::Policy`], and finding out whether it can.

use std::fmt;

#[cfg(target_os = "linux")]
pub(crate) use crate::linux::{Confined, strength};
#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Confined, strength};

/// What this machine can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strength {
    /// The kernel holds policies.
    Enforced {
        /// Version of Landlock's interface.
        landlock: u32,
        /// Whether mount namespaces can be had too: without them, what is fixed can be written, sockets can be
        /// reached, and modes and owners of one's own files elsewhere can be changed.
        namespaces: bool,
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
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforced { landlock, namespaces } => {
                let namespaces = if *namespaces { "+namespaces" } else { "" };
                write!(f, "landlock-{landlock}{namespaces}+seccomp")
            }
            Self::None(reason) => write!(f, "none:{reason}"),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::io;
    use std::path::Path;

    use super::Strength;
    use crate::policy::Policy;

    /// Never made: no policy can be held here.
    #[derive(Debug)]
    pub(crate) enum Confined {}

    impl Confined {
        pub(crate) fn prepare(_policy: &Policy, _cwd: &Path) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "commands can not be sandboxed on this system yet"))
        }
    }

    pub(crate) fn strength() -> Strength {
        Strength::None("commands can not be sandboxed on this system yet".to_owned())
    }
}
