//! For every wire a sound body, and for every rule a change of it that is refused.

mod answer;
mod bedrock;
mod gemini;
mod openai;
mod recorded;

use serde_json::{Value, json};

use super::*;

/// A change of a body, what is said about it, and what it is.
type Case = (&'static str, fn(&mut Value), &'static str);

/// A change of a body after which it is still sound, and what it is.
type Variant = (&'static str, fn(&mut Value));

/// Takes `sound` as it is, and refuses it after each change.
fn check_all(wire: Wire, model: &str, sound: &Value, given: &Given, cases: &[Case]) {
    assert_eq!(refused(wire, model, sound, given), None, "the sound body");
    for (rule, change, words) in cases {
        let mut body = sound.clone();
        change(&mut body);
        assert_ne!(body, *sound, "{rule}: nothing was changed");
        let said = refused(wire, model, &body, given).unwrap_or_default();
        assert!(said.contains(words), "{rule}: {said:?}");
    }
}

/// Takes `sound` after each change.
fn take_all(wire: Wire, model: &str, sound: &Value, given: &Given, cases: &[Variant]) {
    for (rule, change) in cases {
        let mut body = sound.clone();
        change(&mut body);
        assert_ne!(body, *sound, "{rule}: nothing was changed");
        assert_eq!(refused(wire, model, &body, given), None, "{rule}");
    }
}

fn remove(value: &mut Value, at: usize) {
    value.as_array_mut().unwrap().remove(at);
}

fn insert(value: &mut Value, at: usize, new: Value) {
    value.as_array_mut().unwrap().insert(at, new);
}

fn push(value: &mut Value, new: Value) {
    value.as_array_mut().unwrap().push(new);
}

fn drop_field(value: &mut Value, field: &str) {
    value.as_object_mut().unwrap().remove(field);
}

#[test]
fn anthropic() {
    let mut given = Given::default();
    given.sign(Wire::Anthropic, "m", "S1", "hm");
    given.sign(Wire::Anthropic, "other", "S2", "hm");
    given.sign(Wire::Anthropic, "m", "R1", "");
    let sound = json!({"model": "m", "max_tokens": 1,
    "tools": [{"name": "t", "description": "d", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "S1"},
            {"type": "redacted_thinking", "data": "R1"},
            {"type": "tool_use", "id": "x", "name": "t", "input": {}},
            {"type": "tool_use", "id": "y", "name": "t", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "x", "content": "r"},
            {"type": "tool_result", "tool_use_id": "y", "content": [{"type": "text", "text": "r"}]},
            {"type": "text", "text": "and"}]},
    ]});
    check_all(
        Wire::Anthropic,
        "m",
        &sound,
        &given,
        &[
            ("no model", |b| drop_field(b, "model"), "model: Field required"),
            ("no messages", |b| b["messages"] = json!([]), "at least one message"),
            (
                "no result",
                |b| remove(&mut b["messages"][2]["content"], 1),
                "without `tool_result` blocks immediately after: y",
            ),
            (
                "stray result",
                |b| b["messages"][2]["content"][1]["tool_use_id"] = json!("z"),
                "unexpected `tool_use_id`",
            ),
            ("two results", |b| b["messages"][2]["content"][1]["tool_use_id"] = json!("x"), "single result"),
            (
                "a late result",
                |b| insert(&mut b["messages"][2]["content"], 0, json!({"type": "text", "text": "w"})),
                "immediately after",
            ),
            ("an empty result", |b| b["messages"][2]["content"][0]["content"] = json!(""), "must be non-empty"),
            ("empty text", |b| b["messages"][2]["content"][2]["text"] = json!(""), "must be non-empty"),
            ("blank text", |b| b["messages"][2]["content"][2]["text"] = json!(" "), "non-whitespace"),
            ("an empty message", |b| b["messages"][0]["content"] = json!(""), "must have non-empty content"),
            (
                "a trailing assistant",
                |b| push(&mut b["messages"], json!({"role": "assistant", "content": "x"})),
                "must end with a user message",
            ),
            (
                "two of a role",
                |b| insert(&mut b["messages"], 1, json!({"role": "user", "content": "x"})),
                "roles must alternate",
            ),
            ("assistant first", |b| remove(&mut b["messages"], 0), "first message must use"),
            ("a bad id", |b| b["messages"][1]["content"][2]["id"] = json!("a.b"), "should match pattern"),
            ("one id twice", |b| b["messages"][1]["content"][3]["id"] = json!("x"), "must be unique"),
            ("input as text", |b| b["messages"][1]["content"][2]["input"] = json!("{}"), "valid dictionary"),
            (
                "another model's signature",
                |b| b["messages"][1]["content"][0]["signature"] = json!("S2"),
                "Invalid `signature`",
            ),
            ("an edited thought", |b| b["messages"][1]["content"][0]["thinking"] = json!("ho"), "cannot be modified"),
            ("a foreign redacted thought", |b| b["messages"][1]["content"][1]["data"] = json!("R9"), "Invalid `data`"),
            ("no tools", |b| drop_field(b, "tools"), "must define tools"),
            ("a bad name", |b| b["tools"][0]["name"] = json!("a b"), "should match pattern"),
            (
                "a name twice",
                |b| {
                    let tool = b["tools"][0].clone();
                    push(&mut b["tools"], tool)
                },
                "must be unique",
            ),
            ("no schema", |b| drop_field(&mut b["tools"][0], "input_schema"), "Input should be 'object'"),
            (
                "five marks",
                |b| {
                    b["messages"][2]["content"] = json!(
            [{"type": "tool_result", "tool_use_id": "x", "content": "r", "cache_control": {}},
            {"type": "tool_result", "tool_use_id": "y", "content": "r", "cache_control": {}},
            {"type": "text", "text": "1", "cache_control": {}}, {"type": "text", "text": "2", "cache_control": {}},
            {"type": "text", "text": "3", "cache_control": {}}])
                },
                "Found 5",
            ),
        ],
    );
    let vertex = |b: &mut Value| {
        drop_field(b, "model");
        b["anthropic_version"] = json!("vertex-2023-10-16");
    };
    take_all(Wire::Anthropic, "m", &sound, &given, &[("the form of Vertex", vertex)]);
    let hand_made = |b: &mut Value| b["messages"][1]["content"][0]["signature"] = json!("S2");
    given.trust("S2", "m");
    take_all(Wire::Anthropic, "m", &sound, &given, &[("a trusted signature", hand_made)]);
}
