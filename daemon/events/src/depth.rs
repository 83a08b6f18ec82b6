//! How deep JSON of others may nest that becomes part of an event.
//!
//! Payloads are read with a bound on nesting. What was written deeper than that could never be read again, and its thread
//! neither; so whoever takes JSON from a model, a client or a provider looks here first.

use serde_json::Value;

/// Deepest nesting of a value that may be part of an event. The reader of payloads takes 128 levels, of which the event
/// itself needs some.
pub const JSON_DEPTH_MAX: usize = 100;

/// Whether a value nests no deeper than [`JSON_DEPTH_MAX`].
#[must_use]
pub fn fits(value: &Value) -> bool {
    within(value, JSON_DEPTH_MAX)
}

/// Whether a value nests no deeper than `levels`; a number or a text has none.
#[must_use]
pub fn within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| within(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nests so deep, in lists and objects by turns.
    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::from(1), |inner, level| match level % 2 {
            0 => serde_json::json!([inner]),
            _ => serde_json::json!({"a": inner, "b": 2}),
        })
    }

    #[test]
    fn levels_are_counted() {
        assert!(within(&Value::from("x"), 0) && within(&nested(1), 1) && !within(&nested(2), 1));
        assert!(fits(&nested(JSON_DEPTH_MAX)) && !fits(&nested(JSON_DEPTH_MAX + 1)));
    }
}
