//! Whether everything that is kept is whole.
//!
//! Each look is a short read beside the writer; nothing is changed. What is told is bounded, what is wrong beyond that is
//! counted.

use std::collections::BTreeSet;

use mcode_events::blob::{BlobError, Blobs};
use mcode_events::state::ThreadState;
use mcode_ids::{Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::Store;
use crate::care::logs;
use crate::error::ReadError;
use crate::projection::{RunRow, ThreadRow};
use crate::read::Reader;

/// Faults that are told; more are counted.
pub const FAULTS_TOLD_MAX: usize = 200;

/// Threads, bodies or files that are looked up in one read.
const AT_ONCE: u32 = 200;

/// Lines that SQLite may say about its file.
const DATABASE_LINES_MAX: u32 = 20;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The file of the database.
    Database,
    /// An event of a log.
    Event,
    /// A body beside the database.
    Body,
    /// What lists say of a thread.
    List,
    /// The index of what was said.
    Index,
}

impl FaultKind {
    /// Its name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Event => "event",
            Self::Body => "body",
            Self::List => "list",
            Self::Index => "index",
        }
    }
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What it is about.
    pub kind: FaultKind,
    /// The thread, where it is about one; of an event the thread whose log holds it.
    pub thread_id: Option<ThreadId>,
    /// The event, where it is about one.
    pub seq: Option<Seq>,
    /// What is wrong.
    pub what: String,
}

/// What a look through everything found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Check {
    /// Threads that were looked through.
    pub threads: u64,
    /// Events that were read.
    pub events: u64,
    /// Bodies that were read.
    pub bodies: u64,
    /// What is wrong, at most [`FAULTS_TOLD_MAX`].
    pub faults: Vec<Fault>,
    /// How much more is wrong.
    pub more: u64,
    /// Bodies that nobody names.
    pub orphans: u64,
    /// Their size in bytes.
    pub orphan_bytes: u64,
    /// Events that were set aside by earlier mending.
    pub set_aside: u64,
}

impl Check {
    /// Whether nothing is wrong. Orphans take space and do no harm.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty()
    }

    fn add(&mut self, kind: FaultKind, thread_id: Option<ThreadId>, seq: Option<Seq>, what: impl Into<String>) {
        if self.faults.len() < FAULTS_TOLD_MAX {
            self.faults.push(Fault { kind, thread_id, seq, what: what.into() });
        } else {
            self.more += 1;
        }
    }
}

impl Store {
    /// Looks through everything that is kept.
    pub async fn check(&self) -> Result<Check, ReadError> {
        let mut check = Check::default();
        for line in self.anew(database).await? {
            let kind = if is_of_the_index(&line) { FaultKind::Index } else { FaultKind::Database };
            check.add(kind, None, None, line);
        }
        self.check_threads(&mut check).await?;
        for log in self.readers.run(|reader| Ok(logs::left_behind(reader.connection)?)).await? {
            self.check_log(log, &mut check).await?;
        }
        if let Some(what) = self.bodies().await?.absent() {
            check.add(FaultKind::Body, None, None, what);
        }
        self.check_bodies(&mut check).await?;
        for orphan in self.orphans().await? {
            check.orphans += 1;
            check.orphan_bytes += orphan.bytes;
        }
        for (thread, what) in self.anew(index).await? {
            check.add(FaultKind::Index, thread.parse().ok(), None, what);
        }
        check.set_aside = self.readers.run(|reader| Ok(set_aside(reader.connection)?)).await?;
        Ok(check)
    }

    /// Looks with a connection that was never used: one that has searched compares what is there now with what it remembers
    /// of the index, and takes each change since for damage.
    pub(crate) async fn anew<T: Send + 'static>(
        &self,
        look: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ReadError> {
        let path = self.readers.database().to_path_buf();
        self.readers
            .run(move |_| {
                let connection = crate::schema::open_reader(&path).map_err(ReadError::Store)?;
                Ok(look(&connection)?)
            })
            .await
    }

