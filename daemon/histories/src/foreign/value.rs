//! Looking into JSON whose shape nobody promises.

use serde_json::Value;

/// The text of a field; empty when it is none.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The text of a field that is there and not empty.
pub(crate) fn some_text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Whether a field is true.
pub(crate) fn is_true(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

/// The list of a field; empty when it is none.
pub(crate) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A count; zero when it is none.
pub(crate) fn count(value: &Value, field: &str) -> u64 {
    let number = value.get(field);
    // Some write counts as floating point.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    number.and_then(|number| number.as_u64().or_else(|| number.as_f64().map(|number| number as u64))).unwrap_or(0)
}

/// A moment as milliseconds since 1970: RFC 3339, or a number of milliseconds.
pub(crate) fn moment(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::String(text) => moment_of(text),
        #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)),
        _ => None,
    }
}

/// A moment that is written as RFC 3339, in milliseconds since 1970.
pub(crate) fn moment_of(text: &str) -> Option<i64> {
    text.trim().parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}
