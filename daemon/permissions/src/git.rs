//! What `git` shows and changes. It knows every file of the repository, also those that no word of a command names, and
//! what they once held.

use crate::matching::git_without_globals;
use crate::unwrap::base_name;
use crate::words::Word;

/// What a command of `git` may show of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Nothing of what they hold, or only of those that its words name.
    Named,
    /// Everything that is at or below these.
    Below(Vec<String>),
    /// Anything in the repository.
    Anything,
}

/// Subcommands that show or copy what files hold.
const SHOWING: &[&str] = &[
    "show",
    "diff",
    "blame",
    "annotate",
    "grep",
    "cat-file",
    "archive",
    "bundle",
    "fast-export",
    "format-patch",
    "diff-tree",
    "diff-index",
    "diff-files",
    "range-diff",
    "whatchanged",
    "difftool",
    "unpack-file",
    "checkout-index",
    "merge-tree",
    "instaweb",
    "gui",
    "daemon",
    "pack-objects",
    // These put what is stored of a file into the tree or under another name, from where it can be read.
    "read-tree",
    "replace",
];
/// Subcommands that show it with certain options only.
const SHOWING_WITH: &[(&str, &[&str])] = &[
    ("log", PATCHES),
    ("reflog", PATCHES),
    ("stash", PATCHES),
    ("rev-list", PATCHES),
    ("add", &["-p", "--patch", "-i", "--interactive", "-e", "--edit"]),
    ("checkout", &["-p", "--patch"]),
    ("restore", &["-p", "--patch"]),
    ("reset", &["-p", "--patch"]),
    ("commit", &["-p", "--patch", "-v", "--verbose", "--interactive"]),
    ("status", &["-v", "-vv", "--verbose"]),
    ("worktree", &["add"]),
    ("request-pull", &["-p"]),
    ("rerere", &["diff"]),
    ("update-index", &["--cacheinfo", "--index-info"]),
    ("am", &["--show-current-patch"]),
    ("rebase", &["--show-current-patch"]),
];
const PATCHES: &[&str] = &[
    "-p",
    "-u",
    "-U",
    "--patch",
    "--patch-with-stat",
    "--patch-with-raw",
    "--unified",
    "-L",
    "-c",
    "--cc",
    "--word-diff",
    "--color-words",
    "--binary",
    "--full-index",
    "-W",
    "--function-context",
    "--ext-diff",
    "--textconv",
    "--remerge-diff",
    "--diff-merges",
    "--dd",
];
/// With one of these, `show` and `diff` tell only which files differ, unless an option of [`PATCHES`] is there too.
const SUMMARIES: &[&str] = &[
    "--stat",
    "--shortstat",
    "--numstat",
    "--name-only",
    "--name-status",
    "--summary",
    "--dirstat",
    "-s",
    "--no-patch",
    "--quiet",
    "--raw",
    "--compact-summary",
    "-t",
    "-e",
];
/// Subcommands that show nothing of it. What is in no list may be an alias, which may be anything.
const QUIET: &[&str] = &[
    "add",
    "am",
    "apply",
    "bisect",
    "branch",
    "bugreport",
    "check-attr",
    "check-ignore",
    "checkout",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "commit-graph",
    "commit-tree",
    "config",
    "count-objects",
    "credential",
    "describe",
    "fetch",
    "filter-branch",
    "for-each-ref",
    "fsck",
    "gc",
    "hash-object",
    "help",
    "init",
    "lfs",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "maintenance",
    "merge",
    "merge-base",
    "mktree",
    "mv",
    "name-rev",
    "notes",
    "pack-refs",
    "prune",
    "pull",
    "push",
    "rebase",
    "reflog",
    "remote",
    "repack",
    "request-pull",
    "rerere",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "send-email",
    "shortlog",
    "show-branch",
    "show-ref",
    "sparse-checkout",
    "stash",
    "status",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "update-index",
    "update-ref",
    "var",
    "verify-commit",
    "verify-tag",
    "version",
    "worktree",
    "write-tree",
];
/// Subcommands that change the files that their words name.
const CHANGING_SUBCOMMANDS: &[&str] =
    &["checkout", "restore", "rm", "mv", "clean", "checkout-index", "apply", "reset", "stash"];

/// The command without the options before its subcommand; `None` when it is not `git`.
fn plain(words: &[Word]) -> Option<Vec<Word>> {
    let program = words.first()?;
    if base_name(program.known()?) != "git" {
        return None;
    }
    Some(git_without_globals(words).map_or_else(|| words.to_vec(), |(plain, _, _)| plain))
}

/// The word for what `git` is told to do; empty where there is none.
pub(crate) fn subcommand(words: &[Word]) -> String {
    plain(words).and_then(|words| Some(words.get(1)?.text.clone())).unwrap_or_default()
}

