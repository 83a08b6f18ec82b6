//! Runs of an earlier daemon: what was started is seen through, what was asked is waited for, and then the run goes on.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use mcode_events::event::EventBody;
use mcode_events::message::{Part, Role};
use mcode_events::run::{RunError, RunStatus};
use mcode_events::state::{Entry, ThreadState};
use mcode_events::tool::TaskItem;
use mcode_ids::{ProcessId, StepId, ThreadId, ToolCallId, TurnId};
use mcode_tools::port::{StartedProcess, Warning};
use mcode_tools::shell::{Attending, BACKGROUND_AFTER_S, Process, ProcessTable, attend};
use mcode_tools::{AskOutcome, ToolPort};
use serde_json::Value;

use crate::calls::{Call, failed, finished};
use crate::drive::{Driver, RunContext, RunOutcome, RunServices, Stop, outcome};
use crate::live::{LiveKey, LiveLane};
use crate::port::{RecordError, RunPort};

/// The line of a command that was taken up to its thread. Its start is recorded already.
#[derive(Debug)]
pub struct AdoptedPort {
    port: RunPort,
    live: LiveLane,
    thread_id: ThreadId,
    tool_call_id: ToolCallId,
}

impl AdoptedPort {
    /// For the command of this call.
    #[must_use]
    pub const fn new(port: RunPort, live: LiveLane, thread_id: ThreadId, tool_call_id: ToolCallId) -> Self {
        Self { port, live, thread_id, tool_call_id }
    }
}

impl ToolPort for AdoptedPort {
    fn ask(&self, _question: String, _options: Vec<String>, _multiple: bool) -> BoxFuture<'_, AskOutcome> {
        Box::pin(async { AskOutcome::NobodyThere })
    }

    fn set_tasks(&self, _items: Vec<TaskItem>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn process_started(&self, _process: StartedProcess) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn process_exited(
        &self,
        process_id: ProcessId,
        exit_code: Option<i32>,
        reason: String,
        notice: Option<String>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.port.process_exited(process_id, exit_code, reason, notice).await.is_ok();
        })
    }

    fn warn(&self, warning: Warning) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.port.warn(warning, self.thread_id, self.tool_call_id).await.is_ok();
        })
    }

    fn may_read(&self, _path: &std::path::Path) -> bool {
        false
    }

    fn output(&self, text: &str) {
        self.live.push_text(LiveKey::ToolCall(self.tool_call_id), text);
    }
}

/// A tool call with the command it waits for.
#[derive(Debug)]
pub struct AdoptedCall {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Its tool.
    pub name: String,
    /// The command.
    pub process: Arc<Process>,
    /// Whether the command has a time limit of its own.
    pub limited: bool,
}

/// What a run of an earlier daemon is gone on with.
#[derive(Debug)]
pub struct Resumption {
    /// The turn that was under way.
    pub turn_id: TurnId,
    /// The step that was under way.
    pub step_id: Option<StepId>,
    /// Calls whose commands run, or have ended since.
    pub attended: Vec<AdoptedCall>,
    /// Whether all other open calls are carried out: nothing of them was run yet.
    pub untouched: bool,
    /// The processes.
    pub table: Arc<ProcessTable>,
    /// Why the model can not be asked again, if it can not.
    pub end: Option<RunError>,
}

/// Goes on with a run of an earlier daemon: commands are seen to their end, calls that were asked about are carried out
/// or refused, and then the model is asked again, or the run ends as it has to.
pub async fn resume(services: RunServices, context: RunContext, resumption: Resumption) -> RunOutcome {
    let mut driver = Driver::new(services, context);
    outcome(driver.resume(resumption).await)
}

impl Driver {
    async fn resume(&mut self, resumption: Resumption) -> Result<Option<Value>, Stop> {
        let Resumption { turn_id, step_id, attended, untouched, table, end } = resumption;
        let ended = join_all(attended.iter().map(|call| self.attend(turn_id, &table, call))).await;
        ended.into_iter().collect::<Result<Vec<()>, RecordError>>()?;
        if self.context.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if untouched {
            let state = self.services.port.record(turn_id, Vec::new()).await?;
            self.run_calls(turn_id, self.open_calls(&state)).await?;
        }
        if let Some(error) = end {
            return Err(Stop::Interrupted(error));
        }
        if let Some(step_id) = step_id {
            let stop_reason = "tool_use".to_owned();
            let body = EventBody::StepFinished { step_id, status: RunStatus::Done, stop_reason };
            self.services.port.record(turn_id, vec![body]).await?;
        }
        self.turns(turn_id).await
    }

    /// The calls that are open, in the order in which the model gave them.
    fn open_calls(&self, state: &ThreadState) -> Vec<Call> {
        let is_open = |part: &&Part| match part {
            Part::ToolCall { tool_call_id, .. } => state.open.tool_calls.contains_key(tool_call_id),
            _ => false,
        };
        let message = state.history.iter().rev().find_map(|entry| match entry.as_ref() {
            Entry::Message { message, .. } if message.role == Role::Assistant => Some(message),
            _ => None,
        });
        let parts: Vec<Part> =
            message.map(|message| message.parts.iter().filter(is_open).cloned().collect()).unwrap_or_default();
        let mut calls = self.prepare_calls(&parts);
        for call in &mut calls {
            call.asked = state.open.asked_about(call.tool_call_id).cloned();
            self.services.live.open(LiveKey::ToolCall(call.tool_call_id), self.context.run_id);
        }
        calls
    }

    async fn attend(&self, turn_id: TurnId, table: &ProcessTable, call: &AdoptedCall) -> Result<(), RecordError> {
        let attending = Attending {
            thread_id: self.context.thread_id,
            blobs: Arc::clone(&self.services.blobs),
            cancel: self.context.cancel.clone(),
            background_after: (!call.limited).then_some(Duration::from_secs(BACKGROUND_AFTER_S)),
        };
        let result = match attend(&call.process, table, &attending).await {
            Ok(output) => finished(call.tool_call_id, output),
            Err(failure) => failed(call.tool_call_id, failure),
        };
        let result = self.services.redactor.result(result, &self.services.models.known_secrets());
        self.services.live.close(LiveKey::ToolCall(call.tool_call_id));
        let body = EventBody::ToolCallFinished { name: call.name.clone(), result };
        self.services.port.record(turn_id, vec![body]).await.map(drop)
    }
}
