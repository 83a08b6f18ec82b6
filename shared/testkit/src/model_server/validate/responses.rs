//! What OpenAI refuses on its Responses wire.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::given::{Given, Seen};
use super::super::recorded::Wire;
use super::{answer, is_id, is_id_byte, list, text, thinking};

/// Longest id, of an item or a call.
const ID_MAX: usize = 64;

/// Fields that belong to the Chat wire, and what they are called here.
const MOVED: &[(&str, &str)] =
    &[("messages", "input"), ("max_tokens", "max_output_tokens"), ("max_completion_tokens", "max_output_tokens")];

/// The reason why `body` would be refused.
pub(super) fn check(body: &Value, given: &Given) -> Result<(), String> {
    if let Some((old, new)) = MOVED.iter().find(|(old, _)| body.get(old).is_some()) {
        return Err(format!(
            "Unsupported parameter: '{old}'. In the Responses API, this parameter has moved to '{new}'."
        ));
    }
    let model = text(body, "model");
    if model.is_empty() {
        return Err("Missing required parameter: 'model'.".to_owned());
    }
    tools(body)?;
    thinking::effort(model, body.pointer("/reasoning/effort"))?;
    if body.get("response_format").is_some() {
        return Err("Unsupported parameter: 'response_format'. In the Responses API, this parameter has moved to 'text.format'.".to_owned());
    }
    if let Some(format) = body.pointer("/text/format") {
        match text(format, "type") {
            "json_schema" => answer::openai(format, "text.format")?,
            "json_object" | "text" => {}
            kind => return Err(format!("Invalid value: '{kind}'. (text.format.type)")),
        }
    }
    let items = match body.get("input") {
        Some(Value::String(input)) if !input.is_empty() => return Ok(()),
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ => return Err("One of 'input' or 'previous_response_id' must be provided.".to_owned()),
    };
    for (at, item) in items.iter().enumerate() {
        shape(at, item)?;
    }
    pairs(items)?;
    for (at, item) in items.iter().enumerate() {
        reasoning(at, items, model, given)?;
        led(&items[..at], item, given)?;
    }
    stored(body, items)
}

fn tools(body: &Value) -> Result<(), String> {
    for (at, tool) in list(body, "tools").iter().enumerate() {
        if !matches!(text(tool, "type"), "function" | "custom") {
            continue;
        }
        let name = text(tool, "name");
        if !is_id(name, 128) {
            return Err(format!(
                "Invalid 'tools[{at}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ));
        }
        if text(tool, "type") == "custom" {
            continue;
        }
        let schema = tool.get("parameters").unwrap_or(&Value::Null);
        if text(schema, "type") != "object" {
            return Err(format!(
                "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{}\"'.",
                schema.get("type").and_then(Value::as_str).unwrap_or("None")
            ));
        }
        // Strict is what the server assumes.
        let strict = tool.get("strict").is_none_or(|strict| strict != false);
        if strict && schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err(format!(
                "Invalid schema for function '{name}': In context=(), 'additionalProperties' is required to be supplied and to be false."
            ));
        }
    }
    Ok(())
}

/// What an id of such an item begins with.
fn prefix(kind: &str) -> Option<&'static str> {
    match kind {
        "message" => Some("msg"),
        "reasoning" => Some("rs"),
        "function_call" => Some("fc"),
        "custom_tool_call" => Some("ctc"),
        _ => None,
    }
}

fn kind(item: &Value) -> &str {
    match text(item, "type") {
        "" if item.get("role").is_some() => "message",
        kind => kind,
    }
}

/// One item by itself.
fn shape(at: usize, item: &Value) -> Result<(), String> {
    let kind = kind(item);
    if let Some(prefix) = prefix(kind) {
        item_id(at, item, prefix)?;
    }
    match kind {
        "message" => message(at, item),
        "function_call" | "custom_tool_call" => {
            call_id(at, item)?;
            if !is_id(text(item, "name"), 128) {
                return Err(format!(
                    "Invalid 'input[{at}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
                ));
            }
            let field = if kind == "function_call" { "arguments" } else { "input" };
            if item.get(field).is_some_and(Value::is_string) {
                return Ok(());
            }
            Err(format!("Invalid type for 'input[{at}].{field}': expected a string."))
        }
        "function_call_output" | "custom_tool_call_output" => {
            call_id(at, item)?;
            match item.get("output") {
                Some(Value::String(output)) if !output.is_empty() => Ok(()),
                Some(Value::Array(parts)) if !parts.is_empty() => texts(at, "output", parts),
                Some(Value::String(_) | Value::Array(_)) => {
                    Err(format!("Invalid 'input[{at}].output': content must be non-empty"))
                }
                _ => Err(format!("Missing required parameter: 'input[{at}].output'.")),
            }
        }
        "reasoning" if !item.get("summary").is_some_and(Value::is_array) => {
            Err(format!("Missing required parameter: 'input[{at}].summary'."))
        }
        "" => Err(format!("Missing required parameter: 'input[{at}].type'.")),
        _ => Ok(()),
    }
}

fn item_id(at: usize, item: &Value, prefix: &str) -> Result<(), String> {
    let id = match item.get("id") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(id)) => id.as_str(),
        Some(_) => return Err(format!("Invalid type for 'input[{at}].id': expected a string.")),
    };
    if id.len() > ID_MAX {
        return Err(format!(
            "Invalid 'input[{at}].id': string too long. Expected a string with maximum length {ID_MAX}, but got a string with length {} instead.",
            id.len()
        ));
    }
    if !id.bytes().all(is_id_byte) {
        return Err(format!(
            "Invalid 'input[{at}].id': '{id}'. Expected an ID that contains letters, numbers, underscores, or dashes, but this value contained additional characters."
        ));
    }
    if !id.starts_with(&format!("{prefix}_")) {
        return Err(format!("Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{prefix}'."));
    }
    Ok(())
}

