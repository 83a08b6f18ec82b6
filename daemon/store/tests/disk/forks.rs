//! Threads that share their beginnings.

use mcode_events::{Event, EventBody, ForkPoint, NewEvent, ThreadState};
use mcode_ids::{Seq, ThreadId};
use mcode_store::{AppendError, ReadError, SearchFilter, Store, ThreadFilter, TreeFilter};

use crate::rig::{Rig, Thread, notice};

/// A fork as its actor makes it.
pub async fn fork(rig: &Rig, store: &Store, parent: ThreadId, at: u64) -> Result<Thread, AppendError> {
    let point = ForkPoint { parent_id: parent, seq: Seq::new(at) };
    let state = store.load_to(parent, Some(point.seq)).await.unwrap().unwrap().state;
    let mut thread = rig.thread_of(state);
    let forked = EventBody::ThreadForked { parent_id: parent, parent_seq: point.seq, title: "a fork".into() };
    let append = thread.next(vec![NewEvent::of_thread(forked)], 50);
    store.append(append).await?;
    Ok(thread)
}

fn texts(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| match &event.body {
        EventBody::Notice { text, .. } => Some(text.clone()),
        EventBody::ThreadForked { .. } => Some("forked".to_owned()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

async fn read(store: &Store, thread: ThreadId, after: u64, max: u32) -> Vec<Event> {
    let events = store.read(thread, Seq::new(after), max, usize::MAX).await.unwrap();
    for (event, seq) in events.iter().zip(after + 1..) {
        assert_eq!((event.thread_id, event.seq), (thread, Seq::new(seq)));
    }
    events
}

async fn rows(rig: &Rig) -> i64 {
    let connection = rusqlite::Connection::open(rig.database()).unwrap();
    connection.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_fork_shares_its_beginning_and_goes_its_own_way() {
    let rig = Rig::new();
    let store = rig.open();
    let mut parent = rig.thread();
    for text in ["a", "b", "c"] {
        parent.say(&store, text).await.unwrap();
    }
    let mut child = fork(&rig, &store, parent.id(), 3).await.unwrap();
    parent.say(&store, "d").await.unwrap();
    child.say(&store, "x").await.unwrap();
    let mut grandchild = fork(&rig, &store, child.id(), 5).await.unwrap();
    grandchild.say(&store, "y").await.unwrap();
    // Forked before where its own parent was forked.
    let early = fork(&rig, &store, grandchild.id(), 2).await.unwrap();
    assert_eq!(rows(&rig).await, 5 + 2 + 2 + 1, "nothing is copied");
    for (thread, expected) in [
        (&parent, vec!["a", "b", "c", "d"]),
        (&child, vec!["a", "b", "forked", "x"]),
        (&grandchild, vec!["a", "b", "forked", "x", "forked", "y"]),
        (&early, vec!["a", "forked"]),
    ] {
        let all = read(&store, thread.id(), 0, 100).await;
        assert_eq!(texts(&all), expected);
        // In pieces of any size, from anywhere.
        for after in 0..all.len() {
            for max in 1..=all.len() {
                let part = read(&store, thread.id(), after as u64, u32::try_from(max).unwrap()).await;
                assert_eq!(part, all[after..(after + max).min(all.len())], "{max} after {after}");
            }
        }
        let loaded = store.load(thread.id()).await.unwrap().unwrap();
        assert_eq!((loaded.state, loaded.damage), (thread.state.clone(), None));
        let row = store.thread(thread.id()).await.unwrap().unwrap();
        assert_eq!(row.forked, thread.state.forked);
    }
    let of = |parent| ThreadFilter { parent: Some(parent), page_size: 10, ..ThreadFilter::default() };
    let forks = store.threads(of(parent.id())).await.unwrap().rows;
    assert_eq!(forks.iter().map(|row| row.thread_id).collect::<Vec<_>>(), [child.id()]);
}

#[tokio::test]
async fn a_fork_of_what_is_not_there_is_refused() {
    let rig = Rig::new();
    let store = rig.open();
    let mut parent = rig.thread();
    parent.say(&store, "a").await.unwrap();
    let state = parent.state.clone();
    for (of, at) in [(parent.id(), 3), (rig.thread().id(), 2)] {
        let mut thread = rig.thread_of(ThreadState { last_seq: Seq::new(at), ..state.clone() });
        let forked = EventBody::ThreadForked { parent_id: of, parent_seq: Seq::new(at), title: "x".into() };
        let append = thread.next(vec![NewEvent::of_thread(forked)], 50);
        let error = store.append(append).await.unwrap_err();
        assert!(matches!(error, AppendError::NoParent(parent) if parent == of), "{error:?}");
        assert_eq!(store.thread(thread.id()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_a_fork_needs_outlives_its_parent_and_goes_with_the_last_fork() {
    let rig = Rig::new();
    let store = rig.open();
    let mut parent = rig.thread();
    let body = |text: &str| store.blobs().put(text.as_bytes(), "text/plain").unwrap().hash;
    let (shared, own, of_child) = (body("shared"), body("own"), body("of the child"));
    parent.say(&store, &format!("blob {shared}")).await.unwrap();
    parent.say(&store, "b").await.unwrap();
    let mut child = fork(&rig, &store, parent.id(), 3).await.unwrap();
    let second = fork(&rig, &store, child.id(), 2).await.unwrap();
    parent.say(&store, &format!("blob {own}")).await.unwrap();
    child.say(&store, &format!("blob {of_child}")).await.unwrap();
    let before = (read(&store, child.id(), 0, 100).await, read(&store, second.id(), 0, 100).await);

    store.delete_thread(parent.id()).await.unwrap();
    assert!(store.load(parent.id()).await.unwrap().is_none());
    assert_eq!((read(&store, child.id(), 0, 100).await, read(&store, second.id(), 0, 100).await), before);
    assert!(store.blobs().get(&own).is_err(), "what only the parent named is gone");
    store.blobs().get(&shared).unwrap();

    store.delete_thread(child.id()).await.unwrap();
    assert_eq!(read(&store, second.id(), 0, 100).await, before.1);
    assert!(store.blobs().get(&of_child).is_err());
    assert_eq!(rows(&rig).await, 3, "two shared events, and its own");
    drop(store);
    let store = rig.open();
    assert_eq!(read(&store, second.id(), 0, 100).await, before.1, "also after a restart");
    store.blobs().get(&shared).unwrap();
    store.delete_thread(second.id()).await.unwrap();
    assert_eq!(rows(&rig).await, 0, "nothing is left");
    assert!(store.blobs().get(&shared).is_err());
}

#[tokio::test]
async fn damage_in_a_shared_beginning_is_told_of_each_that_has_it() {
    let rig = Rig::new();
    let store = rig.open();
    let mut parent = rig.thread();
    for text in ["a", "b", "c"] {
        parent.say(&store, text).await.unwrap();
    }
    let child = fork(&rig, &store, parent.id(), 4).await.unwrap();
    let early = fork(&rig, &store, parent.id(), 2).await.unwrap();
    rig.sql(&format!("UPDATE events SET payload = '{{\"role\":\"us' WHERE thread_id = '{}' AND seq = 3", parent.id()));
    for thread in [&parent, &child] {
        let damage = store.load(thread.id()).await.unwrap().unwrap().damage.unwrap();
        assert_eq!((damage.thread_id, damage.seq), (thread.id(), Seq::new(3)));
    }
    assert_eq!(store.load(early.id()).await.unwrap().unwrap().damage, None);
    // Lost rows of a shared beginning are as bad.
    rig.sql(&format!("DELETE FROM events WHERE thread_id = '{}' AND seq >= 3", parent.id()));
    let damage = store.load(child.id()).await.unwrap().unwrap().damage.unwrap();
    assert_eq!(damage.seq, Seq::new(3));
}

#[tokio::test]
async fn what_was_said_before_a_fork_is_found_once_and_in_a_thread_that_is_there() {
    let rig = Rig::new();
    let store = rig.open();
    let mut parent = rig.thread();
    let append = parent.next(vec![crate::search::said("the needle")], 1);
    store.append(append).await.unwrap();
    let mut child = fork(&rig, &store, parent.id(), 2).await.unwrap();
    let append = child.next(vec![crate::search::said("a needle of its own"), notice("x")], 60);
    store.append(append).await.unwrap();
    while store.index_some().await.unwrap() {}
    let find = async |thread_id: Option<ThreadId>| {
        let filter = SearchFilter { query: "needle".into(), thread_id, page_size: 10, ..SearchFilter::default() };
        let found = store.search(filter).await.unwrap();
        let mut hits: Vec<(ThreadId, u64)> = found.hits.iter().map(|hit| (hit.thread_id, hit.seq.get())).collect();
        hits.sort_unstable_by_key(|(_, seq)| *seq);
        hits
    };
    assert_eq!(find(None).await, [(parent.id(), 2), (child.id(), 4)]);
    assert_eq!(find(Some(child.id())).await, [(child.id(), 2), (child.id(), 4)]);
    assert_eq!(find(Some(parent.id())).await, [(parent.id(), 2)]);
    store.delete_thread(parent.id()).await.unwrap();
    assert_eq!(find(None).await, [(child.id(), 2), (child.id(), 4)]);
    store.delete_thread(child.id()).await.unwrap();
    assert_eq!(find(None).await, []);
}

/// All of a tree, in pages of this size: ids with their depth.
async fn tree(store: &Store, filter: &TreeFilter, page_size: u32) -> Vec<(ThreadId, u32)> {
    let (mut all, mut page_token) = (Vec::new(), None);
    loop {
        let page = store.tree(TreeFilter { page_size, page_token, ..filter.clone() }).await.unwrap();
        assert!(page.rows.len() <= page_size as usize && (page.next.is_none() || !page.rows.is_empty()));
        all.extend(page.rows.iter().map(|row| (row.thread.thread_id, row.depth)));
        page_token = page.next;
        if page_token.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn a_tree_shows_each_fork_under_what_it_left() {
    let rig = Rig::new();
    let store = rig.open();
    let mut parent = rig.thread();
    for text in ["a", "b", "c"] {
        parent.say(&store, text).await.unwrap();
    }
    let late = fork(&rig, &store, parent.id(), 4).await.unwrap();
    let early = fork(&rig, &store, parent.id(), 2).await.unwrap();
    let below = fork(&rig, &store, late.id(), 3).await.unwrap();
    let mut other = rig.thread();
    other.say(&store, "x").await.unwrap();
    let whole = vec![(parent.id(), 0), (early.id(), 1), (late.id(), 1), (below.id(), 2)];
    let (mut newest_first, everything) = (whole.clone(), TreeFilter::default());
    newest_first.splice(if other.id() > parent.id() { 0..0 } else { 4..4 }, [(other.id(), 0)]);
    for page_size in 1..=6 {
        assert_eq!(tree(&store, &everything, page_size).await, newest_first, "{page_size}");
        // From anywhere in it.
        for of in [&parent, &late, &early, &below] {
            let filter = TreeFilter { thread_id: Some(of.id()), ..TreeFilter::default() };
            assert_eq!(tree(&store, &filter, page_size).await, whole);
        }
    }
    // What an archived thread was forked into is at the top; asked for by name, all of it is shown.
    let mut archived = store.load(parent.id()).await.unwrap().unwrap().state;
    archived.archived = true;
    let mut thread = rig.thread_of(archived.clone());
    thread.state.thread_id = parent.id();
    store
        .append(thread.next(vec![NewEvent::of_thread(EventBody::ArchivedChanged { archived: true })], 60))
        .await
        .unwrap();
    let shown = tree(&store, &everything, 10).await;
    assert!(shown.contains(&(late.id(), 0)) && !shown.iter().any(|(id, _)| *id == parent.id()), "{shown:?}");
    let with = TreeFilter { include_archived: true, ..TreeFilter::default() };
    assert_eq!(tree(&store, &with, 10).await, newest_first);
    let of_project = TreeFilter { project_id: other.state.project_id, ..with.clone() };
    assert_eq!(tree(&store, &of_project, 10).await, [(other.id(), 0)]);
    let gone = store.tree(TreeFilter { page_token: Some(rig.thread().id().to_string()), page_size: 5, ..with }).await;
    assert!(matches!(gone, Err(ReadError::BadPageToken(_))), "{gone:?}");
}
