//! A policy of what is kept: reported first, then kept to, and never against somebody who uses a thread.

use mcode_config::{Effective, Keeping};
use mcode_events::audit::AuditKind;
use mcode_ids::ThreadId;
use mcode_threads::{Change, GRACE_MS, KEEP_TAG};

use crate::rig::{Rig, Step};

const DAY: i64 = 24 * 60 * 60 * 1000;

fn rig(keeping: Keeping, steps: Vec<Step>) -> Rig {
    Rig::with(tempfile::tempdir().unwrap(), steps, Effective { keeping, ..Effective::default() })
}

fn days(keep_days: u32) -> Keeping {
    Keeping { keep_days: Some(keep_days), ..Keeping::default() }
}

async fn is_there(rig: &Rig, thread_id: ThreadId) -> bool {
    rig.threads.known(thread_id).await.is_ok()
}

async fn thread(rig: &Rig, text: &str) -> ThreadId {
    let (thread_id, _) = rig.start(text).await;
    rig.idle(thread_id).await;
    thread_id
}

#[tokio::test]
async fn a_policy_is_reported_waits_and_then_lets_go_with_a_record() {
    let rig = rig(days(30), vec![Step::Say("fine")]);
    let (old, pinned, tagged) = (thread(&rig, "one").await, thread(&rig, "two").await, thread(&rig, "three").await);
    rig.threads.change(pinned, Change { pinned: Some(true), ..Change::default() }).await.unwrap();
    rig.threads.change(tagged, Change { tags: Some(vec![KEEP_TAG.into()]), ..Change::default() }).await.unwrap();
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
    assert_eq!(rig.threads.retention().await.unwrap().acts_ms, None, "nothing is old");

    rig.clock.advance_millis(31 * DAY);
    let new = thread(&rig, "four").await;
    let now = rig.clock_ms();
    let report = rig.threads.retention().await.unwrap();
    assert_eq!(report.policy, "keep_days = 30");
    assert_eq!(report.due.leaving.iter().map(|it| it.thread_id).collect::<Vec<_>>(), [old]);
    assert_eq!((report.noted_ms, report.acts_ms), (None, Some(now + GRACE_MS)), "looking notes nothing");
    assert_eq!(rig.threads.let_go().await.unwrap(), 0, "the first time it is only noted");
    rig.clock.advance_millis(GRACE_MS - 1);
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
    assert_eq!(rig.threads.retention().await.unwrap().noted_ms, Some(now));
    assert!(is_there(&rig, old).await);
    rig.clock.advance_millis(1);
    assert_eq!(rig.threads.let_go().await.unwrap(), 1);
    assert!(!is_there(&rig, old).await);
    for stays in [pinned, tagged, new] {
        assert!(is_there(&rig, stays).await);
    }
    let records = rig.threads.decisions(Some(old), 10, None).await.unwrap().rows;
    let record = &records[0].entry;
    assert_eq!((record.kind, record.verdict.as_str()), (AuditKind::LetGo, "delete"));
    assert!(record.why.starts_with("threads.keep_days: last used 20") && record.subject.contains("one"), "{record:?}");
    assert_eq!(record.rule.as_deref(), Some("keep_days = 30"));
    assert_eq!(rig.threads.check_decisions().await.unwrap().fault, None);
    assert!(rig.threads.check().await.unwrap().is_whole());
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
}

#[tokio::test]
async fn a_thread_in_use_stays_until_it_is_not() {
    let rig = rig(days(1), vec![Step::Say("fine"), Step::Say("fine"), Step::Hold("at work"), Step::Say("fine")]);
    let (watched, used) = (thread(&rig, "one").await, thread(&rig, "two").await);
    let (working, run_id) = rig.start("three").await;
    rig.asked(3).await;
    rig.clock.advance_millis(2 * DAY);
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
    rig.clock.advance_millis(GRACE_MS);
    let watching = rig.threads.subscribe(watched).await.unwrap();
    // It was used between the look and the end.
    rig.threads.change(used, Change { title: Some("of today".into()), ..Change::default() }).await.unwrap();
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
    for thread_id in [watched, used, working] {
        assert!(is_there(&rig, thread_id).await);
    }
    drop(watching);
    assert_eq!(rig.threads.let_go().await.unwrap(), 1);
    assert!(!is_there(&rig, watched).await);
    rig.threads.cancel_run(run_id).await.unwrap();
    rig.idle(working).await;
    assert!(is_there(&rig, working).await);
}

/// A slip of the keys loses nothing: the policy that comes next waits anew.
#[tokio::test]
async fn more_go_than_are_let_go_at_once_and_no_more_than_are_over() {
    let keeping = Keeping { max_bytes_per_project: Some(60_000), ..Keeping::default() };
    let rig = rig(keeping, vec![Step::Say("fine")]);
    let mut threads = Vec::new();
    let text = "x".repeat(4_000);
    for _ in 0..25 {
        rig.clock.advance_millis(1000);
        threads.push(thread(&rig, &text).await);
    }
    rig.clock.advance_millis(2 * DAY);
    let planned = rig.threads.retention().await.unwrap().due.leaving.len();
    assert!((11..25).contains(&planned), "{planned}");
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
    rig.clock.advance_millis(GRACE_MS);
    assert_eq!(rig.threads.let_go().await.unwrap(), planned, "as it was foreseen");
    for (at, thread_id) in threads.iter().enumerate() {
        assert_eq!(is_there(&rig, *thread_id).await, at >= planned, "{at}");
    }
    assert_eq!(rig.threads.let_go().await.unwrap(), 0);
}
