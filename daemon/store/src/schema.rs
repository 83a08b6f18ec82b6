//! The tables, and how an older database becomes a current one.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::blobs::BlobFiles;
use crate::error::StoreError;

/// One step per schema version; step `n` takes version `n` to `n + 1`. Never edited once released.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE events (
    thread_id TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    version   INTEGER NOT NULL,
    run_id    TEXT,
    turn_id   TEXT,
    spilled   INTEGER NOT NULL,
    payload   TEXT NOT NULL,
    checksum  INTEGER NOT NULL,
    PRIMARY KEY (thread_id, seq)
) WITHOUT ROWID;
CREATE TABLE threads (
    thread_id  TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    cwd        TEXT NOT NULL,
    title      TEXT NOT NULL,
    model      TEXT NOT NULL,
    mode       TEXT NOT NULL,
    activity   TEXT NOT NULL,
    active_run TEXT,
    archived   INTEGER NOT NULL,
    ephemeral  INTEGER NOT NULL,
    unfinished INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    usage      TEXT NOT NULL
);
CREATE INDEX threads_by_activity ON threads (updated_at DESC, thread_id DESC);
CREATE INDEX threads_by_project ON threads (project_id, updated_at DESC, thread_id DESC);
CREATE INDEX threads_unfinished ON threads (thread_id) WHERE unfinished = 1;
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    thread_id  TEXT NOT NULL,
    active     INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    record     TEXT NOT NULL
);
CREATE INDEX runs_by_thread ON runs (thread_id, run_id DESC);
CREATE INDEX runs_active ON runs (run_id DESC) WHERE active = 1;
CREATE TABLE pending (
    id        TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL
);
CREATE TABLE spending (
    at        INTEGER NOT NULL,
    thread_id TEXT NOT NULL,
    cost_usd  REAL NOT NULL
);
CREATE INDEX spending_by_time ON spending (at);
CREATE TABLE requests (
    request_id  TEXT PRIMARY KEY,
    at          INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    response    TEXT NOT NULL
);
CREATE INDEX requests_by_time ON requests (at);
CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    root       TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
",
    "
CREATE TABLE grants (
    grant_id   TEXT PRIMARY KEY,
    rule       TEXT NOT NULL,
    thread_id  TEXT,
    root       TEXT,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    given_by   TEXT NOT NULL
);
CREATE TABLE trust (
    root        TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    items       TEXT NOT NULL,
    at          INTEGER NOT NULL,
    given_by    TEXT NOT NULL
);
CREATE TABLE audit (
    n         INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    thread_id TEXT,
    previous  TEXT NOT NULL,
    entry     TEXT NOT NULL,
    hash      TEXT NOT NULL
);
CREATE INDEX audit_by_thread ON audit (thread_id, n DESC);
CREATE TABLE audit_base (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    n    INTEGER NOT NULL,
    hash TEXT NOT NULL
);
",
    // `naming` says how far the events that were there before have been looked through; `named::fill` does it.
    "
CREATE TABLE named (
    hash      TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    times     INTEGER NOT NULL,
    PRIMARY KEY (hash, thread_id)
) WITHOUT ROWID;
CREATE INDEX named_by_thread ON named (thread_id);
CREATE TABLE naming (
    thread_id TEXT NOT NULL,
    seq       INTEGER NOT NULL
);
INSERT INTO naming SELECT '', 0 WHERE EXISTS (SELECT 1 FROM events);
",
    // Takes the place of `spending`, which stays empty; `usage::fill` moves what is there.
    "
CREATE TABLE usage (
    thread_id          TEXT NOT NULL,
    seq                INTEGER NOT NULL,
    at                 INTEGER NOT NULL,
    project_id         TEXT NOT NULL,
    run_id             TEXT NOT NULL,
    goal_id            TEXT NOT NULL,
    model              TEXT NOT NULL,
    provider           TEXT NOT NULL,
    purpose            TEXT NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cache_read_tokens  INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens   INTEGER NOT NULL,
    cost_nanos         INTEGER NOT NULL,
    priced             INTEGER NOT NULL,
    PRIMARY KEY (thread_id, seq)
) WITHOUT ROWID;
CREATE INDEX usage_by_time ON usage (at);
CREATE INDEX usage_by_goal ON usage (goal_id) WHERE goal_id <> '';
",
    // Threads that share their beginnings, what lists show of a thread, projects that are known by more than their
    // folder, and the index of what was said, which is filled in the background.
    "
