//! Lists by pages, and look-ups beside the log.

use std::collections::BTreeSet;

use mcode_env::IdGen;
use mcode_events::EventBody;
use mcode_events::event::{ApprovalOutcome, ApprovalRequest, NewEvent};
use mcode_ids::{ApprovalId, ProjectId, ToolCallId};
use mcode_store::{ReadError, ThreadFilter};

use crate::rig::{Rig, started};

#[tokio::test]
async fn pages_show_every_thread_once_also_those_of_the_same_moment() {
    let rig = Rig::new();
    let store = rig.open();
    let mut all = BTreeSet::new();
    for number in 0..25 {
        let mut thread = rig.thread();
        // Five threads of each moment.
        let append = thread.next(Vec::new(), number / 5);
        store.append(append).await.unwrap();
        all.insert(thread.id());
    }
    for page_size in [1, 2, 7, 25, 500] {
        let (mut seen, mut token, mut last) = (BTreeSet::new(), None, i64::MAX);
        loop {
            let filter = ThreadFilter { page_size, page_token: token, ..Default::default() };
            let page = store.threads(filter).await.unwrap();
            assert!(page.rows.len() <= page_size as usize);
            for row in page.rows {
                assert!(row.updated_at_ms <= last, "newest first");
                last = row.updated_at_ms;
                assert!(seen.insert(row.thread_id), "{} came twice", row.thread_id);
            }
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen, all, "pages of {page_size}");
    }
}

#[tokio::test]
async fn a_token_of_another_list_is_refused() {
    let rig = Rig::new();
    let store = rig.open();
    for token in ["", "nonsense", "x:thr_1", "'; DROP TABLE events; --"] {
        let filter = ThreadFilter { page_size: 5, page_token: Some(token.into()), ..Default::default() };
        let error = store.threads(filter).await.unwrap_err();
        assert!(matches!(&error, ReadError::BadPageToken(shown) if shown == token), "{error:?}");
    }
    let filter = ThreadFilter { page_size: 5, page_token: Some("y".repeat(10_000)), ..Default::default() };
    assert!(store.threads(filter).await.unwrap_err().to_string().len() < 200, "a long token is not repeated whole");
}

#[tokio::test]
async fn lists_are_of_a_project_and_without_what_was_put_away() {
    let rig = Rig::new();
    let store = rig.open();
    let (mut first, mut second) = (rig.thread(), rig.thread());
    for thread in [&mut first, &mut second] {
        let append = thread.next(Vec::new(), 5);
        store.append(append).await.unwrap();
    }
    let archive = NewEvent::of_thread(EventBody::ArchivedChanged { archived: true });
    let append = second.next(vec![archive], 6);
    store.append(append).await.unwrap();
    let list = async |project_id, include_archived| {
        let filter = ThreadFilter { project_id, include_archived, page_size: 10, ..ThreadFilter::default() };
        let page = store.threads(filter).await.unwrap();
        page.rows.into_iter().map(|row| row.thread_id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, false).await, [first.id()]);
    assert_eq!(list(None, true).await, [second.id(), first.id()]);
    assert_eq!(list(second.state.project_id, true).await, [second.id()]);
    assert_eq!(list(Some(ProjectId::from_uuid(rig.ids.next())), true).await, []);
}

#[tokio::test]
async fn runs_are_listed_newest_first_and_those_at_work_alone() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let mut runs = Vec::new();
    for _ in 0..5 {
        let run_id = rig.run_id();
        runs.insert(0, run_id);
        let done = EventBody::RunFinished {
            status: mcode_events::RunStatus::Done,
            error: None,
            usage: Default::default(),
            structured: None,
        };
        let append = thread.next(vec![started(run_id), NewEvent::of_run(run_id, None, done)], 5);
        store.append(append).await.unwrap();
    }
    let active = rig.run_id();
    runs.insert(0, active);
    let append = thread.next(vec![started(active)], 6);
    store.append(append).await.unwrap();
    let mut seen = Vec::new();
    let mut token = None;
    loop {
        let page = store.runs(Some(thread.id()), false, 4, token).await.unwrap();
        seen.extend(page.rows.into_iter().map(|row| row.record.run_id));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, runs);
    let page = store.runs(None, true, 10, None).await.unwrap();
    assert_eq!(page.rows.iter().map(|row| row.record.run_id).collect::<Vec<_>>(), [active]);
    assert_eq!(store.unfinished_threads().await.unwrap(), [thread.id()]);
}

#[tokio::test]
async fn an_approval_is_found_while_it_waits() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let approval_id = ApprovalId::from_uuid(rig.ids.next());
    let request = ApprovalRequest {
        approval_id,
        tool_call_id: ToolCallId::from_uuid(rig.ids.next()),
        tool: "shell".into(),
        arguments: serde_json::json!({}),
        preview: String::new(),
        why: String::new(),
        deadline_ms: None,
        proposed_rule: None,
        owners: Vec::new(),
    };
    let append = thread.next(vec![NewEvent::of_thread(EventBody::ApprovalRequested { request })], 5);
    store.append(append).await.unwrap();
    assert_eq!(store.thread_of_approval(approval_id).await.unwrap(), Some(thread.id()));
    assert_eq!(store.waiting_threads().await.unwrap(), [thread.id()]);
    let body = EventBody::ApprovalResolved {
        approval_id,
        outcome: ApprovalOutcome::Denied,
        by: "user".into(),
        reason: String::new(),
    };
    let append = thread.next(vec![NewEvent::of_thread(body)], 6);
    store.append(append).await.unwrap();
    assert_eq!(store.thread_of_approval(approval_id).await.unwrap(), None);
    assert!(store.waiting_threads().await.unwrap().is_empty());
}
