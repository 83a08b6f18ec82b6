//! Threads that come from elsewhere, written a part at a time and seen all at once.
//!
//! Their events go into the log under a new id, in transactions that others do not wait long for; `staged` says so, and no
//! list, search or look knows a log without a thread. The last transaction makes the thread. What a daemon that ended left
//! staged is swept away by the next one, beside its work. Nothing of it is booked as usage: it was paid elsewhere.

use std::sync::Arc;

use mcode_events::blob::{BlobError, BlobRef, Blobs};
use mcode_events::event::Event;
use mcode_events::message::{Message, Part, Role};
use mcode_events::state::{Entry, ThreadState};
use mcode_ids::{Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use tokio::runtime::Handle;

use crate::Store;
use crate::error::{AppendError, ReadError, StoreError};
use crate::lineage::number;
use crate::named::Named;
use crate::projection::{RunRow, ThreadRow};
use crate::row::EventRow;

/// Events that are written in one transaction at most.
pub const STAGED_EVENTS_MAX: usize = 500;

/// Payload that is written in one transaction, in bytes, about.
pub const STAGED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Events that are swept away in one transaction.
const SWEPT_AT_ONCE: i64 = 2000;

/// As what a thread is known where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportKey {
    /// The thing that it is, whatever its state.
    pub key: String,
    /// The state in which it is.
    pub state: String,
}

/// A thread that came from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRow {
    /// The thread.
    pub thread_id: ThreadId,
    /// As what it was known, in the state in which it came.
    pub key: ImportKey,
    /// When it came, milliseconds since 1970 UTC.
    pub at_ms: i64,
}

/// A thread that is being written and that nobody sees yet. Blocking, but for its end: use it on a thread that may wait.
#[derive(Debug)]
pub struct Staging {
    store: Store,
    handle: Handle,
    state: ThreadState,
    rows: Vec<EventRow>,
    named: Named,
    bytes: usize,
    /// The last event that is in the log.
    reached: Seq,
    /// Whether anything was said that is looked for.
    said: bool,
}

impl Store {
    /// The threads that came from this thing, the last first.
    pub async fn imports_of(&self, key: String) -> Result<Vec<ImportRow>, ReadError> {
        self.readers.run(move |reader| Ok(known(reader.connection, &key)?)).await
    }

    /// The logs that were staged and never finished. Only at a start, before anything is imported, all of them are left over.
    pub async fn left_staged(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.readers
            .run(|reader| {
                let mut statement = reader.connection.prepare_cached("SELECT thread_id FROM staged")?;
                let ids = statement.query_map([], |row| crate::read::parsed(row, 0))?;
                Ok(ids.collect::<rusqlite::Result<_>>()?)
            })
            .await
    }

    /// Takes a log away that an earlier daemon left staged; appends wait for a part of it at most.
    pub async fn sweep_staged(&self, thread_id: ThreadId) -> Result<(), StoreError> {
        self.take_away(thread_id, 0).await
    }

    /// `kept` says how often this process has kept each body of it: one that was kept more often is about to be named.
    async fn take_away(&self, thread_id: ThreadId, kept: u32) -> Result<(), StoreError> {
        loop {
            let part = move |transaction: &Transaction<'_>, _now| sweep_part(transaction, &thread_id.to_string());
            if let Some(nobodys) = self.writer.change(part).await? {
                return nobodys.iter().try_for_each(|hash| self.blobs.remove(hash, kept));
            }
        }
    }

    /// Begins a thread under a new id; `handle` is where to wait.
    pub fn stage(&self, thread_id: ThreadId, handle: Handle) -> Result<Staging, StoreError> {
        handle.block_on(self.writer.change(move |transaction, _now| {
            transaction.execute("INSERT INTO staged (thread_id, reached) VALUES (?1, 0)", [thread_id.to_string()])?;
            Ok(())
        }))?;
        Ok(Staging {
            store: self.clone(),
            handle,
            state: ThreadState::new(thread_id),
            rows: Vec::new(),
            named: Named::default(),
            bytes: 0,
            reached: Seq::ZERO,
            said: false,
        })
    }
}

impl Staging {
    /// The fold of what was added, without what was said and which files were seen.
    #[must_use]
    pub const fn state(&self) -> &ThreadState {
        &self.state
    }

    /// Keeps bodies for this thread: they go with it when it is given up.
    #[must_use]
    pub fn bodies(&self) -> StagedBodies {
        let (store, handle) = (self.store.clone(), self.handle.clone());
        StagedBodies { store, handle, thread_id: self.state.thread_id }
    }

