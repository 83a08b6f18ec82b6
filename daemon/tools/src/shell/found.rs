//! Taking up what an earlier daemon started.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use mcode_ids::{ProcessId, ThreadId, ToolCallId};
use mcode_sandbox::{Hosted, ProcessIdentity, Survivor};

use super::process::Process;
use super::table::ProcessTable;
use crate::bounds::{Bounds, Wish};
use crate::port::ToolPort;

/// Why what has no thread any more is ended.
const NOBODYS: &str = "nothing is known of its thread";

/// A command that still runs, or has ended since, and waits for its thread.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its id.
    pub process_id: ProcessId,
    /// The call that started it.
    pub tool_call_id: ToolCallId,
    /// The command, shortened for people.
    pub command: String,
    /// Whether it outlives its call.
    pub background: bool,
    /// Whether it has a time limit of its own.
    pub limited: bool,
    /// Whether nothing of it runs any more.
    pub gone: bool,
    given: Wish,
    hosted: Hosted,
}

impl Found {
    /// Number and start time.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.hosted.identity()
    }

    /// Ends it, if it still runs, and removes what is kept of it.
    async fn dismiss(self) {
        self.hosted.end(NOBODYS).await;
        let mut progress = self.hosted.progress();
        // An error says that its host has ended, and so has it.
        progress.wait_for(|now| now.gone).await.ok();
        self.hosted.give_up();
    }
}

impl ProcessTable {
    /// Takes in what was found at start. Nothing is ended yet; what can not be anybody's is.
    pub async fn found(&self, survivors: Vec<Survivor>) {
        for Survivor { about, hosted } in survivors {
            let ids = (about.thread_id.parse(), about.process_id.parse(), about.tool_call_id.parse());
            let now = hosted.progress().borrow().clone();
            let (background, limited, gone) = (now.background, now.limit.is_some(), now.gone);
            match ids {
                (Ok(thread), Ok(process_id), Ok(tool_call_id)) => {
                    let (command, given) = (about.command, Wish::of_word(&about.given));
                    let found = Found { process_id, tool_call_id, command, background, limited, gone, given, hosted };
                    self.waiting().entry(thread).or_default().push(found);
                }
                _ => hosted.end(NOBODYS).await,
            }
        }
    }

    /// What waits for a thread.
    #[must_use]
    pub fn found_of(&self, thread: ThreadId) -> Vec<Found> {
        self.waiting().get(&thread).cloned().unwrap_or_default()
    }

    /// Threads that something waits for.
    #[must_use]
    pub fn found_threads(&self) -> Vec<ThreadId> {
        self.waiting().keys().copied().collect()
    }

    /// Takes up a command that was found: from now on it is a process of its thread like any other. `call_recorded` says
    /// that the log has the end of its call already. It is watched as far as the earlier daemon did.
    pub fn adopt(
        &self,
        thread: ThreadId,
        found: Found,
        call_recorded: bool,
        port: Arc<dyn ToolPort>,
        bounds: &Arc<Bounds>,
    ) -> Arc<Process> {
        self.take(thread, found.process_id);
        let Found { process_id, tool_call_id, command, given, hosted, .. } = found;
        let process = Arc::new(Process::new(process_id, tool_call_id, command, given, hosted, true));
        if call_recorded {
            process.note_recorded(true);
        }
        self.insert(thread, Arc::clone(&process));
        self.tend(thread, Arc::clone(&process), port, Arc::clone(bounds));
        process
    }

    /// Ends a command that was found and that nobody needs.
    pub async fn dismiss(&self, thread: ThreadId, process: ProcessId) {
        if let Some(found) = self.take(thread, process) {
            found.dismiss().await;
        }
    }

    fn take(&self, thread: ThreadId, process: ProcessId) -> Option<Found> {
        let mut waiting = self.waiting();
        let known = waiting.get_mut(&thread)?;
        let at = known.iter().position(|found| found.process_id == process)?;
        let found = known.remove(at);
        if known.is_empty() {
            waiting.remove(&thread);
        }
        Some(found)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<ThreadId, Vec<Found>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
