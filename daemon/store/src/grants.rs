//! Rules that were given with an answer, and the projects that are trusted.

use mcode_ids::{GrantId, ThreadId};
use rusqlite::{OptionalExtension, Row, params};

use crate::Store;
use crate::error::{ReadError, StoreError};
use crate::read::parsed;

/// Most grants that are kept; the oldest goes when there is one more.
pub const GRANTS_MAX: u32 = 1_000;

/// A rule that allows something for a while or in a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its id.
    pub grant_id: GrantId,
    /// The rule, as in a file.
    pub rule: String,
    /// Only in this thread.
    pub thread_id: Option<ThreadId>,
    /// Only in the project with this root.
    pub root: Option<String>,
    /// Until then, milliseconds since 1970 UTC.
    pub expires_at_ms: Option<i64>,
    /// When it was given.
    pub created_at_ms: i64,
    /// Who gave it.
    pub given_by: String,
}

/// A project whose own configuration is trusted as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustRow {
    /// The root of the project, resolved.
    pub root: String,
    /// Of everything that was trusted.
    pub fingerprint: String,
    /// What was trusted, as its owner encoded it.
    pub items: String,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// Who trusted it.
    pub given_by: String,
}

impl Store {
    /// Keeps a grant. Grants that have expired go, and so does the oldest of too many.
    pub async fn add_grant(&self, grant: GrantRow) -> Result<(), StoreError> {
        self.writer
            .change(move |transaction, now| {
                transaction.execute("DELETE FROM grants WHERE expires_at <= ?1", [now])?;
                transaction.execute(
                    "INSERT OR REPLACE INTO grants (grant_id, rule, thread_id, root, expires_at, created_at, given_by)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![
                        grant.grant_id.to_string(),
                        grant.rule,
                        grant.thread_id.map(|id| id.to_string()),
                        grant.root,
                        grant.expires_at_ms,
                        grant.created_at_ms,
                        grant.given_by
                    ],
                )?;
                transaction.execute(
                    "DELETE FROM grants WHERE grant_id NOT IN (SELECT grant_id FROM grants ORDER BY grant_id DESC LIMIT ?1)",
                    [GRANTS_MAX],
                )?;
                Ok(())
            })
            .await
    }

    /// Takes a grant back; the row that is gone.
    pub async fn remove_grant(&self, grant_id: GrantId) -> Result<Option<GrantRow>, StoreError> {
        self.writer
            .change(move |transaction, _| {
                let id = grant_id.to_string();
                let found = transaction
                    .query_row(&format!("SELECT {GRANT} FROM grants WHERE grant_id = ?1"), [&id], grant_row)
                    .optional()?;
                transaction.execute("DELETE FROM grants WHERE grant_id = ?1", [&id])?;
                Ok(found)
            })
            .await
    }

    /// Every grant, oldest first, expired ones too.
    pub async fn grants(&self) -> Result<Vec<GrantRow>, ReadError> {
        self.readers
            .run(|reader| {
                let text = format!("SELECT {GRANT} FROM grants ORDER BY grant_id");
                let mut statement = reader.connection.prepare_cached(&text)?;
                Ok(statement.query_map([], grant_row)?.collect::<rusqlite::Result<Vec<_>>>()?)
            })
            .await
    }

    /// Trusts a project as it is described.
    pub async fn set_trust(&self, trust: TrustRow) -> Result<(), StoreError> {
        self.writer
            .change(move |transaction, _| {
                transaction.execute(
                    "INSERT OR REPLACE INTO trust (root, fingerprint, items, at, given_by) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![trust.root, trust.fingerprint, trust.items, trust.at_ms, trust.given_by],
                )?;
                Ok(())
            })
            .await
    }

    /// Trusts a project no longer; whether it was trusted.
    pub async fn remove_trust(&self, root: String) -> Result<bool, StoreError> {
        self.writer
            .change(move |transaction, _| Ok(transaction.execute("DELETE FROM trust WHERE root = ?1", [root])? > 0))
            .await
    }

    /// How the project with this root is trusted.
    pub async fn trust(&self, root: String) -> Result<Option<TrustRow>, ReadError> {
        self.readers
            .run(move |reader| {
                let row = reader
                    .connection
                    .prepare_cached("SELECT root, fingerprint, items, at, given_by FROM trust WHERE root = ?1")?
                    .query_row([root], |row| {
                        Ok(TrustRow {
                            root: row.get(0)?,
                            fingerprint: row.get(1)?,
                            items: row.get(2)?,
                            at_ms: row.get(3)?,
                            given_by: row.get(4)?,
                        })
                    })
                    .optional()?;
                Ok(row)
            })
            .await
    }
}

const GRANT: &str = "grant_id, rule, thread_id, root, expires_at, created_at, given_by";

fn grant_row(row: &Row<'_>) -> rusqlite::Result<GrantRow> {
    Ok(GrantRow {
        grant_id: parsed(row, 0)?,
        rule: row.get(1)?,
        // A thread that can not be read must not become every thread.
        thread_id: if row.get_ref(2)? == rusqlite::types::ValueRef::Null { None } else { Some(parsed(row, 2)?) },
        root: row.get(3)?,
        expires_at_ms: row.get(4)?,
        created_at_ms: row.get(5)?,
        given_by: row.get(6)?,
    })
}
