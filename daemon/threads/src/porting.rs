//! Threads that leave as files.

use std::collections::VecDeque;
use std::io;

use mcode_events::Event;
use mcode_histories::{Chunks, ExportError, Rendering, ThreadInfo};
use mcode_ids::{Seq, ThreadId};
use mcode_store::{Store, ThreadRow};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::error::ThreadError;
use crate::registry::Threads;

/// Pieces of a file that wait for whoever takes them; each has at most [`mcode_histories::CHUNK_BYTES`].
pub const PIECES_AHEAD: usize = 4;

/// Events that are read at once.
const BATCH: u32 = 500;

/// Payload that is read at once, in bytes; but at least one event.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// In which form a thread leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportForm {
    /// mcode's own, lossless.
    Thread,
    /// For people.
    Markdown {
        /// Whether what looks like a secret is taken out.
        redact: bool,
    },
    /// For scripts: messages as one JSON document.
    Messages {
        /// Whether what looks like a secret is taken out.
        redact: bool,
    },
}

impl Threads {
    /// Writes a thread, up to what is its last event now, to `pieces` in order. When whoever takes them is gone, it ends
    /// without an error. What was sent is a whole file only after `Ok`.
    pub async fn export(
        &self,
        thread: ThreadRow,
        form: ExportForm,
        pieces: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), ThreadError> {
        let project = self.deps().store.project(thread.project_id).await?;
        let info = ThreadInfo {
            thread_id: thread.thread_id,
            title: thread.title,
            model: thread.model,
            cwd: thread.cwd,
            project_id: thread.project_id,
            project_name: project.as_ref().map(|project| project.name.clone()).unwrap_or_default(),
            project_root: if thread.root.is_empty() {
                project.map(|project| project.root).unwrap_or_default()
            } else {
                thread.root
            },
            created_at_ms: thread.created_at_ms,
            last_seq: thread.last_seq,
        };
        let (store, now) = (self.deps().store.clone(), self.deps().clock.now());
        let events = Events {
            handle: Handle::current(),
            store: store.clone(),
            thread_id: info.thread_id,
            last: info.last_seq,
            read: Seq::ZERO,
            batch: VecDeque::new(),
        };
        let write = move || {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            let mut out = Chunks::new(|piece| pieces.blocking_send(piece).map_err(gone));
            match form {
                ExportForm::Thread => {
                    mcode_histories::write_thread(&info, events, &*store.blobs(), now, &mut out).map(drop)
                }
                ExportForm::Markdown { redact } => {
                    mcode_histories::write_markdown(&info, events, Rendering { redact }, now, &mut out)
                }
                ExportForm::Messages { redact } => {
                    mcode_histories::write_messages(&info, events, Rendering { redact }, now, &mut out)
                }
            }
        };
        let written = tokio::task::spawn_blocking(write).await;
        match written.map_err(|error| ThreadError::Store(Box::new(error)))? {
            Ok(()) => Ok(()),
            // Nobody is left to be told.
            Err(ExportError::Write(_)) => Ok(()),
            Err(error) => Err(ThreadError::NotExported { thread_id: thread.thread_id, cause: error.to_string() }),
        }
    }
}

/// The events of a thread, read in batches on a thread that may wait.
struct Events {
    handle: Handle,
    store: Store,
    thread_id: ThreadId,
    last: Seq,
    read: Seq,
    batch: VecDeque<Event>,
}

impl Iterator for Events {
    type Item = Result<Event, mcode_store::ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() && self.read < self.last {
            let read = self.store.read(self.thread_id, self.read, BATCH, BATCH_BYTES);
            match self.handle.block_on(read) {
                Ok(events) => self.batch = events.into(),
                Err(error) => return Some(Err(error)),
            }
        }
        let event = self.batch.pop_front()?;
        self.read = event.seq;
        Some(Ok(event))
    }
}
