//! The files that deny rules hid when they were last looked for: one that was moved since is known by its number.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

/// Most sets of rules and folders whose last finds are remembered.
const REMEMBERED_MAX: usize = 64;
/// Most files of one that are remembered.
const FILES_MAX: usize = 2000;

/// Device, number, and when it was made, as far as the system tells.
pub(crate) type Identity = (u64, u64, Option<SystemTime>);
/// Files as they were found.
pub(crate) type Files = Vec<(PathBuf, Identity)>;
/// What was looked for: patterns of what may not be read, of what may not be changed, and the folders.
pub(crate) type Wanted = (Vec<String>, Vec<String>, Vec<PathBuf>);

static LAST: LazyLock<Mutex<Remembered>> = LazyLock::new(Mutex::default);

/// What was found last by those rules.
pub(crate) fn last(wanted: &Wanted) -> Files {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).last(wanted)
}

/// Keeps what was found now in the place of what was `seen`, and beside it what others have found meanwhile; with `cut`,
/// also what was seen and may only have been missed.
pub(crate) fn remember(wanted: Wanted, seen: &Files, found: Files, cut: bool) {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).remember(wanted, seen, found, cut);
}

#[derive(Debug, Default)]
struct Remembered {
    /// With when it was used last, in uses.
    sets: HashMap<Wanted, (u64, Files)>,
    uses: u64,
}

impl Remembered {
    fn last(&mut self, wanted: &Wanted) -> Files {
        self.uses += 1;
        let Some((used, files)) = self.sets.get_mut(wanted) else { return Files::new() };
        *used = self.uses;
        files.clone()
    }

    fn remember(&mut self, wanted: Wanted, seen: &Files, mut found: Files, cut: bool) {
        self.uses += 1;
        if self.sets.len() >= REMEMBERED_MAX && !self.sets.contains_key(&wanted) {
            let oldest = self.sets.iter().min_by_key(|(_, (used, _))| *used).map(|(wanted, _)| wanted.clone());
            oldest.iter().for_each(|oldest| drop(self.sets.remove(oldest)));
        }
        let (used, files) = self.sets.entry(wanted).or_default();
        *used = self.uses;
        let replaced: HashSet<_> = found.iter().chain(seen.iter().filter(|_| !cut)).cloned().collect();
        found.extend(files.drain(..).filter(|file| !replaced.contains(file)));
        found.truncate(FILES_MAX);
        *files = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(number: usize) -> Wanted {
        (vec![number.to_string()], Vec::new(), Vec::new())
    }

    fn files(names: &[&str]) -> Files {
        names.iter().map(|name| (PathBuf::from(name), (1, name.len() as u64, None))).collect()
    }

    #[test]
    fn two_looks_at_once_lose_nothing() {
        let mut kept = Remembered::default();
        kept.remember(wanted(1), &Files::new(), files(&["old", "gone"]), false);
        let (one, other) = (kept.last(&wanted(1)), kept.last(&wanted(1)));
        assert_eq!((&one, &other), (&files(&["old", "gone"]), &files(&["old", "gone"])), "it was taken away");
        kept.remember(wanted(1), &one, files(&["old", "moved"]), false);
        kept.remember(wanted(1), &other, files(&["old"]), false);
        assert_eq!(kept.last(&wanted(1)), files(&["old", "moved"]));
        // One that was cut may have missed what is still there.
        let seen = kept.last(&wanted(1));
        kept.remember(wanted(1), &seen, files(&["new"]), true);
        assert_eq!(kept.last(&wanted(1)), files(&["new", "old", "moved"]));
    }

    #[test]
    fn only_what_was_not_used_for_longest_is_forgotten() {
        let mut kept = Remembered::default();
        for number in 0..REMEMBERED_MAX {
            kept.remember(wanted(number), &Files::new(), files(&["x"]), false);
        }
        assert_eq!(kept.last(&wanted(0)), files(&["x"]));
        kept.remember(wanted(REMEMBERED_MAX), &Files::new(), files(&["y"]), false);
        assert_eq!(kept.last(&wanted(1)), Files::new());
        for number in (2..REMEMBERED_MAX).chain([0]) {
            assert_eq!(kept.last(&wanted(number)), files(&["x"]), "{number}");
        }
        let many: Files =
            (0..2 * FILES_MAX).map(|number| (number.to_string().into(), (1, number as u64, None))).collect();
        kept.remember(wanted(0), &Files::new(), many, false);
        assert_eq!(kept.last(&wanted(0)).len(), FILES_MAX);
    }
}
