//! Limits of runs and days, and a model that goes round in circles.

use mcode_config::Effective;
use mcode_events::run::RunLimits;
use mcode_events::{RunErrorKind, RunStatus};
use mcode_threads::ThreadError;
use serde_json::json;

use crate::rig::{Rig, Step, said};

/// Calls the tool with another number each time.
fn counting(times: i64) -> Vec<Step> {
    (0..times).map(|n| Step::Call(vec![("same", json!({"n": n}))])).collect()
}

async fn limited(rig: &Rig, limits: RunLimits) -> mcode_events::run::RunRecord {
    let mut run = rig.prompt(None, "work");
    run.limits = limits;
    let started = rig.threads.start_run(run).await.unwrap();
    rig.idle(started.thread_id).await.run(started.run_id).unwrap().clone()
}

#[tokio::test]
async fn a_step_limit_ends_the_run() {
    let rig = Rig::new(counting(100));
    let run = limited(&rig, RunLimits { max_steps: Some(4), ..RunLimits::default() }).await;
    assert_eq!((run.status, run.steps, run.exit_code()), (RunStatus::Failed, 4, Some(7)));
    assert_eq!(*rig.script.asked.borrow(), 4);
    let error = run.error.unwrap();
    assert_eq!((error.kind, error.reason.as_str()), (RunErrorKind::Limit, "STEP_LIMIT"));
}

#[tokio::test]
async fn a_token_or_cost_limit_ends_the_run() {
    let rig = Rig::new(counting(100));
    // Each step takes 1,000,010 tokens and one dollar.
    let run = limited(&rig, RunLimits { max_tokens: Some(2_500_000), ..RunLimits::default() }).await;
    assert_eq!((run.steps, run.error.unwrap().reason.as_str()), (3, "TOKEN_LIMIT"));
    let rig = Rig::new(counting(100));
    let run = limited(&rig, RunLimits { max_cost_usd: Some(2.0), ..RunLimits::default() }).await;
    assert_eq!((run.steps, run.error.unwrap().reason.as_str()), (2, "COST_LIMIT"));
}

#[tokio::test]
async fn a_time_limit_ends_the_run_also_in_the_middle_of_an_answer() {
    let rig = Rig::new(vec![Step::Hold("half")]);
    let run = limited(&rig, RunLimits { max_time_ms: Some(150), ..RunLimits::default() }).await;
    assert_eq!((run.status, run.exit_code()), (RunStatus::Failed, Some(124)));
    let error = run.error.unwrap();
    assert_eq!(error.reason, "TIME_LIMIT");
    assert!(error.message.contains("0.15 s"), "{}", error.message);
}

#[tokio::test]
async fn a_time_limit_ends_a_tool_too() {
    let rig = Rig::new(vec![Step::Call(vec![("wait", json!({}))])]);
    let run = limited(&rig, RunLimits { max_time_ms: Some(150), ..RunLimits::default() }).await;
    assert_eq!(run.exit_code(), Some(124));
    assert_eq!(*rig.runs.borrow(), 1);
}

#[tokio::test]
async fn the_same_call_with_the_same_result_is_warned_of_at_3_and_ended_at_6() {
    let rig = Rig::new(vec![Step::Call(vec![("same", json!({"n": 1}))])]);
    let (thread_id, run_id) = rig.start("go").await;
    let state = rig.idle(thread_id).await;
    let run = state.run(run_id).unwrap();
    assert_eq!((run.steps, run.error.as_ref().unwrap().reason.as_str()), (6, "LOOP_DETECTED"));
    assert_eq!(run.exit_code(), Some(7));
    // The notes stand in the user's place, each after the result that made it necessary.
    let warned: Vec<String> = said(&state).into_iter().filter(|text| text.contains("times in a row")).collect();
    let counts = warned.iter().map(|text| text.contains("[mcode]").then(|| text.matches(char::is_numeric).collect()));
    assert_eq!(counts.collect::<Option<Vec<String>>>().unwrap(), ["3", "4", "5"]);
}

#[tokio::test]
async fn a_days_budget_refuses_the_next_run_and_is_new_the_next_day() {
    let mut config = Effective::default();
    config.limits.max_cost_per_day = Some(1.0);
    let rig = Rig::with(tempfile::tempdir().unwrap(), vec![Step::Say("a dollar's worth")], config);
    let (thread_id, _) = rig.start("one").await;
    rig.idle(thread_id).await;
    let error = rig.threads.start_run(rig.prompt(None, "two")).await.unwrap_err();
    assert!(matches!(&error, ThreadError::Limit { message } if message.contains("$1.00")), "{error:?}");
    assert_eq!(*rig.script.asked.borrow(), 1);
    rig.clock.advance_millis(24 * 60 * 60 * 1000 + 1);
    let (thread_id, _) = rig.start("three").await;
    rig.idle(thread_id).await;
    assert_eq!(*rig.script.asked.borrow(), 2);
}
