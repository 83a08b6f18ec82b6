//! Forgetting a thread: its rows, and the bodies that no other thread has.

use std::collections::BTreeMap;

use mcode_events::blob::Blobs;
use mcode_ids::ThreadId;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::blobs::BlobFiles;
use crate::error::StoreError;

/// Digits of a hash.
const HASH_DIGITS: usize = 64;

/// Removes the rows of a thread and the blobs that only it names. In the writer, so that no row is added meanwhile.
pub(crate) fn thread(connection: &mut Connection, blobs: &BlobFiles, thread_id: ThreadId) -> Result<(), StoreError> {
    let id = thread_id.to_string();
    let mut held = BTreeMap::new();
    each_text(connection, blobs, "thread_id = ?1", &id, |text| {
        hashes(text).for_each(|hash| *held.entry(hash.to_owned()).or_insert(0u32) += 1);
        true
    })?;
    // What is deleted is overwritten, and does not stay readable in the file.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in ["events", "runs", "pending", "grants", "threads"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE thread_id = ?1"), [&id])?;
    }
    transaction.commit()?;
    if held.is_empty() {
        return Ok(());
    }
    each_text(connection, blobs, "thread_id <> ?1", &id, |text| {
        for hash in hashes(text) {
            held.remove(hash);
        }
        !held.is_empty()
    })?;
    held.into_iter().try_for_each(|(hash, named)| blobs.remove(&hash, named))
}

/// Gives the payloads of rows, spilled ones in full, until `look` has seen enough.
fn each_text(
    connection: &Connection,
    blobs: &BlobFiles,
    which: &str,
    id: &str,
    mut look: impl FnMut(&str) -> bool,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare(&format!("SELECT spilled, payload FROM events WHERE {which}"))?;
    let mut rows = statement.query(params![id])?;
    while let Some(row) = rows.next()? {
        let (spilled, payload): (bool, String) = (row.get(0)?, row.get(1)?);
        if !look(&payload) {
            return Ok(());
        }
        // One that is lost names nothing any more.
        let content = if spilled { blobs.get(&payload).ok() } else { None };
        if let Some(content) = content
            && !look(&String::from_utf8_lossy(&content))
        {
            return Ok(());
        }
    }
    Ok(())
}

/// What looks like a hash in a text: it may be a reference, or the words by which a model is told of one.
fn hashes(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_hexdigit()).filter(|word| word.len() == HASH_DIGITS)
}