    /// Adds the next event, with its own time. What it names has to be kept already.
    pub fn add(&mut self, event: &Event) -> Result<(), AppendError> {
        let (thread_id, expected) = (self.state.thread_id, self.state.last_seq.next());
        if event.thread_id != thread_id || event.seq != expected {
            return Err(AppendError::Conflict { thread_id, expected: event.seq, actual: self.state.last_seq });
        }
        let row = EventRow::encode(event, &self.store.blobs, &mut self.named)?;
        let said = crate::search::is_said(&row.kind);
        self.said |= said;
        self.bytes += row.payload.len();
        self.rows.push(row);
        self.state.apply(event);
        self.state.files.clear();
        self.state.checkpoints.clear();
        if said {
            lighten(&mut self.state);
        }
        if self.rows.len() >= STAGED_EVENTS_MAX || self.bytes >= STAGED_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), AppendError> {
        let (rows, named) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.named));
        let (thread, from, to) = (self.state.thread_id.to_string(), self.reached, self.state.last_seq);
        self.bytes = 0;
        let written = self.store.writer.change(move |transaction, _now| {
            reach(transaction, &thread, from, to)?;
            rows.iter().try_for_each(|row| row.insert(transaction, &thread))?;
            Ok(named.keep(transaction, &thread)?)
        });
        self.handle.block_on(written).map_err(of_store)?;
        self.reached = to;
        Ok(())
    }

    /// Makes the thread, for everybody to see. Where one came from the same thing in the same state already, and no other
    /// is wanted, it gives that and changes nothing; whoever began this then gives it up.
    pub fn finish(&mut self, key: &ImportKey, again: bool) -> Result<Option<ImportRow>, AppendError> {
        self.flush()?;
        let row = ThreadRow::of(&self.state).ok_or_else(|| StoreError::Undone("the thread was never made".into()))?;
        if row.unfinished || row.ephemeral {
            return Err(StoreError::Undone("something of the thread has not ended".into()).into());
        }
        let (thread_id, runs) = (self.state.thread_id, self.state.runs.clone());
        let (key, said) = (key.clone(), self.said);
        let finished = self.store.writer.change(move |transaction, now| {
            let known = known(transaction, &key.key)?.into_iter().find(|known| known.key == key);
            if let Some(known) = known.filter(|_| !again) {
                return Ok(Some(known));
            }
            let thread = thread_id.to_string();
            crate::write::write_thread(transaction, &thread, &row)?;
            for record in runs {
                let run = RunRow { thread_id, record };
                is_new(transaction, &run)?;
                crate::write::write_run(transaction, &run)?;
            }
            if said {
                crate::search::note(transaction, &thread)?;
            }
            transaction.execute(
                "INSERT INTO imports (thread_id, key, state, at, upto) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![thread, key.key, key.state, now, number(row.last_seq)],
            )?;
            transaction.execute("DELETE FROM staged WHERE thread_id = ?1", [thread])?;
            Ok(None)
        });
        self.handle.block_on(finished).map_err(of_store)
    }

    /// Takes everything of it away again.
    pub fn give_up(self) -> Result<(), StoreError> {
        self.handle.block_on(self.store.take_away(self.state.thread_id, 1))
    }
}

/// The bodies of a thread that is being written.
#[derive(Debug, Clone)]
pub struct StagedBodies {
    store: Store,
    handle: Handle,
    thread_id: ThreadId,
}

impl Blobs for StagedBodies {
    fn put(&self, content: &[u8], media_type: &str) -> Result<BlobRef, BlobError> {
        let kept = self.store.blobs.put(content, media_type)?;
        let (hash, thread) = (kept.hash.clone(), self.thread_id.to_string());
        // Named from here on, so that it is found again whatever happens before an event names it.
        let noted = self.store.writer.change(move |transaction, _now| {
            transaction
                .prepare_cached("INSERT OR IGNORE INTO named (hash, thread_id, times) VALUES (?1, ?2, 0)")?
                .execute(params![hash, thread])?;
            Ok(())
        });
        let io = |error: StoreError| BlobError::Io { hash: kept.hash.clone(), source: std::io::Error::other(error) };
        self.handle.block_on(noted).map_err(io)?;
        Ok(kept)
    }

    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
        self.store.blobs.get(hash)
    }

    fn holds(&self, hash: &str) -> bool {
        self.store.blobs.holds(hash)
    }
}

