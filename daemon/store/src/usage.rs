//! What all requests have cost, one row each, kept beside the log and longer: a deleted thread has cost what it has.
//!
//! Money is kept in whole billionths of a dollar, so that sums do not depend on their order and a thousand small amounts
//! add up to the cent. The rows of threads that are in the log can be made anew from it ([`crate::Store::rebuild_usage`]).

use std::collections::BTreeMap;

use mcode_env::{Timestamp, Zone};
use mcode_events::usage::{NanoUsd, Usage, UsagePurpose, nanos, usd};
use mcode_ids::{GoalId, ProjectId, RunId, ThreadId};
use rusqlite::{Connection, Row, Transaction, params};

use crate::error::{ReadError, StoreError};
use crate::projection::Page;
use crate::read::Reader;

/// Days in every zone are made of such pieces, in milliseconds (15 min).
const PIECE_MS: i64 = 15 * 60 * 1000;

/// Tokens that are counted of one request, so that no sum overflows.
const TOKENS_MAX: i64 = 1 << 40;

/// The columns of the table, in the order of [`FROM_LOG`].
const COLUMNS: &str = "thread_id, seq, at, project_id, run_id, goal_id, model, provider, purpose, input_tokens, \
                       output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_nanos, priced";

/// Puts rows into the table, in the order of [`FROM_LOG`].
const INTO: &str = "INSERT INTO usage (thread_id, seq, at, project_id, run_id, goal_id, model, provider, purpose,
    input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_nanos, priced)";

/// What was spent does not become less when its event is damaged and set aside.
const NOT_SET_ASIDE: &str =
    "NOT EXISTS (SELECT 1 FROM quarantine q WHERE q.thread_id = usage.thread_id AND q.seq = usage.seq)";

/// The rows of the log's own threads, from its events, but for those that came from elsewhere: they were paid there. Also
/// what an earlier version has kept is made anew with it. Of a
/// damaged event counts what can be read, each number within a bound that leaves room for sums: it must not keep the daemon
/// from starting.
const FROM_LOG: &str = "
SELECT e.thread_id, e.seq, e.at, t.project_id, coalesce(e.run_id, ''), coalesce(e.payload ->> '$.goal_id', ''),
    coalesce(e.payload ->> '$.model', ''),
    substr(coalesce(e.payload ->> '$.model', ''), 1, instr(coalesce(e.payload ->> '$.model', '') || '/', '/') - 1),
    coalesce(e.payload ->> '$.purpose', 'work'),
    max(0, min(CAST(coalesce(e.payload ->> '$.usage.input_tokens', 0) AS INTEGER), 1000000000000000)),
    max(0, min(CAST(coalesce(e.payload ->> '$.usage.output_tokens', 0) AS INTEGER), 1000000000000000)),
    max(0, min(CAST(coalesce(e.payload ->> '$.usage.cache_read_tokens', 0) AS INTEGER), 1000000000000000)),
    max(0, min(CAST(coalesce(e.payload ->> '$.usage.cache_write_tokens', 0) AS INTEGER), 1000000000000000)),
    max(0, min(CAST(coalesce(e.payload ->> '$.usage.reasoning_tokens', 0) AS INTEGER), 1000000000000000)),
    max(0, min(CAST(round(CAST(coalesce(e.payload ->> '$.usage.cost_usd', 0) AS REAL) * 1e9) AS INTEGER),
        1000000000000000)),
    CAST(coalesce(e.payload ->> '$.priced', 0) AS INTEGER) <> 0
        OR CAST(coalesce(e.payload ->> '$.usage.cost_usd', 0) AS REAL) > 0
FROM events e JOIN threads t ON t.thread_id = e.thread_id
WHERE e.kind = 'usage_recorded' AND e.spilled = 0 AND json_valid(e.payload)
    AND NOT EXISTS (SELECT 1 FROM imports i WHERE i.thread_id = e.thread_id AND i.upto >= e.seq)";

