//! Random trees and random changes: what comes back is what was.

use std::fs;

use super::*;

/// Numbers that depend on the seed alone.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

const NAMES: [&str; 7] = ["a", "b", "c.rs", "d d", "é", "new\nline", "Cargo.toml"];

fn some_path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    let names: Vec<&str> = (0..depth).map(|_| NAMES[random.below(NAMES.len() as u64) as usize]).collect();
    names.join("/")
}

/// One random change; those that are not possible do nothing.
pub(super) fn change(bed: &Bed, random: &mut Random) {
    let at = bed.at(&some_path(random));
    match random.below(10) {
        0..=4 => {
            fs::create_dir_all(at.parent().unwrap()).ok();
            let content: String = (0..random.below(40)).map(|_| format!("line {}\n", random.below(5))).collect();
            fs::write(&at, content).ok();
        }
        5 => drop(fs::remove_file(&at)),
        6 => drop(fs::remove_dir_all(&at)),
        7 => drop(fs::rename(&at, bed.at(&some_path(random)))),
        #[cfg(unix)]
        8 => {
            use std::os::unix::fs::PermissionsExt;
            let mode = [0o644, 0o755, 0o600, 0o700][random.below(4) as usize];
            if !at.is_symlink() && (at.is_file() || mode & 0o100 != 0) {
                fs::set_permissions(&at, fs::Permissions::from_mode(mode)).ok();
            }
        }
        #[cfg(unix)]
        9 => drop(std::os::unix::fs::symlink(some_path(random), &at)),
        _ => drop(fs::create_dir_all(&at)),
    }
}

#[test]
fn what_comes_back_is_what_was() {
    for seed in 0..60 {
        let mut random = Random::new(seed + 1);
        let bed = Bed::new();
        for _ in 0..random.below(60) {
            change(&bed, &mut random);
        }
        let depot = bed.depot();
        let before = take(&depot).id;
        let old = listing(&bed.root);
        for _ in 0..random.below(40) {
            change(&bed, &mut random);
        }
        let after = take(&depot).id;
        let new = listing(&bed.root);
        let restored = bring_back(&depot, before, after, &[], false);
        assert_eq!(listing(&bed.root), old, "seed {seed}: {:?}", restored.conflicts);
        assert_eq!((restored.after, restored.conflicts.len()), (Some(before), 0), "seed {seed}");
        bring_back(&depot, restored.undo, before, &[], false);
        assert_eq!(listing(&bed.root), new, "seed {seed}, undone");
        // A look without anything known finds the same.
        drop(depot);
        fs::remove_file(bed.folder.join("cache")).ok();
        assert_eq!(take(&bed.depot()).id, after, "seed {seed}");
    }
}

#[test]
fn what_the_user_did_since_survives_any_restore() {
    for seed in 0..40 {
        let mut random = Random::new(seed + 1000);
        let bed = Bed::new();
        for _ in 0..30 {
            change(&bed, &mut random);
        }
        let depot = bed.depot();
        let before = take(&depot).id;
        for _ in 0..15 {
            change(&bed, &mut random);
        }
        let after = take(&depot).id;
        for _ in 0..5 {
            change(&bed, &mut random);
        }
        let now = take(&depot).id;
        bring_back(&depot, before, after, &[], false);
        let restored = take(&depot).id;
        let agents: Vec<TreePath> = depot.differences(before, after).unwrap().into_iter().map(|it| it.path).collect();
        for difference in depot.differences(now, restored).unwrap() {
            let path = &difference.path;
            let made_way = agents.iter().any(|agent| agent.is_within(path));
            assert!(agents.contains(path) || made_way, "seed {seed}: {path} was not the agent's");
            let last = depot.node(after, path).unwrap();
            assert!(
                difference.before == last || difference.before.is_none(),
                "seed {seed}: {path} was changed by the user"
            );
        }
    }
}
