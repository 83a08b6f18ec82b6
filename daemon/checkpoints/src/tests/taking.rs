//! Taking snapshots.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering;

use super::*;
use crate::CheckpointError;
use crate::disk::faults::Fault;

#[test]
fn a_snapshot_holds_what_git_would_not_ignore() {
    let mut bed = Bed::new();
    bed.sh("git init -q .; echo '*.tmp' > .git/info/exclude");
    bed.write(".gitignore", "target/\n*.log\n!keep.log\n");
    bed.write("src/.ignore", "gen.rs\n");
    bed.write("own-list", "*.own\n");
    bed.settings.excludes = Some(bed.at("own-list"));
    for file in ["a.rs", "b.log", "keep.log", "c.tmp", "d.own", "target/x", "src/gen.rs", "src/lib.rs", ".hidden/x"] {
        bed.write(file, file);
    }
    let depot = bed.depot();
    let taken = take(&depot);
    let expected =
        [".gitignore", ".hidden", ".hidden/x", "a.rs", "keep.log", "own-list", "src", "src/.ignore", "src/lib.rs"];
    assert_eq!(paths(&depot, taken.id), expected);
    let git = bed.sh("git -c core.excludesFile=own-list ls-files -co --exclude-standard");
    let ours: HashSet<String> = paths(&depot, taken.id).into_iter().filter(|path| bed.at(path).is_file()).collect();
    let mut theirs: HashSet<String> = git.lines().map(str::to_owned).collect();
    // Git knows no `.ignore`.
    theirs.remove("src/gen.rs");
    assert_eq!(ours, theirs);
    assert_eq!(taken.files, ours.len() as u64);
}

#[test]
fn repositories_within_count_and_their_git_does_not() {
    let bed = Bed::new();
    bed.sh("git init -q .; git init -q sub; git init -q other; echo secret > sub/.git/info/exclude");
    bed.write(".gitignore", "*.o\nother/\n");
    bed.write("sub/.gitignore", "*.x\n");
    for file in ["sub/a.o", "sub/b.x", "sub/secret", "sub/c", "other/d", "e.o"] {
        bed.write(file, "");
    }
    let depot = bed.depot();
    assert_eq!(paths(&depot, take(&depot).id), [".gitignore", "sub", "sub/.gitignore", "sub/a.o", "sub/c"]);
    // A folder that is only called so is none.
    bed.sh("rm -rf sub/.git; mkdir sub/.git");
    assert_eq!(paths(&depot, take(&depot).id), [".gitignore", "sub", "sub/.gitignore", "sub/c", "sub/secret"]);
}

#[test]
fn a_worktree_and_a_folder_of_a_repository_have_its_rules() {
    let bed = Bed::new();
    bed.sh("git init -q main; cd main; git -c user.name=n -c user.email=e commit -q --allow-empty -m m; echo '*.x' > .git/info/exclude; git worktree add -q ../project-tree 2>/dev/null; mv ../project-tree ../tree-moved || true");
    let tree = bed.at("tree-moved");
    fs::write(tree.join("a.x"), "").unwrap();
    fs::write(tree.join("b"), "").unwrap();
    let depot = Depot::open(&bed.folder.join("tree"), &tree, bed.settings.clone()).unwrap();
    assert_eq!(paths(&depot, take(&depot).id), ["b"]);

    let sub = bed.at("main/packages/app");
    fs::create_dir_all(sub.join("out")).unwrap();
    fs::write(bed.at("main/.gitignore"), "/packages/app/out\n*.y\n").unwrap();
    for file in ["out/1", "a.x", "a.y", "z"] {
        fs::write(sub.join(file), "").unwrap();
    }
    let depot = Depot::open(&bed.folder.join("sub"), &sub, bed.settings.clone()).unwrap();
    assert_eq!(paths(&depot, take(&depot).id), ["z"]);
}

