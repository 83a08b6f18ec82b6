//! The process ends at any change of the disk: nothing that was acknowledged is lost, and a restore can be finished.

use std::collections::HashSet;
use std::fs;

use mcode_env::Timestamp;

use super::*;
use crate::disk::faults::{ENDED, Fault};

/// What the child does, and after how many steps it ends: `folder|job|steps`.
const CHILD: &str = "MCODE_TEST_CUT";

/// A bed in a folder that outlives this process.
fn bed_at(base: &Path) -> Bed {
    let mut bed = Bed::new();
    bed.root = base.join("project");
    bed.folder = base.join("depot");
    bed
}

fn populate(bed: &Bed) {
    for number in 0..6 {
        bed.write(&format!("d{}/f{number}", number % 3), format!("content {number}"));
    }
    bed.write("top", "old top");
    bed.write("kind", "a file");
    #[cfg(unix)]
    bed.sh("ln -s top link; chmod 750 top");
}

fn agent(bed: &Bed) {
    bed.sh("rm -r d0; echo agent > d1/f1; mv d2/f2 d2/moved; echo new > made; rm kind; mkdir kind; echo in > kind/in; mkdir -p hollow/x");
    #[cfg(unix)]
    bed.sh("rm link; echo file > link; chmod 600 top");
}

/// Snapshots by name, written down by the parent.
fn noted(base: &Path, name: &str) -> SnapshotId {
    fs::read_to_string(base.join(name)).unwrap().parse().unwrap()
}

/// Is run by the tests below in a process of its own.
#[test]
#[ignore = "a part of other tests"]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let [base, job, steps] = told.split('|').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let base = Path::new(base);
    let bed = bed_at(base);
    let depot = bed.depot();
    let plan = (job == "restore").then(|| {
        let span = Span { before: noted(base, "before"), after: noted(base, "after") };
        depot.plan(&[span], &Choice::default(), span.after).unwrap()
    });
    bed.disk.faults.after(steps.parse().unwrap(), Fault::End);
    match job {
        "snapshot" => drop(depot.snapshot(Hint::None).unwrap()),
        "restore" => drop(depot.restore(&plan.unwrap()).unwrap()),
        "resume" => drop(depot.resume().unwrap()),
        "retain" => {
            let keep = HashSet::from([noted(base, "after")]);
            drop(depot.retain(&keep, Timestamp::from_millis(i64::MAX)).unwrap());
        }
        other => panic!("{other}"),
    }
}

/// Runs a job until its n-th step; `false` when it came to its end before.
fn cut(base: &Path, job: &str, steps: i64) -> bool {
    let told = format!("{}|{job}|{steps}", base.display());
    let status = run_alone("tests::cutting::child", CHILD, &told, &[]);
    assert!(status.success() || status.code() == Some(ENDED), "{job} after {steps}: {status}");
    !status.success()
}

/// A project before and after an agent, with its depot. Gives both states.
fn prepared(base: &Path) -> (Bed, BTreeMap<String, String>, BTreeMap<String, String>) {
    let bed = bed_at(base);
    fs::create_dir_all(&bed.root).unwrap();
    populate(&bed);
    let depot = bed.depot();
    let old = listing(&bed.root);
    fs::write(base.join("before"), take(&depot).id.to_string()).unwrap();
    agent(&bed);
    fs::write(base.join("after"), take(&depot).id.to_string()).unwrap();
    let new = listing(&bed.root);
    drop(depot);
    (bed, old, new)
}

/// Does something for each number of steps, until the job comes to its end.
fn for_each_step(
    job: &str,
    mut check: impl FnMut(&Bed, &Path, &BTreeMap<String, String>, &BTreeMap<String, String>, bool),
) {
    for steps in 0.. {
        let kept = tempfile::tempdir().unwrap();
        let base = kept.path().canonicalize().unwrap();
        let (bed, old, new) = prepared(&base);
        let was_cut = cut(&base, job, steps);
        check(&bed, &base, &old, &new, was_cut);
        if !was_cut {
            assert!(steps >= 5, "{job} has only {steps} steps");
            return;
        }
    }
}

#[test]
fn a_snapshot_that_is_cut_off_loses_none_before_it() {
    for steps in 0.. {
        let kept = tempfile::tempdir().unwrap();
        let base = kept.path().canonicalize().unwrap();
        let (bed, _, new) = prepared(&base);
        bed.write("later", "x".repeat(100_000));
        let was_cut = cut(&base, "snapshot", steps);
        let depot = bed.depot();
        assert!(depot.verify().unwrap().damage.is_empty(), "{steps}");
        for name in ["before", "after"] {
            assert!(depot.holds(noted(&base, name)), "{steps}");
        }
        let taken = take(&depot);
        assert_eq!(file_text(&depot, taken.id, "later").len(), 100_000);
        assert!(fs::read_dir(bed.folder.join("new")).unwrap().next().is_none(), "{steps}");
        assert_eq!(listing(&bed.root).len(), new.len() + 1);
        if !was_cut {
            assert!(!taken.is_new && steps >= 5, "{steps}");
            return;
        }
    }
}

