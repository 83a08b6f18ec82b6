//! Measures snapshots of a large project: `cargo run --release -p mcode-checkpoints --example measure [FOLDER]`.
//!
//! Without a folder it makes a project of 50,000 files. A folder that is given is only looked at.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, reason = "a tool for developers")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use mcode_checkpoints::{Choice, Depot, Hint, Limits, Settings, Snapshot, Span, TreePath};
use mcode_env::SystemClock;

const FOLDERS: usize = 2500;
const FILES_EACH: usize = 20;

fn main() {
    let kept = tempfile::tempdir().unwrap();
    let given = std::env::args().nth(1).map(PathBuf::from);
    let root = match &given {
        Some(folder) => folder.canonicalize().unwrap(),
        None => {
            let root = kept.path().canonicalize().unwrap().join("project");
            make(&root);
            // Files that were changed just now are read again.
            std::thread::sleep(std::time::Duration::from_millis(2100));
            root
        }
    };
    let folder = Depot::folder(kept.path(), &root);
    let settings =
        Settings { clock: Arc::new(SystemClock), excludes: None, skip: Vec::new(), limits: Limits::default() };
    let open = || Depot::open(&folder, &root, settings.clone()).unwrap();
    let depot = open();
    let first = take("first", &depot, Hint::None);
    println!("  {} files, {} MB; on disk {} MB", first.files, first.bytes >> 20, first.added_bytes >> 20);
    for _ in 0..5 {
        take("unchanged", &depot, Hint::None);
    }
    drop(depot);
    let start = Instant::now();
    let depot = open();
    println!("{:<34}{:>8.1} ms", "open", start.elapsed().as_secs_f64() * 1e3);
    take("unchanged, after a restart", &depot, Hint::None);
    if given.is_some() {
        return;
    }
    std::fs::write(root.join("f0007/file3.rs"), "changed\n").unwrap();
    take("1 file changed", &depot, Hint::None);
    let path: TreePath = "f0008/file3.rs".parse().unwrap();
    std::fs::write(root.join("f0008/file3.rs"), "changed too\n").unwrap();
    let before = take("1 file changed, with a hint", &depot, Hint::Only(&[path]));
    for number in 0..100 {
        std::fs::write(root.join(format!("f{:04}/file1.rs", number * 20)), format!("changed {number}\n")).unwrap();
    }
    let after = take("100 files changed", &depot, Hint::None);
    take("unchanged, 101 changed just before", &depot, Hint::None);
    let start = Instant::now();
    let changes = depot.changes(before.id, after.id).unwrap();
    println!("{:<34}{:>8.1} ms", format!("changes ({})", changes.len()), start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let span = Span { before: before.id, after: after.id };
    let plan = depot.plan(&[span], &Choice::default(), after.id).unwrap();
    println!("{:<34}{:>8.1} ms", "plan", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let restored = depot.restore(&plan).unwrap();
    println!("{:<34}{:>8.1} ms", format!("restore ({})", restored.done.len()), start.elapsed().as_secs_f64() * 1e3);
    assert_eq!(restored.after, Some(before.id));
}

fn take(what: &str, depot: &Depot, hint: Hint<'_>) -> Snapshot {
    let start = Instant::now();
    let snapshot = depot.snapshot(hint).unwrap();
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    println!("{what:<34}{elapsed:>8.1} ms   read {:>6}, {:>10} bytes more", snapshot.read, snapshot.added_bytes);
    snapshot
}

/// Text that is about as dull as source text.
fn make(root: &Path) {
    let words =
        ["let", "fn", "match", "self", "result", "value", "return", "struct", "impl", "for", "in", "=>", "{", "}"];
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for folder in 0..FOLDERS {
        let path = root.join(format!("f{folder:04}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..FILES_EACH {
            let mut text = String::new();
            for _ in 0..next() % 400 {
                let word = usize::try_from(next() % 14).unwrap();
                writeln!(text, "    {} name_{:x} {}", words[word], next() % 4096, words[(word + 5) % 14]).unwrap();
            }
            std::fs::write(path.join(format!("file{file}.rs")), text).unwrap();
        }
    }
    std::fs::write(root.join(".gitignore"), "target/\n*.o\n").unwrap();
}
