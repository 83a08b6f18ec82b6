//! The events of a thread, read past whatever is damaged.
//!
//! An event that is missing or cannot be trusted has a placeholder in its place ([`EventBody::damaged`]) and is told as
//! [`Damage`], so that one bad row hides nothing behind it.

use mcode_events::event::{Event, EventBody};
use mcode_events::state::ThreadState;
use mcode_ids::{Seq, ThreadId};
use rusqlite::{OptionalExtension, Row, params};

use crate::Loaded;
use crate::error::{Damage, ReadError};
use crate::lineage::{Segment, number};
use crate::read::Reader;
use crate::row::{COLUMNS, EventRow};

/// Events that are read at once when a log is folded.
const FOLD_BATCH: u32 = 1000;

/// Payload that is read at once when a log is folded, in bytes.
const FOLD_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Events beyond the end of a log that may be missing one by one: only the thread's row says that there were more, and one
/// that says more than that is not believed.
const MISSING_AT_END_MAX: u64 = 10_000;

/// What a placeholder counts as, in bytes of payload.
const PLACEHOLDER_BYTES: usize = 64;

/// How far a thread reaches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// When it was made, milliseconds since 1970 UTC.
    created_at: i64,
    /// Its last event as its row says.
    pub(crate) known: Seq,
    /// The last event that is read: the row's, or the last that is there when the row is not believed.
    pub(crate) last: Seq,
}

/// Events as they are read, up to limits.
#[derive(Debug)]
pub(crate) struct Batch {
    thread_id: ThreadId,
    pub(crate) events: Vec<Event>,
    /// What is wrong with those that are placeholders.
    pub(crate) damage: Vec<Damage>,
    pub(crate) expected: Seq,
    /// The time that a placeholder gets: that of the event before it.
    at_ms: i64,
    known: Seq,
    bytes: usize,
    max: u32,
    max_bytes: usize,
}

impl Batch {
    /// Room for so much after `after`; `at_ms` is the time of the event before, or of the thread's beginning.
    pub(crate) fn new(thread_id: ThreadId, after: Seq, max: u32, max_bytes: usize, reach: Reach) -> Self {
        let (at_ms, known) = (reach.created_at, reach.known);
        let (events, damage, expected) = (Vec::new(), Vec::new(), after.next());
        Self { thread_id, events, damage, expected, at_ms, known, bytes: 0, max, max_bytes }
    }

    /// Room for so much of a log itself.
    pub(crate) fn of_log(log: ThreadId, after: Seq, upto: Seq, max: u32, max_bytes: usize) -> Self {
        Self::new(log, after, max, max_bytes, Reach { created_at: 0, known: upto, last: upto })
    }

    fn is_full(&self) -> bool {
        self.events.len() >= self.max as usize || self.bytes > self.max_bytes
    }

    fn push(&mut self, event: Event, size: usize) {
        self.bytes = self.bytes.saturating_add(size);
        self.at_ms = event.at_ms;
        self.events.push(Event { thread_id: self.thread_id, ..event });
        self.expected = self.expected.next();
    }

    fn placeholder(&mut self, what: String) {
        let (thread_id, seq) = (self.thread_id, self.expected);
        let body = EventBody::damaged(&what);
        self.push(
            Event { thread_id, seq, at_ms: self.at_ms, run_id: None, turn_id: None, body },
            PLACEHOLDER_BYTES + what.len(),
        );
        self.damage.push(Damage { thread_id, seq, what });
    }

    /// Everything before `seq` is missing.
    fn missing_until(&mut self, seq: Seq, what: &str) {
        while !self.is_full() && self.expected < seq {
            self.placeholder(what.to_owned());
        }
    }
}

