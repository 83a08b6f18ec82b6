//! Finding what was said.

use std::sync::LazyLock;

use mcode_env::{IdGen, SeededIds};
use mcode_events::event::EventBody;
use mcode_events::{Message, NewEvent, Part, Role, ToolCallStatus, ToolResult};
use mcode_ids::{ItemId, ThreadId, ToolCallId};
use mcode_store::{Found, ReadError, SearchFilter, Store, TITLE_HITS_MAX, ThreadFilter};

use crate::rig::{Rig, Thread};

/// Ids that are different each time.
static IDS: LazyLock<SeededIds> = LazyLock::new(|| SeededIds::new(99));

pub fn message(role: Role, text: &str) -> NewEvent {
    let message = Message { item_id: ItemId::from_uuid(IDS.next()), role, parts: vec![Part::text(text)], origin: None };
    NewEvent::of_thread(EventBody::MessageFinished { message })
}

/// What the user says.
pub fn said(text: &str) -> NewEvent {
    message(Role::User, text)
}

fn output(text: &str) -> NewEvent {
    let result = ToolResult::text(ToolCallId::from_uuid(IDS.next()), ToolCallStatus::Done, text);
    NewEvent::of_thread(EventBody::ToolCallFinished { name: "shell".into(), result })
}

pub async fn indexed(store: &Store) {
    while store.index_some().await.unwrap() {}
}

pub async fn find(store: &Store, query: &str) -> Found {
    let filter = SearchFilter { query: query.into(), page_size: 50, ..SearchFilter::default() };
    store.search(filter).await.unwrap()
}

async fn thread_with(rig: &Rig, store: &Store, events: Vec<NewEvent>, at_ms: i64) -> Thread {
    let mut thread = rig.thread();
    let append = thread.next(events, at_ms);
    store.append(append).await.unwrap();
    thread
}

#[tokio::test]
async fn a_look_after_searches_and_deletions_finds_the_index_whole() {
    let rig = Rig::new();
    let store = rig.open();
    for round in 0..10 {
        let mut threads = Vec::new();
        for number in 0..4 {
            let text = format!("alpha {number} of {round}");
            threads.push(thread_with(&rig, &store, vec![said(&text)], i64::from(round)).await);
            indexed(&store).await;
            assert!(!find(&store, "alpha").await.hits.is_empty());
        }
        store.delete_thread(threads[0].id()).await.unwrap();
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "round {round}: {check:#?}");
    }
}

#[tokio::test]
async fn messages_and_output_are_found_by_their_words() {
    let rig = Rig::new();
    let store = rig.open();
    let events = vec![
        said("Please mend the Parser in src/parse.rs"),
        message(Role::Assistant, "Die Prüfung schlägt fehl: naïve Größen"),
        output("error[E0308]: mismatched types\nexit code 101"),
        message(Role::Assistant, "数据库迁移失败"),
        crate::rig::notice("a notice about the parser is not said by anybody"),
    ];
    let thread = thread_with(&rig, &store, events, 10).await;
    assert_eq!(find(&store, "parser").await.behind, 1, "it is told that not all was looked through");
    indexed(&store).await;
    for (query, seq) in [
        ("parser", 2),
        ("PARSER mend", 2),
        ("parse.rs", 2),
        ("pars", 2),
        ("naive grossen", 3),
        ("prufung", 3),
        ("E0308", 4),
        ("\"exit code\"", 4),
        ("mismatched exit", 4),
        ("迁移", 5),
    ] {
        let found = find(&store, query).await;
        // A sharp s is no double s to the index.
        let expected = if query == "naive grossen" { vec![] } else { vec![(thread.id(), seq)] };
        let hits: Vec<(ThreadId, u64)> = found.hits.iter().map(|hit| (hit.thread_id, hit.seq.get())).collect();
        assert_eq!((hits, found.behind), (expected, 0), "{query}");
    }
    for query in ["elsewhere", "\"code exit\"", "parser elsewhere", "移迁", "\"", "*", "AND", "NEAR(", "-", ""] {
        assert_eq!(find(&store, query).await.hits, [], "{query}");
    }
    let found = find(&store, "exit").await;
    let snippet = &found.hits[0].snippet;
    let (start, end) = snippet.matches[0];
    assert_eq!(&snippet.text[start as usize..end as usize], "exit");
    assert!(!snippet.text.contains('\n'), "{snippet:?}");
    assert_eq!((found.hits[0].role.as_str(), found.hits[0].at_ms), ("tool", 10));
}

