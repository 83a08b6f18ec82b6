//! What Anthropic refuses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::given::{Given, Seen};
use super::super::recorded::Wire;
use super::{answer, is_id_byte, list, text, thinking};

/// Most cache marks in one request.
const CACHE_MARKS_MAX: usize = 4;

/// The reason why `body` would be refused.
pub(super) fn check(model: &str, body: &Value, given: &Given) -> Result<(), String> {
    // On Vertex the path names the model, and the body the version of the wire.
    if body.get("anthropic_version").is_some() == body.get("model").is_some() {
        return Err("model: Field required".to_owned());
    }
    for field in ["max_tokens", "messages"] {
        if body.get(field).is_none() {
            return Err(format!("{field}: Field required"));
        }
    }
    let messages = list(body, "messages");
    if messages.is_empty() {
        return Err("messages: at least one message is required".to_owned());
    }
    tools(body, messages)?;
    output(body)?;
    thinking::claude(model, &body["thinking"], &body["output_config"], body["max_tokens"].as_u64().unwrap_or(0))?;
    let marks = count_marks(body);
    if marks > CACHE_MARKS_MAX {
        return Err(format!(
            "A maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided. Found {marks}."
        ));
    }
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if role != expected {
            return Err(match (at, role) {
                (0, _) => "messages: first message must use the \"user\" role".to_owned(),
                (_, "user" | "assistant") => format!(
                    "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"{role}\" roles in a row"
                ),
                _ => format!("messages.{at}.role: Input should be 'user' or 'assistant'"),
            });
        }
        content(at, message)?;
        results(at, message, &open)?;
        open = list(message, "content")
            .iter()
            .filter(|block| text(block, "type") == "tool_use")
            .map(|block| text(block, "id"))
            .collect();
        signatures(at, message, model, given)?;
    }
    if text(&messages[messages.len() - 1], "role") == "assistant" {
        return Err(
            "This model does not support assistant message prefill. The conversation must end with a user message."
                .to_owned(),
        );
    }
    Ok(())
}

fn tools(body: &Value, messages: &[Value]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (at, tool) in list(body, "tools").iter().enumerate() {
        let name = text(tool, "name");
        if name.is_empty() || name.len() > 128 || !name.bytes().all(is_id_byte) {
            return Err(format!("tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"));
        }
        if !names.insert(name) {
            return Err("tools: Tool names must be unique.".to_owned());
        }
        let own = tool.get("type").is_none_or(|kind| kind == "custom");
        if own && tool.get("input_schema").map(|schema| text(schema, "type")) != Some("object") {
            return Err(format!("tools.{at}.custom.input_schema.type: Input should be 'object'"));
        }
    }
    let used = messages
        .iter()
        .flat_map(|message| list(message, "content"))
        .any(|block| matches!(text(block, "type"), "tool_use" | "tool_result"));
    if used && names.is_empty() {
        return Err("Requests which include `tool_use` or `tool_result` blocks must define tools".to_owned());
    }
    Ok(())
}

/// How much is thought, and the form of the answer.
fn output(body: &Value) -> Result<(), String> {
    let Some(config) = body.get("output_config") else { return Ok(()) };
    let fields = config.as_object().ok_or("output_config: Input should be a valid dictionary")?;
    if let Some(key) = fields.keys().find(|key| !matches!(key.as_str(), "effort" | "format")) {
        return Err(format!("output_config.{key}: Extra inputs are not permitted"));
    }
    match fields.get("format") {
        None => Ok(()),
        Some(format) if text(format, "type") == "json_schema" => answer::claude(&format["schema"]),
        Some(_) => Err("output_config.format.type: Input should be 'json_schema'".to_owned()),
    }
}

fn count_marks(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match key.as_str() {
                "cache_control" => usize::from(!value.is_null()),
                // What the model or a tool wrote is data, whatever it looks like.
                "input" | "input_schema" => 0,
                _ => count_marks(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_marks).sum(),
        _ => 0,
    }
}