impl Reader<'_> {
    /// At most `max` events after `after`, at most about `max_bytes` of payload (but at least one event).
    pub(crate) fn events(
        &self,
        thread_id: ThreadId,
        after: Seq,
        max: u32,
        max_bytes: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let Some(reach) = self.reach(thread_id)? else { return Ok(Vec::new()) };
        Ok(self.batch(Batch::new(thread_id, after, max, max_bytes, reach), reach)?.events)
    }

    /// How far a thread reaches; `None` when there is no such thread.
    pub(crate) fn reach(&self, thread_id: ThreadId) -> Result<Option<Reach>, ReadError> {
        let id = thread_id.to_string();
        let row = self
            .connection
            .prepare_cached("SELECT created_at, last_seq FROM threads WHERE thread_id = ?1")?
            .query_row([&id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((created_at, known)): Option<(i64, i64)> = row else { return Ok(None) };
        let there: i64 = self
            .connection
            .prepare_cached(
                "SELECT max(coalesce((SELECT max(seq) FROM events WHERE thread_id = ?1), 0),
                            coalesce((SELECT max(upto) FROM lineage WHERE thread_id = ?1), 0))",
            )?
            .query_row([&id], |row| row.get(0))?;
        let seq = |value: i64| Seq::new(u64::try_from(value).unwrap_or(0));
        let (known, there) = (seq(known), seq(there));
        let last = if known.get() > there.get().saturating_add(MISSING_AT_END_MAX) { there } else { known };
        Ok(Some(Reach { created_at, known, last }))
    }

    fn batch(&self, mut batch: Batch, reach: Reach) -> Result<Batch, ReadError> {
        let after = Seq::new(batch.expected.get().saturating_sub(1));
        for segment in crate::lineage::segments(self.connection, batch.thread_id, after)? {
            let segment = Segment { upto: segment.upto.min(reach.last), ..segment };
            self.read_log(segment, &mut batch)?;
            if batch.is_full() {
                break;
            }
        }
        Ok(batch)
    }

    /// Adds the events of one log; what cannot be read of it up to its end gets placeholders.
    pub(crate) fn read_log(&self, segment: Segment, batch: &mut Batch) -> Result<(), ReadError> {
        while !batch.is_full() && batch.expected <= segment.upto {
            self.read_rows(segment, batch)?;
        }
        Ok(())
    }

    /// Adds rows until the batch is full, the log ends, or the database cannot go on; then it is asked anew behind that.
    fn read_rows(&self, Segment { log, upto }: Segment, batch: &mut Batch) -> Result<(), ReadError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM events WHERE thread_id = ?1 AND seq >= ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4"
        ))?;
        let left = batch.max.saturating_sub(u32::try_from(batch.events.len()).unwrap_or(u32::MAX));
        let mut rows = statement.query(params![log.to_string(), number(batch.expected), number(upto), left])?;
        while !batch.is_full() {
            match rows.next() {
                Ok(Some(row)) => self.read_row(log, row, batch),
                Ok(None) => {
                    let what = format!("it is missing; the thread is known to reach {}", batch.known);
                    batch.missing_until(upto.next(), &what);
                    return Ok(());
                }
                Err(error) if is_damage(&error) => {
                    batch.placeholder(unreadable(&error));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_row(&self, log: ThreadId, row: &Row<'_>, batch: &mut Batch) {
        let seq = row.get::<_, i64>(0).ok().and_then(|seq| u64::try_from(seq).ok());
        if let Some(seq) = seq.map(Seq::new).filter(|seq| *seq > batch.expected) {
            batch.missing_until(seq, &format!("it is missing; the next one is {seq}"));
            if batch.is_full() {
                return;
            }
        }
        let decoded = match EventRow::read(row) {
            Ok(row) => row.decode(log, batch.expected, self.blobs).map_err(|damage| damage.what),
            Err(error) => Err(unreadable(&error)),
        };
        match decoded {
            Ok((event, size)) => batch.push(event, size),
            Err(what) => batch.placeholder(what),
        }
    }

    /// The fold of a thread up to an event, or to its end, with the first damage in it.
    pub(crate) fn load(&self, thread_id: ThreadId, upto: Option<Seq>) -> Result<Option<Loaded>, ReadError> {
        let Some(reach) = self.reach(thread_id)? else { return Ok(None) };
        let end = upto.map_or(reach.last, |upto| upto.min(reach.last));
        let mut state = ThreadState::new(thread_id);
        let mut damage = None;
        while state.last_seq < end {
            let batch = Batch::new(thread_id, state.last_seq, FOLD_BATCH, FOLD_BATCH_BYTES, reach);
            let batch = self.batch(batch, Reach { last: end, ..reach })?;
            if batch.events.is_empty() {
                break;
            }
            batch.events.iter().for_each(|event| state.apply(event));
            damage = damage.or(batch.damage.into_iter().next());
        }
        // What lies beyond that is not told one by one.
        if damage.is_none() && upto.is_none() && end < reach.known {
            let what = format!("it is missing; the thread is known to reach {}", reach.known);
            damage = Some(Damage { thread_id, seq: end.next(), what });
        }
        Ok(Some(Loaded { state, damage }))
    }
}

fn unreadable(error: &rusqlite::Error) -> String {
    format!("the row does not read: {error}")
}

/// Whether the file is bad there, and not only out of reach for now.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}
