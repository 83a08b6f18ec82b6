//! Why a text was not found: what comes near, and how it differs. Nothing here changes what is replaced.

use crate::edit::matching::line_of;
use crate::output::floor_boundary;

/// The largest text that is searched for something near, in bytes.
const MAX_SEARCHED_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a line that a message repeats.
const SHOWN_BYTES: usize = 120;

/// The message for a text that is not in the file.
#[must_use]
pub fn no_match(text: &str, old: &str) -> String {
    const START: &str = "old_string is not in the file (0 matches)";
    if old.trim().is_empty() || text.len().max(old.len()) > MAX_SEARCHED_BYTES {
        return format!("{START}; view the file and copy the text exactly");
    }
    if let Some(plain) = without_numbers(old).filter(|plain| text.contains(plain.as_str())) {
        let line = text.find(&plain).map_or(1, |at| line_of(text, at));
        return format!("{START}: it holds the line numbers of view; leave them out (the text is at line {line})");
    }
    if let Some(at) = find_folded(text, old, &squeeze) {
        return format!("{START}. {}", whitespace(text, old, at));
    }
    if let Some(at) = find_folded(text, old, &|text| squeeze(text).into_iter().map(|(at, c)| (at, plain(c))).collect())
    {
        let line = line_of(text, at);
        return format!(
            "{START}. Line {line} differs only in quotes, dashes, case or whitespace; it is: {}",
            quoted(line_text(text, line))
        );
    }
    match nearest(text, old) {
        Some((line, true)) => {
            format!("{START}. Its first line is at line {line}, but what follows differs; view it from there")
        }
        Some((line, false)) => format!("{START}. The nearest line is {line}: {}", quoted(line_text(text, line))),
        None => format!("{START}; view the file and copy the text exactly"),
    }
}

/// Characters with each run of whitespace as one space, and where each comes from.
fn squeeze(text: &str) -> Vec<(usize, char)> {
    let mut result: Vec<(usize, char)> = Vec::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match (c.is_whitespace(), result.last()) {
            (true, Some((_, ' '))) => {}
            (true, _) => result.push((at, ' ')),
            (false, _) => result.push((at, c)),
        }
    }
    result
}

/// The plain form of quotes, dashes and letters.
fn plain(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{201B}' | '`' | '\u{B4}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{AB}' | '\u{BB}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        other => other.to_ascii_lowercase(),
    }
}

/// Where in `text` the folded form of `old` begins.
fn find_folded(text: &str, old: &str, fold: &dyn Fn(&str) -> Vec<(usize, char)>) -> Option<usize> {
    let folded = fold(text);
    let wanted: String = fold(old.trim()).into_iter().map(|(_, c)| c).collect();
    let haystack: String = folded.iter().map(|(_, c)| *c).collect();
    let at = haystack.find(&wanted)?;
    let index = haystack.get(..at)?.chars().count();
    folded.get(index).map(|(at, _)| *at)
}

fn whitespace(text: &str, old: &str, at: usize) -> String {
    let line = line_of(text, at);
    let there = line_text(text, line);
    let here = old.lines().find(|line| !line.trim().is_empty()).unwrap_or(old);
    let (has, given) = (indent(there), indent(here));
    let differs = if has == given {
        "the spaces or line breaks inside the text differ".to_owned()
    } else {
        format!("the file uses {} there, old_string has {}", words(has), words(given))
    };
    format!("Line {line} differs only in whitespace: {differs}. The line is: {}", quoted(there))
}

fn indent(line: &str) -> &str {
    line.get(..line.len() - line.trim_start().len()).unwrap_or_default()
}

/// An indentation in words: `a tab`, `4 spaces`.
fn words(indent: &str) -> String {
    let tabs = indent.matches('\t').count();
    let spaces = indent.matches(' ').count();
    let tabs = match tabs {
        0 => None,
        1 => Some("a tab".to_owned()),
        n => Some(format!("{n} tabs")),
    };
    let spaces = match spaces {
        0 => None,
        1 => Some("1 space".to_owned()),
        n => Some(format!("{n} spaces")),
    };
    match (tabs, spaces) {
        (Some(tabs), Some(spaces)) => format!("{tabs} and {spaces}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "no indentation".to_owned(),
    }
}

/// `old` without the number and tab that `view` puts before each line, when all its lines have them.
fn without_numbers(old: &str) -> Option<String> {
    let lines: Option<Vec<&str>> = old
        .split('\n')
        .map(|line| match line.split_once('\t') {
            Some((number, rest)) if !number.trim().is_empty() && number.trim().bytes().all(|b| b.is_ascii_digit()) => {
                Some(rest)
            }
            _ => line.is_empty().then_some(""),
        })
        .collect();
    lines.map(|lines| lines.join("\n")).filter(|plain| !plain.trim().is_empty())
}

/// The line whose text is the first line of `old` (`true`), or that holds its longest word (`false`).
fn nearest(text: &str, old: &str) -> Option<(usize, bool)> {
    let first = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    if old.trim().contains('\n')
        && let Some(index) = text.lines().position(|line| line.trim() == first)
    {
        return Some((index + 1, true));
    }
    let word = first.split(|c: char| !c.is_alphanumeric() && c != '_').max_by_key(|word| word.len())?;
    if word.len() < 4 {
        return None;
    }
    text.lines().position(|line| line.contains(word)).map(|index| (index + 1, false))
}

fn line_text(text: &str, line: usize) -> &str {
    text.lines().nth(line - 1).unwrap_or_default()
}

/// A line in quotes with its tabs visible, cut.
fn quoted(line: &str) -> String {
    let cut = line.get(..floor_boundary(line, SHOWN_BYTES)).unwrap_or_default();
    let more = if cut.len() < line.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_near_is_named() {
        let go = "func a() {\n\treturn 1\n}\n";
        let message = no_match(go, "    return 1");
        assert!(
            message.contains("Line 2 differs only in whitespace: the file uses a tab there, old_string has 4 spaces")
        );
        assert!(message.contains(r#""\treturn 1""#), "{message}");
        assert!(no_match("a\n   beta\n", "    beta").contains("the file uses 3 spaces there"));
        assert!(no_match("l\u{2019}eau\n", "l'eau").contains("Line 1 differs only in quotes"));
        assert!(no_match(go, "     2\t\treturn 1").contains("line numbers of view"));
        assert!(no_match(go, "func a() {\nreturn 2").contains("first line is at line 1"));
        assert!(no_match(go, "return 77").contains("nearest line is 2"));
        assert!(no_match(go, "zzz").contains("copy the text exactly"));
        assert!(no_match("", "zzz").contains("0 matches"));
    }

    #[test]
    fn a_message_is_bounded() {
        let line = format!("{}needle_word", "x ".repeat(10_000));
        assert!(no_match(&line, "needle_word 2").len() < 400);
    }
}
