//! Threads that come from elsewhere: seen all at once, or not at all.

use mcode_events::message::{Message, Part, Role};
use mcode_events::run::RunStatus;
use mcode_events::usage::{Usage, UsagePurpose};
use mcode_events::{Blobs, Event, EventBody};
use mcode_ids::{ItemId, ProjectId, RunId, Seq, ThreadId};
use mcode_store::{AppendError, ImportKey, ImportRow, STAGED_EVENTS_MAX, SearchFilter, Staging, Store, ThreadFilter};
use rusqlite::Connection;
use tokio::runtime::Handle;

use crate::rig::{Rig, started};

fn key(state: &str) -> ImportKey {
    ImportKey { key: "import:test:one".into(), state: state.into() }
}

/// A thread with a run that was paid for, and what was said in it, each event a second after the one before.
fn events(rig: &Rig, thread_id: ThreadId, run_id: RunId, words: &[String]) -> Vec<Event> {
    use mcode_env::IdGen;
    let created = EventBody::ThreadCreated {
        project_id: ProjectId::from_uuid(rig.ids.next()),
        cwd: "/work".into(),
        root: "/work".into(),
        title: "from elsewhere".into(),
        model: "fake/one".into(),
        mode: "build".into(),
        ephemeral: false,
    };
    let said = |text: &String| EventBody::MessageFinished {
        message: Message {
            item_id: ItemId::from_uuid(rig.ids.next()),
            role: Role::User,
            parts: vec![Part::text(text)],
            origin: None,
        },
    };
    let paid = EventBody::UsageRecorded {
        model: "fake/one".into(),
        usage: Usage { input_tokens: 5, cost_usd: 0.5, ..Usage::default() },
        purpose: UsagePurpose::Work,
        priced: true,
        goal_id: None,
    };
    let ended =
        EventBody::RunFinished { status: RunStatus::Done, error: None, usage: Usage::default(), structured: None };
    let bodies = [created, started(run_id).body].into_iter().chain(words.iter().map(said)).chain([paid, ended]);
    let event = |(body, seq): (EventBody, u64)| {
        let run_id = (seq > 1).then_some(run_id);
        let at_ms = i64::try_from(seq).unwrap() * 1000;
        Event { thread_id, seq: Seq::new(seq), at_ms, run_id, turn_id: None, body }
    };
    bodies.zip(1..).map(event).collect()
}

fn thread_id(rig: &Rig) -> ThreadId {
    use mcode_env::IdGen;
    ThreadId::from_uuid(rig.ids.next())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce(Handle) -> T + Send + 'static) -> T {
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || work(handle)).await.unwrap()
}

async fn staged(store: &Store, thread_id: ThreadId, events: Vec<Event>) -> Staging {
    let store = store.clone();
    blocking(move |handle| {
        let mut staging = store.stage(thread_id, handle).unwrap();
        events.iter().for_each(|event| staging.add(event).unwrap());
        staging
    })
    .await
}

async fn finish(
    mut staging: Staging,
    key: ImportKey,
    again: bool,
) -> (Staging, Result<Option<ImportRow>, AppendError>) {
    blocking(move |_| {
        let finished = staging.finish(&key, again);
        (staging, finished)
    })
    .await
}

async fn listed(store: &Store) -> Vec<ThreadId> {
    let filter = ThreadFilter { page_size: 10, include_archived: true, ..ThreadFilter::default() };
    store.threads(filter).await.unwrap().rows.iter().map(|row| row.thread_id).collect()
}

