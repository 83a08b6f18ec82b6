//! Damage is found, named by its place, and never taken for news.

use mcode_events::Event;
use mcode_ids::Seq;
use mcode_store::Store;

use crate::rig::{Rig, Thread};

/// A thread of six events (seq 1 to 6), its store closed.
async fn six(rig: &Rig) -> Thread {
    let store = rig.open();
    let mut thread = rig.thread();
    for word in ["two", "three", "four", "five", "six"] {
        thread.say(&store, word).await.unwrap();
    }
    thread
}

/// Opens the store, and sees this damage at `seq`: the event has a placeholder, all others are read.
async fn damaged_at(rig: &Rig, thread: &Thread, seq: u64, what: &str) {
    let store = rig.open();
    let loaded = store.load(thread.id()).await.unwrap().unwrap();
    let damage = loaded.damage.unwrap_or_else(|| panic!("no damage was found ({what})"));
    assert_eq!((damage.thread_id, damage.seq), (thread.id(), Seq::new(seq)), "{damage}");
    assert!(damage.what.contains(what), "'{}' should tell of '{what}'", damage.what);
    assert!(damage.to_string().contains(&format!("at event {seq}")), "{damage}");
    let last = thread.state.last_seq;
    assert_eq!(loaded.state.last_seq, last, "what is behind it is folded too");
    let events = read_all(&store, thread).await;
    let seqs: Vec<u64> = events.iter().map(|event| event.seq.get()).collect();
    assert_eq!(seqs, (1..=last.get()).collect::<Vec<_>>(), "every seq is there once");
    let told = events[usize::try_from(seq).unwrap() - 1].body.damage();
    assert_eq!(told.as_deref(), Some(damage.what.as_str()));
    let before = store.load_to(thread.id(), Some(Seq::new(seq - 1))).await.unwrap().unwrap();
    assert_eq!(before.damage, None, "what is before it is good");
}

/// Reads as a subscriber does.
async fn read_all(store: &Store, thread: &Thread) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let after = all.last().map_or(Seq::ZERO, |event| event.seq);
        let events = store.read(thread.id(), after, 2, 1 << 20).await.unwrap();
        if events.is_empty() {
            return all;
        }
        all.extend(events);
    }
}

/// How many of the events cannot be read.
async fn unreadable(store: &Store, thread: &Thread) -> usize {
    read_all(store, thread).await.iter().filter(|event| event.body.damage().is_some()).count()
}

#[tokio::test]
async fn a_changed_byte_of_a_payload() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("UPDATE events SET payload = replace(payload, 'four', 'fouR') WHERE seq = 4");
    damaged_at(&rig, &thread, 4, "checksum").await;
}

#[tokio::test]
async fn a_changed_time_kind_or_number() {
    for change in
        ["at = at + 1", "kind = 'title_changed'", "version = 2", "run_id = 'run_x'", "checksum = checksum + 1"]
    {
        let rig = Rig::new();
        let thread = six(&rig).await;
        rig.sql(&format!("UPDATE events SET {change} WHERE seq = 3"));
        damaged_at(&rig, &thread, 3, "checksum").await;
    }
}

#[tokio::test]
async fn a_missing_row_in_the_middle() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("DELETE FROM events WHERE seq = 3");
    damaged_at(&rig, &thread, 3, "missing").await;
}

#[tokio::test]
async fn a_missing_last_row_is_known_by_the_threads_row() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("DELETE FROM events WHERE seq = 6");
    let store = rig.open();
    let damage = store.load(thread.id()).await.unwrap().unwrap().damage.expect("damage");
    assert_eq!(damage.seq, Seq::new(6));
    assert!(damage.what.contains("reach 6"), "{damage}");
}

#[tokio::test]
async fn a_log_without_its_first_row() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("DELETE FROM events WHERE seq = 1");
    damaged_at(&rig, &thread, 1, "missing").await;
}

#[tokio::test]
async fn two_rows_that_changed_places() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("UPDATE events SET seq = 100 WHERE seq = 3");
    rig.sql("UPDATE events SET seq = 3 WHERE seq = 4");
    rig.sql("UPDATE events SET seq = 4 WHERE seq = 100");
    damaged_at(&rig, &thread, 3, "checksum").await;
}

#[tokio::test]
async fn a_row_of_another_thread() {
    let rig = Rig::new();
    let (thread, other) = (six(&rig).await, six(&rig).await);
    rig.sql(&format!("DELETE FROM events WHERE thread_id = '{}' AND seq = 5", thread.id()));
    rig.sql(&format!("UPDATE events SET thread_id = '{}' WHERE thread_id = '{}' AND seq = 5", thread.id(), other.id()));
    damaged_at(&rig, &thread, 5, "checksum").await;
}

#[tokio::test]
async fn garbage_in_a_column() {
    for change in ["payload = x'ff00fe'", "kind = x'ff'", "version = 'two'", "at = 'noon'", "spilled = 'x'"] {
        let rig = Rig::new();
        let thread = six(&rig).await;
        rig.sql(&format!("UPDATE events SET {change} WHERE seq = 5"));
        damaged_at(&rig, &thread, 5, "does not read").await;
    }
}