/// Takes away the last events of what is staged; when none is left, all the rest, and gives the bodies that nobody names
/// any more.
fn sweep_part(transaction: &Transaction<'_>, thread: &str) -> Result<Option<Vec<String>>, StoreError> {
    let reached: Option<i64> = transaction
        .query_row("SELECT reached FROM staged WHERE thread_id = ?1", [thread], |row| row.get(0))
        .optional()?;
    let Some(reached) = reached else { return Ok(Some(Vec::new())) };
    let left = (reached - SWEPT_AT_ONCE).max(0);
    transaction.execute("DELETE FROM events WHERE thread_id = ?1 AND seq > ?2", params![thread, left])?;
    if left > 0 {
        transaction.execute("UPDATE staged SET reached = ?2 WHERE thread_id = ?1", params![thread, left])?;
        return Ok(None);
    }
    transaction.execute("DELETE FROM staged WHERE thread_id = ?1", [thread])?;
    let mut nobodys = Vec::new();
    for (hash, _) in crate::named::forget(transaction, thread)? {
        if crate::named::is_nobodys(transaction, &hash)? {
            nobodys.push(hash);
        }
    }
    Ok(Some(nobodys))
}

/// Notes how far the staged log reaches; it has to have reached where these events begin.
fn reach(transaction: &Transaction<'_>, thread: &str, from: Seq, to: Seq) -> Result<(), StoreError> {
    let moved = transaction.execute(
        "UPDATE staged SET reached = ?3 WHERE thread_id = ?1 AND reached = ?2",
        params![thread, number(from), number(to)],
    )?;
    if moved == 1 { Ok(()) } else { Err(StoreError::Undone("the thread is not being written any more".into())) }
}

fn is_new(transaction: &Transaction<'_>, run: &RunRow) -> Result<(), StoreError> {
    let run_id = run.record.run_id;
    let known: bool = transaction
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE run_id = ?1)")?
        .query_row([run_id.to_string()], |row| row.get(0))?;
    if known { Err(StoreError::Undone(format!("there is a run {run_id} already"))) } else { Ok(()) }
}

fn known(connection: &Connection, key: &str) -> rusqlite::Result<Vec<ImportRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT thread_id, key, state, at FROM imports WHERE key = ?1 ORDER BY at DESC, thread_id DESC",
    )?;
    let rows = statement.query_map([key], |row| {
        let key = ImportKey { key: row.get(1)?, state: row.get(2)? };
        Ok(ImportRow { thread_id: crate::read::parsed(row, 0)?, key, at_ms: row.get(3)? })
    })?;
    rows.collect()
}

/// Forgets of what was said last all that lists do not show: of a message of the user its beginning stays, for when the
/// thread goes back to it.
fn lighten(state: &mut ThreadState) {
    let Some(last) = state.history.pop() else { return };
    match last.as_ref() {
        Entry::Message { message, .. } if message.role == Role::User => {
            let parts = vec![Part::text(message.preview())];
            let message = Message { item_id: message.item_id, role: Role::User, parts, origin: None };
            state.history.push(Arc::new(Entry::Message { message, turn_id: None }));
        }
        Entry::Message { .. } | Entry::ToolResult { .. } => drop(state.said_at.pop()),
    }
}

fn of_store(error: StoreError) -> AppendError {
    if error.is_disk_full() { AppendError::DiskFull } else { AppendError::Store(error) }
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};
    use mcode_events::EventBody;
    use mcode_ids::ItemId;

    use super::*;

    #[test]
    fn a_light_fold_shows_what_a_whole_one_does() {
        let thread_id = ThreadId::from_uuid(SeededIds::new(3).next());
        let item = |n: u64| ItemId::from_uuid(SeededIds::new(n).next());
        let said = |n: u64, role: Role, text: &str| EventBody::MessageFinished {
            message: Message { item_id: item(n), role, parts: vec![Part::text(text)], origin: None },
        };
        let long = format!("  a\u{a0}long {} one ", "word".repeat(80));
        let bodies = [
            said(1, Role::User, &long),
            said(2, Role::Assistant, "answer"),
            said(3, Role::User, "second"),
            EventBody::Rewound { to_seq: Seq::new(2), tasks: Vec::new() },
            said(4, Role::User, &format!("{} {}", "x".repeat(118), "yz")),
            said(5, Role::User, "gone"),
            EventBody::Rewound { to_seq: Seq::new(5), tasks: Vec::new() },
            EventBody::Rewound { to_seq: Seq::new(0), tasks: Vec::new() },
        ];
        let (mut light, mut whole) = (ThreadState::new(thread_id), ThreadState::new(thread_id));
        for (body, seq) in bodies.into_iter().zip(1..) {
            let event = Event { thread_id, seq: Seq::new(seq), at_ms: 1, run_id: None, turn_id: None, body };
            light.apply(&event);
            lighten(&mut light);
            whole.apply(&event);
            assert_eq!(light.preview, whole.preview, "after event {seq}");
        }
        assert!(light.history.len() <= whole.history.len());
    }
}
