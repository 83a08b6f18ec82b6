//! Finds threads, wakes their actors, and answers what needs no actor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mcode_agent::{LiveLane, LiveState};
use mcode_events::event::Event;
use mcode_events::state::ThreadState;
use mcode_ids::{InputId, QuestionId, RequestId, RunId, Seq, ThreadId};
use mcode_store::{Page, ProjectRow, RunRow, ThreadFilter, ThreadRow, TreeFilter, TreeRow};
use mcode_tools::shell::ProcessRow;
use tokio::sync::{mpsc, oneshot, watch};

use crate::actor::{self, Loading, MAILBOX};
use crate::command::{Answered, Change, Command, NewFork, NewInput, NewRun, NewThread, Reply, Resolution, Started};
use crate::deps::Deps;
use crate::error::ThreadError;
use crate::project::Resolved;

/// Clients that may watch one thread at the same time.
pub const SUBSCRIBERS_MAX: usize = 64;

/// Threads, loaded and not. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Threads {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    deps: Arc<Deps>,
    actors: Mutex<BTreeMap<ThreadId, ActorHandle>>,
    in_flight: Mutex<BTreeSet<String>>,
    shutting_down: std::sync::atomic::AtomicBool,
    pub(crate) imports: crate::importing::Imports,
    /// Whether the daemon's end leaves commands to the next one; whoever ends it first decides.
    keep: OnceLock<bool>,
}

#[derive(Debug, Clone)]
struct ActorHandle {
    commands: mpsc::Sender<Command>,
    head: Arc<watch::Sender<Seq>>,
    live: LiveLane,
}

/// A reader's view of a thread that goes on.
#[derive(Debug)]
pub struct Subscription {
    /// The last event that is on the disk; changes when there is more to read.
    pub head: watch::Receiver<Seq>,
    /// What is being written right now.
    pub live: watch::Receiver<LiveState>,
}

