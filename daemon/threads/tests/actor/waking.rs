//! Threads that begin a run by themselves, because a command in the background has ended.

use std::sync::Arc;
use std::time::Duration;

use mcode_config::Effective;
use mcode_events::run::{Delivery, RunTrigger};
use mcode_events::{EventBody, Part, ThreadState};
use mcode_ids::ThreadId;
use serde_json::json;

use crate::rig::{Frozen, Rig, Step, said};

/// Longer than the ends of several commands are waited for.
const LONG: Duration = Duration::from_secs(10);

fn again(times: usize) -> Vec<Step> {
    (0..times).flat_map(|n| [Step::Call(vec![("background", json!({"n": n}))]), Step::Say("it runs")]).collect()
}

fn triggers(state: &ThreadState) -> Vec<RunTrigger> {
    state.runs.iter().map(|run| run.options.trigger).collect()
}

/// Lets one command end, and gives the thread when the model was left a notice.
async fn ends(rig: &Rig, thread_id: ThreadId) -> Arc<ThreadState> {
    rig.ends.add_permits(1);
    rig.until(thread_id, "the notice", |state| !state.queue.is_empty()).await
}

async fn runs(rig: &Rig, thread_id: ThreadId, count: usize) {
    rig.until(thread_id, "the run", |state| state.open.run.is_none() && state.runs.len() == count).await;
}

#[tokio::test]
async fn a_thread_wakes_itself_eight_times_and_then_waits_for_a_person() {
    let rig = Rig::new(again(20));
    let time = Frozen::new();
    let (thread_id, _) = rig.start("serve").await;
    runs(&rig, thread_id, 1).await;
    for woken in 1..=8 {
        assert_eq!(triggers(&*ends(&rig, thread_id).await).len(), woken, "not before the time");
        time.pass(LONG).await;
        runs(&rig, thread_id, woken + 1).await;
    }
    ends(&rig, thread_id).await;
    time.pass(LONG).await;
    // A run of its own would be at work now, and this one refused.
    rig.threads.start_run(rig.prompt(Some(thread_id), "and?")).await.unwrap();
    runs(&rig, thread_id, 10).await;
    let state = ends(&rig, thread_id).await;
    let expected = [vec![RunTrigger::Person], vec![RunTrigger::Background; 8], vec![RunTrigger::Person]].concat();
    assert_eq!(triggers(&state), expected);
    time.pass(LONG).await;
    runs(&rig, thread_id, 11).await;
}

#[tokio::test]
async fn a_thread_that_is_not_to_wake_tells_at_the_next_prompt() {
    let config = Effective { wake: Some(false), ..Effective::default() };
    let rig = Rig::with(tempfile::tempdir().unwrap(), again(20), config);
    let time = Frozen::new();
    let (thread_id, _) = rig.start("serve").await;
    runs(&rig, thread_id, 1).await;
    ends(&rig, thread_id).await;
    time.pass(LONG).await;
    rig.threads.start_run(rig.prompt(Some(thread_id), "and?")).await.unwrap();
    let state = rig.until(thread_id, "the run", |state| state.open.run.is_none() && state.runs.len() == 2).await;
    assert_eq!(triggers(&state), [RunTrigger::Person; 2]);
    assert!(said(&state).contains(&"[mcode] a command has ended".to_owned()), "{:?}", said(&state));
}

/// Where a hundred inputs wait the model is told all the same, and by no more of them than one.
#[tokio::test]
async fn ends_beside_a_full_queue_are_told_in_one_notice() {
    let calls = (0..3).map(|n| ("background", json!({"n": n}))).collect();
    let rig = Rig::new(vec![Step::Call(calls), Step::Hold("thinking"), Step::Say("all of it")]);
    let (thread_id, _) = rig.start("first").await;
    rig.asked(2).await;
    for number in 0..100 {
        rig.input(thread_id, Delivery::Steer, &number.to_string()).await;
    }
    let left = |state: &ThreadState| -> Vec<String> {
        let inputs = state.queue.iter().flat_map(|input| &input.parts);
        inputs.filter_map(|part| if let Part::Text { text, .. } = part { Some(text.clone()) } else { None }).collect()
    };
    rig.ends.add_permits(3);
    let told = |state: &ThreadState| left(state).iter().any(|text| text.matches("has ended").count() == 3);
    let state = rig.until(thread_id, "all ends to be told", told).await;
    assert_eq!(state.queue.len(), 101);
    rig.script.go.add_permits(1);
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state).iter().filter(|text| text.contains("has ended")).count(), 1);
    let notices = rig.events(thread_id).await;
    let notices = notices.iter().filter(|event| matches!(event.body, EventBody::Notice { .. })).count();
    assert_eq!(notices, 3, "people are told of each");
}

/// Whatever begins a run looks at the day's budget where it begins.
#[tokio::test]
async fn no_run_begins_by_itself_when_the_days_budget_is_spent() {
    let mut config = Effective::default();
    // Each step takes a dollar, and a run of these tests has two.
    config.limits.max_cost_per_day = Some(3.0);
    let rig = Rig::with(tempfile::tempdir().unwrap(), again(20), config);
    let time = Frozen::new();
    let (thread_id, _) = rig.start("serve").await;
    runs(&rig, thread_id, 1).await;
    ends(&rig, thread_id).await;
    time.pass(LONG).await;
    runs(&rig, thread_id, 2).await;
    ends(&rig, thread_id).await;
    time.pass(LONG).await;
    // Whatever the first look comes before, the second comes after the thread has thought of waking.
    for _ in 0..2 {
        assert_eq!(rig.threads.state(thread_id).await.unwrap().runs.len(), 2);
    }
    rig.clock.advance_millis(24 * 60 * 60 * 1000 + 1);
    rig.threads.start_run(rig.prompt(Some(thread_id), "and?")).await.unwrap();
    runs(&rig, thread_id, 3).await;
    let state = rig.threads.state(thread_id).await.unwrap();
    assert_eq!(triggers(&state), [RunTrigger::Person, RunTrigger::Background, RunTrigger::Person]);
}
