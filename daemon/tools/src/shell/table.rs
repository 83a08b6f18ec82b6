//! What the commands of each thread are doing: the table that the `shell` and `process` tools share.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcode_events::event::EventBody;
use mcode_ids::{ProcessId, ThreadId, ToolCallId};
use tokio_util::task::TaskTracker;

use super::found::Found;
use super::process::{Process, Stage};
use super::supervise::supervise;
use super::watched::{Watched, unwatched};
use crate::bounds::Bounds;
use crate::port::ToolPort;

/// Most processes that one thread may have running.
pub const LIVE_MAX: usize = 32;
/// Most ended processes of a thread whose output can still be polled.
pub const ENDED_KEPT_MAX: usize = 64;

type Threads = BTreeMap<ThreadId, BTreeMap<ProcessId, Arc<Process>>>;

/// The processes of every thread.
#[derive(Debug, Default)]
pub struct ProcessTable {
    threads: Mutex<Threads>,
    /// What an earlier daemon started, until its thread takes it up.
    pub(super) found: Mutex<BTreeMap<ThreadId, Vec<Found>>>,
    pub(super) tasks: TaskTracker,
    leaving: AtomicBool,
}

impl ProcessTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The processes of a thread, oldest first; what its call has given the whole output of is not among them.
    #[must_use]
    pub fn list(&self, thread: ThreadId) -> Vec<Arc<Process>> {
        let seen = |process: &&Arc<Process>| !process.delivered.load(Ordering::Relaxed);
        self.threads().get(&thread).map(|known| known.values().filter(seen).cloned().collect()).unwrap_or_default()
    }

    /// One process of a thread.
    #[must_use]
    pub fn get(&self, thread: ThreadId, process: ProcessId) -> Option<Arc<Process>> {
        self.list(thread).into_iter().find(|known| known.process_id == process)
    }

    /// How many processes of a thread still run.
    #[must_use]
    pub fn live(&self, thread: ThreadId) -> usize {
        self.list(thread).iter().filter(|process| process.stage() < Stage::Gone).count()
    }

    /// Notes a process, and forgets the oldest ended ones beyond [`ENDED_KEPT_MAX`].
    pub(super) fn insert(&self, thread: ThreadId, process: Arc<Process>) {
        let mut threads = self.threads();
        if self.leaving.load(Ordering::Relaxed) {
            process.leave_alone();
        }
        let known = threads.entry(thread).or_default();
        known.insert(process.process_id, process);
        let ended: Vec<ProcessId> =
            known.values().filter(|process| process.stage() == Stage::Gone).map(|process| process.process_id).collect();
        for old in ended.iter().take(ended.len().saturating_sub(ENDED_KEPT_MAX)) {
            known.remove(old);
        }
    }

    /// Sees a process of an earlier daemon through, in a task of its own.
    pub(super) fn tend(&self, thread: ThreadId, process: Arc<Process>, port: Arc<dyn ToolPort>, bounds: Arc<Bounds>) {
        drop(self.tasks.spawn(async move {
            let id = process.process_id;
            let read = tokio::task::spawn_blocking(move || Watched::taken_up(&bounds, thread, id));
            let watched = match read.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(watched) => watched,
                Err(error) => {
                    port.warn(unwatched(&process.command, &error)).await;
                    None
                }
            };
            supervise(process, port, watched).await;
        }));
    }

    /// A process whose whole output its call has given is not shown any more; it goes once that is recorded.
    pub(super) fn forget(&self, thread: ThreadId, process: &Process) {
        process.delivered.store(true, Ordering::Relaxed);
        if process.is_recorded()
            && let Some(known) = self.threads().get_mut(&thread)
        {
            known.remove(&process.process_id);
        }
    }

    /// Told by the thread of what is on the disk now: what a host keeps of a process goes only when both the end of the
    /// process and that of its call are recorded, so that a crash in between loses no output.
    pub fn recorded<'a>(&self, thread: ThreadId, events: impl IntoIterator<Item = &'a EventBody>) {
        for event in events {
            match event {
                EventBody::ToolCallFinished { result, .. } => {
                    self.note(thread, |process| process.tool_call_id == result.tool_call_id, true);
                }
                EventBody::ProcessExited { process_id, .. } => {
                    self.note(thread, |process| process.process_id == *process_id, false);
                }
                _ => {}
            }
        }
    }

    fn note(&self, thread: ThreadId, wanted: impl Fn(&Process) -> bool, call: bool) {
        let mut threads = self.threads();
        let Some(known) = threads.get_mut(&thread) else { return };
        let found: Vec<Arc<Process>> = known.values().filter(|process| wanted(process)).cloned().collect();
        for process in found {
            process.note_recorded(call);
            if process.is_recorded() && process.delivered.load(Ordering::Relaxed) {
                known.remove(&process.process_id);
            }
        }
    }

    /// Ends everything that a thread started, and forgets it. Returns when it is gone.
    pub async fn kill_thread(&self, thread: ThreadId) {
        end_all(self.list(thread), "the thread was closed").await;
        self.threads().remove(&thread);
    }

    /// Ends everything, when the daemon ends. Returns when it is gone and recorded.
    pub async fn kill_all(&self) {
        let threads: Vec<ThreadId> = self.threads().keys().copied().collect();
        let all = threads.iter().flat_map(|thread| self.list(*thread)).collect();
        end_all(all, "the daemon ended").await;
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
        self.threads().clear();
    }

    /// Leaves everything as it is for the next daemon: nothing that happens in this one ends a command any more.
    pub fn leave_all(&self) {
        let threads = self.threads();
        self.leaving.store(true, Ordering::Relaxed);
        for process in threads.values().flat_map(BTreeMap::values) {
            process.leave_alone();
        }
    }

    /// Whether the call has a command that runs in the foreground: the next daemon can go on with it.
    #[must_use]
    pub fn attends(&self, thread: ThreadId, call: ToolCallId) -> bool {
        self.list(thread).iter().any(|process| process.tool_call_id == call && process.stage() < Stage::Gone)
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
