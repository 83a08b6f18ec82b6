//! A file of settings, letter by letter as git reads it.

use std::iter::Peekable;
use std::str::Chars;

use crate::Setting;

/// What stands before the first letter where some editors wrote the file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The settings in a text, in order. Git reads nothing at all of a text with a fault in it; here it is read on from the
/// next line, so that no setting is missed.
#[must_use]
pub fn settings(text: &str) -> Vec<Setting> {
    let chars = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).chars().peekable();
    let mut text = Text { chars, last: '\n' };
    let (mut section, mut found) = (String::new(), Vec::new());
    while let Some(char) = text.next() {
        match char {
            '#' | ';' => text.skip_line(),
            char if is_space(char) => {}
            '[' => match text.section() {
                Some(name) => section = name,
                None => text.skip_line(),
            },
            char if char.is_ascii_alphabetic() => match text.setting(char) {
                Some((name, value)) => found.push(setting(&section, &name, &value)),
                None => text.skip_line(),
            },
            _ => text.skip_line(),
        }
    }
    found
}

/// Git keeps keys and values in strings that end at the first zero.
fn setting(section: &str, name: &str, value: &str) -> Setting {
    let until_zero = |text: &str| text.split('\0').next().unwrap_or_default().to_owned();
    let key = if section.is_empty() { format!(".{name}") } else { format!("{section}.{name}") };
    Setting::of(&until_zero(&key), &until_zero(value))
}

/// What git takes for space.
fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '-'
}

struct Text<'a> {
    chars: Peekable<Chars<'a>>,
    /// What was read last.
    last: char,
}

impl Text<'_> {
    /// The next letter; the end of a line is one letter, however it is written.
    fn next(&mut self) -> Option<char> {
        let mut char = self.chars.next()?;
        if char == '\r' && self.chars.peek() == Some(&'\n') {
            self.chars.next();
            char = '\n';
        }
        self.last = char;
        Some(char)
    }

    /// The same, with the end of a line at the end of the text.
    fn next_or_end(&mut self) -> char {
        self.next().unwrap_or_else(|| {
            self.last = '\n';
            '\n'
        })
    }

    /// Nothing goes on in the next line here, a backslash or not.
    fn skip_line(&mut self) {
        while self.last != '\n' && self.next().is_some() {}
    }

    /// What stands between brackets, parts with full stops between; `None` for a fault.
    fn section(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.next()? {
                ']' => return Some(name),
                char if is_space(char) => break,
                char if is_of_name(char) || char == '.' => name.push(char.to_ascii_lowercase()),
                _ => return None,
            }
        }
        while is_space(self.last) {
            if self.last == '\n' {
                return None;
            }
            self.next()?;
        }
        if self.last != '"' {
            return None;
        }
        name.push('.');
        loop {
            match self.next()? {
                '\n' => return None,
                '"' => break,
                '\\' => match self.next()? {
                    '\n' => return None,
                    escaped => name.push(escaped),
                },
                char => name.push(char),
            }
        }
        (self.next()? == ']').then_some(name)
    }

    /// The name that begins with this letter and its value; `None` for a fault.
    fn setting(&mut self, first: char) -> Option<(String, String)> {
        let mut name = String::from(first.to_ascii_lowercase());
        let mut char = self.next_or_end();
        while is_of_name(char) {
            name.push(char.to_ascii_lowercase());
            char = self.next_or_end();
        }
        while matches!(char, ' ' | '\t') {
            char = self.next_or_end();
        }
        match char {
            '\n' => Some((name, "true".to_owned())),
            '=' => Some((name, self.value()?)),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<String> {
        let (mut value, mut quoted) = (String::new(), false);
        // How much of it there is before space that may be its end.
        let mut end = 0;
        loop {
            match self.next_or_end() {
                '\n' if quoted => return None,
                '\n' => break,
                char if is_space(char) && !quoted => {
                    if end == 0 {
                        end = value.len();
                    }
                    if !value.is_empty() {
                        value.push(char);
                    }
                    continue;
                }
                '#' | ';' if !quoted => {
                    self.skip_line();
                    break;
                }
                '\\' => match self.next_or_end() {
                    '\n' => {}
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    'n' => value.push('\n'),
                    itself @ ('\\' | '"') => value.push(itself),
                    _ => return None,
                },
                '"' => quoted = !quoted,
                char => value.push(char),
            }
            end = 0;
        }
        if end > 0 {
            value.truncate(end);
        }
        Some(value)
    }
}
