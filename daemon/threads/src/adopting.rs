//! Taking up the commands of an earlier daemon, and leaving them to the next.
//!
//! A foreground command is waited for and gives its call the one result it gets; what becomes of its run then is said in
//! [`crate::resuming`]. A command in the background is a process of the thread again.

use std::sync::Arc;
use std::time::Duration;

use mcode_agent::{AdoptedCall, AdoptedPort, RunPort};
use mcode_events::run::RunRecord;
use mcode_tools::ToolPort;
use mcode_tools::shell::Found;

use crate::actor::Actor;

impl Actor {
    /// Takes up what was found of this thread; recovery has closed everything else.
    pub(crate) async fn adopt(&mut self) {
        let mut calls = Vec::new();
        for found in self.deps.processes.found_of(self.thread_id) {
            calls.extend(self.adopt_one(found).await);
        }
        self.resume_left(calls).await;
    }

    /// The call to be attended, if the command's call is still open.
    async fn adopt_one(&mut self, found: Found) -> Option<AdoptedCall> {
        let open = &self.state.open;
        let process = open.processes.get(&found.process_id);
        let call = open.tool_calls.get(&found.tool_call_id).cloned();
        let run_id = process.and_then(|process| process.run_id).or(open.run);
        let (Some(run_id), true, true) = (run_id, self.damage.is_none(), call.is_some() || process.is_some()) else {
            self.deps.processes.dismiss(self.thread_id, found.process_id).await;
            return None;
        };
        tracing::info!(thread_id = %self.thread_id, pid = found.identity().pid, gone = found.gone,
            "a command of an earlier daemon is taken up");
        let port = RunPort::new(run_id, self.signal_sender.clone());
        let port: Arc<dyn ToolPort> =
            Arc::new(AdoptedPort::new(port, self.live.clone(), self.thread_id, found.tool_call_id));
        let (tool_call_id, limited) = (found.tool_call_id, found.limited);
        let (thread, bounds) = (self.thread_id, &self.deps.bounds);
        let process = self.deps.processes.adopt(thread, found, call.is_none(), port, bounds);
        Some(AdoptedCall { tool_call_id, name: call?.name, process, limited })
    }

    /// What is left of a run's time limit.
    pub(crate) fn time_left(&self, run: &RunRecord) -> Option<Duration> {
        let limit = run.options.limits.max_time_ms?;
        let spent = u64::try_from(self.deps.clock.now().millis().saturating_sub(run.started_at_ms)).unwrap_or(0);
        Some(Duration::from_millis(limit.saturating_sub(spent)))
    }

    /// Whether the run at work waits for a command that the next daemon can go on waiting for.
    pub(crate) fn attends(&self) -> bool {
        self.state.open.tool_calls.keys().any(|call| self.deps.processes.attends(self.thread_id, *call))
    }

    /// Lets go of the run at work without a word in the log: what is open there tells the next daemon what to go on
    /// with.
    pub(crate) fn hand_over(&mut self) {
        let Some(mut active) = self.active.take() else { return };
        active.task.abort();
        for reply in active.waiting.drain(..) {
            let _ = reply.send(Ok(())).is_ok();
        }
    }
}
