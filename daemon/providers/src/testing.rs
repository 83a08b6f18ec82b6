//! Requests for the tests of this crate.

use std::collections::BTreeMap;

use mcode_events::message::{Origin, Part};
use mcode_ids::ToolCallId;
use mcode_models::{
    Access, Catalogue, KeyPlace, ModelRef, ModelRequest, PromptMessage, SystemPart, ToolAnswer, ToolDefinition, Wire,
};
use serde_json::json;

/// A small request to a model, over the wire of its known provider.
pub(crate) fn request(model: &str) -> ModelRequest {
    let model: ModelRef = model.parse().unwrap();
    let known = crate::known::find(&model.provider);
    let access = Access {
        provider: model.provider.clone(),
        wire: known.map_or(Wire::OpenaiChat, |known| known.wire),
        base_url: known.map_or("http://127.0.0.1:9/v1", |known| known.base_url).to_owned(),
        key: None,
        key_source: None,
        key_place: KeyPlace::Usual,
        headers: BTreeMap::new(),
        network_env: BTreeMap::new(),
        identity_env: BTreeMap::new(),
        key_word: "none".into(),
        withheld: None,
        idle_timeout_ms: 5_000,
    };
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: "d".into(),
        schema: json!({"type": "object", "properties": {}}),
    };
    ModelRequest {
        info: Catalogue::bundled().info(&model),
        model,
        access,
        system: vec![SystemPart { text: "first".into() }, SystemPart { text: "second".into() }],
        messages: vec![PromptMessage::User(vec![text("hello")])],
        media: BTreeMap::new(),
        tools: ["grep", "view", "shell", "edit"].map(tool).to_vec(),
        thinking: None,
        max_output_tokens: None,
        cache_key: "thr_1".into(),
        answer_schema: None,
    }
}

/// Who makes the answers to `request`.
pub(crate) fn origin(request: &ModelRequest) -> Origin {
    crate::prompt::origin(request)
}

pub(crate) fn call_id(number: u128) -> ToolCallId {
    format!("tc_{number:032x}").parse().unwrap()
}

pub(crate) fn text(words: &str) -> Part {
    Part::text(words)
}

pub(crate) fn call(number: u128, given: &str) -> Part {
    Part::ToolCall {
        tool_call_id: call_id(number),
        provider_call_id: given.into(),
        name: "shell".into(),
        arguments: json!({"command": "ls"}),
        opaque: None,
    }
}

pub(crate) fn tool_answer(number: u128, given: &str, words: &str) -> ToolAnswer {
    ToolAnswer {
        tool_call_id: call_id(number),
        provider_call_id: given.into(),
        name: "shell".into(),
        text: words.into(),
        media: Vec::new(),
        is_error: false,
    }
}
