//! Writes the body of a Messages request.
//!
//! The body is the same from request to request as far as the conversation is the same: the provider's cache works on
//! byte-equal prefixes. Four marks (`cache_control`) are all it allows: the last tool, the last system block, the
//! newest message of the user, and the one before it as a second anchor.

use mcode_events::message::Part;
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm, ToolAnswer};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::ids::{IdMap, IdRule, tool_name};
use crate::media::PreparedMedia;
use crate::prompt::{self, Medium};
use crate::refused::leave_out;

/// The most marks one request may carry.
const MAX_CACHE_MARKS: usize = 4;
/// Marks that go to messages of the user; the other two go to the system prompt and the tools.
const MESSAGE_MARKS: usize = MAX_CACHE_MARKS - 2;
/// The least budget of thinking that the wire takes, in tokens.
const MIN_BUDGET_TOKENS: u32 = 1_024;

/// The body, without the fields that the configuration or the server does not want.
pub(crate) fn body(request: &ModelRequest, media: &PreparedMedia, omit: &[String]) -> Value {
    let mut max_tokens = prompt::max_output_tokens(request);
    let thinking = thinking(request, &mut max_tokens);
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model.model));
    body.insert("max_tokens".into(), json!(max_tokens));
    body.insert("stream".into(), json!(true));
    let mut system: Vec<Value> = request
        .system
        .iter()
        .filter(|part| !part.text.trim().is_empty())
        .map(|part| json!({"type": "text", "text": part.text}))
        .collect();
    if let Some(last) = system.last_mut() {
        mark(last);
    }
    let mut tools: Vec<Value> = prompt::tools(request)
        .into_iter()
        .map(
            |tool| json!({"name": tool_name(&tool.name), "description": tool.description, "input_schema": tool.schema}),
        )
        .collect();
    if let Some(last) = tools.last_mut() {
        mark(last);
    }
    if !tools.is_empty() {
        body.insert("tools".into(), Value::Array(tools));
    }
    if !system.is_empty() {
        body.insert("system".into(), Value::Array(system));
    }
    body.insert("messages".into(), Value::Array(messages(request, media)));
    if let Some(thinking) = thinking.kind {
        body.insert("thinking".into(), thinking);
    }
    let mut output = Map::new();
    if let Some(effort) = thinking.effort {
        output.insert("effort".into(), json!(effort));
    }
    if let Some(schema) = answer_schema(request, omit) {
        output.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    if !output.is_empty() {
        body.insert("output_config".into(), Value::Object(output));
    }
    leave_out(&mut body, omit);
    Value::Object(body)
}

/// The schema of the answer, for a model that takes one; on Vertex fewer do.
fn answer_schema(request: &ModelRequest, left_out: &[String]) -> Option<Value> {
    let least = request.access.base_url.contains(super::VERTEX_PATH).then_some((4, 6));
    let wanted = answer::wanted(request, left_out)?;
    answer::claude_takes(&request.model.model, least).then(|| answer::claude(wanted))?
}

/// Whether thinking between tool calls has to be asked for by a beta header: the models with budgets need it.
pub(crate) fn wants_interleaving(request: &ModelRequest) -> bool {
    request.info.thinking == ThinkingForm::Budget && !matches!(request.thinking, None | Some(ThinkingLevel::Off))
}

#[derive(Default)]
struct Thinking {
    kind: Option<Value>,
    effort: Option<&'static str>,
}

fn thinking(request: &ModelRequest, max_tokens: &mut u32) -> Thinking {
    let model = request.model.model.as_str();
    match (request.info.thinking, request.thinking) {
        (ThinkingForm::Budget, Some(level)) if level != ThinkingLevel::Off => budget(level, max_tokens),
        (ThinkingForm::Adaptive, Some(ThinkingLevel::Off)) => {
            Thinking { kind: Some(json!({"type": "disabled"})), effort: None }
        }
        (ThinkingForm::Adaptive, Some(level)) => {
            Thinking { kind: Some(adaptive(model)), effort: Some(effort(request, level)) }
        }
        // What the model does when nothing is asked differs from model to model; leave it.
        (ThinkingForm::AdaptiveAlways, None) => Thinking { kind: Some(adaptive(model)), effort: None },
        (ThinkingForm::AdaptiveAlways, Some(level)) => {
            Thinking { kind: Some(adaptive(model)), effort: Some(effort(request, level)) }
        }
        _ => Thinking::default(),
    }
}

/// `thinking` and the effort of `output_config` as the wire wants them, for wires that carry them elsewhere; makes room
/// for the budget in `max_tokens`.
pub(crate) fn thinking_fields(request: &ModelRequest, max_tokens: &mut u32) -> (Option<Value>, Option<&'static str>) {
    let Thinking { kind, effort } = thinking(request, max_tokens);
    (kind, effort)
}

fn budget(level: ThinkingLevel, max_tokens: &mut u32) -> Thinking {
    let wanted = match level {
        ThinkingLevel::Off => return Thinking::default(),
        ThinkingLevel::Low => 4_096,
        ThinkingLevel::Medium => 10_000,
        ThinkingLevel::High => 24_000,
        ThinkingLevel::Xhigh => 32_000,
    };
    // The budget counts inside the limit of output: leave half of it for the answer.
    let tokens = wanted.min(*max_tokens / 2);
    if tokens < MIN_BUDGET_TOKENS {
        return Thinking::default();
    }
    Thinking { kind: Some(json!({"type": "enabled", "budget_tokens": tokens})), effort: None }
}

/// From 4.7 on the reasoning is left out of the answer unless asked for; before, the field is not known.
fn adaptive(model: &str) -> Value {
    if model.contains("-4-6") {
        json!({"type": "adaptive"})
    } else {
        json!({"type": "adaptive", "display": "summarized"})
    }
}

