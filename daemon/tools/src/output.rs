//! Keeping results within their bounds: what is cut is kept in a blob, and its total is stated.

use crate::tool::CallContext;

/// The most bytes of text that one tool result gives the model.
pub const MAX_RESULT_BYTES: usize = 50 * 1024;
/// The most bytes of a unified diff that is shown to people.
pub const MAX_DIFF_BYTES: usize = 64 * 1024;
/// What a path starts with when it names a stored body instead of a file.
pub const BLOB_PREFIX: &str = "blob:";

/// The text itself when it has at most `head + tail` bytes. Otherwise its first `head` and last `tail` bytes (less,
/// to end on whole characters) with a note between them that states the total and the path (`blob:<hash>`) with which
/// `view` gives the whole text. Blocking: it writes a blob.
#[must_use]
pub fn cut_to_blob(context: &CallContext, text: &str, head: usize, tail: usize) -> String {
    if text.len() <= head.saturating_add(tail) {
        return text.to_owned();
    }
    let start = text.get(..floor_boundary(text, head)).unwrap_or_default();
    let end = text.get(ceil_boundary(text, text.len() - tail)..).unwrap_or_default();
    let left_out = text.len() - start.len() - end.len();
    let reference = match context.blobs.put(text.as_bytes(), "text/plain; charset=utf-8") {
        Ok(blob) => format!("view it with path \"{BLOB_PREFIX}{}\"", blob.hash),
        Err(error) => {
            tracing::warn!(%error, "the cut part of a tool result could not be kept");
            "the part left out could not be kept".to_owned()
        }
    };
    let before = if start.is_empty() || start.ends_with('\n') { "" } else { "\n" };
    let after = if end.is_empty() || end.starts_with('\n') { "" } else { "\n" };
    let total = text.len();
    format!("{start}{before}[{left_out} bytes left out here; full output: {total} bytes, {reference}]{after}{end}")
}

/// The diff itself, or its first [`MAX_DIFF_BYTES`] up to a whole line and how much was left out.
#[must_use]
pub fn bounded_diff(diff: String) -> String {
    if diff.len() <= MAX_DIFF_BYTES {
        return diff;
    }
    let total = diff.len();
    let kept = diff.get(..floor_boundary(&diff, MAX_DIFF_BYTES)).unwrap_or_default();
    let kept = kept.rfind('\n').and_then(|end| kept.get(..=end)).unwrap_or(kept);
    format!("{kept}[diff cut: {} of {total} bytes shown]\n", kept.len())
}

/// The largest character boundary of `text` that is not after `index` (in bytes).
#[must_use]
pub fn floor_boundary(text: &str, index: usize) -> usize {
    let mut at = index.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The smallest character boundary of `text` that is not before `index` (in bytes).
#[must_use]
pub fn ceil_boundary(text: &str, index: usize) -> usize {
    let mut at = index.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// `1 line`, `2 lines`: a count with its noun.
#[must_use]
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_never_split_a_character() {
        let text = "aé漢z";
        assert_eq!((floor_boundary(text, 2), ceil_boundary(text, 2)), (1, 3));
        assert_eq!((floor_boundary(text, 4), ceil_boundary(text, 4)), (3, 6));
        assert_eq!((floor_boundary(text, 99), ceil_boundary(text, 99)), (7, 7));
    }

    #[test]
    fn a_long_diff_is_cut_at_a_line_and_says_so() {
        let diff = "+0123456789\n".repeat(10_000);
        let cut = bounded_diff(diff);
        assert!(cut.len() < MAX_DIFF_BYTES + 100);
        assert!(cut.ends_with("\n[diff cut: 65532 of 120000 bytes shown]\n"), "{}", &cut[cut.len() - 80..]);
        assert_eq!(bounded_diff("+a\n".into()), "+a\n");
    }
}