#[tokio::test]
async fn searches_keep_to_a_project_and_leave_out_what_was_put_away() {
    let rig = Rig::new();
    let store = rig.open();
    let first = thread_with(&rig, &store, vec![said("needle one")], 10).await;
    let away = NewEvent::of_thread(EventBody::ArchivedChanged { archived: true });
    let second = thread_with(&rig, &store, vec![said("needle two"), away], 11).await;
    indexed(&store).await;
    let find = async |project_id, include_archived, thread_id| {
        let query = "needle".to_owned();
        let filter =
            SearchFilter { query, project_id, include_archived, thread_id, page_size: 10, ..SearchFilter::default() };
        let mut hits: Vec<ThreadId> =
            store.search(filter).await.unwrap().hits.into_iter().map(|hit| hit.thread_id).collect();
        hits.sort_unstable();
        hits
    };
    assert_eq!(find(None, false, None).await, [first.id()]);
    assert_eq!(find(None, true, None).await, [first.id(), second.id()]);
    assert_eq!(find(second.state.project_id, true, None).await, [second.id()]);
    assert_eq!(find(first.state.project_id, true, None).await, [first.id()]);
    assert_eq!(find(None, false, Some(second.id())).await, [second.id()], "who names a thread means it");
}

async fn titled(rig: &Rig, store: &Store, title: &str, tags: &[&str], at_ms: i64) -> Thread {
    let title = NewEvent::of_thread(EventBody::TitleChanged { title: title.into() });
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    thread_with(rig, store, vec![title, NewEvent::of_thread(EventBody::TagsChanged { tags })], at_ms).await
}

#[tokio::test]
async fn titles_and_tags_are_found_before_what_was_said() {
    let rig = Rig::new();
    let store = rig.open();
    let said = thread_with(&rig, &store, vec![said("the parser is slow")], 10).await;
    let about = titled(&rig, &store, "A parser for dates", &[], 20).await;
    let very = titled(&rig, &store, "Parser", &[], 5).await;
    let tagged = titled(&rig, &store, "Something else", &["parsers"], 30).await;
    indexed(&store).await;
    let found = find(&store, "parser").await;
    let places: Vec<_> = found.hits.iter().map(|hit| (hit.thread_id, hit.role.as_str(), hit.seq.get())).collect();
    let titles = |id| (id, "title", 0);
    assert_eq!((places[0], places[3]), (titles(very.id()), (said.id(), "user", 2)), "{places:?}");
    assert!(places[1..3].contains(&titles(about.id())) && places[1..3].contains(&titles(tagged.id())), "{places:?}");
    let scores: Vec<f64> = found.hits.iter().map(|hit| hit.score).collect();
    assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]), "{scores:?}");
    let hit = found.hits.iter().find(|hit| hit.thread_id == tagged.id()).unwrap();
    let marks = hit.snippet.matches.iter().map(|(start, end)| &hit.snippet.text[*start as usize..*end as usize]);
    assert_eq!((hit.snippet.text.as_str(), marks.collect::<Vec<_>>()), ("Something else #parsers", vec!["parser"]));
    // With letters left out.
    for query in ["prsr dates", "parser dats"] {
        let hits = find(&store, query).await.hits;
        assert_eq!(hits.iter().map(|hit| hit.thread_id).collect::<Vec<_>>(), [about.id()], "{query}");
    }
    // All of them in pages of any size, each once.
    for page_size in 1..=5 {
        let (mut seen, mut offset) = (Vec::new(), 0);
        loop {
            let filter = SearchFilter { query: "parser".into(), page_size, offset, ..SearchFilter::default() };
            let page = store.search(filter).await.unwrap();
            seen.extend(page.hits.iter().map(|hit| (hit.thread_id, hit.seq.get())));
            if !page.more {
                break;
            }
            offset += page_size;
        }
        assert_eq!(seen, places.iter().map(|(id, _, seq)| (*id, *seq)).collect::<Vec<_>>(), "{page_size}");
    }
    // A list is narrowed to them, by the same words.
    let list = async |filter: ThreadFilter| {
        let (mut seen, mut page_token) = (Vec::new(), None);
        loop {
            let page = store.threads(ThreadFilter { page_size: 2, page_token, ..filter.clone() }).await.unwrap();
            seen.extend(page.rows.iter().map(|row| row.thread_id));
            page_token = page.next;
            if page_token.is_none() {
                return seen;
            }
        }
    };
    let query = || ThreadFilter { query: "parser".into(), ..ThreadFilter::default() };
    assert_eq!(list(query()).await, places[..3].iter().map(|(id, ..)| *id).collect::<Vec<_>>());
    assert_eq!(list(ThreadFilter { tag: Some("parsers".into()), ..query() }).await, [tagged.id()]);
    assert_eq!(list(ThreadFilter { project_id: about.state.project_id, ..query() }).await, [about.id()]);
    let bad = ThreadFilter { page_token: Some("x".into()), page_size: 2, ..query() };
    assert!(matches!(store.threads(bad).await, Err(ReadError::BadPageToken(_))));
}

