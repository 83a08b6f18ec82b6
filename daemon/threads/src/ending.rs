//! How a run's end gets into the log, also when the disk was full at that moment.

use mcode_agent::RunOutcome;
use mcode_events::closing_events;
use mcode_events::event::{ApprovalOutcome, EventBody, NewEvent};
use mcode_events::run::RunStatus;
use mcode_ids::RunId;

use crate::actor::Actor;
use crate::error::ThreadError;

/// Said of a run that nobody works on.
const NOBODY_WORKS: &str = "its end could not be recorded";

impl Actor {
    /// The agent has ended: everything open gets its end, those who wait are told, and what was queued begins.
    pub(crate) async fn run_ended(&mut self, outcome: Result<RunOutcome, tokio::task::JoinError>) {
        let Some(mut active) = self.active.take() else { return };
        self.pending.clear();
        let limit = self.state.run(active.run_id).and_then(|run| run.options.limits.max_time_ms);
        let outcome = crate::run::ending(outcome, active.cause(), limit);
        let status = outcome.status;
        if let Err(error) = self.record_end(active.run_id, &outcome).await {
            tracing::error!(thread_id = %self.thread_id, %error, "the end of a run could not be recorded");
            self.unrecorded = Some(outcome);
        }
        self.live.clear();
        for reply in active.waiting.drain(..) {
            let _ = reply.send(Ok(())).is_ok();
        }
        if status == RunStatus::Done && !self.closing && !self.has_unrecorded_end() {
            self.last_surroundings = Some(active.surroundings.clone());
            self.start_queued(active).await;
        }
    }

    /// Whether the log believes a run to be at work that has ended.
    pub(crate) fn has_unrecorded_end(&self) -> bool {
        self.active.is_none() && self.state.open.run.is_some() && self.damage.is_none()
    }

    /// Tries again to record an end that could not be recorded, so that the thread can be used as soon as there is
    /// space again.
    pub(crate) async fn record_left_end(&mut self) -> Result<(), ThreadError> {
        let Some(run_id) = self.state.open.run.filter(|_| self.has_unrecorded_end()) else { return Ok(()) };
        let outcome = self.unrecorded.take().unwrap_or_else(|| RunOutcome {
            status: RunStatus::Interrupted,
            error: Some(crate::run::interrupted(NOBODY_WORKS)),
            structured: None,
        });
        let recorded = self.record_end(run_id, &outcome).await;
        if recorded.is_err() {
            self.unrecorded = Some(outcome);
        }
        recorded
    }

    async fn record_end(&mut self, run_id: RunId, outcome: &RunOutcome) -> Result<(), ThreadError> {
        let reason = outcome.error.as_ref().map_or("cancelled by the user", |error| error.message.as_str()).to_owned();
        let mut events = closing_events(&self.state, outcome.status, &reason, false);
        let withdrawn: Vec<_> = self.state.open.approvals.values().cloned().collect();
        let usage = self.state.run(run_id).map(|run| run.usage).unwrap_or_default();
        let body = EventBody::RunFinished {
            status: outcome.status,
            error: outcome.error.clone(),
            usage,
            structured: outcome.structured.clone(),
        };
        events.push(NewEvent::of_run(run_id, self.state.open.turn, body));
        self.append(events, None).await?;
        for request in &withdrawn {
            self.record_answer(request, ApprovalOutcome::Withdrawn, ("mcoded", &reason), Some(run_id)).await;
        }
        Ok(())
    }
}
