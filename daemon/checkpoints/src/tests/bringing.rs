//! Bringing back.

use std::fs;

use super::*;
use crate::{CheckpointError, ConflictKind};

#[test]
fn whatever_changed_a_file_it_comes_back_byte_for_byte() {
    let bed = Bed::new();
    bed.write("removed.bin", [0, 255, 10, 13, 10]);
    bed.write("dir/moved.txt", "to be moved\r\n");
    bed.write("sed.txt", "one\ntwo\nthree");
    bed.write("deep/er/x", "x");
    bed.write("becomes-folder", "f");
    bed.write("becomes-file/in", "i");
    bed.write("untouched", "u");
    fs::create_dir(bed.at("empty")).unwrap();
    #[cfg(unix)]
    bed.sh("chmod 755 sed.txt; ln -s sed.txt link; ln -s nowhere dangling");
    let before_listing = listing(&bed.root);
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.sh(
        "rm removed.bin; mkdir -p made/by; mv dir/moved.txt made/by/agent.txt; rmdir dir; sed -i s/two/2/ sed.txt; \
         rm -r deep empty; rm becomes-folder; mkdir becomes-folder; echo x > becomes-folder/y; rm -r becomes-file; \
         echo now > becomes-file; echo new > brand-new",
    );
    #[cfg(unix)]
    bed.sh("chmod 600 sed.txt; ln -sf untouched link; rm dangling; echo file > dangling");
    let after_listing = listing(&bed.root);
    let after = take(&depot).id;
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(listing(&bed.root), before_listing);
    assert_eq!((restored.after, restored.conflicts.len(), restored.kept_folders.len()), (Some(before), 0, 0));
    assert_eq!(restored.undo, after);
    // And that can be undone.
    let undone = bring_back(&depot, restored.undo, restored.after.unwrap(), &[], false);
    assert_eq!((listing(&bed.root), undone.after), (after_listing, Some(after)));
}

#[test]
fn what_the_user_changed_since_is_left_alone() {
    let bed = Bed::new();
    for file in ["edited", "deleted", "both", "gone-again"] {
        bed.write(file, "old");
    }
    let depot = bed.depot();
    let before = take(&depot).id;
    for file in ["edited", "deleted", "both", "made", "made-too"] {
        bed.write(file, "agent");
    }
    bed.sh("rm gone-again");
    let after = take(&depot).id;
    bed.write("edited", "user");
    bed.sh("rm deleted made-too");
    bed.write("gone-again", "user's own");
    bed.write("both", "old");
    bed.write("other", "user");
    let restored = bring_back(&depot, before, after, &[], false);
    let expected =
        ["deleted: it was deleted since", "edited: it was changed since", "gone-again: it was changed since"];
    assert_eq!(conflicts(&restored.conflicts), expected);
    assert_eq!(
        (bed.read("edited"), bed.read("gone-again"), bed.read("other")),
        ("user".into(), "user's own".into(), "user".into())
    );
    assert!(!bed.at("deleted").exists() && !bed.at("made").exists());
    // Forced, for chosen paths only.
    let restored = bring_back(&depot, before, after, &["edited", "deleted"], true);
    assert!(restored.conflicts.is_empty());
    assert_eq!(
        (bed.read("edited"), bed.read("deleted"), bed.read("gone-again")),
        ("old".into(), "old".into(), "user's own".into())
    );
    assert_eq!(file_text(&depot, restored.undo, "edited"), "user", "what was forced away is kept");
}

#[test]
fn what_changes_between_plan_and_restore_is_left_alone() {
    let bed = Bed::new();
    for file in ["a", "b", "c"] {
        bed.write(file, "old");
    }
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("a", "agent");
    bed.write("new", "agent");
    bed.sh("rm b c");
    let after = take(&depot).id;
    let plan = depot.plan(&[Span { before, after }], &Choice::default(), after).unwrap();
    bed.write("a", "user");
    bed.write("new", "user");
    bed.write("b", "user");
    let restored = depot.restore(&plan).unwrap();
    assert_eq!(
        conflicts(&restored.conflicts),
        ["new: it was changed since", "a: it was changed since", "b: it was changed since"]
    );
    assert_eq!(restored.done, [path("c")]);
    assert_eq!(["a", "b", "c", "new"].map(|file| bed.read(file)), ["user", "user", "old", "user"]);
    assert_eq!(fs::read_dir(&bed.root).unwrap().count(), 4, "nothing is left beside them");
}

