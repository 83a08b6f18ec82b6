//! What a command has printed, as far as it is kept: its beginning, its end, and how much there was.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

#[cfg(unix)]
pub use super::file::OutputWriter;

/// Where output is kept.
pub(super) trait Kept: Debug + Send + Sync {
    /// Bytes printed so far.
    fn total(&self) -> io::Result<u64>;
    /// The first bytes, at most `max`.
    fn head(&self, max: usize) -> io::Result<Vec<u8>>;
    /// The last bytes after `offset`, at most `max`, and the total at that moment.
    fn last(&self, offset: u64, max: usize) -> io::Result<(Vec<u8>, u64)>;
    /// The beginning, as far as it is kept.
    fn whole(&self) -> io::Result<Vec<u8>>;
}

/// A view of the output of a command, which may go on printing. Reading blocks on a file of this machine that was just
/// written; pieces of some kilobytes come from memory.
#[derive(Debug, Clone)]
pub struct Output(Arc<dyn Kept>);

impl Output {
    pub(super) fn of(kept: impl Kept + 'static) -> Self {
        Self(Arc::new(kept))
    }

    /// The output that a host keeps in this file.
    #[cfg(unix)]
    #[must_use]
    pub fn at(path: std::path::PathBuf) -> Self {
        Self::of(super::file::View::at(path))
    }

    /// Bytes printed so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total().unwrap_or(0)
    }

    /// Why it can not be read, if it can not: the file is gone or damaged, so that what was printed is not known.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.0.total().err().map(|error| match error.kind() {
            io::ErrorKind::NotFound => "the file in which it was kept was deleted while it ran".to_owned(),
            _ => error.to_string(),
        })
    }

    /// The first bytes, at most `max`.
    #[must_use]
    pub fn head(&self, max: usize) -> Vec<u8> {
        self.0.head(max).unwrap_or_default()
    }

    /// What came after the first `offset` bytes, at most `max` of its last bytes, and how many bytes before those were
    /// left out.
    #[must_use]
    pub fn since(&self, offset: u64, max: usize) -> (Vec<u8>, u64) {
        let (bytes, total) = self.0.last(offset, max).unwrap_or_else(|_| (Vec::new(), self.total()));
        let left_out = total.saturating_sub(offset).saturating_sub(bytes.len() as u64);
        (bytes, left_out)
    }

    /// The whole, or its beginning as far as it is kept. Blocking, and large: call where both are fine.
    ///
    /// # Errors
    /// When it could not be kept (the disk is full) or can not be read.
    pub fn whole(&self) -> io::Result<Vec<u8>> {
        self.0.whole()
    }
}