#[test]
fn what_git_tracks_is_not_ignored() {
    for (number, version) in ["2", "3", "4"].into_iter().enumerate() {
        let bed = Bed::new();
        let format = if number == 1 { "sha256" } else { "sha1" };
        bed.sh(&format!("git init -q --object-format={format} .; git config index.version {version}"));
        bed.write(".gitignore", "dist/\n*.log\n");
        for file in ["a", "x.log", "y.log", "dist/js/app.js", "dist/js/other.js", "dist/css/z", "dist/.gitignore"] {
            bed.write(file, file);
        }
        bed.sh("git add -f a x.log dist/js/app.js; git add -N -f dist/css/z");
        let depot = bed.depot();
        let first = take(&depot);
        let expected = [".gitignore", "a", "dist", "dist/css", "dist/css/z", "dist/js", "dist/js/app.js", "x.log"];
        assert_eq!(paths(&depot, first.id), expected, "{version}");
        assert_eq!(take(&depot).read, 0);
        // What is no longer tracked is ignored again, also after a restart.
        bed.sh("git rm -q --cached x.log; git rm -q --cached -f dist/css/z; git add -f y.log");
        drop(depot);
        let depot = bed.depot();
        let expected = [".gitignore", "a", "dist", "dist/js", "dist/js/app.js", "y.log"];
        assert_eq!(paths(&depot, take(&depot).id), expected, "{version}");
        // A file that the agent has git track was there before.
        let before = take(&depot).id;
        bed.sh("git add -f x.log");
        let restored = bring_back(&depot, before, take(&depot).id, &[], false);
        assert_eq!(conflicts(&restored.conflicts), ["x.log: it was ignored before, and may have been there"]);
        assert_eq!(bed.read("x.log"), "x.log");
    }
}

#[test]
fn what_did_not_change_is_not_read_again_also_after_a_restart() {
    let bed = Bed::new();
    for number in 0..300 {
        bed.write(&format!("f{}/{number}", number % 7), number.to_string());
    }
    let depot = bed.depot();
    let first = take(&depot);
    assert_eq!((first.read, first.files, first.is_new), (300, 300, true));
    let second = take(&depot);
    assert_eq!((second.read, second.added_bytes, second.is_new, second.id), (0, 0, false, first.id));
    bed.write("f3/3", "x");
    let third = take(&depot);
    assert_eq!(third.read, 1);
    drop(depot);
    let depot = bed.depot();
    assert_eq!(take(&depot).read, 0);
    assert_eq!(changes(&depot, first.id, third.id), ["M f3/3"]);
    drop(depot);
    // Damage to the cache costs time only.
    let cache = bed.folder.join("cache");
    let mut bytes = fs::read(&cache).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&cache, &bytes).unwrap();
    let depot = bed.depot();
    let again = take(&depot);
    assert_eq!((again.read, again.id, again.added_bytes), (300, third.id, 0));
    drop(depot);
    fs::write(&cache, &bytes[..10]).unwrap();
    assert_eq!(take(&bed.depot()).read, 300);
}

#[test]
fn a_change_that_looks_the_same_is_found() {
    let bed = Bed::new();
    // The present: what is written now is too fresh to be trusted.
    bed.clock.advance_millis(-3_600_000);
    bed.write("a", "one");
    let depot = bed.depot();
    let first = take(&depot);
    assert_eq!(take(&depot).read, 1, "it is read again while it is fresh");
    let modified = fs::metadata(bed.at("a")).unwrap().modified().unwrap();
    bed.write("a", "two");
    fs::File::options().write(true).open(bed.at("a")).unwrap().set_modified(modified).unwrap();
    let second = take(&depot);
    assert_eq!(changes(&depot, first.id, second.id), ["M a"]);
    bed.clock.advance_millis(3_600_000);
    assert_eq!((take(&depot).read, take(&depot).read), (1, 0), "it is trusted once it was read later");
}

