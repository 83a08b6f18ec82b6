//! Patterns for commands: strictly for rules that allow, loosely for rules that restrict.

use std::collections::BTreeSet;

use crate::unwrap::base_name;
use crate::words::Word;

/// Part of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Star,
}

/// A word of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token(Vec<Part>);

impl Token {
    /// `*` by itself stands for any words, also none.
    fn any(&self) -> bool {
        self.0 == [Part::Star]
    }

    fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    fn fits(&self, text: &str) -> bool {
        let mut rest = text;
        let mut loose = false;
        for (at, part) in self.0.iter().enumerate() {
            match part {
                Part::Star => loose = true,
                Part::Text(wanted) if loose && at + 1 == self.0.len() => return rest.ends_with(wanted.as_str()),
                Part::Text(wanted) if loose => match rest.find(wanted.as_str()) {
                    Some(found) => {
                        rest = &rest[found + wanted.len()..];
                        loose = false;
                    }
                    None => return false,
                },
                Part::Text(wanted) => match rest.strip_prefix(wanted.as_str()) {
                    Some(after) => rest = after,
                    None => return false,
                },
            }
        }
        loose || rest.is_empty()
    }
}

/// A command pattern such as `cargo test *`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandPattern(Vec<Token>);

impl CommandPattern {
    /// Reads a pattern: words as in a shell, where `*` by itself stands for any words and in a word for any text.
    /// `\*` is a star.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens: Vec<Token> = Vec::new();
        let (mut open, mut quote) = (false, None);
        let mut rest = text.chars();
        let add = |tokens: &mut Vec<Token>, open: &mut bool, part: Option<char>| {
            if !*open {
                tokens.push(Token(Vec::new()));
                *open = true;
            }
            let Some(token) = tokens.last_mut() else { return };
            match (part, token.0.last_mut()) {
                (None, _) => token.0.push(Part::Star),
                (Some(char), Some(Part::Text(text))) => text.push(char),
                (Some(char), _) => token.0.push(Part::Text(char.to_string())),
            }
        };
        while let Some(char) = rest.next() {
            match (char, quote) {
                ('\\', _) => add(&mut tokens, &mut open, Some(rest.next().unwrap_or('\\'))),
                (end, Some(begin)) if end == begin => quote = None,
                ('\'' | '"', None) => quote = Some(char),
                ('*', None) => add(&mut tokens, &mut open, None),
                (space, None) if space.is_whitespace() => open = false,
                (plain, _) => add(&mut tokens, &mut open, Some(plain)),
            }
        }
        if quote.is_some() {
            return Err("a quote is not closed".into());
        }
        if tokens.is_empty() {
            return Err("the command pattern is empty; write the tool's name alone to mean every command".into());
        }
        Ok(Self(tokens))
    }

    /// Fits these words exactly. What is known only when it runs fits nothing but a `*` for any words, and never the
    /// program's name.
    pub(crate) fn strict(&self, words: &[Word]) -> bool {
        let Some(program) = words.first() else { return false };
        let known: Vec<Option<&str>> = words.iter().map(Word::known).collect();
        program.known().is_some() && sequence(&self.0, &known, false)
    }

    /// The program that it is about, when it is about one.
    pub(crate) fn program(&self) -> Option<&str> {
        self.0.first().and_then(Token::literal)
    }

    /// Whether the pattern itself holds this word.
    pub(crate) fn names(&self, word: &str) -> bool {
        self.0.iter().any(|token| token.literal() == Some(word))
    }

    /// Fits these words or a common way to write the same: a path to the program, options bundled, split or moved. A
    /// word that is known only when it runs may be any word but an option.
    pub(crate) fn loose(&self, words: &[Word]) -> bool {
        let Some(program) = words.first() else { return false };
        // Most rules are about another program, and that is seen at once.
        let first = self.0.first().and_then(Token::literal).filter(|first| !is_option(first));
        if let (Some(wanted), Some(name)) = (first, literal_end(program))
            && wanted != name
            && wanted != program.text
        {
            return false;
        }
        let source: Vec<Option<&str>> = words.iter().map(|word| Some(word.text.as_str())).collect();
        if sequence(&self.0, &source, false) {
            return true;
        }
        let mut texts: Vec<Option<&str>> =
            words.iter().map(|word| (!word.dynamic && !word.glob).then_some(word.text.as_str())).collect();
        texts[0] = literal_end(program);
        if sequence(&self.0, &texts, true) {
            return true;
        }
        let (wanted, others): (Vec<&Token>, Vec<&Token>) =
            self.0.iter().partition(|token| token.literal().is_some_and(is_option));
        let wanted: BTreeSet<String> =
            wanted.iter().filter_map(|token| token.literal()).flat_map(single_options).collect();
        let (options, rest): (Vec<Option<&str>>, Vec<Option<&str>>) =
            texts.iter().partition(|text| text.is_some_and(is_option));
        let options: BTreeSet<String> = options.into_iter().flatten().flat_map(single_options).collect();
        let others: Vec<Token> = others.into_iter().cloned().collect();
        wanted.is_subset(&options) && sequence(&others, &rest, true)
    }
}

/// The program's name, if at least that is known: `$HOME/bin/git` is `git`, `$x` may be anything.
fn literal_end(program: &Word) -> Option<&str> {
    let name = base_name(&program.text);
    let known = !program.dynamic && !program.glob
        || name.len() < program.text.len() && !name.contains(['$', '`', ')', '}', '*', '?', '[', '{']);
    known.then_some(name)
}

fn is_option(text: &str) -> bool {
    text.len() > 1 && text.starts_with('-') && text != "--"
}

