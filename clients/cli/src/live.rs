//! The end of the message that is being written: shown on a terminal until the message is complete.

use mcode_text::{sanitize, wrap};

/// Most rows of it.
const ROWS_MAX: usize = 8;

/// Most bytes of its end that are looked at for these rows.
const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// Most bytes of a message that are kept; of a longer one the beginning is dropped.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// A tab on the terminal.
const TAB: &str = "    ";

/// A message as far as it was written.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    item_id: String,
    text: String,
}

impl Tail {
    /// More of a message; another message than before takes its place.
    pub(crate) fn push(&mut self, item_id: &str, text: &str) {
        if self.item_id != item_id {
            item_id.clone_into(&mut self.item_id);
            self.text.clear();
        }
        self.text.push_str(text);
        if self.text.len() > KEPT_BYTES_MAX {
            let start = self.text.ceil_char_boundary(self.text.len() - KEPT_BYTES_MAX / 2);
            self.text.drain(..start);
        }
    }

    /// The message is complete, or is written anew.
    pub(crate) fn clear(&mut self) {
        self.item_id.clear();
        self.text.clear();
    }

    /// Takes what was written of a message; empty when it is not the one that is being written.
    pub(crate) fn take(&mut self, item_id: &str) -> String {
        if self.item_id == item_id { std::mem::take(&mut self.text) } else { String::new() }
    }

    /// The last rows, for a terminal of this size.
    pub(crate) fn rows(&self, columns: usize, lines: usize) -> Vec<String> {
        // The status line and the line that the cursor is left on need their places too.
        let most = ROWS_MAX.min(lines.saturating_sub(2));
        let start = self.text.ceil_char_boundary(self.text.len().saturating_sub(SHOWN_BYTES_MAX));
        let text = sanitize(self.text[start..].trim()).replace('\t', TAB);
        if text.is_empty() {
            return Vec::new();
        }
        // The last column stays free: a terminal may break a full line on its own.
        let cells = columns.saturating_sub(1).max(1);
        let rows: Vec<&str> = text.lines().flat_map(|line| wrap(line, cells)).collect();
        rows[rows.len().saturating_sub(most)..].iter().map(|&row| row.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rows_are_shown() {
        let mut tail = Tail::default();
        assert!(tail.rows(80, 24).is_empty());
        tail.push("itm_1", "one\n\ttwo\n");
        tail.push("itm_1", "thr\u{1b}[2Jee");
        assert_eq!(tail.rows(80, 24), ["one", "    two", "thr\\x1b[2Jee"]);
        assert_eq!(tail.rows(5, 24), ["one", "    ", "two", "thr\\", "x1b[", "2Jee"]);
        assert_eq!(tail.rows(80, 3), ["thr\\x1b[2Jee"]);
        tail.push("itm_2", "other");
        assert_eq!(tail.rows(80, 24), ["other"]);
        assert_eq!((tail.take("itm_1"), tail.take("itm_2")), (String::new(), "other".to_owned()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut tail = Tail::default();
        for _ in 0..40 {
            tail.push("itm_1", &"é\n".repeat(4 * 1024));
            assert!(tail.text.len() <= KEPT_BYTES_MAX);
        }
        assert_eq!(tail.rows(80, 100), vec!["é"; ROWS_MAX]);
    }
}
