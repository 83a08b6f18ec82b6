//! Hostile and odd trees, on Unix.
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{ConflictKind, Special};

/// Tells another thread to end, also when a test fails.
#[derive(Default)]
struct Ends(AtomicBool);

impl Ends {
    fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn with_this(&self) -> impl Drop + '_ {
        struct Ending<'e>(&'e Ends);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::Relaxed);
            }
        }
        Ending(self)
    }
}

#[test]
fn odd_names_and_kinds_are_kept_or_noted_and_nothing_hangs() {
    let bed = Bed::new();
    fs::write(bed.root.join(OsStr::from_bytes(b"not\xfftext")), "a").unwrap();
    bed.write("new\nline", "b");
    bed.write("\u{1b}[31m", "c");
    symlink("loop", bed.at("loop")).unwrap();
    symlink(".", bed.at("here")).unwrap();
    symlink("/etc/passwd", bed.at("away")).unwrap();
    bed.sh("mkfifo pipe");
    let _socket = std::os::unix::net::UnixListener::bind(bed.at("socket")).unwrap();
    let depot = bed.depot();
    let taken = take(&depot);
    let manifest: BTreeMap<String, Node> =
        depot.manifest(taken.id).unwrap().into_iter().map(|(path, node)| (path.to_string(), node)).collect();
    assert_eq!(manifest.len(), 8);
    assert_eq!(manifest["away"], Node::Link { target: (*b"/etc/passwd").into() });
    assert_eq!(manifest["here"], Node::Link { target: (*b".").into() });
    assert_eq!(manifest["pipe"], Node::Special { special: Special::Pipe });
    assert_eq!(manifest["socket"], Node::Special { special: Special::Socket });
    assert_eq!(file_text(&depot, taken.id, "\"not\\377text\""), "a");
    assert_eq!(file_text(&depot, taken.id, "\"new\\nline\""), "b");
    bed.sh("rm -r -- *");
    let after = take(&depot).id;
    let restored = bring_back(&depot, taken.id, after, &[], false);
    assert_eq!(
        conflicts(&restored.conflicts),
        ["pipe: it is a socket, a pipe or a device", "socket: it is a socket, a pipe or a device"]
    );
    assert_eq!(fs::read(bed.root.join(OsStr::from_bytes(b"not\xfftext"))).unwrap(), b"a");
    assert_eq!((bed.read("new\nline"), fs::read_link(bed.at("loop")).unwrap()), ("b".to_owned(), "loop".into()));
}

#[test]
fn modes_come_back_and_special_bits_do_not() {
    let bed = Bed::new();
    bed.write("run.sh", "#!/bin/sh\n");
    bed.write("secret", "s");
    bed.write("d/x", "x");
    bed.sh("chmod 750 run.sh; chmod 600 secret; chmod 6755 d/x; chmod 700 d");
    let depot = bed.depot();
    let before = take(&depot).id;
    let inode = fs::metadata(bed.at("run.sh")).unwrap().ino();
    bed.sh("chmod 644 run.sh; rm secret; rm -r d");
    let after = take(&depot).id;
    assert_eq!(changes(&depot, before, after), ["D d/x", "m run.sh", "D secret"]);
    bring_back(&depot, before, after, &[], false);
    let mode = |path: &str| fs::metadata(bed.at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("run.sh"), mode("secret"), mode("d/x"), mode("d")), (0o750, 0o600, 0o755, 0o700));
    assert_eq!(fs::metadata(bed.at("run.sh")).unwrap().ino(), inode, "only its mode was set");
}

#[test]
fn a_link_in_the_place_of_a_folder_is_never_followed() {
    let bed = Bed::new();
    let outside = bed.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    for file in ["d/a", "d/sub/b", "d/c"] {
        bed.write(file, "old");
    }
    let depot = bed.depot();
    let before = take(&depot).id;
    for file in ["d/a", "d/sub/b", "d/new"] {
        bed.write(file, "agent");
    }
    fs::remove_file(bed.at("d/c")).unwrap();
    let after = take(&depot).id;
    let plan = depot.plan(&[Span { before, after }], &Choice::default(), after).unwrap();
    assert_eq!(plan.actions.len(), 4);
    // Between the plan and its carrying out, the folder becomes a link.
    fs::rename(bed.at("d"), bed.at("moved")).unwrap();
    for file in ["a", "c", "new", "sub/b"] {
        fs::create_dir_all(outside.join("sub")).unwrap();
        fs::write(outside.join(file), "agent").unwrap();
    }
    symlink(&outside, bed.at("d")).unwrap();
    let there = listing(&outside);
    let restored = depot.restore(&plan).unwrap();
    assert_eq!(listing(&outside), there, "nothing outside was touched");
    assert_eq!(restored.done, [path("d/new")], "it is not there any more");
    let expected = ["d/a: d is in the way", "d/c: d is in the way", "d/sub/b: d/sub is in the way"];
    assert_eq!((conflicts(&restored.conflicts), restored.failed.len()), (expected.map(str::to_owned).to_vec(), 0));
    // Planned with the link there, it is in the way.
    let plan = depot.plan(&[Span { before, after }], &Choice::default(), take(&depot).id).unwrap();
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    let c = plan.conflicts.iter().find(|conflict| conflict.path == path("d/c")).unwrap();
    assert_eq!(c.kind, ConflictKind::Blocked { by: path("d") });
}

