//! The actor of one thread: the only writer of its log.
//!
//! It waits for commands, for signals of its run, for the run's end and for deadlines, and handles one at a time.
//! [`Actor::append`] is the only way to a new event: on the disk first, then folded, then published.

use std::sync::Arc;
use std::time::Duration;

use mcode_agent::port::SIGNALS_MAX;
use mcode_agent::{AgentSignal, AsideAnswer, LiveLane, RunOutcome};
use mcode_events::event::{Event, EventBody, NewEvent};
use mcode_events::state::ThreadState;
use mcode_ids::{RequestId, RunId, Seq, ThreadId};
use mcode_store::{Append, Damage, RunRow, StoredResponse, ThreadRow};
use mcode_tools::FileLedger;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::closing::End;
use crate::command::{Command, RunSurroundings};
use crate::deps::Deps;
use crate::error::ThreadError;
use crate::pending::Pending;
use crate::run::{ActiveRun, Cause};
use crate::titling::Titling;

/// Commands that may wait; more are refused as busy.
pub(crate) const MAILBOX: usize = 64;

/// An idle thread without subscribers leaves memory after this long.
const UNLOAD_AFTER: Duration = Duration::from_secs(30 * 60);

/// An ephemeral thread is forgotten this long after its run, if nobody watches.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// An end that could not be recorded is tried again this long after.
const RECORD_END_AGAIN: Duration = Duration::from_secs(2);

/// Inputs that may wait in a thread.
pub(crate) const QUEUED_INPUTS_MAX: usize = 100;

/// What an actor needs from its loader.
pub(crate) struct Loading {
    pub(crate) deps: Arc<Deps>,
    pub(crate) thread_id: ThreadId,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) head: Arc<watch::Sender<Seq>>,
    pub(crate) live: LiveLane,
}

/// One thread at work.
pub(crate) struct Actor {
    pub(crate) deps: Arc<Deps>,
    pub(crate) thread_id: ThreadId,
    pub(crate) state: Arc<ThreadState>,
    pub(crate) damage: Option<Damage>,
    pub(crate) ledger: Arc<FileLedger>,
    pub(crate) live: LiveLane,
    pub(crate) active: Option<ActiveRun>,
    pub(crate) pending: Pending,
    pub(crate) signal_sender: mpsc::Sender<AgentSignal>,
    /// How the run ended that the log still believes to be at work, if that could not be recorded.
    pub(crate) unrecorded: Option<RunOutcome>,
    /// What the last run that came to its end was given; in memory alone.
    pub(crate) last_surroundings: Option<RunSurroundings>,
    /// When the thread begins a run by itself, for a command that has ended in the background.
    pub(crate) wake_at: Option<Instant>,
    /// A title that the small model thinks of.
    pub(crate) titling: Option<Titling>,
    /// Those who wait for everything of the thread to have ended.
    pub(crate) ends: Vec<End>,
    pub(crate) closing: bool,
    /// Commands are left to the next daemon when this one ends.
    pub(crate) keeping: bool,
    pub(crate) head: Arc<watch::Sender<Seq>>,
    commands: mpsc::Receiver<Command>,
    signals: mpsc::Receiver<AgentSignal>,
}

/// What woke the actor.
enum Wake {
    Command(Option<Command>),
    Signal(AgentSignal),
    RunEnded(Result<RunOutcome, tokio::task::JoinError>),
    RunDeadline,
    ApprovalDeadline,
    UnrecordedEnd,
    CommandEnded,
    Titled(AsideAnswer),
    Idle,
}

/// Loads the thread, or begins a new one, and works until it is closed or idle for long.
pub(crate) async fn run(loading: Loading) {
    let Loading { deps, thread_id, mut commands, head, live } = loading;
    let loaded = match deps.store.load(thread_id).await {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(%thread_id, %error, "the thread cannot be loaded");
            commands.close();
            let cause = error.to_string();
            while let Some(command) = commands.recv().await {
                command.fail(ThreadError::NotLoaded { thread_id, cause: cause.clone() });
            }
            return;
        }
    };
    let (state, damage) = match loaded {
        Some(loaded) => (loaded.state, loaded.damage),
        None => (ThreadState::new(thread_id), None),
    };
    if let Some(damage) = &damage {
        tracing::error!(%damage, "the thread is opened read-only");
    }
    head.send_replace(state.last_seq);
    let (signal_sender, signals) = mpsc::channel(SIGNALS_MAX);
    let ledger = Arc::new(FileLedger::new(state.files.clone()));
    let mut actor = Actor {
        deps,
        thread_id,
        state: Arc::new(state),
        damage,
        ledger,
        live,
        active: None,
        pending: Pending::default(),
        signal_sender,
        unrecorded: None,
        last_surroundings: None,
        wake_at: None,
        titling: None,
        ends: Vec::new(),
        closing: false,
        keeping: false,
        head,
        commands,
        signals,
    };
    // Before anything is closed: what an earlier daemon started may still run.
    actor.adopt().await;
    // A run that nobody works on: its end could not be recorded before the thread left memory.
    if let Err(error) = actor.record_left_end().await {
        tracing::warn!(%thread_id, %error, "the end of a run cannot be recorded yet");
    }
    actor.work().await;
}