fn effort(request: &ModelRequest, level: ThinkingLevel) -> &'static str {
    if let Some(word) = request.info.efforts.word(level) {
        return word;
    }
    let model = request.model.model.as_str();
    match level {
        ThinkingLevel::Off | ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Xhigh if model.contains("-4-6") => "max",
        ThinkingLevel::Xhigh => "xhigh",
    }
}

fn messages(request: &ModelRequest, media: &PreparedMedia) -> Vec<Value> {
    let mut ids = IdMap::new(IdRule::Anthropic);
    let mut messages: Vec<(&'static str, Vec<Value>)> = Vec::with_capacity(request.messages.len() + 1);
    for message in &request.messages {
        let (role, blocks) = match message {
            PromptMessage::User(parts) => ("user", user_blocks(request, media, parts)),
            PromptMessage::Assistant { parts, origin } => {
                let own = prompt::is_own(request, origin.as_ref());
                let own_ids = prompt::is_own_provider(request, origin.as_ref());
                ("assistant", assistant_blocks(parts, own, own_ids, &mut ids))
            }
            PromptMessage::Tools(answers) => {
                ("user", answers.iter().map(|answer| result_block(request, media, answer, &mut ids)).collect())
            }
        };
        if blocks.is_empty() {
            continue;
        }
        match messages.last_mut() {
            Some((before, all)) if *before == role => all.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    if messages.first().is_none_or(|(role, _)| *role != "user") {
        messages.insert(0, ("user", vec![json!({"type": "text", "text": prompt::CONTINUE})]));
    }
    if let Some(("assistant", blocks)) = messages.last_mut() {
        trim_end(blocks);
    }
    place_marks(&mut messages);
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

/// A last message of the model may not end in white space.
fn trim_end(blocks: &mut [Value]) {
    if let Some(Value::String(text)) = blocks.last_mut().and_then(|block| block.get_mut("text")) {
        text.truncate(text.trim_end().len());
    }
}

fn place_marks(messages: &mut [(&'static str, Vec<Value>)]) {
    let users = messages.iter_mut().rev().filter(|(role, _)| *role == "user");
    for (_, blocks) in users.take(MESSAGE_MARKS) {
        if let Some(last) = blocks.last_mut() {
            mark(last);
        }
    }
}

fn mark(block: &mut Value) {
    if let Some(object) = block.as_object_mut() {
        object.insert("cache_control".into(), json!({"type": "ephemeral"}));
    }
}

fn user_blocks(request: &ModelRequest, media: &PreparedMedia, parts: &[Part]) -> Vec<Value> {
    parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } if !text.trim().is_empty() => Some(json!({"type": "text", "text": text})),
            Part::Media { blob, name } => Some(medium_block(request, media, &blob.hash, name)),
            _ => None,
        })
        .collect()
}

fn medium_block(request: &ModelRequest, media: &PreparedMedia, hash: &str, name: &str) -> Value {
    match prompt::medium(request, media, hash, name, true) {
        Medium::Note(note) => json!({"type": "text", "text": note}),
        Medium::Shown(shown) => {
            let kind = if shown.is_image() { "image" } else { "document" };
            json!({"type": kind,
                "source": {"type": "base64", "media_type": shown.media_type, "data": shown.base64}})
        }
    }
}

fn assistant_blocks(parts: &[Part], own: bool, own_ids: bool, ids: &mut IdMap) -> Vec<Value> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Text { text, .. } if !text.trim().is_empty() => blocks.push(json!({"type": "text", "text": text})),
            Part::Thinking { text, opaque: Some(opaque) } if own => {
                if let Some(signature) = opaque.0.get("signature") {
                    blocks.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
                }
            }
            Part::RedactedThinking { opaque } if own => {
                if let Some(data) = opaque.0.get("data") {
                    blocks.push(json!({"type": "redacted_thinking", "data": data}));
                }
            }
            Part::Provider { opaque } if own && opaque.0.is_object() => blocks.push(opaque.0.clone()),
            Part::ToolCall { tool_call_id, provider_call_id, name, arguments, .. } => {
                let id = ids.id(*tool_call_id, provider_call_id, own_ids);
                let input = match arguments {
                    Value::Object(_) => arguments.clone(),
                    other => json!({"invalid_arguments": other}),
                };
                blocks.push(json!({"type": "tool_use", "id": id, "name": tool_name(name), "input": input}));
            }
            _ => {}
        }
    }
    calls_last(blocks)
}

/// Words after a call would part it from its answer. Signed reasoning is never moved.
fn calls_last(blocks: Vec<Value>) -> Vec<Value> {
    let kind = |block: &Value| block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let after_first_call: Vec<String> =
        blocks.iter().map(kind).skip_while(|kind| kind != "tool_use").filter(|kind| kind != "tool_use").collect();
    if after_first_call.is_empty() || after_first_call.iter().any(|kind| kind != "text") {
        return blocks;
    }
    let (calls, mut others): (Vec<Value>, Vec<Value>) = blocks.into_iter().partition(|block| kind(block) == "tool_use");
    others.extend(calls);
    others
}

fn result_block(request: &ModelRequest, media: &PreparedMedia, answer: &ToolAnswer, ids: &mut IdMap) -> Value {
    let id = ids.id(answer.tool_call_id, &answer.provider_call_id, true);
    let mut content = Vec::with_capacity(1 + answer.media.len());
    if !answer.text.trim().is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for (blob, name) in &answer.media {
        content.push(medium_block(request, media, &blob.hash, name));
    }
    let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
    if answer.is_error
        && let Some(object) = block.as_object_mut()
    {
        object.insert("is_error".into(), json!(true));
    }
    block
}

#[cfg(test)]
mod tests;
