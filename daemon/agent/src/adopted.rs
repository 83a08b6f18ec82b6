//! Tool calls of an earlier daemon whose commands outlived it: no model is asked, but what was started is seen through.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use mcode_events::blob::Blobs;
use mcode_events::event::EventBody;
use mcode_events::run::{RunError, RunErrorKind, RunStatus};
use mcode_events::tool::TaskItem;
use mcode_ids::{ProcessId, ThreadId, ToolCallId, TurnId};
use mcode_tools::port::{StartedProcess, Warning};
use mcode_tools::shell::{Attending, BACKGROUND_AFTER_S, Process, ProcessTable, attend};
use mcode_tools::{AskOutcome, ToolPort};
use tokio_util::sync::CancellationToken;

use crate::calls::{failed, finished};
use crate::drive::RunOutcome;
use crate::live::{LiveKey, LiveLane};
use crate::port::RunPort;

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

/// What attending needs.
#[derive(Debug)]
pub struct AdoptedRun {
    /// The line to the thread.
    pub port: RunPort,
    /// The thread.
    pub thread_id: ThreadId,
    /// The turn that the calls are part of.
    pub turn_id: TurnId,
    /// Live text.
    pub live: LiveLane,
    /// Where long output goes.
    pub blobs: Arc<dyn Blobs>,
    /// The processes.
    pub table: Arc<ProcessTable>,
    /// Ends the run.
    pub cancel: CancellationToken,
}

/// Waits for the commands, records what their calls give, and ends the run: the keys and the environment that it would
/// need to go on were in the memory of the daemon that is gone.
pub async fn attend_calls(run: AdoptedRun, calls: Vec<AdoptedCall>) -> RunOutcome {
    join_all(calls.iter().map(|call| attend_call(&run, call))).await;
    if run.cancel.is_cancelled() {
        return RunOutcome { status: RunStatus::Cancelled, error: None, structured: None };
    }
    RunOutcome {
        status: RunStatus::Interrupted,
        error: Some(RunError {
            kind: RunErrorKind::Interrupted,
            reason: "INTERRUPTED".to_owned(),
            message: "the daemon was restarted while the run was at work; its command was seen to its end".to_owned(),
            hint: "go on with 'mcode ask --thread'".to_owned(),
        }),
        structured: None,
    }
}

async fn attend_call(run: &AdoptedRun, call: &AdoptedCall) {
    let attending = Attending {
        thread_id: run.thread_id,
        blobs: Arc::clone(&run.blobs),
        cancel: run.cancel.clone(),
        background_after: (!call.limited).then_some(Duration::from_secs(BACKGROUND_AFTER_S)),
    };
    let result = match attend(&call.process, &run.table, &attending).await {
        Ok(output) => finished(call.tool_call_id, output),
        Err(failure) => failed(call.tool_call_id, failure),
    };
    run.live.close(LiveKey::ToolCall(call.tool_call_id));
    let body = EventBody::ToolCallFinished { name: call.name.clone(), result };
    // A call whose end could not be recorded is closed with its run, when there is space again.
    let _ = run.port.record(run.turn_id, vec![body]).await.is_ok();
}
