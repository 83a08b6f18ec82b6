//! Terminal events for everything that is open: used when a run is cancelled, fails, or is found unfinished at start.

use crate::event::{ApprovalOutcome, EventBody, NewEvent};
use crate::plan::PlanOutcome;
use crate::run::RunStatus;
use crate::state::ThreadState;
use crate::tool::{ToolCallStatus, ToolResult};

/// Said of a call that may have taken effect.
const NOT_KNOWN: &str = "What it did before that is not known.";

/// The events that end whatever is open in `state`, innermost first, without the end of the run itself.
///
/// `status` says why (`Cancelled`, `Interrupted` or `Failed`), `reason` says it in words. Processes are closed only
/// when `processes_ended`: a background process may outlive its run.
#[must_use]
pub fn closing_events(state: &ThreadState, status: RunStatus, reason: &str, processes_ended: bool) -> Vec<NewEvent> {
    let open = &state.open;
    let mut bodies = Vec::new();
    for approval_id in open.approvals.keys() {
        bodies.push(EventBody::ApprovalResolved {
            approval_id: *approval_id,
            outcome: ApprovalOutcome::Withdrawn,
            by: "mcoded".to_owned(),
            reason: reason.to_owned(),
        });
    }
    for mark in state.plans.iter().filter(|mark| mark.settled.is_none()) {
        bodies.push(EventBody::PlanSettled {
            tool_call_id: mark.plan.tool_call_id,
            outcome: PlanOutcome::Dropped,
            comment: reason.to_owned(),
        });
    }
    for question_id in open.questions.keys() {
        bodies.push(EventBody::QuestionAnswered { question_id: *question_id, answer: None });
    }
    if processes_ended {
        for process_id in open.processes.keys() {
            bodies.push(EventBody::ProcessExited {
                process_id: *process_id,
                exit_code: None,
                reason: reason.to_owned(),
            });
        }
    }
    for call in open.tool_calls.values() {
        let known = if open.is_untouched(call.tool_call_id) { "Nothing of it was run." } else { NOT_KNOWN };
        let text = format!("This call was {}: {reason}. {known}", status.as_str());
        bodies.push(EventBody::ToolCallFinished {
            name: call.name.clone(),
            result: ToolResult::text(call.tool_call_id, call_status(status), text),
        });
    }
    for (item_id, message) in &open.messages {
        bodies.push(EventBody::MessageDiscarded {
            item_id: *item_id,
            status,
            text: message.text.clone(),
            reason: reason.to_owned(),
        });
    }
    if let Some(step_id) = open.step {
        bodies.push(EventBody::StepFinished { step_id, status, stop_reason: status.as_str().to_owned() });
    }
    if let Some(turn_id) = open.turn {
        bodies.push(EventBody::TurnFinished { turn_id, status });
    }
    bodies.into_iter().map(|body| NewEvent { run_id: open.run, turn_id: open.turn, body }).collect()
}

const fn call_status(status: RunStatus) -> ToolCallStatus {
    match status {
        RunStatus::Cancelled => ToolCallStatus::Cancelled,
        RunStatus::Failed => ToolCallStatus::Failed,
        RunStatus::Running | RunStatus::Waiting | RunStatus::Done | RunStatus::Interrupted => {
            ToolCallStatus::Interrupted
        }
    }
}