#[test]
fn a_hint_looks_only_where_it_is_told_to() {
    let bed = Bed::new();
    for file in ["a/b/one", "a/c/two", "d/three"] {
        bed.write(file, "old");
    }
    let depot = bed.depot();
    let first = take(&depot);
    for file in ["a/b/one", "a/c/two", "a/new/deep/x", "d/three"] {
        bed.write(file, "new");
    }
    let hint = [path("a/b/one"), path("a/new/deep/x")];
    let second = depot.snapshot(Hint::Only(&hint)).unwrap();
    assert_eq!(changes(&depot, first.id, second.id), ["M a/b/one", "A a/new/deep/x"]);
    let third = take(&depot);
    assert_eq!(changes(&depot, second.id, third.id), ["M a/c/two", "M d/three"]);
    // A list of what is ignored changes what is seen below it.
    bed.write("a/.gitignore", "two\n");
    let fourth = depot.snapshot(Hint::Only(&[path("a/.gitignore")])).unwrap();
    assert_eq!(changes(&depot, third.id, fourth.id), ["A a/.gitignore", "D a/c/two"]);
    fs::remove_dir_all(bed.at("a")).unwrap();
    let fifth = depot.snapshot(Hint::Only(&[path("a")])).unwrap();
    assert_eq!(paths(&depot, fifth.id), ["d", "d/three"]);
    // Nothing is known yet: everything is looked at.
    assert_eq!(bed.depot().snapshot(Hint::Only(&[])).unwrap().id, fifth.id);
}

#[test]
fn all_kinds_of_changes_are_told_apart() {
    let bed = Bed::new();
    bed.write("keep", "k");
    bed.write("change", "one");
    bed.write("gone", "gone");
    bed.write("old/name.rs", "the same content");
    bed.write("kind", "file");
    bed.write("folder/x", "y");
    fs::create_dir(bed.at("empty")).unwrap();
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.sh("echo two > change; rm gone; mkdir new; mv old/name.rs new/name.rs; rmdir old empty; rm kind; mkdir kind; echo a > kind/in; echo n > added; mkdir -p hollow/deep");
    let after = take(&depot).id;
    let expected = [
        "A added",
        "M change",
        "D empty",
        "D gone",
        "A hollow/deep",
        "T kind",
        "A kind/in",
        "R old/name.rs -> new/name.rs",
    ];
    assert_eq!(changes(&depot, before, after), expected);
    let expected = [
        "D added",
        "M change",
        "A empty",
        "A gone",
        "D hollow/deep",
        "T kind",
        "D kind/in",
        "R new/name.rs -> old/name.rs",
    ];
    assert_eq!(changes(&depot, after, before), expected);
    assert_eq!(changes(&depot, before, before), Vec::<String>::new());
    let modified =
        depot.changes(before, after).unwrap().into_iter().find(|change| change.path == path("change")).unwrap();
    let sizes = [modified.before, modified.after].map(|node| node.unwrap().size_bytes());
    assert_eq!(sizes, [3, 4]);
    assert_eq!(
        depot.diff(before, after, &path("change")).unwrap().unified(),
        "--- a/change\n+++ b/change\n@@ -1,1 +1,1 @@\n-one\n\\ No newline at end of file\n+two\n"
    );
    assert!(matches!(depot.diff(before, after, &path("keep")), Err(CheckpointError::NoChange { .. })));
    assert_eq!(depot.diff(before, after, &path("kind")).unwrap().body, crate::DiffBody::NoContent);
}

#[test]
fn a_rename_keeps_its_name_where_it_can() {
    let bed = Bed::new();
    for file in ["a/mod.rs", "b/mod.rs", "c/x.rs"] {
        bed.write(file, "same");
    }
    bed.write("e1", "");
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.sh("mkdir n; mv c/x.rs n/x.rs; mv b/mod.rs n/mod.rs; mv a/mod.rs n/other.rs; mv e1 e2; rmdir a b c");
    let expected = ["D e1", "A e2", "R b/mod.rs -> n/mod.rs", "R a/mod.rs -> n/other.rs", "R c/x.rs -> n/x.rs"];
    assert_eq!(changes(&depot, before, take(&depot).id), expected);
}

