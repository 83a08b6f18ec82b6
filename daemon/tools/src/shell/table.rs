//! What the commands of each thread are doing: the table that the `shell` and `process` tools share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcode_ids::{ProcessId, ThreadId};
use mcode_sandbox::{ExitState, Group, ProcessIdentity, Spool};
use tokio::process::ChildStdin;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most processes that one thread may have running.
pub const LIVE_MAX: usize = 32;
/// Most ended processes of a thread whose output can still be polled.
pub const ENDED_KEPT_MAX: usize = 64;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The command itself runs.
    Running,
    /// The command has ended; something it started still runs.
    Lingering,
    /// Nothing of it runs any more.
    Gone,
}

/// Why a command is not running any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(ExitState),
    /// By its time limit.
    TimedOut(Duration),
    /// It was killed, and why.
    Killed(String),
    /// The system could not tell.
    Lost(String),
}

impl End {
    /// The exit status, when there is one.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        if let Self::Exited(state) = self { state.code } else { None }
    }

    /// In words, such as `exit code 3` or `timed out after 2 s`.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Exited(ExitState { code: Some(code), .. }) => format!("exit code {code}"),
            Self::Exited(ExitState { signal: Some(signal), .. }) => format!("ended by signal {signal}"),
            Self::Exited(_) => "ended".to_owned(),
            Self::TimedOut(limit) => format!("timed out after {} s", limit.as_secs()),
            Self::Killed(why) => format!("killed: {why}"),
            Self::Lost(why) => format!("lost: {why}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) spool: Spool,
    pub(super) stage: Stage,
    pub(super) end: Option<End>,
    pub(super) took: Duration,
    /// How much of the output was given to the model by `poll`.
    polled: u64,
    kill_reason: Option<String>,
}

/// A command that was started, with its output and its end.
#[derive(Debug)]
pub struct Process {
    /// Its id.
    pub process_id: ProcessId,
    /// The command, shortened for people.
    pub command: String,
    /// Whether it was started to outlive its call.
    pub background: bool,
    pub(super) group: Group,
    pub(super) began: Instant,
    pub(super) state: Mutex<State>,
    pub(super) kill: CancellationToken,
    pub(super) stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    changes: watch::Sender<u64>,
}

impl Process {
    pub(super) fn new(
        process_id: ProcessId,
        command: String,
        background: bool,
        group: Group,
        stdin: Option<ChildStdin>,
    ) -> Self {
        let state = State {
            spool: if background { Spool::in_memory() } else { Spool::new() },
            stage: Stage::Running,
            end: None,
            took: Duration::ZERO,
            polled: 0,
            kill_reason: None,
        };
        Self {
            process_id,
            command,
            background,
            group,
            began: Instant::now(),
            state: Mutex::new(state),
            kill: CancellationToken::new(),
            stdin: tokio::sync::Mutex::new(stdin),
            changes: watch::Sender::new(0),
        }
    }