#[test]
fn a_folder_that_becomes_a_link_while_something_is_written_leads_nowhere() {
    for step in ["create", "write", "exchange", "rename", "remove"] {
        let bed = Bed::new();
        let outside = bed.root.parent().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        for file in ["changed", "made", "gone"] {
            fs::write(outside.join(file), "agent").unwrap();
        }
        let there = listing(&outside);
        bed.write("d/changed", "old");
        bed.write("d/gone", "old");
        let depot = bed.depot();
        let before = take(&depot).id;
        bed.sh("echo agent > d/changed; echo agent > d/made; rm d/gone");
        let after = take(&depot).id;
        let plan = depot.plan(&[Span { before, after }], &Choice::default(), after).unwrap();
        let (folder, moved, link) = (bed.at("d"), bed.at("moved"), outside.clone());
        bed.disk.faults.meddle(step, move || {
            fs::rename(&folder, &moved).unwrap();
            symlink(&link, &folder).unwrap();
        });
        depot.restore(&plan).unwrap();
        assert!(bed.at("d").is_symlink(), "{step}");
        assert_eq!(listing(&outside), there, "{step}");
    }
}

#[test]
fn a_file_that_became_a_pipe_or_a_link_to_elsewhere_comes_back() {
    let bed = Bed::new();
    let outside = bed.root.parent().unwrap().join("outside");
    fs::write(&outside, "not ours").unwrap();
    for file in ["pipe", "link"] {
        bed.write(file, "old");
    }
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.sh("rm pipe link; mkfifo pipe; ln -s ../outside link; mkfifo new");
    let after = take(&depot).id;
    assert_eq!(changes(&depot, before, after), ["T link", "A new", "T pipe"]);
    let restored = bring_back(&depot, before, after, &[], false);
    assert_eq!(conflicts(&restored.conflicts), ["new: it is a socket, a pipe or a device"]);
    assert_eq!(
        (bed.read("pipe"), bed.read("link"), fs::read(&outside).unwrap()),
        ("old".into(), "old".into(), b"not ours".into())
    );
}

#[test]
fn a_snapshot_reads_nothing_through_links() {
    let bed = Bed::new();
    let outside = bed.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s").unwrap();
    symlink(&outside, bed.at("d")).unwrap();
    symlink(outside.join("secret"), bed.at("f")).unwrap();
    // A list of what is ignored that is a link is none, as with git.
    fs::write(outside.join("rules"), "*\n").unwrap();
    symlink(outside.join("rules"), bed.at(".gitignore")).unwrap();
    let depot = bed.depot();
    let taken = take(&depot);
    assert_eq!((paths(&depot, taken.id), taken.files), (vec![".gitignore".into(), "d".into(), "f".to_owned()], 0));
}

#[test]
fn folders_swapped_for_links_during_a_snapshot_never_lead_outside() {
    let bed = Bed::new();
    let outside = bed.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "the secret").unwrap();
    for number in 0..50 {
        bed.write(&format!("d{number}/secret"), "harmless");
    }
    let secret = crate::ids::Kind::Content.id(b"the secret");
    let depot = bed.depot();
    let ends = Ends::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !ends.now() {
                let at = bed.at(&format!("d{}", number % 50));
                let aside = bed.root.parent().unwrap().join("aside");
                fs::rename(&at, &aside).unwrap();
                symlink(&outside, &at).unwrap();
                fs::remove_file(&at).unwrap();
                fs::rename(&aside, &at).unwrap();
                number += 1;
            }
        });
        let _ending = ends.with_this();
        for _ in 0..100 {
            take(&depot);
            assert!(!depot.objects.holds(&secret));
        }
    });
}

