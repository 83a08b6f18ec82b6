//! Forgetting a thread: its rows, and the bodies that no other thread has.

use mcode_ids::ThreadId;
use rusqlite::{Connection, TransactionBehavior};

use crate::blobs::BlobFiles;
use crate::error::StoreError;

/// Removes the rows of a thread and the blobs that only it names. In the writer, so that no row is added meanwhile; what it
/// reads is of the thread alone.
pub(crate) fn thread(connection: &mut Connection, blobs: &BlobFiles, thread_id: ThreadId) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in ["events", "runs", "pending", "grants", "threads"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE thread_id = ?1"), [thread_id.to_string()])?;
    }
    let nobodys = crate::named::forget(&transaction, thread_id)?;
    transaction.commit()?;
    nobodys.into_iter().try_for_each(|(hash, named)| blobs.remove(&hash, named))
}
