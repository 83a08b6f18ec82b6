//! What is wrong is found and named, what is damaged is set aside, and what is free is given back.

use std::time::{Duration, SystemTime};

use mcode_env::Clock;
use mcode_events::NewEvent;
use mcode_events::usage::UsagePurpose;
use mcode_ids::Seq;
use mcode_store::{Check, FAULTS_TOLD_MAX, FaultKind, ORPHAN_AGE_MS, Store, UsageFilter, UsageGroup};
use rusqlite::Connection;

use crate::forks::fork;
use crate::rig::{Rig, Thread, notice, started, words};
use crate::search::{find, indexed, said};
use crate::usage::paid;

/// A thread with a run, costs, a body and words; a fork of it; another thread. All of it is indexed.
async fn full(rig: &Rig, store: &Store) -> (Thread, Thread, Thread) {
    let run_id = rig.run_id();
    let mut parent = rig.thread();
    let cost = NewEvent::of_run(run_id, None, paid("a/b", 10, 0.25, UsagePurpose::Work));
    let events = vec![started(run_id), said("the first words"), cost, notice(&"long ".repeat(20_000)), said("more")];
    store.append(parent.next(events, 10)).await.unwrap();
    let mut child = fork(rig, store, parent.id(), 6).await.unwrap();
    child.say(store, "of the fork").await.unwrap();
    let mut other = rig.thread();
    other.say(store, "another").await.unwrap();
    indexed(store).await;
    (parent, child, other)
}

/// What is wrong: kind, thread, event.
fn faults(check: &Check) -> Vec<(FaultKind, Option<mcode_ids::ThreadId>, Option<u64>)> {
    check.faults.iter().map(|fault| (fault.kind, fault.thread_id, fault.seq.map(Seq::get))).collect()
}

