//! Writes the body of a Converse request.

use mcode_events::message::{Opaque, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm, ToolAnswer};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::anthropic;
use crate::effort;
use crate::ids::{IdMap, IdRule, tool_name};
use crate::media::PreparedMedia;
use crate::prompt::{self, Medium};
use crate::refused::leave_out;

/// Marks of the cache that go to messages of the user; the others go to the system prompt and the tools.
const MESSAGE_MARKS: usize = 2;
/// What a tool that says nothing of itself is called: an empty text is refused.
const NO_DESCRIPTION: &str = "A tool.";

/// The body. `left_out` are fields that the configuration or the server does not want.
pub(crate) fn body(request: &ModelRequest, media: &PreparedMedia, left_out: &[String]) -> Value {
    let model = request.model.model.as_str();
    let claude = model.contains("anthropic.") || model.contains("claude");
    // Which models take marks is known of these two.
    let marks = claude || model.contains("nova");
    let mut body = Map::new();
    let mut max_tokens = prompt::max_output_tokens(request);
    let extra = extra(request, claude, &mut max_tokens);
    let mut system: Vec<Value> = request
        .system
        .iter()
        .filter(|part| !part.text.trim().is_empty())
        .map(|part| json!({"text": part.text}))
        .collect();
    if marks && !system.is_empty() {
        system.push(mark());
    }
    if !system.is_empty() {
        body.insert("system".into(), Value::Array(system));
    }
    body.insert("messages".into(), Value::Array(messages(request, media, claude, marks)));
    if request.info.known || request.max_output_tokens.is_some() {
        body.insert("inferenceConfig".into(), json!({ "maxTokens": max_tokens }));
    }
    let mut tools: Vec<Value> = prompt::tools(request)
        .into_iter()
        .map(|tool| {
            let words = if tool.description.trim().is_empty() { NO_DESCRIPTION } else { &tool.description };
            json!({"toolSpec": {"name": tool_name(&tool.name), "description": words,
                "inputSchema": {"json": tool.schema}}})
        })
        .collect();
    if !tools.is_empty() {
        // Nova takes marks in the text only.
        if claude {
            tools.push(mark());
        }
        body.insert("toolConfig".into(), json!({ "tools": tools }));
    }
    if !extra.is_empty() {
        body.insert("additionalModelRequestFields".into(), Value::Object(extra));
    }
    let takes_schema = claude && answer::claude_takes(model, None);
    let schema = answer::wanted(request, left_out).filter(|_| takes_schema).and_then(answer::claude);
    if let Some(schema) = schema {
        // Here the schema is a text.
        let structure = json!({"jsonSchema": {"name": answer::NAME, "schema": schema.to_string()}});
        body.insert("outputConfig".into(), json!({"textFormat": {"type": "json_schema", "structure": structure}}));
    }
    leave_out(&mut body, left_out);
    Value::Object(body)
}

/// Fields in the words of the model's maker.
fn extra(request: &ModelRequest, claude: bool, max_tokens: &mut u32) -> Map<String, Value> {
    let mut extra = Map::new();
    if claude {
        let (kind, effort) = anthropic::request::thinking_fields(request, max_tokens);
        if let Some(kind) = kind {
            extra.insert("thinking".into(), kind);
        }
        if let Some(effort) = effort {
            extra.insert("output_config".into(), json!({ "effort": effort }));
        }
        if anthropic::request::wants_interleaving(request) {
            extra.insert("anthropic_beta".into(), json!([anthropic::INTERLEAVED]));
        }
        return extra;
    }
    let (Some(level), true) = (request.thinking, request.info.thinking == ThinkingForm::Effort) else { return extra };
    if request.model.model.contains("nova") {
        let config = match level {
            ThinkingLevel::Off => json!({"type": "disabled"}),
            _ => json!({"type": "enabled", "maxReasoningEffort": nova_effort(level)}),
        };
        extra.insert("reasoningConfig".into(), config);
    } else {
        extra.insert("reasoning_effort".into(), json!(effort::word(request, level)));
    }
    extra
}

const fn nova_effort(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off | ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High | ThinkingLevel::Xhigh => "high",
    }
}

fn mark() -> Value {
    json!({"cachePoint": {"type": "default"}})
}

