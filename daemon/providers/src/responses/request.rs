//! Writes the body of a Responses request.

use std::collections::HashSet;

use mcode_events::message::{Opaque, Part};
use mcode_ids::ToolCallId;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm, ToolAnswer};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::auth::data::SUBSCRIPTION_PATH;
use crate::effort;
use crate::ids::{IdMap, IdRule, tool_name};
use crate::media::PreparedMedia;
use crate::prompt::{self, Medium};
use crate::refused::leave_out;

/// Longest `call_id` that the wire takes, in characters.
const CALL_ID_MAX: usize = 64;
/// What the subscription backend is told where there is no system prompt; it insists on one.
const NO_INSTRUCTIONS: &str = "You are a helpful assistant.";

/// The body. `left_out` are fields that the configuration or the server does not want.
pub(crate) fn body(request: &ModelRequest, media: &PreparedMedia, left_out: &[String]) -> Value {
    // The backend of ChatGPT subscriptions takes no limit of output.
    let subscription = is_subscription(request);
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model.model));
    let instructions = instructions(request);
    if !instructions.is_empty() || subscription {
        let text = if instructions.is_empty() { NO_INSTRUCTIONS } else { &instructions };
        body.insert("instructions".into(), json!(text));
    }
    body.insert("input".into(), Value::Array(Writer::new(request, media).input()));
    let tools: Vec<Value> = prompt::tools(request)
        .into_iter()
        .map(|tool| {
            // Not strict: that takes a narrow kind of schema only, and it is what the server assumes.
            json!({"type": "function", "name": tool_name(&tool.name), "description": tool.description,
                "parameters": tool.schema, "strict": false})
        })
        .collect();
    if !tools.is_empty() {
        body.insert("tools".into(), Value::Array(tools));
        body.insert("parallel_tool_calls".into(), json!(true));
    }
    body.insert("stream".into(), json!(true));
    body.insert("store".into(), json!(false));
    if request.info.thinking != ThinkingForm::None {
        // Reasoning that is not stored comes back only if it is asked for.
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
        let mut reasoning = json!({"summary": "auto"});
        if let Some(level) = request.thinking {
            reasoning["effort"] = json!(effort::word(request, level));
        }
        body.insert("reasoning".into(), reasoning);
    }
    if (request.info.known || request.max_output_tokens.is_some()) && !subscription {
        body.insert("max_output_tokens".into(), json!(prompt::max_output_tokens(request)));
    }
    if !request.cache_key.is_empty() {
        body.insert("prompt_cache_key".into(), json!(request.cache_key));
    }
    if let Some((schema, strict)) = answer::wanted(request, left_out).and_then(answer::openai) {
        let format = json!({"type": "json_schema", "name": answer::NAME, "schema": schema, "strict": strict});
        body.insert("text".into(), json!({ "format": format }));
    }
    leave_out(&mut body, left_out);
    Value::Object(body)
}

/// Whether a request goes to the backend of ChatGPT subscriptions.
pub(super) fn is_subscription(request: &ModelRequest) -> bool {
    request.access.base_url.contains(SUBSCRIPTION_PATH)
}

