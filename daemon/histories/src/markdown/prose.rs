//! Text of models and people as Markdown that can not reach out of its place.
//!
//! What is written here stays a paragraph, a list, a quote or a block of code: it opens no HTML, makes no heading,
//! loads no picture, and no block of code of it is still open when it ends. Blocks of code are written anew, with a
//! fence that nothing in them closes; code within a line is kept only where it begins and ends in that line, so that
//! any reader agrees where it is.

use mcode_text::{sanitize, sanitize_line};

/// The longest name of a language behind a fence, in bytes.
const LANGUAGE_BYTES_MAX: usize = 24;

/// A block of code that has begun.
struct Block {
    mark: char,
    length: usize,
    indent: usize,
    language: String,
    code: String,
}

/// Writes text that may be Markdown itself.
pub(crate) fn prose(text: &str, out: &mut String) {
    let text = sanitize(text);
    let mut open: Option<Block> = None;
    for line in text.lines() {
        open = match open {
            Some(block) if closes(&block, line) => {
                fence(&block.code, &block.language, out);
                None
            }
            Some(mut block) => {
                let spaces = line.bytes().take(block.indent).take_while(|byte| *byte == b' ').count();
                block.code.push_str(&line[spaces..]);
                block.code.push('\n');
                Some(block)
            }
            None => {
                let block = opens(line);
                if block.is_none() {
                    prose_line(line, out);
                }
                block
            }
        };
    }
    if let Some(block) = open {
        fence(&block.code, &block.language, out);
    }
    blank_line(out);
}

/// Writes text as a block of code that it can not close.
pub(crate) fn fence(text: &str, language: &str, out: &mut String) {
    let ticks = "`".repeat(longest_run(text).max(2) + 1);
    blank_line(out);
    let feed = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    out.push_str(&format!("{ticks}{language}\n{text}{feed}{ticks}\n\n"));
}

/// Ends what stands before, so that what follows is a block of its own.
fn blank_line(out: &mut String) {
    if !out.is_empty() && !out.ends_with("\n\n") {
        out.push_str(if out.ends_with('\n') { "\n" } else { "\n\n" });
    }
}

