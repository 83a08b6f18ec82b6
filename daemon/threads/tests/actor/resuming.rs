//! What the next daemon does about a run that waited for an answer, or had just been given one.

use mcode_env::{IdGen, SystemIds};
use mcode_events::event::{ApprovalOutcome, ApprovalRequest};
use mcode_events::run::{Kept, Parked, RunTrigger};
use mcode_events::state::Entry;
use mcode_events::{
    AuditEntry, AuditKind, EventBody, NewEvent, Role, RunStatus, ThreadState, ToolCall, ToolCallStatus,
};
use mcode_ids::{ApprovalId, ItemId, RunId, StepId, ThreadId, ToolCallId, TurnId};
use mcode_threads::Resolution;
use mcode_threads::recovery::recover;
use serde_json::json;

use crate::ending::whole;
use crate::recovery::{created, left_by_a_dead_daemon, options};
use crate::rig::{KEY, Rig, Step, said};

/// A run that has asked for two calls, of which the first was asked about.
struct Left {
    thread_id: ThreadId,
    run_id: RunId,
    approval_id: ApprovalId,
    calls: [ToolCallId; 2],
}

/// `after` makes what is in the log behind the question: the answer perhaps, and that the call has begun.
async fn left(rig: &Rig, own_access: bool, after: impl Fn(ApprovalId, ToolCallId) -> Vec<EventBody>) -> Left {
    let (run_id, turn_id) = (RunId::from_uuid(SystemIds.next()), TurnId::from_uuid(SystemIds.next()));
    let calls = [(); 2].map(|()| ToolCallId::from_uuid(SystemIds.next()));
    let (item_id, approval_id) = (ItemId::from_uuid(SystemIds.next()), ApprovalId::from_uuid(SystemIds.next()));
    let mut options = options(rig);
    options.kept = Some(Kept { own_access, ..Kept::default() });
    options.interactive = true;
    let name = |at: usize| ["command", "same"][at];
    let part = |at: usize| mcode_events::Part::ToolCall {
        tool_call_id: calls[at],
        provider_call_id: format!("call_{at}"),
        name: name(at).into(),
        arguments: json!({}),
        opaque: None,
    };
    let call = |at: usize| EventBody::ToolCallStarted {
        call: ToolCall { tool_call_id: calls[at], name: name(at).into(), arguments: json!({}) },
        item_id,
    };
    let message = mcode_events::Message { item_id, role: Role::Assistant, parts: vec![part(0), part(1)], origin: None };
    let request = ApprovalRequest {
        approval_id,
        tool_call_id: calls[0],
        tool: "command".into(),
        arguments: json!({}),
        preview: "command".into(),
        why: "no rule decides it".into(),
        deadline_ms: Some(rig.clock_ms() + 60_000),
        proposed_rule: None,
        owners: Vec::new(),
    };
    let mut bodies = vec![
        EventBody::RunStarted { options },
        EventBody::TurnStarted { turn_id },
        EventBody::StepStarted { step_id: StepId::from_uuid(SystemIds.next()), model: "fake/one".into() },
        EventBody::MessageStarted { item_id, role: Role::Assistant },
        EventBody::MessageFinished { message },
        call(0),
        call(1),
        EventBody::ApprovalRequested { request },
        EventBody::status(RunStatus::Waiting),
    ];
    bodies.extend(after(approval_id, calls[0]));
    let of_run = bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body));
    let thread_id = left_by_a_dead_daemon(rig, [created(rig)].into_iter().chain(of_run).collect()).await;
    Left { thread_id, run_id, approval_id, calls }
}

fn answered(approval_id: ApprovalId, outcome: ApprovalOutcome) -> EventBody {
    EventBody::ApprovalResolved { approval_id, outcome, by: "me".into(), reason: String::new() }
}

async fn next_daemon(rig: &Rig) {
    recover(rig.threads.deps()).await.unwrap();
    rig.threads.wake_unfinished().await.unwrap();
}

fn statuses(state: &ThreadState) -> Vec<ToolCallStatus> {
    let results = state.history.iter().filter_map(|entry| match entry.as_ref() {
        Entry::ToolResult { result, .. } => Some(result.status),
        Entry::Message { .. } => None,
    });
    results.collect()
}

#[tokio::test]
async fn an_answer_given_to_the_next_daemon_is_carried_out_and_the_run_goes_on() {
    let rig = Rig::new(vec![Step::Say("done")]);
    let left = left(&rig, true, |_, _| Vec::new()).await;
    next_daemon(&rig).await;
    let waiting = rig.threads.waiting().await.unwrap();
    assert_eq!(waiting[0].open.approvals.keys().copied().collect::<Vec<_>>(), [left.approval_id]);
    assert_eq!(waiting[0].active_run().unwrap().status, RunStatus::Waiting);
    assert_eq!(*rig.runs.borrow(), 0);
    let resolution = Resolution {
        approval_id: left.approval_id,
        allow: true,
        always: false,
        scope: Default::default(),
        until_ms: None,
        reason: String::new(),
        by: "me".into(),
    };
    rig.threads.resolve(resolution).await.unwrap();
    let state = rig.idle(left.thread_id).await;
    assert_eq!(statuses(&state), [ToolCallStatus::Done, ToolCallStatus::Done]);
    assert_eq!((*rig.runs.borrow(), said(&state)), (2, vec!["done".to_owned()]));
    let run = state.run(left.run_id).unwrap();
    assert_eq!((run.status, run.resumed, state.runs.len()), (RunStatus::Done, 1, 1));
    whole(&rig.kinds(left.thread_id).await);
}

