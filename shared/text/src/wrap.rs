//! Lines as a terminal of a given width breaks them.

use unicode_segmentation::UnicodeSegmentation;

use crate::width::grapheme_width;

/// `line` in rows of at most `cells` cells (at least one character each); an empty line is one empty row.
#[must_use]
pub fn wrap(line: &str, cells: usize) -> Vec<&str> {
    let mut rows = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (at, grapheme) in line.grapheme_indices(true) {
        let width = grapheme_width(grapheme);
        if used + width > cells && at > start {
            rows.push(&line[start..at]);
            (start, used) = (at, 0);
        }
        used += width;
    }
    rows.push(&line[start..]);
    rows
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn rows_are_as_wide_as_they_may_be() {
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("abc", 3), ["abc"]);
        assert_eq!(wrap("abcdefg", 3), ["abc", "def", "g"]);
        assert_eq!(wrap("a한글b", 3), ["a한", "글b"]);
        assert_eq!(wrap("한", 1), ["한"]);
    }
}
