//! What a provider refuses in a conversation, in the provider's own words.
//!
//! Stricter than the real servers in few points, on purpose: roles have to alternate on the Anthropic wire (the real one
//! merges neighbours), no tool result may be empty, signatures count for the model that made them only, and on the
//! Responses wire a request that names items by id has to say `store: false`, as nothing is ever stored here.

mod answer;
mod anthropic;
mod bedrock;
mod chat;
mod gemini;
mod responses;
#[cfg(test)]
mod tests;
mod thinking;

use serde_json::Value;

use super::given::Given;
use super::recorded::{RecordedRequest, Wire};

/// The reason why a request would be refused, if any.
pub(super) fn refusal(request: &RecordedRequest, given: &Given) -> Option<String> {
    refused(request.wire, request.model(), &request.body, given)
}

fn refused(wire: Wire, model: &str, body: &Value, given: &Given) -> Option<String> {
    let checked = match wire {
        Wire::Anthropic => anthropic::check(model, body, given),
        Wire::Chat => chat::check(body),
        Wire::Responses => responses::check(body, given),
        Wire::Gemini => gemini::check(model, body, given),
        Wire::Bedrock => bedrock::check(model, body, given),
    };
    checked.err()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Whether this is 1 to `most` characters of `[a-zA-Z0-9_-]`.
fn is_id(id: &str, most: usize) -> bool {
    (1..=most).contains(&id.len()) && id.bytes().all(is_id_byte)
}
