//! The output of a command that is tended within the daemon: a [`Spool`].

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::output::Kept;
use crate::spool::Spool;

/// Shared with whoever fills it.
#[derive(Debug, Clone)]
pub(super) struct View {
    spool: Arc<Mutex<Spool>>,
}

impl View {
    pub(super) fn new(spool: Spool) -> Self {
        Self { spool: Arc::new(Mutex::new(spool)) }
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        self.lock().push(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept for View {
    fn total(&self) -> io::Result<u64> {
        Ok(self.lock().total())
    }

    fn head(&self, max: usize) -> io::Result<Vec<u8>> {
        let spool = self.lock();
        Ok(spool.head()[..spool.head().len().min(max)].to_vec())
    }

    fn last(&self, offset: u64, max: usize) -> io::Result<(Vec<u8>, u64)> {
        let spool = self.lock();
        Ok((spool.since(offset, max).0, spool.total()))
    }

    fn whole(&self) -> io::Result<Vec<u8>> {
        self.lock().whole()
    }
}
