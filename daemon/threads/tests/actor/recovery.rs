//! What the next daemon does about one that died.

use mcode_env::{IdGen, SystemIds};
use mcode_events::state::Entry;
use mcode_events::{Event, EventBody, NewEvent, Role, RunStatus, ThreadState, ToolCall, ToolCallStatus};
use mcode_ids::{ItemId, ProcessId, ProjectId, RunId, StepId, ThreadId, ToolCallId, TurnId};
use mcode_store::{Append, RunRow, ThreadRow};
use mcode_threads::recovery::{Recovered, recover};
use serde_json::json;

use crate::ending::whole;
use crate::rig::{Rig, Step, said};

/// Puts events into the log as a daemon does that dies right after them.
pub async fn left_by_a_dead_daemon(rig: &Rig, events: Vec<NewEvent>) -> ThreadId {
    let thread_id = ThreadId::from_uuid(SystemIds.next());
    let mut state = ThreadState::new(thread_id);
    let expected = state.last_seq;
    for new in &events {
        let NewEvent { run_id, turn_id, body } = new.clone();
        state.apply(&Event { thread_id, seq: state.last_seq.next(), at_ms: 5, run_id, turn_id, body });
    }
    let row = ThreadRow::of(&state).unwrap();
    let runs = state.runs.iter().map(|record| RunRow { thread_id, record: record.clone() }).collect();
    rig.store().append(Append { thread_id, expected, events, at_ms: 5, row, runs, request: None }).await.unwrap();
    thread_id
}

pub fn created(rig: &Rig) -> NewEvent {
    NewEvent::of_thread(EventBody::ThreadCreated {
        project_id: ProjectId::from_uuid(SystemIds.next()),
        cwd: rig.root.join("work").to_string_lossy().into_owned(),
        root: String::new(),
        title: "t".into(),
        model: "fake/one".into(),
        mode: "build".into(),
        ephemeral: false,
    })
}

pub fn options(rig: &Rig) -> mcode_events::RunOptions {
    mcode_events::RunOptions {
        model: "fake/one".into(),
        mode: "build".into(),
        thinking: None,
        approval: Default::default(),
        interactive: false,
        limits: Default::default(),
        cwd: rig.root.join("work").to_string_lossy().into_owned(),
        add_dirs: Vec::new(),
        answer_schema: None,
        trigger: Default::default(),
        model_given: false,
        detached: false,
        goal_id: None,
        kept: None,
        key_source: String::new(),
    }
}

#[tokio::test]
async fn everything_open_is_interrupted_once_and_orphans_are_ended() {
    let rig = Rig::new(vec![Step::Say("on we go")]);
    let (run_id, turn_id) = (RunId::from_uuid(SystemIds.next()), TurnId::from_uuid(SystemIds.next()));
    let [recorded, unrecorded] = [(); 2].map(|()| ToolCallId::from_uuid(SystemIds.next()));
    let item_id = ItemId::from_uuid(SystemIds.next());
    let call = |tool_call_id| ToolCall { tool_call_id, name: "shell".into(), arguments: json!({"command": "make"}) };
    let part = |tool_call_id| mcode_events::Part::ToolCall {
        tool_call_id,
        provider_call_id: format!("call_{tool_call_id}"),
        name: "shell".into(),
        arguments: json!({"command": "make"}),
        opaque: None,
    };
    let message = mcode_events::Message {
        item_id,
        role: Role::Assistant,
        parts: vec![part(recorded), part(unrecorded)],
        origin: None,
    };
    let bodies = vec![
        EventBody::RunStarted { options: options(&rig) },
        EventBody::TurnStarted { turn_id },
        EventBody::StepStarted { step_id: StepId::from_uuid(SystemIds.next()), model: "fake/one".into() },
        EventBody::MessageStarted { item_id, role: Role::Assistant },
        EventBody::MessageFinished { message },
        EventBody::ToolCallStarted { call: call(recorded), item_id },
        EventBody::ToolCallStarted { call: call(unrecorded), item_id },
        EventBody::ProcessStarted {
            process_id: ProcessId::from_uuid(SystemIds.next()),
            tool_call_id: recorded,
            pid: 4242,
            started_ticks: 99,
            command: "make".into(),
            background: false,
        },
    ];
    let of_run = bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body));
    let thread_id = left_by_a_dead_daemon(&rig, [created(&rig)].into_iter().chain(of_run).collect()).await;
    let recovered = recover(rig.threads.deps()).await.unwrap();
    assert_eq!((recovered.threads, recovered.damaged), (1, 0));
    // Process, two calls, step, turn, run.
    assert_eq!(recovered.items, 6);
    let reaped = rig.reaped.lock().unwrap().clone();
    assert_eq!(reaped[0], "pid 4242 of 99");
    for id in [recorded, unrecorded] {
        assert!(reaped.contains(&id.to_string()), "{id} is looked for by its mark: {reaped:?}");
    }
    whole(&rig.kinds(thread_id).await);
    let state = rig.threads.state(thread_id).await.unwrap();
    assert!(state.open.is_empty());
    assert_eq!(state.runs[0].status, RunStatus::Interrupted);
    let interrupted = state.history.iter().filter(|entry| {
        matches!(entry.as_ref(), Entry::ToolResult { result, .. } if result.status == ToolCallStatus::Interrupted)
    });
    assert_eq!(interrupted.count(), 2);
    assert_eq!(recover(rig.threads.deps()).await.unwrap(), Recovered::default(), "there is nothing to do twice");
    // The model gets an answer to both calls, and no tool runs again by itself.
    rig.threads.start_run(rig.prompt(Some(thread_id), "go on")).await.unwrap();
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state), ["go on", "on we go"]);
    assert_eq!(*rig.runs.borrow(), 0);
}

#[tokio::test]
async fn a_queued_input_outlives_the_daemon() {
    let rig = Rig::new(vec![Step::Say("answer")]);
    let (run_id, turn_id) = (RunId::from_uuid(SystemIds.next()), TurnId::from_uuid(SystemIds.next()));
    let queued = EventBody::InputQueued {
        input_id: mcode_ids::InputId::from_uuid(SystemIds.next()),
        delivery: mcode_events::Delivery::Queue,
        parts: vec![mcode_events::Part::text("waits")],
    };
    let bodies = [EventBody::RunStarted { options: options(&rig) }, EventBody::TurnStarted { turn_id }, queued];
    let of_run = bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body));
    let thread_id = left_by_a_dead_daemon(&rig, [created(&rig)].into_iter().chain(of_run).collect()).await;
    recover(rig.threads.deps()).await.unwrap();
    rig.threads.start_run(rig.prompt(Some(thread_id), "now")).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["waits", "now", "answer"]);
}

#[tokio::test]
async fn idle_threads_are_left_alone() {
    let rig = Rig::new(vec![Step::Say("hello")]);
    let (thread_id, _) = rig.start("hi").await;
    let before = rig.idle(thread_id).await.last_seq;
    assert_eq!(recover(rig.threads.deps()).await.unwrap(), Recovered::default());
    assert_eq!(rig.store().thread(thread_id).await.unwrap().unwrap().last_seq, before);
    assert!(rig.reaped.lock().unwrap().is_empty());
}