fn count(rig: &Rig, sql: &str) -> i64 {
    Connection::open(rig.database()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

async fn spent(store: &Store) -> i64 {
    let filter = UsageFilter {
        group: UsageGroup::Model,
        since_ms: 0,
        until_ms: i64::MAX,
        project_id: None,
        thread_id: None,
        page_size: 10,
        page_token: None,
    };
    store.usage(filter).await.unwrap().total.cost_nanos
}

#[tokio::test]
async fn a_whole_store_is_said_to_be_whole_and_mending_changes_nothing() {
    let rig = Rig::new();
    let store = rig.open();
    full(&rig, &store).await;
    let check = store.check().await.unwrap();
    assert!(check.is_whole(), "{check:?}");
    assert_eq!((check.threads, check.events, check.bodies), (3, 6 + 2 + 2, 1));
    assert_eq!((check.orphans, check.set_aside), (0, 0));
    let mended = store.mend(false).await.unwrap();
    assert_eq!(mended, mcode_store::Mended::default());
}

#[tokio::test]
async fn a_damaged_event_is_told_once_set_aside_and_its_thread_goes_on() {
    let rig = Rig::new();
    let store = rig.open();
    let (parent, child, other) = full(&rig, &store).await;
    rig.sql(&format!("UPDATE events SET payload = 'gone bad' WHERE thread_id = '{}' AND seq = 3", parent.id()));
    let check = store.check().await.unwrap();
    assert_eq!(faults(&check), [(FaultKind::Event, Some(parent.id()), Some(3))], "once, though a fork shares it");
    let mended = store.mend(false).await.unwrap();
    assert_eq!(mended.events, 1);
    let hurt: Vec<_> = mended.set_aside.keys().copied().collect();
    assert_eq!(hurt, [parent.id(), child.id()]);
    let kept = "SELECT count(*) FROM quarantine WHERE payload = 'gone bad' AND kind = 'message_finished' AND seq = 3";
    assert_eq!(count(&rig, kept), 1, "nothing is thrown away");
    let check = store.check().await.unwrap();
    assert!(check.is_whole(), "{check:?}");
    assert_eq!(check.set_aside, 1);
    for thread in [parent, child, other] {
        let loaded = store.load(thread.id()).await.unwrap().unwrap();
        assert_eq!(loaded.damage, None);
        let mut thread = rig.thread_of(loaded.state.clone());
        thread.state.thread_id = loaded.state.thread_id;
        thread.say(&store, "it goes on").await.unwrap();
        assert_eq!(words(&store, thread.id()).await.last().unwrap(), "it goes on");
    }
    assert_eq!(store.mend(false).await.unwrap().events, 0);
}

#[tokio::test]
async fn every_kind_of_damage_is_mended() {
    for (change, first) in [
        ("UPDATE events SET payload = x'ff00fe' WHERE seq = 5", 5),
        ("UPDATE events SET checksum = checksum + 1 WHERE seq = 2", 2),
        ("DELETE FROM events WHERE seq IN (2, 3)", 2),
        ("DELETE FROM events WHERE seq = 1", 1),
        ("DELETE FROM events WHERE seq = 6", 6),
        ("UPDATE events SET at = 'noon' WHERE seq = 1", 1),
        ("UPDATE events SET kind = x'ff', version = 'two' WHERE seq = 3", 3),
    ] {
        let rig = Rig::new();
        let store = rig.open();
        let mut thread = rig.thread();
        for word in ["two", "three", "four", "five", "six"] {
            thread.say(&store, word).await.unwrap();
        }
        rig.sql(change);
        let check = store.check().await.unwrap();
        assert_eq!(check.faults[0].seq, Some(Seq::new(first)), "{change}: {check:?}");
        let row = store.thread(thread.id()).await.unwrap();
        store.mend(false).await.unwrap();
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "{change}: {check:?}");
        let after = store.thread(thread.id()).await.unwrap();
        let shown = |row: &Option<mcode_store::ThreadRow>| {
            row.as_ref().map(|row| (row.title.clone(), row.project_id, row.last_seq)).unwrap()
        };
        assert_eq!(shown(&after), shown(&row), "{change}");
        thread.state = store.load(thread.id()).await.unwrap().unwrap().state;
        assert_eq!(thread.say(&store, "on").await.unwrap(), Seq::new(7), "{change}");
    }
}

#[tokio::test]
async fn money_that_was_spent_stays_spent() {
    let rig = Rig::new();
    let store = rig.open();
    let (parent, ..) = full(&rig, &store).await;
    let before = spent(&store).await;
    assert_eq!(before, 250_000_000);
    rig.sql(&format!("UPDATE events SET payload = '{{' WHERE thread_id = '{}' AND seq = 4", parent.id()));
    store.mend(false).await.unwrap();
    assert_eq!(spent(&store).await, before);
    store.rebuild_usage().await.unwrap();
    assert_eq!(spent(&store).await, before);
    assert!(store.check().await.unwrap().is_whole());
}

#[tokio::test]
async fn rows_that_are_not_what_the_log_says_are_made_anew() {
    for change in [
        "UPDATE threads SET title = 'another', last_seq = 3",
        "UPDATE threads SET last_seq = 9000000000000000000",
        "UPDATE threads SET usage = '{}', activity = 'idle', active_run = NULL, unfinished = 0",
        "DELETE FROM runs",
        "UPDATE runs SET active = 0",
        "INSERT INTO pending SELECT 'apr_x', thread_id FROM threads LIMIT 1",
        "DELETE FROM usage",
        "UPDATE usage SET cost_nanos = 7",
    ] {
        let rig = Rig::new();
        let store = rig.open();
        let (parent, ..) = full(&rig, &store).await;
        let before = store.thread(parent.id()).await.unwrap();
        let run = before.as_ref().unwrap().active_run.unwrap();
        rig.sql(change);
        let check = store.check().await.unwrap();
        assert!(check.faults.iter().any(|fault| fault.kind == FaultKind::List), "{change}: {check:?}");
        store.mend(false).await.unwrap();
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "{change}: {check:?}");
        assert_eq!(store.thread(parent.id()).await.unwrap(), before, "{change}");
        assert!(store.run(run).await.unwrap().unwrap().record.ended_at_ms.is_none(), "{change}");
        assert_eq!(spent(&store).await, 250_000_000, "{change}");
    }
}