impl Threads {
    /// All threads of a store. Call [`crate::recovery::recover`] first.
    #[must_use]
    pub fn new(deps: Deps) -> Self {
        let inner = Inner {
            deps: Arc::new(deps),
            actors: Mutex::default(),
            in_flight: Mutex::default(),
            shutting_down: std::sync::atomic::AtomicBool::new(false),
            imports: Default::default(),
            keep: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What threads work with.
    #[must_use]
    pub fn deps(&self) -> &Deps {
        &self.inner.deps
    }

    /// Whether the daemon ends.
    pub(crate) fn is_ending(&self) -> bool {
        self.inner.shutting_down.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Makes an empty thread.
    pub async fn create(
        &self,
        thread: NewThread,
        request: Option<(RequestId, String)>,
    ) -> Result<(ThreadId, Seq), ThreadError> {
        let _guard = match self.earlier(request.as_ref()).await? {
            Earlier::Answered(response) => {
                return decode_made(&response);
            }
            Earlier::New(guard) => guard,
        };
        let thread_id = self.new_thread_id();
        let seq = self
            .ask(thread_id, |reply| Command::Create { thread: thread.clone(), request: request.clone(), reply })
            .await?;
        Ok((thread_id, seq))
    }

    /// Makes a thread that shares the beginning of another; gives the last event that both have.
    pub async fn fork(&self, fork: NewFork) -> Result<(ThreadId, Seq), ThreadError> {
        let _guard = match self.earlier(fork.request.as_ref()).await? {
            Earlier::Answered(response) => return decode_made(&response),
            Earlier::New(guard) => guard,
        };
        self.known(fork.parent_id).await?;
        let thread_id = self.new_thread_id();
        let seq = self.ask(thread_id, |reply| Command::Fork { fork: fork.clone(), reply }).await?;
        Ok((thread_id, seq))
    }

    /// Changes what a thread is called and where lists show it.
    pub async fn change(&self, thread_id: ThreadId, change: Change) -> Result<ThreadRow, ThreadError> {
        self.known(thread_id).await?;
        self.ask(thread_id, |reply| Command::Change { change: change.clone(), reply }).await?;
        self.known(thread_id).await
    }

    /// Goes back to an event of a thread; gives how much the model is not given any more.
    pub async fn rewind(&self, thread_id: ThreadId, to: Seq) -> Result<u32, ThreadError> {
        self.known(thread_id).await?;
        self.ask(thread_id, |reply| Command::Rewind { to, reply }).await
    }

    /// Starts a run in a new or an idle thread.
    pub async fn start_run(&self, run: NewRun) -> Result<Started, ThreadError> {
        let _guard = match self.earlier(run.request.as_ref()).await? {
            Earlier::Answered(response) => return decode_started(&response),
            Earlier::New(guard) => guard,
        };
        if let Some(thread_id) = run.thread_id {
            self.known(thread_id).await?;
        }
        let in_fork = run.resend.is_some_and(|resend| resend.in_fork);
        let thread_id = run.thread_id.filter(|_| !in_fork).unwrap_or_else(|| self.new_thread_id());
        self.ask(thread_id, |reply| Command::Start { run: Box::new(run.clone()), reply }).await
    }

    /// Gives a thread with a run at work more input.
    pub async fn input(&self, thread_id: ThreadId, input: NewInput) -> Result<(InputId, Seq), ThreadError> {
        let _guard = match self.earlier(input.request.as_ref()).await? {
            Earlier::Answered(response) => return decode_made(&response),
            Earlier::New(guard) => guard,
        };
        self.known(thread_id).await?;
        self.ask(thread_id, |reply| Command::Input { input: input.clone(), reply }).await
    }

    /// Cancels a run and waits for its end; a run that has ended keeps its end.
    pub async fn cancel_run(&self, run_id: RunId) -> Result<RunRow, ThreadError> {
        let row = self.run(run_id).await?;
        if row.record.ended_at_ms.is_some() {
            return Ok(row);
        }
        self.ask(row.thread_id, |reply| Command::Cancel { run_id, reply }).await?;
        self.run(run_id).await
    }

    /// A run.
    pub async fn run(&self, run_id: RunId) -> Result<RunRow, ThreadError> {
        let row = self.inner.deps.store.run(run_id).await?;
        row.ok_or_else(|| ThreadError::NotFound { what: "run", id: run_id.to_string() })
    }

    /// A thread's row.
    pub async fn known(&self, thread_id: ThreadId) -> Result<ThreadRow, ThreadError> {
        let row = self.inner.deps.store.thread(thread_id).await?;
        row.ok_or_else(|| ThreadError::NotFound { what: "thread", id: thread_id.to_string() })
    }

    /// A thread's state; loads it.
    pub async fn state(&self, thread_id: ThreadId) -> Result<Arc<ThreadState>, ThreadError> {
        self.known(thread_id).await?;
        self.ask(thread_id, |reply| Command::State { reply }).await
    }

    /// Settles an approval.
    pub async fn resolve(&self, resolution: Resolution) -> Result<Answered, ThreadError> {
        let id = resolution.approval_id;
        let thread_id = self
            .inner
            .deps
            .store
            .thread_of_approval(id)
            .await?
            .ok_or_else(|| ThreadError::not_pending("approval", &id))?;
        self.ask(thread_id, |reply| Command::Resolve { resolution: resolution.clone(), reply }).await
    }

    /// Answers a question.
    pub async fn answer(&self, question_id: QuestionId, answer: String) -> Result<Answered, ThreadError> {
        let thread_id = self
            .inner
            .deps
            .store
            .thread_of_question(question_id)
            .await?
            .ok_or_else(|| ThreadError::not_pending("question", &question_id))?;
        self.ask(thread_id, |reply| Command::Answer { question_id, answer: answer.clone(), reply }).await
    }

    /// The commands of a thread that run; with `run_id`, only those that this run has started.
    pub async fn processes(&self, thread_id: ThreadId, run_id: Option<RunId>) -> Result<Vec<ProcessRow>, ThreadError> {
        let table = Arc::clone(&self.inner.deps.processes);
        let rows = tokio::task::spawn_blocking(move || table.rows(thread_id))
            .await
            .map_err(|error| ThreadError::Store(Box::new(error)))?;
        let Some(run_id) = run_id.filter(|_| !rows.is_empty()) else { return Ok(rows) };
        let state = self.state(thread_id).await?;
        let of_run = |row: &ProcessRow| {
            state.open.processes.get(&row.process_id).is_some_and(|open| open.run_id == Some(run_id))
        };
        Ok(rows.into_iter().filter(of_run).collect())
    }

    /// States of the threads that wait for the user.
    pub async fn waiting(&self) -> Result<Vec<Arc<ThreadState>>, ThreadError> {
        let mut states = Vec::new();
        for thread_id in self.inner.deps.store.waiting_threads().await? {
            match self.state(thread_id).await {
                Ok(state) => states.push(state),
                // A damaged thread waits for nobody.
                Err(ThreadError::Damaged(_) | ThreadError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(states)
    }

    /// Wakes the ephemeral threads that an earlier daemon had no time to forget: each goes as soon as nobody watches it.
    pub async fn wake_ephemeral(&self) -> Result<(), ThreadError> {
        for thread_id in self.inner.deps.store.ephemeral_threads().await? {
            self.handle(thread_id)?;
        }
        Ok(())
    }

    /// Wakes the threads in which something of an earlier daemon goes on: commands that outlived it, and runs that wait for
    /// one or for an answer. Each takes up its own.
    pub async fn wake_unfinished(&self) -> Result<(), ThreadError> {
        let found = self.inner.deps.processes.found_threads();
        for thread_id in found.into_iter().chain(self.inner.deps.store.unfinished_threads().await?) {
            self.handle(thread_id)?;
        }
        Ok(())
    }

    /// Ends everything of a thread; gives how many commands were running. The thread stays.
    pub async fn close(&self, thread_id: ThreadId) -> Result<u32, ThreadError> {
        self.known(thread_id).await?;
        self.ask(thread_id, |reply| Command::End { delete: false, reply }).await
    }

    /// Ends everything of a thread and forgets it for good; gives how many commands were running.
    pub async fn delete(&self, thread_id: ThreadId) -> Result<u32, ThreadError> {
        self.known(thread_id).await?;
        self.ask(thread_id, |reply| Command::End { delete: true, reply }).await
    }

    /// Watches a thread; loads it.
    pub async fn subscribe(&self, thread_id: ThreadId) -> Result<Subscription, ThreadError> {
        let row = self.known(thread_id).await?;
        let handle = self.handle(thread_id)?;
        if handle.head.receiver_count() >= SUBSCRIBERS_MAX {
            return Err(ThreadError::TooManySubscribers(thread_id));
        }
        // What is on the disk can be read while a long thread is still being loaded.
        handle.head.send_if_modified(|head| {
            let behind = *head < row.last_seq;
            *head = row.last_seq.max(*head);
            behind
        });
        Ok(Subscription { head: handle.head.subscribe(), live: handle.live.subscribe() })
    }

    /// Threads, newest activity first.
    pub async fn list(&self, filter: ThreadFilter) -> Result<Page<ThreadRow>, ThreadError> {
        Ok(self.inner.deps.store.threads(filter).await?)
    }

    /// Threads with their forks.
    pub async fn tree(&self, filter: TreeFilter) -> Result<Page<TreeRow>, ThreadError> {
        Ok(self.inner.deps.store.tree(filter).await?)
    }

    /// Runs, newest first.
    pub async fn runs(
        &self,
        thread_id: Option<ThreadId>,
        active_only: bool,
        page_size: u32,
        page_token: Option<String>,
    ) -> Result<Page<RunRow>, ThreadError> {
        Ok(self.inner.deps.store.runs(thread_id, active_only, page_size, page_token).await?)
    }

    /// Events after a seq.
    pub async fn events(
        &self,
        thread_id: ThreadId,
        after: Seq,
        max: u32,
        max_bytes: usize,
    ) -> Result<Vec<Event>, ThreadError> {
        Ok(self.inner.deps.store.read(thread_id, after, max, max_bytes).await?)
    }

    /// Known projects, newest first.
    pub async fn projects(&self, page_size: u32, page_token: Option<String>) -> Result<Page<ProjectRow>, ThreadError> {
        Ok(self.inner.deps.store.projects(page_size, page_token).await?)
    }

    /// The project that a folder belongs to; made when it is new.
    pub async fn project_of(&self, cwd: String) -> Result<Resolved, ThreadError> {
        crate::project::resolve(&self.inner.deps, cwd).await
    }

    /// Has the threads of a folder's work tree belong to what the user calls `resource`; empty for the project as it is
    /// found.
    pub async fn set_resource(&self, cwd: String, resource: &str) -> Result<Resolved, ThreadError> {
        crate::project::set_resource(&self.inner.deps, cwd, resource).await
    }

    /// Runs at work.
    pub async fn active_runs(&self) -> Result<u32, ThreadError> {
        let page = self.inner.deps.store.runs(None, true, 500, None).await?;
        Ok(u32::try_from(page.rows.len()).unwrap_or(u32::MAX))
    }

    /// Runs that would be cut by the end of this daemon. With `keep`, as for [`Self::keep_processes`], those that wait for a
    /// command, an answer or a provider are not among them: the next daemon goes on with them.
    pub async fn runs_to_cut(&self, keep: bool) -> Result<u32, ThreadError> {
        let rows = self.inner.deps.store.runs(None, true, 500, None).await?.rows;
        let mut cut = rows.len();
        if keep && cfg!(unix) {
            for row in rows {
                // One that can not be asked is taken to be cut.
                let outlasts = self.ask(row.thread_id, |reply| Command::Outlasts { reply }).await;
                cut -= usize::from(outlasts.unwrap_or(false));
            }
        }
        Ok(u32::try_from(cut).unwrap_or(u32::MAX))
    }

    /// Threads in memory.
    #[must_use]
    pub fn loaded(&self) -> u32 {
        u32::try_from(self.actors().len()).unwrap_or(u32::MAX)
    }

    /// Decides whether [`Self::shut_down`] ends commands, which it does unless told otherwise, or leaves them to the next
    /// daemon with the runs that wait for one. Where commands can not outlive the daemon they are ended all the same. The
    /// first call decides.
    pub fn keep_processes(&self, keep: bool) {
        self.inner.keep.get_or_init(|| keep && cfg!(unix));
    }

    /// Interrupts all runs, lets every actor record their ends, and refuses new work.
    pub async fn shut_down(&self) {
        let keep = *self.inner.keep.get_or_init(|| false);
        if keep {
            self.inner.deps.processes.leave_all();
        }
        self.inner.shutting_down.store(true, std::sync::atomic::Ordering::SeqCst);
        let handles: Vec<ActorHandle> = self.actors().values().cloned().collect();
        let closing = handles.into_iter().map(|handle| async move {
            let (reply, answer) = oneshot::channel();
            if handle.commands.send(Command::Close { keep, reply }).await.is_ok() {
                let _ = answer.await.is_ok();
            }
            handle.commands.closed().await;
        });
        futures::future::join_all(closing).await;
    }

    fn new_thread_id(&self) -> ThreadId {
        ThreadId::from_uuid(self.inner.deps.ids.next())
    }

    fn actors(&self) -> MutexGuard<'_, BTreeMap<ThreadId, ActorHandle>> {
        self.inner.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, thread_id: ThreadId) -> Result<ActorHandle, ThreadError> {
        let mut actors = self.actors();
        // Asked behind the lock, so that no actor begins after `shut_down` has looked who there is.
        if self.is_ending() {
            return Err(ThreadError::ShuttingDown);
        }
        if let Some(handle) = actors.get(&thread_id).filter(|handle| !handle.commands.is_closed()) {
            return Ok(handle.clone());
        }
        let (commands, mailbox) = mpsc::channel(MAILBOX);
        let handle = ActorHandle { commands, head: Arc::new(watch::Sender::new(Seq::ZERO)), live: LiveLane::default() };
        let loading = Loading {
            deps: Arc::clone(&self.inner.deps),
            thread_id,
            commands: mailbox,
            head: Arc::clone(&handle.head),
            live: handle.live.clone(),
        };
        let (inner, ended) = (Arc::downgrade(&self.inner), handle.commands.clone());
        tokio::spawn(async move {
            actor::run(loading).await;
            if let Some(inner) = inner.upgrade() {
                let mut actors = inner.actors.lock().unwrap_or_else(PoisonError::into_inner);
                if actors.get(&thread_id).is_some_and(|handle| handle.commands.same_channel(&ended)) {
                    actors.remove(&thread_id);
                }
            }
        });
        actors.insert(thread_id, handle.clone());
        Ok(handle)
    }

    /// Sends a command and waits; an actor that left memory in between is woken once more.
    pub(crate) async fn ask<T>(
        &self,
        thread_id: ThreadId,
        command: impl Fn(Reply<T>) -> Command,
    ) -> Result<T, ThreadError> {
        for _ in 0..2 {
            let handle = self.handle(thread_id)?;
            let (reply, answer) = oneshot::channel();
            match handle.commands.try_send(command(reply)) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => return Err(ThreadError::Busy(thread_id)),
                Err(mpsc::error::TrySendError::Closed(_)) => continue,
            }
            match answer.await {
                Ok(result) => return result,
                Err(_) => continue,
            }
        }
        Err(ThreadError::Closed)
    }

    /// The answer that this request got before, or leave to carry it out now.
    async fn earlier(&self, request: Option<&(RequestId, String)>) -> Result<Earlier, ThreadError> {
        let Some((request_id, fingerprint)) = request else { return Ok(Earlier::New(None)) };
        let key = request_id.as_str().to_owned();
        if !self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            return Err(ThreadError::RequestInFlight(key));
        }
        let guard = InFlight { inner: Arc::clone(&self.inner), key };
        match self.inner.deps.store.response_to(request_id.clone()).await? {
            None => Ok(Earlier::New(Some(guard))),
            Some(stored) if stored.fingerprint == *fingerprint => Ok(Earlier::Answered(stored.response)),
            Some(_) => Err(ThreadError::RequestIdReused(request_id.as_str().to_owned())),
        }
    }
}

enum Earlier {
    Answered(String),
    New(#[allow(dead_code, reason = "held for its drop")] Option<InFlight>),
}

/// Marks a request as being carried out, until dropped.
struct InFlight {
    inner: Arc<Inner>,
    key: String,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

pub(crate) fn encode_started(started: Started) -> String {
    format!("{} {} {}", started.thread_id, started.run_id, started.seq)
}

fn decode_started(text: &str) -> Result<Started, ThreadError> {
    let mut words = text.split(' ');
    let started = (|| {
        Some(Started {
            thread_id: words.next()?.parse().ok()?,
            run_id: words.next()?.parse().ok()?,
            seq: Seq::new(words.next()?.parse().ok()?),
        })
    })();
    started.ok_or_else(|| ThreadError::InvalidArgument {
        field: "request_id",
        message: "was used by another call".to_owned(),
    })
}

/// The answer to a request that made something: its id, and where it is in the log.
pub(crate) fn encode_made(id: impl std::fmt::Display, seq: Seq) -> String {
    format!("{id} {seq}")
}

fn decode_made<T: std::str::FromStr>(text: &str) -> Result<(T, Seq), ThreadError> {
    text.split_once(' ').and_then(|(id, seq)| Some((id.parse().ok()?, Seq::new(seq.parse().ok()?)))).ok_or_else(|| {
        ThreadError::InvalidArgument { field: "request_id", message: "was used by another call".to_owned() }
    })
}