CREATE TABLE lineage (
    thread_id TEXT NOT NULL,
    upto      INTEGER NOT NULL,
    log       TEXT NOT NULL,
    PRIMARY KEY (thread_id, upto)
) WITHOUT ROWID;
CREATE INDEX lineage_by_log ON lineage (log, upto);
ALTER TABLE threads ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE threads ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE threads ADD COLUMN preview TEXT NOT NULL DEFAULT '';
ALTER TABLE threads ADD COLUMN parent TEXT;
ALTER TABLE threads ADD COLUMN parent_seq INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET root = COALESCE((SELECT root FROM projects WHERE projects.project_id = threads.project_id), '');
DROP INDEX threads_by_activity;
DROP INDEX threads_by_project;
CREATE INDEX threads_by_activity ON threads (pinned DESC, updated_at DESC, thread_id DESC);
CREATE INDEX threads_by_project ON threads (project_id, pinned DESC, updated_at DESC, thread_id DESC);
CREATE INDEX threads_by_time ON threads (updated_at DESC, thread_id DESC);
CREATE INDEX threads_by_root ON threads (root, updated_at DESC);
CREATE INDEX threads_by_parent ON threads (parent, thread_id DESC) WHERE parent IS NOT NULL;
ALTER TABLE projects RENAME TO projects_by_root;
CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    root       TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    joined     TEXT
);
INSERT INTO projects SELECT project_id, root, name, created_at, NULL FROM projects_by_root;
CREATE TABLE identities (
    identity   TEXT PRIMARY KEY,
    project_id TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO identities SELECT 'path:' || root, project_id FROM projects_by_root;
CREATE TABLE roots (
    root       TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    folder     TEXT NOT NULL,
    resource   TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO roots SELECT root, project_id, '', '' FROM projects_by_root;
CREATE INDEX roots_by_folder ON roots (folder) WHERE folder <> '';
DROP TABLE projects_by_root;
CREATE VIRTUAL TABLE said USING fts5(text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
CREATE TABLE said_at (
    id        INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    role      TEXT NOT NULL
);
CREATE INDEX said_by_thread ON said_at (thread_id, seq);
CREATE TABLE searched (
    thread_id TEXT PRIMARY KEY,
    seq       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE unsearched (thread_id TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO unsearched SELECT thread_id FROM threads WHERE ephemeral = 0;
",
    // What was damaged and is set aside: columns without a type take whatever there was. A lost body has the number 0.
    "
CREATE TABLE quarantine (
    n         INTEGER PRIMARY KEY,
    moved_at  INTEGER NOT NULL,
    what      TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    at, kind, version, run_id, turn_id, spilled, payload, checksum
);
CREATE INDEX quarantine_by_thread ON quarantine (thread_id, seq);
",
    // Threads that came from elsewhere: as what they are known there, in which state, and which of their events were not
    // made here. A log in `staged` is not whole yet and belongs to no thread.
    "
CREATE TABLE imports (
    thread_id TEXT PRIMARY KEY,
    key       TEXT NOT NULL,
    state     TEXT NOT NULL,
    at        INTEGER NOT NULL,
    upto      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX imports_by_key ON imports (key, at DESC);
CREATE TABLE staged (
    thread_id TEXT PRIMARY KEY,
    reached   INTEGER NOT NULL
) WITHOUT ROWID;
",
    // Logs of deleted threads that go a little at a time, and since when a policy of what is kept would delete something.
    "
CREATE TABLE leaving (thread_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE retention (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    policy TEXT NOT NULL,
    since  INTEGER NOT NULL
);
",
    // Plans are found in the log itself.
    "
CREATE INDEX plans_by_time ON events (at DESC, thread_id DESC, seq DESC) WHERE kind = 'plan_submitted';
CREATE INDEX plans_settled ON events (thread_id, seq) WHERE kind = 'plan_settled';
",
];

/// The schema version that first had the table of usage.
const USAGE_SINCE: i64 = 4;

/// Opens the database for writing and brings its schema up to date.
pub(crate) fn open(path: &Path, blobs: &BlobFiles) -> Result<Connection, StoreError> {
    let mut connection = Connection::open(path)?;
    settings(&connection)?;
    // Of an empty database only; an older one is changed by `care::space`.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    // What is deleted is overwritten, and does not stay readable in the file.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    migrate(&mut connection, path)?;
    crate::care::space::make_able(&connection)?;
    crate::named::fill(&mut connection, blobs)?;
    Ok(connection)
}

/// Opens the database for reading alone.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    settings(&connection)?;
    Ok(connection)
}

fn settings(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Whether a database that came from elsewhere has a version that is known, with the tables of that version and nothing
/// else: no trigger and no view that would act when it is written to.
pub(crate) fn expect_own(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(StoreError::TooNew { path: path.to_path_buf(), found, known });
    }
    let own = Connection::open_in_memory()?;
    for step in MIGRATIONS.iter().take(usize::try_from(found).unwrap_or(0)) {
        own.execute_batch(step)?;
    }
    if found < 1 || objects(connection)? != objects(&own)? {
        return Err(StoreError::Undone("its database is not one of mcode".to_owned()));
    }
    Ok(())
}

/// Everything that a schema holds, by kind, name and text.
fn objects(connection: &Connection) -> rusqlite::Result<Vec<(String, String, String)>> {
    connection
        .prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(StoreError::TooNew { path: path.to_path_buf(), found, known });
    }
    if found == known {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    if found < USAGE_SINCE {
        crate::usage::fill(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests;
