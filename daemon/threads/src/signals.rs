//! What a run signals to its thread.

use std::sync::Arc;

use mcode_agent::{AgentSignal, ApprovalAnswer, RecordError};
use mcode_events::Part;
use mcode_events::event::{ApprovalOutcome, EventBody, NewEvent};
use mcode_events::plan::Plan;
use mcode_events::run::{Delivery, QueuedInput, RunStatus};
use mcode_events::state::ThreadState;
use mcode_ids::{InputId, ProcessId, RunId};

use crate::actor::{Actor, QUEUED_INPUTS_MAX};

/// Most bytes of the notices that are put together, roughly.
const NOTICE_BYTES_MAX: usize = 256 * 1024;

/// Ends what the model is told when it would be too much.
const MORE_HAVE_ENDED: &str = "\n[mcode] More commands have ended since; ask 'process' what they did.";

/// The plan that an event says was submitted.
fn submitted(event: &NewEvent) -> Option<Plan> {
    match &event.body {
        EventBody::PlanSubmitted { plan } => Some(plan.clone()),
        _ => None,
    }
}

impl Actor {
    /// Does what a run asks for.
    pub(crate) async fn signal(&mut self, signal: AgentSignal) {
        match signal {
            AgentSignal::Record { events, reply } => {
                let answer = self.record(events).await;
                let _ = reply.send(answer).is_ok();
            }
            AgentSignal::TakeInputs { delivery, turn_id, run_id, reply } => {
                let taken = self.take_inputs(run_id, turn_id, delivery).await;
                let _ = reply.send(taken.map_err(|error| RecordError::Log(error.to_string()))).is_ok();
            }
            AgentSignal::Audit { entry, reply } => {
                // Beside the actor: calls that are decided at the same time share one commit.
                let store = self.deps.store.clone();
                tokio::spawn(async move {
                    let recorded = store.audit(vec![*entry]).await;
                    let _ = reply.send(recorded.map_err(|error| RecordError::Log(error.to_string()))).is_ok();
                });
            }
            AgentSignal::AwaitApproval { run_id, turn_id, request, reply } => {
                let (id, deadline) = (request.approval_id, request.deadline_ms);
                let bodies = [EventBody::ApprovalRequested { request }, EventBody::status(RunStatus::Waiting)];
                let events = bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body)).collect();
                match self.append(events, None).await {
                    Ok(_) => self.pending.add_approval(id, deadline, reply),
                    Err(error) => drop(reply.send(Err(RecordError::Log(error.to_string())))),
                }
            }
            AgentSignal::AwaitSettled { approval_id, tool_call_id, reply } => {
                if let Some(request) = self.state.open.approvals.get(&approval_id) {
                    self.pending.add_approval(approval_id, request.deadline_ms, reply);
                    return;
                }
                // It was answered before the run came to wait for it.
                let settled = self.state.open.settled.get(&tool_call_id);
                let (outcome, reason) =
                    settled.map_or((ApprovalOutcome::Withdrawn, String::new()), |it| (it.outcome, it.reason.clone()));
                let _ = reply.send(Ok(ApprovalAnswer { outcome, reason })).is_ok();
            }
            AgentSignal::AwaitAnswer { run_id, turn_id, question, reply } => {
                // What an earlier daemon has asked for this call is not asked again.
                if let Some(answer) = self.state.open.replies.get(&question.tool_call_id) {
                    let _ = reply.send(Ok(answer.clone())).is_ok();
                    return;
                }
                let asked = self.state.open.questions.values().find(|it| it.tool_call_id == question.tool_call_id);
                if let Some(asked) = asked {
                    self.pending.add_question(asked.question_id, reply);
                    return;
                }
                let id = question.question_id;
                let bodies = [EventBody::QuestionAsked { question }, EventBody::status(RunStatus::Waiting)];
                let events = bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body)).collect();
                match self.append(events, None).await {
                    Ok(_) => self.pending.add_question(id, reply),
                    Err(error) => drop(reply.send(Err(RecordError::Log(error.to_string())))),
                }
            }
            AgentSignal::ProcessExited { run_id, process_id, exit_code, reason, notice, reply } => {
                let body = EventBody::ProcessExited { process_id, exit_code, reason };
                self.process_exited(run_id, process_id, body, notice).await;
                let _ = reply.send(()).is_ok();
            }
        }
    }

    /// Records facts; gives the state with them. A plan among them is kept as a file too, now that it is on record.
    async fn record(&mut self, events: Vec<NewEvent>) -> Result<Arc<ThreadState>, RecordError> {
        let plans: Vec<Plan> = events.iter().filter_map(submitted).collect();
        self.append(events, None).await.map_err(|error| RecordError::Log(error.to_string()))?;
        for plan in &plans {
            self.keep_plan(plan).await;
        }
        Ok(Arc::clone(&self.state))
    }

    /// Leaves the model a notice. Where as much is queued as may be, it is put to the last one that waits there; the first
    /// of ours always has a place.
    fn told_by_us(&self, text: &str) -> Vec<EventBody> {
        let own = |input: &&QueuedInput| !crate::inputs::wants_turn(input);
        let last = self.state.queue.iter().rfind(own).filter(|_| self.state.queue.len() >= QUEUED_INPUTS_MAX);
        let mut told = Vec::new();
        let mut words = format!("{}{text}", crate::inputs::OWN_MARK);
        if let Some(last) = last {
            told.push(EventBody::InputTaken { input_id: last.input_id, delivered: false });
            let text_of = |part: &Part| if let Part::Text { text, .. } = part { Some(text.clone()) } else { None };
            let before: String = last.parts.iter().filter_map(text_of).collect();
            words = if before.len() + words.len() < NOTICE_BYTES_MAX {
                format!("{before}\n{words}")
            } else {
                // The first are known by their heads; what is left out is in the thread for people.
                let head = before.strip_suffix(MORE_HAVE_ENDED).unwrap_or(&before);
                format!("{head}{MORE_HAVE_ENDED}")
            };
        }
        let input_id = InputId::from_uuid(self.deps.ids.next());
        told.push(EventBody::InputQueued { input_id, delivery: Delivery::Steer, parts: vec![Part::text(words)] });
        told
    }

    /// The end of a process; what the model should know of it waits for the next place where it can be told.
    async fn process_exited(&mut self, run_id: RunId, process_id: ProcessId, body: EventBody, notice: Option<String>) {
        // An earlier daemon had recorded the end already, or died before the start was in the log.
        if !self.state.open.processes.contains_key(&process_id) {
            self.deps.processes.recorded(self.thread_id, &[body]);
            return;
        }
        let mut events = vec![NewEvent::of_run(run_id, self.state.open.turn, body)];
        let told = notice.is_some();
        if let Some(text) = notice {
            let queued = self.told_by_us(&text);
            events.push(NewEvent::of_thread(EventBody::Notice { level: "info".to_owned(), text }));
            events.extend(queued.into_iter().map(NewEvent::of_thread));
        }
        if let Err(error) = self.append(events, None).await {
            tracing::warn!(thread_id = %self.thread_id, %error, "the end of a process could not be recorded");
        } else if told {
            self.wake_soon();
        }
    }
}
