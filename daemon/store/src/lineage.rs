//! Threads that share their beginnings: which log holds which events of a thread.
//!
//! A fork copies nothing. Its own log begins behind the event that it shares last; what is before is read from the logs of
//! the threads that it comes from, one row of `lineage` for each. A log keeps what a fork needs of it when its own thread
//! is deleted.

use mcode_events::ForkPoint;
use mcode_ids::{Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::AppendError;

/// Events of a thread that are in one log, up to and with `upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) log: ThreadId,
    pub(crate) upto: Seq,
}

/// Where the events of a thread after `after` are, in their order; the last is its own log.
pub(crate) fn segments(connection: &Connection, thread_id: ThreadId, after: Seq) -> rusqlite::Result<Vec<Segment>> {
    let mut statement =
        connection.prepare_cached("SELECT log, upto FROM lineage WHERE thread_id = ?1 AND upto > ?2 ORDER BY upto")?;
    let rows = statement.query_map(params![thread_id.to_string(), number(after)], |row| {
        let upto = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        Ok(Segment { log: crate::read::parsed(row, 0)?, upto: Seq::new(upto) })
    })?;
    let mut segments = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    segments.push(Segment { log: thread_id, upto: Seq::new(u64::MAX) });
    Ok(segments)
}

/// Makes a thread share the events of another up to a point; nothing of it may be there yet.
pub(crate) fn fork(transaction: &Transaction<'_>, thread_id: ThreadId, point: ForkPoint) -> Result<(), AppendError> {
    let parent: Option<i64> = transaction
        .prepare_cached("SELECT last_seq FROM threads WHERE thread_id = ?1")?
        .query_row([point.parent_id.to_string()], |row| row.get(0))
        .optional()?;
    if parent.is_none_or(|last| last < number(point.seq)) || point.seq == Seq::ZERO {
        return Err(AppendError::NoParent(point.parent_id));
    }
    let mut add = transaction.prepare_cached("INSERT INTO lineage (thread_id, upto, log) VALUES (?1, ?2, ?3)")?;
    for segment in segments(transaction, point.parent_id, Seq::ZERO)? {
        let upto = segment.upto.min(point.seq);
        add.execute(params![thread_id.to_string(), number(upto), segment.log.to_string()])?;
        if upto == point.seq {
            break;
        }
    }
    Ok(())
}

/// The last event of a log that forks of its thread need; `None` when nobody does.
pub(crate) fn needed(transaction: &Transaction<'_>, log: ThreadId) -> rusqlite::Result<Option<i64>> {
    transaction
        .prepare_cached("SELECT max(upto) FROM lineage WHERE log = ?1")?
        .query_row([log.to_string()], |row| row.get(0))
}

/// Takes a thread out of the lineage; gives the logs it shared whose own threads are gone.
pub(crate) fn leave(transaction: &Transaction<'_>, thread_id: ThreadId) -> rusqlite::Result<Vec<ThreadId>> {
    let mut statement = transaction.prepare_cached(
        "DELETE FROM lineage WHERE thread_id = ?1
         RETURNING log, NOT EXISTS (SELECT 1 FROM threads WHERE threads.thread_id = lineage.log)",
    )?;
    let logs = statement
        .query_map([thread_id.to_string()], |row| Ok((crate::read::parsed(row, 0)?, row.get::<_, bool>(1)?)))?
        .collect::<rusqlite::Result<Vec<(ThreadId, bool)>>>()?;
    Ok(logs.into_iter().filter(|(_, orphaned)| *orphaned).map(|(log, _)| log).collect())
}

/// A thread that has this event of a log: the log's own, else one that was forked from it.
pub(crate) fn holder(connection: &Connection, log: &str, seq: i64) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT thread_id FROM threads WHERE thread_id = ?1
             UNION ALL SELECT thread_id FROM lineage WHERE log = ?1 AND upto >= ?2 LIMIT 1",
        )?
        .query_row(params![log, seq], |row| row.get(0))
        .optional()
}

pub(crate) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.get()).unwrap_or(i64::MAX)
}