/// Whether a command changes the files that it names.
pub(crate) fn changes_named(words: &[Word]) -> bool {
    plain(words)
        .is_some_and(|words| words.get(1).is_some_and(|word| CHANGING_SUBCOMMANDS.contains(&word.text.as_str())))
}

/// Whether the subcommand is none of `git`'s own, so that it may be an alias for any.
pub(crate) fn may_be_alias(words: &[Word]) -> bool {
    let Some(words) = plain(words) else { return false };
    let Some(subcommand) = words.get(1) else { return false };
    let name = subcommand.text.as_str();
    !name.starts_with('-') && subcommand.known().is_none_or(|name| !(SHOWING.contains(&name) || QUIET.contains(&name)))
}

/// What a command may show of files.
pub(crate) fn shows(words: &[Word]) -> Shows {
    let Some(words) = plain(words) else { return Shows::Named };
    let Some(subcommand) = words.get(1) else { return Shows::Named };
    let name = subcommand.text.as_str();
    if name.starts_with('-') {
        // `git --version`
        return Shows::Named;
    }
    let rest = &words[2..];
    let option = |wanted: &str| {
        let stuck = matches!(wanted, "-p" | "-u" | "-U" | "-L" | "-W");
        rest.iter().take_while(|word| word.text != "--").map(|word| word.text.as_str()).any(|text| {
            text == wanted || stuck && text.starts_with(wanted) || wanted.starts_with("--") && cut(text, wanted)
        })
    };
    let showing = match SHOWING_WITH.iter().find(|(subcommand, _)| *subcommand == name) {
        Some((_, with)) => with.iter().any(|it| option(it)),
        None if name == "clone" => copies_local(rest),
        None if matches!(name, "fetch" | "pull") => takes_local(rest),
        None if name == "remote" => {
            rest.first().is_some_and(|word| matches!(word.text.as_str(), "add" | "set-url")) && takes_local(&rest[1..])
        }
        None if matches!(name, "for-each-ref" | "tag" | "branch") => formats_contents(rest),
        None if SHOWING.contains(&name) => {
            let summary = matches!(name, "show" | "diff" | "diff-tree" | "diff-index" | "diff-files" | "cat-file")
                && SUMMARIES.iter().any(|it| option(it));
            // Of `cat-file`, `-p` shows it and `-t`, `-s` and `-e` do not.
            !(summary && (name == "cat-file" || !PATCHES.iter().any(|it| option(it))))
        }
        None => may_be_alias(&words),
    };
    if showing { held_to(name, rest) } else { Shows::Named }
}

/// Whether this is the option or the beginning of it, which `git` takes for it where it is no option of its own.
fn cut(text: &str, option: &str) -> bool {
    const CUT_MIN: usize = 4;
    let name = text.split('=').next().unwrap_or(text);
    name == option || name.len() >= CUT_MIN && option.starts_with(name) && name != "--color"
}

/// Whether what is cloned is a folder of this machine.
fn copies_local(rest: &[Word]) -> bool {
    let source = rest.iter().find(|word| !word.text.starts_with('-'));
    source.is_some_and(|word| !(word.text.contains("://") || word.text.contains('@')))
}

/// Whether something is fetched from a repository of this machine: what a deny rule names in one place has another name in
/// the next.
fn takes_local(rest: &[Word]) -> bool {
    let operands = rest.iter().filter(|word| !word.text.starts_with('-'));
    operands.into_iter().any(|word| {
        let Some(text) = word.known() else { return true };
        text.starts_with(['.', '/', '~']) || text.starts_with("file:")
    })
}

/// Whether a format asks for what an object holds.
fn formats_contents(rest: &[Word]) -> bool {
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let Some((name, format)) = word.text.split_once('=').map_or_else(
            || (word.text == "--format").then(|| ("--format", words.next().map_or("", |next| next.text.as_str()))),
            |(name, format)| Some((name, format)),
        ) else {
            if word.known().is_none() {
                return true;
            }
            continue;
        };
        let asks = format.contains("raw") || format.contains("contents") || word.known().is_none();
        if name.len() > 2 && "--format".starts_with(name) && asks {
            return true;
        }
    }
    false
}

