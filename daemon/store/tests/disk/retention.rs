//! What a policy lets go: in order, no more than it has to, and never what somebody still needs.

use mcode_env::Clock;
use mcode_events::EventBody;
use mcode_events::event::NewEvent;
use mcode_ids::{ProjectId, ThreadId};
use mcode_store::{Due, IDLE_MS, KEEP_TAG, LEAVING_MAX, Policy, Store, Why};

use crate::forks::fork;
use crate::rig::{Rig, Thread, notice, started};

const DAY: i64 = 24 * 60 * 60 * 1000;

/// A thread of a project that was used last so many days ago, with so many bytes of events.
async fn used(rig: &Rig, store: &Store, project: ProjectId, days: i64, bytes: usize) -> Thread {
    let mut thread = rig.thread();
    thread.first_project(project);
    let at = rig.clock.now().millis() - days * DAY;
    store.append(thread.next(vec![notice(&"x".repeat(bytes))], at)).await.unwrap();
    thread
}

async fn change(store: &Store, thread: &mut Thread, body: EventBody) {
    let at = thread.state.updated_at_ms;
    store.append(thread.next(vec![NewEvent::of_thread(body)], at)).await.unwrap();
}

fn ids(due: &Due) -> Vec<ThreadId> {
    due.leaving.iter().map(|leaving| leaving.thread_id).collect()
}

fn project(rig: &Rig) -> ProjectId {
    ProjectId::from_uuid(mcode_env::IdGen::next(&rig.ids))
}

#[tokio::test]
async fn what_was_not_used_for_longer_goes_and_what_is_held_stays() {
    let rig = Rig::new();
    let store = rig.open();
    let now = rig.clock.now().millis();
    let of = project(&rig);
    let oldest = used(&rig, &store, of, 90, 1000).await;
    let older = used(&rig, &store, of, 40, 1000).await;
    let new = used(&rig, &store, of, 29, 1000).await;
    let mut pinned = used(&rig, &store, of, 90, 10).await;
    change(&store, &mut pinned, EventBody::PinnedChanged { pinned: true }).await;
    let mut tagged = used(&rig, &store, of, 90, 10).await;
    change(&store, &mut tagged, EventBody::TagsChanged { tags: vec!["x".into(), KEEP_TAG.into()] }).await;
    let mut running = used(&rig, &store, of, 90, 10).await;
    let at = running.state.updated_at_ms;
    store.append(running.next(vec![started(rig.run_id())], at)).await.unwrap();
    let policy = Policy { keep_days: Some(30), ..Policy::default() };
    let due = store.due(policy, now).await.unwrap();
    assert_eq!(ids(&due), [oldest.id(), older.id()]);
    assert!(due.leaving.iter().all(|it| it.why == Why::Age && (1000..1500).contains(&it.bytes)), "{due:#?}");
    assert_eq!(store.due(Policy::default(), now).await.unwrap(), Due::default(), "off");
    // What came from elsewhere is as old as it was there, and is not to go as soon as it came.
    let came = now - 5 * DAY;
    rig.sql(&format!("INSERT INTO imports VALUES ('{}', 'key', 'state', {came}, 2)", oldest.id()));
    assert_eq!(ids(&store.due(policy, now).await.unwrap()), [older.id()]);
    rig.sql("UPDATE imports SET at = at - 26 * 24 * 60 * 60 * 1000");
    assert_eq!(ids(&store.due(policy, now).await.unwrap()), [oldest.id(), older.id()]);
    assert_eq!(ids(&store.due(policy, now + DAY + 1).await.unwrap()).last(), Some(&new.id()));
}

#[tokio::test]
async fn a_project_that_takes_too_much_loses_its_oldest_and_no_more_than_it_has_to() {
    let rig = Rig::new();
    let store = rig.open();
    let now = rig.clock.now().millis();
    let (large, small) = (project(&rig), project(&rig));
    let mut threads = Vec::new();
    for days in [9, 7, 5, 3] {
        threads.push(used(&rig, &store, large, days, 50_000).await);
    }
    let today = used(&rig, &store, large, 0, 50_000).await;
    used(&rig, &store, small, 30, 50_000).await;
    let at_most = |bytes| Policy { project_bytes: Some(bytes), ..Policy::default() };
    assert_eq!(ids(&store.due(at_most(300_000), now).await.unwrap()), []);
    let due = store.due(at_most(170_000), now).await.unwrap();
    assert_eq!(ids(&due), [threads[0].id(), threads[1].id()]);
    assert!(due.leaving.iter().all(|it| it.why == Why::ProjectBytes && it.project_id == large));
    // What was used today stays however small the bound is, unless it is put away.
    let due = store.due(at_most(60_000), now).await.unwrap();
    assert_eq!(ids(&due).len(), 4, "{due:#?}");
    let due = store.due(at_most(1), now + IDLE_MS).await.unwrap();
    assert!(ids(&due).contains(&threads[3].id()) && !ids(&due).contains(&today.id()));
    let mut today = today;
    change(&store, &mut today, EventBody::ArchivedChanged { archived: true }).await;
    assert!(ids(&store.due(at_most(1), now + 1).await.unwrap()).contains(&today.id()));
    // And done so it is enough.
    for thread in &threads[..2] {
        store.delete_thread(thread.id()).await.unwrap();
    }
    assert_eq!(ids(&store.due(at_most(170_000), now).await.unwrap()), []);
}

