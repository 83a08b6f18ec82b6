//! What the user says while a run is at work.

use mcode_events::event::{EventBody, NewEvent};
use mcode_events::message::{Message, Part, Role};
use mcode_events::run::{Delivery, QueuedInput};
use mcode_ids::{InputId, ItemId, RunId, Seq, TurnId};
use mcode_store::StoredResponse;

use crate::actor::{Actor, QUEUED_INPUTS_MAX};
use crate::command::NewInput;
use crate::error::ThreadError;

/// What our own words to the model begin with.
pub(crate) const OWN_MARK: &str = "[mcode] ";

/// Whether an input asks for a turn when no run is at work: all but our own notices.
pub(crate) fn wants_turn(input: &QueuedInput) -> bool {
    !matches!(input.parts.as_slice(), [Part::Text { text, .. }] if text.starts_with(OWN_MARK))
}

impl Actor {
    /// Gives the run what waits for this place; recorded as taken, with its messages, in one commit.
    pub(crate) async fn take_inputs(
        &mut self,
        run_id: RunId,
        turn_id: TurnId,
        delivery: Delivery,
    ) -> Result<Vec<QueuedInput>, ThreadError> {
        let waiting = |wanted| self.state.queue.iter().filter(move |input| input.delivery == wanted).cloned();
        // A queued input is a turn of its own; steering inputs all go into the running one.
        let mut taken: Vec<QueuedInput> = match delivery {
            Delivery::Queue => waiting(Delivery::Queue).take(1).collect(),
            Delivery::Steer => waiting(Delivery::Steer).collect(),
        };
        // What came between the turn's last look and its end must not wait for a run that may never begin.
        if taken.is_empty() && delivery == Delivery::Queue {
            taken.extend(waiting(Delivery::Steer));
        }
        if taken.is_empty() {
            return Ok(taken);
        }
        let mut events = Vec::new();
        if delivery == Delivery::Queue {
            events.push(NewEvent::of_run(run_id, Some(turn_id), EventBody::TurnStarted { turn_id }));
        }
        for input in &taken {
            let message = self.user_message(input.parts.clone());
            for body in [
                EventBody::InputTaken { input_id: input.input_id, delivered: true },
                EventBody::MessageFinished { message },
            ] {
                events.push(NewEvent::of_run(run_id, Some(turn_id), body));
            }
        }
        self.append(events, None).await?;
        Ok(taken)
    }

    pub(crate) fn user_message(&self, parts: Vec<Part>) -> Message {
        Message { item_id: ItemId::from_uuid(self.deps.ids.next()), role: Role::User, parts, origin: None }
    }

    /// Keeps what the user says while a run is at work.
    pub(crate) async fn input(&mut self, input: NewInput) -> Result<(InputId, Seq), ThreadError> {
        self.record_left_end().await?;
        let Some(run_id) = self.state.open.run else {
            return Err(ThreadError::NoActiveRun(self.thread_id.to_string()));
        };
        if input.run_id.is_some_and(|wanted| wanted != run_id) {
            return Err(ThreadError::NoActiveRun(self.thread_id.to_string()));
        }
        if self.state.queue.len() >= QUEUED_INPUTS_MAX {
            return Err(ThreadError::Busy(self.thread_id));
        }
        let input_id = InputId::from_uuid(self.deps.ids.next());
        let seq = self.state.last_seq.next();
        let body = EventBody::InputQueued { input_id, delivery: input.delivery, parts: input.parts };
        let event = NewEvent::of_run(run_id, self.state.open.turn, body);
        let request = input.request.map(|(id, fingerprint)| {
            (id, StoredResponse { fingerprint, response: crate::registry::encode_made(input_id, seq) })
        });
        self.append(vec![event], request).await?;
        Ok((input_id, seq))
    }
}
