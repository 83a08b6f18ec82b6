//! No space left: nothing half-written, earlier events whole, and work goes on when there is space again.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

use mcode_events::blob::BlobError;
use mcode_ids::Seq;
use mcode_store::{AppendError, Store};

use crate::rig::{Rig, Thread, words};
use crate::search::{find, indexed, said};

/// A small disk; unmounted when dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// Mounts one over the rig's folder; `None` where that is not allowed.
    fn over(path: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "mcode-test"])
            .arg(path)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| Self(path.to_path_buf()))
    }
}

impl SmallDisk {
    /// Lets it have so many bytes.
    fn resize(&self, bytes: u64) {
        let output =
            Command::new("mount").args(["-o", &format!("remount,size={bytes}")]).arg(&self.0).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Bytes that are taken.
    fn used(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        (found.f_blocks - found.f_bfree) * found.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.0).output().ok();
    }
}

/// Runs a test of this file where it may mount a disk: in a namespace of its own.
fn elsewhere(test: &str) {
    const INSIDE: &str = "MCODE_TEST_MAY_MOUNT";
    assert!(std::env::var_os(INSIDE).is_none(), "no disk can be mounted, not even in a namespace of its own");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    match command.args([&format!("space::{test}"), "--nocapture"]).env(INSIDE, "1").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).starts_with("unshare:") => not_here(&output.stderr),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => not_here(error.to_string().as_bytes()),
    }
}

fn not_here(why: &[u8]) {
    eprintln!("not tested: this machine lets nobody but root mount a disk ({})", String::from_utf8_lossy(why).trim());
}

/// Says more and more until there is no space; how many words were taken.
async fn fill(store: &Store, thread: &mut Thread, size: usize) -> usize {
    for taken in 0..10_000 {
        match thread.say(store, &format!("{taken:08}{}", "x".repeat(size))).await {
            Ok(_) => {}
            Err(AppendError::DiskFull) => return taken,
            Err(error) => panic!("after {taken} words: {error:?}"),
        }
    }
    panic!("the disk never filled");
}

async fn whole(store: &Store, thread: &Thread, taken: usize) {
    let loaded = store.load(thread.id()).await.unwrap().unwrap();
    assert_eq!((loaded.damage, &loaded.state), (None, &thread.state));
    let words = words(store, thread.id()).await;
    assert_eq!(words.len(), taken);
    assert!(words.iter().enumerate().all(|(number, word)| word.starts_with(&format!("{number:08}"))));
}

#[tokio::test]
async fn a_full_disk_is_named_and_work_goes_on_when_there_is_space() {
    let rig = Rig::new();
    let Some(_disk) = SmallDisk::over(&rig.root) else { return elsewhere("a_full_disk_is_named_and_work_goes_on") };
    let ballast = rig.root.join("ballast");
    std::fs::write(&ballast, vec![1u8; 300 * 1024]).unwrap();
    let store = rig.open();
    let mut thread = rig.thread();
    let taken = fill(&store, &mut thread, 20_000).await;
    assert!(taken > 3, "{taken}");
    whole(&store, &thread, taken).await;
    // Again and again it is the same answer, and nothing gets worse.
    for _ in 0..3 {
        let error = thread.say(&store, &"y".repeat(20_000)).await.unwrap_err();
        assert!(matches!(error, AppendError::DiskFull), "{error:?}");
    }
    std::fs::remove_file(&ballast).unwrap();
    let seq = thread.say(&store, &format!("{taken:08} there is space again")).await.unwrap();
    assert_eq!(seq, Seq::new(taken as u64 + 2));
    whole(&store, &thread, taken + 1).await;
    drop(store);
    whole(&rig.open(), &thread, taken + 1).await;
}

