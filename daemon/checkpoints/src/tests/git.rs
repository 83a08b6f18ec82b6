//! With a real repository: bringing back never touches git, nor what is the user's.

use std::fs;

use super::*;

/// Everything in `.git`, byte for byte.
fn git_bytes(bed: &Bed) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![bed.at(".git")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn repository() -> Bed {
    let bed = Bed::new();
    bed.write(".gitignore", ".env\n");
    for file in ["a.txt", "c.txt", "gone.txt", "stashed.txt"] {
        bed.write(file, format!("old {file}\n"));
    }
    bed.sh("git init -q .; git config user.name n; git config user.email e; git add .; git commit -q -m first; \
         echo stash > stashed.txt; git stash -q; echo staged > a.txt; git add a.txt; echo 'unstaged too' >> a.txt");
    bed.write("out/data.jsonl", "{}\n");
    bed.write(".env", "KEY=secret\n");
    bed
}

#[test]
fn the_turn_is_undone_and_everything_of_the_users_stays() {
    let bed = repository();
    let depot = bed.depot();
    let before = take(&depot).id;
    let status = bed.sh("git status --porcelain");
    bed.write("a.txt", "agent\n");
    bed.write("b.txt", "agent\n");
    bed.sh("rm gone.txt");
    let after = take(&depot).id;
    bed.write("c.txt", "the user's edit\n");
    let git = git_bytes(&bed);
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(git_bytes(&bed), git, "index, HEAD, refs and the stash are as they were");
    assert!(restored.conflicts.is_empty());
    assert_eq!(bed.read("a.txt"), "staged\nunstaged too\n");
    assert!(!bed.at("b.txt").exists());
    assert_eq!(bed.read("gone.txt"), "old gone.txt\n");
    assert_eq!(
        (bed.read("out/data.jsonl"), bed.read(".env"), bed.read("c.txt")),
        ("{}\n".into(), "KEY=secret\n".into(), "the user's edit\n".into())
    );
    assert_eq!(bed.sh("git stash list | wc -l").trim(), "1");
    let now: Vec<String> = bed.sh("git status --porcelain").lines().map(str::to_owned).collect();
    let mut expected: Vec<String> = status.lines().map(str::to_owned).collect();
    expected.insert(1, " M c.txt".into());
    assert_eq!(now, expected);
}

#[test]
fn a_file_of_both_is_a_conflict() {
    let bed = repository();
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("c.txt", "agent\n");
    bed.write("a.txt", "agent\n");
    let after = take(&depot).id;
    bed.write("c.txt", "the user's edit after the agent's\n");
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(conflicts(&restored.conflicts), ["c.txt: it was changed since"]);
    assert_eq!(
        (bed.read("c.txt"), bed.read("a.txt")),
        ("the user's edit after the agent's\n".into(), "staged\nunstaged too\n".into())
    );
}

#[test]
fn a_commit_or_checkout_since_is_not_undone() {
    let bed = repository();
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("b.txt", "agent\n");
    bed.write("c.txt", "agent\n");
    let after = take(&depot).id;
    bed.sh("git add -A; git commit -q -m agent; git checkout -q -b other; echo more >> c.txt; git commit -qam more");
    let git = git_bytes(&bed);
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(git_bytes(&bed), git);
    assert_eq!(conflicts(&restored.conflicts), ["c.txt: it was changed since"]);
    assert!(!bed.at("b.txt").exists());
    assert_eq!(bed.read("c.txt"), "agent\nmore\n");
}

#[cfg(unix)]
#[test]
fn links_come_back_as_links_and_their_targets_stay() {
    let bed = Bed::new();
    bed.sh("mkdir r; echo v1 > r/real; ln -s r/real link; ln -s ../project/r loop");
    let depot = bed.depot();
    let before = take(&depot).id;
    // A write through the link, and one that replaces it.
    bed.sh("echo v2 > link; rm loop; mkdir loop; echo x > loop/x");
    let after = take(&depot).id;
    assert_eq!(changes(&depot, before, after), ["T loop", "A loop/x", "M r/real"]);
    bring_back(&depot, before, after, &[], false);
    assert_eq!((bed.sh("readlink link"), bed.read("r/real")), ("r/real\n".into(), "v1\n".into()));
    assert_eq!(bed.sh("readlink loop"), "../project/r\n");
    let before = take(&depot).id;
    bed.sh("rm link; echo replaced > link");
    let after = take(&depot).id;
    bring_back(&depot, before, after, &[], false);
    assert_eq!((bed.sh("readlink link"), bed.read("r/real")), ("r/real\n".into(), "v1\n".into()));
}
