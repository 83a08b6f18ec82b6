//! Reading, beside the writer and never waiting for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mcode_events::ForkPoint;
use mcode_ids::{RequestId, RunId, Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::StoredResponse;
use crate::blobs::BlobFiles;
use crate::error::{ReadError, StoreError};
use crate::projection::{Page, RunRow, ThreadFilter, ThreadRow};

/// Idle connections that are kept.
const IDLE_MAX: usize = 2;

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

    pub(crate) fn database(&self) -> &std::path::Path {
        &self.database
    }

    /// The file of what was written last.
    pub(crate) fn wal(&self) -> PathBuf {
        let mut name = self.database.clone().into_os_string();
        name.push("-wal");
        name.into()
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
    pub(crate) blobs: &'a BlobFiles,
}

impl Reader<'_> {
    pub(crate) fn thread(&self, thread_id: ThreadId) -> Result<Option<ThreadRow>, ReadError> {
        let row = self
            .connection
            .prepare_cached(&format!("SELECT {THREAD_COLUMNS} FROM threads WHERE thread_id = ?1"))?
            .query_row([thread_id.to_string()], thread_row)
            .optional()?;
        Ok(row)
    }

    pub(crate) fn threads(&self, filter: &ThreadFilter) -> Result<Page<ThreadRow>, ReadError> {
        if !filter.query.is_empty() {
            return self.threads_called(filter);
        }
        let before = match &filter.page_token {
            Some(token) => split_token(token)?,
            None => (1, i64::MAX, String::new()),
        };
        let first = if filter.by_activity { "updated_at" } else { "pinned" };
        let mut conditions = if filter.by_activity {
            "(updated_at, thread_id) < (?2, ?3) AND ?1 = ?1"
        } else {
            "(pinned, updated_at, thread_id) < (?1, ?2, ?3)"
        }
        .to_owned();
        conditions.push_str(" AND ephemeral = 0");
        let mut values: Vec<Box<dyn rusqlite::ToSql>> =
            vec![Box::new(before.0), Box::new(before.1), Box::new(before.2), Box::new(i64::from(filter.page_size) + 1)];
        narrow(filter, &mut conditions, &mut values);
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {THREAD_COLUMNS} FROM threads WHERE {conditions}
             ORDER BY {first} DESC, updated_at DESC, thread_id DESC LIMIT ?4"
        ))?;
        let rows = statement
            .query_map(rusqlite::params_from_iter(values), thread_row)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let token = |row: &ThreadRow| format!("{}:{}:{}", u8::from(row.pinned), row.updated_at_ms, row.thread_id);
        Ok(page(rows, filter.page_size, token))
    }

    /// Threads by what they are called. A page begins after so many of them.
    fn threads_called(&self, filter: &ThreadFilter) -> Result<Page<ThreadRow>, ReadError> {
        let offset = match &filter.page_token {
            None => 0,
            Some(token) => {
                token.parse().map_err(|_| ReadError::BadPageToken(token.chars().take(80).collect::<String>()))?
            }
        };
        let (mut conditions, mut values) = ("ephemeral = 0".to_owned(), Vec::new());
        narrow(filter, &mut conditions, &mut values);
        let called = self.called(&filter.query, &conditions, &values)?;
        let next = offset + filter.page_size as usize;
        let shown = called.iter().skip(offset).take(filter.page_size as usize);
        let rows = shown.map(|called| self.thread(called.thread_id)).collect::<Result<Vec<_>, _>>()?;
        let next = (called.len() > next).then(|| next.to_string());
        Ok(Page { rows: rows.into_iter().flatten().collect(), next })
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
}

/// Adds what a list is narrowed by: which of the filters are there decides which index is used.
fn narrow(filter: &ThreadFilter, conditions: &mut String, values: &mut Vec<Box<dyn rusqlite::ToSql>>) {
    let mut add = |condition: &str, value: Option<String>| {
        if let Some(value) = value {
            values.push(Box::new(value));
            conditions.push_str(&condition.replace('?', &format!("?{}", values.len())));
        }
    };
    let of_project = " AND (project_id = ? OR project_id IN (SELECT project_id FROM projects WHERE joined = ?))";
    add(of_project, filter.project_id.map(|id| id.to_string()));
    add(" AND root = ?", filter.root.clone());
    add(" AND parent = ?", filter.parent.map(|id| id.to_string()));
    add(" AND EXISTS (SELECT 1 FROM json_each(tags) AS tag WHERE tag.value = ?)", filter.tag.clone());
    if !filter.include_archived {
        conditions.push_str(" AND archived = 0");
    }
}

const THREAD_COLUMNS: &str = "thread_id, project_id, cwd, title, model, mode, activity, active_run, archived, ephemeral, \
                              unfinished, created_at, updated_at, last_seq, usage, root, pinned, tags, preview, parent, \
                              parent_seq";

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
        root: row.get(15)?,
        pinned: row.get(16)?,
        tags: serde_json::from_str(&row.get::<_, String>(17)?).unwrap_or_default(),
        preview: row.get(18)?,
        forked: match row.get::<_, Option<String>>(19)?.and_then(|id| id.parse().ok()) {
            Some(parent_id) => {
                Some(ForkPoint { parent_id, seq: Seq::new(u64::try_from(row.get::<_, i64>(20)?).unwrap_or(0)) })
            }
            None => None,
        },
    })
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let record: String = row.get(1)?;
    let record = serde_json::from_str(&record)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error)))?;
    Ok(RunRow { thread_id: parsed(row, 0)?, record })
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

fn split_token(token: &str) -> Result<(i64, i64, String), ReadError> {
    let mut parts = token.splitn(3, ':');
    (|| Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.to_owned())))()
        .ok_or_else(|| ReadError::BadPageToken(token.chars().take(80).collect()))
}
