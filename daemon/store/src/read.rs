//! Reading, beside the writer and never waiting for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mcode_events::event::Event;
use mcode_events::state::ThreadState;
use mcode_ids::{ProjectId, RequestId, RunId, Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::blobs::BlobFiles;
use crate::error::{Damage, ReadError, StoreError};
use crate::projection::{Page, ProjectRow, RunRow, ThreadFilter, ThreadRow};
use crate::row::{COLUMNS, EventRow};
use crate::{Loaded, StoredResponse};

/// Idle connections that are kept.
const IDLE_MAX: usize = 2;

/// Events that are read at once when a log is folded.
const FOLD_BATCH: u32 = 1000;

/// Payload that is read at once when a log is folded, in bytes.
const FOLD_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Connections for reading.
#[derive(Debug)]
pub(crate) struct Readers {
    database: PathBuf,
    blobs: Arc<BlobFiles>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(database: PathBuf, blobs: Arc<BlobFiles>) -> Self {
        Self { database, blobs, idle: Mutex::new(Vec::new()) }
    }

    /// Runs a read on a thread that may wait for the disk.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, read: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> Result<T, ReadError> + Send + 'static,
    {
        let readers = Arc::clone(self);
        tokio::task::spawn_blocking(move || readers.run_blocking(read))
            .await
            .map_err(|_| ReadError::Store(StoreError::Closed))?
    }

    fn run_blocking<T>(&self, read: impl FnOnce(&Reader<'_>) -> Result<T, ReadError>) -> Result<T, ReadError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => crate::schema::open_reader(&self.database)?,
        };
        let result = read(&Reader { connection: &connection, blobs: &self.blobs });
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        result
    }
}

/// One connection, for one read.
pub(crate) struct Reader<'a> {
    pub(crate) connection: &'a Connection,
    blobs: &'a BlobFiles,
}

