//! How many terminal cells text takes.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Cells of a text without control characters; emoji with modifiers count as one.
#[must_use]
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.graphemes(true).map(grapheme_width).sum()
}

/// Cells of one character as people see it: never more than two.
pub(crate) fn grapheme_width(grapheme: &str) -> usize {
    grapheme.width().min(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_counted_as_terminals_draw_them() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("한글"), 4);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(width("👩‍💻"), 2);
        assert_eq!(width(""), 0);
    }
}