#[tokio::test]
async fn a_body_that_is_lost_or_damaged_is_told_and_not_looked_for_for_ever() {
    for lost in [true, false] {
        let rig = Rig::new();
        let store = rig.open();
        let mut thread = rig.thread();
        let body = store.blobs().put(b"a picture", "image/png").unwrap();
        thread.say(&store, &format!("see blob:{}", body.hash)).await.unwrap();
        let path = rig.blobs().join(&body.hash[..2]).join(&body.hash);
        if lost {
            std::fs::remove_file(&path).unwrap()
        } else {
            std::fs::write(&path, "a pictuRe").unwrap()
        }
        let check = store.check().await.unwrap();
        assert_eq!(faults(&check), [(FaultKind::Body, Some(thread.id()), None)]);
        let mended = store.mend(false).await.unwrap();
        assert_eq!(mended.lost.get(&thread.id()), Some(&1));
        assert!(store.check().await.unwrap().is_whole());
        let beside = rig.root.join("data/damaged-blobs").join(&body.hash);
        assert_eq!(beside.exists(), !lost, "what there is of it is kept");
        // The same content is kept anew.
        store.blobs().put(b"a picture", "image/png").unwrap();
        assert_eq!(store.blobs().get(&body.hash).unwrap(), b"a picture");
    }
}

/// A folder that is not mounted is empty, or has only what came since.
#[tokio::test]
async fn a_folder_of_bodies_that_looks_absent_is_not_taken_for_lost() {
    for (bodies, came_since) in [(1, 0), (20, 0), (20, 3)] {
        let rig = Rig::new();
        let mut thread = rig.thread();
        let store = rig.open();
        for number in 0..bodies {
            thread.say(&store, &format!("{number} {}", "long ".repeat(20_000))).await.unwrap();
        }
        drop(store);
        let aside = rig.root.join("unmounted");
        std::fs::rename(rig.blobs(), &aside).unwrap();
        let store = rig.open();
        let mut other = rig.thread();
        for number in 0..came_since {
            other.say(&store, &format!("new {number} {}", "long ".repeat(20_000))).await.unwrap();
        }
        let rows = "SELECT count(*) + (SELECT count(*) FROM named) FROM events WHERE kind = 'notice'";
        let before = count(&rig, rows);
        let check = store.check().await.unwrap();
        let (all, text) = (bodies + came_since, rig.blobs().display().to_string());
        let told = check.faults.iter().find(|fault| fault.kind == FaultKind::Body).unwrap();
        assert!(told.what.contains(&text) && told.what.contains(&format!("{came_since} of the {all}")), "{told:?}");
        let error = store.mend(false).await.unwrap_err();
        assert!(matches!(error, mcode_store::StoreError::BodiesAbsent(_)), "{error:?}");
        assert!(error.to_string().contains(&text) && error.to_string().contains("nothing was changed"), "{error}");
        assert_eq!((count(&rig, rows), count(&rig, "SELECT count(*) FROM quarantine")), (before, 0));
        // It is mounted again, with all that was there.
        for shelf in std::fs::read_dir(rig.blobs()).unwrap().map(|shelf| shelf.unwrap().path()) {
            for body in std::fs::read_dir(&shelf).unwrap().map(|body| body.unwrap().path()) {
                let there = aside.join(shelf.file_name().unwrap());
                std::fs::create_dir_all(&there).unwrap();
                std::fs::rename(&body, there.join(body.file_name().unwrap())).unwrap();
            }
        }
        std::fs::remove_dir_all(rig.blobs()).unwrap();
        std::fs::rename(&aside, rig.blobs()).unwrap();
        assert_eq!(store.mend(false).await.unwrap(), mcode_store::Mended::default());
        assert!(store.check().await.unwrap().is_whole());
        // And it is lost indeed.
        std::fs::remove_dir_all(rig.blobs()).unwrap();
        assert!(store.mend(false).await.is_err());
        let mended = store.mend(true).await.unwrap();
        assert_eq!(mended.events, all, "each event had its body there");
        assert!(store.check().await.unwrap().is_whole());
    }
}