fn messages(request: &ModelRequest, media: &PreparedMedia, claude: bool, marks: bool) -> Vec<Value> {
    let rule = if request.model.model.contains("mistral") { IdRule::Mistral } else { IdRule::Anthropic };
    let mut ids = IdMap::new(rule);
    let mut messages: Vec<(&'static str, Vec<Value>)> = Vec::with_capacity(request.messages.len() + 1);
    for message in &request.messages {
        let (role, blocks) = match message {
            PromptMessage::User(parts) => ("user", user(request, media, parts)),
            PromptMessage::Assistant { parts, origin } => {
                let own = prompt::is_own(request, origin.as_ref());
                let own_ids = prompt::is_own_provider(request, origin.as_ref());
                ("assistant", assistant(parts, own, own_ids, claude, &mut ids))
            }
            PromptMessage::Tools(answers) => {
                ("user", answers.iter().map(|answer| result(request, media, answer, &mut ids)).collect())
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
        messages.insert(0, ("user", vec![json!({"text": prompt::CONTINUE})]));
    }
    if marks {
        let users = messages.iter_mut().rev().filter(|(role, _)| *role == "user");
        users.take(MESSAGE_MARKS).for_each(|(_, blocks)| blocks.push(mark()));
    }
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn user(request: &ModelRequest, media: &PreparedMedia, parts: &[Part]) -> Vec<Value> {
    let mut documents = 0;
    let mut written = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Text { text, .. } if !text.trim().is_empty() => written.push(json!({"text": text})),
            Part::Media { blob, name } => {
                let block = medium(request, media, &blob.hash, name, &mut documents);
                // A document is refused without words beside it.
                if block.get("document").is_some() {
                    written.push(json!({"text": format!("(the document {name})")}));
                }
                written.push(block);
            }
            _ => {}
        }
    }
    written
}

fn medium(request: &ModelRequest, media: &PreparedMedia, hash: &str, name: &str, documents: &mut usize) -> Value {
    match prompt::medium(request, media, hash, name, true) {
        Medium::Note(note) => json!({"text": note}),
        Medium::Shown(shown) => {
            let format = shown.media_type.rsplit('/').next().unwrap_or_default();
            let source = json!({"bytes": shown.base64});
            if shown.is_image() {
                return json!({"image": {"format": format, "source": source}});
            }
            // Names may hold only letters, digits and few marks, and must differ.
            *documents += 1;
            json!({"document": {"format": format, "name": format!("document {documents}"), "source": source}})
        }
    }
}

fn assistant(parts: &[Part], own: bool, own_ids: bool, claude: bool, ids: &mut IdMap) -> Vec<Value> {
    let kept = |opaque: Option<&Opaque>, key: &str| opaque.filter(|_| own)?.0.get(key).cloned();
    let written = parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } if !text.trim().is_empty() => Some(json!({"text": text})),
        Part::Thinking { text, opaque } if own => {
            let mut reasoning = json!({"text": text});
            match kept(opaque.as_ref(), "signature") {
                Some(signature) if claude => reasoning["signature"] = signature,
                // Claude takes no reasoning that it can not check; others check none.
                None if claude => return None,
                _ => {}
            }
            Some(json!({"reasoningContent": {"reasoningText": reasoning}}))
        }
        Part::RedactedThinking { opaque } => {
            let data = kept(Some(opaque), "data")?;
            Some(json!({"reasoningContent": {"redactedContent": data}}))
        }
        Part::ToolCall { tool_call_id, provider_call_id, name, arguments, .. } => {
            let id = ids.id(*tool_call_id, provider_call_id, own_ids);
            let input = match arguments {
                Value::Object(_) => arguments.clone(),
                other => json!({"invalid_arguments": other}),
            };
            Some(json!({"toolUse": {"toolUseId": id, "name": tool_name(name), "input": input}}))
        }
        _ => None,
    });
    let mut written: Vec<Value> = written.collect();
    // Reasoning that led to nothing is refused at the end.
    while written.last().is_some_and(|block| block.get("reasoningContent").is_some()) {
        written.pop();
    }
    written
}

fn result(request: &ModelRequest, media: &PreparedMedia, answer: &ToolAnswer, ids: &mut IdMap) -> Value {
    let id = ids.id(answer.tool_call_id, &answer.provider_call_id, true);
    let mut content = Vec::new();
    if !answer.text.trim().is_empty() {
        content.push(json!({"text": answer.text}));
    }
    let mut documents = 0;
    for (blob, name) in &answer.media {
        content.push(medium(request, media, &blob.hash, name, &mut documents));
    }
    let status = if answer.is_error { "error" } else { "success" };
    json!({"toolResult": {"toolUseId": id, "status": status, "content": content}})
}

#[cfg(test)]
mod tests;
