//! The paths that a command names, for whoever can look at the disk.
//!
//! A rule about `secret` also means `./secret`, a link to it and `s*`. Which files those are only the disk tells, so
//! the tool that runs commands resolves what is found here and adds it to its plan as
//! [`Access::Mentioned`](crate::Access::Mentioned). Pure; what is found is a superset of what the command touches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::command::{Parsed, Simple, parse};
use crate::git::{Shows, shows};
use crate::paths::{absolute, named_paths};
use crate::touched::{changes, raw_commands};
use crate::words::Word;

/// Most paths that are told of one command; of one that names more, the rest is not known.
pub const MENTIONS_MAX: usize = 512;
/// Most folders that a command can be thought to stand in.
const BASES_MAX: usize = 16;

/// A path that a command names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    /// Absolute, without `.` and `..`; links are not followed. With `glob`, a pattern.
    pub path: PathBuf,
    /// Holds wildcards or a brace list that the shell would replace.
    pub glob: bool,
    /// The command may change it.
    pub changes: bool,
    /// If it is a folder, the command reads what is below it.
    pub searched: bool,
}

/// All that a command names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mentions {
    /// The paths, each once.
    pub paths: Vec<Mention>,
    /// There were more than [`MENTIONS_MAX`].
    pub cut: bool,
}

/// The paths that a command names that runs in `cwd`.
#[must_use]
pub fn mentions(command: &str, cwd: &Path, home: Option<&Path>) -> Mentions {
    let mut found = BTreeSet::new();
    match parse(command) {
        Some(parsed) => collect(&parsed, cwd, home, &mut found),
        None => {
            for word in raw_commands(command).iter().flatten() {
                add(word, &[cwd.to_path_buf()], home, false, false, &mut found);
            }
        }
    }
    let cut = found.len() > MENTIONS_MAX;
    Mentions { paths: found.into_iter().take(MENTIONS_MAX).collect(), cut }
}

fn collect(parsed: &Parsed, cwd: &Path, home: Option<&Path>, found: &mut BTreeSet<Mention>) {
    let bases = bases(parsed, cwd, home);
    for redirect in &parsed.redirects {
        add(&redirect.target, &bases, home, redirect.write, false, found);
    }
    for simple in parsed.all() {
        let program = simple.program();
        let (changes, searched) = (changes(simple), searches(simple));
        for word in simple.words.iter().skip(1) {
            add(word, &bases, home, changes, searched, found);
        }
        for value in &simple.values {
            add(value, &bases, home, false, false, found);
        }
        let operands = simple.words.iter().skip(1).filter(|word| !word.text.starts_with('-')).count();
        // A search that names no folder is one of the folder that it stands in.
        if searched && operands <= 1 && program != "mv" {
            let here = |base: &PathBuf| Mention { path: base.clone(), glob: false, changes: false, searched: true };
            found.extend(bases.iter().map(here));
        }
        if found.len() > MENTIONS_MAX {
            return;
        }
    }
}

fn add(
    word: &Word,
    bases: &[PathBuf],
    home: Option<&Path>,
    changes: bool,
    searched: bool,
    found: &mut BTreeSet<Mention>,
) {
    for base in bases {
        let paths = named_paths(word, base, home).into_iter();
        found.extend(paths.map(|path| Mention { path, glob: word.glob, changes, searched }));
    }
}

/// The folders that a command may stand in: where it begins, and where `cd` and the like lead.
pub(crate) fn bases(parsed: &Parsed, cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut bases = vec![cwd.to_path_buf()];
    for simple in parsed.all() {
        let program = simple.program();
        let moves = matches!(program, "cd" | "pushd");
        let mut words = simple.words.iter().skip(1).peekable();
        let mut targets: Vec<&str> = Vec::new();
        while let Some(word) = words.next() {
            match word.text.as_str() {
                "-C" | "--chdir" | "--directory" | "--cwd" => {
                    targets.extend(words.peek().and_then(|next| next.known()))
                }
                text if moves && !text.starts_with('-') => targets.extend(word.known()),
                text => targets.extend(["--chdir=", "--directory="].iter().find_map(|name| text.strip_prefix(name))),
            }
        }
        if moves && simple.words.len() == 1 {
            bases.extend(home.map(Path::to_path_buf));
        }
        for target in targets {
            let further: Vec<PathBuf> = bases.iter().map(|base| absolute(base, target, home)).collect();
            for folder in further {
                if bases.len() < BASES_MAX && !bases.contains(&folder) {
                    bases.push(folder);
                }
            }
        }
    }
    bases
}

/// Whether the command reads whole folders.
fn searches(simple: &Simple) -> bool {
    let program = simple.program();
    let options = || simple.words.iter().skip(1).map(|word| word.text.as_str()).filter(|text| text.starts_with('-'));
    let letters = |wanted: &[char]| options().any(|text| !text.starts_with("--") && text.contains(wanted));
    let named = |wanted: &str| options().any(|text| text.starts_with(wanted));
    match program {
        "rg" | "ag" | "ack" | "ugrep" | "tar" | "bsdtar" | "rsync" | "zip" | "7z" | "cpio" | "pax" => true,
        // What it moves is found under another name afterwards.
        "mv" => true,
        "grep" | "egrep" | "fgrep" | "zgrep" => letters(&['r', 'R', 'd']) || named("--recursive") || named("--deref"),
        "cp" | "scp" | "diff" => letters(&['r', 'R', 'a']) || named("--recursive") || named("--archive"),
        "find" => simple.inner.is_some(),
        "git" => shows(&simple.words) != Shows::Named,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(command: &str, path: &str) -> bool {
        let found = mentions(command, Path::new("/p"), Some(Path::new("/h")));
        found.paths.iter().any(|mention| mention.path == Path::new(path))
    }

    #[test]
    fn what_a_command_names_is_found_where_it_stands() {
        for (command, path) in [
            ("cat secret", "/p/secret"),
            ("cat ./a/../secret", "/p/secret"),
            ("cat sec''ret", "/p/secret"),
            ("cd sub && cat secret", "/p/sub/secret"),
            ("(cd sub; cd deep; cat secret)", "/p/sub/deep/secret"),
            ("git -C sub show x", "/p/sub/x"),
            ("cat ~/x", "/h/x"),
            ("cat < in", "/p/in"),
            ("echo x > out", "/p/out"),
            ("x=secret; cat $x", "/p/secret"),
            ("cat s* ", "/p/s*"),
            ("cat 'a", "/p/a"),
        ] {
            assert!(named(command, path), "{command}");
        }
        let of = |command: &str| mentions(command, Path::new("/p"), None).paths;
        assert!(of("sed -i s/a/b/ f").iter().any(|it| it.changes && it.path == Path::new("/p/f")));
        assert!(of("grep -rn x sub").iter().any(|it| it.searched && it.path == Path::new("/p/sub")));
        assert!(of("rg x").iter().any(|it| it.searched && it.path == Path::new("/p")));
        assert!(!of("grep x f").iter().any(|it| it.searched));
    }

    #[test]
    fn a_command_of_very_many_paths_is_cut_and_says_so() {
        let many: Vec<String> = (0..MENTIONS_MAX + 5).map(|number| format!("f{number}")).collect();
        let found = mentions(&format!("cat {}", many.join(" ")), Path::new("/p"), None);
        assert_eq!((found.paths.len(), found.cut), (MENTIONS_MAX, true));
    }
}
