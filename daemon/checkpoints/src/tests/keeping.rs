//! Dropping snapshots, finding damage, staying within bounds.

use std::collections::HashSet;
use std::fs;

use mcode_env::Timestamp;

use super::*;
use crate::CheckpointError;
use crate::ids::Kind;

/// Changes one bit of the body of a file's content in the depot.
pub(super) fn damage(bed: &Bed, content: &[u8]) {
    let id = Kind::Content.id(content);
    for entry in fs::read_dir(bed.folder.join("packs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        // The record's header ends with its name; the body follows.
        if let Some(at) = bytes.windows(32).position(|window| window == id.0) {
            bytes[at + 32] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}

fn end_of_time() -> Timestamp {
    Timestamp::from_millis(i64::MAX)
}

#[test]
fn threads_may_share_a_depot() {
    fn shared<T: Send + Sync>() {}
    shared::<Depot>();
}

#[test]
fn what_no_snapshot_needs_is_given_back() {
    let bed = Bed::new();
    let depot = bed.depot();
    let mut ids = Vec::new();
    for round in 0..10 {
        bed.write("same", "same");
        bed.write("changing", format!("{round}").repeat(5000));
        bed.write(&format!("d{round}/x"), format!("x {round}"));
        bed.clock.advance_millis(1000);
        ids.push(take(&depot).id);
    }
    let before = depot.usage().unwrap();
    assert_eq!(before.snapshots, 10);
    let keep = HashSet::from([ids[2], ids[9]]);
    let retained = depot.retain(&keep, end_of_time()).unwrap();
    assert_eq!(retained.dropped.len(), 8);
    let after = depot.usage().unwrap();
    assert!(after.bytes < before.bytes && retained.freed_bytes == before.bytes - after.bytes, "{before:?} {after:?}");
    assert_eq!(file_text(&depot, ids[2], "changing"), "2".repeat(5000));
    assert_eq!(paths(&depot, ids[9]).len(), 22);
    assert!(matches!(depot.manifest(ids[5]), Err(CheckpointError::Unknown { .. })));
    assert!(depot.verify().unwrap().damage.is_empty());
    assert_eq!(take(&depot).id, ids[9]);
    // Nothing is left of what nobody keeps.
    depot.retain(&HashSet::new(), end_of_time()).unwrap();
    assert_eq!((depot.usage().unwrap().bytes, depot.usage().unwrap().objects), (0, 0));
    let again = take(&depot);
    assert_eq!((again.id, again.is_new), (ids[9], true));
    assert_eq!(file_text(&depot, again.id, "changing"), "9".repeat(5000));
    assert!(bed.depot().verify().unwrap().damage.is_empty());
}

#[test]
fn what_was_just_taken_stays_whoever_keeps_it() {
    let bed = Bed::new();
    let depot = bed.depot();
    bed.write("a", "1");
    let old = take(&depot).id;
    bed.clock.advance_millis(10_000);
    let now = bed.clock.now();
    bed.write("a", "2");
    let new = take(&depot).id;
    // The first state again: its date is that of the last time.
    bed.write("a", "1");
    assert_eq!(take(&depot).id, old);
    assert_eq!(depot.retain(&HashSet::new(), now).unwrap().dropped, []);
    bed.clock.advance_millis(10_000);
    bed.write("a", "2");
    assert_eq!(take(&depot).id, new);
    assert_eq!(depot.retain(&HashSet::new(), now.plus_millis(5_000)).unwrap().dropped, [old]);
    assert_eq!(depot.snapshots().unwrap().iter().map(|listed| listed.id).collect::<Vec<_>>(), [new]);
}

/// Bytes that do not get smaller.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = random::Random::new(seed);
    (0..length).map(|_| random.below(256) as u8).collect()
}

#[test]
fn a_depot_that_is_full_says_so_and_makes_room_from_the_oldest_on() {
    let mut bed = Bed::new();
    bed.settings.limits.depot_bytes = 100_000;
    let depot = bed.depot();
    let mut ids = Vec::new();
    let mut told = None;
    let full = loop {
        bed.clock.advance_millis(1000);
        bed.write("a", noise(ids.len() as u64, 9_000));
        match depot.snapshot(Hint::None) {
            Ok(taken) => {
                if told.is_none() && taken.is_nearly_full() {
                    told = Some(ids.len());
                }
                ids.push(taken.id);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(full, CheckpointError::Full { cap_bytes: 100_000, .. }) && !full.turns_off(), "{full}");
    assert!(told.is_some_and(|told| told < ids.len() - 1), "{told:?} of {}", ids.len());
    assert_eq!(take_all(&depot, &ids), ids.len(), "all that were taken are there");
    let room = depot.make_room(&HashSet::from([ids[0]])).unwrap();
    assert!(room.used_bytes <= 60_000, "{room:?}");
    let kept: Vec<SnapshotId> = depot.snapshots().unwrap().into_iter().map(|listed| listed.id).collect();
    let mut expected = vec![ids[0]];
    expected.extend(&ids[ids.len() - (kept.len() - 1)..]);
    assert_eq!(kept, expected, "the pinned one and the newest");
    assert_eq!(take_all(&depot, &kept), kept.len());
    take(&depot);
    // What is larger than all that may be kept turns checkpoints off.
    for number in 0..20 {
        bed.write(&format!("n{number}"), noise(1000 + number, 9_000));
    }
    assert!(matches!(depot.snapshot(Hint::None), Err(CheckpointError::Full { .. })));
    depot.retain(&HashSet::new(), end_of_time()).unwrap();
    let error = depot.snapshot(Hint::None).unwrap_err();
    assert!(matches!(error, CheckpointError::TooLarge { .. }) && error.turns_off(), "{error}");
}

fn take_all(depot: &Depot, ids: &[SnapshotId]) -> usize {
    ids.iter().filter(|id| file_text(depot, **id, "a").len() > 1000).count()
}

#[test]
fn a_full_depot_does_not_stand_in_the_way_of_a_restore() {
    let mut bed = Bed::new();
    bed.write("a", noise(1, 9_000));
    bed.settings.limits.depot_bytes = 20_000;
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("a", noise(2, 9_000));
    let after = take(&depot).id;
    bed.write("b", noise(3, 9_000));
    assert!(matches!(depot.snapshot(Hint::None), Err(CheckpointError::Full { .. })));
    let plan = depot.plan(&[Span { before, after }], &Choice::default(), after).unwrap();
    let restored = depot.restore(&plan).unwrap();
    assert_eq!((restored.done, fs::read(bed.at("a")).unwrap()), (vec![path("a")], noise(1, 9_000)));
    assert!(depot.node(restored.undo, &path("b")).unwrap().is_some());
}

#[test]
fn damage_is_named_with_its_place_and_mended_when_the_content_is_seen_again() {
    let bed = Bed::new();
    bed.write("d/a", "content of a");
    bed.write("b", "content of b");
    let depot = bed.depot();
    let first = take(&depot).id;
    bed.write("b", "changed");
    let second = take(&depot).id;
    drop(depot);
    damage(&bed, b"content of a");
    let depot = bed.depot();
    let Some(Node::File { content, .. }) = depot.node(first, &path("d/a")).unwrap() else { panic!() };
    assert!(matches!(depot.content(&content), Err(CheckpointError::Damaged { object, .. }) if object == content));
    let verified = depot.verify().unwrap();
    let mut places: Vec<(SnapshotId, String)> =
        verified.damage.iter().map(|damage| (damage.snapshot, damage.path.as_ref().unwrap().to_string())).collect();
    places.sort();
    let mut expected = vec![(first, "d/a".to_owned()), (second, "d/a".to_owned())];
    expected.sort();
    assert_eq!((places, verified.files.len()), (expected, 1));
    assert_eq!(file_text(&depot, first, "b"), "content of b", "nothing else is affected");
    // The file is still in the project.
    take(&depot);
    assert!(depot.verify().unwrap().damage.is_empty());
    assert_eq!(file_text(&depot, first, "d/a"), "content of a");
    // Who opens it anew finds the sound copy, wherever the damaged one lies.
    let fresh = bed.depot();
    assert_eq!(file_text(&fresh, first, "d/a"), "content of a");
    assert!(fresh.verify().unwrap().damage.is_empty());
    let keep = HashSet::from([first, second]);
    depot.retain(&keep, end_of_time()).unwrap();
    let fresh = bed.depot();
    assert!(fresh.verify().unwrap().files.is_empty());
    assert!(fresh.verify().unwrap().damage.is_empty(), "the damaged copy is gone for good");
    assert_eq!(file_text(&fresh, first, "d/a"), "content of a");
}

#[test]
fn a_pack_that_lost_its_list_or_its_end_gives_what_is_whole() {
    let bed = Bed::new();
    for number in 0..50 {
        bed.write(&format!("f{number}"), format!("content {number}"));
    }
    let depot = bed.depot();
    let first = take(&depot).id;
    drop(depot);
    let pack = fs::read_dir(bed.folder.join("packs")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&pack).unwrap();
    let mut bytes = whole.clone();
    let end = bytes.len() - 20;
    bytes[end] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    let depot = bed.depot();
    assert_eq!(file_text(&depot, first, "f49"), "content 49");
    assert_eq!(depot.verify().unwrap().damage, []);
    drop(depot);
    for length in [whole.len() / 4, 9, 3, 0] {
        fs::write(&pack, &whole[..length]).unwrap();
        let depot = bed.depot();
        assert!(!depot.verify().unwrap().damage.is_empty(), "{length}");
        let again = take(&depot);
        assert_eq!(
            (again.id, depot.verify().unwrap().damage),
            (first, vec![]),
            "{length}: kept again from the project"
        );
        drop(depot);
        for entry in fs::read_dir(bed.folder.join("packs")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_pack_that_may_not_be_read_costs_what_is_in_it_and_is_not_removed() {
    if !as_ordinary_user("tests::keeping::a_pack_that_may_not_be_read_costs_what_is_in_it_and_is_not_removed") {
        return;
    }
    let bed = Bed::new();
    bed.write("a", "a");
    let first = take(&bed.depot()).id;
    let packs = bed.folder.join("packs");
    sh_in(&packs, "chmod 000 *");
    bed.write("a", "b");
    let depot = bed.depot();
    let second = take(&depot).id;
    assert_eq!(file_text(&depot, second, "a"), "b");
    assert!(matches!(depot.manifest(first), Err(CheckpointError::Unknown { .. })));
    depot.retain(&HashSet::from([first, second]), end_of_time()).unwrap();
    drop(depot);
    sh_in(&packs, "chmod 600 *");
    assert_eq!(file_text(&bed.depot(), first, "a"), "a");
}

#[test]
fn a_damaged_folder_costs_what_is_in_it_and_no_more() {
    let bed = Bed::new();
    bed.write("d/a", "a");
    bed.write("e/b", "b");
    let depot = bed.depot();
    let first = take(&depot).id;
    let entries = depot.tree(&depot.root_of(first).unwrap().tree).unwrap();
    let tree = entries[0].tree.unwrap();
    drop(depot);
    let pack = fs::read_dir(bed.folder.join("packs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(32).enumerate().filter(|(_, window)| *window == tree.0).map(|(at, _)| at);
    let header = at.into_iter().find(|at| bytes.get(at - 10) == Some(&2)).unwrap();
    bytes[header + 33] ^= 1;
    fs::write(&pack, bytes).unwrap();
    fs::remove_dir_all(bed.at("d")).unwrap();
    let depot = bed.depot();
    let verified = depot.verify().unwrap();
    assert_eq!(verified.damage.len(), 1);
    assert_eq!((verified.damage[0].object, verified.damage[0].path.clone()), (tree, Some(path("d"))));
    let retained = depot.retain(&HashSet::from([first]), end_of_time()).unwrap();
    assert_eq!(retained.damaged, [tree]);
    assert_eq!(file_text(&depot, first, "e/b"), "b");
    assert!(matches!(
        depot.node(first, &path("d/a")),
        Err(CheckpointError::Damaged { .. } | CheckpointError::Missing { .. })
    ));
}

#[test]
fn many_small_packs_become_few() {
    let bed = Bed::new();
    let depot = bed.depot();
    let mut keep = HashSet::new();
    for round in 0..70 {
        bed.write("a", round.to_string());
        keep.insert(take(&depot).id);
    }
    assert_eq!(depot.usage().unwrap().packs, 70);
    let other = bed.depot();
    depot.retain(&keep, end_of_time()).unwrap();
    assert_eq!(depot.usage().unwrap().packs, 1);
    for id in keep {
        assert!(file_text(&depot, id, "a").len() <= 2);
        // Who opened it before finds what moved.
        assert_eq!(file_text(&other, id, "a"), file_text(&depot, id, "a"));
    }
}

#[test]
fn snapshots_are_taken_while_others_are_dropped() {
    let bed = Bed::new();
    for number in 0..20 {
        bed.write(&format!("f{number}"), number.to_string());
    }
    let (taker, sweeper) = (bed.depot(), bed.depot());
    let last = std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let mut last = take(&taker).id;
            for round in 0..60 {
                bed.write("changing", round.to_string());
                last = take(&taker).id;
                assert_eq!(file_text(&taker, last, "f7"), "7");
            }
            last
        });
        while !taking.is_finished() {
            // All but what was taken this very moment.
            let newest = sweeper.snapshots().unwrap().last().map(|listed| listed.id);
            sweeper.retain(&newest.into_iter().collect(), end_of_time()).ok();
        }
        taking.join()
    });
    // A snapshot may be dropped as soon as it is taken; the one that is kept is whole.
    if let Ok(last) = last {
        let again = take(&sweeper).id;
        assert_eq!(again, last);
    }
    assert!(bed.depot().verify().unwrap().damage.is_empty());
}