#[tokio::test]
async fn a_blob_that_does_not_fit_takes_no_space() {
    let rig = Rig::new();
    let Some(_disk) = SmallDisk::over(&rig.root) else { return elsewhere("a_blob_that_does_not_fit_takes_no_space") };
    let store = rig.open();
    let mut thread = rig.thread();
    thread.say(&store, "00000000").await.unwrap();
    let error = thread.say(&store, &"z".repeat(2 << 20)).await.unwrap_err();
    assert!(matches!(error, AppendError::DiskFull), "{error:?}");
    let error = store.blobs().put(&vec![7u8; 2 << 20], "x/y").unwrap_err();
    assert!(matches!(error, BlobError::Io { .. }), "{error:?}");
    assert_eq!(files_in(&rig.blobs()), 0, "no piece of it is left");
    thread.say(&store, "00000001").await.unwrap();
    whole(&store, &thread, 2).await;
}

/// There is room for one page, then for two, and so on until the append fits: each of its writes fails once.
#[tokio::test]
async fn whichever_write_fails_nothing_is_half_there() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::over(&rig.root) else {
        return elsewhere("whichever_write_fails_nothing_is_half_there");
    };
    for bytes in [300, 9_000, 70_000] {
        let store = rig.open();
        let mut thread = rig.thread();
        thread.say(&store, "00000000").await.unwrap();
        let (mut failures, mut taken) = (0, 1);
        for pages in 0.. {
            disk.resize(disk.used() + pages * 4096);
            let said = thread.say(&store, &format!("{taken:08} {}", "z".repeat(bytes))).await;
            disk.resize(16 << 20);
            match said {
                Ok(_) => {
                    taken += 1;
                    break;
                }
                Err(AppendError::DiskFull) => failures += 1,
                Err(error) => panic!("{pages} pages: {error:?}"),
            }
            whole(&store, &thread, taken).await;
            let check = store.check().await.unwrap();
            assert!(check.is_whole(), "{pages} pages: {check:?}");
        }
        assert!(failures > 0, "no write failed");
        whole(&store, &thread, taken).await;
        drop(store);
        whole(&rig.open(), &thread, taken).await;
    }
}

fn files_in(dir: &Path) -> usize {
    let shelves = std::fs::read_dir(dir).unwrap().map(|shelf| shelf.unwrap().path());
    shelves.map(|shelf| std::fs::read_dir(shelf).unwrap().count()).sum()
}

/// What was said is found as far as it was looked through; the rest when there is space again.
#[tokio::test]
async fn an_index_that_meets_a_full_disk_finds_what_it_knows_and_catches_up() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::over(&rig.root) else {
        return elsewhere("an_index_that_meets_a_full_disk_finds_what_it_knows_and_catches_up");
    };
    disk.resize(16 << 20);
    let store = rig.open();
    let mut thread = rig.thread();
    store.append(thread.next(vec![said("the very first words")], 1)).await.unwrap();
    indexed(&store).await;
    for number in 0..40 {
        // Words that are all different take space in an index.
        let words: String = (0..800).map(|word| format!("w{number}x{word} ")).collect();
        store.append(thread.next(vec![said(&words)], 1)).await.unwrap();
    }
    // There is room for one page, then for two, and so on: each write of it fails once.
    let mut failures = 0;
    for pages in (0..).step_by(8) {
        disk.resize(disk.used() + pages * 4096);
        let looked = store.index_some().await;
        disk.resize(16 << 20);
        match looked {
            Err(error) => {
                assert!(error.is_disk_full(), "{error:?}");
                failures += 1;
                let found = find(&store, "first words").await;
                assert_eq!((found.hits.len(), found.behind), (1, 1), "{pages} pages");
                assert!(find(&store, "w39x799").await.hits.is_empty(), "{pages} pages");
                let check = store.check().await.unwrap();
                assert!(check.is_whole(), "{pages} pages: {check:?}");
            }
            Ok(_) => break,
        }
    }
    assert!(failures > 2, "{failures}");
    indexed(&store).await;
    let found = find(&store, "w39x799").await;
    assert_eq!((found.hits.len(), found.behind), (1, 0));
    assert!(store.check().await.unwrap().is_whole());
}
