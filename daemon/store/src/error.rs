//! What can go wrong, by what the caller can do about it.

use std::path::PathBuf;

use mcode_events::blob::BlobError;
use mcode_ids::{Seq, ThreadId};

/// The store could not be opened or does not work.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A folder or file is out of reach.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The database refuses.
    #[error("the database does not work: {0}")]
    Database(#[from] rusqlite::Error),
    /// Made by a newer version.
    #[error("{} was made by a newer mcode (schema {found}, this one knows {known}); start that one instead", path.display())]
    TooNew {
        /// The database.
        path: PathBuf,
        /// Its schema version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Somebody removed or replaced the file under the daemon: what would be written now would be lost.
    #[error("{} was removed or replaced while the daemon ran; put it back, or begin anew with: mcode daemon restart", path.display())]
    Removed {
        /// The database.
        path: PathBuf,
    },
    /// The blobs refuse.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Something that is only done to a whole store cannot be done.
    #[error("it cannot be done: {0}")]
    Undone(String),
    /// So many bodies are missing that their folder is most likely not the one; what was seen.
    #[error("{0}; nothing was changed")]
    BodiesAbsent(String),
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether it fails only because no space is left.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } | Self::Blob(BlobError::Io { source, .. }) => out_of_space(source),
            Self::Database(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::Blob(BlobError::Missing(_) | BlobError::Damaged(_))
            | Self::TooNew { .. }
            | Self::Removed { .. }
            | Self::Undone(_)
            | Self::BodiesAbsent(_)
            | Self::Closed => false,
        }
    }
}

/// A quota or a limit on file sizes is no different from a full disk: the remedy is to make room.
pub(crate) fn out_of_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Events could not be appended; nothing of them is in the log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Somebody else wrote first: the caller's state is old.
    #[error("thread {thread_id} is at {actual}, not at {expected}")]
    Conflict {
        /// The thread.
        thread_id: ThreadId,
        /// Where the caller believed it to be.
        expected: Seq,
        /// Where it is.
        actual: Seq,
    },
    /// The thread that a fork would come from is gone, or does not reach that far.
    #[error("thread {0} is not there, or not that long")]
    NoParent(ThreadId),
    /// No space is left.
    #[error("the disk is full")]
    DiskFull,
    /// An event could not be encoded.
    #[error("an event could not be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why not all of a thread's log can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log of {thread_id} is damaged at event {seq}: {what}")]
pub struct Damage {
    /// The thread.
    pub thread_id: ThreadId,
    /// The first event that can not be trusted.
    pub seq: Seq,
    /// What is wrong with it.
    pub what: String,
}

/// Something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A page token is not one of ours.
    #[error("'{0}' is not a page token of this list")]
    BadPageToken(String),
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error,
            other @ ReadError::BadPageToken(_) => Self::Undone(other.to_string()),
        }
    }
}

impl From<AppendError> for StoreError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Store(error) => error,
            other => Self::Undone(other.to_string()),
        }
    }
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(StoreError::Database(error))
    }
}

impl From<rusqlite::Error> for AppendError {
    fn from(error: rusqlite::Error) -> Self {
        let error = StoreError::Database(error);
        if error.is_disk_full() { Self::DiskFull } else { Self::Store(error) }
    }
}

impl From<BlobError> for AppendError {
    fn from(error: BlobError) -> Self {
        let error = StoreError::Blob(error);
        if error.is_disk_full() { Self::DiskFull } else { Self::Store(error) }
    }
}
