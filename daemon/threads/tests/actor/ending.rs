//! Every end: cancelled, shut down, a panic, an ephemeral thread.

use mcode_events::{RunErrorKind, RunStatus, ToolCallStatus};
use mcode_threads::ThreadError;
use serde_json::json;

use crate::rig::{Rig, Step, said};

/// Everything that was begun has exactly one end.
pub fn whole(kinds: &[String]) {
    for (begin, ends) in [
        ("run_started", &["run_finished"][..]),
        ("turn_started", &["turn_finished"]),
        ("step_started", &["step_finished"]),
        ("tool_call_started", &["tool_call_finished"]),
        ("approval_requested", &["approval_resolved"]),
    ] {
        let count = |wanted: &dyn Fn(&str) -> bool| kinds.iter().filter(|kind| wanted(kind)).count();
        let (begun, ended) = (count(&|kind| kind == begin), count(&|kind| ends.contains(&kind)));
        assert_eq!(begun, ended, "{begin}: {kinds:?}");
    }
}

#[tokio::test]
async fn a_cancelled_run_ends_once_and_the_thread_goes_on() {
    let rig = Rig::new(vec![Step::Hold("half an answer"), Step::Say("a whole one")]);
    let (thread_id, run_id) = rig.start("one").await;
    rig.asked(1).await;
    let row = rig.threads.cancel_run(run_id).await.unwrap();
    assert_eq!((row.record.status, row.record.exit_code()), (RunStatus::Cancelled, Some(130)));
    assert_eq!(rig.threads.cancel_run(run_id).await.unwrap(), row, "a run that has ended keeps its end");
    let state = rig.idle(thread_id).await;
    assert_eq!(said(&state), ["one"], "half an answer is no answer");
    whole(&rig.kinds(thread_id).await);
    rig.threads.start_run(rig.prompt(Some(thread_id), "two")).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["one", "two", "a whole one"]);
}

#[tokio::test]
async fn a_cancelled_tool_is_told_so() {
    let rig = Rig::new(vec![Step::Call(vec![("wait", json!({})), ("same", json!({}))]), Step::Say("on")]);
    let (thread_id, run_id) = rig.start("one").await;
    rig.ran(1).await;
    rig.threads.cancel_run(run_id).await.unwrap();
    let state = rig.idle(thread_id).await;
    assert_eq!(*rig.runs.borrow(), 1, "the call behind it does not run any more");
    let statuses = results(&state);
    assert_eq!(statuses, [ToolCallStatus::Cancelled, ToolCallStatus::Cancelled]);
    whole(&rig.kinds(thread_id).await);
}

fn results(state: &mcode_events::ThreadState) -> Vec<ToolCallStatus> {
    let result = |entry: &std::sync::Arc<mcode_events::state::Entry>| match entry.as_ref() {
        mcode_events::state::Entry::ToolResult { result, .. } => Some(result.status),
        mcode_events::state::Entry::Message { .. } => None,
    };
    state.history.iter().filter_map(result).collect()
}

