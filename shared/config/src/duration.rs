//! Spans of time as people write them: `120s`, `10m`, `1h30m`, `500ms`.

use std::time::Duration;

/// Not a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as \"120s\", \"10m\" or \"1h30m\"")]
pub struct DurationError;

/// Reads whole numbers, each with a unit (`ms`, `s`, `m`, `h`, `d`), largest first or in any order; they are added up.
///
/// # Errors
/// [`DurationError`] for anything else, and for a sum that is too large.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(DurationError);
    }
    let mut millis = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(DurationError)?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let factor: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(DurationError),
        };
        let number: u64 = number.parse().map_err(|_| DurationError)?;
        millis = number.checked_mul(factor).and_then(|part| millis.checked_add(part)).ok_or(DurationError)?;
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up_and_nonsense_is_refused() {
        let cases =
            [("120s", 120_000), ("10m", 600_000), ("1h30m", 5_400_000), ("500ms", 500), ("1d", 86_400_000), ("0s", 0)];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "12", "s", "1.5h", "-1s", "10 m", "1x", "99999999999999999999s", "18446744073709551615d", "é"]
        {
            assert_eq!(parse_duration(text), Err(DurationError), "{text}");
        }
    }
}
