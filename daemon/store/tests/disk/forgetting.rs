//! Deleting a thread: at once for whoever lists, a little at a time on the disk, and to its end whatever happens.

use std::time::{Duration, Instant};

use mcode_store::Store;
use rusqlite::Connection;

use crate::forks::fork;
use crate::rig::{Rig, Thread, notice, words};
use crate::search::{find, indexed, said};

fn count(rig: &Rig, sql: &str) -> i64 {
    Connection::open(rig.database()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A thread of so many events, each of about this many bytes; every tenth names a body of its own.
async fn long(rig: &Rig, store: &Store, events: usize, bytes: usize) -> Thread {
    let mut thread = rig.thread();
    let mut number = 0;
    while number < events {
        let some: Vec<_> = (number..events.min(number + 500))
            .map(|number| match number % 10 {
                0 => {
                    let body = format!("body {number} of {}", thread.id());
                    notice(&store.blobs().put(body.as_bytes(), "x").unwrap().hash)
                }
                _ => notice(&format!("{number} {}", "x".repeat(bytes))),
            })
            .collect();
        number += some.len();
        let append = thread.next(some, 1);
        store.append(append).await.unwrap();
    }
    thread
}

fn bodies(rig: &Rig) -> usize {
    let shelves = std::fs::read_dir(rig.blobs()).unwrap().map(|shelf| shelf.unwrap().path());
    shelves.map(|shelf| std::fs::read_dir(shelf).unwrap().count()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_while_a_long_thread_is_deleted() {
    let rig = Rig::new();
    let store = rig.open();
    let thread = long(&rig, &store, 8_000, 4_000).await;
    let mut other = rig.thread();
    other.say(&store, "before").await.unwrap();
    let deleting = {
        let (store, thread_id) = (store.clone(), thread.id());
        tokio::spawn(async move { store.delete_thread(thread_id).await })
    };
    // In no list at once, long before the end.
    while store.thread(thread.id()).await.unwrap().is_some() {}
    assert!(!deleting.is_finished());
    let (mut said, mut longest) = (0, Duration::ZERO);
    while !deleting.is_finished() {
        let begun = Instant::now();
        other.say(&store, &format!("meanwhile {said}")).await.unwrap();
        longest = longest.max(begun.elapsed());
        said += 1;
    }
    deleting.await.unwrap().unwrap();
    // Each step deletes 200 events at most: 40 steps, and an append between any two.
    assert!(said >= 20, "only {said} appends, the longest {longest:?}");
    assert_eq!(count(&rig, "SELECT count(*) FROM events"), said + 2);
    assert_eq!((bodies(&rig), count(&rig, "SELECT count(*) FROM named")), (0, 0));
    assert!(store.check().await.unwrap().is_whole());
}

/// The daemon ends after any step: the thread is gone, all others are whole, and the next start goes on.
#[tokio::test]
async fn a_deletion_that_is_cut_off_goes_on_with_the_next_start() {
    for polls in 0..12 {
        let rig = Rig::new();
        let store = rig.open();
        let parent = long(&rig, &store, 700, 100).await;
        let mut child = fork(&rig, &store, parent.id(), 300).await.unwrap();
        child.say(&store, "of the fork").await.unwrap();
        let alone = long(&rig, &store, 700, 100).await;
        let before = words(&store, child.id()).await;
        for thread in [&parent, &alone] {
            let mut deleting = Box::pin(store.delete_thread(thread.id()));
            for _ in 0..polls {
                // What is not awaited to its end is what a daemon that ends leaves undone.
                if tokio::time::timeout(Duration::from_millis(2), &mut deleting).await.is_ok() {
                    break;
                }
            }
        }
        drop(store);
        let store = rig.open();
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "after {polls} steps: {check:?}");
        store.forget_rest().await.unwrap();
        for thread in [&parent, &alone] {
            store.delete_thread(thread.id()).await.unwrap();
        }
        assert_eq!(words(&store, child.id()).await, before);
        let check = store.check().await.unwrap();
        assert!(check.is_whole() && check.threads == 1, "after {polls} steps: {check:?}");
        let events = format!("SELECT count(*) FROM events WHERE thread_id = '{}'", parent.id());
        assert_eq!(count(&rig, &events), 300, "what the fork shares, and no more");
        assert_eq!(count(&rig, "SELECT count(*) FROM leaving"), 0);
        // The first is the thread's creation: 299 notices, of which every tenth names a body.
        assert_eq!((bodies(&rig), check.bodies), (30, 30));
        store.delete_thread(child.id()).await.unwrap();
        assert_eq!((count(&rig, "SELECT count(*) FROM events"), bodies(&rig)), (0, 0));
    }
}

#[tokio::test]
async fn what_was_said_in_a_deleted_thread_is_in_no_file() {
    let rig = Rig::new();
    let store = rig.open();
    let (mut gone, mut stays) = (rig.thread(), rig.thread());
    for number in 0..300 {
        let text = format!("xylophone{number} and other words {number}");
        store.append(gone.next(vec![said(&text)], 1)).await.unwrap();
        store.append(stays.next(vec![said(&format!("harpsichord{number}"))], 1)).await.unwrap();
        if number % 20 == 0 {
            indexed(&store).await;
        }
    }
    indexed(&store).await;
    assert_eq!(find(&store, "xylophone299").await.hits.len(), 1);
    store.delete_thread(gone.id()).await.unwrap();
    assert_eq!(find(&store, "xylophone299").await.hits.len(), 0);
    assert_eq!(find(&store, "harpsichord299").await.hits.len(), 1);
    assert!(store.check().await.unwrap().is_whole());
    drop(store);
    drop(rig.alone());
    let file = std::fs::read(rig.database()).unwrap();
    assert!(file.windows(11).any(|bytes| bytes == b"harpsichord"));
    assert!(!file.windows(9).any(|bytes| bytes == b"xylophone"), "a word of it is left in the file");
}