#[test]
fn a_file_that_is_written_all_the_time_is_kept_as_read_last() {
    let bed = Bed::new();
    bed.write("steady", "x");
    bed.write("log", "");
    let depot = bed.depot();
    let ends = Ends::default();
    let unsteady = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(bed.at("log")).unwrap();
            let mut written = 0;
            while !ends.now() {
                std::io::Write::write_all(&mut file, b"x").unwrap();
                written += 1;
                if written % 1_000_000 == 0 {
                    file.set_len(0).unwrap();
                }
            }
        });
        let _ending = ends.with_this();
        let mut unsteady = 0;
        for round in 0..20_000 {
            if round >= 50 && unsteady > 0 {
                break;
            }
            let taken = take(&depot);
            unsteady += usize::from(taken.unsteady == [path("log")]);
            let Some(Node::File { size_bytes, content, .. }) = depot.node(taken.id, &path("log")).unwrap() else {
                panic!()
            };
            assert_eq!(depot.content(&content).unwrap().len() as u64, size_bytes);
        }
        unsteady
    });
    // What it was at the end is found, whatever was noted while it changed.
    let last = take(&depot);
    assert_eq!(file_text(&depot, last.id, "log").len() as u64, fs::metadata(bed.at("log")).unwrap().len());
    assert!(unsteady > 0, "it never changed while it was read");
}

#[cfg(target_os = "linux")]
#[test]
fn what_may_not_be_read_is_noted_and_not_lost() {
    if !as_ordinary_user("tests::guarding::what_may_not_be_read_is_noted_and_not_lost") {
        return;
    }
    let bed = Bed::new();
    bed.write("shut", "x");
    bed.write("folder/in", "y");
    bed.write("open", "z");
    bed.sh("chmod 000 shut");
    let depot = bed.depot();
    let before = take(&depot);
    assert_eq!(before.unreadable, 1);
    bed.sh("chmod 000 folder; chmod 000 open");
    let after = take(&depot);
    assert_eq!(after.unreadable, 3);
    assert_eq!(after.noted.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>(), ["folder", "open", "shut"]);
    assert_eq!(changes(&depot, before.id, after.id), ["m folder", "D folder/in", "M open"]);
    let restored = bring_back(&depot, before.id, after.id, &[], false);
    assert_eq!(conflicts(&restored.conflicts), ["open: what is there now is not kept and would be lost"]);
    assert_eq!(bed.read("folder/in"), "y");
    let restored = bring_back(&depot, before.id, after.id, &["open"], true);
    assert_eq!((conflicts(&restored.conflicts), bed.read("open")), (vec![], "z".to_owned()));
    // What was not readable before can not be brought back.
    bed.sh("rm -f shut");
    let gone = take(&depot).id;
    let restored = bring_back(&depot, before.id, gone, &["shut"], true);
    assert_eq!(
        conflicts(&restored.conflicts),
        ["shut: what was there is not kept: it was too large or could not be read"]
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_an_error_of_its_path_and_leaves_nothing_behind() {
    if !as_ordinary_user("tests::guarding::a_read_only_folder_is_an_error_of_its_path_and_leaves_nothing_behind") {
        return;
    }
    let bed = Bed::new();
    bed.write("shut/f", "old");
    bed.write("g", "old");
    let depot = bed.depot();
    let before = take(&depot).id;
    bed.write("shut/f", "agent");
    bed.write("g", "agent");
    let after = take(&depot).id;
    bed.sh("chmod 555 shut");
    let plan = depot.plan(&[Span { before, after }], &Choice::default(), take(&depot).id).unwrap();
    let restored = depot.restore(&plan).unwrap();
    assert_eq!(restored.failed.iter().map(|failure| failure.path.to_string()).collect::<Vec<_>>(), ["shut/f"]);
    assert_eq!((bed.read("g"), bed.read("shut/f")), ("old".into(), "agent".into()));
    assert_eq!(fs::read_dir(bed.at("shut")).unwrap().count(), 1);
    // A folder that the agent made read-only is opened for what comes back in it, and shut again if it was.
    bed.sh("chmod 755 shut");
    bed.write("shut/f", "old");
    bed.sh("chmod 555 shut");
    let before = take(&depot).id;
    bed.sh("chmod 755 shut; echo agent > shut/f; chmod 500 shut");
    let after = take(&depot).id;
    bring_back(&depot, before, after, &[], false);
    assert_eq!(
        (bed.read("shut/f"), fs::metadata(bed.at("shut")).unwrap().permissions().mode() & 0o777),
        ("old".into(), 0o555)
    );
    bed.sh("chmod 755 shut");
}

#[test]
fn the_depot_is_closed_to_others() {
    let bed = Bed::new();
    bed.write("a", "x");
    let depot = bed.depot();
    take(&depot);
    drop(depot);
    let mut open = vec![bed.folder.clone()];
    while let Some(path) = open.pop() {
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.permissions().mode() & 0o077, 0, "{}", path.display());
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}
