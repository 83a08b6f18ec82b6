//! Programs that can run or write something besides what they are called for.

use crate::code::little;
use crate::matching::git_without_globals;
use crate::readonly::{bundled, sed_prints};
use crate::tables::code::{AWKS, EDITORS, EVALUATORS, INTERPRETERS, SEDS};
use crate::tables::harmless::{HARMLESS, RUNS_NOTHING};
use crate::texts::telling_words;
use crate::unwrap::program_of;
use crate::words::Word;

/// Whether the command's arguments are surely no command.
pub(crate) fn runs_nothing(words: &[Word]) -> bool {
    let name = program_of(words);
    RUNS_NOTHING.contains(&name) || HARMLESS.contains(&name)
}

/// Whether some text that the command is given is run as commands or code.
pub(crate) fn evaluates_text(words: &[Word]) -> bool {
    let name = program_of(words).trim_end_matches(|char: char| char.is_ascii_digit() || char == '.');
    let configured = || git_without_globals(words).is_some_and(|(_, harmless, _)| !harmless);
    let lists: [&[&str]; 5] = [&INTERPRETERS, &AWKS, &SEDS, &EDITORS, &EVALUATORS];
    lists.iter().any(|list| list.contains(&name)) || (name == "git" && configured())
}

/// A `git` command that brings its own aliases may be any `git` command.
pub(crate) fn git_alias(words: &[Word]) -> Option<Vec<Word>> {
    let (mut plain, harmless, _) = git_without_globals(words)?;
    let aliased = words.iter().any(|word| {
        let text = word.text.to_lowercase();
        word.dynamic || ["alias.", "-calias.", "--config-env=alias."].iter().any(|start| text.starts_with(start))
    });
    if harmless || !aliased {
        return None;
    }
    if let Some(subcommand) = plain.get_mut(1) {
        subcommand.dynamic = true;
    }
    Some(plain)
}

/// The options of well-known programs that make them run or write something else: a rule that allows the program has
/// to name them. `command` is all of what it stands in.
pub(crate) fn sharp_words<'a>(words: &'a [Word], command: &str) -> Vec<&'a str> {
    let mut all = own_sharp_words(words);
    all.extend(telling_words(words));
    if little(words, command) {
        // A rule has to hold the code itself.
        all.extend(words.iter().skip(1).map(|word| word.text.as_str()));
    }
    all
}

fn own_sharp_words(words: &[Word]) -> Vec<&str> {
    let name = program_of(words);
    let texts = || words.iter().skip(1).map(|word| word.text.as_str());
    let starting = |starts: &[&str]| -> Vec<&str> {
        texts().filter(|text| starts.iter().any(|start| text.starts_with(start))).collect()
    };
    match name {
        "find" => starting(&["-exec", "-ok", "-delete", "-fprint", "-fls"]),
        "rg" => starting(&["--search-z"]),
        "fd" | "fdfind" => starting(&["-x", "-X", "--exec"]),
        "sort" => {
            texts().filter(|text| text.starts_with("--o") || text.starts_with("--co") || bundled(text, 'o')).collect()
        }
        "sed" => {
            let rest: Vec<&str> = texts().collect();
            if sed_prints(&rest) || sed_plain(&rest) { Vec::new() } else { rest }
        }
        "git" => sharp_git(words),
        _ => Vec::new(),
    }
}

/// Whether this is surely no `sed` script that writes or runs something, and nothing makes it change its files.
fn sed_plain(texts: &[&str]) -> bool {
    let mut scripts = texts.iter().skip_while(|text| matches!(**text, "-n" | "-E" | "-r" | "-s" | "-z" | "-e"));
    let script = scripts.next().is_none_or(|text| sed_script_plain(text));
    script && scripts.all(|text| !text.starts_with('-'))
}

fn sed_script_plain(script: &str) -> bool {
    if let Some(substitution) = script.strip_prefix("s/") {
        let flags = substitution.rsplit('/').next().unwrap_or_default();
        return substitution.matches('/').count() == 2
            && !substitution.contains(['\n', ';', '\\'])
            && flags.chars().all(|char| matches!(char, 'g' | 'p' | 'I'));
    }
    script.chars().all(|char| char.is_ascii_digit() || matches!(char, ',' | '$' | 'p' | 'd' | 'q'))
}

fn sharp_git(words: &[Word]) -> Vec<&str> {
    let sharp = |text: &&str| {
        let name = text.split('=').next().unwrap_or(text);
        let long = ["--output", "--ext-diff", "--open-files-in-pager", "--upload-pack", "--receive-pack", "--exec"];
        // `git` takes any unambiguous beginning of a long option.
        name.len() > 4 && long.iter().any(|option| option.starts_with(name)) || text.starts_with("-O")
    };
    let configured = git_without_globals(words).is_some_and(|(_, harmless, _)| !harmless);
    let first = words.get(1).filter(|_| configured).map(|word| word.text.as_str());
    first.into_iter().chain(words.iter().skip(1).map(|word| word.text.as_str()).filter(sharp)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    fn words(command: &str) -> Vec<Word> {
        parse(command).unwrap().commands[0].words.clone()
    }

    #[test]
    fn options_that_run_or_write_are_found() {
        for command in [
            "find . -exec x ;",
            "find . -fprint x",
            "rg --pre=./x a",
            "sort -uo x a",
            "sort --outp x",
            "sed -n '1w x' a",
            "sed -n 1e a",
            "sed -n '1w x.txt' a",
            "sed -n -e p -e 'w x' a",
            "git -c core.pager=x -p log",
            "sed -n 's/a/b/w x' a",
            "sed -i s/a/b/ a.txt",
            "git show --outp=x",
            "git grep -Ox a",
            "git -C x grep --open-files a",
        ] {
            assert!(!sharp_words(&words(command), command).is_empty(), "{command}");
        }
        for command in [
            "find . -name x",
            "rg a",
            "sort -u a",
            "sed -n 1,5p src/a.rs",
            "sed s/a/b/g a.txt",
            "git push origin",
            "git log --oneline",
            "git commit --all",
            "make -O",
        ] {
            assert!(sharp_words(&words(command), command).is_empty(), "{command}");
        }
    }

    #[test]
    fn git_with_its_own_aliases_may_be_any_git() {
        for command in ["git -c alias.x=push x", "git -c ALIAS.x='!git push' x", "git --config-env=alias.x=Y x"] {
            let plain = git_alias(&words(command)).unwrap();
            assert!(plain[1].dynamic, "{command}");
        }
        assert!(git_alias(&words("git -c core.pager=cat log")).is_none());
        assert!(git_alias(&words("git -C x log")).is_none());
    }
}
