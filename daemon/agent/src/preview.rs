//! What a person is shown before they allow a call.

use mcode_text::truncate_middle;

/// The longest preview in an approval, in bytes; what says that it was cut comes on top.
pub(crate) const PREVIEW_BYTES_MAX: usize = 16 * 1024;

/// The preview, if need be its beginning and its end. Nobody is to allow what they did not know was there: what is cut
/// is said last, where the question stands.
pub(crate) fn shown(preview: &str) -> String {
    if preview.len() <= PREVIEW_BYTES_MAX {
        return preview.to_owned();
    }
    format!(
        "{}\n[ONLY PART OF IT IS SHOWN: it has {} bytes. See all of it before you allow it, in the arguments that \
         `mcode approvals list --output json` prints]",
        truncate_middle(preview, PREVIEW_BYTES_MAX),
        preview.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_the_limit_all_is_shown_and_beyond_it_that_is_said_last() {
        let whole = "x".repeat(PREVIEW_BYTES_MAX);
        assert_eq!(shown(&whole), whole);
        let longer = format!("begin {whole} end");
        let text = shown(&longer);
        assert!(text.starts_with("begin "), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains("ONLY PART") && last.contains(&longer.len().to_string()), "{last}");
        assert!(text.contains(" end\n") && text.len() < PREVIEW_BYTES_MAX + 400, "{}", text.len());
    }
}
