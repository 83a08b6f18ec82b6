//! As much reading of Rust as counting lines needs: comments and literals blanked out, braces matched.

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// From 1.
    pub(super) first_line: usize,
    pub(super) lines: usize,
}

/// A source file whose comments and literals are blank.
pub(super) struct Source {
    /// Lines before the file's test module.
    code: Vec<String>,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let blank = blanked(text);
        let lines: Vec<String> = blank.lines().map(str::to_owned).collect();
        let tests = lines.iter().zip(lines.iter().skip(1)).position(|(attribute, module)| {
            attribute == "#[cfg(test)]" && (module.starts_with("mod ") && module.ends_with('{'))
        });
        let code = lines.into_iter().take(tests.unwrap_or(usize::MAX)).collect();
        Self { code }
    }

    pub(super) fn lines_without_tests(&self) -> usize {
        self.code.len()
    }

    pub(super) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (at, line) in self.code.iter().enumerate() {
            if let Some(name) = function_name(line)
                && let Some(lines) = self.body_lines(at)
            {
                found.push(Function { name, first_line: at + 1, lines });
            }
        }
        found
    }

    /// Lines from `start` to the end of the first braces; `None` when a semicolon comes first.
    fn body_lines(&self, start: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut parentheses = 0_usize;
        for (at, line) in self.code.iter().enumerate().skip(start) {
            for character in line.chars() {
                match character {
                    '(' | '[' if depth == 0 => parentheses += 1,
                    ')' | ']' if depth == 0 => parentheses = parentheses.saturating_sub(1),
                    ';' if depth == 0 && parentheses == 0 => return None,
                    '{' => depth += 1,
                    '}' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return Some(at - start + 1);
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        matches!(*word, "pub" | "const" | "async" | "unsafe" | "extern")
            || word.starts_with("pub(")
            || word.starts_with('"')
    });
    if words.next() != Some("fn") {
        return None;
    }
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The text with comments, strings and characters replaced by blanks; lines stay lines.
fn blanked(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let end = literal_end(&characters, at).unwrap_or(at);
        if end > at {
            out.extend(characters[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(characters[at]);
            at += 1;
        }
    }
    out
}

/// Where the comment or literal that begins at `at` ends.
fn literal_end(text: &[char], at: usize) -> Option<usize> {
    let follows = |offset: usize| text.get(at + offset).copied();
    match (text[at], follows(1)) {
        ('/', Some('/')) => Some(until(text, at, |c| c == '\n')),
        ('/', Some('*')) => Some(block_comment_end(text, at)),
        ('"', _) => Some(string_end(text, at + 1)),
        ('r', Some('"' | '#')) if at == 0 || !is_word(text[at - 1]) || text[at - 1] == 'b' => {
            raw_string_end(text, at + 1)
        }
        ('\'', Some('\\')) => Some((until(text, at + 3, |c| c == '\'') + 1).min(text.len())),
        ('\'', Some(_)) if follows(2) == Some('\'') => Some(at + 3),
        _ => None,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn until(text: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    text.iter().skip(from).position(|c| stop(*c)).map_or(text.len(), |offset| from + offset)
}

fn block_comment_end(text: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut i = at;
    while i + 1 < text.len() {
        match (text[i], text[i + 1]) {
            ('/', '*') => {
                depth += 1;
                i += 2;
            }
            ('*', '/') => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    text.len()
}

fn string_end(text: &[char], from: usize) -> usize {
    let mut i = from;
    while i < text.len() {
        match text[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    text.len()
}

fn raw_string_end(text: &[char], from: usize) -> Option<usize> {
    let hashes = text.iter().skip(from).take_while(|c| **c == '#').count();
    if text.get(from + hashes) != Some(&'"') {
        return None;
    }
    let mut i = from + hashes + 1;
    while i < text.len() {
        let closes = text[i] == '"' && text.iter().skip(i + 1).take(hashes).filter(|c| **c == '#').count() == hashes;
        if closes {
            return Some(i + 1 + hashes);
        }
        i += 1;
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_in_literals_and_comments_do_not_count() {
        let text = "pub(crate) async fn a<'x>(s: &'x str) -> [u8; 2] {\n  let c = '{'; let q = '\\'';\n  \
                    let r = r#\"{\"{\"#; // {\n  /* { /* { */ */\n}\nfn b();\nconst fn c() {}\n";
        let functions = Source::new(text).functions();
        let expected = [("a", 1, 5), ("c", 7, 1)].map(|(name, first_line, lines)| Function {
            name: name.to_owned(),
            first_line,
            lines,
        });
        assert_eq!(functions, expected);
    }
}
