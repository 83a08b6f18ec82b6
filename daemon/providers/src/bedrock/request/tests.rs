//! What is sent over the Converse wire.

use mcode_events::message::{Opaque, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm};
use serde_json::{Value, json};

use super::body;
use crate::media::PreparedMedia;
use crate::testing::{call, origin, request, text, tool_answer};

const CLAUDE: &str = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn sent(request: &ModelRequest) -> Value {
    body(request, &PreparedMedia::new(), &[])
}

fn conversation(model: &str) -> ModelRequest {
    let mut request = request(model);
    let signed = |key: &str, value: &str| Opaque(json!({ key: value }));
    let parts = vec![
        Part::Thinking { text: "hm".into(), opaque: Some(signed("signature", "S1")) },
        Part::RedactedThinking { opaque: signed("data", "R1") },
        text("words"),
        call(1, "functions.shell:0"),
        Part::Thinking { text: "late".into(), opaque: Some(signed("signature", "S2")) },
    ];
    let maker = Some(origin(&request));
    let mut failed = tool_answer(1, "functions.shell:0", "no such file");
    failed.is_error = true;
    request.messages.push(PromptMessage::Assistant { parts, origin: maker });
    request.messages.push(PromptMessage::Tools(vec![failed]));
    request
}

#[test]
fn claude_gets_its_reasoning_back_and_marks_for_the_cache() {
    let body = sent(&conversation(CLAUDE));
    let mark = json!({"cachePoint": {"type": "default"}});
    assert_eq!(body["system"], json!([{"text": "first"}, {"text": "second"}, mark]));
    let messages = &body["messages"];
    let id = messages[1]["content"][3]["toolUse"]["toolUseId"].as_str().unwrap();
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(
        *messages,
        json!([
            {"role": "user", "content": [{"text": "hello"}, mark]},
            {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "S1"}}},
                {"reasoningContent": {"redactedContent": "R1"}},
                {"text": "words"},
                {"toolUse": {"toolUseId": id, "name": "shell", "input": {"command": "ls"}}},
            ]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": id, "status": "error", "content": [{"text": "no such file"}]}},
                mark,
            ]},
        ])
    );
    assert_eq!(body["toolConfig"]["tools"].as_array().unwrap().last(), Some(&mark));
}

#[test]
fn others_get_no_reasoning_that_they_would_refuse() {
    let mut request = conversation("bedrock/mistral.mistral-large-2407-v1:0");
    let body = sent(&request);
    assert_eq!(body["messages"][1]["content"][0], json!({"reasoningContent": {"reasoningText": {"text": "hm"}}}));
    assert_eq!(body["messages"][1]["content"][3]["toolUse"]["toolUseId"].as_str().unwrap().len(), 9);
    assert!(!body.to_string().contains("cachePoint"));
    if let PromptMessage::Assistant { origin, .. } = &mut request.messages[1] {
        *origin = None;
    }
    assert!(!sent(&request).to_string().contains("reasoningContent"));
}

#[test]
fn thinking_is_asked_for_in_the_words_of_the_maker() {
    let fields = |model: &str, form, level| {
        let mut request = request(model);
        (request.info.thinking, request.info.known, request.info.max_output_tokens) = (form, true, 64_000);
        request.info.context_tokens = 200_000;
        request.thinking = Some(level);
        sent(&request)["additionalModelRequestFields"].clone()
    };
    let claude = fields(CLAUDE, ThinkingForm::Budget, ThinkingLevel::High);
    assert_eq!(claude["thinking"], json!({"type": "enabled", "budget_tokens": 24_000}));
    assert_eq!(claude["anthropic_beta"], json!(["interleaved-thinking-2025-05-14"]));
    let newer = fields("bedrock/global.anthropic.claude-opus-5", ThinkingForm::Adaptive, ThinkingLevel::Low);
    assert_eq!(newer["output_config"], json!({"effort": "low"}));
    let nova = fields("bedrock/us.amazon.nova-2-lite-v1:0", ThinkingForm::Effort, ThinkingLevel::Xhigh);
    assert_eq!(nova, json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}));
    let open = fields("bedrock/openai.gpt-oss-120b-1:0", ThinkingForm::Effort, ThinkingLevel::Medium);
    assert_eq!(open, json!({"reasoning_effort": "medium"}));
    assert_eq!(fields("bedrock/meta.llama", ThinkingForm::None, ThinkingLevel::High), Value::Null);
}