#[tokio::test]
async fn a_deadline_that_passed_while_no_daemon_ran_is_a_refusal_once() {
    let rig = Rig::new(vec![Step::Say("as you say")]);
    let left = left(&rig, true, |_, _| Vec::new()).await;
    rig.clock.advance_millis(61_000);
    next_daemon(&rig).await;
    let state = rig.idle(left.thread_id).await;
    assert_eq!(statuses(&state)[0], ToolCallStatus::Denied);
    assert_eq!(*rig.runs.borrow(), 1, "only the call that nobody was asked about ran");
    let kinds = rig.kinds(left.thread_id).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval_resolved").count(), 1);
    whole(&kinds);
}

/// The daemon died between the answer and the call: it runs once.
#[tokio::test]
async fn an_answer_that_was_not_acted_on_is_acted_on_once() {
    for outcome in [ApprovalOutcome::Allowed, ApprovalOutcome::Denied] {
        let rig = Rig::new(vec![Step::Say("done")]);
        let left = left(&rig, true, |approval, _| vec![answered(approval, outcome)]).await;
        next_daemon(&rig).await;
        let state = rig.idle(left.thread_id).await;
        let (status, runs) = match outcome {
            ApprovalOutcome::Allowed => (ToolCallStatus::Done, 2),
            _ => (ToolCallStatus::Denied, 1),
        };
        assert_eq!((statuses(&state)[0], *rig.runs.borrow()), (status, runs), "{outcome:?}");
        next_daemon(&rig).await;
        assert_eq!(*rig.runs.borrow(), runs);
        whole(&rig.kinds(left.thread_id).await);
    }
}

/// The daemon died after the call had begun: it does not run again, and that is said.
#[tokio::test]
async fn a_call_that_had_begun_is_not_run_again() {
    let rig = Rig::new(vec![Step::Say("done")]);
    let begun = |approval, tool_call_id| {
        vec![answered(approval, ApprovalOutcome::Allowed), EventBody::ToolCallBegun { tool_call_id }]
    };
    let left = left(&rig, true, begun).await;
    next_daemon(&rig).await;
    let state = rig.idle(left.thread_id).await;
    assert_eq!((statuses(&state)[0], *rig.runs.borrow()), (ToolCallStatus::Interrupted, 0));
    assert_eq!(state.run(left.run_id).unwrap().status, RunStatus::Interrupted);
    let results: String = state.history.iter().map(|entry| format!("{entry:?}")).collect();
    assert!(results.contains("is not known"), "{results}");
    whole(&rig.kinds(left.thread_id).await);
}

/// A call behind the question whose permission is on record may have run.
#[tokio::test]
async fn what_was_allowed_without_being_asked_is_not_run_again() {
    let rig = Rig::new(vec![Step::Say("done")]);
    let left = left(&rig, true, |approval, _| vec![answered(approval, ApprovalOutcome::Denied)]).await;
    let entry = AuditEntry {
        thread_id: Some(left.thread_id),
        tool_call_id: Some(left.calls[1]),
        ..AuditEntry::new(AuditKind::Decided, "allow")
    };
    rig.store().audit(vec![entry]).await.unwrap();
    next_daemon(&rig).await;
    let state = rig.idle(left.thread_id).await;
    let mut statuses = statuses(&state);
    statuses.sort_unstable_by_key(|status| status.as_str());
    assert_eq!(statuses, [ToolCallStatus::Denied, ToolCallStatus::Interrupted]);
    assert_eq!(*rig.runs.borrow(), 0);
}

#[tokio::test]
async fn a_run_whose_key_is_gone_carries_out_the_answer_and_says_how_to_go_on() {
    let rig = Rig::new(vec![Step::Say("never said")]);
    let left = left(&rig, false, |approval, _| vec![answered(approval, ApprovalOutcome::Allowed)]).await;
    next_daemon(&rig).await;
    let state = rig.idle(left.thread_id).await;
    assert_eq!((*rig.runs.borrow(), rig.script.requests.lock().unwrap().len()), (2, 0));
    let run = state.run(left.run_id).unwrap();
    let error = run.error.clone().unwrap();
    assert_eq!(run.status, RunStatus::Interrupted);
    assert!(error.hint.contains(&format!("mcode ask --thread {}", left.thread_id)), "{error:?}");
    assert_eq!(run.options.trigger, RunTrigger::Person);
    whole(&rig.kinds(left.thread_id).await);
}

