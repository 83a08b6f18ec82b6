//! What a run signals to its thread, and what becomes of what people are asked.

use std::sync::Arc;

use mcode_agent::{AgentSignal, ApprovalAnswer, RecordError};
use mcode_events::event::{ApprovalOutcome, EventBody, NewEvent};
use mcode_events::run::{Delivery, RunStatus};
use mcode_ids::{InputId, ProcessId, RunId};

use crate::actor::{Actor, QUEUED_INPUTS_MAX};

impl Actor {
    /// Does what a run asks for.
    pub(crate) async fn signal(&mut self, signal: AgentSignal) {
        match signal {
            AgentSignal::Record { events, reply } => {
                let recorded = self.append(events, None).await.map_err(|error| RecordError::Log(error.to_string()));
                let answer = recorded.map(|_| Arc::clone(&self.state));
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
                let bodies = [
                    EventBody::ApprovalRequested { request },
                    EventBody::RunStatusChanged { status: RunStatus::Waiting },
                ];
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
                let bodies =
                    [EventBody::QuestionAsked { question }, EventBody::RunStatusChanged { status: RunStatus::Waiting }];
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
            let parts = vec![mcode_events::Part::text(format!("{}{text}", crate::inputs::OWN_MARK))];
            let input_id = InputId::from_uuid(self.deps.ids.next());
            events.push(NewEvent::of_thread(EventBody::Notice { level: "info".to_owned(), text }));
            if self.state.queue.len() < QUEUED_INPUTS_MAX {
                events.push(NewEvent::of_thread(EventBody::InputQueued { input_id, delivery: Delivery::Steer, parts }));
            }
        }
        if let Err(error) = self.append(events, None).await {
            tracing::warn!(thread_id = %self.thread_id, %error, "the end of a process could not be recorded");
        } else if told {
            self.wake_soon();
        }
    }

    /// Silence past the deadline is a refusal.
    pub(crate) async fn expire_approvals(&mut self) {
        let now = self.deps.clock.now().millis();
        for approval_id in self.pending.expired(now) {
            let (outcome, by, reason) = (ApprovalOutcome::Expired, "mcoded", "nobody answered in time");
            let request = self.state.open.approvals.get(&approval_id).cloned();
            let body =
                EventBody::ApprovalResolved { approval_id, outcome, by: by.to_owned(), reason: reason.to_owned() };
            if self.append(self.settled(body), None).await.is_err() {
                self.pending.clear();
                return;
            }
            if let Some(request) = request {
                self.record_answer(&request, outcome, (by, reason), self.state.open.run).await;
            }
            let answer = ApprovalAnswer { outcome: ApprovalOutcome::Expired, reason: String::new() };
            self.pending.settle_approval(approval_id, answer);
        }
    }

    /// Puts the end of an approval into the record of permissions.
    pub(crate) async fn record_answer(
        &self,
        request: &mcode_events::event::ApprovalRequest,
        outcome: ApprovalOutcome,
        (by, reason): (&str, &str),
        run_id: Option<RunId>,
    ) {
        let entry = crate::audit::answered(request, outcome, by, reason, (self.thread_id, run_id));
        if let Err(error) = self.deps.store.audit(vec![entry]).await {
            tracing::warn!(thread_id = %self.thread_id, %error, "the end of an approval is missing in the record");
        }
    }

    /// The event of a settled approval or question, and, if nothing else is waited for, that the run goes on.
    pub(crate) fn settled(&self, body: EventBody) -> Vec<NewEvent> {
        let (run_id, turn_id) = (self.state.open.run, self.state.open.turn);
        let mut events = vec![NewEvent { run_id, turn_id, body }];
        if self.state.open.approvals.len() + self.state.open.questions.len() <= 1 {
            events.push(NewEvent { run_id, turn_id, body: EventBody::RunStatusChanged { status: RunStatus::Running } });
        }
        events
    }
}
