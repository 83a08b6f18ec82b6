//! A disk that fails, and a power cut, at each write, sync and rename, one after the other: what was acknowledged is there,
//! nothing is half there, and the store goes on.
//!
//! Each try is a process of its own: this test program again, which does one thing to the folder that it is given.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mcode_ids::{Seq, ThreadId};
use mcode_store::{Store, ThreadFilter, restore};
use mcode_testkit::{DiskFailure, FailingDisk};
use rusqlite::Connection;

use crate::rig::{Rig, Thread, notice, words};

/// What the process is to do, and to which folder.
const DO: &str = "MCODE_TEST_DO";
const FOLDER: &str = "MCODE_TEST_FOLDER";

/// Calls that one thing may take at most: a loop that does not end is a fault of the test.
const CALLS_MAX: u32 = 400;

/// Words that the process appends: one in a file of its own, one that names another body.
const APPENDS: usize = 2;

/// Not a test: what the processes of the others do.
#[tokio::test]
async fn child() {
    let (Ok(what), Ok(folder)) = (std::env::var(DO), std::env::var(FOLDER)) else { return };
    let rig = Rig::at(PathBuf::from(folder));
    match what.as_str() {
        "append" => append(&rig).await,
        "back up" => match open(&rig) {
            Ok(store) => told(store.back_up(rig.root.join("out/copy.tar")).await),
            Err(error) => told(Err::<(), _>(error)),
        },
        "restore" => told(restore(&rig.root.join("copy.tar"), &rig.database(), &rig.blobs(), "now")),
        "migrate" => told(open(&rig)),
        "delete" => match open(&rig) {
            Ok(store) => {
                let thread = newest(&store).await;
                told(store.delete_thread(thread).await);
            }
            Err(error) => told(Err::<(), _>(error)),
        },
        other => panic!("nothing is called {other}"),
    }
}

fn open(rig: &Rig) -> Result<Store, mcode_store::StoreError> {
    let clock = std::sync::Arc::clone(&rig.clock) as std::sync::Arc<dyn mcode_env::Clock>;
    Store::open(rig.database(), rig.blobs(), clock)
}

#[allow(clippy::print_stdout)]
fn told<T, E: std::fmt::Debug>(result: Result<T, E>) {
    match result {
        Ok(_) => println!("\ndone"),
        Err(error) => println!("\nfailed {error:?}"),
    }
}

async fn append(rig: &Rig) {
    let store = match open(rig) {
        Ok(store) => store,
        Err(error) => return told(Err::<(), _>(error)),
    };
    let thread_id = newest(&store).await;
    let mut thread = rig.known(&store, thread_id).await;
    for _ in 0..APPENDS {
        let number = words(&store, thread_id).await.len();
        let text = match number % 3 {
            0 => format!("{number:08} {}", "long ".repeat(20_000)),
            1 => match store.blobs().put(format!("picture {number}").as_bytes(), "image/png") {
                Ok(body) => format!("{number:08} blob:{}", body.hash),
                Err(_) => format!("{number:08} no picture"),
            },
            _ => format!("{number:08}"),
        };
        told(thread.say(&store, &text).await);
    }
}

async fn newest(store: &Store) -> ThreadId {
    let filter = ThreadFilter { page_size: 10, include_archived: true, ..ThreadFilter::default() };
    store.threads(filter).await.unwrap().rows[0].thread_id
}

/// Fills a folder with a store: a thread of three words, of which one is in a file of its own.
async fn filled(rig: &Rig) -> Thread {
    let store = rig.open();
    let mut thread = rig.thread();
    for (number, rest) in [String::new(), "long ".repeat(20_000), String::new()].into_iter().enumerate() {
        thread.say(&store, &format!("{number:08} {rest}")).await.unwrap();
    }
    thread
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// One try: what is in the folder now, and what the process said.
struct Try {
    rig: Rig,
    output: Output,
    failure: DiskFailure,
    at: u32,
}

impl Try {
    fn name(&self) -> String {
        format!("{:?} at call {}: {}", self.failure, self.at, self.said())
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// How many things succeeded.
    fn done(&self) -> usize {
        self.said().lines().filter(|line| *line == "done").count()
    }

    fn has_failed(&self) -> bool {
        self.said().lines().any(|line| line.starts_with("failed"))
    }

    /// Files below a folder whose names begin so.
    fn left(&self, folder: &Path, prefix: &str) -> Vec<PathBuf> {
        let mut left = Vec::new();
        let mut open = vec![folder.to_path_buf()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
                if entry.file_name().to_string_lossy().starts_with(prefix) {
                    left.push(entry.path());
                }
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                }
            }
        }
        left
    }
}

