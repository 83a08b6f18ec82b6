//! Damage is found, named by its place, and never taken for news.

use mcode_ids::Seq;
use mcode_store::{Damage, ReadError, Store};

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

/// Opens the store, and sees the log end at `seq` with this damage; what is before it is readable.
async fn damaged_at(rig: &Rig, thread: &Thread, seq: u64, what: &str) {
    let store = rig.open();
    let loaded = store.load(thread.id()).await.unwrap().unwrap();
    let damage = loaded.damage.unwrap_or_else(|| panic!("no damage was found ({what})"));
    assert_eq!((damage.thread_id, damage.seq), (thread.id(), Seq::new(seq)), "{damage}");
    assert!(damage.what.contains(what), "'{}' should tell of '{what}'", damage.what);
    assert!(damage.to_string().contains(&format!("at event {seq}")), "{damage}");
    assert_eq!(loaded.state.last_seq, Seq::new(seq - 1), "what is before it is good");
    assert_eq!(read_until(&store, thread).await, (seq - 1, damage_of(&store, thread, seq).await));
}

/// Reads as a subscriber does; the last good seq, and the damage after it.
async fn read_until(store: &Store, thread: &Thread) -> (u64, Option<Damage>) {
    let mut after = Seq::ZERO;
    loop {
        match store.read(thread.id(), after, 2, 1 << 20).await {
            Ok(events) => match events.last() {
                Some(last) => after = last.seq,
                None => return (after.get(), None),
            },
            Err(ReadError::Damaged(damage)) => return (after.get(), Some(damage)),
            Err(error) => panic!("{error}"),
        }
    }
}

async fn damage_of(store: &Store, thread: &Thread, seq: u64) -> Option<Damage> {
    match store.read(thread.id(), Seq::new(seq - 1), 10, 1 << 20).await {
        Err(ReadError::Damaged(damage)) => Some(damage),
        _ => None,
    }
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
