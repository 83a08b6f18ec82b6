//! Which bodies the events of a thread name, so that a thread that goes takes those that no other has.

use std::collections::BTreeMap;

use mcode_events::blob::Blobs;
use mcode_ids::ThreadId;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::blobs::BlobFiles;
use crate::error::StoreError;

/// Digits of a hash.
const HASH_DIGITS: usize = 64;

/// Events of an older database that are looked through in one transaction.
const FILLED_AT_ONCE: u32 = 500;

/// Bodies by their hash, and how often each is named.
#[derive(Debug, Default)]
pub(crate) struct Named(BTreeMap<String, u32>);

impl Named {
    /// Notes what a text names: what looks like a hash may be a reference, or the words by which a model is told of one.
    /// Of all that looks like one only what is kept here counts; whatever an event names is kept before the event is.
    pub(crate) fn look(&mut self, text: &str, blobs: &BlobFiles) {
        let words = text.split(|char: char| !char.is_ascii_hexdigit()).filter(|word| word.len() == HASH_DIGITS);
        for hash in words {
            if let Some(times) = self.0.get_mut(hash) {
                *times = times.saturating_add(1);
            } else if blobs.holds(hash) {
                self.0.insert(hash.to_owned(), 1);
            }
        }
    }

    /// Notes what the payload of a row names, wherever it is.
    fn look_into(&mut self, payload: &str, spilled: bool, blobs: &BlobFiles) {
        self.look(payload, blobs);
        // One that is lost names nothing any more.
        if let Some(content) = spilled.then(|| blobs.get(payload).ok()).flatten() {
            self.look(&String::from_utf8_lossy(&content), blobs);
        }
    }

    /// What the events of a log name as they are.
    pub(crate) fn of_log(connection: &Connection, blobs: &BlobFiles, log: ThreadId) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached("SELECT spilled, payload FROM events WHERE thread_id = ?1")?;
        let mut rows = statement.query([log.to_string()])?;
        let mut named = Self::default();
        while let Some(row) = rows.next()? {
            if let Ok(payload) = row.get::<_, String>(1) {
                named.look_into(&payload, row.get(0)?, blobs);
            }
        }
        Ok(named)
    }

    /// How often a body is named.
    pub(crate) fn times(&self, hash: &str) -> u32 {
        self.0.get(hash).copied().unwrap_or(0)
    }

    /// Adds all of it to what the thread names.
    pub(crate) fn keep(&self, connection: &Connection, thread: &str) -> rusqlite::Result<()> {
        let mut add = connection.prepare_cached(
            "INSERT INTO named (hash, thread_id, times) VALUES (?1, ?2, ?3)
             ON CONFLICT (hash, thread_id) DO UPDATE SET times = times + excluded.times",
        )?;
        for (hash, times) in &self.0 {
            add.execute(params![hash, thread, times])?;
        }
        Ok(())
    }
}