/// Has each call of a process fail once, in each way, and looks at what is left.
async fn at_each_call(what: &str, before: &Rig, calls_min: u32, look: impl AsyncFn(&Try)) {
    let Some(disk) = FailingDisk::make() else { return };
    for failure in DiskFailure::ALL {
        for at in 1.. {
            let rig = Rig::new();
            copy(&before.root, &rig.root);
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "failing::child", "--nocapture"]).env(DO, what).env(FOLDER, &rig.root);
            let tried = disk.arm(&mut command, &rig.root, at, failure);
            let output = command.output().unwrap();
            let fired = tried.fired();
            let this = Try { rig, output, failure, at };
            assert!(fired || this.output.status.success(), "{}: {:?}", this.name(), this.output);
            assert!(
                !fired || !failure.is_survived() || this.output.status.success(),
                "{}: {:?}",
                this.name(),
                this.output
            );
            look(&this).await;
            if !fired {
                assert!(!this.has_failed(), "{}", this.name());
                assert!(at > calls_min || failure == DiskFailure::TornWrite, "only {at} calls were tried");
                break;
            }
            assert!(at < CALLS_MAX, "{what} does not come to its end");
        }
    }
}

#[tokio::test]
async fn whatever_call_fails_what_was_acknowledged_is_there() {
    let before = Rig::new();
    let thread_id = filled(&before).await.id();
    drop(before.alone());
    at_each_call("append", &before, 15, async |this: &Try| {
        let store = this.rig.open();
        let said = words(&store, thread_id).await;
        let name = this.name();
        assert!((3 + this.done()..=3 + APPENDS).contains(&said.len()), "{name}: {} words", said.len());
        assert!(said.iter().enumerate().all(|(number, word)| word.starts_with(&format!("{number:08}"))), "{name}");
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "{name}: {check:?}");
        if this.failure.is_survived() {
            // Of what was refused only the very last may be there: it was written, and could not be synced.
            let last_refused = usize::from(this.said().trim_end().contains("failed"));
            assert!(said.len() <= 3 + this.done() + last_refused, "{name}: {} words", said.len());
            assert_eq!(this.left(&this.rig.blobs(), ".new-"), [""; 0].map(PathBuf::from), "{name}");
        }
        let mut thread = this.rig.known(&store, thread_id).await;
        let seq = thread.say(&store, &format!("{:08}", said.len())).await.unwrap();
        assert_eq!(seq, Seq::new(said.len() as u64 + 2), "{name}");
        assert!(store.check().await.unwrap().is_whole(), "{name}");
    })
    .await;
}

#[tokio::test]
async fn whatever_call_of_a_copy_fails_it_is_whole_or_not_there() {
    let before = Rig::new();
    let thread_id = filled(&before).await.id();
    drop(before.alone());
    std::fs::create_dir(before.root.join("out")).unwrap();
    at_each_call("back up", &before, 10, async |this: &Try| {
        let (name, copy) = (this.name(), this.rig.root.join("out/copy.tar"));
        if copy.exists() {
            let other = Rig::new();
            restore(&copy, &other.database(), &other.blobs(), "now").unwrap();
            assert_eq!(words(&other.open(), thread_id).await.len(), 3, "{name}");
        } else {
            assert_eq!(this.done(), 0, "{name}");
        }
        if this.failure.is_survived() {
            assert_eq!(this.left(&this.rig.root.join("out"), "."), [""; 0].map(PathBuf::from), "{name}");
        }
        let store = this.rig.open();
        assert_eq!(words(&store, thread_id).await.len(), 3, "{name}");
        assert!(store.check().await.unwrap().is_whole(), "{name}");
    })
    .await;
}

