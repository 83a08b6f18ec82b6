//! Words of a shell command: quotes taken off, and what only the shell would know marked.

use std::iter::Peekable;
use std::str::Chars;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its text without quotes; of expansions, the source.
    pub text: String,
    /// Holds a variable, a substitution or other text that is known only when it runs.
    pub dynamic: bool,
    /// Holds an unquoted pattern, brace list or `~user` that the shell replaces.
    pub glob: bool,
}

impl Word {
    /// A word that is just this text.
    #[must_use]
    pub fn literal(text: impl Into<String>) -> Self {
        Self { text: text.into(), dynamic: false, glob: false }
    }

    /// The text, when it is known before it runs.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        (!self.dynamic && !self.glob).then_some(&self.text)
    }

    /// Takes the quotes off the source of one word.
    #[must_use]
    pub fn unquote(source: &str) -> Self {
        let mut word = Self::literal(String::new());
        let mut rest = source.chars().peekable();
        let mut first = true;
        while let Some(char) = rest.next() {
            match char {
                '\\' => match rest.next() {
                    Some('\n') | None => {}
                    Some(escaped) => word.text.push(escaped),
                },
                '\'' => word.single(&mut rest),
                '"' => word.double(&mut rest),
                '$' if rest.peek() == Some(&'\'') => {
                    rest.next();
                    word.ansi(&mut rest);
                }
                '$' if rest.peek() == Some(&'"') => {}
                '$' | '`' => {
                    word.dynamic = true;
                    word.text.push(char);
                }
                '<' | '>' => {
                    word.dynamic = true;
                    word.text.push(char);
                }
                '*' | '?' | '[' | '{' => {
                    word.glob = true;
                    word.text.push(char);
                }
                '~' if first => {
                    // `~/` is the home folder, and is resolved where paths are; `~user` and `~+` are not known.
                    word.glob = !matches!(rest.peek(), None | Some('/'));
                    word.text.push(char);
                }
                plain => word.text.push(plain),
            }
            first = false;
        }
        word
    }

    fn single(&mut self, rest: &mut impl Iterator<Item = char>) {
        self.text.extend(rest.take_while(|&char| char != '\''));
    }

    fn double(&mut self, rest: &mut impl Iterator<Item = char>) {
        while let Some(char) = rest.next() {
            match char {
                '"' => return,
                '\\' => match rest.next() {
                    Some(escaped @ ('$' | '`' | '"' | '\\')) => self.text.push(escaped),
                    Some('\n') | None => {}
                    Some(other) => self.text.extend(['\\', other]),
                },
                '$' | '`' => {
                    self.dynamic = true;
                    self.text.push(char);
                }
                plain => self.text.push(plain),
            }
        }
    }

    /// `$'…'`: escapes of ASCII are decoded, anything further makes the word one that is not known.
    fn ansi(&mut self, rest: &mut Peekable<Chars<'_>>) {
        while let Some(char) = rest.next() {
            match char {
                '\'' => return,
                '\\' => match rest.next() {
                    Some('n') => self.text.push('\n'),
                    Some('t') => self.text.push('\t'),
                    Some(plain @ ('\\' | '\'' | '"' | '?')) => self.text.push(plain),
                    Some('x') => self.coded(rest, 16, 2, "\\x"),
                    Some('u') => self.coded(rest, 16, 4, "\\u"),
                    Some('U') => self.coded(rest, 16, 8, "\\U"),
                    Some(digit @ '0'..='7') => {
                        let value = digit.to_digit(8).unwrap_or(0);
                        self.coded_from(value, rest, 8, 2, "\\");
                    }
                    Some(other) => {
                        self.dynamic = true;
                        self.text.extend(['\\', other]);
                    }
                    None => {}
                },
                plain => self.text.push(plain),
            }
        }
    }

    fn coded(&mut self, rest: &mut Peekable<Chars<'_>>, radix: u32, digits: usize, source: &str) {
        self.coded_from(0, rest, radix, digits, source);
    }

    /// A character by its number. What is no printable ASCII is not followed.
    fn coded_from(&mut self, first: u32, rest: &mut Peekable<Chars<'_>>, radix: u32, digits: usize, source: &str) {
        let mut value = first;
        for _ in 0..digits {
            let Some(digit) = rest.peek().and_then(|char| char.to_digit(radix)) else { break };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            rest.next();
        }
        match u8::try_from(value).ok().filter(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n' | b'\t')) {
            Some(byte) => self.text.push(char::from(byte)),
            None => {
                self.dynamic = true;
                self.text.push_str(source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_come_off_and_expansions_are_marked() {
        for (source, text, dynamic, glob) in [
            ("plain", "plain", false, false),
            ("r''m", "rm", false, false),
            (r"\rm", "rm", false, false),
            (r#""a b"'c d'e"#, "a bc de", false, false),
            (r#""\$x\n""#, r"$x\n", false, false),
            ("$HOME/x", "$HOME/x", true, false),
            ("'$HOME'", "$HOME", false, false),
            ("\"`id`\"", "`id`", true, false),
            ("$'r\\x6d'", "rm", false, false),
            ("$'\\162\\u006d\\U0000006d'", "rmm", false, false),
            ("$'r\\xff'", "r\\x", true, false),
            ("$'r\\cx'", "r\\cx", true, false),
            ("$'a\\tb'", "a\tb", false, false),
            ("*.rs", "*.rs", false, true),
            ("'*.rs'", "*.rs", false, false),
            ("{rm,-rf}", "{rm,-rf}", false, true),
            ("~/x", "~/x", false, false),
            ("~root/x", "~root/x", false, true),
            ("a~", "a~", false, false),
        ] {
            assert_eq!(Word::unquote(source), Word { text: text.into(), dynamic, glob }, "{source}");
        }
    }
}
