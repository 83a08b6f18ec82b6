//! Projects: which one a folder belongs to.
//!
//! A project is known by its identities: the remote of its repository, the path of its main work tree, a name that the
//! user gave. Each root that was ever resolved is kept with its project, and with what tells the folder itself, so that
//! one that was moved is found again, and one whose remote was renamed keeps its threads.

use mcode_ids::ProjectId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::error::{ReadError, StoreError};
use crate::projection::{Page, Place, ProjectRow};
use crate::read::{Reader, page, parsed};

/// What the identity of a name begins with that the user gave.
pub(crate) const RESOURCE: &str = "resource:";

/// What the identity of a path begins with.
const PATH: &str = "path:";

/// Roots at which a folder may have been that are looked at.
const FORMER_MAX: u32 = 8;

/// A root that was resolved before.
struct Known {
    project_id: String,
    folder: String,
    resource: String,
}

/// Other roots at which this very folder was, at most some: where it may have been moved from.
pub(crate) fn former_roots(connection: &Connection, place: &Place) -> rusqlite::Result<Vec<String>> {
    if place.folder.is_empty() {
        return Ok(Vec::new());
    }
    connection
        .prepare_cached("SELECT root FROM roots WHERE folder = ?1 AND root <> ?2 ORDER BY root LIMIT ?3")?
        .query_map(params![place.folder, place.root, FORMER_MAX], |row| row.get(0))?
        .collect()
}

/// The project of a place; made when it is new. `gone` are those of [`former_roots`] that lead nowhere any more. No path is
/// looked at here, in the writer: one on a dead mount would hold up all appends.
pub(crate) fn resolve(transaction: &Transaction<'_>, place: &Place, gone: &[String]) -> Result<ProjectRow, StoreError> {
    let known = known(transaction, &place.root)?;
    let resource = known.as_ref().map(|known| known.resource.as_str()).unwrap_or_default();
    let named = format!("{RESOURCE}{resource}");
    let identity = if resource.is_empty() { &place.identity } else { &named };
    let by_identity = of_identity(transaction, identity)?;
    // Another folder at the same place is another project, unless the path is all that there is to know it by.
    let same_folder = |known: &Known| known.folder.is_empty() || known.folder == place.folder;
    let path_only = identity.starts_with(PATH);
    let before = known.as_ref().filter(|known| path_only || same_folder(known)).map(|known| known.project_id.clone());
    let project_id = match (by_identity, before) {
        (Some(now), Some(before)) => {
            if now != before && resource.is_empty() && is_of_path_alone(transaction, &before, &place.root)? {
                join(transaction, &before, &now)?;
            }
            now
        }
        (Some(now), None) => now,
        (None, Some(before)) if resource.is_empty() => before,
        (None, _) => match moved(transaction, place, gone)?.filter(|_| resource.is_empty()) {
            Some(before) => before,
            None => make(transaction, place)?,
        },
    };
    transaction
        .prepare_cached("INSERT INTO identities (identity, project_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![identity, project_id])?;
    transaction
        .prepare_cached(
            "INSERT INTO roots (root, project_id, folder, resource) VALUES (?1, ?2, ?3, '')
             ON CONFLICT (root) DO UPDATE SET project_id = excluded.project_id, folder = excluded.folder
             WHERE project_id <> excluded.project_id OR folder <> excluded.folder",
        )?
        .execute(params![place.root, project_id, place.folder])?;
    Ok(transaction
        .prepare_cached(&format!("SELECT {COLUMNS} FROM projects WHERE project_id = ?1"))?
        .query_row([project_id], project_row)?)
}

/// The project of a name that the user gave, or will give; made without a folder when it is new.
pub(crate) fn named(
    transaction: &Transaction<'_>,
    name: &str,
    project_id: ProjectId,
    now_ms: i64,
) -> Result<ProjectRow, StoreError> {
    let identity = format!("{RESOURCE}{name}");
    let known = match of_identity(transaction, &identity)? {
        Some(known) => known,
        None => {
            let (root, folder) = (String::new(), String::new());
            let made = make(
                transaction,
                &Place { project_id, root, identity: String::new(), name: name.into(), folder, now_ms },
            )?;
            transaction.execute("INSERT INTO identities (identity, project_id) VALUES (?1, ?2)", [&identity, &made])?;
            made
        }
    };
    Ok(transaction
        .prepare_cached(&format!("SELECT {COLUMNS} FROM projects WHERE project_id = ?1"))?
        .query_row([known], project_row)?)
}

/// Has the threads of a root belong to what the user calls so; an empty name has them belong where they did before. The
/// next [`resolve`] tells where that is.
pub(crate) fn set_resource(transaction: &Transaction<'_>, root: &str, resource: &str) -> Result<(), StoreError> {
    // Where it belonged by its name says nothing about where it belongs without.
    transaction.execute("UPDATE roots SET resource = ?2, folder = '-' WHERE root = ?1", params![root, resource])?;
    Ok(())
}

fn known(connection: &Connection, root: &str) -> rusqlite::Result<Option<Known>> {
    connection
        .prepare_cached("SELECT project_id, folder, resource FROM roots WHERE root = ?1")?
        .query_row([root], |row| Ok(Known { project_id: row.get(0)?, folder: row.get(1)?, resource: row.get(2)? }))
        .optional()
}

/// The project of a root that was resolved before.
pub(crate) fn of_root(connection: &Connection, root: &str) -> rusqlite::Result<Option<ProjectId>> {
    connection
        .prepare_cached("SELECT project_id FROM roots WHERE root = ?1")?
        .query_row([root], |row| parsed(row, 0))
        .optional()
}

fn of_identity(connection: &Connection, identity: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT project_id FROM identities WHERE identity = ?1")?
        .query_row([identity], |row| row.get(0))
        .optional()
}

/// Whether all that a project is known by is that it is here.
fn is_of_path_alone(connection: &Connection, project_id: &str, root: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM identities WHERE project_id = ?1 AND identity <> ?2)")?
        .query_row(params![project_id, format!("{PATH}{root}")], |row| row.get(0))
}