#[tokio::test]
async fn whatever_call_of_a_restore_fails_there_is_one_whole_store() {
    let (before, other) = (Rig::new(), Rig::new());
    let old = filled(&before).await.id();
    let store = other.open();
    let body = store.blobs().put(b"of the copy", "x").unwrap();
    // Another one than that of the store before: its ids begin at the same seed.
    drop(other.thread());
    let mut thread = other.thread();
    thread.say(&store, &format!("new blob:{}", body.hash)).await.unwrap();
    store.back_up(before.root.join("copy.tar")).await.unwrap();
    at_each_call("restore", &before, 10, async |this: &Try| {
        let name = this.name();
        let store = this.rig.open();
        let is_new = store.thread(thread.id()).await.unwrap().is_some();
        let is_old = store.thread(old).await.unwrap().is_some();
        assert!(is_new != is_old, "{name}: new {is_new}, old {is_old}");
        assert!(this.done() == 0 || is_new, "{name}");
        let check = store.check().await.unwrap();
        assert!(check.is_whole() && check.threads == 1 && check.bodies == 1, "{name}: {check:?}");
        // Nothing of the other is mixed in, and what was there before is kept.
        assert_eq!(check.orphans, 0, "{name}");
        let former = this.rig.root.join("data/before-restore-now");
        assert_eq!(former.join("mcode.db").exists(), is_new, "{name}");
        if is_new {
            let clock = std::sync::Arc::clone(&this.rig.clock) as std::sync::Arc<dyn mcode_env::Clock>;
            let former = Store::open(former.join("mcode.db"), former.join("blobs"), clock).unwrap();
            assert_eq!(words(&former, old).await.len(), 3, "{name}");
        }
    })
    .await;
}

/// The version of the schema of a database that nobody has open.
fn version(database: impl AsRef<std::path::Path>) -> i64 {
    Connection::open(database).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn whatever_call_of_a_migration_fails_the_next_start_finishes_it() {
    let before = Rig::new();
    let thread_id = filled(&before).await.id();
    let connection = before.alone();
    connection
        .execute_batch(
            "DROP INDEX plans_by_time; DROP INDEX plans_settled; DROP TABLE leaving; DROP TABLE retention;
             PRAGMA user_version = 7; PRAGMA auto_vacuum = NONE; VACUUM",
        )
        .unwrap();
    drop(connection);
    let fresh = Rig::new();
    drop(fresh.open());
    let newest = version(fresh.database());
    at_each_call("migrate", &before, 10, async |this: &Try| {
        let name = this.name();
        let store = this.rig.open();
        assert_eq!(words(&store, thread_id).await.len(), 3, "{name}");
        assert!(store.check().await.unwrap().is_whole(), "{name}");
        store.forget_rest().await.unwrap();
        drop(store);
        assert_eq!(version(this.rig.database()), newest, "{name}");
    })
    .await;
}

#[tokio::test]
async fn whatever_call_of_a_deletion_fails_the_thread_is_there_or_gone_for_good() {
    let before = Rig::new();
    let store = before.open();
    let mut stays = before.thread();
    stays.say(&store, "stays").await.unwrap();
    drop(store);
    let mut thread = filled(&before).await;
    let store = before.open();
    let many = (0..300).map(|number| notice(&format!("{:08}", number + 3))).collect();
    store.append(thread.next(many, 10)).await.unwrap();
    drop(store);
    drop(before.alone());
    at_each_call("delete", &before, 10, async |this: &Try| {
        let name = this.name();
        let store = this.rig.open();
        assert_eq!(words(&store, stays.id()).await, ["stays"], "{name}");
        assert!(store.check().await.unwrap().is_whole(), "{name}");
        let is_there = store.thread(thread.id()).await.unwrap().is_some();
        assert!(!is_there || this.done() == 0, "{name}");
        if is_there {
            assert_eq!(words(&store, thread.id()).await.len(), 303, "{name}");
        }
        store.forget_rest().await.unwrap();
        let left: i64 = Connection::open(this.rig.database())
            .unwrap()
            .query_row("SELECT count(*) FROM events WHERE thread_id <> ?1", [stays.id().to_string()], |row| row.get(0))
            .unwrap();
        assert_eq!(left, if is_there { 304 } else { 0 }, "{name}");
    })
    .await;
}
