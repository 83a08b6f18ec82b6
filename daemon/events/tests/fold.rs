//! The fold is total, and everything that was begun can be ended from any point on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;

use mcode_events::event::EventBody;
use mcode_events::state::Entry;
use mcode_events::{Event, NewEvent, RunStatus, ThreadState, ToolCallStatus, Usage, closing_events};
use mcode_ids::{RunId, Seq, StepId, TurnId};
use support::{Dice, event, id, one_of_each, run, thread, turn};

/// Shuffled logs that are looked at.
const SHUFFLES: u64 = 400;
/// Seed of the shuffles.
const SEED: u64 = 0x6d63_6f64;

fn fold(events: &[Event]) -> ThreadState {
    let mut state = ThreadState::new(thread());
    for event in events {
        state.apply(event);
    }
    state
}

fn life() -> Vec<Event> {
    one_of_each().into_iter().zip(1..).map(|(body, seq)| event(seq, body)).collect()
}

/// Applies what ends everything, as recovery does; the state after it.
fn close(mut state: ThreadState) -> ThreadState {
    let mut ends = closing_events(&state, RunStatus::Interrupted, "it ended", true);
    if let Some(run_id) = state.open.run {
        let body = EventBody::RunFinished {
            status: RunStatus::Interrupted,
            error: None,
            usage: Usage::default(),
            structured: None,
        };
        ends.push(NewEvent::of_run(run_id, state.open.turn, body));
    }
    for new in ends {
        let seq = state.last_seq.next();
        let NewEvent { run_id, turn_id, body } = new;
        state.apply(&Event { thread_id: thread(), seq, at_ms: 0, run_id, turn_id, body });
    }
    state
}

#[test]
fn every_prefix_of_a_life_folds_and_can_be_closed() {
    let events = life();
    for length in 0..=events.len() {
        let state = fold(&events[..length]);
        assert_eq!(state.last_seq, Seq::new(length as u64));
        let closed = close(state.clone());
        assert!(closed.open.is_empty(), "after {length} events: {:#?}", closed.open);
        assert_eq!(closed.activity(), "idle");
        assert!(closing_events(&closed, RunStatus::Interrupted, "again", true).is_empty(), "an end comes once");
        let begun = closed.runs.iter().filter(|run| run.ended_at_ms.is_none()).count();
        assert_eq!(begun, 0, "after {length} events");
    }
}

#[test]
fn a_whole_life_leaves_nothing_open_and_keeps_what_was_said() {
    let state = fold(&life());
    assert!(state.open.is_empty(), "{:#?}", state.open);
    assert_eq!((state.title.as_str(), state.mode.as_str(), state.archived), ("mend all tests", "plan", true));
    assert_eq!(state.model, "openai/gpt-5");
    assert_eq!(state.history.len(), 2, "a message and a result");
    assert_eq!((state.runs[0].status, state.runs[0].steps), (RunStatus::Failed, 1));
    assert_eq!(state.runs[0].usage, state.usage);
    assert_eq!(state.usage.input_tokens, 1200);
    assert!(state.queue.is_empty());
    assert_eq!(state.tasks.len(), 1);
    assert_eq!(state.files.keys().collect::<Vec<_>>(), ["/home/me/project/a.rs"], "a removed file is forgotten");
}

#[test]
fn any_order_folds_and_can_be_closed() {
    let mut dice = Dice(SEED);
    for round in 0..SHUFFLES {
        let mut bodies = one_of_each();
        bodies.extend(one_of_each());
        let length = dice.below(bodies.len() + 1);
        let mut events = Vec::new();
        for seq in 1..=length {
            let body = bodies.swap_remove(dice.below(bodies.len()));
            let mut event = event(seq as u64, body);
            if dice.below(8) == 0 {
                event.run_id = None;
            }
            if dice.below(8) == 0 {
                event.turn_id = None;
            }
            events.push(event);
        }
        let state = fold(&events);
        assert_eq!(state.last_seq, Seq::new(length as u64));
        assert_eq!(fold(&events), state, "a fold of the same events is the same state");
        let closed = close(state);
        assert!(closed.open.is_empty(), "seed {SEED}, round {round}: {:#?}", closed.open);
    }
}

#[test]
fn a_fold_in_two_parts_is_the_fold_of_the_whole() {
    let events = life();
    let whole = fold(&events);
    for middle in 0..events.len() {
        let stored = serde_json::to_string(&fold(&events[..middle])).unwrap();
        let mut state: ThreadState = serde_json::from_str(&stored).unwrap();
        for event in &events[middle..] {
            state.apply(event);
        }
        assert_eq!(state, whole, "split at {middle}");
    }
}

#[test]
fn the_end_of_something_else_ends_nothing() {
    let events = life();
    let working = events.iter().position(|event| matches!(event.body, EventBody::MessageStarted { .. })).unwrap();
    let mut state = fold(&events[..=working]);
    let open = state.open.clone();
    let (other_run, other_turn, other_step): (RunId, TurnId, StepId) = (id("run_", 99), id("trn_", 99), id("stp_", 99));
    let ends = [
        EventBody::StepFinished { step_id: other_step, status: RunStatus::Done, stop_reason: String::new() },
        EventBody::TurnFinished { turn_id: other_turn, status: RunStatus::Done },
        EventBody::RunFinished { status: RunStatus::Done, error: None, usage: Usage::default(), structured: None },
    ];
    for (seq, body) in (100..).zip(ends) {
        let mut event = event(seq, body);
        event.run_id = Some(other_run);
        state.apply(&event);
    }
    assert_eq!(state.open, open);
    assert_eq!((state.open.run, state.open.turn), (Some(run()), Some(turn())));
}

#[test]
fn an_interrupted_call_is_told_to_the_model_as_such() {
    let events = life();
    let called = events.iter().position(|event| matches!(event.body, EventBody::ToolCallStarted { .. })).unwrap();
    let closed = close(fold(&events[..=called]));
    let Entry::ToolResult { name, result } = closed.history.last().unwrap().as_ref() else { panic!("no result") };
    assert_eq!((name.as_str(), result.status), ("shell", ToolCallStatus::Interrupted));
    assert!(result.joined_text().contains("it ended"), "{}", result.joined_text());
}

#[test]
fn a_process_may_outlive_its_run_when_it_is_told_so() {
    let events = life();
    let started = events.iter().position(|event| matches!(event.body, EventBody::ProcessStarted { .. })).unwrap();
    let state = fold(&events[..=started]);
    let ends = closing_events(&state, RunStatus::Done, "the run ended", false);
    assert!(!ends.iter().any(|end| matches!(end.body, EventBody::ProcessExited { .. })));
    let ends = closing_events(&state, RunStatus::Done, "the run ended", true);
    assert_eq!(ends.iter().filter(|end| matches!(end.body, EventBody::ProcessExited { .. })).count(), 1);
}