/// The sums that every question asks for, in the order of [`sums`].
const SUMS: &str = "count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), \
                    coalesce(sum(cache_read_tokens), 0), coalesce(sum(cache_write_tokens), 0), \
                    coalesce(sum(reasoning_tokens), 0), coalesce(sum(cost_nanos), 0), \
                    coalesce(sum(CASE WHEN priced THEN 0 ELSE input_tokens + output_tokens + cache_read_tokens \
                    + cache_write_tokens END), 0)";

/// What usage is summed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageGroup {
    /// Threads.
    Thread,
    /// Models.
    Model,
    /// Days of this zone.
    Day(Zone),
    /// Goals.
    Goal,
    /// Providers.
    Provider,
    /// What the requests were for.
    Purpose,
}

/// Which usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFilter {
    /// Summed by what.
    pub group: UsageGroup,
    /// From this moment on, milliseconds since 1970 UTC.
    pub since_ms: i64,
    /// Before this moment.
    pub until_ms: i64,
    /// Only of this project.
    pub project_id: Option<ProjectId>,
    /// Only of this thread.
    pub thread_id: Option<ThreadId>,
    /// How many rows at most.
    pub page_size: u32,
    /// Where to go on.
    pub page_token: Option<String>,
}

/// Sums over requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageSums {
    /// How many.
    pub requests: u64,
    /// Tokens, and money in dollars as near as those can be.
    pub usage: Usage,
    /// The money exactly.
    pub cost_nanos: NanoUsd,
    /// Tokens of models whose price was not known; what they cost is not in the money.
    pub unpriced_tokens: u64,
}

impl UsageSums {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.usage.add(&other.usage);
        self.cost_nanos = self.cost_nanos.saturating_add(other.cost_nanos);
        self.usage.cost_usd = usd(self.cost_nanos);
        self.unpriced_tokens = self.unpriced_tokens.saturating_add(other.unpriced_tokens);
    }
}

/// One row of what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRow {
    /// The thread, model, day, goal, provider or purpose; empty for requests of no goal.
    pub key: String,
    /// The title of a thread.
    pub title: String,
    /// Whether it is a thread that was deleted.
    pub deleted: bool,
    /// The sums.
    pub sums: UsageSums,
}

/// Rows, and the sums over all of them, wherever the page ends.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageReport {
    /// The rows: what cost most first; days newest first.
    pub page: Page<UsageRow>,
    /// Over everything that the filter lets through.
    pub total: UsageSums,
}

/// A request that was paid for.
pub(crate) struct Paid<'a> {
    pub(crate) thread: &'a str,
    pub(crate) seq: i64,
    pub(crate) at_ms: i64,
    pub(crate) project_id: ProjectId,
    pub(crate) run_id: Option<RunId>,
    pub(crate) goal_id: Option<GoalId>,
    pub(crate) model: &'a str,
    pub(crate) purpose: UsagePurpose,
    pub(crate) usage: &'a Usage,
    pub(crate) priced: bool,
}

impl Paid<'_> {
    pub(crate) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX).min(TOKENS_MAX);
        let text = |id: Option<String>| id.unwrap_or_default();
        transaction
            .prepare_cached(
                "INSERT INTO usage (thread_id, seq, at, project_id, run_id, goal_id, model, provider, purpose,
                 input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_nanos, priced)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )?
            .execute(params![
                self.thread,
                self.seq,
                self.at_ms,
                self.project_id.to_string(),
                text(self.run_id.map(|id| id.to_string())),
                text(self.goal_id.map(|id| id.to_string())),
                self.model,
                self.model.split('/').next().unwrap_or_default(),
                self.purpose.as_str(),
                tokens(self.usage.input_tokens),
                tokens(self.usage.output_tokens),
                tokens(self.usage.cache_read_tokens),
                tokens(self.usage.cache_write_tokens),
                tokens(self.usage.reasoning_tokens),
                nanos(self.usage.cost_usd),
                self.priced || self.usage.cost_usd > 0.0,
            ])?;
        Ok(())
    }
}