fn call_id(at: usize, item: &Value) -> Result<(), String> {
    let id = text(item, "call_id");
    if (1..=ID_MAX).contains(&id.len()) {
        return Ok(());
    }
    Err(format!(
        "Invalid 'input[{at}].call_id': Expected a string with a length of 1 to {ID_MAX}, but got a string with length {} instead.",
        id.len()
    ))
}

fn message(at: usize, item: &Value) -> Result<(), String> {
    let role = text(item, "role");
    let fitting: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        "user" | "system" | "developer" => &["input_text", "input_image", "input_file"],
        _ => {
            return Err(format!(
                "Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'. (input[{at}].role)"
            ));
        }
    };
    match item.get("content") {
        Some(Value::String(content)) if !content.is_empty() => Ok(()),
        Some(Value::Array(parts)) if !parts.is_empty() => {
            if let Some(part) = parts.iter().find(|part| !fitting.contains(&text(part, "type"))) {
                return Err(format!(
                    "Invalid value: '{}'. Supported values are: '{}'. (input[{at}].content)",
                    text(part, "type"),
                    fitting.join("', '")
                ));
            }
            texts(at, "content", parts)
        }
        _ => Err(format!("Invalid 'input[{at}].content': content must be non-empty")),
    }
}

fn texts(at: usize, field: &str, parts: &[Value]) -> Result<(), String> {
    let is_empty = |part: &Value| text(part, "type").ends_with("_text") && text(part, "text").is_empty();
    match parts.iter().position(is_empty) {
        None => Ok(()),
        Some(n) => Err(format!(
            "Invalid 'input[{at}].{field}[{n}].text': empty string. Expected a string with minimum length 1, but got an empty string instead."
        )),
    }
}

/// Every call has one output, after it.
fn pairs(items: &[Value]) -> Result<(), String> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    let mut ids = BTreeSet::new();
    for item in items {
        let id = text(item, "id");
        if !id.is_empty() && !ids.insert(id) {
            return Err(format!(
                "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
            ));
        }
        let call = text(item, "call_id");
        match kind(item) {
            kind @ ("function_call" | "custom_tool_call") => {
                if open.iter().any(|(_, known)| *known == call) {
                    return Err(format!("Duplicate call_id {call} in the input."));
                }
                open.push((kind, call));
            }
            kind @ ("function_call_output" | "custom_tool_call_output") => {
                let wanted = kind.trim_end_matches("_output");
                let Some(found) = open.iter().position(|one| *one == (wanted, call)) else {
                    let what = if wanted == "function_call" { "function call" } else { "custom tool call" };
                    return Err(format!("No tool call found for {what} output with call_id {call}."));
                };
                open.remove(found);
            }
            // What was called has to be answered before anybody says more.
            "message" if text(item, "role") == "user" && !open.is_empty() => break,
            _ => {}
        }
    }
    match open.first() {
        None => Ok(()),
        Some(("custom_tool_call", call)) => Err(format!("No tool output found for custom tool call {call}.")),
        Some((_, call)) => Err(format!("No tool output found for function call {call}.")),
    }
}

/// Nothing is stored here: items come whole, and the request says that it knows.
fn stored(body: &Value, items: &[Value]) -> Result<(), String> {
    let not_found = |id: &str| {
        Err(format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
        ))
    };
    for item in items {
        let id = text(item, "id");
        let by_name = kind(item) == "item_reference";
        let unreadable = kind(item) == "reasoning" && text(item, "encrypted_content").is_empty();
        if by_name || unreadable {
            return not_found(id);
        }
        if !id.is_empty() && body.get("store") != Some(&Value::Bool(false)) {
            return not_found(id);
        }
    }
    Ok(())
}

/// Reasoning comes back as it was given, with what it led to.
fn reasoning(at: usize, items: &[Value], model: &str, given: &Given) -> Result<(), String> {
    let item = &items[at];
    if kind(item) != "reasoning" {
        return Ok(());
    }
    let (id, encrypted) = (text(item, "id"), text(item, "encrypted_content"));
    // What has no content is a reference, and looked for elsewhere.
    if !encrypted.is_empty() && given.seen(Wire::Responses, model, encrypted, id) != Seen::Right {
        let shown: String = encrypted.chars().take(8).collect();
        return Err(format!(
            "The encrypted content {shown}... could not be verified. Reason: Encrypted content could not be decrypted or parsed."
        ));
    }
    let follower = items[at + 1..].iter().find(|item| kind(item) != "reasoning");
    let follows = follower.is_some_and(|item| match kind(item) {
        "message" => text(item, "role") == "assistant" && !text(item, "id").is_empty(),
        kind => kind.ends_with("_call"),
    });
    if follows {
        return Ok(());
    }
    Err(format!("Item '{id}' of type 'reasoning' was provided without its required following item."))
}

/// An item that came after reasoning comes back after it.
fn led(before: &[Value], item: &Value, given: &Given) -> Result<(), String> {
    let id = text(item, "id");
    let Some(leader) = given.leader(id) else { return Ok(()) };
    let previous = before.iter().rev().take_while(|item| kind(item) == "reasoning");
    if previous.into_iter().any(|item| text(item, "id") == leader) {
        return Ok(());
    }
    Err(format!("Item '{id}' of type '{}' was provided without its required 'reasoning' item: '{leader}'.", kind(item)))
}