#[tokio::test]
async fn bodies_that_nobody_names_go_when_they_are_old() {
    let rig = Rig::new();
    let now = u64::try_from(rig.clock.now().millis()).unwrap();
    let at = |age_ms: i64| SystemTime::UNIX_EPOCH + Duration::from_millis(now) - Duration::from_millis(age_ms as u64);
    let age = |path: &std::path::Path, age_ms: i64| {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(at(age_ms)).unwrap();
    };
    let place = |hash: &str| rig.blobs().join(&hash[..2]).join(hash);
    let store = rig.open();
    let mut thread = rig.thread();
    let named = store.blobs().put(b"named", "text/plain").unwrap().hash;
    thread.say(&store, &named).await.unwrap();
    let (old, new) = (store.blobs().put(b"old", "x").unwrap().hash, store.blobs().put(b"new", "x").unwrap().hash);
    let begun = place(&named).with_file_name(".new-1-1");
    std::fs::write(&begun, "beg").unwrap();
    drop(store);
    let store = rig.open();
    // Kept again a moment ago: an event that names it is on its way.
    let about = store.blobs().put(b"about to be named", "x").unwrap().hash;
    for hash in [&named, &old, &about] {
        age(&place(hash), ORPHAN_AGE_MS);
    }
    age(&begun, ORPHAN_AGE_MS);
    age(&place(&new), ORPHAN_AGE_MS - 1000);
    let check = store.check().await.unwrap();
    assert!(check.is_whole(), "they only take space");
    assert_eq!((check.orphans, check.orphan_bytes), (4, 3 + 3 + 3 + 17));
    let mended = store.mend(false).await.unwrap();
    assert_eq!((mended.orphans, mended.orphan_bytes), (2, 6));
    assert!(!place(&old).exists() && !begun.exists());
    assert!(place(&new).exists() && place(&named).exists() && place(&about).exists());
}

#[tokio::test]
async fn an_index_that_does_not_fit_is_made_anew() {
    for change in [
        "UPDATE searched SET seq = 1000",
        "UPDATE said_at SET seq = 1000",
        "DELETE FROM said_at WHERE id = (SELECT min(id) FROM said_at)",
    ] {
        let rig = Rig::new();
        let store = rig.open();
        full(&rig, &store).await;
        rig.sql(change);
        let check = store.check().await.unwrap();
        assert!(check.faults.iter().all(|fault| fault.kind == FaultKind::Index), "{change}: {check:?}");
        assert!(!check.is_whole(), "{change}");
        assert!(store.mend(false).await.unwrap().index, "{change}");
        indexed(&store).await;
        assert!(store.check().await.unwrap().is_whole(), "{change}");
        assert_eq!(find(&store, "first words").await.hits.len(), 1, "{change}");
    }
}

#[tokio::test]
async fn what_a_deleted_thread_left_to_its_forks_is_looked_after_too() {
    let rig = Rig::new();
    let store = rig.open();
    let (parent, child, _) = full(&rig, &store).await;
    store.delete_thread(parent.id()).await.unwrap();
    assert!(store.check().await.unwrap().is_whole());
    rig.sql(&format!("UPDATE events SET payload = '' WHERE thread_id = '{}' AND seq = 3", parent.id()));
    assert_eq!(faults(&store.check().await.unwrap()), [(FaultKind::Event, Some(parent.id()), Some(3))]);
    let mended = store.mend(false).await.unwrap();
    assert_eq!(mended.set_aside.keys().copied().collect::<Vec<_>>(), [child.id()]);
    assert!(store.check().await.unwrap().is_whole());
    // With the last thread that has it goes what was set aside.
    store.delete_thread(child.id()).await.unwrap();
    assert_eq!(count(&rig, "SELECT count(*) FROM quarantine"), 0);
}

