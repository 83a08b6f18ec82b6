//! The Gemini wire.

use super::*;

fn given() -> Given {
    let mut given = Given::default();
    given.sign(Wire::Gemini, "gemini-3-pro", "S1", "\"t\" {\"x\":1}");
    given.sign(Wire::Gemini, "gemini-3-pro", "S2", "b");
    given.sign(Wire::Gemini, "gemini-2.5-pro", "S9", "\"t\" {\"x\":1}");
    given
}

fn sound() -> Value {
    json!({
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [{"functionDeclarations": [{"name": "t", "description": "d"}, {"name": "u", "description": "d"}]}],
    "generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}},
    "contents": [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": "b", "thoughtSignature": "S2"}]},
        {"role": "user", "parts": [{"text": "c"}]},
        {"role": "model", "parts": [
            {"functionCall": {"name": "t", "args": {"x": 1}, "id": "1"}, "thoughtSignature": "S1"},
            {"functionCall": {"name": "u", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "t", "id": "1", "response": {"output": "r"}}},
            {"functionResponse": {"name": "u", "response": {"error": "r"}}},
            {"text": "and"}]},
    ]})
}

#[test]
fn shapes_and_pairs() {
    check_all(
        Wire::Gemini,
        "gemini-3-pro",
        &sound(),
        &given(),
        &[
            ("no contents", |b| b["contents"] = json!([]), "contents is not specified"),
            ("a field of another wire", |b| b["stream"] = json!(true), "Unknown name \"stream\""),
            ("a role of another wire", |b| b["contents"][1]["role"] = json!("assistant"), "valid role: user, model"),
            ("the model first", |b| remove(&mut b["contents"], 0), "alternate between user and model"),
            (
                "two of a role",
                |b| insert(&mut b["contents"], 1, json!({"role": "user", "parts": [{"text": "x"}]})),
                "alternate",
            ),
            (
                "a trailing model",
                |b| push(&mut b["contents"], json!({"role": "model", "parts": [{"text": "x"}]})),
                "end with a user role",
            ),
            ("no parts", |b| b["contents"][0]["parts"] = json!([]), "must not be empty"),
            ("a part of nothing", |b| b["contents"][0]["parts"][0] = json!({}), "one initialized field"),
            (
                "a part of two things",
                |b| b["contents"][0]["parts"][0]["inlineData"] = json!({}),
                "one initialized field",
            ),
            ("empty text", |b| b["contents"][0]["parts"][0]["text"] = json!(""), "empty text parameter"),
            (
                "fewer responses than calls",
                |b| remove(&mut b["contents"][4]["parts"], 1),
                "number of function response parts is equal",
            ),
            (
                "no responses",
                |b| b["contents"][4]["parts"] = json!([{"text": "x"}]),
                "number of function response parts is equal",
            ),
            (
                "a stray response",
                |b| push(&mut b["contents"][2]["parts"], json!({"functionResponse": {"name": "t", "response": {}}})),
                "number of function response parts is equal",
            ),
            (
                "a response by another name",
                |b| b["contents"][4]["parts"][1]["functionResponse"]["name"] = json!("t"),
                "matches the function call 'u'",
            ),
            (
                "a response with another id",
                |b| b["contents"][4]["parts"][0]["functionResponse"]["id"] = json!("2"),
                "matches the function call 't'",
            ),
            (
                "words before responses",
                |b| insert(&mut b["contents"][4]["parts"], 0, json!({"text": "x"})),
                "come first",
            ),
            (
                "a response that is no object",
                |b| b["contents"][4]["parts"][0]["functionResponse"]["response"] = json!("r"),
                "function_response",
            ),
            (
                "arguments as text",
                |b| b["contents"][3]["parts"][1]["functionCall"]["args"] = json!("{}"),
                "Invalid value at",
            ),
            (
                "a call of the user's",
                |b| b["contents"][0]["parts"][0] = json!({"functionCall": {"name": "t", "args": {}}}),
                "comes immediately after a user turn",
            ),
            (
                "a bad name",
                |b| b["tools"][0]["functionDeclarations"][0]["name"] = json!("1 t"),
                "Invalid function name",
            ),
            (
                "a name twice",
                |b| b["tools"][0]["functionDeclarations"][1]["name"] = json!("t"),
                "Duplicate function declaration",
            ),
            (
                "a budget and a level",
                |b| b["generationConfig"]["thinkingConfig"]["thinkingBudget"] = json!(1),
                "only one of thinking budget",
            ),
        ],
    );
}

#[test]
fn signatures() {
    check_all(
        Wire::Gemini,
        "gemini-3-pro",
        &sound(),
        &given(),
        &[
            (
                "no signature at the first call",
                |b| drop_field(&mut b["contents"][3]["parts"][0], "thoughtSignature"),
                "missing a thought_signature in functionCall parts",
            ),
            (
                "another model's",
                |b| b["contents"][3]["parts"][0]["thoughtSignature"] = json!("S9"),
                "Thought signature is not valid",
            ),
            (
                "one that moved",
                |b| b["contents"][3]["parts"][1]["thoughtSignature"] = json!("S1"),
                "Thought signature is not valid",
            ),
            (
                "a call that was edited",
                |b| b["contents"][3]["parts"][0]["functionCall"]["args"]["x"] = json!(2),
                "Thought signature is not valid",
            ),
            (
                "a text that was edited",
                |b| b["contents"][1]["parts"][1]["text"] = json!("bb"),
                "Thought signature is not valid",
            ),
        ],
    );
    take_all(
        Wire::Gemini,
        "gemini-3-pro",
        &sound(),
        &given(),
        &[
            ("the documented word for calls of others", |b| {
                b["contents"][3]["parts"][0]["thoughtSignature"] = json!("skip_thought_signature_validator");
            }),
            ("calls of an earlier turn without one", |b| {
                drop_field(&mut b["contents"][3]["parts"][0], "thoughtSignature");
                push(&mut b["contents"], json!({"role": "model", "parts": [{"text": "done"}]}));
                push(&mut b["contents"], json!({"role": "user", "parts": [{"text": "next"}]}));
            }),
        ],
    );
    let mut older = sound();
    drop_field(&mut older, "generationConfig");
    drop_field(&mut older["contents"][3]["parts"][0], "thoughtSignature");
    drop_field(&mut older["contents"][1]["parts"][1], "thoughtSignature");
    assert_eq!(refused(Wire::Gemini, "gemini-2.5-pro", &older, &given()), None, "an older model checks no calls");
}
