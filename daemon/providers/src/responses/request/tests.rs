//! What is sent over the Responses wire.

use std::sync::Arc;

use mcode_events::blob::BlobRef;
use mcode_events::message::{Opaque, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, Wire};
use serde_json::{Value, json};

use super::body;
use crate::media::{Prepared, PreparedMedia};
use crate::testing::{call, call_id, origin, request, tool_answer};

fn asked(model: &str) -> ModelRequest {
    let mut request = request(model);
    request.access.wire = Wire::OpenaiResponses;
    request
}

fn sent(request: &ModelRequest) -> Value {
    body(request, &PreparedMedia::new(), &[])
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "E"})
}

/// Reasoning, words in a phase, a call, its answer, and reasoning that led to nothing.
fn conversation() -> ModelRequest {
    let mut request = asked("openai/gpt-5.5");
    let thought =
        |id: &str| Part::Thinking { text: "hm".into(), opaque: Some(Opaque(json!({ "item": reasoning(id) }))) };
    let said = Part::Text { text: "words".into(), opaque: Some(Opaque(json!({"id": "msg_1", "phase": "commentary"}))) };
    let mut shell = call(1, "call_1");
    if let Part::ToolCall { opaque, .. } = &mut shell {
        *opaque = Some(Opaque(json!({"id": "fc_1"})));
    }
    let parts = vec![thought("rs_1"), said, shell, thought("rs_2")];
    let maker = Some(origin(&request));
    request.messages.push(PromptMessage::Assistant { parts, origin: maker });
    request.messages.push(PromptMessage::Tools(vec![tool_answer(1, "call_1", "out")]));
    request
}

#[test]
fn its_own_items_go_back_in_order_and_word_for_word() {
    let body = sent(&conversation());
    assert_eq!(body["instructions"], "first\n\nsecond");
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(body["tools"][0]["strict"], json!(false));
    let content = json!([{"type": "output_text", "text": "words", "annotations": []}]);
    assert_eq!(
        body["input"],
        json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            reasoning("rs_1"),
            {"type": "message", "role": "assistant", "content": content, "id": "msg_1", "status": "completed",
                "phase": "commentary"},
            {"type": "function_call", "call_id": "call_1", "name": "shell", "arguments": "{\"command\":\"ls\"}",
                "id": "fc_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "out"},
        ])
    );
}

#[test]
fn another_model_gets_words_and_calls_without_ids_or_reasoning() {
    let mut request = conversation();
    request.model = "openai/gpt-5.1".parse().unwrap();
    let body = sent(&request);
    let input = body["input"].as_array().unwrap();
    let kinds: Vec<&str> = input.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "function_call", "function_call_output"]);
    assert!(input.iter().all(|item| item.get("id").is_none() && item.get("phase").is_none()), "{input:?}");
}

#[test]
fn ids_that_no_server_takes_back_are_left_out_or_made_to_fit() {
    let mut request = conversation();
    if let PromptMessage::Assistant { parts, .. } = &mut request.messages[1]
        && let Part::ToolCall { opaque, .. } = &mut parts[2]
    {
        *opaque = Some(Opaque(json!({"id": format!("fc_{}==", "x/".repeat(200))})));
    }
    let body = sent(&request);
    assert_eq!(body["input"][3].get("id"), None);
    let mut foreign = asked("openai/gpt-5.5");
    let long = "z".repeat(90);
    foreign.messages.push(PromptMessage::Assistant { parts: vec![call(1, &long)], origin: None });
    foreign.messages.push(PromptMessage::Tools(vec![tool_answer(1, &long, "out")]));
    let body = sent(&foreign);
    let given = body["input"][1]["call_id"].as_str().unwrap();
    assert!(given.len() <= 64);
    assert_eq!(body["input"][2]["call_id"], given);
}

#[test]
fn failed_tools_and_pictures_are_told() {
    let mut request = asked("openai/gpt-5.5");
    request.info.images = true;
    let blob = BlobRef { hash: "h".into(), size_bytes: 3, media_type: "image/png".into() };
    let mut seen = tool_answer(1, "call_1", "a picture");
    seen.media.push((blob, "p.png".into()));
    let mut failed = tool_answer(2, "call_2", "no such file");
    failed.is_error = true;
    let parts = vec![call(1, "call_1"), call(2, "call_2")];
    request.messages.push(PromptMessage::Assistant { parts, origin: None });
    request.messages.push(PromptMessage::Tools(vec![seen, failed]));
    let shown = Prepared { media_type: "image/png".into(), base64: "AAA=".into() };
    let media = PreparedMedia::from([("h".to_owned(), Ok(Arc::new(shown)))]);
    let body = body(&request, &media, &[]);
    let picture = json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAA="});
    assert_eq!(body["input"][3]["output"], json!([{"type": "input_text", "text": "a picture"}, picture]));
    assert_eq!(body["input"][4]["output"], "Error: no such file");
}

#[test]
fn a_custom_call_goes_back_as_one() {
    let mut request = asked("openai/gpt-5.5");
    let parts = vec![Part::ToolCall {
        tool_call_id: call_id(1),
        provider_call_id: "call_1".into(),
        name: "apply_patch".into(),
        arguments: json!({"input": "*** Begin"}),
        opaque: Some(Opaque(json!({"id": "ctc_1", "custom": true}))),
    }];
    let maker = Some(origin(&request));
    request.messages.push(PromptMessage::Assistant { parts, origin: maker });
    request.messages.push(PromptMessage::Tools(vec![tool_answer(1, "call_1", "done")]));
    let body = sent(&request);
    assert_eq!(
        body["input"][1],
        json!({"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin",
            "id": "ctc_1"})
    );
    assert_eq!(body["input"][2]["type"], "custom_tool_call_output");
}

#[test]
fn thinking_is_asked_for_in_the_words_of_the_family() {
    let mut request = asked("openai/gpt-5.5");
    request.thinking = Some(ThinkingLevel::Xhigh);
    assert_eq!(sent(&request)["reasoning"], json!({"summary": "auto", "effort": "xhigh"}));
    request.thinking = None;
    assert_eq!(sent(&request)["reasoning"], json!({"summary": "auto"}));
    assert_eq!(body(&request, &PreparedMedia::new(), &["reasoning.summary".to_owned()])["reasoning"], json!({}));
    let plain = sent(&asked("openai/gpt-4o-unknown"));
    assert_eq!((plain.get("reasoning"), plain.get("include")), (None, None));
}

#[test]
fn the_subscription_backend_gets_instructions_and_no_limit() {
    let mut request = asked("openai/gpt-5.5");
    assert!(sent(&request)["max_output_tokens"].is_u64());
    request.access.base_url = "https://chatgpt.com/backend-api/codex".into();
    request.system.clear();
    let body = sent(&request);
    assert_eq!(body.get("max_output_tokens"), None);
    assert!(!body["instructions"].as_str().unwrap().is_empty());
}
