//! The record of permissions: a chain in which each record holds the hash of the one before it.
//!
//! A record that is changed, removed or put in later breaks the chain from there on, and [`Store::check_audit`] says
//! where. Whoever can write the database can also make a whole new chain; the hash of the last record, kept elsewhere,
//! shows that too. When the chain has grown to [`AUDIT_RECORDS_MAX`] its oldest part goes, and the hash that it ended
//! with is kept as the beginning of the rest.

use std::collections::BTreeSet;

use mcode_events::{AuditEntry, AuditKind};
use mcode_ids::{ThreadId, ToolCallId};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::Store;
use crate::error::{ReadError, StoreError};
use crate::projection::Page;
use crate::read::Reader;

/// Most records that are kept.
pub const AUDIT_RECORDS_MAX: u64 = 50_000;
/// Oldest records that go at once when there are too many.
pub const AUDIT_CUT: u64 = 5_000;
/// Most records of a thread that are looked at for what became of its open calls.
const CALLS_LOOKED_AT_MAX: u32 = 2_000;
/// What the first record of all holds in place of a hash.
const BEGINNING: &str = "";

/// A record with its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number, from 1, without gaps.
    pub number: u64,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// What happened.
    pub entry: AuditEntry,
    /// The hash of the record before it.
    pub previous: String,
    /// Its own hash.
    pub hash: String,
}

/// What a look through the whole chain found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditCheck {
    /// Records that are kept.
    pub records: u64,
    /// The number of the first of them; 0 when there are none.
    pub first: u64,
    /// The hash of the last one.
    pub head: String,
    /// What is wrong with the chain, and where.
    pub fault: Option<String>,
}

impl Store {
    /// Adds records to the end of the chain; returns when they are on the disk.
    pub async fn audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.writer.audit(entries).await
    }

    /// Records, newest first.
    pub async fn audit_records(
        &self,
        thread_id: Option<ThreadId>,
        page_size: u32,
        page_token: Option<String>,
    ) -> Result<Page<AuditRow>, ReadError> {
        self.readers.run(move |reader| records(reader, thread_id, page_size, page_token.as_deref())).await
    }

    /// Which of these calls of a thread were allowed without being asked about: they may have taken effect. Only the last
    /// [`CALLS_LOOKED_AT_MAX`] records of the thread are looked at; calls that are still open are among them.
    pub async fn allowed_calls(
        &self,
        thread_id: ThreadId,
        calls: BTreeSet<ToolCallId>,
    ) -> Result<BTreeSet<ToolCallId>, ReadError> {
        let page = self.audit_records(Some(thread_id), CALLS_LOOKED_AT_MAX, None).await?;
        let allowed = page.rows.into_iter().filter_map(|row| {
            let decided = row.entry.kind == AuditKind::Decided && row.entry.verdict == "allow";
            row.entry.tool_call_id.filter(|call| decided && calls.contains(call))
        });
        Ok(allowed.collect())
    }

    /// Looks through the whole chain.
    pub async fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        self.readers.run(check).await
    }
}

fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Where the chain that is kept begins: the number and hash of the last record that went.
fn base(connection: &rusqlite::Connection) -> rusqlite::Result<(i64, String)> {
    let base = connection.query_row("SELECT n, hash FROM audit_base", [], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(base.optional()?.unwrap_or_else(|| (0, BEGINNING.to_owned())))
}

fn hash_of(n: i64, at: i64, previous: &str, entry: &str) -> String {
    // Lengths are fixed or the text is last, so that no two records give the same bytes.
    blake3::hash(format!("{n} {at} {previous} {entry}").as_bytes()).to_hex().to_string()
}

pub(crate) fn add(transaction: &Transaction<'_>, now: i64, entries: &[AuditEntry]) -> Result<(), StoreError> {
    let last = transaction
        .prepare_cached("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (mut n, mut previous): (i64, String) = match last {
        Some(last) => last,
        None => base(transaction)?,
    };
    for entry in entries {
        n += 1;
        let text = serde_json::to_string(entry)
            .map_err(|error| StoreError::Database(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        let hash = hash_of(n, now, &previous, &text);
        transaction
            .prepare_cached(
                "INSERT INTO audit (n, at, thread_id, previous, entry, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![n, now, entry.thread_id.map(|id| id.to_string()), previous, text, hash])?;
        previous = hash;
    }
    cut(transaction, n)
}

/// Lets the oldest part go when there is too much.
fn cut(transaction: &Transaction<'_>, last: i64) -> Result<(), StoreError> {
    let (kept_from, _) = base(transaction)?;
    let max = i64::try_from(AUDIT_RECORDS_MAX).unwrap_or(i64::MAX);
    if last - kept_from <= max {
        return Ok(());
    }
    let until = last - max + i64::try_from(AUDIT_CUT).unwrap_or(0);
    transaction.execute(
        "INSERT OR REPLACE INTO audit_base (only, n, hash) SELECT 1, n, hash FROM audit WHERE n = ?1",
        [until],
    )?;
    transaction.execute("DELETE FROM audit WHERE n <= ?1", [until])?;
    Ok(())
}

fn row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let entry: String = row.get(3)?;
    let entry = serde_json::from_str(&entry)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(3, rusqlite::types::Type::Text, Box::new(error)))?;
    Ok(AuditRow { number: number(row.get(0)?), at_ms: row.get(1)?, previous: row.get(2)?, entry, hash: row.get(4)? })
}

fn records(
    reader: &Reader<'_>,
    thread_id: Option<ThreadId>,
    page_size: u32,
    page_token: Option<&str>,
) -> Result<Page<AuditRow>, ReadError> {
    let before: i64 = match page_token {
        Some(token) => token.parse().map_err(|_| ReadError::BadPageToken(token.chars().take(80).collect()))?,
        None => i64::MAX,
    };
    let mut statement = reader.connection.prepare_cached(
        "SELECT n, at, previous, entry, hash FROM audit WHERE (?1 IS NULL OR thread_id = ?1) AND n < ?2
         ORDER BY n DESC LIMIT ?3",
    )?;
    let thread = thread_id.map(|id| id.to_string());
    let rows = statement
        .query_map(params![thread, before, i64::from(page_size) + 1], row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(crate::read::page(rows, page_size, |row| row.number.to_string()))
}

fn check(reader: &Reader<'_>) -> Result<AuditCheck, ReadError> {
    let (begins_after, mut previous) = base(reader.connection)?;
    let mut expected = begins_after;
    let mut found = AuditCheck { head: previous.clone(), ..AuditCheck::default() };
    let mut statement =
        reader.connection.prepare_cached("SELECT n, at, previous, entry, hash FROM audit ORDER BY n")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (n, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (held, entry, hash): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
        expected += 1;
        let fault = if n != expected {
            Some(format!("record {expected} is missing"))
        } else if held != previous {
            Some(format!("record {n} does not follow the record before it"))
        } else if hash != hash_of(n, at, &held, &entry) {
            Some(format!("record {n} was changed"))
        } else {
            None
        };
        if fault.is_some() {
            found.fault = fault;
            return Ok(found);
        }
        found.first = if found.records == 0 { number(n) } else { found.first };
        found.records += 1;
        found.head.clone_from(&hash);
        previous = hash;
    }
    Ok(found)
}