#[test]
fn who_saves_at_the_very_moment_loses_nothing() {
    // Right before the names change places, or before what is removed is taken aside.
    for (file, step) in [("a", "exchange"), ("new", "rename"), ("gone", "rename")] {
        let bed = Bed::new();
        bed.write("a", "old");
        bed.write("gone", "old");
        let depot = bed.depot();
        let before = take(&depot).id;
        bed.write("a", "agent");
        bed.write("new", "agent");
        fs::remove_file(bed.at("gone")).unwrap();
        let after = take(&depot).id;
        let choice = Choice { picks: Some(vec![Pick { path: path(file), hunks: None }]), force: false };
        let plan = depot.plan(&[Span { before, after }], &choice, after).unwrap();
        let saved = bed.at(file);
        // A rename in the depot comes before that in the project, when something is new.
        let disk = bed.disk.clone();
        bed.disk.faults.meddle("replace", move || {
            disk.faults.meddle(step, move || fs::write(saved, "the user's").unwrap());
        });
        let restored = depot.restore(&plan).unwrap();
        assert_eq!(bed.read(file), "the user's");
        assert_eq!(conflicts(&restored.conflicts), [format!("{file}: it was changed since")]);
        assert!(listing(&bed.root).keys().all(|name| !name.contains("mcode")), "{file}");
    }
}

#[test]
fn ignored_files_stay_even_when_the_agent_changed_what_is_ignored() {
    let bed = Bed::new();
    bed.write(".gitignore", ".env\nlogs/\n");
    bed.write(".env", "KEY=1");
    bed.write("logs/old", "l");
    bed.write("notes.txt", "n");
    let depot = bed.depot();
    let before = take(&depot).id;
    // The agent stops ignoring some, and ignores others.
    bed.write(".gitignore", "*.txt\n");
    bed.write("made.rs", "m");
    let after = take(&depot).id;
    assert_eq!(changes(&depot, before, after), ["A .env", "M .gitignore", "A logs/old", "A made.rs", "D notes.txt"]);
    bed.write("notes.txt", "n, and the user's");
    let restored = bring_back(&depot, before, after, &[], false);
    let expected = [
        ".env: it was ignored before, and may have been there",
        "logs/old: it was ignored before, and may have been there",
        "notes.txt: it was changed since",
    ];
    assert_eq!(conflicts(&restored.conflicts), expected);
    assert_eq!(
        (bed.read(".env"), bed.read("logs/old"), bed.read("notes.txt")),
        ("KEY=1".into(), "l".into(), "n, and the user's".into())
    );
    assert_eq!((bed.read(".gitignore"), bed.at("made.rs").exists()), (".env\nlogs/\n".into(), false));
}

#[test]
fn chosen_files_and_folders_come_back_alone() {
    let bed = Bed::new();
    for file in ["a/x", "a/y", "b/z", "moved", "top"] {
        bed.write(file, format!("old {file}"));
    }
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.sh("echo 1 > a/x; rm -r a/y b; mv moved there; echo 2 > top");
    let after = take(&depot).id;
    bring_back(&depot, before, after, &["a", "b/z"], false);
    assert_eq!(["a/x", "a/y", "b/z"].map(|file| bed.read(file)), ["old a/x", "old a/y", "old b/z"]);
    assert_eq!((bed.read("top"), bed.read("there")), ("2\n".into(), "old moved".into()));
    // Either end of a rename stands for both.
    bring_back(&depot, before, after, &["there"], false);
    assert!(!bed.at("there").exists() && bed.read("moved") == "old moved");
    let wrong = Choice { picks: Some(vec![Pick { path: path("c"), hunks: None }]), force: false };
    let error = depot.plan(&[Span { before, after }], &wrong, after).unwrap_err();
    assert!(matches!(error, CheckpointError::NoChange { .. }), "{error}");
}

#[test]
fn chosen_hunks_come_back_alone() {
    let bed = Bed::new();
    let old: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    bed.write("f", &old);
    bed.write("g", "x");
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("f", old.replace("line 5\n", "five\n").replace("line 30\n", "").replace("line 55\n", "line 55\nmore\n"));
    bed.sh("rm g");
    let after = take(&depot).id;
    let spans = [Span { before, after }];
    let crate::DiffBody::Hunks(hunks) = depot.diff_spans(&spans, &path("f")).unwrap().body else { panic!() };
    assert_eq!(hunks.len(), 3);
    let pick = |file: &str, hunks: Vec<usize>| Choice {
        picks: Some(vec![Pick { path: path(file), hunks: Some(hunks) }]),
        force: true,
    };
    let plan = depot.plan(&spans, &pick("f", vec![1, 3]), after).unwrap();
    depot.restore(&plan).unwrap();
    assert_eq!(bed.read("f"), old.replace("line 30\n", ""));
    for (choice, what) in [(pick("f", vec![4]), "no such hunk"), (pick("g", vec![1]), "no file after")] {
        let error = depot.plan(&spans, &choice, after).unwrap_err();
        assert!(matches!(error, CheckpointError::NoHunk { .. } | CheckpointError::NotText { .. }), "{what}: {error}");
    }
    // The file is no longer what the hunks were taken from, which no force mends.
    bed.write("f", "user");
    let plan = depot.plan(&spans, &pick("f", vec![2]), take(&depot).id).unwrap();
    assert!(matches!(&plan.conflicts[..], [conflict] if matches!(conflict.kind, ConflictKind::ChangedSince { .. })));
}

