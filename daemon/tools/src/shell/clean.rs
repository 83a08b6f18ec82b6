//! Terminal output as plain text.

/// Longest operating-system command (such as a window title) that is skipped; a longer one was not meant as one.
const SEQUENCE_CHARS_MAX: usize = 4096;

/// Bytes of a terminal as text: valid UTF-8 (what is not becomes U+FFFD), escape sequences and control characters
/// taken out, and of a line that a progress display rewrote with carriage returns the last state only.
#[must_use]
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let (mut line_start, mut rewrite) = (0, false);
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        match char {
            '\x1b' => rest = after_escape(rest),
            '\u{9b}' => rest = after_csi(rest),
            '\r' => rewrite = true,
            '\n' => {
                out.push('\n');
                (line_start, rewrite) = (out.len(), false);
            }
            '\t' => out.push('\t'),
            control if control.is_control() => {}
            plain => {
                if rewrite {
                    out.truncate(line_start);
                    rewrite = false;
                }
                out.push(plain);
            }
        }
    }
    out
}

/// What follows an escape sequence whose ESC was just read.
fn after_escape(rest: std::str::Chars<'_>) -> std::str::Chars<'_> {
    let mut ahead = rest.clone();
    match ahead.next() {
        Some('[') => after_csi(ahead),
        Some(']' | 'P' | 'X' | '^' | '_') => after_string(ahead),
        Some(' '..='/') => {
            for char in ahead.by_ref() {
                if !(' '..='/').contains(&char) {
                    break;
                }
            }
            ahead
        }
        Some('0'..='~') => ahead,
        _ => rest,
    }
}

/// Parameters, then one final character.
fn after_csi(rest: std::str::Chars<'_>) -> std::str::Chars<'_> {
    let mut ahead = rest;
    loop {
        let before = ahead.clone();
        match ahead.next() {
            Some(' '..='?') => {}
            Some('@'..='~') => return ahead,
            _ => return before,
        }
    }
}

/// A string ended by BEL or `ESC \`. One that does not end soon, or spans lines, is shown as the text it is.
fn after_string(rest: std::str::Chars<'_>) -> std::str::Chars<'_> {
    let mut ahead = rest.clone();
    for _ in 0..SEQUENCE_CHARS_MAX {
        match ahead.next() {
            Some('\x07' | '\u{9c}') => return ahead,
            Some('\x1b') => {
                let mut end = ahead.clone();
                return if end.next() == Some('\\') { end } else { ahead };
            }
            Some('\n') | None => return rest,
            Some(_) => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_output_becomes_plain_text() {
        for (given, wanted) in [
            (b"ok \xff\xfe\x00 end\n\x1b[31mred\x1b[0m\n".as_slice(), "ok \u{fffd}\u{fffd} end\nred\n"),
            (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ b", "alink b"),
            (b"\x1b(Bx\x1b=y\x1b", "xy"),
            (b"\x1b]never ends", "never ends"),
            (b"10%\r50%\r100%\nnext\r\n", "100%\nnext\n"),
            (b"kept\r", "kept"),
            (b"a\tb\x08\x0c\x7f", "a\tb"),
            (b"\x1b[38;5;1", ""),
            ("é\u{9b}31mx".as_bytes(), "éx"),
        ] {
            assert_eq!(clean(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn nothing_survives_that_a_terminal_would_obey() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert!(clean(&all).chars().all(|char| char == '\t' || char == '\n' || !char.is_control()));
    }
}
