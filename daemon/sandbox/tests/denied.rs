//! What deny rules stand for on a disk.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::{Path, PathBuf};

use mcode_sandbox::{Denied, Policy};

fn tree(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    for name in names {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, *name).unwrap();
    }
    (kept, root)
}

fn denied(root: &Path, view: &[&str], edit: &[&str]) -> Denied {
    let globs = |list: &[&str]| -> Vec<String> {
        let absolute =
            |glob: &&str| if glob.starts_with('/') { (*glob).to_owned() } else { format!("{}/{glob}", root.display()) };
        list.iter().map(absolute).collect()
    };
    Denied::of(&globs(view), &globs(edit), &[root.to_path_buf()], true)
}

#[test]
fn patterns_are_replaced_by_what_is_there_also_by_what_git_ignores() {
    let names = ["p/.env", "p/node_modules/x/.env", "p/a/b.pem", "p/a/c/d.pem", "p/keys/k", "p/src/x.lock", "p/l"];
    let (_kept, top) = tree(&[&names[..], &["p/.gitignore", "else/.env"]].concat());
    let root = top.join("p");
    std::fs::write(root.join(".gitignore"), ".env\nnode_modules\n").unwrap();
    let paths = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
    for (view, edit, hidden, fixed, elsewhere) in [
        (&["/**/.env"][..], &[][..], &[".env", "node_modules/x/.env"][..], &[][..], true),
        (&["a/*.pem"], &[], &["a/b.pem"], &[], false),
        (&["a/**/*.pem"], &[], &["a/b.pem", "a/c/d.pem"], &[], false),
        (&["keys/**"], &[], &["keys"], &[], false),
        (&["*/c/**"], &[], &["a/c"], &[], false),
        (&["{keys,a}/*"], &[], &["a/b.pem", "a/c", "keys/k"], &[], false),
        (&["keys", "not-there"], &["keys", "l"], &["keys"], &["l"], false),
        (&[], &["src/**"], &[], &["src"], false),
        (&[], &["src/*.lock"], &[], &["src/x.lock"], true),
        (&[], &["new.lock"], &[], &[], true),
    ] {
        let found = denied(&root, view, edit);
        assert_eq!((found.hidden, found.fixed), (paths(hidden), paths(fixed)), "{view:?} {edit:?}");
        assert_eq!(found.elsewhere, elsewhere, "{view:?} {edit:?}");
        assert_eq!(found.left_out, Vec::<String>::new());
    }
    assert_eq!(denied(&root, &[], &["new.lock"]).absent, [root.join("new.lock")]);
    // What comes later is found by the next command.
    std::fs::write(root.join("a/later.pem"), "").unwrap();
    assert_eq!(denied(&root, &["a/*.pem"], &[]).hidden, paths(&["a/b.pem", "a/later.pem"]));
}

#[test]
fn a_file_is_found_by_all_its_names_and_where_it_was_moved_to() {
    let (_kept, root) = tree(&["secret", "keys/k", "a/b/x", "src/y"]);
    for (from, to) in [("secret", "a/other"), ("keys/k", "a/b/key"), ("src/y", "a/y")] {
        std::fs::hard_link(root.join(from), root.join(to)).unwrap();
    }
    let found = denied(&root, &["secret", "keys/**"], &["src/**"]);
    assert_eq!(found.hidden, ["a/b/key", "a/other", "keys", "secret"].map(|name| root.join(name)));
    assert_eq!(found.fixed, ["a/y", "src"].map(|name| root.join(name)));
    for (name, original) in [
        ("a/other", Some("secret")),
        ("a/b/key", Some("keys/k")),
        ("a/y", Some("src/y")),
        ("a/b/x", None),
        ("secret", None),
    ] {
        let wanted = original.map(|name| root.join(name));
        assert_eq!(found.original(&root.join(name)), wanted.as_deref(), "{name}");
    }
    std::fs::remove_file(root.join("a/other")).unwrap();
    denied(&root, &["secret"], &[]);
    std::fs::rename(root.join("secret"), root.join("a/moved")).unwrap();
    assert_eq!(denied(&root, &["secret"], &[]).hidden, [root.join("a/moved")]);
    assert_eq!(denied(&root, &["secret"], &[]).hidden, [root.join("a/moved")], "it is forgotten");
}

#[test]
fn a_project_that_a_rule_is_about_as_a_whole_is_not_written() {
    let (_kept, root) = tree(&["p/a", "p/tmp/x", "cache/x"]);
    let project = root.join("p");
    let policy = Policy {
        write: vec![project.clone(), root.join("tmp"), root.join("cache")],
        projects: vec![project.clone()],
        temp: root.join("tmp"),
        ..Policy::default()
    };
    let all = policy.clone().with_denied(&denied(&project, &[], &["/**"]));
    assert_eq!((all.write, all.projects), (vec![root.join("tmp")], Vec::new()));
    let whole = policy.with_denied(&denied(&project, &["**"], &[]));
    assert!(!whole.may_read(&project.join("a")) && !whole.may_write(&project.join("a")));
    assert!(whole.may_write(&root.join("cache/x")));
}

#[test]
fn what_is_too_much_is_said() {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    for number in 0..1001 {
        std::fs::write(root.join(format!("{number}.pem")), "").unwrap();
    }
    let found = denied(&root, &["*.pem"], &[]);
    assert_eq!(found.hidden.len(), 1000);
    assert!(found.left_out.iter().any(|text| text.contains("more than 1000 files")), "{:?}", found.left_out);
}
