//! Forgetting a thread: its rows, and the bodies that no other thread has.

use mcode_ids::ThreadId;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::blobs::BlobFiles;
use crate::error::StoreError;

/// Removes the rows of a thread and the blobs that only it names. In the writer, so that no row is added meanwhile; what it
/// reads is of the thread alone. Events that a fork shares stay for as long as one does.
pub(crate) fn thread(connection: &mut Connection, blobs: &BlobFiles, thread_id: ThreadId) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in ["runs", "pending", "grants", "imports", "threads"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE thread_id = ?1"), [thread_id.to_string()])?;
    }
    let mut nobodys = Vec::new();
    let shared = crate::lineage::leave(&transaction, thread_id)?;
    for log in std::iter::once(thread_id).chain(shared) {
        nobodys.extend(self::log(&transaction, blobs, log)?);
    }
    transaction.commit()?;
    nobodys.into_iter().try_for_each(|(hash, named)| blobs.remove(&hash, named))
}

/// Removes of a log what no fork needs; gives the bodies that nobody names any more.
fn log(transaction: &Transaction<'_>, blobs: &BlobFiles, log: ThreadId) -> Result<Vec<(String, u32)>, StoreError> {
    let kept = crate::lineage::needed(transaction, log)?.unwrap_or(0);
    let name = log.to_string();
    crate::search::forget(transaction, &name, kept)?;
    transaction.execute("DELETE FROM events WHERE thread_id = ?1 AND seq > ?2", params![name, kept])?;
    transaction.execute("DELETE FROM quarantine WHERE thread_id = ?1 AND seq > ?2", params![name, kept])?;
    transaction.execute("DELETE FROM quarantine WHERE thread_id = ?1 AND ?2 = 0", params![name, kept])?;
    let named = crate::named::forget(transaction, &name)?;
    if kept > 0 {
        crate::named::look_again(transaction, blobs, &name)?;
    }
    let mut nobodys = Vec::new();
    for (hash, times) in named {
        if crate::named::is_nobodys(transaction, &hash)? {
            nobodys.push((hash, times));
        }
    }
    Ok(nobodys)
}