/// Fills the table of a database that had none: from the log, and what is known of threads that are not in it any more.
pub(crate) fn fill(connection: &Connection) -> Result<(), StoreError> {
    connection.execute(&format!("{INTO} {FROM_LOG}"), [])?;
    connection.execute(
        "INSERT INTO usage (thread_id, seq, at, project_id, run_id, goal_id, model, provider, purpose,
         input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_nanos, priced)
         SELECT s.thread_id, -s.rowid, s.at, '', '', '', '', '', 'work', 0, 0, 0, 0, 0,
             CAST(round(s.cost_usd * 1e9) AS INTEGER), 1
         FROM spending s WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread_id = s.thread_id)",
        [],
    )?;
    connection.execute("DELETE FROM spending", [])?;
    Ok(())
}

/// Makes the rows of all threads that are there anew from the log.
pub(crate) fn rebuild(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM usage WHERE thread_id IN (SELECT thread_id FROM threads) AND {NOT_SET_ASIDE}");
    transaction.execute(&sql, [])?;
    transaction.execute(&format!("{INTO} {FROM_LOG}"), [])?;
    Ok(())
}

/// Makes the rows of one thread anew from its log.
pub(crate) fn rebuild_thread(transaction: &Transaction<'_>, thread: &str) -> rusqlite::Result<()> {
    transaction.execute(&format!("DELETE FROM usage WHERE thread_id = ?1 AND {NOT_SET_ASIDE}"), [thread])?;
    transaction.execute(&format!("{INTO} {FROM_LOG} AND e.thread_id = ?1"), [thread])?;
    Ok(())
}

/// Whether the rows of a thread are not those of its log.
pub(crate) fn differs(connection: &Connection, thread: &str) -> rusqlite::Result<bool> {
    let kept = format!("SELECT {COLUMNS} FROM usage WHERE thread_id = ?1 AND {NOT_SET_ASIDE}");
    let made = format!("{FROM_LOG} AND e.thread_id = ?1");
    connection
        .prepare_cached(&format!(
            "SELECT EXISTS (SELECT * FROM ({kept}) EXCEPT SELECT * FROM ({made}))
                 OR EXISTS (SELECT * FROM ({made}) EXCEPT SELECT * FROM ({kept}))"
        ))?
        .query_row([thread], |row| row.get(0))
}

