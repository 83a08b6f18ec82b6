//! Forgetting a thread: its rows at once, then its log and the bodies that no other has, a little at a time.
//!
//! A log may be as long as it likes, and appends wait while the writer is at work. So a deletion takes the thread out of
//! all lists in one short transaction and notes its log in `leaving`; the rest goes in steps, and goes on with the next
//! start where it was cut off. Events that a fork shares stay for as long as one does.

use std::sync::Arc;

use mcode_ids::ThreadId;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::Store;
use crate::blobs::BlobFiles;
use crate::error::StoreError;
use crate::named::Named;

/// Events that go in one transaction.
const EVENTS_AT_ONCE: u32 = 200;

/// Payload that goes in one transaction, in bytes; but at least one event.
const BYTES_AT_ONCE: i64 = 1024 * 1024;

/// Bodies that are looked after in one transaction.
const BODIES_AT_ONCE: u32 = 50;

/// A log of which events went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    log: ThreadId,
    /// The last event that forks need; 0 when they need none.
    kept: i64,
    /// Whether all behind it is gone.
    done: bool,
}

impl Store {
    /// Forgets a thread: it is in no list any more at once, and with the answer all that only it had is gone. What an error
    /// or the daemon's end leaves of it goes later ([`Self::forget_rest`]).
    pub async fn delete_thread(&self, thread_id: ThreadId) -> Result<(), StoreError> {
        self.writer.change(move |transaction, _now| begin(transaction, thread_id)).await?;
        self.forget_rest().await
    }

    /// Removes what deleted threads have left, step by step: appends wait for some milliseconds at most.
    pub async fn forget_rest(&self) -> Result<(), StoreError> {
        let _alone = self.forgetting.lock().await;
        let mut any = false;
        while let Some(cut) = self.writer.change(|transaction, _now| self::cut(transaction)).await? {
            any = true;
            if cut.done {
                self.finish(cut).await?;
            }
            tokio::task::yield_now().await;
        }
        let mut first = true;
        while any && self.writer.change(move |transaction, _now| Ok(crate::search::tidy(transaction, first)?)).await? {
            first = false;
        }
        Ok(())
    }

    async fn finish(&self, cut: Cut) -> Result<(), StoreError> {
        // Nobody appends to this log any more, so it may be read beside the writer.
        let still = match cut.kept {
            0 => Named::default(),
            _ => self.readers.run(move |reader| Ok(Named::of_log(reader.connection, reader.blobs, cut.log)?)).await?,
        };
        let (still, mut after) = (Arc::new(still), Some(String::new()));
        while let Some(from) = after {
            let (still, blobs) = (Arc::clone(&still), Arc::clone(&self.blobs));
            after = self.writer.tend(move |connection| unname(connection, &blobs, cut.log, &from, &still)).await?;
        }
        self.writer.change(move |transaction, _now| end(transaction, cut)).await
    }
}

/// Takes a thread out of everything that is listed. Its log is noted, and those that it alone still needed.
pub(crate) fn begin(transaction: &Transaction<'_>, thread_id: ThreadId) -> Result<(), StoreError> {
    for table in ["runs", "pending", "grants", "imports", "threads"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE thread_id = ?1"), [thread_id.to_string()])?;
    }
    let shared = crate::lineage::leave(transaction, thread_id)?;
    for log in std::iter::once(thread_id).chain(shared) {
        transaction.execute("INSERT OR IGNORE INTO leaving (thread_id) VALUES (?1)", [log.to_string()])?;
    }
    Ok(())
}

