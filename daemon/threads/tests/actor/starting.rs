//! Starting, and being refused.

use mcode_events::run::{ApprovalPolicy, RunLimits, RunTrigger};
use mcode_events::{EventBody, NewEvent, RunStatus, ThreadState};
use mcode_ids::{ProjectId, RequestId, Seq, ThreadId};
use mcode_store::{Append, ThreadRow};
use mcode_threads::{Asker, Bounds, Mode, ThreadError};

use crate::rig::{Rig, Step, said};

#[tokio::test]
async fn a_run_is_answered_and_leaves_the_thread_idle() {
    let rig = Rig::new(vec![Step::Say("hello")]);
    let (thread_id, run_id) = rig.start("hi").await;
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state), ["hi", "hello"]);
    assert_eq!(state.run(run_id).unwrap().status, RunStatus::Done);
    assert_eq!((state.title.as_str(), state.activity()), ("hi", "idle"));
    let loaded = rig.store().load(thread_id).await.unwrap().unwrap();
    assert_eq!((&loaded.state, loaded.damage), (&*state, None), "what is in memory is what the log says");
}

#[tokio::test]
async fn a_thread_at_work_takes_no_second_run() {
    let rig = Rig::new(vec![Step::Hold("thinking"), Step::Say("two")]);
    let (thread_id, run_id) = rig.start("one").await;
    rig.asked(1).await;
    let error = rig.threads.start_run(rig.prompt(Some(thread_id), "two")).await.unwrap_err();
    let ThreadError::RunActive { thread_id: busy, run_id: at_work } = error else { panic!("{error:?}") };
    assert_eq!((busy, at_work), (thread_id, run_id));
    rig.script.go.add_permits(1);
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state), ["one", "thinking"], "nothing of the refused run is in the log");
    rig.threads.start_run(rig.prompt(Some(thread_id), "two")).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["one", "thinking", "two", "two"]);
}

#[tokio::test]
async fn the_same_request_starts_one_run_and_gets_the_same_answer() {
    let rig = Rig::new(vec![Step::Say("hello")]);
    let id = |text: &str| RequestId::parse(text).unwrap();
    let mut run = rig.prompt(None, "hi");
    run.request = Some((id("req-1"), "hash".into()));
    let first = rig.threads.start_run(run.clone()).await.unwrap();
    rig.idle(first.thread_id).await;
    assert_eq!(rig.threads.start_run(run.clone()).await.unwrap(), first);
    assert_eq!(rig.threads.runs(None, false, 10, None).await.unwrap().rows.len(), 1);
    run.request = Some((id("req-1"), "another hash".into()));
    let error = rig.threads.start_run(run).await.unwrap_err();
    assert!(matches!(error, ThreadError::RequestIdReused(_)), "{error:?}");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let rig = Rig::new(vec![Step::Say("hello")]);
    let unknown: ThreadId = "thr_01900000000070008000000000000001".parse().unwrap();
    let error = rig.threads.start_run(rig.prompt(Some(unknown), "hi")).await.unwrap_err();
    assert!(error.to_string().contains("there is no thread thr_0190"), "{error}");
    let mut run = rig.prompt(None, "hi");
    run.cwd = "/no/such/folder".into();
    let error = rig.threads.start_run(run).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    assert!(rig.threads.list(Default::default()).await.unwrap().rows.is_empty(), "a refused run leaves no thread");
}

#[tokio::test]
async fn a_run_has_no_more_than_who_asks_for_it() {
    use ApprovalPolicy::{All, Ask, Deny};
    let rig = Rig::new(vec![Step::Say("hello")]);
    let tool = |approval, mode| Asker::Tool(Bounds { approval, mode, limits: RunLimits::NONE });
    for (asker, wanted, had) in [
        (Asker::Person, (All, Mode::Build), (All, "build", RunTrigger::Person)),
        (Asker::Unknown, (All, Mode::Build), (Ask, "build", RunTrigger::Unknown)),
        (tool(All, Mode::Build), (All, Mode::Build), (All, "build", RunTrigger::Tool)),
        (tool(Deny, Mode::Plan), (All, Mode::Build), (Deny, "plan", RunTrigger::Tool)),
        (tool(Ask, Mode::Plan), (Deny, Mode::Explore), (Deny, "explore", RunTrigger::Tool)),
    ] {
        let mut run = rig.prompt(None, "hi");
        (run.asker, run.approval, run.mode) = (asker, Some(wanted.0), Some(wanted.1));
        let started = rig.threads.start_run(run).await.unwrap();
        let state = rig.idle(started.thread_id).await;
        let options = &state.run(started.run_id).unwrap().options;
        assert_eq!((options.approval, options.mode.as_str(), options.trigger), had, "{asker:?}");
    }
}

#[tokio::test]
async fn a_run_of_a_tool_call_has_what_the_calls_run_has_left() {
    let rig = Rig::new(vec![Step::Say("hello")]);
    let left = RunLimits { max_steps: Some(2), max_cost_usd: Some(0.5), ..RunLimits::NONE };
    for (asker, wanted, had) in [
        (Asker::Person, Some(100), (Some(100), None)),
        (Asker::Tool(Bounds { limits: left, ..Bounds::LEAST }), Some(100), (Some(2), Some(0.5))),
        (Asker::Tool(Bounds { limits: left, ..Bounds::LEAST }), Some(1), (Some(1), Some(0.5))),
    ] {
        let mut run = rig.prompt(None, "hi");
        (run.asker, run.limits.max_steps) = (asker, wanted);
        let started = rig.threads.start_run(run).await.unwrap();
        let state = rig.idle(started.thread_id).await;
        let limits = state.run(started.run_id).unwrap().options.limits;
        assert_eq!((limits.max_steps, limits.max_cost_usd), had, "{asker:?}");
    }
}

#[tokio::test]
async fn a_mode_that_nobody_knows_is_the_strictest() {
    let rig = Rig::new(vec![Step::Say("hello")]);
    let thread_id: ThreadId = "thr_01900000000070008000000000000001".parse().unwrap();
    let project_id: ProjectId = "prj_01900000000070008000000000000002".parse().unwrap();
    let created = EventBody::ThreadCreated {
        project_id,
        cwd: rig.root.join("work").to_string_lossy().into_owned(),
        root: String::new(),
        title: "of another version".into(),
        model: "fake/one".into(),
        mode: "reckless".into(),
        ephemeral: false,
    };
    let mut state = ThreadState::new(thread_id);
    let (run_id, turn_id) = (None, None);
    let event = mcode_events::Event { thread_id, seq: Seq::new(1), at_ms: 1, run_id, turn_id, body: created.clone() };
    state.apply(&event);
    let (row, events) = (ThreadRow::of(&state).unwrap(), vec![NewEvent::of_thread(created)]);
    let append = Append { thread_id, expected: Seq::ZERO, events, at_ms: 1, row, runs: Vec::new(), request: None };
    rig.store().append(append).await.unwrap();
    let started = rig.threads.start_run(rig.prompt(Some(thread_id), "hi")).await.unwrap();
    assert_eq!(rig.idle(thread_id).await.run(started.run_id).unwrap().options.mode, "explore");
}