impl Actor {
    async fn work(&mut self) {
        loop {
            match self.wait().await {
                Wake::Command(Some(command)) => self.handle(command).await,
                Wake::Command(None) => break,
                Wake::Signal(signal) => self.signal(signal).await,
                Wake::RunEnded(outcome) => self.run_ended(outcome).await,
                Wake::RunDeadline => {
                    if let Some(active) = &mut self.active {
                        active.end(Cause::Timeout);
                    }
                }
                Wake::ApprovalDeadline => self.expire_approvals().await,
                Wake::UnrecordedEnd => {
                    if let Err(error) = self.record_left_end().await {
                        tracing::warn!(thread_id = %self.thread_id, %error, "the end of a run still cannot be recorded");
                    }
                }
                Wake::CommandEnded => self.wake().await,
                Wake::Titled(answer) => self.titled(answer).await,
                Wake::Idle => {
                    if self.leave().await {
                        return;
                    }
                }
            }
            if self.closing && self.active.is_none() {
                break;
            }
        }
        if !self.keeping {
            self.end_processes().await;
        }
        self.ended().await;
        // Whoever still waits finds the channel closed and asks again, which loads the thread anew.
        self.commands.close();
    }

    /// Ends what still runs in the background; its ends are signals, so those are handled meanwhile.
    pub(crate) async fn end_processes(&mut self) {
        let (processes, thread_id) = (Arc::clone(&self.deps.processes), self.thread_id);
        let mut ending = tokio::spawn(async move { processes.kill_thread(thread_id).await });
        loop {
            tokio::select! {
                biased;
                Some(signal) = self.signals.recv() => self.signal(signal).await,
                ended = &mut ending => {
                    if let Err(error) = ended {
                        tracing::error!(thread_id = %self.thread_id, %error, "the processes of a thread could not be ended");
                    }
                    return;
                }
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let now = self.deps.clock.now();
        let approval = self.pending.next_deadline().map(|deadline| {
            let wait = u64::try_from(deadline.saturating_sub(now.millis())).unwrap_or(0);
            Instant::now() + Duration::from_millis(wait)
        });
        let run_deadline = self.active.as_ref().and_then(|active| active.deadline);
        let idle = if self.active.is_some() {
            None
        } else if self.state.ephemeral {
            Some(Instant::now() + FORGET_AFTER)
        } else {
            Some(Instant::now() + UNLOAD_AFTER)
        };
        let unrecorded = self.has_unrecorded_end().then(|| Instant::now() + RECORD_END_AGAIN);
        let wake = self.wake_at.filter(|_| self.active.is_none());
        let active = self.active.as_mut().map(|active| &mut active.task);
        tokio::select! {
            biased;
            Some(signal) = self.signals.recv() => Wake::Signal(signal),
            outcome = joined(active) => Wake::RunEnded(outcome),
            command = self.commands.recv() => Wake::Command(command),
            () = until(run_deadline) => Wake::RunDeadline,
            () = until(approval) => Wake::ApprovalDeadline,
            () = until(unrecorded) => Wake::UnrecordedEnd,
            () = until(wake) => Wake::CommandEnded,
            answer = Titling::answered(&mut self.titling) => Wake::Titled(answer),
            () = until(idle) => Wake::Idle,
        }
    }

    /// Whether an idle actor may leave memory: nobody watches, nothing waits, and no process of it runs.
    async fn leave(&mut self) -> bool {
        if self.head.receiver_count() > 0 || !self.commands.is_empty() {
            return false;
        }
        // A server in the background is used without anybody looking at its thread.
        if !self.state.ephemeral && !self.state.open.processes.is_empty() {
            return false;
        }
        self.end_processes().await;
        if self.head.receiver_count() > 0 || !self.commands.is_empty() {
            return false;
        }
        // From here on another actor may be made, so this one writes nothing any more.
        self.commands.close();
        if self.state.ephemeral
            && self.damage.is_none()
            && let Err(error) = self.forget().await
        {
            tracing::warn!(thread_id = %self.thread_id, %error, "an ephemeral thread could not be forgotten");
        }
        true
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Create { thread, request, reply } => {
                let result = self.create(&thread, request).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Fork { fork, reply } => {
                let result = self.fork(fork).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Change { change, reply } => {
                let result = self.change(change).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Record { events, reply } => {
                let result = self.append(events, None).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Rewind { to, reply } => {
                let result = self.rewind(to).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Start { run, reply } => {
                let result = self.start(*run).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Input { input, reply } => {
                let result = self.input(input).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Cancel { run_id, reply } => match &mut self.active {
                Some(active) if active.run_id == run_id => {
                    active.end(Cause::User);
                    active.waiting.push(reply);
                }
                // A run that has ended keeps its end: nothing is left to do.
                _ => {
                    let _ = reply.send(Ok(())).is_ok();
                }
            },
            Command::Resolve { resolution, reply } => {
                let result = self.resolve(resolution).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Answer { question_id, answer, reply } => {
                let result = self.answer(question_id, answer).await;
                let _ = reply.send(result).is_ok();
            }
            Command::State { reply } => {
                let result = match &self.damage {
                    Some(damage) => Err(damage.clone().into()),
                    None => Ok(Arc::clone(&self.state)),
                };
                let _ = reply.send(result).is_ok();
            }
            Command::Outlasts { reply } => drop(reply.send(Ok(self.active.is_some() && self.outlasts()))),
            Command::Mended { text, reply } => {
                let result = self.mended(text).await;
                let _ = reply.send(result).is_ok();
            }
            Command::Close { keep, reply } => self.close(keep, reply),
            Command::Retire { expected, entry, reply } => self.retire(expected, *entry, reply).await,
            Command::End { delete, reply } => self.end(delete, reply),
        }
    }

    fn close(&mut self, keep: bool, reply: crate::command::Reply<()>) {
        self.closing = true;
        self.keeping = keep;
        if keep && self.active.is_some() && self.outlasts() {
            self.hand_over();
        }
        match &mut self.active {
            Some(active) => {
                active.end(Cause::Shutdown);
                active.waiting.push(reply);
            }
            None => {
                let _ = reply.send(Ok(())).is_ok();
            }
        }
    }

    /// Appends events; they are on the disk, folded in and published when this returns.
    pub(crate) async fn append(
        &mut self,
        events: Vec<NewEvent>,
        request: Option<(RequestId, StoredResponse)>,
    ) -> Result<Seq, ThreadError> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone().into());
        }
        if events.is_empty() {
            return Ok(self.state.last_seq);
        }
        let expected = self.state.last_seq;
        let at_ms = self.deps.clock.now().millis().max(self.state.updated_at_ms);
        let state = Arc::make_mut(&mut self.state);
        let runs = fold_new(state, &events, at_ms);
        // Only these matter to the table of processes.
        let bodies: Vec<EventBody> =
            events.iter().map(|new| &new.body).filter(|body| ends_process(body)).cloned().collect();
        let goes_back = events.iter().any(|new| matches!(new.body, EventBody::Rewound { .. }));
        let result = match ThreadRow::of(state) {
            Some(row) => {
                let append = Append { thread_id: self.thread_id, expected, events, at_ms, row, runs, request };
                self.deps.store.append(append).await.map_err(ThreadError::from)
            }
            None => Err(ThreadError::NotFound { what: "thread", id: self.thread_id.to_string() }),
        };
        match result {
            Ok(seq) => {
                self.deps.processes.recorded(self.thread_id, &bodies);
                self.head.send_replace(seq);
                if goes_back {
                    // The model has to look again at what it is not given any more.
                    self.ledger = Arc::new(FileLedger::new(self.state.files.clone()));
                }
                Ok(seq)
            }
            Err(error) => {
                self.reload().await;
                Err(error)
            }
        }
    }

    /// The state was ahead of the log: goes back to what the log says.
    pub(crate) async fn reload(&mut self) {
        match self.deps.store.load(self.thread_id).await {
            Ok(Some(loaded)) => {
                self.state = Arc::new(loaded.state);
                self.damage = loaded.damage;
            }
            Ok(None) => self.state = Arc::new(ThreadState::new(self.thread_id)),
            Err(error) => {
                tracing::error!(thread_id = %self.thread_id, %error, "the log cannot be read after a failed append");
                self.closing = true;
            }
        }
    }
}

/// Folds events that are about to be appended; gives the rows of the runs that they change.
pub(crate) fn fold_new(state: &mut ThreadState, events: &[NewEvent], at_ms: i64) -> Vec<RunRow> {
    let thread_id = state.thread_id;
    let mut changed: Vec<RunId> = Vec::new();
    for new in events {
        if let Some(run_id) = new.run_id.filter(|run_id| changes_run(&new.body) && !changed.contains(run_id)) {
            changed.push(run_id);
        }
        let (run_id, turn_id, body) = (new.run_id, new.turn_id, new.body.clone());
        state.apply(&Event { thread_id, seq: state.last_seq.next(), at_ms, run_id, turn_id, body });
    }
    let records = changed.into_iter().filter_map(|run_id| state.run(run_id));
    records.map(|record| RunRow { thread_id, record: record.clone() }).collect()
}

/// Whether an event is the end of a process, or of a call that may have started one.
const fn ends_process(body: &EventBody) -> bool {
    matches!(body, EventBody::ToolCallFinished { .. } | EventBody::ProcessExited { .. })
}

/// Whether an event changes the row of its run.
const fn changes_run(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::RunStarted { .. }
            | EventBody::RunStatusChanged { .. }
            | EventBody::ModeChanged { .. }
            | EventBody::RunResumed {}
            | EventBody::RunFinished { .. }
            | EventBody::StepStarted { .. }
            | EventBody::UsageRecorded { .. }
    )
}

async fn joined(
    task: Option<&mut tokio::task::JoinHandle<RunOutcome>>,
) -> Result<mcode_agent::RunOutcome, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