fn instructions(request: &ModelRequest) -> String {
    let texts = request.system.iter().map(|part| part.text.as_str()).filter(|text| !text.trim().is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Writes the items of the input.
struct Writer<'a> {
    request: &'a ModelRequest,
    media: &'a PreparedMedia,
    ids: IdMap,
    /// Calls that went back as ones of custom tools.
    custom: HashSet<ToolCallId>,
}

impl<'a> Writer<'a> {
    fn new(request: &'a ModelRequest, media: &'a PreparedMedia) -> Self {
        Self { request, media, ids: IdMap::new(IdRule::AtMost(CALL_ID_MAX)), custom: HashSet::new() }
    }

    fn input(mut self) -> Vec<Value> {
        let mut items = Vec::new();
        let request = self.request;
        for message in &request.messages {
            match message {
                PromptMessage::User(parts) => {
                    let content = self.content(parts);
                    if !content.is_empty() {
                        items.push(json!({"type": "message", "role": "user", "content": content}));
                    }
                }
                PromptMessage::Assistant { parts, origin } => {
                    let own = prompt::is_own(request, origin.as_ref());
                    let own_ids = prompt::is_own_provider(request, origin.as_ref());
                    items.extend(self.assistant(parts, own, own_ids));
                }
                PromptMessage::Tools(answers) => {
                    for answer in answers {
                        items.push(self.answer(answer));
                    }
                }
            }
        }
        items
    }

    fn content(&self, parts: &[Part]) -> Vec<Value> {
        let written = parts.iter().filter_map(|part| match part {
            Part::Text { text, .. } if !text.trim().is_empty() => Some(json!({"type": "input_text", "text": text})),
            Part::Media { blob, name } => Some(self.medium(&blob.hash, name)),
            _ => None,
        });
        written.collect()
    }

    fn medium(&self, hash: &str, name: &str) -> Value {
        match prompt::medium(self.request, self.media, hash, name, true) {
            Medium::Note(note) => json!({"type": "input_text", "text": note}),
            Medium::Shown(shown) if shown.is_image() => {
                json!({"type": "input_image", "detail": "auto", "image_url": shown.data_url()})
            }
            Medium::Shown(shown) => {
                let name = if name.is_empty() { "document.pdf" } else { name };
                json!({"type": "input_file", "filename": name, "file_data": shown.data_url()})
            }
        }
    }

    fn assistant(&mut self, parts: &[Part], own: bool, own_ids: bool) -> Vec<Value> {
        // The server looks for the reasoning that belongs to an id: without the one the other does not go back.
        let whole = parts.iter().all(|part| match part {
            Part::Thinking { opaque, .. } => opaque.as_ref().is_some_and(is_checkable),
            Part::RedactedThinking { opaque } => is_checkable(opaque),
            _ => true,
        });
        let own = own && whole;
        let mut items: Vec<Value> = parts.iter().filter_map(|part| self.part(part, own, own_ids)).collect();
        // Reasoning is refused without the item that it led to.
        while items.last().is_some_and(|item| item["type"] == "reasoning") {
            items.pop();
        }
        items
    }

    fn part(&mut self, part: &Part, own: bool, own_ids: bool) -> Option<Value> {
        match part {
            Part::Text { text, .. } if text.trim().is_empty() => None,
            Part::Text { text, opaque } => {
                let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
                let mut item = json!({"type": "message", "role": "assistant", "content": content});
                if let Some(kept) = kept(opaque.as_ref(), own) {
                    if let Some(id) = kept.get("id").and_then(Value::as_str).filter(|id| is_item_id(id, "msg_")) {
                        item["id"] = json!(id);
                        item["status"] = json!("completed");
                    }
                    if let Some(phase) = kept.get("phase") {
                        item["phase"] = phase.clone();
                    }
                }
                Some(item)
            }
            Part::Thinking { opaque, .. } => reasoning(kept(opaque.as_ref(), own)?),
            Part::RedactedThinking { opaque } => reasoning(kept(Some(opaque), own)?),
            Part::Provider { opaque } => own.then(|| opaque.0.clone()),
            Part::ToolCall { tool_call_id, provider_call_id, name, arguments, opaque } => {
                let call_id = self.ids.id(*tool_call_id, provider_call_id, own_ids);
                let kept = kept(opaque.as_ref(), own);
                let custom_input = kept
                    .filter(|kept| kept.get("custom").is_some())
                    .and_then(|_| arguments.get("input").and_then(Value::as_str));
                let (mut item, prefix) = match custom_input {
                    Some(input) => {
                        self.custom.insert(*tool_call_id);
                        let item = json!({"type": "custom_tool_call", "call_id": call_id, "name": tool_name(name),
                            "input": input});
                        (item, "ct")
                    }
                    None => {
                        let arguments = match arguments {
                            Value::Object(_) => arguments.to_string(),
                            other => json!({"invalid_arguments": other}).to_string(),
                        };
                        let item = json!({"type": "function_call", "call_id": call_id, "name": tool_name(name),
                            "arguments": arguments});
                        (item, "fc_")
                    }
                };
                let id = kept.and_then(|kept| kept.get("id")).and_then(Value::as_str);
                if let Some(id) = id.filter(|id| is_item_id(id, prefix)) {
                    item["id"] = json!(id);
                }
                Some(item)
            }
            Part::Media { .. } => None,
        }
    }

    /// The wire has no mark for a failed tool: the failure is said in the text.
    fn answer(&mut self, answer: &ToolAnswer) -> Value {
        let call_id = self.ids.id(answer.tool_call_id, &answer.provider_call_id, true);
        let mut text = answer.text.clone();
        if answer.is_error && !text.to_ascii_lowercase().starts_with("error") {
            text.insert_str(0, "Error: ");
        }
        let mut parts = Vec::new();
        for (blob, name) in &answer.media {
            parts.push(self.medium(&blob.hash, name));
        }
        let output = if parts.is_empty() {
            json!(text)
        } else {
            if !text.trim().is_empty() {
                parts.insert(0, json!({"type": "input_text", "text": text}));
            }
            Value::Array(parts)
        };
        let custom = self.custom.contains(&answer.tool_call_id);
        let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
        json!({"type": kind, "call_id": call_id, "output": output})
    }
}

fn kept(opaque: Option<&Opaque>, own: bool) -> Option<&Map<String, Value>> {
    opaque.filter(|_| own)?.0.as_object()
}

/// Reasoning goes back word for word.
fn reasoning(kept: &Map<String, Value>) -> Option<Value> {
    kept.get("item").filter(|item| item["type"] == "reasoning").cloned()
}

/// Whether the server can read again what it does not store.
fn is_checkable(opaque: &Opaque) -> bool {
    opaque.0.pointer("/item/encrypted_content").is_some_and(Value::is_string)
}

/// Some proxies give ids that no server takes back.
fn is_item_id(id: &str, prefix: &str) -> bool {
    id.starts_with(prefix)
        && id.len() <= CALL_ID_MAX
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests;
