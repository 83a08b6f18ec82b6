//! Finding the text to replace: literally, once unless all are wanted, with the file's own line endings.

use std::ops::Range;

use crate::edit::diagnose;
use crate::fs::text::{Endings, endings, to_crlf, to_lf};

/// How many line numbers a message gives.
const MAX_NAMED_LINES: usize = 10;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// What is there.
    pub old: String,
    /// What shall be there.
    pub new: String,
    /// All places instead of the only one.
    pub all: bool,
}

/// `text` with the replacement done, and in how many places.
///
/// # Errors
/// A message for the model: nothing to change, no match (and what comes near), or more than one match (and where).
pub fn replace(text: &str, change: &Replacement) -> Result<(String, usize), String> {
    if change.old == change.new {
        return Err("old_string and new_string are the same: there is no change to make".into());
    }
    let (found, new) = find(text, change);
    match found.as_slice() {
        [] => Err(diagnose::no_match(text, &change.old)),
        [_, _, ..] if !change.all => {
            let lines: Vec<String> =
                found.iter().take(MAX_NAMED_LINES).map(|range| line_of(text, range.start).to_string()).collect();
            let more = if found.len() > MAX_NAMED_LINES { ", …" } else { "" };
            Err(format!(
                "old_string has {} matches, at lines {}{more}; give more of the text around the one you mean, or \
                 replace_all",
                found.len(),
                lines.join(", ")
            ))
        }
        ranges => {
            let mut result = String::with_capacity(text.len() + new.len());
            let mut end = 0;
            let mut count = 0;
            for range in ranges {
                // With replace_all, a match that overlaps the one before it is no longer there.
                if range.start < end {
                    continue;
                }
                result.push_str(text.get(end..range.start).unwrap_or_default());
                result.push_str(&new);
                end = range.end;
                count += 1;
            }
            result.push_str(text.get(end..).unwrap_or_default());
            if result == text {
                return Err("new_string is what the file already has: there is no change to make".into());
            }
            Ok((result, count))
        }
    }
}

/// All places, overlapping ones too, and the new text with the line endings of the file.
fn find(text: &str, change: &Replacement) -> (Vec<Range<usize>>, String) {
    let Replacement { old, new, .. } = change;
    match endings(text) {
        Endings::Crlf => (places(text, &to_crlf(old)), to_crlf(new)),
        Endings::Lf => match places(text, old) {
            none if none.is_empty() && old.contains("\r\n") => (places(text, &to_lf(old)), to_lf(new)),
            found => (found, new.clone()),
        },
        Endings::Mixed => match places(text, old) {
            none if none.is_empty() && old.contains('\n') => {
                let found = places_any_ending(text, &to_lf(old));
                let crlf =
                    found.first().is_some_and(|range| text.get(range.clone()).is_some_and(|t| t.contains("\r\n")));
                (found, if crlf { to_crlf(new) } else { to_lf(new) })
            }
            found => (found, new.clone()),
        },
    }
}

fn places(text: &str, old: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(old)) {
        found.push(from + at..from + at + old.len());
        from += at + step;
    }
    found
}

/// Places of `old` (LF) in a text of mixed endings, as ranges of that text.
fn places_any_ending(text: &str, old: &str) -> Vec<Range<usize>> {
    // Where in the LF text each line break stood that was a CRLF; a position moves by those before it.
    let lost: Vec<usize> = text.match_indices("\r\n").enumerate().map(|(index, (at, _))| at - index).collect();
    let back = |at: usize| at + lost.partition_point(|cr| *cr < at);
    places(&to_lf(text), old).into_iter().map(|range| back(range.start)..back(range.end)).collect()
}

/// The line, from 1, of a byte position.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, old: &str, new: &str) -> Result<(String, usize), String> {
        replace(text, &Replacement { old: old.into(), new: new.into(), all: false })
    }

    #[test]
    fn endings_of_the_file_are_kept() {
        assert_eq!(run("x\r\ny\r\nz\r\n", "x\ny\n", "x\nY\n").unwrap().0, "x\r\nY\r\nz\r\n");
        assert_eq!(run("x\r\ny\r\n", "x", "x\nnew").unwrap().0, "x\r\nnew\r\ny\r\n");
        assert_eq!(run("x\ny\n", "x\r\ny\r\n", "x\r\nY\r\n").unwrap().0, "x\nY\n");
        // Mixed: exact text first, any ending after.
        assert_eq!(run("a\r\nb\na\nb\n", "a\nb", "c").unwrap().0, "a\r\nb\nc\n");
        assert_eq!(run("a\r\nb\nc\nd\n", "a\nb\nc\n", "A\nB\n").unwrap().0, "A\r\nB\r\nd\n");
        assert_eq!(run("q\na\r\nb\nc\r\nd", "\nb\nc\n", "\nB\n").unwrap().0, "q\na\r\nB\r\nd");
        assert_eq!(run("p\r\nq\na\r\nb\n", "q\na\nb\n", "X\n").unwrap().0, "p\r\nX\r\n");
    }

    #[test]
    fn overlapping_places_are_not_one_place() {
        assert!(run("aaa", "aa", "b").unwrap_err().contains("2 matches"));
        let all = Replacement { old: "aa".into(), new: "b".into(), all: true };
        assert_eq!(replace("aaa", &all).unwrap(), ("ba".into(), 1));
    }

    #[test]
    fn many_matches_name_a_bounded_number_of_lines() {
        let message = run(&"x\n".repeat(500), "x", "y").unwrap_err();
        assert!(message.contains("500 matches, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"), "{message}");
    }
}