impl Reader<'_> {
    /// Money spent since a moment.
    pub(crate) fn spent_since(&self, at_ms: i64) -> Result<NanoUsd, ReadError> {
        let sql = "SELECT coalesce(sum(cost_nanos), 0) FROM usage WHERE at >= ?1";
        Ok(self.connection.prepare_cached(sql)?.query_row([at_ms], |row| row.get(0))?)
    }

    /// Money spent for a goal.
    pub(crate) fn spent_for(&self, goal_id: GoalId) -> Result<NanoUsd, ReadError> {
        let sql = "SELECT coalesce(sum(cost_nanos), 0) FROM usage WHERE goal_id = ?1";
        Ok(self.connection.prepare_cached(sql)?.query_row([goal_id.to_string()], |row| row.get(0))?)
    }

    pub(crate) fn usage(&self, filter: &UsageFilter) -> Result<UsageReport, ReadError> {
        let start = match &filter.page_token {
            None => 0,
            Some(token) => token.parse().map_err(|_| ReadError::BadPageToken(token.chars().take(80).collect()))?,
        };
        let total = self.usage_total(filter)?;
        let page = match &filter.group {
            UsageGroup::Day(zone) => cut(self.usage_by_day(filter, zone)?, start, filter.page_size),
            UsageGroup::Thread => self.usage_by("thread_id", filter, start)?,
            UsageGroup::Model => self.usage_by("model", filter, start)?,
            UsageGroup::Goal => self.usage_by("goal_id", filter, start)?,
            UsageGroup::Provider => self.usage_by("provider", filter, start)?,
            UsageGroup::Purpose => self.usage_by("purpose", filter, start)?,
        };
        Ok(UsageReport { page, total })
    }

    fn usage_total(&self, filter: &UsageFilter) -> Result<UsageSums, ReadError> {
        let (project, thread) = ids(filter);
        let mut statement = self.connection.prepare_cached(&format!("SELECT {SUMS} FROM usage {WHERE}"))?;
        Ok(statement.query_row(params![filter.since_ms, filter.until_ms, project, thread], |row| sums(row, 0))?)
    }

    fn usage_by(&self, column: &str, filter: &UsageFilter, start: u32) -> Result<Page<UsageRow>, ReadError> {
        let (project, thread) = ids(filter);
        let is_thread = column == "thread_id";
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {column}, (SELECT title FROM threads t WHERE t.thread_id = usage.{column}), {SUMS} FROM usage {WHERE}
             GROUP BY {column} ORDER BY sum(cost_nanos) DESC, sum(input_tokens + output_tokens) DESC, {column}
             LIMIT ?5 OFFSET ?6"
        ))?;
        let limit = i64::from(filter.page_size) + 1;
        let rows =
            statement.query_map(params![filter.since_ms, filter.until_ms, project, thread, limit, start], |row| {
                let title: Option<String> = row.get(1)?;
                let deleted = is_thread && title.is_none();
                Ok(UsageRow { key: row.get(0)?, title: title.unwrap_or_default(), deleted, sums: sums(row, 2)? })
            })?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(cut(rows, 0, filter.page_size).moved(start))
    }

    /// Days of a zone, newest first; the database sums pieces of which the days of all zones are made.
    fn usage_by_day(&self, filter: &UsageFilter, zone: &Zone) -> Result<Vec<UsageRow>, ReadError> {
        let (project, thread) = ids(filter);
        let mut statement = self
            .connection
            .prepare_cached(&format!("SELECT at / {PIECE_MS}, {SUMS} FROM usage {WHERE} GROUP BY at / {PIECE_MS}"))?;
        let rows = statement.query_map(params![filter.since_ms, filter.until_ms, project, thread], |row| {
            Ok((row.get::<_, i64>(0)?, sums(row, 1)?))
        })?;
        let mut days: BTreeMap<String, UsageSums> = BTreeMap::new();
        for row in rows {
            let (piece, sums) = row?;
            days.entry(zone.date(Timestamp::from_millis(piece * PIECE_MS))).or_default().add(&sums);
        }
        let row = |(key, sums)| UsageRow { key, title: String::new(), deleted: false, sums };
        Ok(days.into_iter().rev().map(row).collect())
    }
}

const WHERE: &str = "WHERE at >= ?1 AND at < ?2 AND (?3 IS NULL OR project_id = ?3 OR project_id IN (SELECT project_id FROM projects WHERE joined = ?3)) AND (?4 IS NULL OR thread_id = ?4)";

fn ids(filter: &UsageFilter) -> (Option<String>, Option<String>) {
    (filter.project_id.map(|id| id.to_string()), filter.thread_id.map(|id| id.to_string()))
}

fn sums(row: &Row<'_>, from: usize) -> rusqlite::Result<UsageSums> {
    let count = |at: usize| row.get::<_, i64>(from + at).map(|count| u64::try_from(count).unwrap_or(0));
    let cost_nanos = row.get(from + 6)?;
    Ok(UsageSums {
        requests: count(0)?,
        usage: Usage {
            input_tokens: count(1)?,
            output_tokens: count(2)?,
            cache_read_tokens: count(3)?,
            cache_write_tokens: count(4)?,
            reasoning_tokens: count(5)?,
            cost_usd: usd(cost_nanos),
        },
        cost_nanos,
        unpriced_tokens: count(7)?,
    })
}

/// So many rows from there on.
fn cut(rows: Vec<UsageRow>, start: u32, page_size: u32) -> Page<UsageRow> {
    let end = start.saturating_add(page_size);
    let next = (rows.len() > end as usize).then(|| end.to_string());
    let rows = rows.into_iter().skip(start as usize).take(page_size as usize).collect();
    Page { rows, next }
}

impl Page<UsageRow> {
    /// The same when the rows before were left out already.
    fn moved(self, start: u32) -> Self {
        let next = self.next.and_then(|next| next.parse::<u32>().ok());
        Self { rows: self.rows, next: next.map(|next| next.saturating_add(start).to_string()) }
    }
}
