//! What requests have cost: summed exactly, by whatever is asked for, made anew from the log, kept beyond it.

use mcode_env::Zone;
use mcode_events::usage::{Usage, UsagePurpose};
use mcode_events::{EventBody, NewEvent};
use mcode_store::{Store, UsageFilter, UsageGroup, UsageReport};

use crate::rig::Rig;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

pub fn paid(model: &str, tokens: u64, cost_usd: f64, purpose: UsagePurpose) -> EventBody {
    let usage = Usage { input_tokens: tokens, output_tokens: 1, cache_read_tokens: 3, cost_usd, ..Usage::default() };
    EventBody::UsageRecorded { model: model.into(), usage, purpose, priced: cost_usd > 0.0, goal_id: None }
}

fn filter(group: UsageGroup) -> UsageFilter {
    UsageFilter {
        group,
        since_ms: 0,
        until_ms: i64::MAX,
        project_id: None,
        thread_id: None,
        page_size: 100,
        page_token: None,
    }
}

async fn all(store: &Store, filter: &UsageFilter) -> Vec<UsageReport> {
    let mut reports = Vec::new();
    for group in [
        UsageGroup::Thread,
        UsageGroup::Model,
        UsageGroup::Day(Zone::utc()),
        UsageGroup::Goal,
        UsageGroup::Provider,
        UsageGroup::Purpose,
    ] {
        reports.push(store.usage(UsageFilter { group, ..filter.clone() }).await.unwrap());
    }
    reports
}

fn costs(report: &UsageReport) -> Vec<(String, i64)> {
    report.page.rows.iter().map(|row| (row.key.clone(), row.sums.cost_nanos)).collect()
}

#[tokio::test]
async fn sums_are_exact_and_can_be_made_anew() {
    let rig = Rig::new();
    let store = rig.open();
    let (mut one, mut other) = (rig.thread(), rig.thread());
    let run_id = rig.run_id();
    // A thousand tenths of a cent, which no sum of floats gives.
    for round in 0..100 {
        let events = (0..10).map(|_| NewEvent::of_run(run_id, None, paid("a/x", 7, 0.001, UsagePurpose::Work)));
        store.append(one.next(events.collect(), round)).await.unwrap();
    }
    let more = vec![
        NewEvent::of_thread(paid("b/y/z", 11, 0.0, UsagePurpose::Judge)),
        NewEvent::of_thread(paid("a/x", 5, 0.25, UsagePurpose::Title)),
    ];
    store.append(other.next(more, DAY_MS + 60_000)).await.unwrap();
    let before = all(&store, &filter(UsageGroup::Thread)).await;
    let (thread, model, day) = (&before[0], &before[1], &before[2]);
    assert_eq!(costs(thread), [(one.id().to_string(), 1_000_000_000), (other.id().to_string(), 250_000_000)]);
    assert_eq!(costs(model), [("a/x".into(), 1_250_000_000), ("b/y/z".into(), 0)]);
    assert_eq!(costs(day), [("1970-01-02".into(), 250_000_000), ("1970-01-01".into(), 1_000_000_000)]);
    assert_eq!(costs(&before[4]), [("a".into(), 1_250_000_000), ("b".into(), 0)]);
    let purposes = [("work".into(), 1_000_000_000), ("title".into(), 250_000_000), ("judge".into(), 0)];
    assert_eq!(costs(&before[5]), purposes);
    for report in &before {
        let total = report.total;
        assert_eq!((total.requests, total.cost_nanos, total.unpriced_tokens), (1_002, 1_250_000_000, 15));
        assert_eq!((total.usage.input_tokens, total.usage.cost_usd), (7_016, 1.25));
    }
    // Elsewhere the second day has not begun yet.
    let west = store.usage(filter(UsageGroup::Day(Zone::parse("<-05>5").unwrap()))).await.unwrap();
    assert_eq!(costs(&west), [("1970-01-01".into(), 250_000_000), ("1969-12-31".into(), 1_000_000_000)]);

    store.rebuild_usage().await.unwrap();
    assert_eq!(all(&store, &filter(UsageGroup::Thread)).await, before, "the log gives the same");
    store.delete_thread(other.id()).await.unwrap();
    store.rebuild_usage().await.unwrap();
    let after = all(&store, &filter(UsageGroup::Thread)).await;
    assert_eq!(after[1..], before[1..], "what a deleted thread has cost is cost");
    assert!(after[0].page.rows[1].deleted && after[0].page.rows[1].title.is_empty());
    assert_eq!(store.spent_since(DAY_MS).await.unwrap(), 250_000_000);
}

#[tokio::test]
async fn filters_and_pages() {
    let rig = Rig::new();
    let store = rig.open();
    let mut threads: Vec<_> = (0..5).map(|_| rig.thread()).collect();
    for (at, thread) in threads.iter_mut().enumerate() {
        let cost = 0.5 - at as f64 * 0.1;
        let event = NewEvent::of_thread(paid("a/x", 1, cost, UsagePurpose::Work));
        store.append(thread.next(vec![event], at as i64 * DAY_MS)).await.unwrap();
    }
    for group in [UsageGroup::Thread, UsageGroup::Day(Zone::utc())] {
        let whole = store.usage(filter(group.clone())).await.unwrap();
        let (mut rows, mut token) = (Vec::new(), None);
        loop {
            let page = UsageFilter { page_size: 2, page_token: token, ..filter(group.clone()) };
            let report = store.usage(page).await.unwrap();
            assert_eq!(report.total, whole.total, "the total is of all pages");
            assert!(report.page.rows.len() <= 2);
            rows.extend(report.page.rows);
            token = report.page.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(rows, whole.page.rows);
    }
    let some = UsageFilter { since_ms: DAY_MS, until_ms: 3 * DAY_MS, ..filter(UsageGroup::Thread) };
    assert_eq!(store.usage(some).await.unwrap().total.cost_nanos, 700_000_000);
    let of_thread = UsageFilter { thread_id: Some(threads[2].id()), ..filter(UsageGroup::Model) };
    assert_eq!(costs(&store.usage(of_thread).await.unwrap()), [("a/x".into(), 300_000_000)]);
    let bad = UsageFilter { page_token: Some("x".into()), ..filter(UsageGroup::Thread) };
    assert!(store.usage(bad).await.is_err());
}