/// A detached run that an earlier daemon has left parked; `parked` is what its log says of the limit.
async fn left_parked(rig: &Rig, parked: Option<Parked>) -> (ThreadId, RunId) {
    let (run_id, turn_id) = (RunId::from_uuid(SystemIds.next()), TurnId::from_uuid(SystemIds.next()));
    let mut options = options(rig);
    options.kept = Some(Kept { own_access: true, ..Kept::default() });
    options.detached = true;
    let item_id = ItemId::from_uuid(SystemIds.next());
    let bodies = vec![
        EventBody::RunStarted { options },
        EventBody::TurnStarted { turn_id },
        EventBody::StepStarted { step_id: StepId::from_uuid(SystemIds.next()), model: "fake/one".into() },
        EventBody::MessageStarted { item_id, role: Role::Assistant },
        EventBody::RunStatusChanged { status: RunStatus::Waiting, parked },
    ];
    let of_run = bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body));
    (left_by_a_dead_daemon(rig, [created(rig)].into_iter().chain(of_run).collect()).await, run_id)
}

/// A run that waits for its provider's quota waits through any number of daemons until that is asked again; where the log
/// does not say until when, as in those of earlier versions, the next daemon asks.
#[tokio::test]
async fn a_parked_run_is_parked_until_its_turn_comes() {
    let rig = Rig::new(vec![Step::Say("done")]);
    let (thread_id, run_id) = left_parked(&rig, None).await;
    for daemon in 0..3 {
        recover(rig.threads.deps()).await.unwrap();
        let state = rig.store().load(thread_id).await.unwrap().unwrap().state;
        assert_eq!(state.active_run().map(|run| run.status), Some(RunStatus::Waiting), "daemon {daemon}");
    }
    rig.threads.wake_unfinished().await.unwrap();
    let state = rig.idle(thread_id).await;
    assert_eq!((state.run(run_id).unwrap().status, said(&state)), (RunStatus::Done, vec!["done".to_owned()]));
    let kinds = rig.kinds(thread_id).await;
    let changes = kinds.iter().filter(|kind| *kind == "run_status_changed").count();
    assert_eq!(changes, 2, "it was parked once, and went on once");
    whole(&kinds);
}

/// What was known of a limit is in the log: those that wait for it go on waiting together, and the first that asks is one
/// that somebody waits for.
#[tokio::test]
async fn parked_runs_go_on_waiting_as_one_under_the_next_daemon() {
    let rig = Rig::new(vec![Step::Say("done")]);
    let mut left = Vec::new();
    for seconds in [5_410, 5_400, 5_420] {
        let until_ms = rig.clock_ms() + seconds * 1000;
        left.push(left_parked(&rig, Some(Parked { model: "fake/one".into(), until_ms, whole_account: true })).await);
    }
    next_daemon(&rig).await;
    for (thread_id, run_id) in &left {
        rig.until(*thread_id, "the run is taken up", |state| state.run(*run_id).is_some_and(|run| run.resumed == 1))
            .await;
    }
    let (now, _) = rig.start("now").await;
    assert_eq!(said(&*rig.idle(now).await), ["now", "done"]);
    for (thread_id, run_id) in left {
        let state = rig.idle(thread_id).await;
        assert_eq!((state.run(run_id).unwrap().status, said(&state)), (RunStatus::Done, vec!["done".to_owned()]));
        let kinds = rig.kinds(thread_id).await;
        let changes = kinds.iter().filter(|kind| *kind == "run_status_changed").count();
        assert_eq!((changes, kinds.contains(&"notice".to_owned())), (2, false), "it was told before: {kinds:?}");
        whole(&kinds);
    }
    let first = rig.script.requests.lock().unwrap()[0].messages.clone();
    assert!(format!("{first:?}").contains("now"), "nobody asked before: {first:?}");
}

/// A restart cuts what is at work, and not what waits for an answer.
#[tokio::test]
async fn what_waits_is_not_cut_by_a_restart() {
    let rig = Rig::new(vec![Step::Call(vec![("command", json!({}))]), Step::Hold("half an answer"), Step::Say("done")]);
    let (asks, _) = rig.start("one").await;
    rig.until(asks, "somebody is asked", |state| !state.open.approvals.is_empty()).await;
    assert_eq!((rig.threads.runs_to_cut(true).await.unwrap(), rig.threads.runs_to_cut(false).await.unwrap()), (0, 1));
    rig.start("two").await;
    rig.asked(2).await;
    assert_eq!((rig.threads.runs_to_cut(true).await.unwrap(), rig.threads.runs_to_cut(false).await.unwrap()), (1, 2));
    rig.threads.shut_down().await;
}

/// Another daemon must not charge to its stored key what was begun with the client's own.
#[tokio::test]
async fn a_run_with_the_clients_own_key_is_not_gone_on_with_by_the_stored_one() {
    let rig = Rig::new(vec![Step::Say("done")]);
    for (env, own_access) in [(vec![], true), (vec![(KEY.to_owned(), "of the company".to_owned())], false)] {
        let mut run = rig.prompt(None, "hi");
        run.surroundings.client_env = std::sync::Arc::new(env.into_iter().collect());
        let started = rig.threads.start_run(run).await.unwrap();
        let state = rig.idle(started.thread_id).await;
        assert_eq!(state.runs[0].options.kept.as_ref().map(|kept| kept.own_access), Some(own_access));
    }
}
