//! Databases of others, opened so that nothing of them or beside them is written.
//!
//! A database that somebody works with is read as one of its readers, in short statements: in SQLite's WAL that holds up
//! nobody. One with a WAL that is at rest is read without any lock, since a lock would be a new file beside it; that
//! nobody has begun to work with it meanwhile is looked at when all was read. Where a crash left a log that nobody has
//! put in yet, database and log are copied, since putting it in would write.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{ForeignError, Maker, io};

/// How long a statement waits for a writer.
const BUSY: Duration = Duration::from_secs(2);

/// The largest database that is copied, in bytes.
const COPY_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// The longest value that is read, in bytes.
pub(crate) const VALUE_BYTES_MAX: i32 = 64 * 1024 * 1024;

/// A database of another agent.
pub(crate) struct Database {
    pub(crate) connection: Connection,
    maker: Maker,
    path: PathBuf,
    /// How it was, where nothing keeps it from being changed.
    unlocked: Option<State>,
    /// Holds the copy, if it is one.
    _copy: Option<tempfile::TempDir>,
}

impl Database {
    /// Opens the database; `tables` have to be tables of its own, so that reading one runs nothing else.
    pub(crate) fn open(path: &Path, maker: Maker, tables: &[&str]) -> Result<Self, ForeignError> {
        if !std::fs::metadata(path).map_err(io(path))?.is_file() {
            return Err(ForeignError::NotAFile(path.to_path_buf()));
        }
        let wrong = |error: rusqlite::Error| fault(path, maker, &error);
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let has_log = std::fs::metadata(beside("-wal")).is_ok_and(|log| log.len() > 0);
        let in_use = beside("-shm").exists();
        let state = State::of(path)?;
        let (connection, unlocked, copy) = match (has_log, in_use) {
            (false, _) if state.wal => (open(path, "mode=ro&immutable=1").map_err(wrong)?, Some(state), None),
            (false, _) => (open(path, "mode=ro").map_err(wrong)?, None, None),
            (true, true) => (open(path, "mode=ro&readonly_shm=1").map_err(wrong)?, None, None),
            (true, false) => {
                let copy = copied(path, &beside("-wal"))?;
                let name = copy.path().join("copy.db");
                (open(&name, "mode=rw").map_err(wrong)?, None, Some(copy))
            }
        };
        let database = Self { connection, maker, path: path.to_path_buf(), unlocked, _copy: copy };
        for table in tables {
            if !database.has_table(table)? {
                return Err(database.told(&format!("it has no table '{table}'")));
            }
        }
        Ok(database)
    }

    /// Fails when it was changed while nothing kept it from that: what was read may then be of two states.
    pub(crate) fn was_at_rest(&self) -> Result<(), ForeignError> {
        match &self.unlocked {
            Some(state) if *state != State::of(&self.path)? => {
                Err(self.told("somebody began to work with it while it was read; try again"))
            }
            _ => Ok(()),
        }
    }

    /// Whether there is such a table: none that is made of others when it is read.
    pub(crate) fn has_table(&self, name: &str) -> Result<bool, ForeignError> {
        let sql = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        let found = self.connection.query_row(sql, [name], |row| row.get::<_, Option<String>>(0)).optional();
        let found = found.map_err(|error| self.fault(&error))?.flatten();
        Ok(found.is_some_and(|sql| !sql.to_ascii_uppercase().trim_start().starts_with("CREATE VIRTUAL")))
    }

    pub(crate) fn fault(&self, error: &rusqlite::Error) -> ForeignError {
        fault(&self.path, self.maker, error)
    }

    fn told(&self, why: &str) -> ForeignError {
        ForeignError::Database { path: self.path.clone(), maker: self.maker.title(), why: why.to_owned() }
    }
}

/// What tells that a file was changed.
#[derive(Debug, PartialEq, Eq)]
struct State {
    bytes: u64,
    changed: Option<std::time::SystemTime>,
    /// Whether its changes go to a log beside it first.
    wal: bool,
}

