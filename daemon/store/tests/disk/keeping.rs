//! What is appended is there, once, in order, and after the next start too.

use mcode_events::EventBody;
use mcode_events::event::NewEvent;
use mcode_ids::Seq;
use mcode_store::{AppendError, INLINE_PAYLOAD_BYTES_MAX, REQUEST_ID_KEPT_MS, StoreError, ThreadRow};
use rusqlite::Connection;

use crate::rig::{Rig, notice, request, request_id, started, words};

#[tokio::test]
async fn what_was_appended_is_there_after_a_start() {
    let rig = Rig::new();
    let mut thread = rig.thread();
    {
        let store = rig.open();
        assert_eq!(thread.say(&store, "one").await.unwrap(), Seq::new(2));
        assert_eq!(thread.say(&store, "two").await.unwrap(), Seq::new(3));
    }
    let store = rig.open();
    let loaded = store.load(thread.id()).await.unwrap().unwrap();
    assert_eq!((loaded.damage, &loaded.state), (None, &thread.state));
    assert_eq!(words(&store, thread.id()).await, ["one", "two"]);
    assert_eq!(store.thread(thread.id()).await.unwrap(), ThreadRow::of(&thread.state));
    assert_eq!(thread.say(&store, "three").await.unwrap(), Seq::new(4));
    let after = store.read(thread.id(), Seq::new(3), 10, 1 << 20).await.unwrap();
    assert_eq!(after.iter().map(|event| event.seq).collect::<Vec<_>>(), [Seq::new(4)]);
    assert!(store.load(rig.thread().id()).await.unwrap().is_none(), "an unknown thread is none");
}

#[tokio::test]
async fn a_commit_that_was_acknowledged_is_in_the_file_at_once() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    thread.say(&store, "safe").await.unwrap();
    // As a process sees it that starts after this one was killed.
    let other = Connection::open(rig.database()).unwrap();
    let count: i64 = other.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    let level: i64 = other.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    assert_eq!(level, 2, "the default of a connection is FULL too");
    let mode: String = other.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn an_old_state_is_refused_and_nothing_of_it_is_kept() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    thread.say(&store, "one").await.unwrap();
    let mut late = thread.next(vec![notice("late")], 5);
    late.expected = Seq::new(1);
    late.request = request("req-late", "f", "r");
    let error = store.append(late).await.unwrap_err();
    let AppendError::Conflict { thread_id, expected, actual } = error else { panic!("{error:?}") };
    assert_eq!((thread_id, expected, actual), (thread.id(), Seq::new(1), Seq::new(2)));
    assert_eq!(words(&store, thread.id()).await, ["one"]);
    assert_eq!(store.response_to(request_id("req-late")).await.unwrap(), None);
}

#[tokio::test]
async fn appends_that_wait_together_are_all_kept_and_a_bad_one_spoils_no_other() {
    let rig = Rig::new();
    let store = rig.open();
    let mut threads: Vec<_> = (0..100).map(|_| rig.thread()).collect();
    let mut waiting = Vec::new();
    for (number, thread) in threads.iter_mut().enumerate() {
        let mut append = thread.next(vec![notice(&format!("hello {number}"))], 5);
        if number % 10 == 3 {
            append.expected = Seq::new(40);
        }
        waiting.push(store.append(append));
    }
    let results = futures_join(waiting).await;
    for (number, (result, thread)) in results.into_iter().zip(&threads).enumerate() {
        if number % 10 == 3 {
            assert!(matches!(result, Err(AppendError::Conflict { .. })), "{number}: {result:?}");
            assert!(store.load(thread.id()).await.unwrap().is_none());
        } else {
            assert_eq!(result.unwrap(), Seq::new(2));
            assert_eq!(words(&store, thread.id()).await, [format!("hello {number}")]);
        }
    }
}

async fn futures_join<T: Send + 'static>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut results = Vec::new();
    // All are polled once before the first is waited for, so that they are in the queue together.
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results.extend(done.into_iter().flatten());
    results
}

