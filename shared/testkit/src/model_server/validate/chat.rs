//! What OpenAI refuses on its Chat Completions wire.

use serde_json::Value;

use super::{answer, is_id_byte, list, text, thinking};

/// The reason why `body` would be refused.
pub(super) fn check(body: &Value) -> Result<(), String> {
    if text(body, "model").is_empty() {
        return Err("you must provide a model parameter".to_owned());
    }
    if let Some(format) = body.get("response_format") {
        match text(format, "type") {
            "json_schema" => answer::openai(&format["json_schema"], "response_format.json_schema")?,
            "json_object" | "text" => {}
            kind => return Err(format!("Invalid value: '{kind}'. (response_format.type)")),
        }
    }
    thinking::effort(text(body, "model"), body.get("reasoning_effort"))?;
    let messages = list(body, "messages");
    if messages.is_empty() {
        return Err(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
                .to_owned(),
        );
    }
    for (at, tool) in list(body, "tools").iter().enumerate() {
        let name = tool.get("function").map(|function| text(function, "name")).unwrap_or_default();
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_id_byte) {
            return Err(format!(
                "Invalid 'tools[{at}].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ));
        }
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
            content(at, message)?;
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
            content(at, message)?;
        }
        open = open_calls(at, calls)?;
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

fn open_calls(at: usize, calls: &[Value]) -> Result<Vec<&str>, String> {
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
        let name = text(function, "name");
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_id_byte) {
            return Err(format!(
                "Invalid 'messages[{at}].tool_calls[{n}].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ));
        }
        if !function.get("arguments").is_some_and(Value::is_string) {
            return Err(format!(
                "Invalid type for 'messages[{at}].tool_calls[{n}].function.arguments': expected a string."
            ));
        }
        open.push(id);
    }
    Ok(open)
}

fn content(at: usize, message: &Value) -> Result<(), String> {
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
