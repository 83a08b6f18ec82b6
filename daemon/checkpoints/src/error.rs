//! What can go wrong, by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{ObjectId, SnapshotId};
use crate::path::TreePath;

/// Something about the checkpoints of a project does not work.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refuses.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "cannot read".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The disk, or the user's share of it, is full. What was being kept is gone again; earlier snapshots are there.
    #[error("no space is left on the disk of {}", path.display())]
    NoSpace {
        /// Where it was to be written.
        path: PathBuf,
    },
    /// Another process works on this depot.
    #[error("{} is held by another process for {waited_ms} ms", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The project is too large for checkpoints.
    #[error("the project has more than {limit} files that are not ignored")]
    TooManyFiles {
        /// [`crate::Limits::entries`].
        limit: u64,
    },
    /// The project takes too long to look at.
    #[error("looking at the project takes more than {} s", limit_ms / 1000)]
    TooSlow {
        /// [`crate::Limits::snapshot_ms`].
        limit_ms: u64,
    },
    /// What is new alone is larger than all that may be kept.
    #[error("the project's files take more than the {cap_bytes} bytes that checkpoints may take")]
    TooLarge {
        /// [`crate::Limits::depot_bytes`].
        cap_bytes: u64,
    },
    /// As much is kept as may be; see [`crate::Depot::make_room`].
    #[error("the checkpoints of this project take {used_bytes} bytes, {cap_bytes} are allowed")]
    Full {
        /// What they take.
        used_bytes: u64,
        /// [`crate::Limits::depot_bytes`].
        cap_bytes: u64,
    },
    /// [`crate::Depot::stop`] was called.
    #[error("it was stopped")]
    Stopped,
    /// No such snapshot.
    #[error("there is no snapshot {snapshot}")]
    Unknown {
        /// Its name.
        snapshot: SnapshotId,
    },
    /// An object is not what its name says.
    #[error("object {object} in {} is damaged", path.display())]
    Damaged {
        /// Its name.
        object: ObjectId,
        /// The file that holds it.
        path: PathBuf,
    },
    /// An object that something refers to is not there.
    #[error("object {object} is missing")]
    Missing {
        /// Its name.
        object: ObjectId,
    },
    /// A depot that a newer mcode has made.
    #[error("{} was made by a newer mcode", path.display())]
    TooNew {
        /// Its folder.
        path: PathBuf,
    },
    /// What was chosen is none of the changes.
    #[error("nothing was changed at {path}")]
    NoChange {
        /// What was chosen.
        path: TreePath,
    },
    /// There is no hunk of this number.
    #[error("{path} has {there} hunks, there is no hunk {number}")]
    NoHunk {
        /// The file.
        path: TreePath,
        /// What was asked for.
        number: usize,
        /// How many there are; they are counted from 1.
        there: usize,
    },
    /// Hunks of something that has none.
    #[error("{path} has no hunks: {reason}")]
    NotText {
        /// What was chosen.
        path: TreePath,
        /// Such as "it is binary".
        reason: &'static str,
    },
    /// An earlier restore was cut off and has to be ended first.
    #[error("an earlier restore was cut off; finish it or give it up first")]
    Interrupted,
    /// There is no restore to finish.
    #[error("no restore was cut off")]
    NothingInterrupted,
}

impl CheckpointError {
    /// Whether this project can have no checkpoints as it is, so that trying again at the next turn is of no use.
    #[must_use]
    pub fn turns_off(&self) -> bool {
        matches!(self, Self::TooManyFiles { .. } | Self::TooSlow { .. } | Self::TooLarge { .. } | Self::TooNew { .. })
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooManyFiles { .. } | Self::TooSlow { .. } | Self::TooLarge { .. } => {
                "there are no checkpoints for this project; name what need not be kept in .gitignore or .ignore"
            }
            Self::NoSpace { .. } => "free some space; nothing that was kept before is lost",
            Self::Full { .. } => "drop old checkpoints, or allow more space for them",
            Self::Busy { .. } | Self::Stopped => "try again",
            Self::Damaged { .. } | Self::Missing { .. } => {
                "the disk may be failing; other checkpoints are not affected"
            }
            Self::TooNew { .. } => "start that mcode instead",
            Self::Unknown { .. } => "it may have been dropped to make room",
            Self::NoChange { .. } | Self::NoHunk { .. } | Self::NotText { .. } => "look at the changes first",
            Self::Interrupted => "files may be half restored",
            Self::NothingInterrupted => "there is nothing to do",
            Self::Io { .. } => "see the system's reason",
        }
    }

    /// Makes an error of the system's; a full disk is told apart.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path: path.to_path_buf() },
            _ => Self::Io { doing, path: path.to_path_buf(), source },
        }
    }
}