#[tokio::test]
async fn a_payload_over_the_limit_goes_to_a_blob_and_comes_back() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let frame = EventBody::Notice { level: "info".into(), text: String::new() }.encode().unwrap().len();
    let (fits, spills) = (INLINE_PAYLOAD_BYTES_MAX - frame, INLINE_PAYLOAD_BYTES_MAX - frame + 1);
    thread.say(&store, &"a".repeat(fits)).await.unwrap();
    assert_eq!(blobs(&rig), 0, "what just fits stays in the log");
    thread.say(&store, &"b".repeat(spills)).await.unwrap();
    assert_eq!(blobs(&rig), 1);
    thread.say(&store, &"b".repeat(spills)).await.unwrap();
    assert_eq!(blobs(&rig), 1, "the same content is kept once");
    thread.say(&store, &"c".repeat(3 << 20)).await.unwrap();
    drop(store);
    let store = rig.open();
    let lengths: Vec<usize> = words(&store, thread.id()).await.iter().map(String::len).collect();
    assert_eq!(lengths, [fits, spills, spills, 3 << 20]);
}

fn blobs(rig: &Rig) -> usize {
    let shelves = std::fs::read_dir(rig.blobs()).unwrap();
    shelves.map(|shelf| std::fs::read_dir(shelf.unwrap().path()).unwrap().count()).sum()
}

#[tokio::test]
async fn a_read_is_bounded_in_events_and_bytes_but_never_empty() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for _ in 0..20 {
        thread.say(&store, &"x".repeat(1000)).await.unwrap();
    }
    assert_eq!(store.read(thread.id(), Seq::ZERO, 5, usize::MAX / 2).await.unwrap().len(), 5);
    assert_eq!(store.read(thread.id(), Seq::new(1), 100, 1).await.unwrap().len(), 1);
    let some = store.read(thread.id(), Seq::new(1), 100, 5000).await.unwrap().len();
    assert!((4..=6).contains(&some), "{some} events of about 1 KB are about 5 KB");
    assert!(store.read(thread.id(), Seq::new(21), 100, 5000).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_is_kept_with_its_events_for_a_day() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let mut append = thread.next(vec![notice("one")], 5);
    append.request = request("req-1", "hash", "thr_1 1");
    store.append(append).await.unwrap();
    let kept = || store.response_to(request_id("req-1"));
    assert_eq!(kept().await.unwrap(), request("req-1", "hash", "thr_1 1").map(|(_, response)| response));
    rig.clock.advance_millis(REQUEST_ID_KEPT_MS);
    assert!(kept().await.unwrap().is_some(), "to the last millisecond");
    rig.clock.advance_millis(1);
    assert_eq!(kept().await.unwrap(), None, "and no longer");
    let mut append = thread.next(vec![notice("two")], 6);
    append.request = request("req-2", "hash", "thr_1 2");
    store.append(append).await.unwrap();
    let rows = Connection::open(rig.database()).unwrap();
    let left: i64 = rows.query_row("SELECT count(*) FROM requests", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "old answers are swept away by later ones");
}

#[tokio::test]
async fn a_deleted_thread_leaves_nothing_but_what_it_cost() {
    let rig = Rig::new();
    let store = rig.open();
    let (mut gone, mut stays) = (rig.thread(), rig.thread());
    let run_id = rig.run_id();
    let usage = mcode_events::Usage { cost_usd: 0.25, ..Default::default() };
    let paid = NewEvent::of_run(
        run_id,
        None,
        EventBody::UsageRecorded {
            model: "fake/one".into(),
            usage,
            purpose: Default::default(),
            priced: true,
            goal_id: None,
        },
    );
    let append = gone.next(vec![started(run_id), paid], 5);
    store.append(append).await.unwrap();
    stays.say(&store, "here").await.unwrap();
    assert_eq!(store.unfinished_threads().await.unwrap(), [gone.id()]);
    store.delete_thread(gone.id()).await.unwrap();
    assert!(store.load(gone.id()).await.unwrap().is_none());
    assert!(store.read(gone.id(), Seq::ZERO, 10, 1000).await.unwrap().is_empty());
    assert!(store.run(run_id).await.unwrap().is_none());
    assert!(store.unfinished_threads().await.unwrap().is_empty());
    assert_eq!(words(&store, stays.id()).await, ["here"]);
    assert_eq!(store.spent_since(0).await.unwrap(), 250_000_000, "the daily limit still counts it");
    store.delete_thread(gone.id()).await.unwrap();
}