/// `-rf` as `-r` and `-f`; well-known long names as their short ones.
fn single_options(option: &str) -> Vec<String> {
    let name = option.split('=').next().unwrap_or(option);
    match name {
        "--force" => return vec!["-f".into()],
        "--recursive" | "-R" => return vec!["-r".into()],
        _ => {}
    }
    let bundle = option.strip_prefix('-').filter(|letters| letters.chars().all(|char| char.is_ascii_alphabetic()));
    match bundle {
        Some(letters) => letters.chars().map(|char| format!("-{}", if char == 'R' { 'r' } else { char })).collect(),
        None => vec![name.to_owned(), option.to_owned()],
    }
}

/// Whether the tokens cover all the words in order. `None` is a word that is not known: it fits a `*` for any words,
/// and with `wild` also one word that is no option.
fn sequence(tokens: &[Token], words: &[Option<&str>], wild: bool) -> bool {
    // reached[n]: the tokens so far can cover the first n words.
    let mut reached = vec![false; words.len() + 1];
    reached[0] = true;
    for token in tokens {
        if token.any() {
            let first = reached.iter().position(|&it| it).unwrap_or(reached.len());
            reached.iter_mut().skip(first).for_each(|it| *it = true);
            continue;
        }
        let mut next = vec![false; words.len() + 1];
        for (at, word) in words.iter().enumerate() {
            let unknown = wild && !token.literal().is_some_and(is_option);
            next[at + 1] = reached[at] && word.map_or(unknown, |text| token.fits(text));
        }
        reached = next;
    }
    reached[words.len()]
}

/// A `git` command without the options before its subcommand, and whether only harmless ones were there. With `-C`,
/// the folder it names.
pub(crate) fn git_without_globals(words: &[Word]) -> Option<(Vec<Word>, bool, Vec<String>)> {
    const VALUED: [&str; 7] = ["-c", "-C", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"];
    let program = words.first()?;
    if base_name(program.known()?) != "git" {
        return None;
    }
    let (mut at, mut harmless, mut folders) = (1, true, Vec::new());
    while let Some(text) = words.get(at).map(|word| word.text.as_str()).filter(|text| text.starts_with('-')) {
        match text {
            "--no-pager" | "-P" => {}
            "-C" => match words.get(at + 1).and_then(Word::known) {
                Some(folder) => folders.push(folder.to_owned()),
                None => harmless = false,
            },
            _ => harmless = false,
        }
        at += if VALUED.contains(&text) { 2 } else { 1 };
    }
    if at == 1 || at >= words.len() {
        return None;
    }
    let mut plain = vec![program.clone()];
    plain.extend_from_slice(&words[at..]);
    Some((plain, harmless, folders))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    fn words(command: &str) -> Vec<Word> {
        parse(command).unwrap().commands[0].words.clone()
    }

    #[test]
    fn strict_and_loose() {
        for (pattern, command, strict, loose) in [
            ("cargo test *", "cargo test", true, true),
            ("cargo test *", "cargo test -p x --all", true, true),
            ("cargo test *", "cargo build", false, false),
            ("cargo test *", "cargo testing", false, false),
            ("cargo test *", "cargo +nightly test", false, false),
            ("cargo test", "cargo test -p x", false, false),
            ("cargo test *", "cargo test $X", true, true),
            ("cargo test *", "./cargo test", false, true),
            ("cargo test *", "cargo $X", false, true),
            ("cargo test *", "$X test", false, true),
            ("cargo test *", "$X build", false, false),
            ("cargo test *", "$HOME/bin/cargo test", false, true),
            ("cargo test *", "$HOME/bin/make test", false, false),
            ("cargo test *", "/usr/bin/c*o tes{t,}", false, true),
            ("rm -rf *", "rm $X", false, false),
            ("rm -rf *", "rm *", false, false),
            ("cargo $X", "cargo $X", false, true),
            ("npm run test:*", "npm run test:unit", true, true),
            ("npm run test:*", "npm run test", false, false),
            ("* --version", "foo --version", true, true),
            ("*", "anything at all", true, true),
            ("rm -rf *", "rm -rf x", true, true),
            ("rm -rf *", "rm -fr x", false, true),
            ("rm -rf *", "rm -r -f x", false, true),
            ("rm -rf *", "rm x -rf", false, true),
            ("rm -rf *", "rm --recursive --force x", false, true),
            ("rm -rf *", "rm -Rf x", false, true),
            ("rm -rf *", "/bin/rm -rf x", false, true),
            ("rm -rf *", "r''m -rf x", true, true),
            ("rm -rf *", "rm -r x", false, false),
            ("git push *", "git push --force", true, true),
            ("git push --force *", "git push origin -f", false, true),
            ("echo \\*", "echo '*'", true, true),
            ("echo \\*", "echo x", false, false),
            ("echo \"a b\"", "echo 'a b'", true, true),
            ("a * c", "a b b c", true, true),
            ("a * c", "a c", true, true),
        ] {
            let compiled = CommandPattern::parse(pattern).unwrap();
            assert_eq!(compiled.strict(&words(command)), strict, "strict {pattern} | {command}");
            assert_eq!(compiled.loose(&words(command)), loose, "loose {pattern} | {command}");
        }
        assert!(CommandPattern::parse(" ").is_err());
        assert!(CommandPattern::parse("a 'b").is_err());
    }

    #[test]
    fn git_options_before_the_subcommand_come_off() {
        let (plain, harmless, folders) = git_without_globals(&words("git -C /x --no-pager log -1")).unwrap();
        assert_eq!(plain, words("git log -1"));
        assert!(harmless);
        assert_eq!(folders, ["/x"]);
        assert!(!git_without_globals(&words("git -c core.pager=x log")).unwrap().1);
        assert!(git_without_globals(&words("git log -1")).is_none());
    }
}