impl Reader<'_> {
    pub(crate) fn events(
        &self,
        thread_id: ThreadId,
        after: Seq,
        max: u32,
        max_bytes: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let (events, damage) = self.events_until_damage(thread_id, after, max, max_bytes)?;
        match damage {
            Some(damage) if events.is_empty() => Err(damage.into()),
            _ => Ok(events),
        }
    }

    /// Events up to the limit or the first damaged one. The damage is told only when nothing before it is left.
    fn events_until_damage(
        &self,
        thread_id: ThreadId,
        after: Seq,
        max: u32,
        max_bytes: usize,
    ) -> Result<(Vec<Event>, Option<Damage>), ReadError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM events WHERE thread_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
        ))?;
        let after_number = i64::try_from(after.get()).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![thread_id.to_string(), after_number, max])?;
        let (mut events, mut bytes, mut expected) = (Vec::new(), 0usize, after.next());
        while bytes <= max_bytes {
            let row = match rows.next() {
                Ok(Some(row)) => EventRow::read(row),
                Ok(None) => break,
                Err(error) => Err(error),
            };
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    let damage = Damage { thread_id, seq: expected, what: format!("the row does not read: {error}") };
                    return Ok((events, Some(damage)));
                }
            };
            match row.decode(thread_id, expected, self.blobs) {
                Ok((event, size)) => {
                    bytes = bytes.saturating_add(size);
                    events.push(event);
                }
                Err(damage) => return Ok((events, Some(damage))),
            }
            expected = expected.next();
        }
        Ok((events, None))
    }

    pub(crate) fn load(&self, thread_id: ThreadId) -> Result<Option<Loaded>, ReadError> {
        let Some(row) = self.thread(thread_id)? else { return Ok(None) };
        let mut state = ThreadState::new(thread_id);
        loop {
            let (events, damage) = self.events_until_damage(thread_id, state.last_seq, FOLD_BATCH, FOLD_BATCH_BYTES)?;
            let done = events.is_empty();
            for event in &events {
                state.apply(event);
            }
            if damage.is_some() {
                return Ok(Some(Loaded { state, damage }));
            }
            if done {
                break;
            }
        }
        let damage = (state.last_seq < row.last_seq).then(|| Damage {
            thread_id,
            seq: state.last_seq.next(),
            what: format!("it is missing; the thread is known to reach {}", row.last_seq),
        });
        Ok(Some(Loaded { state, damage }))
    }

    pub(crate) fn thread(&self, thread_id: ThreadId) -> Result<Option<ThreadRow>, ReadError> {
        let row = self
            .connection
            .prepare_cached(&format!("SELECT {THREAD_COLUMNS} FROM threads WHERE thread_id = ?1"))?
            .query_row([thread_id.to_string()], thread_row)
            .optional()?;
        Ok(row)
    }

    pub(crate) fn threads(&self, filter: &ThreadFilter) -> Result<Page<ThreadRow>, ReadError> {
        let (before_time, before_id) = match &filter.page_token {
            Some(token) => split_token(token)?,
            None => (i64::MAX, String::new()),
        };
        let project = filter.project_id.map(|id| id.to_string());
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {THREAD_COLUMNS} FROM threads
             WHERE (?1 IS NULL OR project_id = ?1) AND (?2 OR archived = 0) AND ephemeral = 0
               AND (updated_at < ?3 OR (updated_at = ?3 AND thread_id < ?4))
             ORDER BY updated_at DESC, thread_id DESC LIMIT ?5"
        ))?;
        let limit = i64::from(filter.page_size) + 1;
        let rows = statement
            .query_map(params![project, filter.include_archived, before_time, before_id, limit], thread_row)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(page(rows, filter.page_size, |row| format!("{}:{}", row.updated_at_ms, row.thread_id)))
    }

    pub(crate) fn unfinished_threads(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.thread_ids("SELECT thread_id FROM threads WHERE unfinished = 1 OR activity <> 'idle'")
    }

    pub(crate) fn waiting_threads(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.thread_ids("SELECT DISTINCT thread_id FROM pending ORDER BY thread_id")
    }

    pub(crate) fn ephemeral_threads(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.thread_ids("SELECT thread_id FROM threads WHERE ephemeral = 1")
    }

    fn thread_ids(&self, sql: &str) -> Result<Vec<ThreadId>, ReadError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let ids = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    pub(crate) fn run(&self, run_id: RunId) -> Result<Option<RunRow>, ReadError> {
        let row = self
            .connection
            .prepare_cached("SELECT thread_id, record FROM runs WHERE run_id = ?1")?
            .query_row([run_id.to_string()], run_row)
            .optional()?;
        Ok(row)
    }

    pub(crate) fn runs(
        &self,
        thread_id: Option<ThreadId>,
        active_only: bool,
        page_size: u32,
        page_token: Option<&str>,
    ) -> Result<Page<RunRow>, ReadError> {
        // Run ids sort by time; '~' sorts after every id.
        let before = page_token.unwrap_or("~");
        let mut statement = self.connection.prepare_cached(
            "SELECT thread_id, record FROM runs
             WHERE (?1 IS NULL OR thread_id = ?1) AND (?2 = 0 OR active = 1) AND run_id < ?3
             ORDER BY run_id DESC LIMIT ?4",
        )?;
        let thread = thread_id.map(|id| id.to_string());
        let rows = statement
            .query_map(params![thread, active_only, before, i64::from(page_size) + 1], run_row)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(page(rows, page_size, |row| row.record.run_id.to_string()))
    }

    pub(crate) fn thread_of(&self, pending_id: &str) -> Result<Option<ThreadId>, ReadError> {
        let id: Option<String> = self
            .connection
            .prepare_cached("SELECT thread_id FROM pending WHERE id = ?1")?
            .query_row([pending_id], |row| row.get(0))
            .optional()?;
        Ok(id.and_then(|id| id.parse().ok()))
    }

    /// The thread of a tool call. It looks at every event, so it is for rare questions.
    pub(crate) fn thread_of_call(&self, tool_call_id: &str) -> Result<Option<ThreadId>, ReadError> {
        let id: Option<String> = self
            .connection
            .prepare_cached(
                "SELECT thread_id FROM events WHERE kind IN ('tool_call_started', 'process_started')
                 AND instr(payload, ?1) > 0 LIMIT 1",
            )?
            .query_row([format!("\"{tool_call_id}\"")], |row| row.get(0))
            .optional()?;
        Ok(id.and_then(|id| id.parse().ok()))
    }

    pub(crate) fn response_to(
        &self,
        request_id: &RequestId,
        since_ms: i64,
    ) -> Result<Option<StoredResponse>, ReadError> {
        let response = self
            .connection
            .prepare_cached("SELECT fingerprint, response FROM requests WHERE request_id = ?1 AND at >= ?2")?
            .query_row(params![request_id.as_str(), since_ms], |row| {
                Ok(StoredResponse { fingerprint: row.get(0)?, response: row.get(1)? })
            })
            .optional()?;
        Ok(response)
    }

    pub(crate) fn projects(&self, page_size: u32, page_token: Option<&str>) -> Result<Page<ProjectRow>, ReadError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT project_id, root, name, created_at FROM projects WHERE project_id < ?1 ORDER BY project_id DESC LIMIT ?2",
        )?;
        let rows = statement
            .query_map(params![page_token.unwrap_or("~"), i64::from(page_size) + 1], project_row)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(page(rows, page_size, |row| row.project_id.to_string()))
    }

    pub(crate) fn project(&self, project_id: ProjectId) -> Result<Option<ProjectRow>, ReadError> {
        let row = self
            .connection
            .prepare_cached("SELECT project_id, root, name, created_at FROM projects WHERE project_id = ?1")?
            .query_row([project_id.to_string()], project_row)
            .optional()?;
        Ok(row)
    }
}

