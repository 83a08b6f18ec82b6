//! What Amazon Bedrock refuses on its Converse wire.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::given::{Given, Seen};
use super::super::recorded::Wire;
use super::{answer, is_id, list, text, thinking};

/// Most cache marks in one request.
const CACHE_POINTS_MAX: usize = 4;
/// Longest id of a call, and longest name of a tool.
const NAME_MAX: usize = 64;

/// The reason why `body` would be refused.
pub(super) fn check(model: &str, body: &Value, given: &Given) -> Result<(), String> {
    let messages = list(body, "messages");
    roles(messages)?;
    tools(body, messages)?;
    form(body)?;
    let extra = &body["additionalModelRequestFields"];
    let max_tokens = body["inferenceConfig"]["maxTokens"].as_u64().unwrap_or(u64::MAX);
    thinking::claude(model, &extra["thinking"], &extra["output_config"], max_tokens)?;
    for (at, block) in list(body, "system").iter().enumerate() {
        if block.get("text").is_some() && text(block, "text").trim().is_empty() {
            return Err(format!(
                "The text field in the SystemContentBlock object at system.{at} is blank. Add text to the text field, and try again."
            ));
        }
    }
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let blocks = list(message, "content");
        if blocks.is_empty() {
            return Err(format!(
                "The content field in the Message object at messages.{at} is empty. Add a ContentBlock object to the content field and try again."
            ));
        }
        for (n, block) in blocks.iter().enumerate() {
            content(at, n, text(message, "role"), block)?;
            if let Some(reasoning) = block.get("reasoningContent") {
                signature(at, n, model, reasoning, given)?;
            }
        }
        results(at, blocks, &open)?;
        open = calls(at, blocks, model)?;
    }
    let points =
        count_points(&body["system"]) + count_points(&body["messages"]) + count_points(&body["toolConfig"]["tools"]);
    if points > CACHE_POINTS_MAX {
        return Err(format!(
            "A maximum of {CACHE_POINTS_MAX} blocks with cache_control may be provided. Found {points}."
        ));
    }
    Ok(())
}

fn roles(messages: &[Value]) -> Result<(), String> {
    let mut before = "assistant";
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        if !matches!(role, "user" | "assistant") {
            return Err(format!(
                "1 validation error detected: Value '{role}' at 'messages.{}.member.role' failed to satisfy constraint: Member must satisfy enum value set: [user, assistant]",
                at + 1
            ));
        }
        if at == 0 && role == "assistant" {
            return Err("A conversation must start with a user message. Try again with a conversation that starts with a user message.".to_owned());
        }
        if role == before {
            return Err("A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again.".to_owned());
        }
        before = role;
    }
    match (messages.is_empty(), before) {
        (true, _) => Err("The messages field is empty. Add a user message and try again.".to_owned()),
        (_, "assistant") => Err(
            "The model returned the following errors: This model does not support assistant message prefill. The conversation must end with a user message."
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// The form of the answer; its schema is a text.
fn form(body: &Value) -> Result<(), String> {
    let Some(format) = body.pointer("/outputConfig/textFormat") else { return Ok(()) };
    let schema = format.pointer("/structure/jsonSchema/schema").and_then(Value::as_str);
    let schema = schema.and_then(|schema| serde_json::from_str(schema).ok());
    match (text(format, "type"), schema) {
        ("json_schema", Some(schema)) => answer::claude(&schema),
        _ => Err("1 validation error detected: Value at 'outputConfig.textFormat' failed to satisfy constraint: the schema has to be JSON in a text".to_owned()),
    }
}

fn tools(body: &Value, messages: &[Value]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let tools = body.get("toolConfig").map(|config| list(config, "tools")).unwrap_or_default();
    for (at, tool) in tools.iter().enumerate() {
        let Some(spec) = tool.get("toolSpec") else { continue };
        let name = text(spec, "name");
        if !is_id(name, NAME_MAX) {
            return Err(format!(
                "1 validation error detected: Value '{name}' at 'toolConfig.tools.{}.member.toolSpec.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
                at + 1
            ));
        }
        if !names.insert(name) {
            return Err(format!("The tool config contains duplicate tool names: {name}"));
        }
        if spec.get("description").is_some() && text(spec, "description").is_empty() {
            return Err(format!(
                "1 validation error detected: Value '' at 'toolConfig.tools.{}.member.toolSpec.description' failed to satisfy constraint: Member must have length greater than or equal to 1",
                at + 1
            ));
        }
        let kind = text(&spec["inputSchema"]["json"], "type");
        if kind != "object" {
            return Err(format!(
                "The value at toolConfig.tools.{at}.toolSpec.inputSchema.json.type must be one of the following: object."
            ));
        }
    }
    let is_tools = |block: &Value| block.get("toolUse").is_some() || block.get("toolResult").is_some();
    let used = messages.iter().flat_map(|message| list(message, "content")).any(is_tools);
    if used && names.is_empty() {
        return Err("The toolConfig field must be defined when using toolUse and toolResult content blocks.".to_owned());
    }
    Ok(())
}

fn content(at: usize, n: usize, role: &str, block: &Value) -> Result<(), String> {
    if block.get("text").is_some() && text(block, "text").trim().is_empty() {
        return Err(format!(
            "The text field in the ContentBlock object at messages.{at}.content.{n} is blank. Add text to the text field, and try again."
        ));
    }
    let misplaced = match role {
        "user" => ["toolUse", "reasoningContent"].iter().find(|key| block.get(**key).is_some()),
        _ => ["toolResult", "image", "document"].iter().find(|key| block.get(**key).is_some()),
    };
    if let Some(key) = misplaced {
        return Err(format!(
            "The {key} block at messages.{at}.content.{n} is not allowed in a message of the role {role}."
        ));
    }
    if let Some(result) = block.get("toolResult") {
        let parts = list(result, "content");
        let blank = |part: &Value| part.get("text").is_some() && text(part, "text").is_empty();
        if parts.is_empty() || parts.iter().any(blank) {
            return Err(format!(
                "The content field in the ToolResultBlock object at messages.{at}.content.{n}.toolResult is empty. Add content to it, and try again."
            ));
        }
        if !matches!(text(result, "status"), "" | "success" | "error") {
            return Err(format!(
                "1 validation error detected: Value '{}' at 'messages.{}.member.content.{}.member.toolResult.status' failed to satisfy constraint: Member must satisfy enum value set: [success, error]",
                text(result, "status"),
                at + 1,
                n + 1
            ));
        }
    }
    Ok(())
}

fn calls<'a>(at: usize, blocks: &'a [Value], model: &str) -> Result<Vec<&'a str>, String> {
    let mut open: Vec<&str> = Vec::new();
    for (n, block) in blocks.iter().enumerate() {
        let Some(call) = block.get("toolUse") else { continue };
        let id = text(call, "toolUseId");
        if model.contains("mistral") && !(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            return Err(format!(
                "The model returned the following errors: Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
            ));
        }
        if !is_id(id, NAME_MAX) {
            return Err(format!(
                "1 validation error detected: Value '{id}' at 'messages.{}.member.content.{}.member.toolUse.toolUseId' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
                at + 1,
                n + 1
            ));
        }
        if open.contains(&id) {
            return Err(format!("The toolUse blocks at messages.{at}.content contain duplicate Ids: {id}"));
        }
        if !is_id(text(call, "name"), NAME_MAX) {
            return Err(format!(
                "1 validation error detected: Value '{}' at 'messages.{}.member.content.{}.member.toolUse.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
                text(call, "name"),
                at + 1,
                n + 1
            ));
        }
        if !call["input"].is_object() {
            return Err(format!(
                "The format of the value at messages.{at}.content.{n}.toolUse.input is invalid. Provide a json object for the field and try again."
            ));
        }
        open.push(id);
    }
    Ok(open)
}