#[test]
fn large_files_are_noted_and_told_apart() {
    let mut bed = Bed::new();
    bed.settings.limits.file_bytes = 100;
    bed.write("small", [b'x'; 100]);
    bed.write("d/large", [b'x'; 101]);
    let depot = bed.depot();
    let first = take(&depot);
    assert_eq!((first.files, first.large), (1, 1));
    assert!(matches!(&first.noted[..], [(at, Node::Large { size_bytes: 101, .. })] if *at == path("d/large")));
    bed.write("d/large", [b'x'; 102]);
    let second = take(&depot);
    assert_eq!(changes(&depot, first.id, second.id), ["M d/large"]);
    assert_eq!(depot.diff(first.id, second.id, &path("d/large")).unwrap().body, crate::DiffBody::NoContent);
    // Another limit means another look.
    drop(depot);
    bed.settings.limits.file_bytes = 1000;
    assert_eq!(take(&bed.depot()).large, 0);
}

#[test]
fn limits_are_reached_and_say_so() {
    let mut bed = Bed::new();
    bed.settings.limits.entries = 10;
    for number in 0..10 {
        bed.write(&number.to_string(), number.to_string());
    }
    bed.write(".gitignore", "1*\n");
    let depot = bed.depot();
    let fits = take(&depot);
    bed.write("extra", "");
    let error = depot.snapshot(Hint::None).unwrap_err();
    assert!(matches!(error, CheckpointError::TooManyFiles { limit: 10 }) && error.turns_off(), "{error}");
    assert!(depot.holds(fits.id) && fs::read_dir(bed.folder.join("new")).unwrap().next().is_none());
    for number in 100..200 {
        bed.write(&number.to_string(), "");
    }
    fs::remove_file(bed.at("extra")).unwrap();
    assert_eq!(take(&depot).id, fits.id, "ignored files do not count");
    depot.stop();
    assert!(matches!(depot.snapshot(Hint::None), Err(CheckpointError::Stopped)));
    drop(depot);

    bed.settings.limits.snapshot_ms = 0;
    bed.settings.clock = Arc::new(Ticking(std::sync::atomic::AtomicI64::new(0)));
    let error = bed.depot().snapshot(Hint::None).unwrap_err();
    assert!(matches!(error, CheckpointError::TooSlow { .. }) && error.turns_off(), "{error}");
}

