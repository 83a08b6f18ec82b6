//! Writes the body of a Gemini request.

use mcode_events::message::{Opaque, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm, ToolAnswer};
use serde_json::{Map, Value, json};

use crate::answer;
use crate::ids::tool_name;
use crate::media::PreparedMedia;
use crate::prompt::{self, Medium};
use crate::refused::leave_out;

/// In the place of a signature, for a call that another model made: Google names it for that.
const NOT_SIGNED: &str = "skip_thought_signature_validator";
/// Fewest tokens of thinking that a model of the kind `pro` takes.
const BUDGET_MIN_PRO: u32 = 128;
/// Most tokens of thinking of the kind `pro`, and of the others.
const BUDGET_MAX_PRO: u32 = 32_768;
/// See [`BUDGET_MAX_PRO`].
const BUDGET_MAX: u32 = 24_576;

/// The body. `left_out` are fields that the configuration or the server does not want.
pub(crate) fn body(request: &ModelRequest, media: &PreparedMedia, left_out: &[String]) -> Value {
    let mut body = Map::new();
    let system: Vec<Value> = request
        .system
        .iter()
        .filter(|part| !part.text.trim().is_empty())
        .map(|part| json!({"text": part.text}))
        .collect();
    if !system.is_empty() {
        body.insert("systemInstruction".into(), json!({ "parts": system }));
    }
    body.insert("contents".into(), contents(request, media));
    let tools: Vec<Value> = prompt::tools(request)
        .into_iter()
        .map(|tool| {
            json!({"name": tool_name(&tool.name), "description": tool.description, "parametersJsonSchema": tool.schema})
        })
        .collect();
    if !tools.is_empty() {
        body.insert("tools".into(), json!([{ "functionDeclarations": tools }]));
    }
    let mut generation = Map::new();
    if request.info.known || request.max_output_tokens.is_some() {
        generation.insert("maxOutputTokens".into(), json!(prompt::max_output_tokens(request)));
    }
    if let Some(thinking) = thinking(request) {
        generation.insert("thinkingConfig".into(), thinking);
    }
    // Before 3, calls of tools and a form of the answer exclude each other.
    let with_tools = body.contains_key("tools") && version(request).is_none_or(|version| version < 3);
    if let Some(schema) = answer::wanted(request, left_out).filter(|_| !with_tools).and_then(answer::gemini) {
        generation.insert("responseMimeType".into(), json!("application/json"));
        generation.insert("responseJsonSchema".into(), schema);
    }
    if !generation.is_empty() {
        body.insert("generationConfig".into(), Value::Object(generation));
    }
    leave_out(&mut body, left_out);
    Value::Object(body)
}

/// By a budget or by a level, never both; a model that can not be kept from thinking gets the least.
fn thinking(request: &ModelRequest) -> Option<Value> {
    let model = request.model.model.as_str();
    let mut config = match request.info.thinking {
        ThinkingForm::GeminiBudget => match request.thinking {
            None => json!({}),
            Some(level) => json!({"thinkingBudget": budget(model.contains("pro"), level)}),
        },
        ThinkingForm::GeminiLevel => match request.thinking {
            None => json!({}),
            Some(level) => {
                let word = request.info.efforts.word(level).unwrap_or_else(|| level_word(model, level));
                json!({ "thinkingLevel": word })
            }
        },
        _ => return None,
    };
    config["includeThoughts"] = json!(config.get("thinkingBudget") != Some(&json!(0)));
    Some(config)
}

fn budget(pro: bool, level: ThinkingLevel) -> u32 {
    let most = if pro { BUDGET_MAX_PRO } else { BUDGET_MAX };
    match level {
        ThinkingLevel::Off if pro => BUDGET_MIN_PRO,
        ThinkingLevel::Off => 0,
        ThinkingLevel::Low => 2_048,
        ThinkingLevel::Medium => 8_192,
        ThinkingLevel::High => 16_384,
        ThinkingLevel::Xhigh => most,
    }
}

fn level_word(model: &str, level: ThinkingLevel) -> &'static str {
    let first_pro = model.starts_with("gemini-3-pro");
    let minimal = model.contains("flash")
        && ["gemini-3-", "gemini-3.1-", "gemini-3.5-", "gemini-3.6-"].iter().any(|family| model.starts_with(family));
    match level {
        ThinkingLevel::Off if minimal => "minimal",
        ThinkingLevel::Off | ThinkingLevel::Low => "low",
        ThinkingLevel::Medium if !first_pro => "medium",
        ThinkingLevel::Medium | ThinkingLevel::High | ThinkingLevel::Xhigh => "high",
    }
}

