//! The index of what was said: filled in the background, asked by people.
//!
//! Messages and what tools gave back go into an FTS5 table that holds words only; what is shown of a hit is read from the
//! log, so each byte is kept once. `unsearched` names the threads with events that were not looked through yet, `searched`
//! how far each was. The index can be behind, never ahead, and is made anew by forgetting both.

use mcode_events::event::EventBody;
use mcode_events::{Event, Part, Role};
use mcode_ids::{ProjectId, Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde_json::Value;

use crate::blobs::BlobFiles;
use crate::error::{ReadError, StoreError};
use crate::read::Reader;
use crate::snippet::{self, Snippet};
use crate::titles::Called;

/// Most text of one event that is looked through, in bytes; the rest of a long output is not found.
pub const SEARCHED_TEXT_MAX: usize = 256 * 1024;

/// What a title has more than any place where something was said.
const TITLE_SCORE: f64 = 1000.0;

/// Hits that are ranked, the newest first: a word that is everywhere costs no more.
const RANKED_MAX: u32 = 2000;

/// Text that is added in one transaction, in bytes, about: appends wait meanwhile.
const BATCH_TEXT_MAX: usize = 1024 * 1024;

/// Events that are looked at in one transaction.
const BATCH_EVENTS_MAX: u32 = 500;

/// Rows of the index up to which it is put in order after a deletion, so that nothing of what was said stays in it.
/// Beyond that SQLite does so by and by.
const TIDIED_ROWS_MAX: i64 = 200_000;

/// Pages of the index that are put in order in one transaction: appends wait meanwhile.
const TIDIED_PAGES: i64 = 64;

/// Where to look for what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchFilter {
    /// Words, as a person types them.
    pub query: String,
    /// Only of this project.
    pub project_id: Option<ProjectId>,
    /// Only in this thread.
    pub thread_id: Option<ThreadId>,
    /// Archived threads too.
    pub include_archived: bool,
    /// How many hits at most.
    pub page_size: u32,
    /// Hits that were given already.
    pub offset: u32,
}

/// Where something was said.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// A thread that holds it.
    pub thread_id: ThreadId,
    /// The event.
    pub seq: Seq,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// `user`, `assistant` or `tool`; `title` for what a thread is called, with the event zero.
    pub role: String,
    /// The place.
    pub snippet: Snippet,
    /// How well it fits; higher is better.
    pub score: f64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// The places, best first.
    pub hits: Vec<Said>,
    /// Whether there are more.
    pub more: bool,
    /// Threads with events that were not looked through yet.
    pub behind: u64,
}