const THREAD_COLUMNS: &str = "thread_id, project_id, cwd, title, model, mode, activity, active_run, archived, ephemeral, \
                              unfinished, created_at, updated_at, last_seq, usage";

fn thread_row(row: &Row<'_>) -> rusqlite::Result<ThreadRow> {
    Ok(ThreadRow {
        thread_id: parsed(row, 0)?,
        project_id: parsed(row, 1)?,
        cwd: row.get(2)?,
        title: row.get(3)?,
        model: row.get(4)?,
        mode: row.get(5)?,
        activity: row.get(6)?,
        active_run: row.get::<_, Option<String>>(7)?.and_then(|id| id.parse().ok()),
        archived: row.get(8)?,
        ephemeral: row.get(9)?,
        unfinished: row.get(10)?,
        created_at_ms: row.get(11)?,
        updated_at_ms: row.get(12)?,
        last_seq: Seq::new(u64::try_from(row.get::<_, i64>(13)?).unwrap_or(0)),
        usage: serde_json::from_str(&row.get::<_, String>(14)?).unwrap_or_default(),
    })
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let record: String = row.get(1)?;
    let record = serde_json::from_str(&record)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error)))?;
    Ok(RunRow { thread_id: parsed(row, 0)?, record })
}

pub(crate) fn project_row(row: &Row<'_>) -> rusqlite::Result<ProjectRow> {
    Ok(ProjectRow { project_id: parsed(row, 0)?, root: row.get(1)?, name: row.get(2)?, created_at_ms: row.get(3)? })
}

pub(crate) fn parsed<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get::<_, String>(column)?.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

pub(crate) fn page<T>(mut rows: Vec<T>, page_size: u32, token: impl Fn(&T) -> String) -> Page<T> {
    let more = rows.len() > page_size as usize;
    rows.truncate(page_size as usize);
    let next = if more { rows.last().map(token) } else { None };
    Page { rows, next }
}

fn split_token(token: &str) -> Result<(i64, String), ReadError> {
    token
        .split_once(':')
        .and_then(|(time, id)| Some((time.parse().ok()?, id.to_owned())))
        .ok_or_else(|| ReadError::BadPageToken(token.chars().take(80).collect()))
}