    async fn check_threads(&self, check: &mut Check) -> Result<(), ReadError> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let ids =
                self.readers.run(move |reader| Ok(logs::threads_after(reader.connection, &from, AT_ONCE)?)).await?;
            let Some(last) = ids.last().cloned() else { return Ok(()) };
            after = last;
            for id in ids {
                let Ok(thread_id) = id.parse::<ThreadId>() else {
                    check.add(FaultKind::List, None, None, format!("'{id}' is not the id of a thread"));
                    continue;
                };
                check.threads += 1;
                let own = self.readers.run(move |reader| logs::own(reader, thread_id)).await?;
                if let Some(log) = own {
                    self.check_log(log, check).await?;
                }
                for what in self.readers.run(move |reader| lists(reader, thread_id)).await? {
                    check.add(FaultKind::List, Some(thread_id), None, what);
                }
            }
        }
    }

    async fn check_log(&self, log: logs::Log, check: &mut Check) -> Result<(), ReadError> {
        let mut reached = log.after;
        while reached < log.upto {
            let part = self.readers.run(move |reader| logs::part(reader, log, reached)).await?;
            if part.events == 0 {
                break;
            }
            reached = part.reached;
            check.events += part.events;
            for damage in part.damage {
                check.add(FaultKind::Event, Some(log.log), Some(damage.seq), damage.what);
            }
        }
        Ok(())
    }

    async fn check_bodies(&self, check: &mut Check) -> Result<(), ReadError> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let looked = self.readers.run(move |reader| bodies(reader, &from)).await?;
            let Some((last, _)) = looked.last() else { return Ok(()) };
            after.clone_from(last);
            for (hash, fault) in looked {
                check.bodies += 1;
                if let Some((thread, what)) = fault {
                    let what = format!("body {}: {what}", hash.get(..12).unwrap_or(&hash));
                    check.add(FaultKind::Body, thread.parse().ok(), None, what);
                }
            }
        }
    }
}

/// What SQLite says about its file; nothing when it is whole.
pub(crate) fn database(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA quick_check({DATABASE_LINES_MAX})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>();
    match lines {
        Ok(lines) => Ok(lines.into_iter().filter(|line| line != "ok").collect()),
        // So damaged that the look itself fails.
        Err(error) if crate::log::is_damage(&error) => Ok(vec![error.to_string()]),
        Err(error) => Err(error),
    }
}

/// Whether a line of [`database`] is about the index of what was said, which is made from the log.
pub(crate) fn is_of_the_index(line: &str) -> bool {
    line.contains("fts5") || line.contains("\"said\"")
}

/// A body with what is wrong with it and one thread that names it.
type Body = (String, Option<(String, String)>);

