//! Setting aside what is damaged, so that its thread can be gone on with.
//!
//! A damaged row goes into `quarantine` as it is, and a valid placeholder takes its place and number. Then the rows of
//! lists are made anew from the log. Nothing is thrown away but bodies that nobody has named for an hour.

use std::collections::BTreeMap;

use mcode_events::blob::{BlobError, Blobs};
use mcode_events::event::{Event, EventBody};
use mcode_ids::{Seq, ThreadId};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::Store;
use crate::blobs::{BlobFiles, Orphan};
use crate::care::check::{database, index, is_of_the_index, lists, own_run_rows, waiting};
use crate::care::logs;
use crate::error::{Damage, StoreError};
use crate::lineage::number;
use crate::named::Named;
use crate::projection::ThreadRow;
use crate::read::Reader;
use crate::row::{COLUMNS, EventRow};

/// Events, bodies or files that are changed in one transaction: appends wait meanwhile.
const AT_ONCE: usize = 100;

/// The least age of a body that nobody names before it goes, in milliseconds (1 h).
pub const ORPHAN_AGE_MS: i64 = 60 * 60 * 1000;

/// What mending did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mended {
    /// Threads that lost events, with how many: those of their own logs and of those that they share.
    pub set_aside: BTreeMap<ThreadId, u64>,
    /// Events that were set aside.
    pub events: u64,
    /// Threads that lost bodies, with how many.
    pub lost: BTreeMap<ThreadId, u64>,
    /// Threads whose rows were made anew.
    pub threads: Vec<ThreadId>,
    /// Bodies that nobody named and are gone.
    pub orphans: u64,
    /// Their size in bytes.
    pub orphan_bytes: u64,
    /// Whether the index of what was said is being made anew.
    pub index: bool,
}

impl Store {
    /// Mends what can be mended. What the file of the database itself has lost cannot. Where the folder of bodies looks
    /// absent nothing is changed ([`StoreError::BodiesAbsent`]), unless the user knows them to be lost.
    pub async fn mend(&self, bodies_are_lost: bool) -> Result<Mended, StoreError> {
        let mut mended = Mended::default();
        if !bodies_are_lost {
            self.expect_bodies().await?;
        }
        for log in self.logs().await? {
            self.mend_log(log, &mut mended).await?;
        }
        self.mend_bodies(&mut mended).await?;
        for thread_id in self.thread_ids().await? {
            let wrong = self.readers.run(move |reader| lists(reader, thread_id)).await?;
            if !wrong.is_empty() || mended.set_aside.contains_key(&thread_id) {
                let blobs = std::sync::Arc::clone(&self.blobs);
                self.writer.change(move |transaction, _now| rebuild(transaction, &blobs, thread_id)).await?;
                mended.threads.push(thread_id);
            }
        }
        let damaged = self.anew(database).await?.iter().any(|line| is_of_the_index(line));
        mended.index = self
            .writer
            .change(move |transaction, _now| {
                let wrong = damaged || !index(transaction)?.is_empty();
                if wrong {
                    crate::search::begin_anew(transaction)?;
                }
                Ok(wrong)
            })
            .await?;
        self.remove_orphans(&mut mended).await?;
        Ok(mended)
    }

