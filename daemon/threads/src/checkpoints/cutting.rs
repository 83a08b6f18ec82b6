//! States of files on a disk that fails or fills, and restores that are cut off.

use std::collections::HashSet;
use std::process::Command;

use mcode_agent::Care;
use mcode_env::ManualClock;
use mcode_testkit::{DiskFailure, FailingDisk};

use super::*;

const FOLDER: &str = "MCODE_TEST_FOLDER";
const DO: &str = "MCODE_TEST_DO";

fn depot(base: &std::path::Path) -> Depot {
    depot_or_none(base).unwrap()
}

fn depot_or_none(base: &std::path::Path) -> Option<Depot> {
    let settings = mcode_checkpoints::Settings {
        clock: Arc::new(ManualClock::default()),
        excludes: None,
        skip: Vec::new(),
        limits: mcode_checkpoints::Limits::default(),
    };
    Depot::open(&base.join("depot"), &base.join("project"), settings).ok()
}

fn span(base: &std::path::Path) -> Span {
    let ids = std::fs::read_to_string(base.join("span")).unwrap();
    let (before, after) = ids.split_once(' ').unwrap();
    Span { before: before.parse().unwrap(), after: after.parse().unwrap() }
}

fn listing(base: &std::path::Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(base.join("project")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<(String, String)> = entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn bring_back(base: &std::path::Path, dry_run: bool) -> Result<RestoreOutcome, Wrong> {
    let restore = Restore { dry_run, ..Restore::default() };
    let id = CheckpointId::from_uuid(mcode_env::IdGen::next(&mcode_env::SystemIds));
    carry_out(&depot(base), &[span(base)], &restore, id).map(|(outcome, _)| outcome)
}

/// Not a test: the process of those below, which is cut off while it takes a state or brings files back.
#[test]
fn child() {
    let (Ok(base), Ok(what)) = (std::env::var(FOLDER), std::env::var(DO)) else { return };
    let base = std::path::Path::new(&base);
    match what.as_str() {
        "keep" => drop(depot_or_none(base).map(|depot| depot.snapshot(Hint::None))),
        _ => drop(bring_back(base, false)),
    }
}

fn process(disk: &FailingDisk, what: &str, base: &std::path::Path, at: u32, failure: DiskFailure) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "checkpoints::cutting::child", "--nocapture"]).env(FOLDER, base).env(DO, what);
    let tried = disk.arm(&mut command, base, at, failure);
    let output = command.output().unwrap();
    assert!(output.status.success() || tried.fired() && !failure.is_survived(), "{failure:?} at {at}: {output:?}");
    tried.fired()
}

/// Each write, sync and rename of a state fails once: it is whole or not there, and those before it are whole.
#[test]
fn whatever_call_of_a_checkpoint_fails_it_is_whole_or_not_there() {
    let Some(disk) = FailingDisk::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    for failure in DiskFailure::ALL {
        for at in 1.. {
            let base = dir.path().canonicalize().unwrap().join(format!("{failure:?}{at}"));
            std::fs::create_dir_all(base.join("project/deep")).unwrap();
            std::fs::write(base.join("project/a"), "one").unwrap();
            let first = depot(&base).snapshot(Hint::None).unwrap().id;
            std::fs::write(base.join("project/a"), "two").unwrap();
            std::fs::write(base.join("project/deep/new"), "x".repeat(100_000)).unwrap();
            let fired = process(&disk, "keep", &base, at, failure);
            let depot = depot(&base);
            let name = format!("{failure:?} at call {at}");
            let verified = depot.verify().unwrap();
            assert!(verified.damage.is_empty(), "{name}: {:?}", verified.damage);
            assert!(depot.holds(first) && depot.manifest(first).unwrap().len() == 2, "{name}");
            let taken = depot.snapshots().unwrap().len();
            assert!(fired || taken == 2, "{name}");
            let again = depot.snapshot(Hint::None).unwrap();
            assert_eq!(depot.snapshots().unwrap().len(), 2, "{name}");
            assert_eq!(depot.manifest(again.id).unwrap().len(), 3, "{name}");
            assert!(depot.verify().unwrap().damage.is_empty(), "{name}");
            assert_eq!(std::fs::read_dir(base.join("depot/new")).unwrap().count(), 0, "{name}");
            if !fired {
                assert!(at > 3 || failure == DiskFailure::TornWrite, "only {at} calls");
                break;
            }
            assert!(at < 200);
        }
    }
}