/// All of a project belongs to another from here on.
fn join(transaction: &Transaction<'_>, from: &str, to: &str) -> rusqlite::Result<()> {
    for change in [
        "UPDATE identities SET project_id = ?2 WHERE project_id = ?1",
        "UPDATE roots SET project_id = ?2 WHERE project_id = ?1",
        "UPDATE projects SET joined = ?2 WHERE project_id = ?1 OR joined = ?1",
    ] {
        transaction.execute(change, params![from, to])?;
    }
    Ok(())
}

/// The project of this very folder when it was elsewhere: a root that leads nowhere any more.
fn moved(transaction: &Transaction<'_>, place: &Place, gone: &[String]) -> rusqlite::Result<Option<String>> {
    for root in gone {
        let of_folder = known(transaction, root)?.filter(|known| known.folder == place.folder);
        if let Some(known) = of_folder {
            return Ok(Some(known.project_id));
        }
    }
    Ok(None)
}

fn make(transaction: &Transaction<'_>, place: &Place) -> rusqlite::Result<String> {
    let project_id = place.project_id.to_string();
    transaction.execute(
        "INSERT INTO projects (project_id, root, name, created_at) VALUES (?1, ?2, ?3, ?4)",
        params![project_id, place.root, place.name, place.now_ms],
    )?;
    Ok(project_id)
}

const COLUMNS: &str = "project_id, root, name, created_at, (SELECT json_group_array(identity) FROM
                      (SELECT identity FROM identities WHERE identities.project_id = projects.project_id
                       ORDER BY identity LIMIT 20))";

fn project_row(row: &Row<'_>) -> rusqlite::Result<ProjectRow> {
    Ok(ProjectRow {
        project_id: parsed(row, 0)?,
        root: row.get(1)?,
        name: row.get(2)?,
        created_at_ms: row.get(3)?,
        identities: serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default(),
    })
}

impl Reader<'_> {
    pub(crate) fn projects(&self, page_size: u32, page_token: Option<&str>) -> Result<Page<ProjectRow>, ReadError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM projects WHERE project_id < ?1 AND joined IS NULL ORDER BY project_id DESC LIMIT ?2"
        ))?;
        let rows = statement
            .query_map(params![page_token.unwrap_or("~"), i64::from(page_size) + 1], project_row)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(page(rows, page_size, |row| row.project_id.to_string()))
    }

    /// A project, or the one that it was joined to.
    pub(crate) fn project(&self, project_id: ProjectId) -> Result<Option<ProjectRow>, ReadError> {
        let row = self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM projects
                 WHERE project_id = (SELECT COALESCE(joined, project_id) FROM projects WHERE project_id = ?1)"
            ))?
            .query_row([project_id.to_string()], project_row)
            .optional()?;
        Ok(row)
    }
}