/// What goes with a thread depends on what its forks still share.
#[tokio::test]
async fn what_forks_share_is_freed_by_the_last_of_them() {
    let rig = Rig::new();
    let store = rig.open();
    let now = rig.clock.now().millis();
    let of = project(&rig);
    let mut parent = used(&rig, &store, of, 50, 100).await;
    for _ in 0..3 {
        let at = parent.state.updated_at_ms;
        let large = NewEvent::of_thread(EventBody::Notice { level: "info".into(), text: "y".repeat(40_000) });
        store.append(parent.next(vec![large], at)).await.unwrap();
    }
    let body = store.blobs().put(&vec![7; 90_000], "x").unwrap().hash;
    let at = parent.state.updated_at_ms;
    store.append(parent.next(vec![notice(&body)], at)).await.unwrap();
    // It shares two of the three large events.
    let mut child = fork(&rig, &store, parent.id(), 4).await.unwrap();
    let at = child.state.updated_at_ms;
    store.append(child.next(vec![notice(&body)], at.max(now - 45 * DAY))).await.unwrap();
    let policy = Policy { keep_days: Some(30), ..Policy::default() };
    let due = store.due(policy, now).await.unwrap();
    assert_eq!(ids(&due), [parent.id(), child.id()]);
    let bytes: Vec<u64> = due.leaving.iter().map(|it| it.bytes).collect();
    assert!((40_000..42_000).contains(&bytes[0]), "the third alone: {bytes:?}");
    assert!((80_000 + 90_000..175_000).contains(&bytes[1]), "what was shared, and the body: {bytes:?}");
    store.delete_thread(parent.id()).await.unwrap();
    assert!(store.blobs().holds(&body) && store.check().await.unwrap().is_whole());
    let due = store.due(policy, now).await.unwrap();
    assert_eq!(due.leaving.iter().map(|it| it.bytes).collect::<Vec<_>>(), bytes[1..], "as it was foreseen");
    let before = store.space().await.unwrap().projects.len();
    store.delete_thread(child.id()).await.unwrap();
    assert_eq!((before, store.space().await.unwrap().projects.len()), (1, 0));
    assert!(!store.blobs().holds(&body));
}

#[tokio::test]
async fn bodies_that_take_too_much_let_their_oldest_threads_go() {
    let rig = Rig::new();
    let store = rig.open();
    let now = rig.clock.now().millis();
    let mut threads = Vec::new();
    for days in [20, 15, 10, 5] {
        let mut thread = used(&rig, &store, project(&rig), days, 10).await;
        if days != 15 {
            let at = thread.state.updated_at_ms;
            let body = store.blobs().put(format!("{days}{}", "z".repeat(100_000)).as_bytes(), "x").unwrap();
            store.append(thread.next(vec![notice(&body.hash)], at)).await.unwrap();
        }
        threads.push(thread.id());
    }
    let at_most = |bytes| Policy { body_bytes: Some(bytes), ..Policy::default() };
    assert_eq!(ids(&store.due(at_most(400_000), now).await.unwrap()), []);
    assert_eq!(ids(&store.due(at_most(150_000), now).await.unwrap()), [threads[0], threads[2]], "one has none");
}

#[tokio::test]
async fn a_plan_is_bounded_and_a_policy_waits_anew_when_it_is_changed() {
    let rig = Rig::new();
    let store = rig.open();
    let of = project(&rig);
    for number in 0..LEAVING_MAX + 3 {
        used(&rig, &store, of, 60 + number as i64 % 7, 10).await;
    }
    let policy = Policy { keep_days: Some(30), project_bytes: Some(1), body_bytes: None };
    let due = store.due(policy, rig.clock.now().millis()).await.unwrap();
    assert_eq!((due.leaving.len(), due.more), (LEAVING_MAX, true));
    let mut days: Vec<i64> = due.leaving.iter().map(|it| it.updated_at_ms).collect();
    assert!(days.is_sorted());
    days.dedup();
    assert_eq!(days.len(), 7);

    assert_eq!(store.policy_noted(policy).await.unwrap(), None);
    let since = store.note_policy(policy).await.unwrap();
    rig.clock.advance_millis(DAY as u64 as _);
    assert_eq!(store.note_policy(policy).await.unwrap(), since);
    assert_eq!(store.policy_noted(policy).await.unwrap(), Some(since));
    let slip = Policy { keep_days: Some(3), ..policy };
    assert_eq!(store.policy_noted(slip).await.unwrap(), None);
    assert_eq!(store.note_policy(slip).await.unwrap(), since + DAY);
    assert_eq!(store.note_policy(policy).await.unwrap(), since + DAY, "the one before waits anew too");
    store.forget_policy().await.unwrap();
    assert_eq!(store.policy_noted(policy).await.unwrap(), None);
    // What is brought back is not deleted again at once.
    store.note_policy(policy).await.unwrap();
    let copy = rig.root.join("copy.tar");
    store.back_up(copy.clone()).await.unwrap();
    let other = Rig::new();
    mcode_store::restore(&copy, &other.database(), &other.blobs(), "now").unwrap();
    assert_eq!(other.open().policy_noted(policy).await.unwrap(), None);
    store.forget_policy().await.unwrap();
    // A clock that was wrong does not have it act at once, nor never.
    rig.sql(&format!("INSERT INTO retention VALUES (1, '{}', {})", policy.text(), since + 999 * DAY));
    assert_eq!(store.note_policy(policy).await.unwrap(), since + DAY);
}