#[tokio::test]
async fn no_more_titles_are_found_than_anybody_looks_through() {
    let rig = Rig::new();
    let store = rig.open();
    for at in 0..=TITLE_HITS_MAX {
        titled(&rig, &store, &format!("parser {at}"), &[], i64::try_from(at).unwrap()).await;
    }
    let filter = ThreadFilter { query: "parser".into(), page_size: 1000, ..ThreadFilter::default() };
    let page = store.threads(filter).await.unwrap();
    assert_eq!((page.rows.len(), page.next), (TITLE_HITS_MAX, None));
}

#[tokio::test]
async fn hits_come_in_pages_without_gaps() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for at in 0..25 {
        let append = thread.next(vec![said(&format!("needle {at}"))], at);
        store.append(append).await.unwrap();
    }
    indexed(&store).await;
    let mut seen = Vec::new();
    let mut offset = 0;
    loop {
        let filter = SearchFilter { query: "needle".into(), page_size: 10, offset, ..SearchFilter::default() };
        let found = store.search(filter).await.unwrap();
        seen.extend(found.hits.iter().map(|hit| hit.seq.get()));
        if !found.more {
            break;
        }
        assert_eq!(found.hits.len(), 10);
        offset += 10;
    }
    seen.sort_unstable();
    assert_eq!(seen, (2..27).collect::<Vec<u64>>());
}

#[tokio::test]
async fn the_index_goes_on_where_it_was_and_forgets_what_was_deleted() {
    let rig = Rig::new();
    let store = rig.open();
    let long = "filler ".repeat(20_000);
    let mut thread = rig.thread();
    for at in 0..40 {
        let append = thread.next(vec![output(&format!("{long} secretword{at} {at}"))], at);
        store.append(append).await.unwrap();
    }
    assert!(store.index_some().await.unwrap(), "one part does not hold all of it");
    drop(store);
    let store = rig.open();
    indexed(&store).await;
    for at in [0, 20, 39] {
        assert_eq!(find(&store, &format!("secretword{at}")).await.hits.len(), 1, "{at}");
    }
    let held = |word: &str| {
        let bytes = std::fs::read(rig.database()).unwrap();
        bytes.windows(word.len()).any(|window| window == word.as_bytes())
    };
    store.delete_thread(thread.id()).await.unwrap();
    assert_eq!(find(&store, "secretword20").await.hits, []);
    drop(store);
    let connection = rusqlite::Connection::open(rig.database()).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    assert!(!held("secretword20"), "what was deleted can not be read in the file any more");
}

#[tokio::test]
async fn a_row_that_does_not_read_holds_up_nothing() {
    let rig = Rig::new();
    let store = rig.open();
    let thread =
        thread_with(&rig, &store, vec![said("first needle"), said("second needle"), said("third needle")], 1).await;
    rig.sql(&format!("UPDATE events SET payload = X'ff', at = 'x' WHERE thread_id = '{}' AND seq = 3", thread.id()));
    let other = thread_with(&rig, &store, vec![said("needle elsewhere")], 2).await;
    indexed(&store).await;
    let found = find(&store, "needle").await;
    let mut hits: Vec<(ThreadId, u64)> = found.hits.iter().map(|hit| (hit.thread_id, hit.seq.get())).collect();
    hits.sort_unstable();
    assert_eq!(hits, [(thread.id(), 2), (thread.id(), 4), (other.id(), 2)]);
}

#[tokio::test]
async fn only_the_beginning_of_a_long_output_is_looked_through() {
    let rig = Rig::new();
    let store = rig.open();
    let text = format!("firstword {} lastword", "x ".repeat(mcode_store::SEARCHED_TEXT_MAX / 2));
    thread_with(&rig, &store, vec![output(&text)], 1).await;
    indexed(&store).await;
    assert_eq!(find(&store, "firstword").await.hits.len(), 1);
    assert_eq!(find(&store, "lastword").await.hits.len(), 0);
}

#[tokio::test]
async fn ephemeral_threads_are_not_found() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let mut append = thread.next(vec![said("needle")], 1);
    append.row.ephemeral = true;
    store.append(append).await.unwrap();
    indexed(&store).await;
    assert_eq!(find(&store, "needle").await.hits, []);
}
