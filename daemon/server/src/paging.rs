//! Page sizes of lists.

/// Rows of a page when the request does not say.
pub(crate) const DEFAULT: u32 = 50;

/// Most rows of a page.
pub(crate) const MAX: u32 = 500;

/// The page size to use for a requested one.
pub(crate) fn size(requested: u32) -> u32 {
    if requested == 0 { DEFAULT } else { requested.min(MAX) }
}

/// The page token of a request, if it has one.
pub(crate) fn token(requested: String) -> Option<String> {
    (!requested.is_empty()).then_some(requested)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_have_a_default_and_a_limit() {
        assert_eq!([super::size(0), super::size(7), super::size(9999)], [50, 7, 500]);
    }
}