fn content(at: usize, message: &Value) -> Result<(), String> {
    let empty = || {
        Err(format!(
            "messages.{at}: all messages must have non-empty content except for the optional final assistant message"
        ))
    };
    let blocks = match message.get("content") {
        Some(Value::String(content)) if content.is_empty() => return empty(),
        Some(Value::String(content)) if content.trim().is_empty() => {
            return Err("messages: text content blocks must contain non-whitespace text".to_owned());
        }
        Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(blocks)) if blocks.is_empty() => return empty(),
        Some(Value::Array(blocks)) => blocks,
        _ => return Err(format!("messages.{at}.content: Input should be a valid list")),
    };
    let mut ids = BTreeSet::new();
    for (n, block) in blocks.iter().enumerate() {
        match text(block, "type") {
            "text" if text(block, "text").is_empty() => {
                return Err("messages: text content blocks must be non-empty".to_owned());
            }
            "text" if text(block, "text").trim().is_empty() => {
                return Err("messages: text content blocks must contain non-whitespace text".to_owned());
            }
            "tool_use" => {
                let id = text(block, "id");
                if id.is_empty() || !id.bytes().all(is_id_byte) {
                    return Err(format!(
                        "messages.{at}.content.{n}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                    ));
                }
                if !ids.insert(id) {
                    return Err(format!("messages.{at}.content.{n}: `tool_use` ids must be unique"));
                }
                if !block.get("input").is_some_and(Value::is_object) {
                    return Err(format!(
                        "messages.{at}.content.{n}.tool_use.input: Input should be a valid dictionary"
                    ));
                }
            }
            "tool_result" => tool_result_content(at, n, block)?,
            "" => return Err(format!("messages.{at}.content.{n}.type: Field required")),
            _ => {}
        }
    }
    Ok(())
}

fn tool_result_content(at: usize, n: usize, block: &Value) -> Result<(), String> {
    let empty = match block.get("content") {
        Some(Value::String(content)) => content.is_empty(),
        Some(Value::Array(parts)) => {
            parts.is_empty() || parts.iter().any(|part| text(part, "type") == "text" && text(part, "text").is_empty())
        }
        _ => true,
    };
    if empty { Err(format!("messages.{at}.content.{n}.tool_result: content must be non-empty")) } else { Ok(()) }
}

fn results(at: usize, message: &Value, open: &[&str]) -> Result<(), String> {
    let mut answered: BTreeSet<&str> = BTreeSet::new();
    let mut other_before = false;
    let mut late = false;
    for (n, block) in list(message, "content").iter().enumerate() {
        if text(block, "type") != "tool_result" {
            other_before = true;
            continue;
        }
        let id = text(block, "tool_use_id");
        if !open.contains(&id) {
            return Err(format!(
                "messages.{at}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if !answered.insert(id) {
            return Err(format!(
                "messages.{at}.content.{n}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            ));
        }
        late |= other_before;
    }
    let missing: Vec<&str> = open.iter().copied().filter(|id| late || !answered.contains(id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        at.saturating_sub(1),
        missing.join(", ")
    ))
}

fn signatures(at: usize, message: &Value, model: &str, given: &Given) -> Result<(), String> {
    for (n, block) in list(message, "content").iter().enumerate() {
        let (field, kind, mark, of) = match text(block, "type") {
            "thinking" => ("signature", "thinking", text(block, "signature"), text(block, "thinking")),
            "redacted_thinking" => ("data", "redacted_thinking", text(block, "data"), ""),
            _ => continue,
        };
        match given.seen(Wire::Anthropic, model, mark, of) {
            Seen::Right => {}
            Seen::Foreign => return Err(format!("messages.{at}.content.{n}: Invalid `{field}` in `{kind}` block")),
            Seen::Moved => {
                return Err(format!(
                    "messages.{at}.content.{n}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."
                ));
            }
        }
    }
    Ok(())
}
