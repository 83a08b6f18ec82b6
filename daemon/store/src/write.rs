//! The writer: one thread, one connection, one transaction for everything that waits.

use std::sync::Arc;

use mcode_env::Clock;
use mcode_events::AuditEntry;
use mcode_events::event::{Event, EventBody, NewEvent};
use mcode_ids::Seq;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use crate::blobs::BlobFiles;
use crate::error::{AppendError, StoreError};
use crate::named::Named;
use crate::presence::Presence;
use crate::projection::{RunRow, ThreadRow};
use crate::row::EventRow;
use crate::usage::Paid;
use crate::{Append, REQUEST_ID_KEPT_MS};

/// Commands that may wait for the writer; more make their senders wait.
const QUEUE: usize = 256;

/// Appends that share a commit at most.
const GROUP_MAX: usize = 64;

/// Records that wait to be written, and where that is answered.
type WaitingAudit = (Vec<AuditEntry>, oneshot::Sender<Result<(), StoreError>>);

/// Where an append is answered.
type AppendReply = oneshot::Sender<Result<Seq, AppendError>>;

#[derive(Debug)]
enum Command {
    Append(Box<Append>, AppendReply),
    Audit(Vec<AuditEntry>, oneshot::Sender<Result<(), StoreError>>),
    Change(Change),
}

/// What a change gets: the connection, or why there is none, and the time.
type Run = dyn FnOnce(Result<&mut Connection, StoreError>, i64) + Send;

/// A change in a transaction of its own; it answers whoever wants it.
struct Change(Box<Run>);

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Change")
    }
}

/// A handle to the writer thread.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    commands: mpsc::Sender<Command>,
}

impl Writer {
    pub(crate) fn start(
        connection: Connection,
        presence: Presence,
        blobs: Arc<BlobFiles>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let (commands, receiver) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("mcode-store-writer".to_owned())
            .spawn(move || WriterThread { connection, presence, blobs, clock }.run(receiver))
            .map_err(|source| StoreError::Io { path: "mcode-store-writer".into(), source })?;
        Ok(Self { commands })
    }

    pub(crate) async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Append(Box::new(append), reply)).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Makes a change that is not about the log of a thread; `now` is the time of the change in milliseconds.
    pub(crate) async fn change<T, F>(&self, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let run = move |connection: Result<&mut Connection, StoreError>, now| {
            let done = connection.and_then(|connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let done = change(&transaction, now)?;
                transaction.commit()?;
                Ok(done)
            });
            let _ = reply.send(done).is_ok();
        };
        self.send(Command::Change(Change(Box::new(run)))).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Does what is no transaction, such as giving space back; appends wait meanwhile.
    pub(crate) async fn tend<T, F>(&self, tend: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let run = move |connection: Result<&mut Connection, StoreError>, _now| {
            let _ = reply.send(connection.and_then(|connection| tend(connection))).is_ok();
        };
        self.send(Command::Change(Change(Box::new(run)))).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    pub(crate) async fn audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Audit(entries, reply)).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn send(&self, command: Command) -> Result<(), StoreError> {
        self.commands.send(command).await.map_err(|_| StoreError::Closed)
    }
}

struct WriterThread {
    connection: Connection,
    presence: Presence,
    blobs: Arc<BlobFiles>,
    clock: Arc<dyn Clock>,
}