/// Removes some of the events of a log that leaves, the last ones first; `None` when none leaves.
pub(crate) fn cut(transaction: &Transaction<'_>) -> Result<Option<Cut>, StoreError> {
    let next: Option<ThreadId> = transaction
        .prepare_cached("SELECT thread_id FROM leaving LIMIT 1")?
        .query_row([], |row| crate::read::parsed(row, 0))
        .optional()?;
    let Some(log) = next else { return Ok(None) };
    let name = log.to_string();
    let kept = crate::lineage::needed(transaction, log)?.unwrap_or(0);
    let (from, done) = reach(transaction, &name, kept)?;
    crate::search::forget(transaction, &name, from)?;
    transaction.prepare_cached("DELETE FROM events WHERE thread_id = ?1 AND seq > ?2")?.execute(params![name, from])?;
    transaction
        .prepare_cached("DELETE FROM quarantine WHERE thread_id = ?1 AND seq > ?2")?
        .execute(params![name, from])?;
    Ok(Some(Cut { log, kept, done }))
}

/// Behind which event a log is cut now, and whether nothing is left to be cut then.
fn reach(transaction: &Transaction<'_>, log: &str, kept: i64) -> rusqlite::Result<(i64, bool)> {
    let mut statement = transaction.prepare_cached(
        "SELECT seq, coalesce(octet_length(payload), 0) FROM events WHERE thread_id = ?1 AND seq > ?2
         ORDER BY seq DESC LIMIT ?3",
    )?;
    let mut rows = statement.query(params![log, kept, EVENTS_AT_ONCE])?;
    let (mut from, mut count, mut bytes) = (kept, 0, 0i64);
    while let Some(row) = rows.next()? {
        (from, count, bytes) = (row.get::<_, i64>(0)? - 1, count + 1, bytes.saturating_add(row.get(1)?));
        if bytes > BYTES_AT_ONCE {
            return Ok((from, false));
        }
    }
    // Numbers that are missing, or what stands in none's place, go with the last part.
    Ok(if count < EVENTS_AT_ONCE { (kept, true) } else { (from.max(kept), false) })
}

/// Forgets some of what a log names, but for what it still does; bodies that nobody names any more go. Gives where to go on.
///
/// In the writer, and the bodies after the commit: nobody begins to name one in between.
pub(crate) fn unname(
    connection: &Connection,
    blobs: &BlobFiles,
    log: ThreadId,
    after: &str,
    still: &Named,
) -> Result<Option<String>, StoreError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let name = log.to_string();
    let some = crate::named::after(&transaction, &name, after, BODIES_AT_ONCE)?;
    let mut nobodys = Vec::new();
    for (hash, times) in &some {
        crate::named::set(&transaction, &name, hash, still.times(hash))?;
        if crate::named::is_nobodys(&transaction, hash)? {
            nobodys.push((hash, *times));
        }
    }
    transaction.commit()?;
    nobodys.into_iter().try_for_each(|(hash, times)| blobs.remove(hash, times))?;
    Ok(some.into_iter().next_back().map(|(hash, _)| hash))
}

/// Nothing is left of a log that leaves; unless one more fork went meanwhile, then more of it goes.
pub(crate) fn end(transaction: &Transaction<'_>, cut: Cut) -> Result<(), StoreError> {
    let (name, kept) = (cut.log.to_string(), crate::lineage::needed(transaction, cut.log)?.unwrap_or(0));
    if kept != cut.kept {
        return Ok(());
    }
    if kept == 0 {
        transaction.execute("DELETE FROM quarantine WHERE thread_id = ?1", [&name])?;
        crate::search::forget_all(transaction, &name)?;
    }
    transaction.execute("DELETE FROM leaving WHERE thread_id = ?1", [&name])?;
    Ok(())
}

/// All of it at once.
#[cfg(test)]
pub(crate) fn thread(connection: &mut Connection, blobs: &BlobFiles, thread_id: ThreadId) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    begin(&transaction, thread_id)?;
    let mut cuts = Vec::new();
    while let Some(cut) = cut(&transaction)? {
        if cut.done {
            end(&transaction, cut)?;
            cuts.push(cut);
        }
    }
    transaction.commit()?;
    for cut in cuts {
        let still = Named::of_log(connection, blobs, cut.log)?;
        let mut after = Some(String::new());
        while let Some(from) = after {
            after = unname(connection, blobs, cut.log, &from, &still)?;
        }
    }
    Ok(())
}
