//! Why a thread refuses.

use mcode_ids::{RunId, Seq, ThreadId};
use mcode_models::ModelError;
use mcode_store::{AppendError, ArchiveError, Damage, ReadError, StoreError};

/// A command was not carried out; nothing of it is in the log.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// There is no such thing.
    #[error("there is no {what} {id}")]
    NotFound {
        /// thread, run, approval, question.
        what: &'static str,
        /// The id that was given.
        id: String,
    },
    /// The thread already has a run at work.
    #[error("thread {thread_id} is busy with run {run_id}")]
    RunActive {
        /// The thread.
        thread_id: ThreadId,
        /// Its run.
        run_id: RunId,
    },
    /// The thread has no run at work.
    #[error("{0} has no run at work")]
    NoActiveRun(String),
    /// The log is damaged: the rest of the thread can be read, and nothing be written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// Too many commands wait.
    #[error("thread {0} has too many commands waiting")]
    Busy(ThreadId),
    /// Too many clients watch.
    #[error("thread {0} has too many subscribers")]
    TooManySubscribers(ThreadId),
    /// The request id was used for another request.
    #[error("request id '{0}' was used for another request")]
    RequestIdReused(String),
    /// The same request is being carried out right now.
    #[error("request '{0}' is being carried out")]
    RequestInFlight(String),
    /// Somebody else settled it first.
    #[error("{0} was settled already")]
    AlreadyResolved(String),
    /// The thread has moved on since it was looked at.
    #[error("thread {thread_id} is at event {actual}, not at {expected} any more")]
    MovedOn {
        /// The thread.
        thread_id: ThreadId,
        /// Where it was seen.
        expected: Seq,
        /// Where it is.
        actual: Seq,
    },
    /// A field of the request does not fit.
    #[error("{field}: {message}")]
    InvalidArgument {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// The configuration of a trusted project is broken, so what it forbids is not known.
    #[error("the project's own configuration is broken: {0}")]
    ProjectConfig(String),
    /// Whoever asks may not: it was started by a tool call.
    #[error("{0}")]
    NotForTools(String),
    /// The model can not be asked.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A budget is used up.
    #[error("{message}")]
    Limit {
        /// Which, in words.
        message: String,
    },
    /// The daemon is ending.
    #[error("the daemon is shutting down")]
    ShuttingDown,
    /// No space is left.
    #[error("the disk is full: no space is left to write")]
    DiskFull,
    /// The store does not work; its reason is part of the text, for people.
    #[error("the log cannot be used: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// The thread's log could not be read at all.
    #[error("thread {thread_id} cannot be loaded: {cause}")]
    NotLoaded {
        /// The thread.
        thread_id: ThreadId,
        /// Why.
        cause: String,
    },
    /// The thread could not be written to a file.
    #[error("thread {thread_id} could not be exported: {cause}")]
    NotExported {
        /// The thread.
        thread_id: ThreadId,
        /// Why.
        cause: String,
    },
    /// What was to come in could not be read as a thread; nothing of it was kept.
    #[error("it was not imported: {cause}")]
    NotImported {
        /// Why.
        cause: String,
    },
    /// As many files come in as may at once.
    #[error("{} imports are under way already: try again when one of them has ended", crate::importing::TAKEN_AT_ONCE)]
    TooManyImports,
    /// Everything of the thread was ended, but it could not be forgotten.
    #[error("thread {thread_id} was closed and could not be deleted: {cause}")]
    NotDeleted {
        /// The thread.
        thread_id: ThreadId,
        /// Why.
        cause: String,
    },
    /// So many stored bodies are missing that nothing is mended.
    #[error("{0}; nothing was changed")]
    BodiesAbsent(String),
    /// The actor ended before it answered; the command may be given again.
    #[error("the thread was closed")]
    Closed,
}

impl ThreadError {
    pub(crate) fn not_pending(what: &'static str, id: &dyn std::fmt::Display) -> Self {
        let what = if what == "approval" { "pending approval" } else { "pending question" };
        Self::NotFound { what, id: id.to_string() }
    }
}

impl From<AppendError> for ThreadError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::DiskFull => Self::DiskFull,
            AppendError::NoParent(parent) => Self::NotFound { what: "thread", id: parent.to_string() },
            other => Self::Store(Box::new(other)),
        }
    }
}

impl From<ReadError> for ThreadError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::BadPageToken(token) => {
                Self::InvalidArgument { field: "page_token", message: format!("'{token}' is not a token of this list") }
            }
            ReadError::Store(error) => Self::Store(Box::new(error)),
        }
    }
}

impl From<ArchiveError> for ThreadError {
    fn from(error: ArchiveError) -> Self {
        StoreError::from(error).into()
    }
}

impl From<StoreError> for ThreadError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BodiesAbsent(what) => Self::BodiesAbsent(what),
            error if error.is_disk_full() => Self::DiskFull,
            error => Self::Store(Box::new(error)),
        }
    }
}