#[tokio::test]
async fn more_faults_than_are_told_are_counted() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let many = (0..FAULTS_TOLD_MAX + 50).map(|number| notice(&number.to_string())).collect();
    store.append(thread.next(many, 1)).await.unwrap();
    rig.sql("UPDATE events SET checksum = checksum + 1 WHERE seq > 1");
    let check = store.check().await.unwrap();
    assert_eq!((check.faults.len(), check.more), (FAULTS_TOLD_MAX, 50));
    assert_eq!(store.mend(false).await.unwrap().events, FAULTS_TOLD_MAX as u64 + 50);
    assert!(store.check().await.unwrap().is_whole());
}

#[tokio::test]
async fn a_page_that_is_torn_is_told_by_the_database_itself() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for number in 0..100 {
        thread.say(&store, &format!("word {number} {}", "x".repeat(400))).await.unwrap();
    }
    drop(store);
    drop(rig.alone());
    let mut content = std::fs::read(rig.database()).unwrap();
    let at = content.windows(8).position(|bytes| bytes == b"word 50 ").unwrap();
    let start = at - at % 4096;
    content[start..start + 64].fill(0xff);
    std::fs::write(rig.database(), content).unwrap();
    let check = rig.open().check().await.unwrap();
    let kinds: Vec<FaultKind> = check.faults.iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&FaultKind::Database) && kinds.contains(&FaultKind::Event), "{check:?}");
}

#[tokio::test]
async fn space_that_is_free_is_given_back_a_little_at_a_time() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    let mut other = rig.thread();
    other.say(&store, "stays").await.unwrap();
    for number in 0..400 {
        let text = format!("{number} {}", "x".repeat(20_000));
        thread.say(&store, &text).await.unwrap();
    }
    let full = store.space().await.unwrap();
    let log_bytes: u64 = full.projects.values().map(|row| row.log_bytes).sum();
    assert!((8_000_000..9_000_000).contains(&log_bytes), "{full:?}");
    assert_eq!(full.projects.len(), 2);
    store.delete_thread(thread.id()).await.unwrap();
    let wal = rig.root.join("data/mcode.db-wal");
    assert!(std::fs::metadata(&wal).unwrap().len() > 1 << 20);
    let mut steps = 0;
    while store.tidy_some().await.unwrap() {
        steps += 1;
        if steps == 3 {
            other.say(&store, "in between").await.unwrap();
        }
    }
    assert!(steps > 10, "{steps} steps: it was given back at once");
    assert_eq!(std::fs::metadata(&wal).unwrap().len(), 0);
    let size = std::fs::metadata(rig.database()).unwrap().len();
    assert!(size < 3 << 20, "{size} of {} bytes are left", full.database_bytes);
    let left = store.space().await.unwrap();
    assert!(left.database_bytes == size && left.free_bytes <= 256 * 4096, "{left:?}");
    assert_eq!(words(&store, other.id()).await, ["stays", "in between"]);
    assert!(store.check().await.unwrap().is_whole());
}

/// Databases of older versions could not become smaller.
#[tokio::test]
async fn an_older_database_learns_to_give_space_back() {
    let rig = Rig::new();
    let mut thread = rig.thread();
    thread.say(&rig.open(), "before").await.unwrap();
    let connection = rig.alone();
    connection.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM").unwrap();
    drop(connection);
    assert_eq!(count(&rig, "PRAGMA auto_vacuum"), 0);
    let store = rig.open();
    assert_eq!(count(&rig, "PRAGMA auto_vacuum"), 2);
    thread.say(&store, "after").await.unwrap();
    assert_eq!(words(&store, thread.id()).await, ["before", "after"]);
}

#[tokio::test]
async fn a_thread_at_work_is_whole_at_every_moment() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    thread.say(&store, "begin").await.unwrap();
    let writing = {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..300 {
                thread.say(&store, &format!("{number} {}", "y".repeat(number * 10))).await.unwrap();
            }
        })
    };
    while !writing.is_finished() {
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "{check:?}");
    }
    writing.await.unwrap();
}
