//! JSON and time.

use mcode_env::Timestamp;
use mcode_proto::VALUE_DEPTH_MAX;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

/// JSON as `google.protobuf.Value`. What nests deeper than [`VALUE_DEPTH_MAX`] is the text of its JSON: a reader that did
/// not take it could not read what comes after it either.
pub(crate) fn to_value(json: &serde_json::Value) -> Value {
    within(json, VALUE_DEPTH_MAX)
}

fn within(json: &serde_json::Value, levels: usize) -> Value {
    let kind = match json {
        serde_json::Value::Array(_) | serde_json::Value::Object(_) if levels == 0 => {
            Kind::StringValue(json.to_string())
        }
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(flag) => Kind::BoolValue(*flag),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(0.0)),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(|item| within(item, levels - 1)).collect() })
        }
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.iter().map(|(name, field)| (name.clone(), within(field, levels - 1))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}

/// `google.protobuf.Struct` as JSON.
pub(crate) fn from_struct(fields: Struct) -> serde_json::Value {
    serde_json::Value::Object(fields.fields.into_iter().map(|(name, field)| (name, from_value(field))).collect())
}

fn from_value(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(flag)) => flag.into(),
        Some(Kind::NumberValue(number)) => number_of(number),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::ListValue(items)) => items.values.into_iter().map(from_value).collect::<Vec<_>>().into(),
        Some(Kind::StructValue(fields)) => from_struct(fields),
    }
}

/// A whole number stays one: JSON Schema tells `3` from `3.0` in `minItems` and the like.
#[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
fn number_of(number: f64) -> serde_json::Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT { (number as i64).into() } else { number.into() }
}

/// A moment in milliseconds since 1970 UTC.
pub(crate) fn time(millis: i64) -> prost_types::Timestamp {
    let nanos = i32::try_from(millis.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
    prost_types::Timestamp { seconds: millis.div_euclid(1000), nanos }
}

/// Milliseconds since 1970 UTC of a moment.
pub(crate) fn millis(at: &prost_types::Timestamp) -> i64 {
    at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos / 1_000_000))
}

/// A moment of the clock.
pub(crate) fn moment(at: Timestamp) -> prost_types::Timestamp {
    time(at.millis())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_comes_back_as_it_went() {
        let json = json!({"a": [1, 2.5, null, true, "x"], "minItems": 3, "big": 1e300});
        match to_value(&json).kind {
            Some(Kind::StructValue(fields)) => assert_eq!(from_struct(fields), json),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_nests_deep_is_text_there_and_can_be_read_by_everybody() {
        use prost::Message as _;
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
        let mut inner = to_value(&nested(VALUE_DEPTH_MAX + 3));
        for _ in 0..VALUE_DEPTH_MAX {
            let Some(Kind::StructValue(mut fields)) = inner.kind else { panic!("{inner:?}") };
            inner = fields.fields.remove("a").unwrap();
        }
        assert_eq!(inner.kind, Some(Kind::StringValue(nested(3).to_string())));
        // As deep as an event holds it.
        let call = mcode_proto::v1::ToolCallStarted { arguments: Some(to_value(&nested(100))), ..Default::default() };
        let body = Some(mcode_proto::v1::event::Body::ToolCallStarted(call));
        let event = mcode_proto::v1::Event { body, ..Default::default() };
        let snapshot = mcode_proto::v1::Snapshot { recent: vec![event], ..Default::default() };
        let piece = Some(mcode_proto::v1::subscribe_response::Piece::Snapshot(snapshot));
        let response = mcode_proto::v1::SubscribeResponse { piece };
        assert_eq!(mcode_proto::v1::SubscribeResponse::decode(response.encode_to_vec().as_slice()).unwrap(), response);
    }

    #[test]
    fn moments_before_1970_have_positive_nanos() {
        assert_eq!(time(-1), prost_types::Timestamp { seconds: -1, nanos: 999_000_000 });
        assert_eq!(time(1500), prost_types::Timestamp { seconds: 1, nanos: 500_000_000 });
    }
}