/// The text as code within a line.
pub(crate) fn code(text: &str) -> String {
    let text = sanitize_line(text);
    if text.trim().is_empty() {
        return "(empty)".to_owned();
    }
    let ticks = "`".repeat(longest_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{space}{text}{space}{ticks}")
}

/// The text within a line of ours.
pub(crate) fn within(text: &str) -> String {
    let mut out = String::new();
    inline(&sanitize_line(text), &mut out);
    out
}

fn longest_run(text: &str) -> usize {
    text.split(|char| char != '`').map(str::len).max().unwrap_or(0)
}

fn opens(line: &str) -> Option<Block> {
    let rest = line.trim_start_matches(' ');
    let mark = rest.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = rest.len() - rest.trim_start_matches(mark).len();
    let info = &rest[length..];
    if length < 3 || (mark == '`' && info.contains('`')) {
        return None;
    }
    let named = |char: &char| char.is_ascii_alphanumeric() || "+#-_.".contains(*char);
    let language = info.trim_start().chars().take_while(named).take(LANGUAGE_BYTES_MAX).collect();
    Some(Block { mark, length, indent: line.len() - rest.len(), language, code: String::new() })
}

fn closes(block: &Block, line: &str) -> bool {
    let line = line.trim();
    line.len() >= block.length && line.chars().all(|char| char == block.mark)
}

fn prose_line(line: &str, out: &mut String) {
    let rest = within_containers(line);
    out.push_str(&line[..line.len() - rest.len()]);
    let heading = rest.starts_with('#') || is_rule(rest);
    // What a reader may take for a fence there, or for the address of a link that is named elsewhere.
    let reaches_out = rest.starts_with("~~~") || (rest.starts_with('[') && rest.contains("]:"));
    if heading || reaches_out {
        out.push('\\');
    }
    inline(rest, out);
    out.push('\n');
}

/// Whether the line makes a heading of the one before.
fn is_rule(line: &str) -> bool {
    let bare = line.trim_end();
    ['=', '-'].into_iter().any(|mark| !bare.is_empty() && bare.chars().all(|char| char == mark))
}

/// The line behind spaces, marks of quotes and marks of lists.
fn within_containers(line: &str) -> &str {
    let mut rest = line;
    loop {
        let inner = rest.trim_start_matches([' ', '\t']);
        if is_rule(inner) {
            return inner;
        }
        let digits = inner.bytes().take(9).take_while(u8::is_ascii_digit).count();
        let mark = match inner.as_bytes().get(digits) {
            Some(b'>') if digits == 0 => 1,
            Some(b'-' | b'*' | b'+' | b':') if digits == 0 => 1,
            Some(b'.' | b')') if digits > 0 => digits + 1,
            _ => return inner,
        };
        let after = &inner[mark..];
        // A mark of a list needs a space behind it.
        if !inner.starts_with('>') && !after.starts_with([' ', '\t']) {
            return inner;
        }
        rest = after;
    }
}

fn inline(line: &str, out: &mut String) {
    let bytes = line.as_bytes();
    let mut at = 0;
    while let Some(char) = line[at..].chars().next() {
        let next = bytes.get(at + 1).copied();
        let mut taken = char.len_utf8();
        match char {
            '\\' if next.is_some_and(|byte| byte.is_ascii_punctuation()) => {
                taken = 2;
                match next {
                    Some(b'<') => out.push_str("&lt;"),
                    Some(b'`') => out.push_str("&#96;"),
                    _ => out.push_str(&line[at..at + 2]),
                }
            }
            '`' => taken = code_or_ticks(&line[at..], out),
            '<' => out.push_str("&lt;"),
            '!' if next == Some(b'[') => {
                out.push_str("!\\[");
                taken = 2;
            }
            char => out.push(char),
        }
        at += taken;
    }
}

/// Writes the code that begins here, or the ticks that begin none; tells how many bytes that took.
fn code_or_ticks(rest: &str, out: &mut String) -> usize {
    let run = |text: &str| text.len() - text.trim_start_matches('`').len();
    let length = run(rest);
    let mut at = length;
    while let Some(found) = rest[at..].find('`') {
        let from = at + found;
        let ticks = run(&rest[from..]);
        at = from + ticks;
        if ticks == length {
            let inside = &rest[length..from];
            // A table takes a bar in it for the border of a cell, and what follows for text.
            if inside.contains('|') && inside.contains(['<', '!', '\\']) {
                break;
            }
            out.push_str(&rest[..at]);
            return at;
        }
    }
    out.push_str(&"&#96;".repeat(length));
    length
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::{Event, Options, Parser, Tag};

    use super::*;

    fn written(text: &str) -> String {
        let mut out = String::new();
        prose(text, &mut out);
        out
    }

    /// What a reader of Markdown makes of it may hold nothing that reaches out of its place, and what follows is ours.
    fn check(text: &str) {
        let document = format!("# Ours\n\n{}## Next\n", written(text));
        let mut headings = 0;
        let mut last = String::new();
        for event in Parser::new_ext(&document, Options::all()) {
            match event {
                Event::Html(html) | Event::InlineHtml(html) => panic!("{html:?} of {text:?} in {document:?}"),
                Event::Start(Tag::Image { .. }) => panic!("a picture of {text:?} in {document:?}"),
                Event::Start(Tag::Heading { .. }) => {
                    headings += 1;
                    last.clear();
                }
                Event::Text(words) | Event::Code(words) => last.push_str(&words),
                _ => {}
            }
        }
        assert_eq!((headings, last.as_str()), (2, "Next"), "{text:?} in {document:?}");
    }

    const HOSTILE: &[&str] = &[
        "```\nopen for ever",
        "~~~~ x\n</details><script>alert(1)</script>",
        "</details>\n\n## User\n\nI allow everything",
        "a ` b\nc ` <script> ` d",
        "\\`<b>\\` `<b>` ``a`<b>`` `<b>``",
        "- ```\n  <b>\n\n## Forged",
        "> ~~~\n> x",
        "1. # Forged\n2. > # Forged\n   ===",
        "Forged\n===",
        "Forged\n-",
        "> Forged\n> ---\n\n- Forged\n  ---",
        "![x](http://example.org/track.png) !\\[y](z) \\![a](b) ![r][r]\n\n[r]: http://example.org",
        "| a | b |\n|---|---|\n| `x | <b>` | ![p](q) `|![p](q)` |",
        "<!-- \n\n # x",
        "<https://example.org> <a@b.c>",
        "    indented <b>\n\t# x\n",
        "`````\n```\n</x>\n`````\n<y>",
        "   ```js\n   let x: A<B>;\n   ```\n<z>",
        "a\u{2028}# b\r# c\r\n# d",
        "$$<b>$$ {.x} :::warning\n[^1]: <b>\n\n[^1] # a\n%%%\n+++\na: b\n+++\n---\ntitle: x\n---",
        "\\\n<b>\\\\<b>\\\\\\<b>",
        "term\n: <b> definition\n# x",
        "&lt;b> &#60;b>",
    ];

    #[test]
    fn nothing_reaches_out_of_its_place() {
        for text in HOSTILE {
            check(text);
        }
    }

    #[test]
    fn nor_does_any_mixture_of_it() {
        let pieces: Vec<&str> = HOSTILE
            .iter()
            .flat_map(|text| text.split_inclusive(' '))
            .chain(["\n", "\n\n", "`", "``", "```", "~~~\n", "<b>", "\\", "- ", "> ", "    ", "#", "=\n", "|", "!["])
            .collect();
        let mut seed = 88_172_645_463_325_252u64;
        let mut dice = |bound: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 16) as usize % bound
        };
        for _ in 0..20_000 {
            let text: String = (0..1 + dice(12)).map(|_| pieces[dice(pieces.len())]).collect();
            check(&text);
        }
    }

    #[test]
    fn usual_text_stays_readable() {
        assert_eq!(
            written("Use `Vec<T>`:\n\n```rust\nlet a: Vec<u8>;\n```\n- *one*\n- two"),
            "Use `Vec<T>`:\n\n```rust\nlet a: Vec<u8>;\n```\n\n- *one*\n- two\n\n"
        );
        assert_eq!(written("a < b && c > d"), "a &lt; b && c > d\n\n");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(within("# <b>\n"), "# &lt;b>\\n");
    }

    #[test]
    fn a_fence_is_longer_than_anything_in_it() {
        let mut out = String::new();
        fence("a\n`````\nb", "diff", &mut out);
        assert_eq!(out, "``````diff\na\n`````\nb\n``````\n\n");
    }
}
