//! What a provider refuses in a conversation, in the provider's own words.
//!
//! Stricter than the real servers in two points on purpose: roles have to alternate on the Anthropic wire (the real one
//! merges neighbours), and no tool result may be empty.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::recorded::Wire;

/// Most cache marks in one Anthropic request.
const CACHE_MARKS_MAX: usize = 4;

/// Signatures of reasoning and the models that made them.
pub(super) type Signatures = BTreeMap<String, BTreeSet<String>>;

/// The reason why `body` would be refused, if any.
pub(super) fn refusal(wire: Wire, body: &Value, signatures: &Signatures) -> Option<String> {
    let checked = match wire {
        Wire::Anthropic => anthropic(body, signatures),
        Wire::Chat => chat(body),
    };
    checked.err()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn anthropic(body: &Value, signatures: &Signatures) -> Result<(), String> {
    for field in ["model", "max_tokens", "messages"] {
        if body.get(field).is_none() {
            return Err(format!("{field}: Field required"));
        }
    }
    let messages = list(body, "messages");
    if messages.is_empty() {
        return Err("messages: at least one message is required".to_owned());
    }
    anthropic_tools(body, messages)?;
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
        anthropic_content(at, message)?;
        anthropic_results(at, message, &open)?;
        open = list(message, "content")
            .iter()
            .filter(|block| text(block, "type") == "tool_use")
            .map(|block| text(block, "id"))
            .collect();
        anthropic_signatures(at, message, text(body, "model"), signatures)?;
    }
    if text(&messages[messages.len() - 1], "role") == "assistant" {
        return Err(
            "This model does not support assistant message prefill. The conversation must end with a user message."
                .to_owned(),
        );
    }
    Ok(())
}

fn anthropic_tools(body: &Value, messages: &[Value]) -> Result<(), String> {
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

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
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

fn anthropic_content(at: usize, message: &Value) -> Result<(), String> {
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

fn anthropic_results(at: usize, message: &Value, open: &[&str]) -> Result<(), String> {
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

fn anthropic_signatures(at: usize, message: &Value, model: &str, signatures: &Signatures) -> Result<(), String> {
    for (n, block) in list(message, "content").iter().enumerate() {
        if text(block, "type") != "thinking" {
            continue;
        }
        let made_by = signatures.get(text(block, "signature"));
        if !made_by.is_some_and(|models| models.contains(model)) {
            return Err(format!("messages.{at}.content.{n}: Invalid `signature` in `thinking` block"));
        }
    }
    Ok(())
}

fn chat(body: &Value) -> Result<(), String> {
    if text(body, "model").is_empty() {
        return Err("you must provide a model parameter".to_owned());
    }
    let messages = list(body, "messages");
    if messages.is_empty() {
        return Err(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
                .to_owned(),
        );
    }
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        if role == "tool" {
            let id = text(message, "tool_call_id");
            let Some(found) = open.iter().position(|wanted| *wanted == id) else {
                return Err(format!(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' (messages.[{at}].role, id '{id}')."
                ));
            };
            open.remove(found);
            chat_content(at, message)?;
            continue;
        }
        unanswered(&open)?;
        let calls = list(message, "tool_calls");
        if !matches!(role, "system" | "developer" | "user" | "assistant") {
            return Err(format!(
                "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'. (messages[{at}].role)"
            ));
        }
        if calls.is_empty() || !message.get("content").is_none_or(Value::is_null) {
            chat_content(at, message)?;
        }
        open = chat_calls(at, calls)?;
    }
    unanswered(&open)
}

fn unanswered(open: &[&str]) -> Result<(), String> {
    if open.is_empty() {
        return Ok(());
    }
    Err(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    ))
}

fn chat_calls(at: usize, calls: &[Value]) -> Result<Vec<&str>, String> {
    let mut open: Vec<&str> = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let id = text(call, "id");
        let function = call.get("function").unwrap_or(&Value::Null);
        if id.is_empty() || id.len() > 40 {
            return Err(format!(
                "Invalid 'messages[{at}].tool_calls[{n}].id': string too long. Expected a string with maximum length 40, but got a string with length {} instead.",
                id.len()
            ));
        }
        if open.contains(&id) {
            return Err(format!("Invalid 'messages[{at}].tool_calls[{n}].id': duplicate id '{id}'"));
        }
        if text(function, "name").is_empty() || !function.get("arguments").is_some_and(Value::is_string) {
            return Err(format!(
                "Invalid type for 'messages[{at}].tool_calls[{n}].function.arguments': expected a string."
            ));
        }
        open.push(id);
    }
    Ok(open)
}

