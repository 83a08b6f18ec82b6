//! The database: tables `session`, `message`, `part`, and `session_message` of newer versions.

use std::path::Path;

use serde_json::{Value, json};

use super::{MESSAGES_MAX, Whole, messages};
use crate::foreign::builder::Builder;
use crate::foreign::database::Database;
use crate::foreign::places::files_below;
use crate::foreign::{Discovery, FOUND_MAX, ForeignError, Found, Maker, title_of};

/// The most databases that are looked at: one for each channel of releases.
const DATABASES_MAX: usize = 20;

pub(super) fn discover(folder: &Path) -> Discovery {
    let mut discovery = Discovery::default();
    let wanted = |name: &str| name.starts_with("opencode") && name.ends_with(".db");
    for path in files_below(folder, 0, DATABASES_MAX, &wanted, &mut discovery.problems) {
        match listed(&path) {
            Ok(found) => discovery.found.extend(found),
            Err(error) => discovery.problems.push(error.to_string()),
        }
    }
    discovery
}

fn listed(path: &Path) -> Result<Vec<Found>, ForeignError> {
    let database = Database::open(path, Maker::Opencode, &["session"])?;
    let mut counts = Vec::new();
    for table in ["message", "session_message"] {
        if database.has_table(table)? {
            counts.push(format!("(SELECT COUNT(*) FROM {table} WHERE session_id = session.id)"));
        }
    }
    let count = if counts.is_empty() { "0".to_owned() } else { format!("MAX({}, 0)", counts.join(", ")) };
    let sql = format!(
        "SELECT id, title, directory, time_updated, {count} AS messages FROM session
         WHERE parent_id IS NULL ORDER BY time_updated DESC LIMIT ?1"
    );
    let read = || -> rusqlite::Result<Vec<Found>> {
        let mut statement = database.connection.prepare(&sql)?;
        let rows = statement.query_map([FOUND_MAX as i64 + 1], |row| {
            Ok(Found {
                maker: Maker::Opencode,
                id: row.get(0)?,
                title: title_of(&row.get::<_, Option<String>>(1)?.unwrap_or_default()),
                cwd: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                updated_at_ms: row.get::<_, Option<i64>>(3)?.unwrap_or(0),
                messages: row.get::<_, Option<i64>>(4)?.and_then(|count| u64::try_from(count).ok()),
                path: path.to_path_buf(),
            })
        })?;
        rows.filter(|found| found.as_ref().map_or(true, |found| found.messages != Some(0))).collect()
    };
    let found = read().map_err(|error| database.fault(&error))?;
    database.was_at_rest().map(|()| found)
}

pub(super) fn read(found: &Found, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let database = Database::open(&found.path, Maker::Opencode, &["session"])?;
    let fault = |error: rusqlite::Error| database.fault(&error);
    let sql = "SELECT title, directory, revert FROM session WHERE id = ?1";
    let session = database.connection.query_row(sql, [&found.id], |row| {
        Ok(json!({
            "title": row.get::<_, Option<String>>(0)?,
            "directory": row.get::<_, Option<String>>(1)?,
            "revert": row.get::<_, Option<String>>(2)?.and_then(|text| serde_json::from_str::<Value>(&text).ok()),
        }))
    });
    let session = match session {
        Err(rusqlite::Error::QueryReturnedNoRows) => {
            return Err(ForeignError::Missing { id: found.id.clone(), path: found.path.clone() });
        }
        other => other.map_err(fault)?,
    };
    let reverted = super::session(&session, builder);
    let older = database.has_table("message")? && database.has_table("part")?;
    let ids = if older { ids(&database, "message", found).map_err(fault)? } else { Vec::new() };
    if ids.is_empty() && database.has_table("session_message")? {
        messages::read(&database, found, reverted.as_deref(), builder)?;
        return database.was_at_rest();
    }
    for id in ids {
        if reverted.as_ref().is_some_and(|from| id >= *from) {
            builder.report.leave_out("messages that were taken back");
            continue;
        }
        let Some(info) = value(&database, "SELECT data FROM message WHERE id = ?1", &id, builder).map_err(fault)?
        else {
            continue;
        };
        let parts = parts(&database, &id, builder).map_err(fault)?;
        super::message(&id, &Whole { info, parts }, builder)?;
    }
    database.was_at_rest()
}

/// Ids of a session's messages, in their order.
pub(super) fn ids(database: &Database, table: &str, found: &Found) -> rusqlite::Result<Vec<String>> {
    let sql = format!("SELECT id FROM {table} WHERE session_id = ?1 ORDER BY time_created, id LIMIT ?2");
    let mut statement = database.connection.prepare(&sql)?;
    let ids = statement.query_map(rusqlite::params![found.id, MESSAGES_MAX as i64], |row| row.get(0))?;
    ids.collect()
}

/// The JSON of one row; what does not read is told.
pub(super) fn value(
    database: &Database,
    sql: &str,
    id: &str,
    builder: &mut Builder<'_>,
) -> rusqlite::Result<Option<Value>> {
    let data: String = match database.connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)) {
        Ok(data) => data,
        Err(error @ rusqlite::Error::SqliteFailure(..)) => return Err(error),
        Err(error) => {
            builder.report.damage(&format!("message {id}"), &error.to_string());
            return Ok(None);
        }
    };
    match serde_json::from_str(&data) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            builder.report.damage(&format!("message {id}"), &error.to_string());
            Ok(None)
        }
    }
}

fn parts(database: &Database, message: &str, builder: &mut Builder<'_>) -> rusqlite::Result<Vec<Value>> {
    let mut statement =
        database.connection.prepare_cached("SELECT id, data FROM part WHERE message_id = ?1 ORDER BY id LIMIT ?2")?;
    let mut rows = statement.query(rusqlite::params![message, MESSAGES_MAX as i64])?;
    let mut parts = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        let data = row.get::<_, String>(1).map_err(|error| error.to_string());
        match data.and_then(|data| serde_json::from_str(&data).map_err(|error| error.to_string())) {
            Ok(part) => parts.push(part),
            Err(why) => builder.report.damage(&format!("part {id}"), &why),
        }
    }
    Ok(parts)
}