#[tokio::test]
async fn a_deleted_thread_takes_the_bodies_that_only_it_had() {
    let rig = Rig::new();
    let store = rig.open();
    let (mut gone, mut stays) = (rig.thread(), rig.thread());
    let blobs = store.blobs();
    let put = |text: &str| blobs.put(text.as_bytes(), "text/plain").unwrap().hash;
    let (own, shared, unnamed) = (put("only here"), put("in both"), put("named by nobody yet"));
    assert_eq!(put("in both"), shared, "the other thread has it too");
    let big = "x".repeat(mcode_store::INLINE_PAYLOAD_BYTES_MAX + 1);
    gone.say(&store, &format!("blob:{own} blob:{shared} {big}")).await.unwrap();
    gone.say(&store, &format!("blob:{unnamed}")).await.unwrap();
    // About to be named by a thread whose event is not in the log yet.
    assert_eq!(put("named by nobody yet"), unnamed);
    stays.say(&store, &format!("blob:{shared} {big}!")).await.unwrap();
    store.delete_thread(gone.id()).await.unwrap();
    assert!(blobs.get(&own).is_err(), "nobody names it any more");
    assert!(blobs.get(&shared).is_ok() && blobs.get(&unnamed).is_ok());
    assert_eq!(words(&store, stays.id()).await, [format!("blob:{shared} {big}!")]);
}

#[tokio::test]
async fn a_newer_database_is_left_alone() {
    let rig = Rig::new();
    drop(rig.open());
    Connection::open(rig.database()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let clock = std::sync::Arc::clone(&rig.clock) as std::sync::Arc<dyn mcode_env::Clock>;
    let error = mcode_store::Store::open(rig.database(), rig.blobs(), clock).unwrap_err();
    let StoreError::TooNew { path, found, known } = &error else { panic!("{error:?}") };
    assert_eq!((path, *found), (&rig.database(), 99));
    assert!(*known < 99);
    let text = error.to_string();
    assert!(text.contains("newer mcode") && text.contains("mcode.db"), "{text}");
    let version: i64 =
        Connection::open(rig.database()).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 99);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_as_it_is() {
    let rig = Rig::new();
    // Nothing may be open there before: the writer of a store that was dropped still ends in its own time.
    std::fs::create_dir_all(rig.database().parent().unwrap()).unwrap();
    let garbage = b"this is not a database, it is a letter to a friend ".repeat(200);
    std::fs::write(rig.database(), &garbage).unwrap();
    let clock = std::sync::Arc::clone(&rig.clock) as std::sync::Arc<dyn mcode_env::Clock>;
    let error = mcode_store::Store::open(rig.database(), rig.blobs(), clock).unwrap_err();
    assert!(matches!(error, StoreError::Database(_)), "{error:?}");
    assert_eq!(std::fs::read(rig.database()).unwrap(), garbage);
}

#[tokio::test]
async fn a_batch_is_bounded_by_what_its_events_hold_also_beside_the_log() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for _ in 0..4 {
        thread.say(&store, &"x".repeat(2 * INLINE_PAYLOAD_BYTES_MAX)).await.unwrap();
    }
    let batch = store.read(thread.id(), Seq::new(1), 100, 3 * INLINE_PAYLOAD_BYTES_MAX).await.unwrap();
    assert_eq!(batch.iter().map(|event| event.seq.get()).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(store.load(thread.id()).await.unwrap().unwrap().state, thread.state);
}

/// Writing on into a file that nobody will ever find again would be to lose it without a word.
#[cfg(unix)]
#[tokio::test]
async fn a_database_that_was_removed_or_replaced_takes_nothing_more() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    thread.say(&store, "one").await.unwrap();
    let aside = rig.database().with_extension("aside");
    std::fs::rename(rig.database(), &aside).unwrap();
    for replaced in [false, true] {
        if replaced {
            std::fs::write(rig.database(), "another").unwrap();
        }
        let error = rig.thread().say(&store, "lost").await.unwrap_err();
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        assert!(error.to_string().contains(&*rig.database().to_string_lossy()), "{error}");
    }
    // Put back, it goes on.
    std::fs::rename(&aside, rig.database()).unwrap();
    thread.say(&store, "two").await.unwrap();
    assert_eq!(words(&store, thread.id()).await, ["one", "two"]);
}
