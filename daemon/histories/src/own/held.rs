//! What a fold holds of a thread: bounded, whatever a file says.

use mcode_events::{Event, ThreadState};

/// The most payload of what was begun and has not ended, or waits, in bytes.
const HELD_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The most commands that run at once.
const PROCESSES_MAX: usize = 10_000;

/// The most models for which a conversation was made smaller.
const EASED_MAX: usize = 1_000;

/// How much a fold holds.
#[derive(Debug, Default)]
pub(crate) struct Held(u64);

impl Held {
    /// Counts an event that was folded in.
    pub(crate) fn count(&mut self, state: &ThreadState, event: &Event, payload: &str) -> Result<(), &'static str> {
        let open = &state.open;
        let nothing = open.tool_calls.is_empty()
            && open.messages.is_empty()
            && open.approvals.is_empty()
            && open.questions.is_empty()
            && state.queue.is_empty();
        let kind = event.body.kind();
        if nothing {
            self.0 = 0;
        } else if !matches!(kind, "message_finished" | "tool_call_finished" | "usage_recorded") {
            self.0 += payload.len() as u64;
        }
        if self.0 > HELD_BYTES_MAX {
            Err("too much was begun before it that has not ended")
        } else if open.processes.len() > PROCESSES_MAX {
            Err("too many commands were begun before it that have not ended")
        } else if state.eases.len() > EASED_MAX {
            Err("the conversation was made smaller for too many models")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};
    use mcode_events::EventBody;
    use mcode_events::message::Role;
    use mcode_ids::{ItemId, Seq, ThreadId};

    use super::*;

    #[test]
    fn what_is_held_is_bounded_and_what_has_ended_is_not_held() {
        let ids = SeededIds::new(1);
        let thread_id = ThreadId::from_uuid(ids.next());
        let payload = "x".repeat(1 << 20);
        let steps = |ends: bool| {
            let mut state = ThreadState::new(thread_id);
            let mut held = Held::default();
            for step in 0..600u64 {
                let item_id = ItemId::from_uuid(ids.next());
                let begun = EventBody::MessageStarted { item_id, role: Role::Assistant };
                let status = mcode_events::run::RunStatus::Done;
                let (text, reason) = (String::new(), String::new());
                let ended = EventBody::MessageDiscarded { item_id, status, text, reason };
                for body in [Some(begun), ends.then_some(ended)].into_iter().flatten() {
                    let seq = Seq::new(step + 1);
                    let event = Event { thread_id, seq, at_ms: 1, run_id: None, turn_id: None, body };
                    state.apply(&event);
                    if held.count(&state, &event, &payload).is_err() {
                        return Some(step);
                    }
                }
            }
            None
        };
        assert_eq!(steps(true), None);
        assert_eq!(steps(false), Some(256));
    }
}
