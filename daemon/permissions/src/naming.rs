//! Which paths a command names, held against rules about files.

use std::path::{Path, PathBuf};

use crate::access::Below;
use crate::decide::Case;
use crate::mentions::bases;
use crate::paths::named_paths;
use crate::rule::{Rule, Subject};
use crate::runners::evaluates_text;
use crate::words::Word;

/// Programs that change the files they name.
pub(crate) const CHANGING: [&str; 14] =
    ["rm", "mv", "cp", "tee", "sed", "truncate", "dd", "install", "touch", "chmod", "chown", "ln", "patch", "rmdir"];
impl Case<'_> {
    /// Whether a command names a path that the rule is about. With `changing`, only where it would be written.
    pub(crate) fn names_path(&self, rule: &Rule, command: &str, cwd: &Path, changing: bool) -> bool {
        let places = self.input.places();
        let bases = match &self.parsed {
            Some(parsed) => bases(parsed, cwd, places.home),
            None => vec![cwd.to_path_buf()],
        };
        let hit = |word: &Word| {
            let hits = |base: &PathBuf| {
                named_paths(word, base, places.home).iter().any(|path| self.path_restricted(rule, path, changing))
            };
            bases.iter().any(hits) || (word.glob && self.glob_hits(rule, word))
        };
        let Some(parsed) = &self.parsed else {
            return raw_commands(command).iter().flatten().any(hit);
        };
        let redirected = parsed.redirects.iter().any(|it| it.write == changing && hit(&it.target));
        let evaluated = || raw_commands(command).iter().flatten().any(hit);
        let named = parsed.all().any(|simple| {
            if evaluates_text(&simple.words) && evaluated() || simple.values.iter().any(hit) {
                return true;
            }
            let program = simple.words.first().map_or("", |word| crate::unwrap::base_name(&word.text));
            (!changing || CHANGING.contains(&program)) && simple.words.iter().skip(1).any(hit)
        });
        redirected || named
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
