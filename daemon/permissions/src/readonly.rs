//! The commands that only look: what plan and explore mode may run.

use std::path::Path;

use crate::command::{Parsed, Simple};
use crate::matching::git_without_globals;
use crate::paths::{Places, is_secret, named_paths};
use crate::tables::harmless::{HARMLESS, HARMLESS_VARIABLES};
use crate::words::Word;

/// Whether setting this variable can not make a command do something else.
pub(crate) fn harmless_variable(name: &str) -> bool {
    HARMLESS_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// Whether everything in the command only looks.
pub(crate) fn only_looks(parsed: &Parsed) -> bool {
    let quiet = parsed.redirects.iter().all(|redirect| !redirect.write || redirect.target.known() == Some("/dev/null"));
    !parsed.opaque && !parsed.evaluates && quiet && parsed.commands.iter().all(simple_only_looks)
}

/// Whether every path that the command names is in the project, and none is known to hold secrets.
pub(crate) fn stays_inside(parsed: &Parsed, cwd: &Path, places: &Places<'_>) -> bool {
    let mut moves = parsed.all().filter(|simple| simple.program() == "cd").peekable();
    let moved = moves.peek().is_some();
    // Without a folder, and with `-`, it is not known where `cd` leads.
    if !moves.all(|simple| matches!(&simple.words[1..], [folder] if !folder.text.starts_with('-'))) {
        return false;
    }
    let words = parsed.all().flat_map(|simple| simple.words.iter().skip(1));
    words.chain(parsed.redirects.iter().map(|redirect| &redirect.target)).all(|word| {
        let secret_glob = word.glob && word.text.contains(".e");
        // After a `cd` within the project, a path that does not go up stays within it too.
        let unknown = word.dynamic || secret_glob || (moved && word.text.contains(".."));
        !unknown
            && named_paths(word, cwd, places.home)
                .iter()
                .all(|path| path == Path::new("/dev/null") || (places.inside(path) && !is_secret(path, places.home)))
    })
}

fn simple_only_looks(simple: &Simple) -> bool {
    if !simple.assigned.iter().all(|name| harmless_variable(name)) {
        return false;
    }
    if let Some(inner) = &simple.inner {
        return inner.transparent && inner.commands.iter().all(simple_only_looks);
    }
    let Some(program) = simple.words.first() else { return true };
    let Some(name) = program.known() else { return false };
    let arguments = &simple.words[1..];
    if HARMLESS.contains(&name) || matches!(name, "[[" | "cd") {
        return true;
    }
    // For these an argument can do harm, so every argument must be known, and no name may stand in for an option.
    let known =
        !arguments.iter().any(|word| word.dynamic || (word.glob && word.text.starts_with(['*', '?', '[', '{'])));
    known && with_options(name, &simple.words)
}

fn with_options(name: &str, words: &[Word]) -> bool {
    let texts: Vec<&str> = words[1..].iter().map(|word| word.text.as_str()).collect();
    let none = |forbidden: &dyn Fn(&str) -> bool| !texts.iter().any(|text| forbidden(text));
    match name {
        "find" => {
            none(&|text| ["-exec", "-ok", "-delete", "-fprint", "-fls"].iter().any(|start| text.starts_with(start)))
        }
        "rg" => none(&|text| {
            text.starts_with("--pre")
                || text.starts_with("--hostname-bin")
                || text.starts_with("--search-z")
                || bundled(text, 'z')
        }),
        "sort" => none(&|text| text.starts_with("--o") || text.starts_with("--co") || bundled(text, 'o')),
        "tree" => none(&|text| text.starts_with("--output") || bundled(text, 'o') || bundled(text, 'R')),
        "file" => none(&|text| text.starts_with("--c") || bundled(text, 'C')),
        "uniq" => {
            none(&|text| text.starts_with("--"))
                && texts.iter().filter(|text| !text.starts_with('-') || **text == "-").count() <= 1
        }
        "date" => texts.iter().all(|text| text.starts_with('+') || matches!(*text, "-u" | "-I" | "-R")),
        "printf" => texts.first().is_none_or(|text| !text.starts_with("-v")),
        "sed" => sed_prints(&texts),
        "jq" => none(&|text| text.starts_with("--run-tests")),
        "git" => git(words),
        _ => false,
    }
}

/// Whether a bundle of short options holds this letter.
pub(crate) fn bundled(text: &str, letter: char) -> bool {
    text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
}

/// `sed -n '10,20p' FILE…`.
pub(crate) fn sed_prints(texts: &[&str]) -> bool {
    let [first, script, files @ ..] = texts else { return false };
    let Some(range) = script.strip_suffix('p') else { return false };
    *first == "-n"
        && !range.is_empty()
        && range.chars().all(|char| char.is_ascii_digit() || matches!(char, ',' | '$'))
        && files.iter().all(|file| !file.starts_with('-'))
}

fn git(words: &[Word]) -> bool {
    let plain = match git_without_globals(words) {
        Some((plain, true, _)) => plain,
        Some(_) => return false,
        None => words.to_vec(),
    };
    let texts: Vec<&str> = plain.iter().skip(1).map(|word| word.text.as_str()).collect();
    let Some((&subcommand, rest)) = texts.split_first() else { return false };
    // Git takes any unambiguous beginning of a long option.
    let starts = |text: &str, long: &str, least: usize| {
        let name = text.split('=').next().unwrap_or(text);
        name.len() >= least && long.starts_with(name)
    };
    let harmful = |text: &&str| {
        starts(text, "--output", 4)
            || starts(text, "--ext-diff", 4)
            || starts(text, "--textconv", 4)
            || starts(text, "--open-files-in-pager", 4)
    };
    if rest.iter().any(harmful) {
        return false;
    }
    let listing = |allowed: &[&str]| rest.iter().all(|text| allowed.contains(text));
    match subcommand {
        "status" | "log" | "diff" | "show" | "blame" | "rev-parse" | "ls-files" | "ls-tree" | "describe"
        | "shortlog" | "cat-file" | "rev-list" | "merge-base" | "name-rev" | "show-ref" | "count-objects" => true,
        "grep" => !rest.iter().any(|text| bundled(text, 'O')),
        "branch" => {
            rest.contains(&"--list") && !rest.iter().any(|text| matches!(*text, "-d" | "-D" | "-m" | "-M" | "-f"))
                || listing(&[
                    "-a",
                    "-r",
                    "-v",
                    "-vv",
                    "-av",
                    "--list",
                    "--all",
                    "--remotes",
                    "--show-current",
                    "--verbose",
                ])
        }
        "tag" => listing(&["-l", "--list", "-n"]),
        "remote" => listing(&["-v", "--verbose"]) || rest.first() == Some(&"get-url"),
        "stash" | "worktree" => rest == ["list"],
        "config" => matches!(rest.first(), Some(&("--get" | "--get-all" | "--list" | "-l"))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    #[test]
    fn looking_is_told_from_doing() {
        for command in [
            "ls -la src",
            "cat a | head -5 | wc -l",
            "git status && git log --oneline -5",
            "git -C sub diff HEAD~1",
            "rg foo src 2>/dev/null",
            "find . -name '*.rs' -type f",
            "sed -n '1,20p' a.rs",
            "LC_ALL=C sort a | uniq -c",
            "git branch --list",
            "git branch -a",
            "tree -L 2",
            "test -f a && echo yes",
            "timeout 5 ls",
            "[[ -f a ]]",
            "for x in 1 2; do echo $x; done",
            "date +%s",
            "git log --only-matching",
            "[ 1 -lt 2 ]",
            "echo ${HOME} $USER",
            "sort a | uniq -c -",
        ] {
            let looks = only_looks(&parse(command).unwrap());
            // The loop assigns a variable that is not known to be harmless.
            assert_eq!(looks, !command.starts_with("for "), "{command}");
        }
        for command in [
            "rm a",
            "ls > a",
            "cat a >> b",
            "find . -delete",
            "find . -exec rm {} ;",
            "find . -fprintf x y",
            "sort -o a b",
            "sort --outp=a b",
            "git push",
            "git branch new",
            "git branch -D x",
            "git diff --output=x",
            "git log --outp x",
            "git -c core.pager=x log",
            "git show --ext-diff",
            "git grep -Ovi x",
            "rg --pre ./x foo",
            "sed -i s/a/b/ f",
            "sed -n '1w x' f",
            "awk '{print}' a",
            "xargs ls",
            "sudo ls",
            "PATH=/x ls",
            "ls $(touch x)",
            "eval \"$x\"",
            "$x",
            "bash -c 'touch x'",
            "tree -o x",
            "date -s 1",
            "uniq a b",
            "uniq - b",
            "uniq -c - b",
            "[[ -v 'a[$(touch x)]' ]]",
            "[ -v 'a[$(touch x)]' ]",
            "test -v 'a[$(touch x)]'",
            "test -f a -a -v 'a[$(touch x)]'",
            "[[ 'a[$(touch x)]' -eq 0 ]]",
            "[[ 1 -eq $'a[$(touch x)]' ]]",
            "TZ='a[$(touch x)]'; [[ TZ -eq 0 ]]",
            "TZ=-v; test $TZ 'a[$(touch x)]'",
            "LC_ALL='a[$(touch x)]'; ((LC_ALL))",
            "TZ='a[$(touch x)]'; echo $((TZ))",
            "TZ='a[$(touch x)]'; echo $[TZ]",
            "TZ='a[$(touch x)]'; echo ${TZ:TZ}",
            "TZ='a[$(touch x)]'; echo ${!TZ}",
            "TZ='a[$(touch x)]'; echo ${x[TZ]}",
            "TZ='$(touch x)'; echo \"${TZ@P}\"",
            "TZ='a[$(touch x)]' bash -c 'echo $((TZ))'",
            "find * -name x",
            "find . $X",
            "printf -v PATH x",
            "cat <(touch x)",
            "python -c 1",
            "make",
            "ls & rm x",
            "git stash",
            "git tag v1",
            "git remote add a b",
            "file -C x",
        ] {
            assert!(!parse(command).is_some_and(|parsed| only_looks(&parsed)), "{command}");
        }
    }

    #[test]
    fn paths_outside_and_secrets_are_seen() {
        let extra = [];
        let places = Places { project_root: Path::new("/p"), extra_dirs: &extra, home: Some(Path::new("/h")) };
        let inside = |command: &str| stays_inside(&parse(command).unwrap(), Path::new("/p/sub"), &places);
        for command in
            ["cd /p/a && ls x", "cd a; cat b", "ls", "cat a ../b", "grep -r foo .", "cat a 2>/dev/null", "ls *.rs"]
        {
            assert!(inside(command), "{command}");
        }
        for command in [
            "cd / && cat etc/passwd",
            "cd; cat x",
            "cd - && cat x",
            "cd /p && cat ../x",
            "cat /etc/passwd",
            "cat ../../x",
            "cat ~/.ssh/id_rsa",
            "cat .env",
            "cat $HOME/x",
            "cat .e*",
            "cat < /etc/x",
            "grep -f/etc/x a",
        ] {
            assert!(!inside(command), "{command}");
        }
    }
}
