//! Which threads a policy of what is kept lets go: looked at only, nothing is changed here.
//!
//! Only idle threads that nobody pinned, tagged [`KEEP_TAG`] or left something open in; the one that was used longest ago
//! first. What forks share stays, so what a thread takes with it is found out by going through them in their order.

use std::collections::{BTreeMap, HashSet};

use mcode_ids::{ProjectId, ThreadId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::Store;
use crate::blobs::BlobFiles;
use crate::error::{ReadError, StoreError};
use crate::read::{Reader, parsed};

/// A thread with this tag is never let go.
pub const KEEP_TAG: &str = "keep";

/// How long a policy is only reported before it deletes anything, in milliseconds (3 days).
pub const GRACE_MS: i64 = 3 * DAY_MS;

/// Threads that are planned to go in one look; more are found by the next.
pub const LEAVING_MAX: usize = 200;

/// A thread that is not archived is idle when it was not used for so long, in milliseconds (1 day): nobody loses a
/// conversation between two prompts.
pub const IDLE_MS: i64 = DAY_MS;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What is kept. `None` is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Days that an idle thread is kept after it was used last.
    pub keep_days: Option<u32>,
    /// Bytes that the threads of one project may take, with the bodies that they name.
    pub project_bytes: Option<u64>,
    /// Bytes that all bodies may take.
    pub body_bytes: Option<u64>,
}

impl Policy {
    /// Whether it lets nothing go.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.keep_days.is_none() && self.project_bytes.is_none() && self.body_bytes.is_none()
    }

    /// The settings that make it, as in the file; empty when it is off.
    #[must_use]
    pub fn text(&self) -> String {
        let days = self.keep_days.map(|days| format!("keep_days = {days}"));
        let project = self.project_bytes.map(|bytes| format!("max_bytes_per_project = {bytes}"));
        let bodies = self.body_bytes.map(|bytes| format!("max_body_bytes = {bytes}"));
        days.into_iter().chain(project).chain(bodies).collect::<Vec<_>>().join(", ")
    }
}

/// Why a thread goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It was not used for longer than the policy says.
    Age,
    /// Its project takes more than it may.
    ProjectBytes,
    /// All bodies take more than they may.
    BodyBytes,
}

impl Why {
    /// The setting that says so.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Age => "threads.keep_days",
            Self::ProjectBytes => "threads.max_bytes_per_project",
            Self::BodyBytes => "threads.max_body_bytes",
        }
    }
}

/// A thread that a policy lets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The thread.
    pub thread_id: ThreadId,
    /// Its project.
    pub project_id: ProjectId,
    /// The root of its work tree, or of its project; empty where that is not known.
    pub root: String,
    /// What it is called.
    pub title: String,
    /// When it was used last, in milliseconds since 1970 UTC.
    pub updated_at_ms: i64,
    /// Its last event, so that one that was used since is left alone.
    pub last_seq: mcode_ids::Seq,
    /// Bytes of events and bodies that go with it, when those before it are gone.
    pub bytes: u64,
    /// Why.
    pub why: Why,
}

/// What a policy lets go, in that order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// The threads, at most [`LEAVING_MAX`].
    pub leaving: Vec<Leaving>,
    /// Whether there may be more.
    pub more: bool,
}

impl Store {
    /// What a policy lets go now (`now_ms` in milliseconds since 1970 UTC). Changes nothing.
    pub async fn due(&self, policy: Policy, now_ms: i64) -> Result<Due, ReadError> {
        if policy.is_off() {
            return Ok(Due::default());
        }
        self.readers
            .run(move |reader| {
                // One moment for all of it.
                let moment = reader.connection.unchecked_transaction()?;
                let due = Looking::new(reader, policy, now_ms).make()?;
                drop(moment);
                Ok(due)
            })
            .await
    }

    /// Notes that this policy would delete something; gives since when that is known, in milliseconds since 1970 UTC. A
    /// policy that differs in anything, and one that was noted later than now, is noted anew.
    pub async fn note_policy(&self, policy: Policy) -> Result<i64, StoreError> {
        let text = policy.text();
        self.writer
            .change(move |transaction, now| {
                if let Some(since) = noted(transaction, &text)?.filter(|since| *since <= now) {
                    return Ok(since);
                }
                transaction.execute(
                    "INSERT OR REPLACE INTO retention (only, policy, since) VALUES (1, ?1, ?2)",
                    params![text, now],
                )?;
                Ok(now)
            })
            .await
    }

