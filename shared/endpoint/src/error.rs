//! What can be wrong with the place of the socket.

use std::io;
use std::path::PathBuf;

/// The socket can not be placed, locked or bound.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The path that was asked for does not fit into a socket address.
    #[error("the socket path {} has {length} bytes; at most {limit} are possible: choose a shorter --socket or MCODE_SOCKET", path.display())]
    TooLong {
        /// The path asked for.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The most bytes a path may have.
        limit: usize,
    },
    /// A directory that must be ours alone is not.
    #[error("the socket directory {} is not safe: {reason}; remove it or set MCODE_SOCKET to a path of your own", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something that is not our socket lies at the path; it was left as it is.
    #[error("{} is {what}; it was left untouched: move it away or choose another --socket", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// What lies there.
        what: &'static str,
    },
    /// Another daemon serves this path.
    #[error("a daemon{} already serves {}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(), path.display())]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
        /// The other daemon, when known.
        pid: Option<u32>,
    },
    /// A lock was not to be had in time.
    #[error("{} is still held{} after {waited_ms} ms", path.display(), pid.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    LockHeld {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, when known.
        pid: Option<u32>,
        /// How long was waited, in milliseconds.
        waited_ms: u128,
    },
    /// The service manager handed over something that can not be served on.
    #[error("the socket handed over by the service manager can not be used")]
    Activation(#[source] io::Error),
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl EndpointError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