/// Looks through some of what is new; whether anything is left. In the writer, so in small parts.
pub(crate) fn index(transaction: &Transaction<'_>, blobs: &BlobFiles) -> Result<bool, StoreError> {
    let next: Option<String> = transaction
        .prepare_cached("SELECT thread_id FROM unsearched LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(thread) = next else { return Ok(false) };
    let reached: i64 = transaction
        .prepare_cached("SELECT seq FROM searched WHERE thread_id = ?1")?
        .query_row([&thread], |row| row.get(0))
        .optional()?
        .unwrap_or(0);
    match thread.parse() {
        Ok(thread_id) => index_thread(transaction, blobs, thread_id, reached)?,
        Err(_) => drop(transaction.execute("DELETE FROM unsearched WHERE thread_id = ?1", [&thread])?),
    }
    Ok(transaction.prepare_cached("SELECT EXISTS (SELECT 1 FROM unsearched)")?.query_row([], |row| row.get(0))?)
}

fn index_thread(
    transaction: &Transaction<'_>,
    blobs: &BlobFiles,
    thread_id: ThreadId,
    mut reached: i64,
) -> Result<(), StoreError> {
    let (mut looked_at, mut text_bytes) = (0u32, 0usize);
    let mut add_place =
        transaction.prepare_cached("INSERT INTO said_at (thread_id, seq, at, role) VALUES (?1, ?2, ?3, ?4)")?;
    let mut add_words = transaction.prepare_cached("INSERT INTO said (rowid, text) VALUES (?1, ?2)")?;
    let thread = thread_id.to_string();
    let mut statement = transaction.prepare_cached(&format!(
        "SELECT {} FROM events WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        crate::row::COLUMNS
    ))?;
    let mut rows = statement.query(params![thread, reached, BATCH_EVENTS_MAX])?;
    while text_bytes < BATCH_TEXT_MAX {
        let Some(row) = rows.next()? else { break };
        (reached, looked_at) = (row.get(0)?, looked_at + 1);
        // Told, as what is damaged within, when its thread is read; it must not hold up everything behind it.
        let Ok(row) = crate::row::EventRow::read(row) else { continue };
        let expected = Seq::new(u64::try_from(row.seq).unwrap_or(0));
        if !is_said(&row.kind) {
            continue;
        }
        // One that is damaged is told when its thread is read.
        let Ok((event, _)) = row.decode(thread_id, expected, blobs) else { continue };
        let Some((role, text)) = text_of(&event) else { continue };
        add_place.execute(params![thread, reached, event.at_ms, role])?;
        add_words.execute(params![transaction.last_insert_rowid(), snippet::spaced(&text)])?;
        text_bytes += text.len();
    }
    transaction
        .prepare_cached("INSERT OR REPLACE INTO searched (thread_id, seq) VALUES (?1, ?2)")?
        .execute(params![thread, reached])?;
    if looked_at < BATCH_EVENTS_MAX && text_bytes < BATCH_TEXT_MAX {
        transaction.prepare_cached("DELETE FROM unsearched WHERE thread_id = ?1")?.execute([thread])?;
    }
    Ok(())
}

/// Takes what was said in a log after `kept` out of the index; [`tidy`] gives the space back.
pub(crate) fn forget(transaction: &Transaction<'_>, log: &str, kept: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM said WHERE rowid IN (SELECT id FROM said_at WHERE thread_id = ?1 AND seq > ?2)")?
        .execute(params![log, kept])?;
    transaction
        .prepare_cached("DELETE FROM said_at WHERE thread_id = ?1 AND seq > ?2")?
        .execute(params![log, kept])
        .map(drop)
}

/// Takes a log out of the index of which nothing is left.
pub(crate) fn forget_all(transaction: &Transaction<'_>, log: &str) -> rusqlite::Result<()> {
    forget(transaction, log, 0)?;
    transaction.execute("DELETE FROM unsearched WHERE thread_id = ?1", [log])?;
    transaction.execute("DELETE FROM searched WHERE thread_id = ?1", [log]).map(drop)
}

/// Puts the index in order a little after a deletion, so that nothing of what was said stays in it; whether there is more to
/// do. A large one is left to SQLite, which does so by and by.
pub(crate) fn tidy(transaction: &Transaction<'_>, first: bool) -> rusqlite::Result<bool> {
    let rows: i64 = transaction.query_row("SELECT count(*) FROM said_at", [], |row| row.get(0))?;
    if rows > TIDIED_ROWS_MAX {
        return Ok(false);
    }
    let before = transaction.total_changes();
    // The first step gathers all parts of the index, the others go on with that.
    let pages = if first { -TIDIED_PAGES } else { TIDIED_PAGES };
    transaction.execute("INSERT INTO said (said, rank) VALUES ('merge', ?1)", [pages])?;
    // The insert itself counts as one.
    Ok(transaction.total_changes() - before >= 2)
}

/// Forgets the index, and notes that everything has to be looked through.
pub(crate) fn begin_anew(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "INSERT INTO said (said) VALUES ('delete-all');
         DELETE FROM said_at;
         DELETE FROM searched;
         INSERT INTO searched SELECT thread_id, max(upto) FROM lineage GROUP BY thread_id;
         INSERT OR IGNORE INTO unsearched SELECT thread_id FROM threads WHERE ephemeral = 0;
         INSERT OR IGNORE INTO unsearched
             SELECT DISTINCT log FROM lineage WHERE log NOT IN (SELECT thread_id FROM threads);",
    )
}

/// Notes that a thread has events that were not looked through.
pub(crate) fn note(transaction: &Transaction<'_>, thread: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT OR IGNORE INTO unsearched (thread_id) VALUES (?1)")?.execute([thread]).map(drop)
}

