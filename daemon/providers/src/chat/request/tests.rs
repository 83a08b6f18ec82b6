//! What is sent over the chat wire, by dialect.

use std::sync::Arc;

use mcode_events::blob::BlobRef;
use mcode_events::message::{Opaque, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage};
use serde_json::{Value, json};

use super::body;
use crate::chat::dialect;
use crate::media::{Prepared, PreparedMedia};
use crate::testing::{call, origin, request, text, tool_answer};

fn sent_without(request: &ModelRequest, left_out: &[&str]) -> Value {
    let left_out: Vec<String> = left_out.iter().map(|field| (*field).to_owned()).collect();
    body(request, &PreparedMedia::new(), dialect::of(&request.access.provider, "h"), &left_out)
}

fn sent(request: &ModelRequest) -> Value {
    sent_without(request, &[])
}

/// A conversation with a call whose message carries reasoning of the asked model.
fn conversation(model: &str) -> ModelRequest {
    let mut request = request(model);
    let details = json!({"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "S1"}]});
    let parts =
        vec![Part::Thinking { text: "hm".into(), opaque: Some(Opaque(details)) }, text("words"), call(1, "call/1")];
    let maker = Some(origin(&request));
    request.messages.push(PromptMessage::Assistant { parts, origin: maker });
    request.messages.push(PromptMessage::Tools(vec![tool_answer(1, "call/1", "out")]));
    request
}

#[test]
fn a_plain_server_gets_only_what_every_server_takes() {
    let mut request = conversation("local/qwen");
    request.thinking = Some(ThinkingLevel::High);
    let body = sent(&request);
    let fields: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["model", "messages", "tools", "stream", "stream_options"]);
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "first\n\nsecond"}));
    assert_eq!(body["messages"][1], json!({"role": "user", "content": "hello"}));
    let assistant = &body["messages"][2];
    assert_eq!(assistant["content"], "words");
    assert_eq!(assistant["tool_calls"][0]["id"], "call/1");
    assert_eq!(assistant["tool_calls"][0]["function"]["arguments"], "{\"command\":\"ls\"}");
    assert_eq!(assistant.as_object().unwrap().len(), 3, "no reasoning goes back");
    assert_eq!(body["messages"][3], json!({"role": "tool", "tool_call_id": "call/1", "content": "out"}));
}

#[test]
fn openai_gets_its_own_names() {
    let mut request = request("openai/gpt-5.5");
    request.thinking = Some(ThinkingLevel::Xhigh);
    let body = sent(&request);
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["reasoning_effort"], "xhigh");
    assert_eq!(body["prompt_cache_key"], "thr_1");
    assert!(body["max_completion_tokens"].as_u64().is_some() && body["max_tokens"].is_null());
    let other = sent_without(&request, &["max_completion_tokens", "stream_options"]);
    assert!(other["max_tokens"].as_u64().is_some() && other["stream_options"].is_null());
    request.thinking = Some(ThinkingLevel::Off);
    assert_eq!(sent(&request)["reasoning_effort"], "none");
}

#[test]
fn reasoning_goes_back_in_the_field_of_the_server() {
    let assistant = |model: &str| sent(&conversation(model))["messages"][2].clone();
    assert_eq!(assistant("zai/glm-5.1")["reasoning_content"], "hm");
    assert_eq!(assistant("openrouter/anthropic/claude-sonnet-5")["reasoning_details"][0]["signature"], "S1");
    assert_eq!(assistant("mistral/mistral-medium-latest")["content"][0]["type"], "thinking");
    let mut foreign = conversation("zai/glm-5.1");
    for message in &mut foreign.messages {
        if let PromptMessage::Assistant { origin: Some(origin), .. } = message {
            origin.model = "glm-4.7".into();
        }
    }
    assert!(!sent(&foreign).to_string().contains("reasoning_content"));
    let mut deepseek = conversation("deepseek/deepseek-v4-pro");
    if let PromptMessage::Assistant { origin, .. } = &mut deepseek.messages[1] {
        *origin = None;
    }
    assert_eq!(sent(&deepseek)["messages"][2]["reasoning_content"], "", "DeepSeek insists on the field");
    assert!(sent_without(&deepseek, &["reasoning_content"])["messages"][2]["reasoning_content"].is_null());
}

#[test]
fn mistral_gets_nine_letter_ids_and_a_message_in_between() {
    let mut request = conversation("mistral/devstral-latest");
    request.messages.push(PromptMessage::User(vec![text("and now")]));
    let body = sent(&request);
    let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(body["messages"][3]["tool_call_id"], id);
    assert_eq!(body["messages"][4]["role"], "assistant");
    assert_eq!(body["messages"][5]["content"], "and now");
}

#[test]
fn thinking_is_switched_in_the_way_of_the_server() {
    let ask = |model: &str, level| {
        let mut request = request(model);
        request.thinking = Some(level);
        sent(&request)
    };
    let zai = ask("zai/glm-5.1", ThinkingLevel::High);
    assert_eq!(zai["thinking"], json!({"type": "enabled", "clear_thinking": false}));
    assert_eq!(zai["tool_stream"], true);
    assert_eq!(ask("deepseek/deepseek-v4-pro", ThinkingLevel::Off)["thinking"], json!({"type": "disabled"}));
    let openrouter = ask("openrouter/anthropic/claude-sonnet-5", ThinkingLevel::Low);
    assert_eq!(openrouter["reasoning"], json!({"effort": "low"}));
    assert_eq!(openrouter.to_string().matches("cache_control").count(), 2);
    assert_eq!(ask("openai/gpt-5", ThinkingLevel::Off)["reasoning_effort"], "minimal");
    assert_eq!(ask("xai/grok-4.7", ThinkingLevel::High)["reasoning_effort"], Value::Null);
}

#[test]
fn pictures_of_tools_follow_as_a_message_of_the_user() {
    let mut request = conversation("openai/gpt-4o");
    let mut answer = tool_answer(1, "call/1", "");
    answer.is_error = true;
    answer.text = "no such file".into();
    let blob = BlobRef { hash: "h1".into(), size_bytes: 1, media_type: "image/png".into() };
    let gone = BlobRef { hash: "h2".into(), ..blob.clone() };
    answer.media = vec![(blob.clone(), "shot.png".into()), (gone, "gone.png".into())];
    request.messages.pop();
    request.messages.push(PromptMessage::Tools(vec![answer]));
    request.messages.push(PromptMessage::User(vec![Part::Media { blob, name: "again".into() }, text("look")]));
    let prepared = Prepared { media_type: "image/png".into(), base64: "AAAA".into() };
    let media = PreparedMedia::from([("h1".to_owned(), Ok(Arc::new(prepared)))]);
    let body = body(&request, &media, dialect::of("openai", ""), &[]);
    let tool = body["messages"][3]["content"].as_str().unwrap();
    assert!(tool.starts_with("Error: no such file") && tool.contains("gone.png left out"), "{tool}");
    let user = body["messages"][4]["content"].as_array().unwrap();
    assert_eq!(user.len(), 4, "the pictures and the words of the user are one message");
    assert_eq!(user[1]["image_url"]["url"], "data:image/png;base64,AAAA");
    request.info.images = false;
    let blind = super::body(&request, &media, dialect::of("openai", ""), &[]);
    assert!(!blind.to_string().contains("AAAA"));
}