    async fn thread_ids(&self) -> Result<Vec<ThreadId>, StoreError> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let from = after.clone();
            let max = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
            let ids = self.readers.run(move |reader| Ok(logs::threads_after(reader.connection, &from, max)?)).await?;
            let Some(last) = ids.last().cloned() else { return Ok(all) };
            after = last;
            all.extend(ids.iter().filter_map(|id| id.parse::<ThreadId>().ok()));
        }
    }

    async fn logs(&self) -> Result<Vec<logs::Log>, StoreError> {
        let mut all = self.readers.run(|reader| Ok(logs::left_behind(reader.connection)?)).await?;
        for thread_id in self.thread_ids().await? {
            let own = self.readers.run(move |reader| logs::own(reader, thread_id)).await?;
            all.extend(own);
        }
        Ok(all)
    }

    async fn mend_log(&self, log: logs::Log, mended: &mut Mended) -> Result<(), StoreError> {
        let mut reached = log.after;
        while reached < log.upto {
            let part = self.readers.run(move |reader| logs::part(reader, log, reached)).await?;
            if part.events == 0 {
                break;
            }
            reached = part.reached;
            for damage in part.damage.chunks(AT_ONCE).map(<[Damage]>::to_vec) {
                let blobs = std::sync::Arc::clone(&self.blobs);
                let (count, threads) = self
                    .writer
                    .change(move |transaction, now| set_aside(transaction, &blobs, log.log, &damage, now))
                    .await?;
                mended.events += count;
                for thread in threads {
                    *mended.set_aside.entry(thread).or_default() += count;
                }
            }
        }
        Ok(())
    }

    async fn mend_bodies(&self, mended: &mut Mended) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let hashes: Vec<String> = self
                .readers
                .run(move |reader| {
                    let mut statement = reader
                        .connection
                        .prepare_cached("SELECT DISTINCT hash FROM named WHERE hash > ?1 ORDER BY hash LIMIT ?2")?;
                    let rows = statement.query_map(params![from, AT_ONCE as i64], |row| row.get(0))?;
                    Ok(rows.collect::<rusqlite::Result<_>>()?)
                })
                .await?;
            let Some(last) = hashes.last().cloned() else { return Ok(()) };
            after = last;
            let blobs = std::sync::Arc::clone(&self.blobs);
            let lost = self.writer.change(move |transaction, now| give_up(transaction, &blobs, &hashes, now)).await?;
            for thread in lost {
                *mended.lost.entry(thread).or_default() += 1;
            }
        }
    }

    /// Bodies that nobody names, whatever their age.
    pub(crate) async fn orphans(&self) -> Result<Vec<Orphan>, crate::ReadError> {
        let mut orphans = Vec::new();
        for shelf in self.blobs.shelves() {
            let found = self
                .readers
                .run(move |reader| {
                    let mut nobodys = Vec::new();
                    for file in reader.blobs.files(&shelf) {
                        if is_nobodys(reader.connection, &file)? {
                            nobodys.push(file);
                        }
                    }
                    Ok(nobodys)
                })
                .await?;
            orphans.extend(found);
        }
        Ok(orphans)
    }

    async fn remove_orphans(&self, mended: &mut Mended) -> Result<(), StoreError> {
        let orphans = self.orphans().await?;
        for some in orphans.chunks(AT_ONCE).map(<[Orphan]>::to_vec) {
            let blobs = std::sync::Arc::clone(&self.blobs);
            // In the writer: nothing is named between the look and the end.
            let (count, bytes) = self
                .writer
                .change(move |transaction, now| {
                    let (mut count, mut bytes) = (0, 0);
                    for orphan in &some {
                        let old = orphan.changed_at_ms <= now - ORPHAN_AGE_MS;
                        if old && is_nobodys(transaction, orphan)? && blobs.remove_orphan(orphan)? {
                            (count, bytes) = (count + 1, bytes + orphan.bytes);
                        }
                    }
                    Ok((count, bytes))
                })
                .await?;
            mended.orphans += count;
            mended.orphan_bytes += bytes;
        }
        Ok(())
    }
}

fn is_nobodys(connection: &Connection, file: &Orphan) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM named WHERE hash = ?1)")?
        .query_row([&file.name], |row| row.get(0))
}

