//! What is said while a run is at work.

use mcode_events::run::Delivery;
use mcode_events::{EventBody, RunStatus};
use mcode_threads::ThreadError;
use serde_json::json;

use crate::rig::{Rig, Step, said};

#[tokio::test]
async fn a_queued_input_is_the_next_turn() {
    let rig = Rig::new(vec![Step::Hold("first answer"), Step::Say("second answer")]);
    let (thread_id, run_id) = rig.start("first").await;
    rig.asked(1).await;
    rig.input(thread_id, Delivery::Queue, "second").await;
    rig.script.go.add_permits(1);
    rig.asked(2).await;
    let state = rig.until(thread_id, "both answers", |state| state.open.run.is_none() && said(state).len() == 4).await;
    assert_eq!(said(&state), ["first", "first answer", "second", "second answer"]);
    assert!(state.queue.is_empty());
    assert_eq!(state.run(run_id).unwrap().status, RunStatus::Done);
    let turns = rig.kinds(thread_id).await.iter().filter(|kind| *kind == "turn_started").count();
    assert_eq!(turns, 2);
}

#[tokio::test]
async fn a_steering_input_comes_before_the_next_step() {
    let rig = Rig::new(vec![Step::Hold("first answer"), Step::Say("steered")]);
    let (thread_id, _) = rig.start("first").await;
    rig.asked(1).await;
    rig.input(thread_id, Delivery::Steer, "also that").await;
    rig.script.go.add_permits(1);
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state), ["first", "first answer", "also that", "steered"]);
    assert_eq!(rig.kinds(thread_id).await.iter().filter(|kind| *kind == "turn_started").count(), 1);
}

/// Inputs that race the end of a run, again and again: each is either refused or answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_at_the_very_end_of_a_run_is_refused_or_answered_but_never_lost() {
    let rig = Rig::new(vec![Step::Say("answer")]);
    let mut taken = 0;
    for round in 0..60 {
        let (thread_id, _) = rig.start("begin").await;
        let parts = vec![mcode_events::Part::text("late")];
        let delivery = if round % 2 == 0 { Delivery::Queue } else { Delivery::Steer };
        // A little later each round, so that every place of the run is hit.
        for _ in 0..round * 8 {
            tokio::task::yield_now().await;
        }
        let input = mcode_threads::NewInput { delivery, parts, run_id: None, request: None };
        match rig.threads.input(thread_id, input).await {
            Ok(_) => {
                taken += 1;
                let answered = |state: &mcode_events::ThreadState| {
                    state.open.run.is_none() && state.queue.is_empty() && said(state).last().unwrap() == "answer"
                };
                let state = rig.until(thread_id, "the late input to be answered", answered).await;
                assert!(said(&state).contains(&"late".to_owned()), "{:?}", said(&state));
            }
            Err(ThreadError::NoActiveRun(_)) => {
                assert_eq!(said(&*rig.idle(thread_id).await), ["begin", "answer"]);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(taken > 0, "no input came in time");
}

#[tokio::test]
async fn what_a_cancelled_run_leaves_in_the_queue_begins_the_next() {
    let rig = Rig::new(vec![Step::Hold("never"), Step::Say("answer")]);
    let (thread_id, run_id) = rig.start("first").await;
    rig.asked(1).await;
    rig.input(thread_id, Delivery::Queue, "waits").await;
    let row = rig.threads.cancel_run(run_id).await.unwrap();
    assert_eq!(row.record.status, RunStatus::Cancelled);
    let state = rig.idle(thread_id).await;
    assert_eq!((state.queue.len(), said(&state).len()), (1, 1), "a cancelled run starts no other");
    rig.threads.start_run(rig.prompt(Some(thread_id), "now")).await.unwrap();
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state), ["first", "waits", "now", "answer"]);
    assert!(state.queue.is_empty());
}

#[tokio::test]
async fn a_queue_is_bounded() {
    let rig = Rig::new(vec![Step::Hold("thinking"), Step::Say("answer")]);
    let (thread_id, run_id) = rig.start("first").await;
    rig.asked(1).await;
    for number in 0..100 {
        rig.input(thread_id, Delivery::Steer, &number.to_string()).await;
    }
    let parts = vec![mcode_events::Part::text("too much")];
    let input = mcode_threads::NewInput { delivery: Delivery::Steer, parts, run_id: Some(run_id), request: None };
    let error = rig.threads.input(thread_id, input).await.unwrap_err();
    assert!(matches!(error, ThreadError::Busy(_)), "{error:?}");
    rig.script.go.add_permits(1);
    assert_eq!(said(&*rig.idle(thread_id).await).len(), 103);
}

#[tokio::test]
async fn an_approval_is_given_once_and_the_command_runs_once() {
    let rig = Rig::new(vec![Step::Call(vec![("command", json!({}))]), Step::Say("done")]);
    let (thread_id, _) = rig.start("run it").await;
    let state = rig.until(thread_id, "the question", |state| state.open.approvals.len() == 1).await;
    assert_eq!(state.activity(), "waiting");
    let approval_id = *state.open.approvals.keys().next().unwrap();
    let resolution = |allow| mcode_threads::Resolution {
        approval_id,
        allow,
        always: false,
        scope: mcode_threads::GrantScope::User,
        until_ms: None,
        reason: String::new(),
        by: "user".into(),
    };
    assert_eq!(*rig.runs.borrow(), 0, "nothing runs before the answer");
    rig.threads.resolve(resolution(true)).await.unwrap();
    rig.idle(thread_id).await;
    assert_eq!(*rig.runs.borrow(), 1);
    let error = rig.threads.resolve(resolution(false)).await.unwrap_err();
    assert!(matches!(error, ThreadError::NotFound { .. } | ThreadError::AlreadyResolved(_)), "{error:?}");
}

#[tokio::test]
async fn silence_is_a_refusal_when_the_time_is_up() {
    let rig = Rig::new(vec![Step::Call(vec![("command", json!({}))]), Step::Say("I could not")]);
    let (thread_id, run_id) = rig.start("run it").await;
    rig.until(thread_id, "the question", |state| !state.open.approvals.is_empty()).await;
    rig.clock.advance_millis(24 * 60 * 60 * 1000 - 1);
    assert_eq!(rig.threads.state(thread_id).await.unwrap().open.approvals.len(), 1, "not a moment early");
    rig.clock.advance_millis(1);
    // Any command wakes the thread; so does its own timer in real time.
    let state = rig.idle(thread_id).await;
    assert_eq!(*rig.runs.borrow(), 0, "nothing was run");
    assert_eq!(state.run(run_id).unwrap().status, RunStatus::Failed);
    assert_eq!(state.run(run_id).unwrap().exit_code(), Some(4));
    let expired = rig.events(thread_id).await.into_iter().any(
        |event| matches!(event.body, EventBody::ApprovalResolved { outcome, .. } if outcome.as_str() == "expired"),
    );
    assert!(expired);
}