#[test]
fn a_restore_that_is_cut_off_is_finished() {
    for_each_step("restore", |bed, base, old, new, was_cut| {
        let depot = bed.depot();
        let Some(interrupted) = depot.interrupted().unwrap() else {
            let now = listing(&bed.root);
            assert!(now == *new || now == *old, "begun without a journal");
            assert!(was_cut || now == *old);
            return;
        };
        assert_eq!(interrupted.undo, noted(base, "after"));
        // A snapshot of the half restored state names no file of the restore's own.
        let half = take(&depot);
        assert!(paths(&depot, half.id).iter().all(|path| !path.contains("mcode-restore")));
        let error = depot.restore(&depot.plan(&[], &Choice::default(), half.id).unwrap()).unwrap_err();
        assert!(matches!(error, crate::CheckpointError::Interrupted), "{error}");
        // Cut off once more, somewhere, and then finished.
        drop(depot);
        cut(base, "resume", 3);
        let depot = bed.depot();
        if depot.interrupted().unwrap().is_some() {
            let restored = depot.resume().unwrap();
            assert!(restored.failed.is_empty() && restored.conflicts.is_empty(), "{restored:?}");
        }
        assert_eq!(listing(&bed.root), *old);
        assert_eq!(take(&depot).id, noted(base, "before"));
        // Everything before it can still be had.
        bring_back(&depot, interrupted.undo, noted(base, "before"), &[], false);
        assert_eq!(listing(&bed.root), *new);
    });
}

#[test]
fn a_restore_that_is_cut_off_can_be_given_up_and_undone() {
    for_each_step("restore", |bed, base, _, new, _| {
        let depot = bed.depot();
        if depot.interrupted().unwrap().is_none() {
            return;
        }
        let undo = depot.abandon().unwrap();
        assert!(depot.interrupted().unwrap().is_none());
        assert!(listing(&bed.root).keys().all(|name| !name.contains("mcode-restore")));
        let half = take(&depot).id;
        bring_back(&depot, undo, half, &[], false);
        assert_eq!((listing(&bed.root), undo), (new.clone(), noted(base, "after")));
    });
}

#[test]
fn what_is_changed_while_a_restore_is_cut_off_is_left_alone() {
    for_each_step("restore", |bed, _, _, _, _| {
        let depot = bed.depot();
        if depot.interrupted().unwrap().is_none() {
            return;
        }
        bed.write("d1/f1", "the user's");
        bed.write("made", "the user's");
        let restored = depot.resume().unwrap();
        assert!(restored.failed.is_empty(), "{:?}", restored.failed);
        assert_eq!((bed.read("d1/f1"), bed.read("made")), ("the user's".into(), "the user's".into()));
        assert_eq!(restored.conflicts.len(), 2, "{:?}", restored.conflicts);
        assert_eq!(bed.read("top"), "old top");
    });
}

#[test]
fn dropping_that_is_cut_off_loses_nothing_that_is_kept() {
    for_each_step("retain", |bed, base, _, _, was_cut| {
        let depot = bed.depot();
        assert!(depot.verify().unwrap().damage.iter().all(|damage| damage.snapshot != noted(base, "after")));
        assert_eq!(paths(&depot, noted(base, "after")).len(), listing(&bed.root).len());
        let keep = HashSet::from([noted(base, "after")]);
        let retained = depot.retain(&keep, Timestamp::from_millis(i64::MAX)).unwrap();
        assert!(retained.damaged.is_empty() && (was_cut || retained.dropped.is_empty()));
        assert_eq!(depot.snapshots().unwrap().len(), 1);
        assert!(depot.verify().unwrap().damage.is_empty());
        assert!(fs::read_dir(bed.folder.join("new")).unwrap().next().is_none());
    });
}

#[test]
fn what_a_restore_needs_is_not_dropped_while_it_is_cut_off() {
    let kept = tempfile::tempdir().unwrap();
    let base = kept.path().canonicalize().unwrap();
    let (bed, old, _) = prepared(&base);
    // Past the journal, in the midst of the actions.
    let mut steps = 6;
    while bed.depot().interrupted().unwrap().is_none() {
        assert!(cut(&base, "restore", steps));
        steps += 1;
    }
    let depot = bed.depot();
    let retained = depot.retain(&HashSet::new(), Timestamp::from_millis(i64::MAX)).unwrap();
    assert!(retained.dropped.is_empty(), "{retained:?}");
    depot.resume().unwrap();
    assert_eq!(listing(&bed.root), old);
    depot.retain(&HashSet::new(), Timestamp::from_millis(i64::MAX)).unwrap();
    assert!(depot.snapshots().unwrap().is_empty());
}

#[test]
fn a_disk_that_fills_up_during_a_restore_leaves_each_file_whole() {
    let kept = tempfile::tempdir().unwrap();
    let base = kept.path().canonicalize().unwrap();
    for after in 0.. {
        let folder = base.join(after.to_string());
        fs::create_dir(&folder).unwrap();
        let (bed, old, new) = prepared(&folder);
        let depot = bed.depot();
        let span = Span { before: noted(&folder, "before"), after: noted(&folder, "after") };
        let plan = depot.plan(&[span], &Choice::default(), span.after).unwrap();
        bed.disk.faults.after(after, Fault::Full);
        let outcome = depot.restore(&plan);
        bed.disk.faults.none();
        let now = listing(&bed.root);
        let mixed = |name: &String, text: &String| {
            old.get(name) == Some(text) || new.get(name) == Some(text) || text.starts_with("folder")
        };
        assert!(now.iter().all(|(name, text)| mixed(name, text)), "{after}: {now:#?}");
        let done = outcome.is_ok_and(|restored| restored.failed.is_empty());
        if depot.interrupted().unwrap().is_some() {
            depot.resume().unwrap();
            assert_eq!(listing(&bed.root), old, "{after}");
        } else if !done {
            bring_back(&depot, span.before, span.after, &[], false);
            assert_eq!(listing(&bed.root), old, "{after}");
        } else if now == old {
            assert!(after > 10, "{after}");
            return;
        }
    }
}