/// Forgets what a log names; gives it, and how often it did.
pub(crate) fn forget(transaction: &Transaction<'_>, log: &str) -> rusqlite::Result<Vec<(String, u32)>> {
    transaction
        .prepare_cached("DELETE FROM named WHERE thread_id = ?1 RETURNING hash, times")?
        .query_map([log], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// What a log names after one body, in the order of hashes, and how often.
pub(crate) fn after(connection: &Connection, log: &str, after: &str, max: u32) -> rusqlite::Result<Vec<(String, u32)>> {
    connection
        .prepare_cached(
            "SELECT hash, times FROM named WHERE thread_id = ?1 AND hash > ?2 ORDER BY thread_id, hash LIMIT ?3",
        )?
        .query_map(params![log, after, max], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Notes how often a log names a body; 0 forgets it.
pub(crate) fn set(transaction: &Transaction<'_>, log: &str, hash: &str, times: u32) -> rusqlite::Result<()> {
    if times == 0 {
        transaction
            .prepare_cached("DELETE FROM named WHERE hash = ?1 AND thread_id = ?2")?
            .execute(params![hash, log])?;
    } else {
        transaction
            .prepare_cached("UPDATE named SET times = ?3 WHERE hash = ?1 AND thread_id = ?2")?
            .execute(params![hash, log, times])?;
    }
    Ok(())
}

/// Whether no log names a body.
pub(crate) fn is_nobodys(transaction: &Transaction<'_>, hash: &str) -> rusqlite::Result<bool> {
    transaction
        .prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM named WHERE hash = ?1)")?
        .query_row([hash], |row| row.get(0))
}

/// Fills the table from the events of an older database. Each transaction does a part and notes how far it came, so that
/// it goes on from there if the daemon ends meanwhile.
pub(crate) fn fill(connection: &mut Connection, blobs: &BlobFiles) -> Result<(), StoreError> {
    while fill_part(connection, blobs)? {}
    Ok(())
}

/// Whether anything may be left.
pub(crate) fn fill_part(connection: &mut Connection, blobs: &BlobFiles) -> Result<bool, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let reached: Option<(String, i64)> = transaction
        .query_row("SELECT thread_id, seq FROM naming", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some(mut reached) = reached else { return Ok(false) };
    let mut seen = 0u32;
    {
        let mut statement = transaction.prepare(
            "SELECT thread_id, seq, spilled, payload FROM events WHERE (thread_id, seq) > (?1, ?2)
             ORDER BY thread_id, seq LIMIT ?3",
        )?;
        let mut rows = statement.query(params![reached.0, reached.1, FILLED_AT_ONCE])?;
        while let Some(row) = rows.next()? {
            let (spilled, payload): (bool, Option<String>) = (row.get(2)?, row.get(3).ok());
            reached = (row.get(0)?, row.get(1)?);
            seen += 1;
            // A damaged row is told when its thread is read.
            let Some(payload) = payload else { continue };
            let mut named = Named::default();
            named.look_into(&payload, spilled, blobs);
            named.keep(&transaction, &reached.0)?;
        }
    }
    if seen < FILLED_AT_ONCE {
        transaction.execute("DELETE FROM naming", [])?;
    } else {
        transaction.execute("UPDATE naming SET thread_id = ?1, seq = ?2", params![reached.0, reached.1])?;
    }
    transaction.commit()?;
    Ok(seen == FILLED_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use mcode_env::{IdGen, SeededIds};

    use super::*;
    use crate::schema;

    /// A database with one thread that names a body of its own, beside so many events of others.
    fn beside(others: u32, dir: &std::path::Path) -> (Connection, BlobFiles, ThreadId, String) {
        let blobs = BlobFiles::open(dir.join("blobs")).unwrap();
        let connection = schema::open(&dir.join("mcode.db"), &blobs).unwrap();
        let thread_id = ThreadId::from_uuid(SeededIds::new(1).next());
        let hash = blobs.put(b"only here", "text/plain").unwrap().hash;
        connection
            .execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                 INSERT INTO events SELECT 'thr_other' || (i % 100), i, 0, 'notice', 1, NULL, NULL, 0, ?2, 0 FROM n",
                params![others, format!("blob:{} {}", "a".repeat(64), "x".repeat(100))],
            )
            .unwrap();
        let mut named = Named::default();
        named.look(&hash, &blobs);
        named.keep(&connection, &thread_id.to_string()).unwrap();
        named.keep(&connection, "thr_other0").unwrap();
        connection.execute("DELETE FROM named WHERE thread_id = 'thr_other0'", []).unwrap();
        (connection, blobs, thread_id, hash)
    }

    /// Steps that the database takes to forget the thread.
    fn work(others: u32) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, blobs, thread_id, hash) = beside(others, dir.path());
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count)).unwrap();
        crate::forget::thread(&mut connection, &blobs, thread_id).unwrap();
        assert!(blobs.get(&hash).is_err(), "its body stays");
        steps.load(Ordering::Relaxed)
    }

    #[test]
    fn forgetting_a_thread_reads_nothing_of_others() {
        let (alone, beside) = (work(1), work(100_000));
        assert!(alone > 50, "{alone} steps: they are not counted");
        assert!(beside < alone + 100, "{alone} steps alone, {beside} beside 100,000 events of others");
    }
}