impl WriterThread {
    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(first) = commands.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP_MAX {
                match commands.try_recv() {
                    Ok(command) => group.push(command),
                    Err(_) => break,
                }
            }
            self.handle(group);
        }
    }

    fn handle(&mut self, group: Vec<Command>) {
        let (mut appends, mut audits) = (Vec::new(), Vec::new());
        for command in group {
            match command {
                Command::Append(append, reply) => appends.push((append, reply)),
                Command::Audit(entries, reply) => audits.push((entries, reply)),
                Command::Change(Change(change)) => {
                    let now = self.clock.now().millis();
                    change(self.presence.check().map(|()| &mut self.connection), now);
                }
            }
        }
        self.audit_all(audits);
        self.append_all(appends);
    }

    /// Commits all records that wait at once: calls that are decided beside each other share it.
    fn audit_all(&mut self, audits: Vec<WaitingAudit>) {
        if audits.is_empty() {
            return;
        }
        let (entries, replies): (Vec<_>, Vec<_>) = audits.into_iter().unzip();
        let entries: Vec<AuditEntry> = entries.into_iter().flatten().collect();
        let mut failed = self.audit(&entries).err();
        for reply in replies {
            // All of it is on the disk, or nothing is; the first who waits is told why.
            let result = match &failed {
                None => Ok(()),
                Some(_) => Err(failed.replace(StoreError::Closed).unwrap_or(StoreError::Closed)),
            };
            let _ = reply.send(result).is_ok();
        }
    }

    fn audit(&mut self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.presence.check()?;
        let now = self.clock.now().millis();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        crate::audit::add(&transaction, now, entries)?;
        transaction.commit()?;
        Ok(())
    }

    /// Commits the whole group at once; if the commit fails, each append is tried alone, so that one bad append can
    /// not fail its neighbours.
    fn append_all(&mut self, appends: Vec<(Box<Append>, AppendReply)>) {
        if appends.len() > 1 {
            let refs: Vec<&Append> = appends.iter().map(|(append, _)| append.as_ref()).collect();
            if let Ok(seqs) = self.commit(&refs) {
                for ((_, reply), seq) in appends.into_iter().zip(seqs) {
                    let _ = reply.send(Ok(seq)).is_ok();
                }
                return;
            }
        }
        for (append, reply) in appends {
            let result = self.commit(&[append.as_ref()]).map(|seqs| seqs.into_iter().next().unwrap_or(append.expected));
            let _ = reply.send(result).is_ok();
        }
    }

    fn commit(&mut self, appends: &[&Append]) -> Result<Vec<Seq>, AppendError> {
        self.presence.check()?;
        let mut rows = Vec::with_capacity(appends.len());
        for append in appends {
            rows.push(encode(append, &self.blobs)?);
        }
        let now = self.clock.now().millis();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut seqs = Vec::with_capacity(appends.len());
        for (append, rows) in appends.iter().zip(&rows) {
            seqs.push(write(&transaction, append, rows, now)?);
        }
        transaction.commit()?;
        Ok(seqs)
    }
}

/// The rows of an append, and the bodies that they name.
fn encode(append: &Append, blobs: &BlobFiles) -> Result<(Vec<EventRow>, Named), AppendError> {
    let mut seq = append.expected;
    let mut named = Named::default();
    let mut rows = Vec::with_capacity(append.events.len());
    for new in &append.events {
        seq = seq.next();
        let event = Event {
            thread_id: append.thread_id,
            seq,
            at_ms: append.at_ms,
            run_id: new.run_id,
            turn_id: new.turn_id,
            body: new.body.clone(),
        };
        rows.push(EventRow::encode(&event, blobs, &mut named)?);
    }
    Ok((rows, named))
}

fn write(
    transaction: &Transaction<'_>,
    append: &Append,
    (rows, named): &(Vec<EventRow>, Named),
    now: i64,
) -> Result<Seq, AppendError> {
    let thread = append.thread_id.to_string();
    let actual: Option<i64> = transaction
        .prepare_cached("SELECT last_seq FROM threads WHERE thread_id = ?1")?
        .query_row([&thread], |row| row.get(0))
        .optional()?;
    let actual = match (actual, append.row.forked) {
        // The first words of a fork: what is before them is in other logs.
        (None, Some(point)) if append.expected == point.seq => {
            crate::lineage::fork(transaction, append.thread_id, point)?;
            crate::search::begin_at(transaction, &thread, point.seq)?;
            point.seq
        }
        (actual, _) => Seq::new(u64::try_from(actual.unwrap_or(0)).unwrap_or(0)),
    };
    if actual != append.expected {
        return Err(AppendError::Conflict { thread_id: append.thread_id, expected: append.expected, actual });
    }
    for row in rows {
        row.insert(transaction, &thread)?;
    }
    named.keep(transaction, &thread)?;
    for (event, row) in append.events.iter().zip(rows) {
        write_look_ups(transaction, &thread, &event.body)?;
        write_usage(transaction, append, &thread, row.seq, event)?;
    }
    write_thread(transaction, &thread, &append.row)?;
    if !append.row.ephemeral && rows.iter().any(|row| crate::search::is_said(&row.kind)) {
        crate::search::note(transaction, &thread)?;
    }
    for run in &append.runs {
        write_run(transaction, run)?;
    }
    if let Some((request_id, response)) = &append.request {
        transaction.prepare_cached("DELETE FROM requests WHERE at < ?1")?.execute([now - REQUEST_ID_KEPT_MS])?;
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO requests (request_id, at, fingerprint, response) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![request_id.as_str(), now, response.fingerprint, response.response])?;
    }
    Ok(Seq::new(append.expected.get() + rows.len() as u64))
}

