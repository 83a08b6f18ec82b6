//! Cuts text to a bound, and never in the middle of a character.

use unicode_segmentation::UnicodeSegmentation;

use crate::width::{grapheme_width, width};

/// The longest start of `text` that is at most `max` bytes and whole in its characters.
#[must_use]
pub fn truncate_bytes(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `text` in at most `max` cells; what was cut is marked with `…`.
#[must_use]
pub fn truncate_width(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        let cells = grapheme_width(grapheme);
        // One cell is kept for the mark.
        if used + cells + 1 > max {
            break;
        }
        out.push_str(grapheme);
        used += cells;
    }
    if max > 0 {
        out.push('…');
    }
    out
}

/// Start and end of `text` with a line between them that says how much is missing, when it is longer than `max`
/// bytes; the result is a little longer than `max`.
#[must_use]
pub fn truncate_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = truncate_bytes(text, max / 2);
    let mut start = text.len() - max / 2;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!("{head}\n… {} bytes left out …\n{}", start - head.len(), &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        assert_eq!(truncate_bytes("한글", 4), "한");
        assert_eq!(truncate_bytes("한글", 2), "");
        assert_eq!(truncate_bytes("abc", 3), "abc");
        assert_eq!(truncate_width("한글한글", 5), "한글…");
        assert_eq!(truncate_width("abcdef", 4), "abc…");
        assert_eq!(truncate_width("abc", 0), "");
        assert_eq!(truncate_width("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
    }

    #[test]
    fn the_middle_is_named_when_it_is_left_out() {
        assert_eq!(truncate_middle("0123456789", 4), "01\n… 6 bytes left out …\n89");
        assert_eq!(truncate_middle("0123", 4), "0123");
        assert_eq!(truncate_middle("한글한글", 8), "한\n… 6 bytes left out …\n글");
    }
}
