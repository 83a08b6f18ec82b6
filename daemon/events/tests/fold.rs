//! The fold is total, and everything that was begun can be ended from any point on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;

use mcode_events::event::EventBody;
use mcode_events::run::Parked;
use mcode_events::state::Entry;
use mcode_events::tool::FileVersion;
use mcode_events::{
    Event, Message, NewEvent, Part, Role, RunStatus, ThreadState, ToolCallStatus, ToolResult, Usage, closing_events,
};
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
fn a_run_knows_what_it_waits_for_until_it_goes_on_or_ends() {
    let begun = one_of_each().into_iter().filter(|body| matches!(body, EventBody::RunStarted { .. }));
    let mut state = fold(&begun.zip(1..).map(|(body, seq)| event(seq, body)).collect::<Vec<_>>());
    let told = |model: &str| Parked { model: model.into(), until_ms: 5, whole_account: false };
    let change = |status, parked| EventBody::RunStatusChanged { status, parked };
    let end =
        EventBody::RunFinished { status: RunStatus::Cancelled, error: None, usage: Usage::default(), structured: None };
    for (body, parked) in [
        (change(RunStatus::Waiting, Some(told("a/b"))), Some(told("a/b"))),
        (change(RunStatus::Waiting, Some(told("a/c"))), Some(told("a/c"))),
        (change(RunStatus::Running, None), None),
        (change(RunStatus::Waiting, Some(told("a/b"))), Some(told("a/b"))),
        (end, None),
    ] {
        state.apply(&event(state.last_seq.next().get(), body));
        assert_eq!(state.run(run()).unwrap().parked, parked);
    }
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

/// What makes up a turn: a message of the user, a file that was looked at, the answer.
fn spoken(seq: u64, number: u64, path: &str) -> Vec<Event> {
    let message = |role, item| Message {
        item_id: id("itm_", item),
        role,
        parts: vec![Part::text(format!("{number}"))],
        origin: None,
    };
    let mut result = ToolResult::text(id("tc_", number), ToolCallStatus::Done, "1 line");
    result.files = vec![FileVersion { path: path.to_owned(), hash: Some("0b".repeat(32)) }];
    let bodies = [
        EventBody::MessageFinished { message: message(Role::User, number * 10) },
        EventBody::ToolCallFinished { name: "view".into(), result },
        EventBody::MessageFinished { message: message(Role::Assistant, number * 10 + 1) },
    ];
    bodies.into_iter().zip(seq..).map(|(body, seq)| event(seq, body)).collect()
}

#[test]
fn a_rewind_forgets_what_was_said_after_it_and_what_was_seen() {
    let mut events = vec![life().remove(0)];
    events.extend(spoken(2, 1, "/a"));
    let mut before = fold(&events);
    events.extend(spoken(5, 2, "/b"));
    let eased = EventBody::HistoryEased {
        model: "a/b".into(),
        ease: mcode_events::Ease { pictures: 6, results: 4, messages: 2 },
    };
    events.push(event(8, eased));
    events.push(event(9, EventBody::Rewound { to_seq: Seq::new(4), tasks: Vec::new() }));
    let after = fold(&events);
    assert_eq!((&after.history, &after.said_at, &after.files), (&before.history, &before.said_at, &before.files));
    assert_eq!(after.ease_of("a/b"), mcode_events::Ease { pictures: 3, results: 3, messages: 2 });
    // What is said next comes after what is left.
    for event in spoken(10, 3, "/c") {
        before.apply(&event);
        events.push(event);
    }
    assert_eq!(fold(&events).history, before.history);
    // Back to before everything, and further than there is.
    for (to_seq, left) in [(0, 0), (1, 0), (2, 1), (1_000_000, 6)] {
        let mut state = fold(&events);
        state.apply(&event(50, EventBody::Rewound { to_seq: Seq::new(to_seq), tasks: Vec::new() }));
        assert_eq!((state.history.len(), state.said_at.len()), (left, left), "back to {to_seq}");
    }
}

#[test]
fn a_fork_from_any_point_has_nothing_at_work_and_has_paid_nothing() {
    let events = life();
    for length in 1..=events.len() {
        let mut state = fold(&events[..length]);
        let history = state.history.clone();
        let (parent_id, parent_seq) = (thread(), state.last_seq);
        let forked = EventBody::ThreadForked { parent_id, parent_seq, title: "another way".into() };
        state.apply(&event(length as u64 + 1, forked));
        assert!(state.open.is_empty() && state.queue.is_empty(), "after {length} events");
        assert_eq!((state.usage, state.title.as_str()), (Usage::default(), "another way"));
        assert!(state.runs.iter().all(|run| run.ended_at_ms.is_some()), "after {length} events");
        assert_eq!(state.history, history);
        assert_eq!(state.forked.map(|point| (point.parent_id, point.seq)), Some((parent_id, parent_seq)));
    }
}