    /// Since when it is known that this policy would delete something; `None` when it is not.
    pub async fn policy_noted(&self, policy: Policy) -> Result<Option<i64>, ReadError> {
        let text = policy.text();
        self.readers.run(move |reader| Ok(noted(reader.connection, &text)?)).await
    }

    /// Forgets since when a policy is known: one that is turned on again waits again.
    pub async fn forget_policy(&self) -> Result<(), StoreError> {
        let known = self.readers.run(|reader| {
            let mut known = reader.connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM retention)")?;
            Ok(known.query_row([], |row| row.get::<_, bool>(0))?)
        });
        if known.await? {
            self.writer
                .change(|transaction, _now| Ok(transaction.execute("DELETE FROM retention", []).map(drop)?))
                .await?;
        }
        Ok(())
    }

    /// The names of states of files (64 hexadecimal digits) that threads of a root still know, in whatever way; those whose
    /// own thread is gone and that forks share too.
    pub async fn snapshots_named(&self, root: String) -> Result<HashSet<String>, ReadError> {
        self.readers.run(move |reader| Ok(snapshots_named(reader.connection, &root)?)).await
    }
}

fn noted(connection: &Connection, policy: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT since FROM retention WHERE policy = ?1")?
        .query_row([policy], |row| row.get(0))
        .optional()
}

fn snapshots_named(connection: &Connection, root: &str) -> rusqlite::Result<HashSet<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT payload FROM events WHERE kind IN ('checkpoint_taken', 'files_restored') AND spilled = 0
         AND thread_id IN (SELECT thread_id FROM threads WHERE root = ?1 OR cwd = ?1
             UNION SELECT log FROM lineage WHERE log NOT IN (SELECT thread_id FROM threads)
             UNION SELECT log FROM lineage WHERE thread_id IN (SELECT thread_id FROM threads WHERE root = ?1 OR cwd = ?1))",
    )?;
    let mut rows = statement.query([root])?;
    let mut named = HashSet::new();
    while let Some(row) = rows.next()? {
        // What is damaged names nothing that could be gone back to.
        let Ok(payload) = row.get::<_, String>(0) else { continue };
        let words = payload.split(|char: char| !char.is_ascii_hexdigit()).filter(|word| word.len() == 64);
        named.extend(words.map(str::to_owned));
    }
    Ok(named)
}

/// A thread that may go.
struct Idle {
    thread_id: String,
    leaving: Leaving,
}

/// Looking for what is due: what is gone so far.
struct Looking<'r> {
    connection: &'r Connection,
    blobs: &'r BlobFiles,
    policy: Policy,
    now_ms: i64,
    due: Due,
    gone: HashSet<String>,
    /// Logs of which nothing is left.
    whole: HashSet<String>,
    freed_bodies: u64,
    freed: BTreeMap<ProjectId, u64>,
}

impl<'r> Looking<'r> {
    fn new(reader: &'r Reader<'_>, policy: Policy, now_ms: i64) -> Self {
        Self {
            connection: reader.connection,
            blobs: reader.blobs,
            policy,
            now_ms,
            due: Due::default(),
            gone: HashSet::new(),
            whole: HashSet::new(),
            freed_bodies: 0,
            freed: BTreeMap::new(),
        }
    }

    fn make(mut self) -> Result<Due, ReadError> {
        if let Some(days) = self.policy.keep_days {
            let before = self.now_ms.saturating_sub(i64::from(days).saturating_mul(DAY_MS));
            self.let_go(None, before, Why::Age, |_| true)?;
        }
        if let Some(most) = self.policy.project_bytes {
            for (project, used) in self.used()? {
                let over = move |planning: &Self| {
                    used.saturating_sub(planning.freed.get(&project).copied().unwrap_or(0)) > most
                };
                self.let_go(Some(project), self.now_ms, Why::ProjectBytes, over)?;
            }
        }
        if let Some(most) = self.policy.body_bytes {
            let bodies = self.bodies()?;
            let over = move |planning: &Self| bodies.saturating_sub(planning.freed_bodies) > most;
            self.let_go(None, self.now_ms, Why::BodyBytes, over)?;
        }
        Ok(self.due)
    }

