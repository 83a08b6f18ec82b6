//! Messages as JSON: proto JSON with the proto's own field names, defaults shown, numbers as numbers.
//!
//! The general way goes through the descriptors and costs a few milliseconds once; commands that print text do not
//! come here.

use std::sync::OnceLock;

use mcode_proto::v1;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use prost_types::value::Kind;
use serde_json::{Map, Number, Value, json};

use crate::error::{ClientError, ErrorKind};

/// Whole numbers up to this are exact in a double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

fn pool() -> Result<&'static DescriptorPool, ClientError> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(mcode_proto::DESCRIPTORS).ok())
        .as_ref()
        .ok_or_else(|| ClientError::new(ErrorKind::Internal, "INTERNAL", "the descriptors of mcode.v1 can not be read"))
}

/// A message of `mcode.v1` by its name in the proto, as JSON.
///
/// # Errors
/// Of kind [`ErrorKind::Internal`] when `name` is not the name of the message's type.
pub fn message_json<M: Message>(name: &str, message: &M) -> Result<Value, ClientError> {
    let fault = |why: String| ClientError::new(ErrorKind::Internal, "INTERNAL", format!("mcode.v1.{name}: {why}"));
    let descriptor = pool()?
        .get_message_by_name(&format!("mcode.v1.{name}"))
        .ok_or_else(|| fault("no such message in the descriptors".to_owned()))?;
    let dynamic = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())
        .map_err(|error| fault(error.to_string()))?;
    let options =
        SerializeOptions::new().use_proto_field_name(true).skip_default_fields(false).stringify_64_bit_integers(false);
    let mut value = dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| fault(error.to_string()))?;
    whole_numbers(&mut value);
    open_runs(&mut value);
    Ok(value)
}

/// A run that has not ended has no exit status: the proto's zero would say that it went well.
fn open_runs(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(open_runs),
        Value::Object(fields) => {
            let open = fields.get("status").is_some_and(|status| status == "running" || status == "waiting");
            if open && fields.contains_key("run_id") {
                fields.shift_remove("exit_code");
            }
            fields.values_mut().for_each(open_runs);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `google.protobuf.Value` knows doubles only: `5.0` becomes `5` again.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                *number = whole;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn whole(number: f64) -> Option<Number> {
    #[allow(clippy::cast_possible_truncation, reason = "it is whole and exact")]
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then(|| Number::from(number as i64))
}

/// A free-form value as JSON.
#[must_use]
pub fn value_json(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => {
            whole(*number).or_else(|| Number::from_f64(*number)).map_or(Value::Null, Value::Number)
        }
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::BoolValue(yes)) => Value::Bool(*yes),
        Some(Kind::StructValue(fields)) => struct_json(fields),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(value_json).collect()),
    }
}

fn struct_json(fields: &prost_types::Struct) -> Value {
    let map: Map<String, Value> = fields.fields.iter().map(|(name, value)| (name.clone(), value_json(value))).collect();
    Value::Object(map)
}

/// JSON as a free-form value.
#[must_use]
pub fn json_value(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(yes) => Kind::BoolValue(*yes),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => {
            Kind::ListValue(prost_types::ListValue { values: values.iter().map(json_value).collect() })
        }
        Value::Object(fields) => Kind::StructValue(json_struct(fields)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// Whether JSON nests no deeper than `levels`; a number or a text has none.
#[must_use]
pub fn within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(values) => levels > 0 && values.iter().all(|value| within(value, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|value| within(value, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// A JSON object as a free-form struct.
#[must_use]
pub fn json_struct(fields: &Map<String, Value>) -> prost_types::Struct {
    prost_types::Struct { fields: fields.iter().map(|(name, value)| (name.clone(), json_value(value))).collect() }
}

/// Usage as JSON, without the descriptors.
#[must_use]
pub fn usage_json(usage: &v1::Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": usage.cost_usd,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_proto() {
        let response = v1::ListThreadsResponse {
            threads: vec![v1::Thread {
                thread_id: "thr_1".into(),
                created_at: Some(prost_types::Timestamp { seconds: 978_307_200, nanos: 0 }),
                last_seq: 9_000_000_000,
                usage: Some(v1::Usage::default()),
                ..Default::default()
            }],
            next_page_token: String::new(),
        };
        let value = message_json("ListThreadsResponse", &response).unwrap();
        assert_eq!(value["next_page_token"], "");
        let thread = &value["threads"][0];
        assert_eq!(thread["thread_id"], "thr_1");
        assert_eq!(thread["last_seq"], 9_000_000_000_u64);
        assert_eq!(thread["created_at"], "2001-01-01T00:00:00Z");
        assert_eq!(thread["archived"], false);
        assert_eq!(thread["tags"], json!([]));
        assert_eq!(thread["usage"]["input_tokens"], 0);
    }

    #[test]
    fn free_form_values_round_trip_and_keep_whole_numbers() {
        let value = json!({"a": [1, 2.5, null, true, "x"], "b": {"c": -3}});
        assert_eq!(value_json(&json_value(&value)), value);
        let approval = v1::Approval { arguments: Some(json_value(&value)), ..Default::default() };
        assert_eq!(message_json("Approval", &approval).unwrap()["arguments"].to_string(), value.to_string());
    }

    #[test]
    fn only_a_run_that_has_ended_has_an_exit_status() {
        let run = |status: &str| v1::Run { run_id: "run_1".into(), status: status.into(), ..Default::default() };
        let runs = ["running", "waiting", "done"].map(run).to_vec();
        let response = v1::ListRunsResponse { runs, next_page_token: String::new() };
        let value = message_json("ListRunsResponse", &response).unwrap();
        let codes: Vec<Option<&Value>> = (0..3).map(|run| value["runs"][run].get("exit_code")).collect();
        assert_eq!(codes, [None, None, Some(&json!(0))]);
    }

    #[test]
    fn a_wrong_name_is_a_fault_and_not_a_panic() {
        assert_eq!(message_json("Nothing", &v1::Usage::default()).unwrap_err().exit_code(), 70);
    }
}