impl State {
    fn of(path: &Path) -> Result<Self, ForeignError> {
        let mut file = std::fs::File::open(path).map_err(io(path))?;
        let metadata = file.metadata().map_err(io(path))?;
        let mut head = [0; 20];
        // One that is shorter is no database, and that is told when it is opened.
        let wal = file.read_exact(&mut head).is_ok() && head[18..] == [2, 2];
        Ok(Self { bytes: metadata.len(), changed: metadata.modified().ok(), wal })
    }
}

fn fault(path: &Path, maker: Maker, error: &rusqlite::Error) -> ForeignError {
    ForeignError::Database { path: path.to_path_buf(), maker: maker.title(), why: error.to_string() }
}

fn open(path: &Path, how: &str) -> rusqlite::Result<Connection> {
    let flags = match how {
        "mode=rw" => OpenFlags::SQLITE_OPEN_READ_WRITE,
        _ => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(address(path, how), flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    // What a file says of functions and views is not obeyed, and a wrong page is an error.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "query_only", true)?;
    // It is a database.
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    Ok(connection)
}

/// The address of a file, as SQLite reads it.
fn address(path: &Path, how: &str) -> String {
    let mut address = "file:".to_owned();
    let text = path.to_string_lossy().replace('\\', "/");
    // A drive has to follow a slash.
    if cfg!(windows) && !text.starts_with('/') {
        address.push('/');
    }
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_./:~".contains(&byte) {
            address.push(char::from(byte));
        } else {
            address.push_str(&format!("%{byte:02X}"));
        }
    }
    address.push('?');
    address + how
}

fn copied(path: &Path, log: &Path) -> Result<tempfile::TempDir, ForeignError> {
    let size = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.len()).map_err(io(path));
    if size(path)? + size(log)? > COPY_BYTES_MAX {
        let (what, max) = ("too many bytes", COPY_BYTES_MAX);
        return Err(ForeignError::TooLarge { path: path.to_path_buf(), what, max });
    }
    let dir = tempfile::Builder::new().prefix("mcode-import-").tempdir().map_err(io(path))?;
    std::fs::copy(path, dir.path().join("copy.db")).map_err(io(path))?;
    std::fs::copy(log, dir.path().join("copy.db-wal")).map_err(io(log))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(dir: &Path, mode: &str) -> (PathBuf, Connection) {
        let path = dir.join("a b%.db");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", mode).unwrap();
        connection.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        (path, connection)
    }

    fn sum(database: &Database) -> i64 {
        database.connection.query_row("SELECT SUM(x) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn one_without_a_log_is_read_as_a_reader_beside_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = made(dir.path(), "DELETE");
        writer.execute_batch("BEGIN IMMEDIATE; UPDATE t SET x = 2").unwrap();
        let database = Database::open(&path, Maker::Codex, &["t"]).unwrap();
        assert_eq!(sum(&database), 1);
        writer.execute_batch("COMMIT").unwrap();
        assert_eq!(sum(&database), 2);
        database.was_at_rest().unwrap();
    }

    #[test]
    fn one_that_is_taken_up_meanwhile_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = made(dir.path(), "WAL");
        drop(writer);
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names(), 1);
        let database = Database::open(&path, Maker::Codex, &["t"]).unwrap();
        assert_eq!((sum(&database), names()), (1, 1));
        database.was_at_rest().unwrap();
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) INSERT INTO t SELECT i FROM n").unwrap();
        drop(writer);
        let error = database.was_at_rest().unwrap_err().to_string();
        assert!(error.contains("somebody began to work with it"), "{error}");
    }

    #[test]
    fn nothing_can_be_written_through_it() {
        let dir = tempfile::tempdir().unwrap();
        for mode in ["DELETE", "WAL"] {
            let folder = dir.path().join(mode);
            std::fs::create_dir(&folder).unwrap();
            let (path, writer) = made(&folder, mode);
            drop(writer);
            let database = Database::open(&path, Maker::Codex, &["t"]).unwrap();
            assert!(database.connection.execute_batch("INSERT INTO t VALUES (2)").is_err());
        }
    }
}
