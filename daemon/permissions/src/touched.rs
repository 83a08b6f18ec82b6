//! Which paths a command names, held against rules about files.

use std::path::{Path, PathBuf};

use crate::access::Below;
use crate::command::Simple;
use crate::decide::Case;
use crate::git::changes_named;
use crate::mentions::bases;
use crate::paths::named_paths;
use crate::rule::{Rule, Subject};
use crate::runners::evaluates_text;
use crate::tables::files::CHANGING;
use crate::words::Word;

/// Whether a command changes the files that it names.
pub(crate) fn changes(simple: &Simple) -> bool {
    CHANGING.contains(&simple.program()) || changes_named(&simple.words)
}

/// A word of a command, and the paths that it may name.
#[derive(Debug)]
pub(crate) struct Name {
    paths: Vec<PathBuf>,
    /// The word itself, when the shell would replace it.
    glob: Option<Word>,
    reads: bool,
    changes: bool,
}

impl Case<'_> {
    /// Whether a command names a path that the rule is about. With `changing`, only where it would be written.
    pub(crate) fn names_path(&self, rule: &Rule, command: &str, cwd: &Path, changing: bool) -> bool {
        let names = self.names.get_or_init(|| self.all_names(command, cwd));
        names.iter().filter(|name| if changing { name.changes } else { name.reads }).any(|name| {
            name.paths.iter().any(|path| self.path_restricted(rule, path, changing))
                || name.glob.as_ref().is_some_and(|word| self.glob_hits(rule, word))
        })
    }

    /// Everything that a command names, found once for all rules.
    fn all_names(&self, command: &str, cwd: &Path) -> Vec<Name> {
        let home = self.input.places().home;
        let bases = match &self.parsed {
            Some(parsed) => bases(parsed, cwd, home),
            None => vec![cwd.to_path_buf()],
        };
        let named = |word: &Word, bases: &[PathBuf], reads: bool, changes: bool| Name {
            paths: bases.iter().flat_map(|base| named_paths(word, base, home)).collect(),
            glob: word.glob.then(|| word.clone()),
            reads,
            changes,
        };
        let name = |word: &Word, reads: bool, changes: bool| named(word, &bases, reads, changes);
        let raw = || raw_commands(command).iter().flatten().map(|word| name(word, true, true)).collect::<Vec<_>>();
        let Some(parsed) = &self.parsed else { return raw() };
        let mut names: Vec<Name> =
            parsed.redirects.iter().map(|redirect| name(&redirect.target, !redirect.write, redirect.write)).collect();
        for simple in parsed.all() {
            let program = simple.program();
            let changes = changes(simple);
            names.extend(simple.values.iter().map(|value| name(value, true, true)));
            names.extend(simple.words.iter().skip(1).map(|word| name(word, true, changes)));
            if program == "git" {
                // `HEAD:secret` is a name from the root of the repository.
                let root = [self.input.project_root.to_path_buf()];
                names.extend(simple.words.iter().skip(1).map(|word| named(word, &root, true, changes)));
            }
        }
        if parsed.all().any(|simple| evaluates_text(&simple.words)) {
            names.extend(raw());
        }
        names
    }

    pub(crate) fn path_restricted(&self, rule: &Rule, path: &Path, changing: bool) -> bool {
        let speaks = match rule.subject {
            Subject::Edit => changing,
            Subject::View | Subject::Read => !changing,
            Subject::Shell | Subject::Network | Subject::Tool(_) => false,
        };
        let places = self.input.places();
        speaks
            && match &rule.pattern {
                None => true,
                Some(pattern) => pattern.path.as_ref().is_some_and(|pattern| pattern.matches(path, &places, true)),
            }
    }

    /// Whether a name with wildcards could stand for the file that the rule names last.
    fn glob_hits(&self, rule: &Rule, word: &Word) -> bool {
        let last = rule.text.trim_end_matches(')').rsplit(['/', '(']).next().unwrap_or_default();
        let name = word.text.rsplit('/').next().unwrap_or_default();
        if last.is_empty() || last.contains(['*', '?', '[', '{']) {
            return false;
        }
        // In the shell a wildcard does not stand for a leading dot.
        let hidden = last.starts_with('.') && !name.starts_with(['.', '{']);
        !hidden && globset::Glob::new(name).is_ok_and(|glob| glob.compile_matcher().is_match(last))
    }

    /// Whether a rule about files speaks of a path that a command names.
    pub(crate) fn mention_restricted(&self, rule: &Rule, path: &Path, changes: bool) -> bool {
        let speaks = match rule.subject {
            Subject::Edit => changes,
            Subject::View | Subject::Read => true,
            Subject::Shell | Subject::Network | Subject::Tool(_) => false,
        };
        let places = self.input.places();
        speaks && rule.path_pattern().is_some_and(|pattern| pattern.matches(path, &places, true))
    }

    /// Whether a command that reads a whole folder may come upon a file that the rule is about.
    pub(crate) fn below_restricted(&self, rule: &Rule, folder: &Path, below: &Below, changes: bool) -> bool {
        if self.input.shielded {
            return false;
        }
        match below {
            Below::Nothing => false,
            Below::Files(files) => files.iter().any(|file| self.mention_restricted(rule, file, changes)),
            Below::Unknown => {
                let speaks = !matches!(rule.subject, Subject::Edit) || changes;
                let places = self.input.places();
                speaks && rule.path_pattern().is_some_and(|pattern| pattern.may_fit_below(folder, &places))
            }
        }
    }
}

/// The words of a command that could not be parsed, cut where a shell or a script would begin another command; and those
/// of the whole command with everything but words taken out (`run(["git", "push"])`).
pub(crate) fn raw_commands(command: &str) -> Vec<Vec<Word>> {
    let cut = command.split([';', '|', '&', '\n', '(', ')', '{', '}', '`', '\'', '"', '!', '=']);
    let bare = command.replace(['\'', '"', ',', '[', ']', '(', ')'], " ");
    cut.chain(bare.split([';', '|', '&', '\n']))
        .map(|part| part.split_whitespace().map(Word::unquote).collect::<Vec<_>>())
        .filter(|words| !words.is_empty())
        .collect()
}