    /// Plans threads that were used last before a moment for as long as something is so, the oldest first.
    fn let_go(
        &mut self,
        project: Option<ProjectId>,
        before: i64,
        why: Why,
        still: impl Fn(&Self) -> bool,
    ) -> Result<(), ReadError> {
        if !still(self) {
            return Ok(());
        }
        for idle in self.idle(project, before)? {
            if self.gone.contains(&idle.thread_id) {
                continue;
            }
            if !still(self) {
                return Ok(());
            }
            if self.due.leaving.len() == LEAVING_MAX {
                self.due.more = true;
                return Ok(());
            }
            // Where bodies take too much, a thread without any is of no use.
            if why == Why::BodyBytes && !self.names_any(&idle.thread_id)? {
                continue;
            }
            let (log, bodies) = self.take(&idle.thread_id)?;
            self.freed_bodies += bodies;
            *self.freed.entry(idle.leaving.project_id).or_default() += log + bodies;
            self.due.leaving.push(Leaving { bytes: log + bodies, why, ..idle.leaving });
        }
        Ok(())
    }

    /// Threads that may go, one more than are planned beyond those that are planned already.
    fn idle(&self, project: Option<ProjectId>, before: i64) -> Result<Vec<Idle>, ReadError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT t.thread_id, coalesce(p.joined, t.project_id), coalesce(nullif(t.root, ''), p.root, ''), t.title,
                    t.updated_at, t.last_seq
             FROM threads t LEFT JOIN projects p ON p.project_id = t.project_id
             WHERE t.updated_at < ?1 AND t.activity = 'idle' AND t.active_run IS NULL AND t.unfinished = 0
               AND t.pinned = 0 AND t.ephemeral = 0 AND (?2 IS NULL OR coalesce(p.joined, t.project_id) = ?2)
               AND (t.archived = 1 OR t.updated_at < ?5)
               AND NOT EXISTS (SELECT 1 FROM json_each(t.tags) AS tag WHERE tag.value = ?3)
               AND NOT EXISTS (SELECT 1 FROM imports WHERE imports.thread_id = t.thread_id AND imports.at >= min(?1, ?5))
               AND NOT EXISTS (SELECT 1 FROM pending WHERE pending.thread_id = t.thread_id)
             ORDER BY t.updated_at, t.thread_id LIMIT ?4",
        )?;
        let most = i64::try_from(2 * LEAVING_MAX + 1).unwrap_or(i64::MAX);
        let idle_since = self.now_ms.saturating_sub(IDLE_MS);
        let project = project.map(|id| id.to_string());
        let rows = statement.query_map(params![before, project, KEEP_TAG, most, idle_since], |row| {
            Ok(Idle {
                thread_id: row.get(0)?,
                leaving: Leaving {
                    thread_id: parsed(row, 0)?,
                    project_id: parsed(row, 1)?,
                    root: row.get(2)?,
                    title: row.get(3)?,
                    updated_at_ms: row.get(4)?,
                    last_seq: mcode_ids::Seq::new(u64::try_from(row.get::<_, i64>(5)?).unwrap_or(0)),
                    bytes: 0,
                    why: Why::Age,
                },
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What projects take, with their bodies.
    fn used(&self) -> Result<BTreeMap<ProjectId, u64>, ReadError> {
        let mut used = BTreeMap::new();
        let mut add = |sql: &str, size: &dyn Fn(&rusqlite::Row<'_>) -> rusqlite::Result<u64>| {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                *used.entry(parsed::<ProjectId>(row, 0)?).or_default() += size(row)?;
            }
            Ok::<_, ReadError>(())
        };
        add(
            "SELECT coalesce(p.joined, t.project_id), coalesce(sum((
                 SELECT sum(octet_length(e.payload)) FROM events e WHERE e.thread_id = t.thread_id)), 0)
             FROM threads t LEFT JOIN projects p ON p.project_id = t.project_id GROUP BY 1",
            &|row| Ok(u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)),
        )?;
        add(
            "SELECT DISTINCT coalesce(p.joined, t.project_id), n.hash FROM named n
             JOIN threads t ON t.thread_id = n.thread_id LEFT JOIN projects p ON p.project_id = t.project_id",
            &|row| Ok(self.blobs.size(&row.get::<_, String>(1)?)),
        )?;
        Ok(used)
    }

    /// Bytes of all bodies that anything names.
    fn bodies(&self) -> Result<u64, ReadError> {
        let mut statement = self.connection.prepare_cached("SELECT DISTINCT hash FROM named")?;
        let sizes = statement.query_map([], |row| Ok(self.blobs.size(&row.get::<_, String>(0)?)))?;
        Ok(sizes.collect::<rusqlite::Result<Vec<u64>>>()?.into_iter().sum())
    }

    fn names_any(&self, log: &str) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM named WHERE thread_id = ?1)";
        self.connection.prepare_cached(sql)?.query_row([log], |row| row.get(0))
    }

    /// Lets a thread go; gives the bytes of events and of bodies that go with it.
    fn take(&mut self, thread: &str) -> Result<(u64, u64), ReadError> {
        let mut logs = vec![thread.to_owned()];
        let mut statement = self.connection.prepare_cached("SELECT log FROM lineage WHERE thread_id = ?1")?;
        for log in statement.query_map([thread], |row| row.get::<_, String>(0))? {
            logs.push(log?);
        }
        let before = logs.iter().map(|log| self.needed(log)).collect::<Result<Vec<_>, _>>()?;
        self.gone.insert(thread.to_owned());
        let (mut events, mut bodies) = (0, 0);
        for (log, before) in logs.into_iter().zip(before) {
            let needed = self.needed(&log)?;
            events += self.payload(&log, needed, before)?;
            if needed == 0 && self.whole.insert(log.clone()) {
                bodies += self.alone(&log)?;
            }
        }
        Ok((events, bodies))
    }

    /// The last event of a log that somebody needs: all of them while its own thread is there.
    fn needed(&self, log: &str) -> rusqlite::Result<i64> {
        let is_there = || -> rusqlite::Result<bool> {
            let sql = "SELECT EXISTS (SELECT 1 FROM threads WHERE thread_id = ?1)";
            self.connection.prepare_cached(sql)?.query_row([log], |row| row.get(0))
        };
        if !self.gone.contains(log) && is_there()? {
            return Ok(i64::MAX);
        }
        let mut statement =
            self.connection.prepare_cached("SELECT thread_id, upto FROM lineage WHERE log = ?1 ORDER BY upto DESC")?;
        let mut rows = statement.query([log])?;
        while let Some(row) = rows.next()? {
            if !self.gone.contains(&row.get::<_, String>(0)?) {
                return row.get(1);
            }
        }
        Ok(0)
    }

    fn payload(&self, log: &str, after: i64, upto: i64) -> rusqlite::Result<u64> {
        let sql = "SELECT coalesce(sum(octet_length(payload)), 0) FROM events WHERE thread_id = ?1 AND seq > ?2 AND seq <= ?3";
        let bytes: i64 = self.connection.prepare_cached(sql)?.query_row(params![log, after, upto], |row| row.get(0))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Bytes of the bodies that only logs name of which nothing is left, this one the last of them.
    fn alone(&self, log: &str) -> rusqlite::Result<u64> {
        let mut bytes = 0;
        let mut hashes = self.connection.prepare_cached("SELECT hash FROM named WHERE thread_id = ?1")?;
        let mut names = self.connection.prepare_cached("SELECT thread_id FROM named WHERE hash = ?1")?;
        for hash in hashes.query_map([log], |row| row.get::<_, String>(0))? {
            let hash = hash?;
            let mut rows = names.query([&hash])?;
            let mut alone = true;
            while let Some(row) = rows.next()? {
                alone &= self.whole.contains(&row.get::<_, String>(0)?);
            }
            bytes += if alone { self.blobs.size(&hash) } else { 0 };
        }
        Ok(bytes)
    }
}