#[tokio::test]
async fn a_flag_that_says_the_payload_is_elsewhere() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("UPDATE events SET spilled = 1 WHERE seq = 5");
    damaged_at(&rig, &thread, 5, "not in the store").await;
}

async fn with_blob(rig: &Rig) -> (Thread, std::path::PathBuf) {
    let store = rig.open();
    let mut thread = rig.thread();
    thread.say(&store, &"long ".repeat(20_000)).await.unwrap();
    thread.say(&store, "after").await.unwrap();
    let shelf = std::fs::read_dir(rig.blobs()).unwrap().next().unwrap().unwrap().path();
    (thread, std::fs::read_dir(shelf).unwrap().next().unwrap().unwrap().path())
}

#[tokio::test]
async fn a_missing_blob() {
    let rig = Rig::new();
    let (thread, blob) = with_blob(&rig).await;
    std::fs::remove_file(blob).unwrap();
    damaged_at(&rig, &thread, 2, "not in the store").await;
}

#[tokio::test]
async fn a_damaged_or_shortened_blob() {
    for shorten in [false, true] {
        let rig = Rig::new();
        let (thread, blob) = with_blob(&rig).await;
        let mut content = std::fs::read(&blob).unwrap();
        if shorten {
            content.truncate(content.len() / 2);
        } else {
            content[50_000] ^= 1;
        }
        std::fs::write(&blob, content).unwrap();
        damaged_at(&rig, &thread, 2, "damaged").await;
    }
}

#[tokio::test]
async fn other_threads_are_not_touched_by_it() {
    let rig = Rig::new();
    let broken = six(&rig).await;
    let mut whole = six(&rig).await;
    rig.sql(&format!("DELETE FROM events WHERE thread_id = '{}' AND seq = 2", broken.id()));
    let store = rig.open();
    assert!(store.load(broken.id()).await.unwrap().unwrap().damage.is_some());
    assert!(store.load(whole.id()).await.unwrap().unwrap().damage.is_none());
    whole.say(&store, "goes on").await.unwrap();
    let page = store.threads(mcode_store::ThreadFilter { page_size: 10, ..Default::default() }).await.unwrap();
    assert_eq!(page.rows.len(), 2, "both are listed");
}

#[tokio::test]
async fn one_bad_row_of_two_hundred_hides_no_other() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for number in 0..199 {
        thread.say(&store, &format!("word {number}")).await.unwrap();
    }
    rig.sql(r#"UPDATE events SET payload = '{"role":"us' WHERE seq = 77"#);
    assert_eq!(unreadable(&store, &thread).await, 1);
    assert_eq!(crate::rig::words(&store, thread.id()).await.len(), 198);
    let error = thread.say(&store, "more").await;
    assert!(error.is_ok(), "the store itself takes what is appended; the thread's actor is who refuses");
}

#[tokio::test]
async fn a_gap_of_many_rows_has_a_placeholder_for_each() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("DELETE FROM events WHERE seq IN (2, 3, 4)");
    let store = rig.open();
    assert_eq!(unreadable(&store, &thread).await, 3);
    assert_eq!(store.load(thread.id()).await.unwrap().unwrap().damage.unwrap().seq, Seq::new(2));
}

/// Nothing but the thread's row says how long it is, and that may be what is damaged.
#[tokio::test]
async fn a_row_that_claims_events_without_end_is_not_believed() {
    let rig = Rig::new();
    let thread = six(&rig).await;
    rig.sql("UPDATE threads SET last_seq = 9000000000000000000");
    let store = rig.open();
    let loaded = store.load(thread.id()).await.unwrap().unwrap();
    assert_eq!(loaded.damage.unwrap().seq, Seq::new(7));
    assert_eq!(loaded.state.last_seq, Seq::new(6));
    rig.sql("UPDATE threads SET last_seq = 6 + 10000");
    assert_eq!(unreadable(&store, &thread).await, 10_000, "so much is told one by one");
    rig.sql("UPDATE threads SET last_seq = 6 + 10001");
    assert_eq!(unreadable(&store, &thread).await, 0);
}

/// A page that SQLite itself cannot read: the rows of the other pages are there.
#[tokio::test]
async fn a_torn_page_hides_its_own_rows_only() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for number in 0..300 {
        thread.say(&store, &format!("word {number} {}", "x".repeat(400))).await.unwrap();
    }
    drop(store);
    let connection = rig.alone();
    let page: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    drop(connection);
    let mut content = std::fs::read(rig.database()).unwrap();
    let at = content.windows(9).position(|bytes| bytes == b"word 150 ").unwrap();
    let start = at - at % usize::try_from(page).unwrap();
    content[start..start + 64].fill(0xff);
    std::fs::write(rig.database(), content).unwrap();
    let store = rig.open();
    let loaded = store.load(thread.id()).await.unwrap().unwrap();
    assert!(loaded.damage.is_some());
    assert_eq!(read_all(&store, &thread).await.len(), 301);
    let lost = unreadable(&store, &thread).await;
    assert!((1..=40).contains(&lost), "{lost} of 301 events are lost with one page");
}