/// The conversation: it begins with the user, and roles alternate.
fn contents(request: &ModelRequest, media: &PreparedMedia) -> Value {
    let mut contents: Vec<(&'static str, Vec<Value>)> = Vec::new();
    let mut add = |role: &'static str, parts: Vec<Value>| {
        if parts.is_empty() {
            return;
        }
        match contents.last_mut() {
            Some((before, all)) if *before == role => all.extend(parts),
            None if role == "model" => {
                contents.push(("user", vec![json!({"text": prompt::CONTINUE})]));
                contents.push((role, parts));
            }
            _ => contents.push((role, parts)),
        }
    };
    for message in &request.messages {
        match message {
            PromptMessage::User(parts) => add("user", user(request, media, parts)),
            PromptMessage::Assistant { parts, origin } => {
                add("model", assistant(request, parts, prompt::is_own(request, origin.as_ref())));
            }
            PromptMessage::Tools(answers) => {
                let given: Vec<Value> = answers.iter().map(|answer| response(request, answer)).collect();
                // All answers come before anything else of the turn.
                let shown = answers.iter().flat_map(|answer| pictures(request, media, answer));
                add("user", given.into_iter().chain(shown).collect());
            }
        }
    }
    contents.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn user(request: &ModelRequest, media: &PreparedMedia, parts: &[Part]) -> Vec<Value> {
    let written = parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } if !text.trim().is_empty() => Some(json!({"text": text})),
        Part::Media { blob, name } => Some(medium(request, media, &blob.hash, name)),
        _ => None,
    });
    written.collect()
}

fn medium(request: &ModelRequest, media: &PreparedMedia, hash: &str, name: &str) -> Value {
    match prompt::medium(request, media, hash, name, true) {
        Medium::Note(note) => json!({"text": note}),
        Medium::Shown(shown) => json!({"inlineData": {"mimeType": shown.media_type, "data": shown.base64}}),
    }
}

fn assistant(request: &ModelRequest, parts: &[Part], own: bool) -> Vec<Value> {
    let mut written = Vec::with_capacity(parts.len());
    let mut calls = 0;
    for part in parts {
        let (mut value, opaque) = match part {
            Part::Text { text, opaque } if !text.trim().is_empty() => (json!({"text": text}), opaque.as_ref()),
            // Nothing but a signature is said.
            Part::Text { text, opaque: Some(opaque) } if own => (json!({"text": text}), Some(opaque)),
            Part::Thinking { text, opaque: Some(opaque) } if own => {
                (json!({"text": text, "thought": true}), Some(opaque))
            }
            Part::Provider { opaque } if own => {
                written.push(opaque.0.clone());
                continue;
            }
            Part::ToolCall { provider_call_id, name, arguments, opaque, .. } => {
                let arguments = match arguments {
                    Value::Object(_) => arguments.clone(),
                    other => json!({"invalid_arguments": other}),
                };
                let mut call = json!({"name": tool_name(name), "args": arguments});
                if own && !provider_call_id.is_empty() {
                    call["id"] = json!(provider_call_id);
                }
                calls += 1;
                let mut value = json!({ "functionCall": call });
                // The first call of a step is checked; those beside it are not.
                let unsigned = signature(opaque.as_ref(), own).is_none();
                if calls == 1 && unsigned && checks_calls(request) {
                    value["thoughtSignature"] = json!(NOT_SIGNED);
                }
                (value, opaque.as_ref())
            }
            _ => continue,
        };
        if let Some(signature) = signature(opaque, own) {
            value["thoughtSignature"] = signature.clone();
        }
        written.push(value);
    }
    written
}

/// Whether the server wants calls signed: Gemini from 3 on does, listed in the catalogue or not.
fn checks_calls(request: &ModelRequest) -> bool {
    request.info.thinking == ThinkingForm::GeminiLevel || version(request).is_some_and(|version| version >= 3)
}

/// The first number of a Gemini's name.
fn version(request: &ModelRequest) -> Option<u32> {
    let name = request.model.model.rsplit('/').next().unwrap_or_default();
    name.strip_prefix("gemini-").and_then(|rest| rest.split(['.', '-']).next()?.parse().ok())
}

fn signature(opaque: Option<&Opaque>, own: bool) -> Option<&Value> {
    opaque.filter(|_| own)?.0.get("thought_signature")
}

fn response(request: &ModelRequest, answer: &ToolAnswer) -> Value {
    let key = if answer.is_error { "error" } else { "output" };
    let mut response = json!({"name": tool_name(&answer.name), "response": {key: answer.text}});
    if is_named(request, answer) {
        response["id"] = json!(answer.provider_call_id);
    }
    json!({ "functionResponse": response })
}

/// Whether the call went with its id.
fn is_named(request: &ModelRequest, answer: &ToolAnswer) -> bool {
    let asked =
        |part: &Part| matches!(part, Part::ToolCall { tool_call_id, .. } if *tool_call_id == answer.tool_call_id);
    let own = request.messages.iter().any(|message| match message {
        PromptMessage::Assistant { parts, origin } => {
            parts.iter().any(asked) && prompt::is_own(request, origin.as_ref())
        }
        _ => false,
    });
    own && !answer.provider_call_id.is_empty()
}

fn pictures(request: &ModelRequest, media: &PreparedMedia, answer: &ToolAnswer) -> Vec<Value> {
    let shown = answer.media.iter().flat_map(|(blob, name)| {
        let label = if name.is_empty() { "picture" } else { name };
        let label = json!({"text": format!("({label}, from the tool {})", answer.name)});
        [label, medium(request, media, &blob.hash, name)]
    });
    shown.collect()
}

#[cfg(test)]
mod tests;
