//! What is sent over the Gemini wire.

use std::sync::Arc;

use mcode_events::blob::BlobRef;
use mcode_events::message::{Opaque, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm};
use serde_json::{Value, json};

use super::{NOT_SIGNED, body};
use crate::media::{Prepared, PreparedMedia};
use crate::testing::{call, origin, request, text, tool_answer};

fn sent(request: &ModelRequest) -> Value {
    body(request, &PreparedMedia::new(), &[])
}

fn signed(mut part: Part, signature: &str) -> Part {
    if let Part::ToolCall { opaque, .. } | Part::Text { opaque, .. } = &mut part {
        *opaque = Some(Opaque(json!({ "thought_signature": signature })));
    }
    part
}

fn conversation() -> ModelRequest {
    let mut request = request("google/gemini-3.1-pro-preview");
    request.info.thinking = ThinkingForm::GeminiLevel;
    let parts = vec![
        Part::Thinking { text: "hm".into(), opaque: None },
        text("words"),
        signed(call(1, "id1"), "S1"),
        call(2, ""),
        signed(text(""), "S2"),
    ];
    let maker = Some(origin(&request));
    let mut failed = tool_answer(2, "", "no such file");
    failed.is_error = true;
    request.messages.push(PromptMessage::Assistant { parts, origin: maker });
    request.messages.push(PromptMessage::Tools(vec![tool_answer(1, "id1", "out"), failed]));
    request
}

#[test]
fn signatures_go_back_on_the_parts_that_they_came_with() {
    let body = sent(&conversation());
    assert_eq!(body["systemInstruction"], json!({"parts": [{"text": "first"}, {"text": "second"}]}));
    assert!(body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"].is_object());
    let arguments = json!({"command": "ls"});
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [{"text": "hello"}]},
            {"role": "model", "parts": [
                {"text": "words"},
                {"functionCall": {"name": "shell", "args": arguments, "id": "id1"}, "thoughtSignature": "S1"},
                {"functionCall": {"name": "shell", "args": arguments}},
                {"text": "", "thoughtSignature": "S2"},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "shell", "response": {"output": "out"}, "id": "id1"}},
                {"functionResponse": {"name": "shell", "response": {"error": "no such file"}}},
            ]},
        ])
    );
}

#[test]
fn calls_of_another_model_go_without_ids_and_say_that_they_are_not_signed() {
    let mut request = conversation();
    if let PromptMessage::Assistant { origin, .. } = &mut request.messages[1] {
        *origin = None;
    }
    let body = sent(&request);
    let parts = body["contents"][1]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert_eq!(parts[1]["thoughtSignature"], NOT_SIGNED);
    // A model that the catalogue does not list is known by its name; older ones check nothing.
    request.info.thinking = ThinkingForm::None;
    for (model, mark) in
        [("gemini-4-flash", json!(NOT_SIGNED)), ("gemini-2.5-pro", Value::Null), ("other", Value::Null)]
    {
        request.model.model = model.to_owned();
        assert_eq!(sent(&request)["contents"][1]["parts"][1]["thoughtSignature"], mark, "{model}");
    }
    assert_eq!(parts[2].get("thoughtSignature"), None);
    assert_eq!(parts[1]["functionCall"].get("id"), None);
    assert_eq!(body["contents"][2]["parts"][0]["functionResponse"].get("id"), None);
}

#[test]
fn roles_alternate_and_the_user_begins() {
    let mut request = conversation();
    request.messages.remove(0);
    request.messages.push(PromptMessage::User(vec![text("go on")]));
    let body = sent(&request);
    let roles: Vec<&str> =
        body["contents"].as_array().unwrap().iter().map(|content| content["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "model", "user"]);
    assert_eq!(body["contents"][2]["parts"][2], json!({"text": "go on"}));
}

#[test]
fn pictures_of_tools_follow_all_answers() {
    let mut request = conversation();
    request.info.images = true;
    if let PromptMessage::Tools(answers) = &mut request.messages[2] {
        let blob = BlobRef { hash: "h".into(), size_bytes: 3, media_type: "image/png".into() };
        answers[0].media.push((blob, "p.png".into()));
    }
    let shown = Prepared { media_type: "image/png".into(), base64: "AAA=".into() };
    let media = PreparedMedia::from([("h".to_owned(), Ok(Arc::new(shown)))]);
    let body = body(&request, &media, &[]);
    let parts = body["contents"][2]["parts"].as_array().unwrap();
    assert!(parts[..2].iter().all(|part| part.get("functionResponse").is_some()), "{parts:?}");
    assert_eq!(parts[3], json!({"inlineData": {"mimeType": "image/png", "data": "AAA="}}));
}

#[test]
fn thinking_is_clamped_to_what_the_model_takes() {
    let config = |model: &str, form, level| {
        let mut request = request(model);
        request.info.thinking = form;
        request.thinking = level;
        sent(&request)["generationConfig"]["thinkingConfig"].clone()
    };
    let (budget, level) = (ThinkingForm::GeminiBudget, ThinkingForm::GeminiLevel);
    for (model, form, asked, key, value) in [
        ("google/gemini-2.5-pro", budget, ThinkingLevel::Off, "thinkingBudget", json!(128)),
        ("google/gemini-2.5-pro", budget, ThinkingLevel::Xhigh, "thinkingBudget", json!(32_768)),
        ("google/gemini-2.5-flash", budget, ThinkingLevel::Off, "thinkingBudget", json!(0)),
        ("google/gemini-2.5-flash", budget, ThinkingLevel::Xhigh, "thinkingBudget", json!(24_576)),
        ("google/gemini-3-pro-preview", level, ThinkingLevel::Medium, "thinkingLevel", json!("high")),
        ("google/gemini-3.1-pro-preview", level, ThinkingLevel::Medium, "thinkingLevel", json!("medium")),
        ("google/gemini-3.1-pro-preview", level, ThinkingLevel::Off, "thinkingLevel", json!("low")),
        ("google/gemini-3-flash", level, ThinkingLevel::Off, "thinkingLevel", json!("minimal")),
        ("google/gemini-3.7-flash", level, ThinkingLevel::Off, "thinkingLevel", json!("low")),
        ("google/gemini-3.7-flash", level, ThinkingLevel::Xhigh, "thinkingLevel", json!("high")),
    ] {
        let config = config(model, form, Some(asked));
        assert_eq!(config[key], value, "{model} {asked:?}");
        assert_eq!(config.as_object().unwrap().len(), 2, "one of the two only: {config}");
    }
    assert_eq!(config("google/gemini-2.5-flash", budget, None), json!({"includeThoughts": true}));
    assert_eq!(config("google/gemma-9", ThinkingForm::None, Some(ThinkingLevel::High)), Value::Null);
}
