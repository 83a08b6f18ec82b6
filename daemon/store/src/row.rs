//! An event as a row: encoding, checksum, and decoding that trusts nothing.

use mcode_events::blob::Blobs;
use mcode_events::event::{Event, EventBody};
use mcode_ids::{Seq, ThreadId};
use rusqlite::{Connection, Row, params};

use crate::blobs::BlobFiles;
use crate::error::{AppendError, Damage};
use crate::named::Named;

/// The columns of an event in the order of [`EventRow`].
pub(crate) const COLUMNS: &str = "seq, at, kind, version, run_id, turn_id, spilled, payload, checksum";

/// A row of `events`.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) kind: String,
    pub(crate) version: u32,
    pub(crate) run_id: Option<String>,
    pub(crate) turn_id: Option<String>,
    pub(crate) spilled: bool,
    pub(crate) payload: String,
    pub(crate) checksum: i64,
}

impl EventRow {
    /// Reads a row that was selected with [`COLUMNS`].
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            at: row.get(1)?,
            kind: row.get(2)?,
            version: row.get(3)?,
            run_id: row.get(4)?,
            turn_id: row.get(5)?,
            spilled: row.get(6)?,
            payload: row.get(7)?,
            checksum: row.get(8)?,
        })
    }

    /// Encodes an event; a payload over the limit goes to `blobs` and leaves its hash behind. What it names is added to
    /// `named`.
    pub(crate) fn encode(event: &Event, blobs: &BlobFiles, named: &mut Named) -> Result<Self, AppendError> {
        let mut payload = event.body.encode()?;
        named.look(&payload, blobs);
        let spilled = payload.len() > crate::INLINE_PAYLOAD_BYTES_MAX;
        if spilled {
            payload = blobs.put(payload.as_bytes(), "application/json")?.hash;
            named.look(&payload, blobs);
        }
        let mut row = Self {
            seq: i64::try_from(event.seq.get()).unwrap_or(i64::MAX),
            at: event.at_ms,
            kind: event.body.kind().to_owned(),
            version: event.body.version(),
            run_id: event.run_id.map(|id| id.to_string()),
            turn_id: event.turn_id.map(|id| id.to_string()),
            spilled,
            payload,
            checksum: 0,
        };
        row.checksum = row.sum(event.thread_id);
        Ok(row)
    }

    /// Writes the row into the log of a thread.
    pub(crate) fn insert(&self, connection: &Connection, thread: &str) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "INSERT INTO events (thread_id, seq, at, kind, version, run_id, turn_id, spilled, payload, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                thread,
                self.seq,
                self.at,
                self.kind,
                self.version,
                self.run_id,
                self.turn_id,
                self.spilled,
                self.payload,
                self.checksum
            ])
            .map(drop)
    }

    fn sum(&self, thread_id: ThreadId) -> i64 {
        let mut hasher = blake3::Hasher::new();
        for part in [
            thread_id.to_string().as_bytes(),
            &self.seq.to_le_bytes(),
            &self.at.to_le_bytes(),
            self.kind.as_bytes(),
            &self.version.to_le_bytes(),
            self.run_id.as_deref().unwrap_or_default().as_bytes(),
            self.turn_id.as_deref().unwrap_or_default().as_bytes(),
            self.payload.as_bytes(),
        ] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut first = [0u8; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        i64::from_le_bytes(first)
    }

    /// Decodes the row that has to be at `expected`; also tells the size of its payload in bytes, wherever that is.
    pub(crate) fn decode(
        self,
        thread_id: ThreadId,
        expected: Seq,
        blobs: &dyn Blobs,
    ) -> Result<(Event, usize), Damage> {
        let damage = |what: String| Damage { thread_id, seq: expected, what };
        if u64::try_from(self.seq) != Ok(expected.get()) {
            return Err(damage(format!("it is missing; the next one is {}", self.seq)));
        }
        if self.sum(thread_id) != self.checksum {
            return Err(damage("its content does not match its checksum".to_owned()));
        }
        let run_id = self.run_id.as_deref().map(str::parse).transpose().map_err(|error| damage(format!("{error}")))?;
        let turn_id =
            self.turn_id.as_deref().map(str::parse).transpose().map_err(|error| damage(format!("{error}")))?;
        let payload = if self.spilled {
            let content = blobs.get(&self.payload).map_err(|error| damage(error.to_string()))?;
            String::from_utf8(content).map_err(|_| damage("its body is not text".to_owned()))?
        } else {
            self.payload
        };
        let body = EventBody::decode(&self.kind, self.version, &payload)
            .map_err(|error| damage(format!("its payload does not read as {}: {error}", self.kind)))?;
        Ok((Event { thread_id, seq: expected, at_ms: self.at, run_id, turn_id, body }, payload.len()))
    }
}