#[test]
fn of_several_doings_the_first_state_comes_back_and_edits_between_are_seen() {
    let bed = Bed::new();
    for file in ["agent-twice", "user-between", "user-before"] {
        bed.write(file, "0");
    }
    let depot = bed.depot();
    let first = Span {
        before: take(&depot).id,
        after: {
            bed.write("agent-twice", "1");
            bed.write("user-between", "1");
            bed.write("made", "1");
            take(&depot).id
        },
    };
    bed.write("user-between", "user");
    bed.write("user-before", "user");
    let second = Span {
        before: take(&depot).id,
        after: {
            for file in ["agent-twice", "user-between", "user-before", "made"] {
                bed.write(file, "2");
            }
            take(&depot).id
        },
    };
    let plan = depot.plan(&[first, second], &Choice::default(), second.after).unwrap();
    assert_eq!(conflicts(&plan.conflicts), ["user-between: somebody else changed it in between"]);
    depot.restore(&plan).unwrap();
    assert_eq!(
        (bed.read("agent-twice"), bed.read("user-before"), bed.read("user-between")),
        ("0".into(), "user".into(), "2".into())
    );
    assert!(!bed.at("made").exists());
}

#[test]
fn folders_of_the_agents_go_when_nothing_else_is_in_them() {
    let bed = Bed::new();
    bed.write(".gitignore", "*.o\n");
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("mine/a", "agent");
    bed.write("shared/b", "agent");
    bed.write("built/c", "agent");
    let after = take(&depot).id;
    bed.write("shared/users", "user");
    bed.write("built/c.o", "ignored");
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(restored.kept_folders, [path("built"), path("shared")]);
    assert!(!bed.at("mine").exists() && !bed.at("shared/b").exists());
    assert_eq!((bed.read("shared/users"), bed.read("built/c.o")), ("user".into(), "ignored".into()));
}

#[test]
fn what_is_in_the_way_of_a_folder_is_named() {
    let bed = Bed::new();
    bed.write("d/x", "x");
    bed.write("d/y", "y");
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.sh("rm -r d");
    let after = take(&depot).id;
    bed.write("d", "the user's file");
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(
        conflicts(&restored.conflicts),
        ["d: it was changed since", "d/x: d is in the way", "d/y: d is in the way"]
    );
    assert_eq!(bed.read("d"), "the user's file");
    // A folder that nobody needed any more is made again.
    bed.sh("rm d");
    bring_back(&depot, before, after, &["d/x"], false);
    assert!(bed.read("d/x") == "x" && !bed.at("d/y").exists());
}

#[test]
fn what_would_be_lost_or_is_not_kept_is_left_alone() {
    let mut bed = Bed::new();
    bed.settings.limits.file_bytes = 10;
    bed.write("grows", "small");
    bed.write("was-large", "x".repeat(20));
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("grows", "y".repeat(30));
    bed.write("made-large", "z".repeat(30));
    bed.write("was-large", "small");
    let after = take(&depot).id;
    let restored = bring_back(&depot, before, after, &[], false);
    let expected = [
        "grows: what is there now is not kept and would be lost",
        "made-large: what is there now is not kept and would be lost",
        "was-large: what was there is not kept: it was too large or could not be read",
    ];
    assert_eq!(conflicts(&restored.conflicts), expected);
    let restored = bring_back(&depot, before, after, &[], true);
    assert_eq!(conflicts(&restored.conflicts), expected[2..]);
    assert_eq!(
        (bed.read("grows"), bed.at("made-large").exists(), bed.read("was-large")),
        ("small".into(), false, "small".into())
    );
}

#[test]
fn a_damaged_content_is_a_conflict_and_never_written() {
    let bed = Bed::new();
    bed.write("a", "the old content");
    bed.write("b", "another");
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("a", "agent");
    bed.write("b", "agent");
    let after = take(&depot).id;
    keeping::damage(&bed, b"the old content");
    let depot = bed.depot();
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(conflicts(&restored.conflicts), ["a: what was there is damaged in the store of checkpoints"]);
    assert_eq!((bed.read("a"), bed.read("b")), ("agent".into(), "another".into()));
}