/// What the words of a command that shows files hold it to.
fn held_to(name: &str, rest: &[Word]) -> Shows {
    let separator = rest.iter().position(|word| word.text == "--");
    let (before, paths) = match separator {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    // Magic such as `:/` and `:!x`, patterns, and what is known only when it runs may be anything.
    let whole = |word: &Word| {
        word.known().is_none_or(|text| {
            text.starts_with(':')
                || matches!(text, "" | "." | "./")
                || text.contains("..")
                || text.contains(['*', '?', '['])
        })
    };
    // `blame -L 1,5 FILE`: lines are no file.
    let lines = |at: usize| at > 0 && before[at - 1].text == "-L";
    let operands = before.iter().enumerate().filter(|(at, word)| !word.text.starts_with('-') && !lines(*at));
    let operands: Vec<&Word> = operands.map(|(_, word)| word).collect();
    let of_tree = |word: &&Word| {
        let path = word.known().and_then(|text| text.rsplit_once(':')).map_or("", |(_, path)| path);
        !path.is_empty() && !path.starts_with(['/', '(', '!']) && !word.text.contains("^{/")
    };
    if matches!(name, "show" | "cat-file") && !operands.is_empty() && paths.is_empty() {
        let mut objects = operands
            .iter()
            .filter(|word| !(name == "cat-file" && matches!(word.text.as_str(), "blob" | "commit" | "tag" | "tree")));
        // `git show HEAD:file` names its file.
        let batch = before.iter().any(|word| word.text.starts_with("--batch"));
        return if !batch && objects.all(of_tree) { Shows::Named } else { Shows::Anything };
    }
    let all_known = |words: &[Word]| !words.is_empty() && !words.iter().any(whole);
    match name {
        "blame" | "annotate" if paths.is_empty() => match operands.as_slice() {
            [only] if !whole(only) => Shows::Named,
            _ => Shows::Anything,
        },
        "blame" | "annotate" | "show" | "diff" | "log" | "grep" | "whatchanged" | "diff-tree" | "diff-index"
        | "diff-files" | "archive" | "format-patch" | "difftool" | "rev-list" | "checkout" | "restore" | "reset"
        | "add" | "stash" | "status" | "commit" | "reflog"
            if all_known(paths) =>
        {
            Shows::Below(paths.iter().map(|word| word.text.clone()).collect())
        }
        _ => Shows::Anything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    fn of(command: &str) -> Shows {
        shows(&parse(command).unwrap().commands[0].words)
    }

    #[test]
    fn what_git_shows_is_told_from_what_it_names() {
        for command in [
            "git diff",
            "git diff main",
            "git diff --cached src",
            "git diff -- .",
            "git diff -- ':!x'",
            "git diff -- $f",
            "git diff --stat -p",
            "git show",
            "git show abc123",
            "git show HEAD",
            "git log -p",
            "git log -1 -U5",
            "git log --pat",
            "git -C sub log --patch",
            "git grep x",
            "git stash show -p",
            "git cat-file -p abc",
            "git cat-file --batch",
            "git archive HEAD",
            "git read-tree -u --prefix=cp/ HEAD",
            "git update-index --add --cacheinfo 100644,abc,c2",
            "git replace -f HEAD:a abc",
            "git tag -l --format='%(contents)'",
            "git for-each-ref --format '%(raw)'",
            "git for-each-ref --fo=\"$f\"",
            "git -C n pull .. HEAD",
            "git fetch /srv/p main",
            "git remote add here file:///srv/p",
            "git pull \"$r\"",
            "git format-patch -1",
            "git worktree add ../x",
            "git clone . ../x",
            "git commit -v",
            "git status -v",
            "git mine",
            "git $x",
            "git --no-pager difftool",
        ] {
            assert_eq!(of(command), Shows::Anything, "{command}");
        }
        for command in [
            "git status",
            "git log --oneline -5",
            "git log -n 5 --stat",
            "git log --since=2.weeks --author=x",
            "git diff --stat",
            "git diff --name-only main",
            "git show --name-status HEAD",
            "git show HEAD:src/a.rs",
            "git cat-file -p HEAD:src/a.rs",
            "git cat-file -t abc",
            "git blame src/a.rs",
            "git stash",
            "git stash pop",
            "git stash list",
            "git commit -m x -c HEAD",
            "git push origin main",
            "git checkout -b x",
            "git clone https://host/x",
            "git clone git@host:x",
            "git add -A",
            "git pull",
            "git fetch origin main",
            "git remote add up https://host/x",
            "git tag v1",
            "git branch --format='%(refname)'",
            "git update-index --refresh",
            "git --version",
            "git",
            "ls",
        ] {
            assert_eq!(of(command), Shows::Named, "{command}");
        }
        assert_eq!(of("git diff -- src a.rs"), Shows::Below(vec!["src".into(), "a.rs".into()]));
        assert_eq!(of("git log -p -- src"), Shows::Below(vec!["src".into()]));
        assert!(may_be_alias(&parse("git up").unwrap().commands[0].words));
        assert!(!may_be_alias(&parse("git -C x pull").unwrap().commands[0].words));
        assert_eq!(subcommand(&parse("git -C x -c a=b pull .").unwrap().commands[0].words), "pull");
        assert!(changes_named(&parse("git -C x checkout -- a").unwrap().commands[0].words));
    }
}