#[tokio::test]
async fn a_shutdown_interrupts_and_records_everything() {
    let rig = Rig::new(vec![
        Step::Call(vec![("wait", json!({}))]),
        Step::Call(vec![("command", json!({}))]),
        Step::Hold("half an answer"),
    ]);
    let (in_tool, _) = rig.start("a tool").await;
    rig.ran(1).await;
    let (waiting, _) = rig.start("a question").await;
    rig.until(waiting, "the question", |state| !state.open.approvals.is_empty()).await;
    let (answering, run_id) = rig.start("an answer").await;
    rig.asked(3).await;
    rig.threads.shut_down().await;
    for thread_id in [in_tool, waiting, answering] {
        let state = rig.store().load(thread_id).await.unwrap().unwrap().state;
        assert!(state.open.is_empty(), "{:#?}", state.open);
        assert_eq!(state.runs[0].status, RunStatus::Interrupted);
        assert_eq!(state.runs[0].error.as_ref().unwrap().kind, RunErrorKind::Interrupted);
        whole(&rig.kinds(thread_id).await);
    }
    assert!(rig.store().unfinished_threads().await.unwrap().is_empty());
    let row = rig.threads.run(run_id).await.unwrap();
    assert_eq!(row.record.status, RunStatus::Interrupted);
    let error = rig.threads.start_run(rig.prompt(None, "more")).await.unwrap_err();
    assert!(matches!(error, ThreadError::ShuttingDown), "{error:?}");
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_call_and_nothing_else() {
    let rig = Rig::new(vec![Step::Call(vec![("broken", json!({})), ("same", json!({}))]), Step::Say("never mind")]);
    let (thread_id, run_id) = rig.start("one").await;
    let state = rig.idle(thread_id).await;
    assert_eq!(results(&state), [ToolCallStatus::Failed, ToolCallStatus::Done]);
    assert_eq!(state.run(run_id).unwrap().status, RunStatus::Done);
    whole(&rig.kinds(thread_id).await);
}

#[tokio::test]
async fn an_agent_that_panics_fails_its_run_and_the_thread_goes_on() {
    let rig = Rig::new(vec![Step::Panic, Step::Say("here again")]);
    let (thread_id, run_id) = rig.start("one").await;
    let state = rig.idle(thread_id).await;
    let run = state.run(run_id).unwrap();
    assert_eq!((run.status, run.exit_code()), (RunStatus::Failed, Some(70)));
    assert!(run.error.as_ref().unwrap().message.contains("crashed"));
    whole(&rig.kinds(thread_id).await);
    rig.threads.start_run(rig.prompt(Some(thread_id), "two")).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["one", "two", "here again"]);
}

/// In real time: this takes the ten seconds that such a thread waits for a watcher.
#[tokio::test]
async fn an_ephemeral_thread_is_forgotten_when_nobody_watches_it_also_by_the_next_daemon() {
    let rig = Rig::new(vec![Step::Say("gone soon")]);
    let ephemeral = || {
        let mut run = rig.prompt(None, "hi");
        run.ephemeral = true;
        rig.threads.start_run(run)
    };
    let left = ephemeral().await.unwrap();
    rig.idle(left.thread_id).await;
    rig.threads.shut_down().await;
    assert!(rig.store().thread(left.thread_id).await.unwrap().is_some(), "there was no time to forget it");
    let next = mcode_threads::Threads::new(rig.threads.deps().clone());
    next.wake_ephemeral().await.unwrap();
    let mut run = rig.prompt(None, "hi");
    run.ephemeral = true;
    let own = next.start_run(run).await.unwrap();
    let forgotten = async {
        for started in [left, own] {
            while rig.store().thread(started.thread_id).await.unwrap().is_some() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(40), forgotten).await.expect("both are forgotten");
    assert!(rig.store().run(left.run_id).await.unwrap().is_none());
}

/// A look at the files may take as long as the disk likes, or wait for somebody else's.
#[tokio::test]
async fn a_cancel_waits_for_no_look_at_the_files() {
    let rig = Rig::new(vec![Step::Say("fine"), Step::Call(vec![("command", json!({}))]), Step::Say("on")]);
    let (thread_id, _) = rig.start("one").await;
    rig.idle(thread_id).await;
    let depot = std::fs::read_dir(rig.root.join("data/checkpoints")).unwrap().next().unwrap().unwrap().path();
    let lock = std::fs::File::options().append(true).open(depot.join("lock")).unwrap();
    lock.lock().unwrap();
    let mut prompt = rig.prompt(Some(thread_id), "two");
    prompt.approval = Some(mcode_events::run::ApprovalPolicy::All);
    let started = rig.threads.start_run(prompt).await.unwrap();
    // The call is on record, and the look before it gets no lock for as long as this test holds it.
    rig.until(thread_id, "the call to be on record", |state| !state.open.tool_calls.is_empty()).await;
    let cancelled = tokio::time::timeout(std::time::Duration::from_secs(10), rig.threads.cancel_run(started.run_id));
    let row = cancelled.await.expect("the cancel waits for the look").unwrap();
    assert_eq!(row.record.status, RunStatus::Cancelled);
    assert_eq!(*rig.runs.borrow(), 0, "the call runs without the state before it");
    whole(&rig.kinds(thread_id).await);
    lock.unlock().unwrap();
    rig.threads.start_run(rig.prompt(Some(thread_id), "three")).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await).last().map(String::as_str), Some("on"));
}