/// Moves damaged rows of a log aside; gives how many, and the threads that had them.
fn set_aside(
    transaction: &Transaction<'_>,
    blobs: &BlobFiles,
    log: ThreadId,
    damage: &[Damage],
    now: i64,
) -> Result<(u64, Vec<ThreadId>), StoreError> {
    let mut count = 0;
    let mut first = i64::MAX;
    for damage in damage {
        if is_out_of_reach(transaction, blobs, log, damage.seq)? {
            continue;
        }
        replace(transaction, blobs, log, damage, now)?;
        first = first.min(number(damage.seq));
        count += 1;
    }
    let mut statement = transaction.prepare_cached(
        "SELECT thread_id FROM threads WHERE thread_id = ?1
         UNION SELECT thread_id FROM lineage WHERE log = ?1 AND upto >= ?2",
    )?;
    let ids = statement
        .query_map(params![log.to_string(), first], |row| row.get::<_, String>(0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok((count, ids.iter().filter(|_| count > 0).filter_map(|id| id.parse().ok()).collect()))
}

/// Whether it only cannot be read now: a body that the system does not give is not lost.
fn is_out_of_reach(
    transaction: &Transaction<'_>,
    blobs: &BlobFiles,
    log: ThreadId,
    seq: Seq,
) -> Result<bool, StoreError> {
    let row = transaction
        .prepare_cached(&format!("SELECT {COLUMNS} FROM events WHERE thread_id = ?1 AND seq = ?2"))?
        .query_row(params![log.to_string(), number(seq)], |row| Ok(EventRow::read(row).ok()))
        .optional()?
        .flatten();
    let Some(row) = row.filter(|row| row.spilled) else { return Ok(false) };
    Ok(matches!(blobs.get(&row.payload), Err(BlobError::Io { .. })))
}

fn replace(
    transaction: &Transaction<'_>,
    blobs: &BlobFiles,
    log: ThreadId,
    damage: &Damage,
    now: i64,
) -> Result<(), StoreError> {
    let (thread, seq) = (log.to_string(), number(damage.seq));
    let moved = transaction.execute(
        "INSERT INTO quarantine (moved_at, what, thread_id, seq, at, kind, version, run_id, turn_id, spilled, payload,
         checksum)
         SELECT ?3, ?4, thread_id, seq, at, kind, version, run_id, turn_id, spilled, payload, checksum
         FROM events WHERE thread_id = ?1 AND seq = ?2",
        params![thread, seq, now, damage.what],
    )?;
    if moved == 0 {
        transaction.execute(
            "INSERT INTO quarantine (moved_at, what, thread_id, seq) VALUES (?3, ?4, ?1, ?2)",
            params![thread, seq, now, damage.what],
        )?;
    }
    transaction.execute("DELETE FROM events WHERE thread_id = ?1 AND seq = ?2", params![thread, seq])?;
    let before: Option<i64> = transaction
        .prepare_cached("SELECT at FROM events WHERE thread_id = ?1 AND seq < ?2 AND typeof(at) = 'integer' ORDER BY seq DESC LIMIT 1")?
        .query_row(params![thread, seq], |row| row.get(0))
        .optional()?;
    let row = Reader { connection: transaction, blobs }.thread(log)?;
    let at_ms = before.or(row.as_ref().map(|row| row.created_at_ms)).unwrap_or(now);
    let body = match row.filter(|_| damage.seq == Seq::new(1)) {
        // Without its beginning a thread would be none; what it said is in the thread's row.
        Some(row) => EventBody::ThreadCreated {
            project_id: row.project_id,
            cwd: row.cwd,
            root: row.root,
            title: row.title,
            model: row.model,
            mode: row.mode,
            ephemeral: row.ephemeral,
        },
        None => EventBody::damaged(&damage.what),
    };
    let event = Event { thread_id: log, seq: damage.seq, at_ms, run_id: None, turn_id: None, body };
    let mut named = Named::default();
    let row = EventRow::encode(&event, blobs, &mut named)?;
    row.insert(transaction, &thread)?;
    Ok(())
}

/// Makes the rows of a thread anew from its log.
fn rebuild(transaction: &Transaction<'_>, blobs: &BlobFiles, thread_id: ThreadId) -> Result<(), StoreError> {
    let thread = thread_id.to_string();
    transaction.execute(
        "UPDATE threads SET last_seq = max(coalesce((SELECT max(seq) FROM events WHERE thread_id = ?1), 0),
             coalesce((SELECT max(upto) FROM lineage WHERE thread_id = ?1), 0)) WHERE thread_id = ?1",
        [&thread],
    )?;
    let reader = Reader { connection: transaction, blobs };
    let Some(state) = logs::whole(&reader, thread_id)? else { return Ok(()) };
    let Some(row) = ThreadRow::of(&state) else { return Ok(()) };
    crate::write::write_thread(transaction, &thread, &row)?;
    transaction.execute("DELETE FROM runs WHERE thread_id = ?1", [&thread])?;
    for run in own_run_rows(transaction, &state)? {
        crate::write::write_run(transaction, &run)?;
    }
    transaction.execute("DELETE FROM pending WHERE thread_id = ?1", [&thread])?;
    for id in waiting(&state) {
        transaction.execute("INSERT OR REPLACE INTO pending (id, thread_id) VALUES (?1, ?2)", params![id, thread])?;
    }
    crate::usage::rebuild_thread(transaction, &thread)?;
    Ok(())
}

/// Does not look any more for bodies that are lost; a damaged one is put beside. Gives the threads that named them.
fn give_up(
    transaction: &Transaction<'_>,
    blobs: &BlobFiles,
    hashes: &[String],
    now: i64,
) -> Result<Vec<ThreadId>, StoreError> {
    let mut threads = Vec::new();
    for hash in hashes {
        let what = match blobs.get(hash) {
            Err(BlobError::Missing(_)) => "the body is not in the store any more",
            Err(BlobError::Damaged(_)) => {
                blobs.put_beside(hash)?;
                "the body is not what it was; what there is of it is in the folder damaged-blobs"
            }
            // What cannot be read now is not lost.
            Ok(_) | Err(_) => continue,
        };
        let mut statement = transaction.prepare_cached("DELETE FROM named WHERE hash = ?1 RETURNING thread_id")?;
        let names =
            statement.query_map([hash], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        for name in names {
            transaction.execute(
                "INSERT INTO quarantine (moved_at, what, thread_id, seq, payload) VALUES (?1, ?2, ?3, 0, ?4)",
                params![now, what, name, hash],
            )?;
            threads.extend(name.parse::<ThreadId>().ok());
        }
    }
    Ok(threads)
}