    /// Number and start time.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.group.identity()
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.state().stage
    }

    /// Why it does not run any more; `None` while it does.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.state().end.clone()
    }

    /// How long it ran, or has been running.
    #[must_use]
    pub fn took(&self) -> Duration {
        let state = self.state();
        if state.end.is_some() { state.took } else { self.began.elapsed() }
    }

    /// Numbers of the processes of it that still run.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        if self.stage() == Stage::Gone { Vec::new() } else { self.group.members() }
    }

    /// Asks for its end, with everything it started; `why` is told to the model.
    pub fn request_kill(&self, why: &str) {
        self.state().kill_reason.get_or_insert_with(|| why.to_owned());
        self.kill.cancel();
    }

    pub(super) fn kill_reason(&self) -> String {
        self.state().kill_reason.clone().unwrap_or_default()
    }

    pub(super) fn push(&self, chunk: &[u8]) {
        self.state().spool.push(chunk);
        self.changed();
    }

    pub(super) fn advance(&self, stage: Stage, end: End) {
        {
            let mut state = self.state();
            state.stage = stage;
            if state.end.is_none() {
                state.took = self.began.elapsed();
            }
            state.end = Some(end);
        }
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Waits until it has come at least as far as `stage`.
    pub async fn reached(&self, stage: Stage) {
        let mut changes = self.changes.subscribe();
        // The sender lives as long as `self`, so this does not fail before the stage is reached.
        while self.stage() < stage && changes.changed().await.is_ok() {}
    }

    /// Waits for output that was not polled yet, or for the command's end.
    pub(super) async fn news(&self) {
        let mut changes = self.changes.subscribe();
        loop {
            {
                let state = self.state();
                if state.spool.total() > state.polled || state.stage > Stage::Running {
                    return;
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The output since the last call, at most `max` of its last bytes, and how many bytes were left out before them.
    pub(super) fn poll(&self, max: usize) -> (Vec<u8>, u64) {
        let mut state = self.state();
        let news = state.spool.since(state.polled, max);
        state.polled = state.spool.total();
        news
    }

    /// Takes the whole output out to be read without the lock; the process goes on into an empty one.
    pub(super) fn take_spool(&self) -> Spool {
        let mut state = self.state();
        state.polled = 0;
        std::mem::replace(&mut state.spool, Spool::in_memory())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Threads = BTreeMap<ThreadId, BTreeMap<ProcessId, Arc<Process>>>;

/// The processes of every thread.
#[derive(Debug, Default)]
pub struct ProcessTable {
    threads: Mutex<Threads>,
    pub(super) tasks: TaskTracker,
}

impl ProcessTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The processes of a thread, oldest first.
    #[must_use]
    pub fn list(&self, thread: ThreadId) -> Vec<Arc<Process>> {
        self.threads().get(&thread).map(|known| known.values().cloned().collect()).unwrap_or_default()
    }

    /// One process of a thread.
    #[must_use]
    pub fn get(&self, thread: ThreadId, process: ProcessId) -> Option<Arc<Process>> {
        self.threads().get(&thread)?.get(&process).cloned()
    }

    /// How many processes of a thread still run.
    #[must_use]
    pub fn live(&self, thread: ThreadId) -> usize {
        self.list(thread).iter().filter(|process| process.stage() < Stage::Gone).count()
    }

    /// Notes a process, and forgets the oldest ended ones beyond [`ENDED_KEPT_MAX`].
    pub(super) fn insert(&self, thread: ThreadId, process: Arc<Process>) {
        let mut threads = self.threads();
        let known = threads.entry(thread).or_default();
        known.insert(process.process_id, process);
        let ended: Vec<ProcessId> =
            known.values().filter(|process| process.stage() == Stage::Gone).map(|process| process.process_id).collect();
        for old in ended.iter().take(ended.len().saturating_sub(ENDED_KEPT_MAX)) {
            known.remove(old);
        }
    }

    /// Forgets a process whose whole output its call has already given.
    pub(super) fn forget(&self, thread: ThreadId, process: ProcessId) {
        if let Some(known) = self.threads().get_mut(&thread) {
            known.remove(&process);
        }
    }

    /// Ends everything that a thread started, and forgets it. Returns when it is gone.
    pub async fn kill_thread(&self, thread: ThreadId) {
        let known = self.threads().remove(&thread).unwrap_or_default();
        end_all(known.into_values().collect(), "the thread was closed").await;
    }

    /// Ends everything, when the daemon ends. Returns when it is gone and recorded.
    pub async fn kill_all(&self) {
        let threads = std::mem::take(&mut *self.threads());
        end_all(threads.into_values().flat_map(BTreeMap::into_values).collect(), "the daemon ended").await;
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn end_all(processes: Vec<Arc<Process>>, why: &str) {
    for process in &processes {
        process.request_kill(why);
    }
    for process in &processes {
        process.reached(Stage::Gone).await;
    }
}