fn count(rig: &Rig, table: &str) -> i64 {
    let connection = Connection::open(rig.database()).unwrap();
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_from_elsewhere_is_seen_when_all_of_it_is_there() {
    let rig = Rig::new();
    let store = rig.open();
    let (id, run_id) = (thread_id(&rig), rig.run_id());
    // More than one part.
    let words: Vec<String> = (0..STAGED_EVENTS_MAX + 10).map(|n| format!("word{n} elsewhere")).collect();
    let all = events(&rig, id, run_id, &words);
    let staging = staged(&store, id, all.clone()).await;
    assert!(count(&rig, "events") >= STAGED_EVENTS_MAX as i64, "a part is on the disk");
    assert!(listed(&store).await.is_empty() && store.thread(id).await.unwrap().is_none());
    assert!(store.read(id, Seq::ZERO, 10, 1 << 20).await.unwrap().is_empty());
    assert!(store.load(id).await.unwrap().is_none());
    assert!(store.runs(None, false, 10, None).await.unwrap().rows.is_empty());
    assert!(store.check().await.unwrap().is_whole());

    let (_, finished) = finish(staging, key("a"), false).await;
    assert_eq!(finished.unwrap(), None);
    assert_eq!(listed(&store).await, [id]);
    let read = store.read(id, Seq::ZERO, 10_000, usize::MAX / 2).await.unwrap();
    assert_eq!(read, all, "with its own times");
    let runs = store.runs(Some(id), false, 10, None).await.unwrap().rows;
    assert_eq!(
        (runs.len(), runs[0].record.run_id, runs[0].record.ended_at_ms),
        (1, run_id, all.last().map(|e| e.at_ms))
    );
    // It was paid elsewhere, now and whenever that is made anew.
    assert_eq!(store.spent_since(0).await.unwrap(), 0);
    store.rebuild_usage().await.unwrap();
    assert_eq!((store.spent_since(0).await.unwrap(), count(&rig, "usage")), (0, 0));
    while store.index_some().await.unwrap() {}
    let found = store
        .search(SearchFilter { query: "word7 elsewhere".into(), page_size: 9, ..Default::default() })
        .await
        .unwrap();
    assert_eq!(found.hits.len(), 1);
    let check = store.check().await.unwrap();
    assert!(check.is_whole(), "{check:?}");
    assert!(store.mend(false).await.unwrap().threads.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_not_brought_in_twice_unless_that_is_wanted() {
    let rig = Rig::new();
    let store = rig.open();
    let first = thread_id(&rig);
    let words = vec!["hi".to_owned()];
    let staging = staged(&store, first, events(&rig, first, rig.run_id(), &words)).await;
    finish(staging, key("a"), false).await.1.unwrap();
    let second = thread_id(&rig);
    let staging = staged(&store, second, events(&rig, second, rig.run_id(), &words)).await;
    let (staging, finished) = finish(staging, key("a"), false).await;
    assert_eq!(finished.unwrap().map(|known| known.thread_id), Some(first));
    assert_eq!(listed(&store).await, [first]);
    let (_, finished) = finish(staging, key("a"), true).await;
    assert_eq!((finished.unwrap(), listed(&store).await.len()), (None, 2));
    // In another state it is another thing.
    let third = thread_id(&rig);
    let staging = staged(&store, third, events(&rig, third, rig.run_id(), &words)).await;
    assert_eq!(finish(staging, key("b"), false).await.1.unwrap(), None);
    let known = store.imports_of(key("a").key).await.unwrap();
    assert_eq!(known.iter().map(|row| row.key.state.as_str()).collect::<Vec<_>>(), ["b", "a", "a"]);
    // What was deleted can come again.
    for id in [first, second, third] {
        store.delete_thread(id).await.unwrap();
    }
    assert!(store.imports_of(key("a").key).await.unwrap().is_empty());
    assert_eq!((count(&rig, "events"), count(&rig, "staged")), (0, 0));
}

/// Everything that a staged thread with a body and a long event has left, after what was done with it.
async fn left_after(end: impl FnOnce(&Rig, Store, Staging)) {
    let rig = Rig::new();
    let store = rig.open();
    let mut other = rig.thread();
    let shared = store.blobs().put(b"of both", "text/plain").unwrap().hash;
    other.say(&store, &format!("blob {shared}")).await.unwrap();
    let (id, run_id, inner) = (thread_id(&rig), rig.run_id(), store.clone());
    let own = blocking(move |handle| {
        let staging = inner.stage(id, handle).unwrap();
        staging.bodies().put(b"of both", "text/plain").unwrap();
        let own = staging.bodies().put(b"only here", "text/plain").unwrap().hash;
        (staging, own)
    })
    .await;
    let (mut staging, own) = own;
    let words = [format!("blob {own} and {shared}"), "long ".repeat(20_000)];
    let words: Vec<String> = words.into_iter().chain((0..5000).map(|n| n.to_string())).collect();
    let all = events(&rig, id, run_id, &words);
    let staging = blocking(move |_| {
        all.iter().for_each(|event| staging.add(event).unwrap());
        staging
    })
    .await;
    assert!(count(&rig, "events") > 5000);
    assert!(store.blobs().holds(&own));
    tokio::task::block_in_place(|| end(&rig, store, staging));
    let store = rig.open();
    for left in store.left_staged().await.unwrap() {
        assert_eq!(left, id);
        assert!(store.check().await.unwrap().is_whole(), "nobody minds it meanwhile");
        store.sweep_staged(left).await.unwrap();
    }
    assert_eq!((count(&rig, "events"), count(&rig, "staged"), count(&rig, "named")), (2, 0, 1));
    assert!(!store.blobs().holds(&own), "its body is gone");
    store.blobs().get(&shared).unwrap();
    let check = store.check().await.unwrap();
    assert!(check.is_whole() && check.orphans == 0, "{check:?}");
    assert_eq!(listed(&store).await, [other.id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_that_ended_left_staged_is_gone_after_the_next_start() {
    left_after(|rig, store, staging| {
        drop((store, staging));
        // Its writer has ended when the database can be had alone.
        drop(rig.alone());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_leaves_nothing() {
    left_after(|_, _, staging| staging.give_up().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused() {
    let rig = Rig::new();
    let store = rig.open();
    let (id, run_id) = (thread_id(&rig), rig.run_id());
    let all = events(&rig, id, run_id, &[]);
    let staging = staged(&store, id, all.clone()).await;
    finish(staging, key("a"), false).await.1.unwrap();
    // A run that is another thread's.
    let other = thread_id(&rig);
    let staging = staged(&store, other, events(&rig, other, run_id, &[])).await;
    let (staging, finished) = finish(staging, key("b"), false).await;
    assert!(finished.unwrap_err().to_string().contains("already"));
    // Given up, it takes nothing more.
    let mut late = all[1].clone();
    blocking(move |_| staging.give_up()).await.unwrap();
    // Out of order, not ended, never made.
    let third = thread_id(&rig);
    let inner = store.clone();
    blocking(move |handle| {
        let mut staging = inner.stage(third, handle).unwrap();
        (late.thread_id, late.seq) = (third, Seq::new(2));
        assert!(matches!(staging.add(&late), Err(AppendError::Conflict { .. })));
        late.seq = Seq::new(1);
        staging.add(&late).unwrap();
        assert!(staging.finish(&key("c"), false).is_err());
        staging.give_up().unwrap();
    })
    .await;
    assert_eq!(listed(&store).await, [id]);
}
