//! What Google refuses on the Gemini wire.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::given::{Given, Seen};
use super::super::recorded::Wire;
use super::super::render::gemini::{is_gemini_3, vouched};
use super::{answer, list, text, thinking};

/// In the place of a signature, for calls that another model made; Google documents it.
const NOT_SIGNED: &str = "skip_thought_signature_validator";

/// Fields of a request.
const FIELDS: &[&str] = &[
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
];

/// What a part may be.
const DATA: &[&str] =
    &["text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"];

/// The reason why `body` would be refused.
pub(super) fn check(model: &str, body: &Value, given: &Given) -> Result<(), String> {
    for key in body.as_object().into_iter().flat_map(|fields| fields.keys()) {
        if !FIELDS.contains(&key.as_str()) {
            return Err(format!("Invalid JSON payload received. Unknown name \"{key}\": Cannot find field."));
        }
    }
    let contents = list(body, "contents");
    if contents.is_empty() {
        return Err("* GenerateContentRequest.contents: contents is not specified\n".to_owned());
    }
    declarations(body)?;
    form(model, body)?;
    let config = &body["generationConfig"]["thinkingConfig"];
    if config.get("thinkingBudget").is_some() && config.get("thinkingLevel").is_some() {
        return Err("You can only set only one of thinking budget and thinking level.".to_owned());
    }
    thinking::gemini(model, config)?;
    roles(contents)?;
    for (at, content) in contents.iter().enumerate() {
        parts(at, content, model, given)?;
        answers(at, contents)?;
    }
    if is_gemini_3(model) { signed(contents) } else { Ok(()) }
}

/// The form of the answer.
fn form(model: &str, body: &Value) -> Result<(), String> {
    let generation = &body["generationConfig"];
    let json = text(generation, "responseMimeType") == "application/json";
    let schemas = ["responseJsonSchema", "responseSchema"].map(|field| generation.get(field));
    if schemas.iter().all(Option::is_some) {
        return Err("Only one of response_schema and response_json_schema may be set.".to_owned());
    }
    let Some(schema) = schemas.into_iter().flatten().next() else { return Ok(()) };
    if !json {
        return Err("Response schema is only supported with a response mime type of 'application/json'.".to_owned());
    }
    if !list(body, "tools").is_empty() && !is_gemini_3(model) {
        return Err("Function calling with a response mime type: 'application/json' is unsupported".to_owned());
    }
    answer::gemini(schema)
}

fn declarations(body: &Value) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let all = list(body, "tools").iter().flat_map(|tool| list(tool, "functionDeclarations"));
    for (at, declaration) in all.enumerate() {
        let name = text(declaration, "name");
        if !is_name(name) {
            return Err(format!(
                "* GenerateContentRequest.tools[0].function_declarations[{at}].name: [FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
            ));
        }
        if !names.insert(name) {
            return Err(format!("Duplicate function declaration found: {name}"));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-'));
    first && rest && name.len() <= 64
}

fn roles(contents: &[Value]) -> Result<(), String> {
    let mut before = "model";
    for content in contents {
        let role = text(content, "role");
        if !matches!(role, "user" | "model") {
            return Err("Please use a valid role: user, model.".to_owned());
        }
        if role == before {
            return Err("Please ensure that multiturn requests alternate between user and model.".to_owned());
        }
        before = role;
    }
    if before == "model" {
        return Err("Please ensure that multiturn requests end with a user role or a function response.".to_owned());
    }
    Ok(())
}

fn parts(at: usize, content: &Value, model: &str, given: &Given) -> Result<(), String> {
    let parts = list(content, "parts");
    if parts.is_empty() {
        return Err(format!("* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.\n"));
    }
    let is_model = text(content, "role") == "model";
    for (n, part) in parts.iter().enumerate() {
        let place = format!("contents[{at}].parts[{n}]");
        if DATA.iter().filter(|key| part.get(**key).is_some()).count() != 1 {
            return Err(format!(
                "* GenerateContentRequest.{place}.data: required oneof field 'data' must have one initialized field\n"
            ));
        }
        let signature = text(part, "thoughtSignature");
        if part.get("text").is_some() && text(part, "text").is_empty() && signature.is_empty() {
            return Err("Unable to submit request because it has an empty text parameter. Add a value to the parameter and try again.".to_owned());
        }
        if part.get("functionCall").is_some() {
            if !is_model {
                return Err("Please ensure that function call turn comes immediately after a user turn or after a function response turn.".to_owned());
            }
            if !is_name(text(&part["functionCall"], "name")) || !part["functionCall"]["args"].is_object() {
                return Err(format!("Invalid value at '{place}.function_call'"));
            }
        }
        if let Some(response) = part.get("functionResponse")
            && (is_model || !is_name(text(response, "name")) || !response["response"].is_object())
        {
            return Err(format!(
                "* GenerateContentRequest.{place}.function_response.name: Name cannot be empty, and the response has to be an object of the user's.\n"
            ));
        }
        if !signature.is_empty()
            && signature != NOT_SIGNED
            && given.seen(Wire::Gemini, model, signature, &vouched(part)) != Seen::Right
        {
            return Err(format!("Thought signature is not valid. ({place})"));
        }
    }
    Ok(())
}

/// The answers to a turn's calls: as many, by the same names and ids, before anything else.
fn answers(at: usize, contents: &[Value]) -> Result<(), String> {
    let of = |content: &'static str, at: usize| {
        let parts = contents.get(at).map(|content| list(content, "parts")).unwrap_or_default();
        parts.iter().filter_map(move |part| part.get(content)).collect::<Vec<_>>()
    };
    let given = of("functionResponse", at);
    let wanted = if at == 0 { Vec::new() } else { of("functionCall", at - 1) };
    if given.len() != wanted.len() {
        return Err("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.".to_owned());
    }
    for (response, call) in given.iter().zip(&wanted) {
        let id_fits = response.get("id").is_none() || response.get("id") == call.get("id");
        if text(response, "name") != text(call, "name") || !id_fits {
            return Err(format!(
                "Please ensure that the function response '{}' matches the function call '{}' of the function call turn.",
                text(response, "name"),
                text(call, "name")
            ));
        }
    }
    let parts = list(&contents[at], "parts");
    if parts[..given.len()].iter().any(|part| part.get("functionResponse").is_none()) {
        return Err("Please ensure that function response parts come first in the turn after the function call turn."
            .to_owned());
    }
    Ok(())
}

/// The first call of each step of the current turn has its signature.
fn signed(contents: &[Value]) -> Result<(), String> {
    let begins_turn = |content: &Value| {
        text(content, "role") == "user"
            && list(content, "parts").iter().all(|part| part.get("functionResponse").is_none())
    };
    let from = contents.iter().rposition(begins_turn).unwrap_or(0);
    for (at, content) in contents.iter().enumerate().skip(from) {
        let calls = list(content, "parts").iter().filter(|part| part.get("functionCall").is_some());
        if let Some(first) = calls.into_iter().next()
            && text(first, "thoughtSignature").is_empty()
        {
            return Err(format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{}`, position {at}.",
                text(&first["functionCall"], "name")
            ));
        }
    }
    Ok(())
}
