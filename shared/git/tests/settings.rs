//! Settings are read as the git of this machine reads them, and the table knows what it runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

use std::path::Path;
use std::process::Command;

use mcode_git::{Setting, leads, runs, settings};

/// Files that git reads.
const ODD: &[&str] = &[
    "",
    "[core]\n bare = false # \\\nfsmonitor = ./x\n",
    "; \\\n[core] ; \\\n# \\\neditor=x\n",
    "[core]\n\thooksPath = \".hooks x\" ; c\n\tbare\n[Filter \"Lfs\"] clean = a \\\n b # c\n",
    "[alias]\n\tx = \"!sh -c \\\"y\\\"\"\n[branch \"m\"]\n\tremote = o\n",
    "[a \"b]c\"]x=1\n[a \"b\\\"c\"]x=2\n[a \"b\\\\c\"]x=3\n[a \"b\\xc\"]x=4\n[a \"b.c # d\"]x=5\n",
    "[a.B]x=1\n[a.B.c]x=2\n[a.B \"C\"]x=3\n[A-1]x=4\n[a   \"b\"]x=5\n[a \"\"]x=6\n",
    "\u{feff}[core]\r\n\teditor = x\r\n\tpager = y \\\r\n z\r\n",
    "[a]b=c\rd\n e = f\r",
    "[a]b = x\\\n",
    "[a]b = x \\\n  y  \\\n\tz   ; c\nd = \"x ; y\" z # c \"\n",
    "[a]b = \"x\\\ny\"\nc = \" x \"\nd = x\\ty\\nz\\\\\\\"\n",
    "[a] b = c [d] e = f\n[d] e = f\n",
    "[a] b\n c \n d\t=\n e =   \n f = \"\"\n g=\\\n\n",
    "[a][b]c=d\n[e]\nf=g",
    "[a]b=#c\n d=;e\n f=x#y\n",
    "[a]\nb = \u{e4} \u{20ac}\n[c \"\u{e4}\"]d=e\n",
    "[a]b = x  \\\n  \n c = y\n",
    "[include]path = a\n[includeIf \"gitdir:/x]/\"]path=b\n",
    "[a]b = x\u{b}\u{c}y \n",
];

/// What git reads in a file: keys and values; nothing where it finds a fault.
fn of_git(folder: &Path, text: &str) -> Option<Vec<(String, String)>> {
    let file = folder.join("config");
    std::fs::write(&file, text).unwrap();
    let listed = Command::new("git").args(["config", "-l", "-z", "--no-includes", "-f"]).arg(&file).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let entries = text.split_terminator('\0').map(|entry| entry.split_once('\n').unwrap_or((entry, "true")));
    listed.status.success().then(|| entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

fn of_ours(text: &str) -> Vec<(String, String)> {
    let key = |it: &Setting| {
        let parts = [Some(&it.section), it.subsection.as_ref(), Some(&it.name)];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(".")
    };
    settings(text).iter().map(|it| (key(it), it.value.clone())).collect()
}

#[test]
fn odd_files_are_read_as_git_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    for text in ODD {
        let wanted = of_git(folder.path(), text);
        assert_eq!(Some(of_ours(text)), wanted, "{text:?}");
    }
}

#[test]
fn made_up_files_are_read_as_git_reads_them() {
    const PARTS: &[&str] = &[
        "[a]",
        "[B \"c]\"]",
        "[d.E]",
        "\n",
        "\n",
        "\r\n",
        "x",
        "y",
        " = ",
        "=",
        "\\\n",
        "\\\"",
        "\\t",
        "\"",
        "#",
        ";",
        " ",
        "\t",
        "\\\\",
        "1",
        "]",
        "[",
    ];
    const FILES: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let (mut state, mut read) = (7_u64, 0);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..FILES {
        let parts = 4 + next() % 14;
        let mut text = String::from("[s]\nk = ");
        (0..parts).for_each(|_| text.push_str(PARTS[next() % PARTS.len()]));
        if let Some(wanted) = of_git(folder.path(), &text) {
            read += 1;
            assert_eq!(of_ours(&text), wanted, "{text:?}");
        }
    }
    assert!(read > FILES / 10, "git read only {read} of them");
}

#[test]
fn after_a_fault_the_next_line_is_read() {
    let text = "[core\nx\n[core]\n?\nbad name = x\nquote = \"x\neditor = a\nesc = \\q\npager = b\n[x \"y]\nz=1\n";
    let found = of_ours(text);
    let wanted = [("core.editor", "a"), ("core.pager", "b"), ("core.z", "1")];
    assert_eq!(found[1..], wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
    // Git keeps a key only up to a zero.
    assert_eq!(of_ours("[diff \"x.command\0y\"]\nz = ./a\0b\n"), [("diff.x.command".to_owned(), "./a".to_owned())]);
}

#[test]
fn the_table_knows_what_is_run() {
    for (key, value) in [
        ("core.fsmonitor", "./x"),
        ("Core.SSHCommand", "x"),
        ("core.gitproxy", "x"),
        ("difftool.a.b.cmd", "x"),
        ("mergetool.x.cmd", "x"),
        ("browser.x.cmd", "x"),
        ("man.x.cmd", "x"),
        ("remote.origin.uploadpack", "x"),
        ("remote.origin.receivepack", "x"),
        ("interactive.diffFilter", "x"),
        ("uploadpack.packObjectsHook", "x"),
        ("sendemail.cccmd", "x"),
        ("sendemail.me.tocmd", "x"),
        ("trailer.x.command", "x"),
        ("submodule.sub.update", "!x"),
        ("credential.helper", "x"),
        ("credential.https://a.b/c.helper", "x"),
        ("gpg.ssh.defaultKeyCommand", "x"),
        ("pager.log", "x"),
        ("alias.x", "log"),
        ("filter.x.process", "x"),
    ] {
        let setting = Setting::of(key, value);
        assert!(runs(&setting) && !leads(&setting), "{key}");
    }
    for (key, value) in [
        ("core.hooksPath", "x"),
        ("include.path", "x"),
        ("includeIf.gitdir:/a.b/.path", "x"),
        ("init.templateDir", "x"),
        ("url.ext::sh -c x.insteadOf", "y"),
        ("protocol.ext.allow", "always"),
    ] {
        let setting = Setting::of(key, value);
        assert!(leads(&setting) && !runs(&setting), "{key}");
    }
    for (key, value) in [
        ("branch.cleanup.remote", "origin"),
        ("branch.pager.merge", "x"),
        ("remote.clean.url", "x"),
        ("core.fsmonitor", "true"),
        ("core.fsmonitorHookVersion", "2"),
        ("pager.log", "false"),
        ("submodule.sub.update", "merge"),
        ("submodule.sub.url", "!x"),
        ("protocol.version", "2"),
        ("color.pager", "true"),
        ("diff.command", "x"),
        ("filter.x.required", "true"),
        ("core", "x"),
        ("user.name", "clean"),
    ] {
        let setting = Setting::of(key, value);
        assert!(!runs(&setting) && !leads(&setting), "{key}");
    }
}