fn results(at: usize, blocks: &[Value], open: &[&str]) -> Result<(), String> {
    let given: Vec<&str> =
        blocks.iter().filter_map(|block| block.get("toolResult")).map(|result| text(result, "toolUseId")).collect();
    if given.len() > open.len() || given.iter().any(|id| !open.contains(id)) {
        return Err(format!(
            "The number of toolResult blocks at messages.{at}.content exceeds the number of toolUse blocks of previous turn."
        ));
    }
    let distinct: BTreeSet<&str> = given.iter().copied().collect();
    if distinct.len() < given.len() {
        return Err(format!("The toolResult blocks at messages.{at}.content contain duplicate Ids."));
    }
    let missing: Vec<&str> = open.iter().copied().filter(|id| !distinct.contains(id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("Expected toolResult blocks at messages.{at}.content for the following Ids: {}", missing.join(", ")))
}

/// Claude checks its reasoning; others take none that is signed.
fn signature(at: usize, n: usize, model: &str, reasoning: &Value, given: &Given) -> Result<(), String> {
    let claude = model.contains("anthropic.") || model.contains("claude");
    let (field, kind, mark, of) = match reasoning.get("reasoningText") {
        Some(shown) => ("signature", "thinking", text(shown, "signature"), text(shown, "text")),
        None => ("data", "redacted_thinking", text(reasoning, "redactedContent"), ""),
    };
    if !claude && mark.is_empty() {
        return Ok(());
    }
    if !claude && field == "signature" {
        return Err("This model doesn't support the reasoningContent.reasoningText.signature field. Remove reasoningContent.reasoningText.signature and try again.".to_owned());
    }
    match given.seen(Wire::Bedrock, model, mark, of) {
        Seen::Right => Ok(()),
        Seen::Foreign => Err(format!(
            "The model returned the following errors: messages.{at}.content.{n}: Invalid `{field}` in `{kind}` block"
        )),
        Seen::Moved => Err(format!(
            "The model returned the following errors: messages.{at}.content.{n}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."
        )),
    }
}

fn count_points(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match key.as_str() {
                "cachePoint" => 1,
                // What the model or a tool wrote is data, whatever it looks like.
                "input" | "inputSchema" => 0,
                _ => count_points(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_points).sum(),
        _ => 0,
    }
}