/// The index of a fork begins where its own log does.
pub(crate) fn begin_at(transaction: &Transaction<'_>, thread: &str, seq: Seq) -> rusqlite::Result<()> {
    let seq = i64::try_from(seq.get()).unwrap_or(i64::MAX);
    transaction.execute("INSERT OR REPLACE INTO searched (thread_id, seq) VALUES (?1, ?2)", params![thread, seq])?;
    Ok(())
}

/// Whether events of this kind hold words that are looked for.
pub(crate) fn is_said(kind: &str) -> bool {
    matches!(kind, "message_finished" | "tool_call_started" | "tool_call_finished")
}

/// Who says what in an event, as far as it is looked through.
fn text_of(event: &Event) -> Option<(&'static str, String)> {
    let (role, mut text) = match &event.body {
        EventBody::MessageFinished { message } => {
            let texts = message.parts.iter().filter_map(|part| match part {
                Part::Text { text, .. } => Some(text.as_str()),
                Part::Media { name, .. } => Some(name.as_str()),
                _ => None,
            });
            let role = if message.role == Role::User { "user" } else { "assistant" };
            (role, texts.collect::<Vec<_>>().join("\n"))
        }
        EventBody::ToolCallStarted { call, .. } => {
            let mut words = call.name.clone();
            words_of(&call.arguments, &mut words);
            ("tool", words)
        }
        EventBody::ToolCallFinished { result, .. } => ("tool", result.joined_text()),
        _ => return None,
    };
    let mut end = text.len().min(SEARCHED_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    (!text.trim().is_empty()).then_some((role, text))
}

/// The texts in a JSON value.
fn words_of(value: &Value, words: &mut String) {
    match value {
        Value::String(text) => {
            words.push('\n');
            words.push_str(text);
        }
        Value::Array(values) => values.iter().for_each(|value| words_of(value, words)),
        Value::Object(values) => values.values().for_each(|value| words_of(value, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A row of the index that fits.
struct Place {
    log: String,
    seq: i64,
    at_ms: i64,
    role: String,
    score: f64,
}

impl Reader<'_> {
    pub(crate) fn search(&self, filter: &SearchFilter) -> Result<Found, ReadError> {
        let behind = behind(self.connection)?;
        let titles = self.titles(filter)?;
        let (offset, wanted) = (filter.offset as usize, filter.page_size as usize);
        let mut hits: Vec<Said> =
            titles.iter().skip(offset).take(wanted).map(|called| entitled(called, &filter.query)).collect();
        let mut more = titles.len() > offset + wanted;
        let Some(expression) = snippet::expression(&filter.query) else {
            return Ok(Found { hits, more, behind });
        };
        let mut places = self.places(&expression, filter)?;
        places.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.at_ms.cmp(&a.at_ms)));
        for place in places.into_iter().skip(offset.saturating_sub(titles.len())) {
            if hits.len() == wanted {
                more = true;
                break;
            }
            hits.extend(self.hit(place, filter)?);
        }
        Ok(Found { hits, more, behind })
    }

    /// Threads that are called so. Who looks in one thread knows what it is called.
    fn titles(&self, filter: &SearchFilter) -> Result<Vec<Called>, ReadError> {
        if filter.thread_id.is_some() {
            return Ok(Vec::new());
        }
        let mut conditions = "ephemeral = 0".to_owned();
        let mut values: Vec<Box<dyn rusqlite::ToSql>> = Vec::new();
        if let Some(project_id) = filter.project_id {
            values.push(Box::new(project_id.to_string()));
            conditions.push_str(
                " AND (project_id = ?1 OR project_id IN (SELECT project_id FROM projects WHERE joined = ?1))",
            );
        }
        if !filter.include_archived {
            conditions.push_str(" AND archived = 0");
        }
        self.called(&filter.query, &conditions, &values)
    }

    fn places(&self, expression: &str, filter: &SearchFilter) -> Result<Vec<Place>, ReadError> {
        // The logs that hold the events of one thread, and how far.
        let logs: Vec<(String, i64)> = match filter.thread_id {
            Some(thread_id) => crate::lineage::segments(self.connection, thread_id, Seq::ZERO)?
                .into_iter()
                .map(|it| (it.log.to_string(), i64::try_from(it.upto.get()).unwrap_or(i64::MAX)))
                .collect(),
            None => Vec::new(),
        };
        let project = filter.project_id.map(|id| id.to_string());
        let mut statement = self.connection.prepare_cached(
            "SELECT said_at.thread_id, said_at.seq, said_at.at, said_at.role, -bm25(said)
             FROM said JOIN said_at ON said_at.id = said.rowid
             LEFT JOIN threads ON threads.thread_id = said_at.thread_id
             WHERE said MATCH ?1
               AND (?2 = '' OR EXISTS (SELECT 1 FROM json_each(?2) AS log WHERE json_extract(log.value, '$[0]') = said_at.thread_id
                                       AND said_at.seq <= json_extract(log.value, '$[1]')))
               AND (threads.thread_id IS NULL OR ?3 OR threads.archived = 0)
               AND (?4 IS NULL OR threads.thread_id IS NULL OR threads.project_id = ?4
                    OR threads.project_id IN (SELECT project_id FROM projects WHERE joined = ?4))
             ORDER BY said.rowid DESC LIMIT ?5",
        )?;
        let logs = if logs.is_empty() { String::new() } else { serde_json::to_string(&logs).unwrap_or_default() };
        let rows = statement.query_map(
            params![expression, logs, filter.include_archived || !logs.is_empty(), project, RANKED_MAX],
            |row| {
                Ok(Place {
                    log: row.get(0)?,
                    seq: row.get(1)?,
                    at_ms: row.get(2)?,
                    role: row.get(3)?,
                    score: row.get(4)?,
                })
            },
        )?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What is shown of a place; `None` when its event can not be read, or is only in threads that are not asked for.
    fn hit(&self, place: Place, filter: &SearchFilter) -> Result<Option<Said>, ReadError> {
        let holder = match filter.thread_id {
            Some(thread_id) => Some(thread_id.to_string()),
            None => crate::lineage::holder(self.connection, &place.log, place.seq)?,
        };
        let (Some(thread_id), Ok(log)) = (holder.and_then(|id| id.parse().ok()), place.log.parse()) else {
            return Ok(None);
        };
        if place.log != ThreadId::to_string(&thread_id)
            && filter.thread_id.is_none()
            && !self.is_asked_for(thread_id, filter)?
        {
            return Ok(None);
        }
        let Some(event) = self.event_of_log(log, place.seq)? else { return Ok(None) };
        let Some((_, text)) = text_of(&event) else { return Ok(None) };
        let snippet = snippet::around(&text, &filter.query);
        let seq = Seq::new(u64::try_from(place.seq).unwrap_or(0));
        Ok(Some(Said { thread_id, seq, at_ms: place.at_ms, role: place.role, snippet, score: place.score }))
    }

    /// Whether a fork whose shared beginning fits is one that the filter means.
    fn is_asked_for(&self, thread_id: ThreadId, filter: &SearchFilter) -> Result<bool, ReadError> {
        let Some(row) = self.thread(thread_id)? else { return Ok(false) };
        let project = match filter.project_id {
            None => true,
            Some(wanted) => self.project(row.project_id)?.is_some_and(|project| project.project_id == wanted),
        };
        Ok(project && (filter.include_archived || !row.archived))
    }

    fn event_of_log(&self, log: ThreadId, seq: i64) -> Result<Option<Event>, ReadError> {
        let row = self
            .connection
            .prepare_cached(&format!("SELECT {} FROM events WHERE thread_id = ?1 AND seq = ?2", crate::row::COLUMNS))?
            .query_row(params![log.to_string(), seq], crate::row::EventRow::read)
            .optional()?;
        let expected = Seq::new(u64::try_from(seq).unwrap_or(0));
        Ok(row.and_then(|row| row.decode(log, expected, self.blobs).ok()).map(|(event, _)| event))
    }
}

/// A thread that is found by what it is called, before all that was said.
fn entitled(called: &Called, query: &str) -> Said {
    Said {
        thread_id: called.thread_id,
        seq: Seq::ZERO,
        at_ms: called.at_ms,
        role: "title".to_owned(),
        snippet: crate::titles::marked(&called.line, query),
        score: TITLE_SCORE + f64::from(called.score),
    }
}

fn behind(connection: &Connection) -> rusqlite::Result<u64> {
    let count: i64 = connection.prepare_cached("SELECT count(*) FROM unsearched")?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}