fn chat_content(at: usize, message: &Value) -> Result<(), String> {
    let empty = match message.get("content") {
        Some(Value::String(content)) => content.is_empty(),
        Some(Value::Array(parts)) => {
            parts.is_empty() || parts.iter().any(|part| text(part, "type") == "text" && text(part, "text").is_empty())
        }
        _ => {
            return Err(format!("Invalid value for 'content': expected a string, got null. (messages[{at}].content)"));
        }
    };
    if empty { Err(format!("Invalid 'messages[{at}].content': content must be non-empty")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(wire: Wire, body: &Value) -> String {
        refusal(wire, body, &Signatures::new()).unwrap_or_default()
    }

    fn anthropic_body(messages: &Value) -> Value {
        json!({"model": "m", "max_tokens": 1, "messages": messages,
            "tools": [{"name": "t", "input_schema": {"type": "object"}}]})
    }

    #[test]
    fn a_call_without_its_result_is_refused_on_both_wires() {
        let body = anthropic_body(&json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]},
            {"role": "user", "content": "b"},
        ]));
        assert!(refused(Wire::Anthropic, &body).contains("without `tool_result` blocks immediately after: x"));
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
            {"role": "user", "content": "b"},
        ]});
        assert!(refused(Wire::Chat, &body).contains("did not have response messages: x"));
    }

    #[test]
    fn a_sound_conversation_is_taken() {
        let body = anthropic_body(&json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r"},
                {"type": "text", "text": "and"}]},
        ]));
        assert_eq!(refused(Wire::Anthropic, &body), "");
    }

    #[test]
    fn twice_answered_stray_and_late_results_are_refused() {
        let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]});
        let result = json!({"type": "tool_result", "tool_use_id": "x", "content": "r"});
        let stray = json!({"type": "tool_result", "tool_use_id": "y", "content": "r"});
        let words = json!({"type": "text", "text": "w"});
        for (content, wording) in [
            (json!([result, result]), "single result"),
            (json!([result, stray]), "unexpected `tool_use_id`"),
            (json!([words, result]), "immediately after"),
        ] {
            let body =
                anthropic_body(&json!([{"role": "user", "content": "a"}, call, {"role": "user", "content": content}]));
            assert!(refused(Wire::Anthropic, &body).contains(wording), "{wording}");
        }
    }

    #[test]
    fn signatures_belong_to_the_model_that_made_them() {
        let mut body = anthropic_body(&json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "S1"},
                {"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"},
        ]));
        let known = Signatures::from([("S1".to_owned(), BTreeSet::from(["m".to_owned()]))]);
        assert_eq!(refusal(Wire::Anthropic, &body, &known), None);
        body["model"] = json!("other");
        assert!(refusal(Wire::Anthropic, &body, &known).is_some_and(|text| text.contains("Invalid `signature`")));
    }

    #[test]
    fn empty_text_and_neighbours_of_one_role_are_refused() {
        let body = anthropic_body(&json!([{"role": "user", "content": [{"type": "text", "text": ""}]}]));
        assert!(refused(Wire::Anthropic, &body).contains("non-empty"));
        let body = anthropic_body(&json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]));
        assert!(refused(Wire::Anthropic, &body).contains("roles must alternate"));
        let body = json!({"model": "m", "messages": [{"role": "user", "content": ""}]});
        assert!(refused(Wire::Chat, &body).contains("non-empty"));
    }
}