/// Looks at the bodies after one, in the order of their hashes.
fn bodies(reader: &Reader<'_>, after: &str) -> Result<Vec<Body>, ReadError> {
    let mut statement = reader.connection.prepare_cached(
        "SELECT hash, min(thread_id) FROM named WHERE hash > ?1 GROUP BY hash ORDER BY hash LIMIT ?2",
    )?;
    let rows = statement.query_map(params![after, AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.map(|row| {
        let (hash, thread): (String, String) = row?;
        let what = match reader.blobs.get(&hash) {
            Ok(_) => None,
            Err(BlobError::Missing(_)) => Some("it is not in the store any more".to_owned()),
            Err(BlobError::Damaged(_)) => Some("its content is not what it was".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        Ok((hash, what.map(|what| (thread, what))))
    })
    .collect()
}

/// In which ways the rows of a thread are not what its log says; nothing when its log is damaged, which is told itself.
pub(crate) fn lists(reader: &Reader<'_>, thread_id: ThreadId) -> Result<Vec<String>, ReadError> {
    // One moment for all of it: the thread may be at work.
    let moment = reader.connection.unchecked_transaction()?;
    let mut wrong = Vec::new();
    if let (Some(row), Some(state)) = (reader.thread(thread_id)?, logs::whole(reader, thread_id)?) {
        match ThreadRow::of(&state) {
            None => wrong.push("its log does not begin with its creation".to_owned()),
            Some(made) => wrong.extend(differences(&row, &made)),
        }
        wrong.extend(runs(reader, &state)?);
        wrong.extend(pending(reader.connection, &state)?);
        if crate::usage::differs(reader.connection, &thread_id.to_string())? {
            wrong.push("its costs are not those of its log".to_owned());
        }
    }
    if let Some(reach) = reader.reach(thread_id)?.filter(|reach| reach.known > reach.last) {
        wrong.push(format!("lists show {} events, its log has {}", reach.known, reach.last));
    }
    let beyond = beyond(reader, thread_id)?;
    if beyond > 0 {
        wrong.push(format!("its log goes on behind its end, by {beyond} events"));
    }
    drop(moment);
    Ok(wrong)
}

fn differences(row: &ThreadRow, made: &ThreadRow) -> Vec<String> {
    // What an old log does not say was found out otherwise.
    let root = if made.root.is_empty() { row.root.clone() } else { made.root.clone() };
    let made = ThreadRow { root, ..made.clone() };
    if *row == made {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    let mut compare = |name: &str, same: bool| {
        if !same {
            wrong.push(name.to_owned());
        }
    };
    compare("title", row.title == made.title);
    compare("activity", row.activity == made.activity && row.active_run == made.active_run);
    compare("cost", row.usage == made.usage);
    compare("time", row.updated_at_ms == made.updated_at_ms && row.created_at_ms == made.created_at_ms);
    compare("length", row.last_seq == made.last_seq);
    if wrong.is_empty() {
        wrong.push("row".to_owned());
    }
    vec![format!("lists show another {} than its log says", wrong.join(", "))]
}

/// Runs that began in the thread's own log.
pub(crate) fn own_runs(connection: &Connection, thread: &str) -> rusqlite::Result<BTreeSet<String>> {
    connection
        .prepare_cached(
            "SELECT run_id FROM events WHERE thread_id = ?1 AND kind = 'run_started' AND run_id IS NOT NULL",
        )?
        .query_map([thread], |row| row.get(0))?
        .collect()
}

fn runs(reader: &Reader<'_>, state: &ThreadState) -> Result<Option<String>, ReadError> {
    let thread = state.thread_id.to_string();
    let mut statement =
        reader.connection.prepare_cached("SELECT run_id, record, active FROM runs WHERE thread_id = ?1")?;
    let rows = statement
        .query_map([&thread], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<rusqlite::Result<std::collections::BTreeMap<String, (String, bool)>>>()?;
    let mut made = std::collections::BTreeMap::new();
    for row in own_run_rows(reader.connection, state)? {
        let record = serde_json::to_string(&row.record).unwrap_or_default();
        made.insert(row.record.run_id.to_string(), (record, row.record.ended_at_ms.is_none()));
    }
    let same =
        rows.len() == made.len() && made.iter().all(|(id, made)| rows.get(id).is_some_and(|row| same(row, made)));
    Ok((!same).then(|| "its runs are not those of its log".to_owned()))
}

/// An older version may have written a record with fewer fields, and that of a run at work is written at times only.
fn same(row: &(String, bool), made: &(String, bool)) -> bool {
    let read = |text: &str| serde_json::from_str::<mcode_events::run::RunRecord>(text).ok();
    row.1 == made.1 && (row.1 || row.0 == made.0 || read(&row.0).is_some_and(|record| Some(record) == read(&made.0)))
}

/// The rows of the runs that began in the thread's own log.
pub(crate) fn own_run_rows(connection: &Connection, state: &ThreadState) -> rusqlite::Result<Vec<RunRow>> {
    let own = own_runs(connection, &state.thread_id.to_string())?;
    let records = state.runs.iter().filter(|record| own.contains(&record.run_id.to_string()));
    Ok(records.map(|record| RunRow { thread_id: state.thread_id, record: record.clone() }).collect())
}

/// What waits for an answer, as a fold says.
pub(crate) fn waiting(state: &ThreadState) -> BTreeSet<String> {
    let approvals = state.open.approvals.keys().map(ToString::to_string);
    approvals.chain(state.open.questions.keys().map(ToString::to_string)).collect()
}

fn pending(connection: &Connection, state: &ThreadState) -> rusqlite::Result<Option<String>> {
    let rows: BTreeSet<String> = connection
        .prepare_cached("SELECT id FROM pending WHERE thread_id = ?1")?
        .query_map([state.thread_id.to_string()], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok((rows != waiting(state)).then(|| "what waits for an answer is not what its log says".to_owned()))
}

/// Events behind the end that the thread's row knows.
fn beyond(reader: &Reader<'_>, thread_id: ThreadId) -> rusqlite::Result<i64> {
    reader
        .connection
        .prepare_cached(
            "SELECT count(*) FROM events WHERE thread_id = ?1
             AND seq > (SELECT last_seq FROM threads WHERE thread_id = ?1)",
        )?
        .query_row([thread_id.to_string()], |row| row.get(0))
}

/// Where the index is ahead of the logs, or not of one piece.
pub(crate) fn index(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut wrong = connection
        .prepare_cached(
            "SELECT s.thread_id, 'the index of what was said is ahead of the log' FROM searched s
             JOIN threads t ON t.thread_id = s.thread_id WHERE s.seq > t.last_seq
             UNION ALL
             SELECT a.thread_id, 'the index of what was said holds what was not looked through' FROM
                 (SELECT thread_id, max(seq) AS seq FROM said_at GROUP BY thread_id) a
             WHERE a.seq > coalesce((SELECT s.seq FROM searched s WHERE s.thread_id = a.thread_id), 0)
             LIMIT ?1",
        )?
        .query_map([AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let count =
        |sql: &str| -> rusqlite::Result<i64> { connection.prepare_cached(sql)?.query_row([], |row| row.get(0)) };
    if count("SELECT count(*) FROM said_docsize")? != count("SELECT count(*) FROM said_at")? {
        wrong.push((String::new(), "the index of what was said and its places do not fit together".to_owned()));
    }
    Ok(wrong)
}

fn set_aside(connection: &Connection) -> rusqlite::Result<u64> {
    let count: Option<i64> = connection
        .prepare_cached("SELECT count(*) FROM quarantine WHERE seq > 0")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
}
