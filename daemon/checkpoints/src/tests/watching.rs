//! Looks that trust the system's word find what looks at everything find.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcode_env::Clock;

use super::Bed;
use super::random::{Random, change};
use crate::{Care, Depot, Hint, Lookout, SnapshotId, TOUCHED_MAX};

struct Post {
    bed: Bed,
    lookout: Arc<Lookout>,
    /// Looks at everything each time.
    other: Depot,
}

impl Post {
    fn new() -> Self {
        let bed = Bed::new();
        for folder in ["src", "src/deep/er", "docs"] {
            for file in 0..5 {
                bed.write(&format!("{folder}/f{file}"), format!("{folder} {file}"));
            }
        }
        bed.write(".gitignore", "*.log\ntarget/\n");
        fs::create_dir(bed.at(".git")).unwrap();
        bed.write(".git/HEAD", "ref: refs/heads/main\n");
        let lookout = Arc::new(Lookout::new(Arc::new(bed.depot())));
        let folder = bed.folder.with_file_name("other");
        let other = Depot::open(&folder, &bed.root, bed.settings.clone()).unwrap();
        let post = Self { bed, lookout, other };
        post.settle();
        post
    }

    /// Looks until the system's word counts.
    fn settle(&self) {
        let begun = Instant::now();
        while self.lookout.glance().is_none() {
            std::thread::yield_now();
            assert!(begun.elapsed() < Duration::from_secs(30), "the watch never settles");
        }
    }

    fn trusting(&self) -> SnapshotId {
        self.lookout.snapshot(Care::Trusting).unwrap().id
    }

    fn whole(&self) -> SnapshotId {
        self.other.snapshot(Hint::None).unwrap().id
    }

    /// The same by both, and known without a look when `known`.
    fn agrees(&self, what: &str, known: bool) {
        let glance = self.lookout.glance().map(|taken| taken.unwrap().id);
        assert_eq!(glance.is_some(), known, "{what}");
        let whole = self.whole();
        assert!(glance.is_none_or(|id| id == whole), "{what}");
        assert_eq!(self.trusting(), whole, "{what}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_was_touched_is_found_without_a_look_at_the_rest() {
    let post = Post::new();
    let bed = &post.bed;
    post.agrees("nothing", true);
    bed.write("src/f0", "changed");
    post.agrees("a file that was written", true);
    bed.write("src/deep/er/new", "new");
    post.agrees("a new file", true);
    fs::remove_file(bed.at("docs/f1")).unwrap();
    post.agrees("a file that is gone", true);
    fs::rename(bed.at("docs/f2"), bed.at("src/f2 moved")).unwrap();
    post.agrees("a file that was moved", true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(bed.at("src/f3"), fs::Permissions::from_mode(0o755)).unwrap();
        post.agrees("a file that may be run now", true);
    }
    bed.write("src/noise.log", "ignored");
    post.agrees("what is ignored", true);
    bed.write("fresh/below/file", "1");
    post.agrees("a new folder", true);
    bed.write("fresh/below/file", "2");
    bed.write("fresh/other/file", "3");
    post.agrees("what changes in a folder that came since", true);
    fs::remove_dir_all(bed.at("fresh")).unwrap();
    post.agrees("a new folder that is gone again", true);
    fs::remove_dir_all(bed.at("src/deep")).unwrap();
    bed.write("src/deep/again", "came back");
    post.agrees("a folder that is gone and came back", true);
    bed.write("src/deep/again", "came back and was changed");
    post.agrees("a file in it", true);
    bed.write(".gitignore", "*.log\nfresh/\ndocs/\n");
    post.agrees("other rules", true);
    bed.write("target/made", "no longer ignored");
    post.agrees("what they let in", true);
    // A file that is open and is written through memory, or long after it was opened, is told of when it is closed.
    let open = fs::OpenOptions::new().write(true).open(bed.at("src/f4")).unwrap();
    post.agrees("an open file", true);
    open.set_len(1).unwrap();
    post.agrees("a file that was cut", true);
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_watch_is_not_sure_of_is_looked_at() {
    let post = Post::new();
    let bed = &post.bed;
    for file in 0..=TOUCHED_MAX {
        bed.write(&format!("docs/x{file}"), "x");
    }
    post.agrees("more than is told of", false);
    post.settle();
    fs::rename(bed.at("src/deep"), bed.at("docs/deep")).unwrap();
    bed.write("docs/deep/er/f1", "changed where it is now");
    post.agrees("a folder that was moved", false);
    post.settle();
    bed.write("docs/deep/er/f1", "changed again");
    post.agrees("a file in it later", true);
    // Whoever asks and is told nothing is not told later that nothing was touched.
    fs::rename(bed.at("docs/deep"), bed.at("src/deep")).unwrap();
    assert!(post.lookout.glance().is_none() && post.lookout.glance().is_none());
    assert_eq!(post.trusting(), post.whole());
}

/// Random changes with looks between them: trusting looks find what looks at everything find.
#[test]
fn trusting_looks_find_whatever_is_done() {
    for seed in 0..8 {
        let mut random = Random::new(seed + 7000);
        let post = Post::new();
        for step in 0..30 {
            for _ in 0..random.below(4) {
                change(&post.bed, &mut random);
            }
            let trusting = post.trusting();
            assert_eq!(trusting, post.whole(), "seed {seed}, step {step}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_state_that_had_to_make_room_is_kept_anew() {
    let post = Post::new();
    let last = post.trusting();
    post.bed.clock.advance_millis(1000);
    post.lookout.depot().retain(&HashSet::new(), post.bed.clock.now()).unwrap();
    assert!(post.lookout.depot().snapshots().unwrap().is_empty());
    assert_eq!(post.trusting(), last);
    assert_eq!(post.lookout.depot().snapshots().unwrap().len(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_look_that_failed_is_not_trusted() {
    let post = Post::new();
    post.bed.write("src/f0", "changed");
    post.lookout.depot().stop();
    assert!(post.lookout.snapshot(Care::Trusting).is_err());
    assert!(post.lookout.glance().is_none());
}

#[cfg(not(target_os = "linux"))]
#[test]
fn elsewhere_everything_is_looked_at() {
    let bed = Bed::new();
    bed.write("f", "1");
    let lookout = Arc::new(Lookout::new(Arc::new(bed.depot())));
    lookout.snapshot(Care::Trusting).unwrap();
    assert!(lookout.glance().is_none());
}
