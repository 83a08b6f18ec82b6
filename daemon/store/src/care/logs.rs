//! Every log once, whoever shares it: each damaged event is found in the log that holds it.

use mcode_events::state::ThreadState;
use mcode_ids::{Seq, ThreadId};
use rusqlite::Connection;

use crate::error::{Damage, ReadError};
use crate::lineage::Segment;
use crate::log::Batch;
use crate::read::Reader;

/// Events that are looked at in one read.
const BATCH_EVENTS: u32 = 1000;

/// Payload that is looked at in one read, in bytes.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A log and what living threads need of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) log: ThreadId,
    /// The last event before it.
    pub(crate) after: Seq,
    /// Its last event.
    pub(crate) upto: Seq,
}

/// What was found in a part of a log.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) events: u64,
    pub(crate) damage: Vec<Damage>,
    /// Where to go on.
    pub(crate) reached: Seq,
}

/// The ids of threads after one of them, at most so many, in their order.
pub(crate) fn threads_after(connection: &Connection, after: &str, max: u32) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare_cached("SELECT thread_id FROM threads WHERE thread_id > ?1 ORDER BY thread_id LIMIT ?2")?
        .query_map(rusqlite::params![after, max], |row| row.get(0))?
        .collect()
}

/// The log of a thread itself, behind what it shares.
pub(crate) fn own(reader: &Reader<'_>, thread_id: ThreadId) -> Result<Option<Log>, ReadError> {
    let Some(reach) = reader.reach(thread_id)? else { return Ok(None) };
    let segments = crate::lineage::segments(reader.connection, thread_id, Seq::ZERO)?;
    let after = segments.iter().rev().nth(1).map_or(Seq::ZERO, |segment| segment.upto);
    Ok(Some(Log { log: thread_id, after, upto: reach.last }))
}

/// Logs of threads that are gone and that forks need.
pub(crate) fn left_behind(connection: &Connection) -> rusqlite::Result<Vec<Log>> {
    let mut statement = connection
        .prepare_cached("SELECT DISTINCT thread_id FROM lineage WHERE log NOT IN (SELECT thread_id FROM threads)")?;
    let forks = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut logs: Vec<Log> = Vec::new();
    for fork in forks.iter().filter_map(|fork| fork.parse().ok()) {
        let mut after = Seq::ZERO;
        for Segment { log, upto } in crate::lineage::segments(connection, fork, Seq::ZERO)? {
            let begins = std::mem::replace(&mut after, upto);
            if log == fork || is_thread(connection, log)? {
                continue;
            }
            match logs.iter_mut().find(|known| known.log == log) {
                Some(known) => known.upto = known.upto.max(upto),
                None => logs.push(Log { log, after: begins, upto }),
            }
        }
    }
    Ok(logs)
}

fn is_thread(connection: &Connection, log: ThreadId) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM threads WHERE thread_id = ?1)")?
        .query_row([log.to_string()], |row| row.get(0))
}

/// Looks at the next events of a log.
pub(crate) fn part(reader: &Reader<'_>, log: Log, reached: Seq) -> Result<Part, ReadError> {
    let mut batch = Batch::of_log(log.log, reached, log.upto, BATCH_EVENTS, BATCH_BYTES);
    reader.read_log(Segment { log: log.log, upto: log.upto }, &mut batch)?;
    let reached = Seq::new(batch.expected.get().saturating_sub(1));
    Ok(Part { events: batch.events.len() as u64, damage: batch.damage, reached })
}

/// The fold of a thread, when nothing of it is damaged.
pub(crate) fn whole(reader: &Reader<'_>, thread_id: ThreadId) -> Result<Option<ThreadState>, ReadError> {
    Ok(reader.load(thread_id, None)?.filter(|loaded| loaded.damage.is_none()).map(|loaded| loaded.state))
}
