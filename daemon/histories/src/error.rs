//! What can go wrong, in words that say on what.

use std::io;

use mcode_ids::Seq;

/// A thread could not be written to a file.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Its log could not be read.
    #[error("the thread could not be read: {0}")]
    Events(Box<dyn std::error::Error + Send + Sync>),
    /// Its log does not reach where it should, or an event is missing in it.
    #[error("event {expected} of the thread is missing")]
    Gap {
        /// The event that should have come.
        expected: Seq,
    },
    /// An event can not be written as JSON.
    #[error("event {seq} of the thread could not be written as JSON")]
    Encode {
        /// The event.
        seq: Seq,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// An event or a body is larger than any reader takes.
    #[error("{what} has {bytes} bytes, more than the {max} that a file may hold in one piece")]
    TooLarge {
        /// What it is.
        what: String,
        /// Its size.
        bytes: u64,
        /// The most that is taken.
        max: u64,
    },
    /// The thread names more bodies than a file may hold.
    #[error("the thread names more than {max} pictures and outputs")]
    TooMany {
        /// The most that is taken.
        max: usize,
    },
    /// Whoever gets the file takes no more of it.
    #[error("the file could not be written: {0}")]
    Write(#[from] io::Error),
}

/// A file could not be read as a thread.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ImportError {
    /// The line where it was found, from 1.
    pub line: u64,
    /// What is wrong there.
    #[source]
    pub fault: Fault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file can not be read.
    #[error("the file could not be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error(
        "this is no thread that mcode has exported (a file of that kind begins with {{\"format\":\"mcode-thread\")"
    )]
    NotAThread,
    /// It was written by a later mcode.
    #[error("the file has version {version} of the format and this mcode reads up to {known}: use a newer mcode")]
    Newer {
        /// That of the file.
        version: u32,
        /// The newest that is read.
        known: u32,
    },
    /// The line is not what has to stand there.
    #[error("the line does not read as {wanted}: {why}")]
    Malformed {
        /// What has to stand there.
        wanted: &'static str,
        /// Why it is not that.
        why: String,
    },
    /// A line, the file or a body is too large, or there are too many of something.
    #[error("{what} is more than is taken ({max})")]
    Limit {
        /// What.
        what: &'static str,
        /// The most that is taken.
        max: u64,
    },
    /// The file ends before its end mark.
    #[error("the file ends here, before its end: it was cut off")]
    CutOff,
    /// Something follows the end mark.
    #[error("something follows the end of the thread")]
    AfterEnd,
    /// The events are not in order.
    #[error("event {expected} should stand here, and it is event {found}")]
    Gap {
        /// What should come.
        expected: u64,
        /// What comes.
        found: u64,
    },
    /// An event is where none may be, or is not possible.
    #[error("event {seq}: {why}")]
    Event {
        /// The event.
        seq: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A body is wrong.
    #[error("the body {hash}: {why}")]
    Blob {
        /// Its name.
        hash: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What the end mark says is not what the file holds.
    #[error("the file was changed or damaged: {what} is not what its last line says")]
    Checksum {
        /// What differs.
        what: &'static str,
    },
}

impl Fault {
    /// The fault, at a line.
    pub(crate) const fn at(self, line: u64) -> ImportError {
        ImportError { line, fault: self }
    }
}
