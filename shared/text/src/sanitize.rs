//! Makes foreign text safe to print: what a terminal would obey, or a reader could not see, is shown as an escape.
//!
//! Tabs and line breaks stay (see [`sanitize_line`] for one line). Emoji joined by a zero-width joiner, and joiners
//! inside non-Latin words, stay as well, since they are how such text is written.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with control, reordering and invisible characters shown as `\x1b` or `\u{202e}`.
///
/// `\r\n` becomes `\n`; a carriage return of its own would overwrite the line and is shown.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    clean(text, false)
}

/// The text as one line: as [`sanitize`], and line breaks are shown as `\n`, tabs become a space.
#[must_use]
pub fn sanitize_line(text: &str) -> Cow<'_, str> {
    clean(text, true)
}

fn clean(text: &str, one_line: bool) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte) || (!one_line && matches!(byte, b'\n' | b'\t')));
    if plain {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' if one_line => out.push_str("\\n"),
            '\t' if one_line => out.push(' '),
            '\n' | '\t' => out.push(c),
            // A joiner between two characters of a script or emoji that needs it, and nowhere else.
            '\u{200c}' | '\u{200d}' if !before.is_ascii() && rest.peek().is_some_and(|next| joinable(*next)) => {
                out.push(c);
            }
            c if is_hidden_or_obeyed(c) => escape(c, &mut out),
            c => out.push(c),
        }
        before = c;
    }
    Cow::Owned(out)
}

fn joinable(c: char) -> bool {
    !c.is_ascii() && !is_hidden_or_obeyed(c)
}

fn escape(c: char, out: &mut String) {
    let code = u32::from(c);
    // Writing to a String can not fail.
    let _ = if code < 0x80 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{{{code:x}}}") };
}

/// Whether a terminal obeys the character, or a reader can not see that it is there.
fn is_hidden_or_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0xad                    // soft hyphen
            | 0x61c | 0x180e        // Arabic letter mark, Mongolian vowel separator
            | 0x115f | 0x1160 | 0x3164 | 0xffa0 // fillers that take no visible space
            | 0x200b..=0x200f       // zero-width space and joiners, direction marks
            | 0x2028..=0x202e       // line and paragraph separators, embeddings and overrides
            | 0x2060..=0x206f       // word joiner, invisible operators, isolates
            | 0xfeff                // byte order mark
            | 0xfff9..=0xfffb       // interlinear annotations
            | 0xe0000..=0xe01ef     // tags and further variation selectors
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_is_not_copied() {
        assert!(matches!(sanitize("plain\ttext\n"), Cow::Borrowed(_)));
        assert_eq!(sanitize("grüße 한글 ✓ 👩‍💻 नमस्‍ते می‌خواهم"), "grüße 한글 ✓ 👩‍💻 नमस्‍ते می‌خواهم");
    }

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        assert_eq!(sanitize("\u{1b}]52;c;aGk=\u{7}"), "\\x1b]52;c;aGk=\\x07");
        assert_eq!(sanitize("a\u{9b}2Jb"), "a\\u{9b}2Jb");
        assert_eq!(sanitize("right\rwrong"), "right\\x0dwrong");
        assert_eq!(sanitize("one\r\ntwo"), "one\ntwo");
        assert_eq!(sanitize("nul\0bs\u{8}"), "nul\\x00bs\\x08");
    }

    #[test]
    fn what_a_reader_can_not_see_is_shown() {
        assert_eq!(sanitize("a\u{202e}b\u{2066}c"), "a\\u{202e}b\\u{2066}c");
        assert_eq!(sanitize("pass\u{200b}word"), "pass\\u{200b}word");
        assert_eq!(sanitize("rm\u{200d}x"), "rm\\u{200d}x");
        assert_eq!(sanitize("\u{e0041}\u{feff}"), "\\u{e0041}\\u{feff}");
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(sanitize_line("a\nb\tc\r\nd"), "a\\nb c\\nd");
    }

    #[test]
    fn nothing_hidden_is_left_of_any_character() {
        for c in '\0'..='\u{10ffff}' {
            let text = format!("x{c}y");
            let clean = sanitize(&text);
            assert!(!clean.chars().any(|c| c != '\n' && c != '\t' && is_hidden_or_obeyed(c)), "{:x}", u32::from(c));
        }
    }
}