#[test]
fn a_dry_run_after_a_restore_that_was_cut_off_changes_nothing() {
    let Some(disk) = FailingDisk::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut cut_in_between = 0;
    for at in 1.. {
        let base = dir.path().canonicalize().unwrap().join(at.to_string());
        std::fs::create_dir_all(base.join("project")).unwrap();
        let write = |text: &str| {
            for name in ["a", "b", "c", "d"] {
                std::fs::write(base.join("project").join(name), format!("{name}: {text}")).unwrap();
            }
            (depot(&base).snapshot(Hint::None).unwrap().id, listing(&base))
        };
        let (before, old) = write("as it was before the turn");
        let (after, new) = write("as the agent left it");
        std::fs::write(base.join("span"), format!("{before} {after}")).unwrap();
        if !process(&disk, "restore", &base, at, DiskFailure::PowerCut) {
            assert_eq!(listing(&base), old);
            break;
        }
        let left = listing(&base);
        let is_cut = depot(&base).interrupted().unwrap().is_some();
        let would = bring_back(&base, true).unwrap_or_else(|_| panic!("cut at {at}: nothing could be told"));
        let name = format!("cut at {at}, {is_cut}: {would:?}");
        assert_eq!(listing(&base), left, "{name}");
        assert_eq!(depot(&base).interrupted().unwrap().is_some(), is_cut, "{name}: what was cut off is still known");
        let visible = |files: &[(String, String)]| files.iter().filter(|(name, _)| name.len() == 1).count();
        assert_eq!(visible(&left), 4, "{name}: {left:?}");
        if is_cut && left != old && left != new {
            cut_in_between += 1;
            // What is left to be done is told, and what is done already is not.
            let to_do = left.iter().filter(|file| new.contains(file)).count();
            assert_eq!((would.files.len(), would.conflicts.len()), (to_do, 0), "{name}");
        }
        bring_back(&base, false).unwrap_or_else(|_| panic!("{name}: it cannot be gone on with"));
        assert_eq!(listing(&base), old, "{name}");
        assert!(at < 200);
    }
    assert!(cut_in_between >= 3, "only {cut_in_between} were cut off in between");
}

/// A run that waits for long knows one state; another one fills the depot meanwhile.
#[test]
fn the_latest_state_of_a_thread_at_work_makes_no_room_and_older_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    let clock = Arc::new(ManualClock::default());
    let mut depots = Depots::new(base.join("data"), None, None, Arc::clone(&clock) as Arc<dyn mcode_env::Clock>);
    let limits = Limits { depot_bytes: 600_000, ..Default::default() };
    Arc::get_mut(&mut depots).unwrap().limits = limits;
    let root = base.join("project");
    std::fs::create_dir(&root).unwrap();
    let mut seed = 1u32;
    let mut keep = |keeper: &dyn TakeSnapshot, since: Option<String>| {
        // What cannot be made smaller.
        let noise = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        });
        let noise: Vec<u8> = noise.take(50_000).collect();
        std::fs::write(root.join("file"), noise).unwrap();
        clock.advance_millis(1000);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(keeper.take(since, Care::All)).unwrap().snapshot
    };
    let before = depots.snapshots_of(&root, None).unwrap();
    let first = keep(&*before, None);
    drop(before);
    let waiting = depots.snapshots_of(&root, Some(&first)).unwrap();
    let busy = depots.snapshots_of(&root, None).unwrap();
    let mut taken = vec![keep(&*busy, None)];
    for _ in 0..30 {
        let since = taken.last().cloned();
        taken.push(keep(&*busy, since));
    }
    let depot = depots.depot(&root).unwrap();
    let holds = |id: &str| depot.holds(id.parse().unwrap());
    assert!(holds(&first), "the latest state of a run that waits was dropped");
    assert!(holds(taken.last().unwrap()) && !holds(&taken[0]) && !holds(&taken[10]));
    assert!(depot.usage().unwrap().bytes <= limits.depot_bytes);
    // With the end of its run it is as any other.
    drop(waiting);
    for _ in 0..30 {
        let since = taken.last().cloned();
        taken.push(keep(&*busy, since));
    }
    assert!(!holds(&first));
    // What no thread knows goes in a sweep, but for what a run still holds and what is new.
    let latest = taken.last().unwrap();
    let known = HashSet::from([taken[taken.len() - 2].clone()]);
    depots.sweep(&root, &known, clock.now()).unwrap();
    assert_eq!(depot.snapshots().unwrap().len(), 2);
    assert!(holds(latest) && known.iter().all(|id| holds(id)));
}