fn write_usage(
    transaction: &Transaction<'_>,
    append: &Append,
    thread: &str,
    seq: i64,
    event: &NewEvent,
) -> Result<(), AppendError> {
    let EventBody::UsageRecorded { model, usage, purpose, priced, goal_id } = &event.body else { return Ok(()) };
    let paid = Paid {
        thread,
        seq,
        at_ms: append.at_ms,
        project_id: append.row.project_id,
        run_id: event.run_id,
        goal_id: *goal_id,
        model,
        purpose: *purpose,
        usage,
        priced: *priced,
    };
    Ok(paid.write(transaction)?)
}

fn write_look_ups(transaction: &Transaction<'_>, thread: &str, body: &EventBody) -> Result<(), AppendError> {
    let (id, open) = match body {
        EventBody::ApprovalRequested { request } => (request.approval_id.to_string(), true),
        EventBody::ApprovalResolved { approval_id, .. } => (approval_id.to_string(), false),
        EventBody::QuestionAsked { question } => (question.question_id.to_string(), true),
        EventBody::QuestionAnswered { question_id, .. } => (question_id.to_string(), false),
        _ => return Ok(()),
    };
    if open {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO pending (id, thread_id) VALUES (?1, ?2)")?
            .execute(params![id, thread])?;
    } else {
        transaction.prepare_cached("DELETE FROM pending WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

pub(crate) fn write_thread(connection: &Connection, thread: &str, row: &ThreadRow) -> Result<(), AppendError> {
    // The root of a thread whose log does not say it was found out when the table was made.
    connection
        .prepare_cached(
            "INSERT INTO threads (thread_id, project_id, cwd, title, model, mode, activity, active_run, archived, ephemeral,
             unfinished, created_at, updated_at, last_seq, usage, root, pinned, tags, preview, parent, parent_seq)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
             ON CONFLICT (thread_id) DO UPDATE SET project_id = ?2, cwd = ?3, title = ?4, model = ?5, mode = ?6,
             activity = ?7, active_run = ?8, archived = ?9, ephemeral = ?10, unfinished = ?11, created_at = ?12,
             updated_at = ?13, last_seq = ?14, usage = ?15, root = iif(?16 = '', root, ?16), pinned = ?17, tags = ?18,
             preview = ?19, parent = ?20, parent_seq = ?21",
        )?
        .execute(params![
            thread,
            row.project_id.to_string(),
            row.cwd,
            row.title,
            row.model,
            row.mode,
            row.activity,
            row.active_run.map(|id| id.to_string()),
            row.archived,
            row.ephemeral,
            row.unfinished,
            row.created_at_ms,
            row.updated_at_ms,
            i64::try_from(row.last_seq.get()).unwrap_or(i64::MAX),
            serde_json::to_string(&row.usage)?,
            row.root,
            row.pinned,
            serde_json::to_string(&row.tags)?,
            row.preview,
            row.forked.map(|point| point.parent_id.to_string()),
            row.forked.map_or(0, |point| i64::try_from(point.seq.get()).unwrap_or(i64::MAX)),
        ])?;
    Ok(())
}

pub(crate) fn write_run(connection: &Connection, run: &RunRow) -> Result<(), AppendError> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO runs (run_id, thread_id, active, started_at, record) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            run.record.run_id.to_string(),
            run.thread_id.to_string(),
            run.record.ended_at_ms.is_none(),
            run.record.started_at_ms,
            serde_json::to_string(&run.record)?,
        ])?;
    Ok(())
}
