//! A copy of everything, the way back, and copies that are not to be trusted.

use std::path::{Path, PathBuf};

use mcode_store::{ARCHIVE_ENTRY_BYTES_MAX, ArchiveError, Restored, restore};
use rusqlite::Connection;

use crate::forks::fork;
use crate::rig::{Rig, words};

fn bring_back(rig: &Rig, archive: &Path) -> Result<Restored, ArchiveError> {
    restore(archive, &rig.database(), &rig.blobs(), "now")
}

/// A store with a thread, a body and a fork, and a copy of it.
async fn copied(rig: &Rig) -> (PathBuf, mcode_ids::ThreadId, String) {
    let store = rig.open();
    let mut thread = rig.thread();
    let body = store.blobs().put(b"a picture", "image/png").unwrap().hash;
    for text in ["one", &format!("see blob:{body}"), &"long ".repeat(20_000)] {
        thread.say(&store, text).await.unwrap();
    }
    fork(rig, &store, thread.id(), 3).await.unwrap();
    let path = rig.root.join("copy.tar");
    let copy = store.back_up(path.clone()).await.unwrap();
    assert_eq!((copy.threads, copy.bodies, copy.missing), (2, 2, 0));
    assert_eq!(copy.bytes, std::fs::metadata(&path).unwrap().len());
    (path, thread.id(), body)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_was_copied_comes_back_and_what_was_there_is_kept() {
    let rig = Rig::new();
    let (path, thread, body) = copied(&rig).await;
    let store = rig.open();
    let mut later = rig.thread();
    later.say(&store, "after the copy").await.unwrap();
    drop(store);
    let restored = bring_back(&rig, &path).unwrap();
    assert_eq!((restored.copied.threads, restored.copied.bodies), (2, 2));
    let store = rig.open();
    assert_eq!(words(&store, thread).await.len(), 3);
    assert_eq!(store.blobs().get(&body).unwrap(), b"a picture");
    assert!(store.thread(later.id()).await.unwrap().is_none());
    assert!(store.check().await.unwrap().is_whole());
    assert!(!names(&rig.root.join("data")).contains(&"restoring".to_owned()), "nothing is left over");
    // The former data are a store of their own.
    let former = restored.former.unwrap();
    assert_eq!(former, rig.root.join("data/before-restore-now"));
    let old = mcode_store::Store::open(former.join("mcode.db"), former.join("blobs"), rig.clock.clone()).unwrap();
    assert_eq!(words(&old, later.id()).await, ["after the copy"]);
}

#[tokio::test]
async fn a_copy_comes_back_where_nothing_was() {
    let (from, to) = (Rig::new(), Rig::new());
    let (path, thread, _) = copied(&from).await;
    assert_eq!(bring_back(&to, &path).unwrap().former, None);
    assert_eq!(words(&to.open(), thread).await.len(), 3);
}

#[tokio::test]
async fn a_copy_overwrites_nothing_leaves_nothing_and_is_private() {
    let rig = Rig::new();
    let (path, ..) = copied(&rig).await;
    let before = std::fs::read(&path).unwrap();
    let store = rig.open();
    let error = store.back_up(path.clone()).await.unwrap_err();
    assert!(error.to_string().contains("there already"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(store.back_up(rig.root.join("none/copy.tar")).await.is_err());
    assert_eq!(names(&rig.root), ["copy.tar", "data"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_copy_is_made_while_threads_go_on() {
    let rig = Rig::new();
    let store = rig.open();
    let mut thread = rig.thread();
    for number in 0..200 {
        thread.say(&store, &format!("{number} {}", "x".repeat(5000))).await.unwrap();
    }
    let path = rig.root.join("copy.tar");
    let copying = tokio::spawn({
        let (store, path) = (store.clone(), path.clone());
        async move { store.back_up(path).await.unwrap() }
    });
    while !copying.is_finished() {
        thread.say(&store, "meanwhile").await.unwrap();
    }
    copying.await.unwrap();
    let other = Rig::new();
    bring_back(&other, &path).unwrap();
    let there = other.open();
    assert!(there.check().await.unwrap().is_whole());
    assert!(words(&there, thread.id()).await.len() >= 200);
}

#[tokio::test]
async fn lost_bodies_are_told_and_the_rest_is_copied() {
    let rig = Rig::new();
    let (_, thread, body) = copied(&rig).await;
    std::fs::remove_file(rig.blobs().join(&body[..2]).join(&body)).unwrap();
    let store = rig.open();
    let copy = store.back_up(rig.root.join("second.tar")).await.unwrap();
    assert_eq!((copy.bodies, copy.missing), (1, 1));
    let other = Rig::new();
    assert_eq!(bring_back(&other, &rig.root.join("second.tar")).unwrap().copied.missing, 1);
    assert_eq!(words(&other.open(), thread).await.len(), 3);
}

/// Cut anywhere, or with any byte of it changed, it is refused, and what is there stays.
#[tokio::test]
async fn a_copy_that_is_cut_or_changed_is_refused() {
    let rig = Rig::new();
    let (path, thread, _) = copied(&rig).await;
    let whole = std::fs::read(&path).unwrap();
    let bad = rig.root.join("bad.tar");
    let steps = 40;
    for step in 0..steps {
        let place = whole.len() * step / steps;
        std::fs::write(&bad, &whole[..place]).unwrap();
        let refused = bring_back(&rig, &bad);
        assert!(matches!(refused, Err(ArchiveError::Refused(_))), "cut at {place}: {refused:?}");
    }
    // The first bytes of each entry's content.
    for place in (1024..whole.len()).step_by(whole.len() / steps) {
        let mut content = whole.clone();
        content[place] ^= 0x40;
        std::fs::write(&bad, content).unwrap();
        // Padding may be anything.
        if let Ok(restored) = bring_back(&rig, &bad) {
            assert_eq!(whole[place], 0, "a change at {place} was not seen");
            std::fs::remove_dir_all(restored.former.unwrap()).unwrap();
        }
    }
    assert_eq!(words(&rig.open(), thread).await.len(), 3);
}

fn header(name: &str, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    // Not by `set_path`, which refuses what an attacker would write.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o777);
    header.set_cksum();
    header
}

#[tokio::test]
async fn entries_that_lead_elsewhere_are_refused() {
    let rig = Rig::new();
    let (_, thread, _) = copied(&rig).await;
    let hash = blake3::hash(b"evil").to_hex().to_string();
    let good = format!("blobs/{}/{hash}", &hash[..2]);
    let regular = tar::EntryType::Regular;
    let mut tries = vec![
        ("../outside".to_owned(), regular),
        ("/tmp/mcode-outside".to_owned(), regular),
        ("blobs/../../outside".to_owned(), regular),
        (format!("blobs/zz/{hash}"), regular),
        (format!("./{good}"), regular),
        (format!("{good}/"), regular),
        ("mcode.db-wal".to_owned(), regular),
        ("config.toml".to_owned(), regular),
    ];
    for kind in [
        tar::EntryType::Symlink,
        tar::EntryType::Link,
        tar::EntryType::Directory,
        tar::EntryType::Fifo,
        tar::EntryType::Char,
        tar::EntryType::GNUSparse,
    ] {
        tries.push((good.clone(), kind));
        tries.push(("mcode.db".to_owned(), kind));
    }
    for (name, kind) in tries {
        let path = rig.root.join("hostile.tar");
        let mut archive = tar::Builder::new(std::fs::File::create(&path).unwrap());
        archive.append(&header(&name, kind, 4), b"evil".as_slice()).unwrap();
        archive.finish().unwrap();
        let refused = bring_back(&rig, &path).unwrap_err();
        assert!(matches!(refused, ArchiveError::Refused(_)), "{name} {kind:?}: {refused:?}");
        assert!(!rig.root.join("outside").exists() && !rig.root.join("data/outside").exists());
        assert!(!rig.root.join("data/restoring").exists());
    }
    assert_eq!(words(&rig.open(), thread).await.len(), 3);
}

#[tokio::test]
async fn an_entry_that_claims_more_than_is_taken_is_refused() {
    let rig = Rig::new();
    let path = rig.root.join("bomb.tar");
    for size in [ARCHIVE_ENTRY_BYTES_MAX + 1, 1 << 30] {
        std::fs::write(&path, header("mcode.db", tar::EntryType::Regular, size).as_bytes()).unwrap();
        let refused = bring_back(&rig, &path).unwrap_err();
        assert!(refused.to_string().contains("more than is taken"), "{size}: {refused}");
    }
}

/// A file with this database and a true manifest.
fn archive_of(rig: &Rig, database: &[u8]) -> PathBuf {
    let path = rig.root.join("made.tar");
    let mut archive = tar::Builder::new(std::fs::File::create(&path).unwrap());
    let hash = blake3::hash(database).to_hex().to_string();
    let manifest = format!(
        r#"{{"format":1,"database":{{"blake3":"{hash}","bytes":{}}},"bodies":{{"count":0,"names":"{}"}}}}"#,
        database.len(),
        blake3::hash(b"").to_hex(),
    );
    for (name, content) in [("mcode.db", database), ("manifest.json", manifest.as_bytes())] {
        archive.append(&header(name, tar::EntryType::Regular, content.len() as u64), content).unwrap();
    }
    archive.finish().unwrap();
    path
}

#[tokio::test]
async fn a_database_that_is_not_ours_is_refused() {
    let rig = Rig::new();
    rig.thread().say(&rig.open(), "a").await.unwrap();
    drop(rig.alone());
    let good = std::fs::read(rig.database()).unwrap();
    for (change, why) in [
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM grants; END", "not one of mcode"),
        ("CREATE VIEW v AS SELECT 1", "not one of mcode"),
        ("DROP TABLE audit", "not one of mcode"),
        ("PRAGMA user_version = 1", "not one of mcode"),
        ("PRAGMA user_version = 0", "not one of mcode"),
        ("PRAGMA user_version = 1000", "newer mcode"),
    ] {
        let made = rig.root.join("made.db");
        std::fs::write(&made, &good).unwrap();
        Connection::open(&made).unwrap().execute_batch(&format!("PRAGMA journal_mode=DELETE; {change}")).unwrap();
        let other = Rig::new();
        let refused = bring_back(&other, &archive_of(&rig, &std::fs::read(&made).unwrap())).unwrap_err();
        assert!(refused.to_string().contains(why), "{change}: {refused}");
        assert!(!other.database().exists());
    }
    let other = Rig::new();
    let refused = bring_back(&other, &archive_of(&rig, b"SQLite format 3 but not really")).unwrap_err();
    assert!(!other.database().exists(), "{refused}");
    bring_back(&other, &archive_of(&rig, &good)).unwrap();
}