/// A clock that goes on with each look.
#[derive(Debug)]
struct Ticking(std::sync::atomic::AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> mcode_env::Timestamp {
        mcode_env::Timestamp::from_millis(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

#[test]
fn a_clock_that_jumps_ends_no_snapshot() {
    let mut bed = Bed::new();
    bed.write("a", "x");
    bed.settings.limits.snapshot_ms = 10_000;
    let clock = bed.clock.clone();
    let depot = bed.depot();
    take(&depot);
    // A machine that slept for a day between two looks at the clock.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let budget = crate::scan::Budget::new(&*clock, &stop, 10_000);
    clock.advance_millis(86_400_000);
    assert!(budget.check().is_ok());
    for _ in 0..4 {
        clock.advance_millis(1_999);
        assert!(budget.check().is_ok());
    }
    clock.advance_millis(2_000);
    assert!(matches!(budget.check(), Err(CheckpointError::TooSlow { .. })));
}

#[test]
fn mcodes_own_data_in_the_project_is_left_out() {
    let mut bed = Bed::new();
    bed.folder = bed.at("home/data/checkpoints/x");
    fs::create_dir_all(bed.at("home/state")).unwrap();
    bed.settings.skip = vec![bed.at("home/state"), bed.at("not-there")];
    bed.write("home/state/log", "x");
    bed.write("home/mine", "x");
    let depot = bed.depot();
    let first = take(&depot);
    assert_eq!(paths(&depot, first.id), ["home", "home/data", "home/data/checkpoints", "home/mine"]);
    assert_eq!(take(&depot).id, first.id);
}

#[test]
fn two_depots_on_one_folder_see_each_others_snapshots() {
    let mut bed = Bed::new();
    bed.settings.limits.lock_ms = 600_000;
    bed.write("a", "one");
    let (one, other) = (bed.depot(), bed.depot());
    let first = take(&one);
    assert_eq!(take(&other).id, first.id);
    std::thread::scope(|scope| {
        for (number, depot) in [&one, &other, &one, &other].into_iter().enumerate() {
            let bed = &bed;
            scope.spawn(move || {
                for round in 0..10 {
                    bed.write(&format!("t{number}/{round}"), format!("{number} {round}"));
                    let taken = take(depot);
                    assert!(paths(depot, taken.id).contains(&format!("t{number}/{round}")));
                }
            });
        }
    });
    let last = take(&one);
    assert_eq!(file_text(&other, last.id, "t3/9"), "3 9");
    assert!(other.verify().unwrap().damage.is_empty());
    // Who can not get the lock says so.
    drop((one, other));
    bed.settings.limits.lock_ms = 0;
    let depot = bed.depot();
    let lock = fs::File::options().append(true).open(bed.folder.join("lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(depot.snapshot(Hint::None), Err(CheckpointError::Busy { .. })));
}

#[test]
fn a_full_disk_leaves_nothing_half_done() {
    let bed = Bed::new();
    bed.write("a", "one");
    let depot = bed.depot();
    let first = take(&depot);
    let steps = bed.disk.faults.steps();
    bed.write("b", "two".repeat(1000));
    take(&depot);
    let steps = bed.disk.faults.steps() - steps;
    assert!(steps >= 5, "{steps}");
    for after in 0..steps {
        bed.write("b", format!("{after}").repeat(1000));
        bed.disk.faults.after(after, Fault::Full);
        let error = depot.snapshot(Hint::None).unwrap_err();
        assert!(matches!(error, CheckpointError::NoSpace { .. }), "{after}: {error}");
        bed.disk.faults.none();
        assert!(fs::read_dir(bed.folder.join("new")).unwrap().next().is_none(), "{after}");
        assert_eq!(file_text(&depot, first.id, "a"), "one");
        assert!(depot.verify().unwrap().damage.is_empty());
    }
    let last = take(&depot);
    assert_eq!(file_text(&depot, last.id, "b").len(), 1000 * (steps - 1).to_string().len());
}

#[test]
fn what_a_newer_version_made_is_left_alone() {
    let bed = Bed::new();
    drop(bed.depot());
    fs::write(bed.folder.join("project"), "mcode depot 2\n/x\n").unwrap();
    let error = Depot::open(&bed.folder, &bed.root, bed.settings.clone()).unwrap_err();
    assert!(matches!(error, CheckpointError::TooNew { .. }));
}

#[test]
fn the_users_list_is_where_gits_settings_say() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(crate::global_excludes(home, None), home.join(".config/git/ignore"));
    let config = home.join("elsewhere");
    assert_eq!(crate::global_excludes(home, Some(&config)), config.join("git/ignore"));
    fs::create_dir_all(home.join(".config/git")).unwrap();
    fs::write(home.join(".config/git/config"), "[core]\n\texcludesFile = /first\n").unwrap();
    assert_eq!(crate::global_excludes(home, None), Path::new("/first"));
    fs::write(home.join(".gitconfig"), "[core]\n\texcludesfile = \"~/my ignore\"\n").unwrap();
    assert_eq!(crate::global_excludes(home, None), home.join("my ignore"));
}
