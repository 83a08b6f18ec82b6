//! One command that was started, as its thread sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcode_ids::{ProcessId, ToolCallId};
use mcode_sandbox::hosted::Usage;
use mcode_sandbox::{Ended, ExitState, Hosted, ProcessIdentity, Progress};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bounds::Wish;

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
struct State {
    stage: Stage,
    end: Option<End>,
    took: Duration,
    /// How much of the output was given to the model already.
    polled: u64,
    kill_reason: Option<String>,
    /// It goes on whatever happens to its call: this daemon ends and leaves it to the next.
    left_alone: bool,
}

/// What of a process is on the disk. When all is, what its host keeps can go.
#[derive(Debug, Default)]
struct Recorded {
    end: AtomicBool,
    call: AtomicBool,
}

/// A command that was started, with its output and its end.
#[derive(Debug)]
pub struct Process {
    /// Its id.
    pub process_id: ProcessId,
    /// The call that started it.
    pub tool_call_id: ToolCallId,
    /// The command, shortened for people.
    pub command: String,
    /// What it was given beyond the sandbox: whatever is written to it has that too.
    pub(super) given: Wish,
    pub(super) hosted: Hosted,
    pub(super) kill: CancellationToken,
    recorded: Recorded,
    /// Its call has given its whole output, so that nobody needs to see it again.
    pub(super) delivered: AtomicBool,
    background: AtomicBool,
    adopted: bool,
    began: Instant,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

impl Process {
    /// `adopted` says that an earlier daemon started it: its output so far was shown already, or never will be.
    pub(super) fn new(
        process_id: ProcessId,
        tool_call_id: ToolCallId,
        command: String,
        given: Wish,
        hosted: Hosted,
        adopted: bool,
    ) -> Self {
        let (background, age) = {
            let progress = hosted.progress();
            let now = progress.borrow();
            (now.background, Duration::from_millis(now.age_ms))
        };
        let state = State {
            stage: Stage::Running,
            end: None,
            took: Duration::ZERO,
            polled: 0,
            kill_reason: None,
            left_alone: false,
        };
        Self {
            process_id,
            tool_call_id,
            command,
            given,
            hosted,
            kill: CancellationToken::new(),
            recorded: Recorded::default(),
            delivered: AtomicBool::new(false),
            background: AtomicBool::new(background),
            adopted,
            began: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        }
    }

    /// Number and start time.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.hosted.identity()
    }

    /// Whether it outlives its call: started so, or put there since.
    #[must_use]
    pub fn is_background(&self) -> bool {
        self.background.load(Ordering::Relaxed)
    }

    /// When it was started.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Time since its start.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.began.elapsed()
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

    /// Numbers of the processes of it that still run. Looks at all processes of the machine.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        if self.stage() == Stage::Gone { Vec::new() } else { self.hosted.members() }
    }

    /// What its processes use. Looks at all processes of the machine.
    #[must_use]
    pub fn usage(&self) -> Usage {
        if self.stage() == Stage::Gone { Usage::default() } else { self.hosted.usage() }
    }

    /// Asks for its end, with everything it started; `why` is told to the model.
    pub fn request_kill(&self, why: &str) {
        let mut state = self.state();
        if !state.left_alone {
            state.kill_reason.get_or_insert_with(|| why.to_owned());
            drop(state);
            self.kill.cancel();
        }
    }

    /// From now on nothing that happens in this daemon ends it.
    pub(super) fn leave_alone(&self) {
        self.state().left_alone = true;
    }

    pub(super) fn kill_reason(&self) -> String {
        self.state().kill_reason.clone().unwrap_or_default()
    }

    /// Puts it into the background; what was printed so far counts as read.
    pub(super) async fn to_background(&self) {
        self.background.store(true, Ordering::Relaxed);
        self.hosted.to_background().await;
        self.state().polled = self.hosted.output().total();
    }

    /// The end that is told, in the table's words.
    pub(super) fn end_of(&self, progress: &Progress) -> Option<End> {
        Some(match progress.ended.clone()? {
            Ended::Exited(state) => End::Exited(state),
            Ended::TimedOut(limit) => End::TimedOut(limit),
            Ended::Killed(why) => End::Killed(why),
            Ended::Lost(why) => End::Lost(why),
        })
    }

    /// From where on its output is shown to people who watch.
    pub(super) fn shown_from(&self) -> u64 {
        if self.adopted { self.hosted.output().total() } else { 0 }
    }

    /// Notes how it ended; that is news only together with the stage.
    pub(super) fn note_end(&self, end: End, took: Duration) {
        let mut state = self.state();
        state.end = Some(end);
        state.took = took;
    }

    pub(super) fn advance(&self, stage: Stage, end: End, took: Duration) {
        {
            let mut state = self.state();
            state.stage = stage;
            state.end = Some(end);
            state.took = took;
        }
        self.changed();
    }

    pub(super) fn changed(&self) {
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
            let (polled, stage) = {
                let state = self.state();
                (state.polled, state.stage)
            };
            if stage > Stage::Running || self.hosted.output().total() > polled {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The output since the last call, at most `max` of its last bytes, and how many bytes were left out before them.
    pub(super) fn poll(&self, max: usize) -> (Vec<u8>, u64) {
        let polled = self.state().polled;
        let (bytes, left_out) = self.hosted.output().since(polled, max);
        self.state().polled = polled + left_out + bytes.len() as u64;
        (bytes, left_out)
    }

    /// Notes that the log has its end (`call` false) or that of its call; with both, its host's folder can go.
    pub(super) fn note_recorded(&self, call: bool) {
        let flag = if call { &self.recorded.call } else { &self.recorded.end };
        flag.store(true, Ordering::Relaxed);
        if self.is_recorded() {
            self.hosted.give_up();
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.end.load(Ordering::Relaxed) && self.recorded.call.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
