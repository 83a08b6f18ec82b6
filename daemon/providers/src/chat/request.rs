//! Writes the body of a Chat Completions request in the dialect of its server.

use mcode_events::message::Part;
use mcode_events::run::ThinkingLevel;
use mcode_models::{ModelRequest, PromptMessage, ThinkingForm, ToolAnswer};
use serde_json::{Map, Value, json};

use super::dialect::{AnswerForm, Dialect, Replay};
use crate::answer;
use crate::effort;
use crate::ids::{IdMap, tool_name};
use crate::media::PreparedMedia;
use crate::prompt::{self, Medium};

/// Marks that go to messages of the user, where the server takes them.
const MESSAGE_MARKS: usize = 2;
/// Stands between an answer of a tool and words of the user where a server wants the model in between.
const BETWEEN: &str = "I have the results.";

/// The body. `left_out` are fields that the configuration or the server does not want.
pub(crate) fn body(request: &ModelRequest, media: &PreparedMedia, dialect: &Dialect, left_out: &[String]) -> Value {
    let is_out = |field: &str| left_out.iter().any(|out| out == field);
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model.model));
    body.insert("messages".into(), Value::Array(messages(request, media, dialect)));
    let tools: Vec<Value> = prompt::tools(request)
        .into_iter()
        .map(|tool| {
            json!({"type": "function", "function":
                {"name": tool_name(&tool.name), "description": tool.description, "parameters": tool.schema}})
        })
        .collect();
    if !tools.is_empty() {
        if dialect.tool_stream {
            body.insert("tool_stream".into(), json!(true));
        }
        body.insert("tools".into(), Value::Array(tools));
    }
    body.insert("stream".into(), json!(true));
    if dialect.stream_options {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if request.info.known || request.max_output_tokens.is_some() {
        // A server that does not know the one name usually knows the other.
        let new_name = dialect.max_completion_tokens != is_out(limit_field(dialect.max_completion_tokens));
        body.insert(limit_field(new_name).into(), json!(prompt::max_output_tokens(request)));
    }
    if dialect.cache_key && !request.cache_key.is_empty() {
        body.insert("prompt_cache_key".into(), json!(request.cache_key));
    }
    if let Some(level) = request.thinking {
        add_thinking(&mut body, request, dialect, level);
    }
    let form = match dialect.answer {
        AnswerForm::None => None,
        AnswerForm::WithoutTools if body.contains_key("tools") => None,
        AnswerForm::WithoutTools | AnswerForm::Always => answer::wanted(request, left_out).and_then(answer::openai),
    };
    if let Some((schema, strict)) = form {
        let schema = json!({"name": answer::NAME, "schema": schema, "strict": strict});
        body.insert("response_format".into(), json!({"type": "json_schema", "json_schema": schema}));
    }
    for field in left_out {
        body.shift_remove(field);
        // Fields of messages, such as `reasoning_content`; the roles and contents themselves stay.
        if let Some(Value::Array(messages)) = body.get_mut("messages").filter(|_| field.starts_with("reasoning_")) {
            messages.iter_mut().filter_map(Value::as_object_mut).for_each(|message| {
                message.shift_remove(field);
            });
        }
    }
    Value::Object(body)
}

const fn limit_field(new_name: bool) -> &'static str {
    if new_name { "max_completion_tokens" } else { "max_tokens" }
}

fn add_thinking(body: &mut Map<String, Value>, request: &ModelRequest, dialect: &Dialect, level: ThinkingLevel) {
    let off = level == ThinkingLevel::Off;
    match request.info.thinking {
        ThinkingForm::Effort => {
            body.insert("reasoning_effort".into(), json!(effort(dialect, request, level)));
        }
        ThinkingForm::Toggle => {
            let mut thinking = json!({"type": if off { "disabled" } else { "enabled" }});
            if matches!(dialect.name, "zai" | "zhipu") && !off {
                thinking["clear_thinking"] = json!(false);
            }
            if dialect.name == "moonshot" && !off {
                thinking["keep"] = json!("all");
            }
            body.insert("thinking".into(), thinking);
        }
        ThinkingForm::EnableThinking => {
            body.insert("enable_thinking".into(), json!(!off));
        }
        ThinkingForm::OpenRouter => {
            let reasoning =
                if off { json!({"enabled": false}) } else { json!({"effort": effort(dialect, request, level)}) };
            body.insert("reasoning".into(), reasoning);
        }
        _ => {}
    }
}

/// The word for an effort. Servers differ at both ends of the scale.
fn effort(dialect: &Dialect, request: &ModelRequest, level: ThinkingLevel) -> &'static str {
    if dialect.name == "openai" || !request.info.efforts.is_empty() {
        return effort::word(request, level);
    }
    match level {
        ThinkingLevel::Off if request.model.model.contains("gpt-oss") => "low",
        ThinkingLevel::Off => dialect.effort_off,
        // Mistral knows only none and high; Kimi K3 knows no medium.
        _ if dialect.name == "mistral" => "high",
        ThinkingLevel::Low => "low",
        ThinkingLevel::Medium if dialect.name == "moonshot" => "high",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Xhigh => dialect.effort_max,
    }
}

/// A message before it is written: parts of the user can still be joined.
enum Draft {
    User(Vec<Value>),
    Tool(Value),
    Other(Value),
}

fn messages(request: &ModelRequest, media: &PreparedMedia, dialect: &Dialect) -> Vec<Value> {
    let marks = dialect.cache_marks_for.is_some_and(|prefix| request.model.model.starts_with(prefix));
    let mut ids = IdMap::new(dialect.ids);
    let mut drafts: Vec<Draft> = Vec::with_capacity(request.messages.len() + 2);
    for message in &request.messages {
        match message {
            PromptMessage::User(parts) => add_user(&mut drafts, user_parts(request, media, parts), dialect),
            PromptMessage::Assistant { parts, origin } => {
                let own = prompt::is_own(request, origin.as_ref());
                let own_ids = prompt::is_own_provider(request, origin.as_ref());
                if let Some(written) = assistant(request, dialect, parts, own, own_ids, &mut ids) {
                    if drafts.is_empty() {
                        drafts.push(Draft::User(vec![json!({"type": "text", "text": prompt::CONTINUE})]));
                    }
                    drafts.push(Draft::Other(written));
                }
            }
            PromptMessage::Tools(answers) => {
                let mut pictures = Vec::new();
                for answer in answers {
                    drafts.push(Draft::Tool(tool_message(request, media, answer, &mut ids, &mut pictures)));
                }
                add_user(&mut drafts, pictures, dialect);
            }
        }
    }
    let mut written: Vec<Value> = Vec::with_capacity(drafts.len() + 1);
    if let Some(system) = system(request, dialect, marks) {
        written.push(system);
    }
    let users = drafts.iter().filter(|draft| matches!(draft, Draft::User(_))).count();
    let mut seen = 0;
    for draft in drafts {
        written.push(match draft {
            Draft::User(parts) => {
                seen += 1;
                user_message(parts, marks && seen + MESSAGE_MARKS > users)
            }
            Draft::Tool(message) | Draft::Other(message) => message,
        });
    }
    written
}

fn system(request: &ModelRequest, dialect: &Dialect, marks: bool) -> Option<Value> {
    let texts: Vec<&str> =
        request.system.iter().map(|part| part.text.as_str()).filter(|text| !text.trim().is_empty()).collect();
    if texts.is_empty() {
        return None;
    }
    let thinks = request.info.thinking != ThinkingForm::None;
    let role = if dialect.developer_role && thinks { "developer" } else { "system" };
    let text = texts.join("\n\n");
    Some(if marks {
        json!({"role": role, "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]})
    } else {
        json!({"role": role, "content": text})
    })
}

fn add_user(drafts: &mut Vec<Draft>, parts: Vec<Value>, dialect: &Dialect) {
    if parts.is_empty() {
        return;
    }
    match drafts.last_mut() {
        Some(Draft::User(before)) => before.extend(parts),
        Some(Draft::Tool(_)) if dialect.assistant_after_tools => {
            drafts.push(Draft::Other(json!({"role": "assistant", "content": BETWEEN})));
            drafts.push(Draft::User(parts));
        }
        _ => drafts.push(Draft::User(parts)),
    }
}

/// Plain text goes as a string, which every server takes; parts only where they are needed.
fn user_message(mut parts: Vec<Value>, mark: bool) -> Value {
    if mark {
        if let Some(last) = parts.last_mut().and_then(Value::as_object_mut) {
            last.insert("cache_control".into(), json!({"type": "ephemeral"}));
        }
        return json!({"role": "user", "content": parts});
    }
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect();
    match texts {
        Some(texts) => json!({"role": "user", "content": texts.join("\n\n")}),
        None => json!({"role": "user", "content": parts}),
    }
}

fn user_parts(request: &ModelRequest, media: &PreparedMedia, parts: &[Part]) -> Vec<Value> {
    parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } if !text.trim().is_empty() => Some(json!({"type": "text", "text": text})),
            Part::Media { blob, name } => Some(medium_part(request, media, &blob.hash, name)),
            _ => None,
        })
        .collect()
}

fn medium_part(request: &ModelRequest, media: &PreparedMedia, hash: &str, name: &str) -> Value {
    match prompt::medium(request, media, hash, name, false) {
        Medium::Note(note) => json!({"type": "text", "text": note}),
        Medium::Shown(shown) => json!({"type": "image_url", "image_url": {"url": shown.data_url()}}),
    }
}

fn assistant(
    request: &ModelRequest,
    dialect: &Dialect,
    parts: &[Part],
    own: bool,
    own_ids: bool,
    ids: &mut IdMap,
) -> Option<Value> {
    let (mut text, mut thinking) = (String::new(), String::new());
    let (mut details, mut calls) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text { text: more, .. } => text.push_str(more),
            Part::Thinking { text: more, opaque } if own => {
                thinking.push_str(more);
                details.extend(details_of(opaque.as_ref().map(|opaque| &opaque.0)));
            }
            Part::RedactedThinking { opaque } if own => details.extend(details_of(Some(&opaque.0))),
            Part::ToolCall { tool_call_id, provider_call_id, name, arguments, opaque } => {
                let id = ids.id(*tool_call_id, provider_call_id, own_ids);
                let arguments = match arguments {
                    Value::Object(_) => arguments.to_string(),
                    other => json!({"invalid_arguments": other}).to_string(),
                };
                let mut call = json!({"id": id, "type": "function",
                    "function": {"name": tool_name(name), "arguments": arguments}});
                let extra = opaque.as_ref().and_then(|opaque| opaque.0.get("extra_content")).filter(|_| own);
                if let Some(extra) = extra {
                    call["extra_content"] = extra.clone();
                }
                calls.push(call);
            }
            _ => {}
        }
    }
    if text.trim().is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = json!({"role": "assistant", "content": if text.is_empty() { Value::Null } else { json!(text) }});
    replay(&mut message, request, dialect, &text, &thinking, details);
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    Some(message)
}

fn replay(
    message: &mut Value,
    request: &ModelRequest,
    dialect: &Dialect,
    text: &str,
    thinking: &str,
    details: Vec<Value>,
) {
    match dialect.replay {
        Replay::ReasoningContent if !thinking.is_empty() => message["reasoning_content"] = json!(thinking),
        Replay::ReasoningContentAlways if request.info.thinking != ThinkingForm::None => {
            message["reasoning_content"] = json!(thinking);
        }
        Replay::Details if !details.is_empty() => message["reasoning_details"] = Value::Array(details),
        Replay::ContentPart if !thinking.is_empty() => {
            let mut content =
                vec![json!({"type": "thinking", "thinking": [{"type": "text", "text": thinking}], "closed": true})];
            if !text.is_empty() {
                content.push(json!({"type": "text", "text": text}));
            }
            message["content"] = Value::Array(content);
        }
        _ => {}
    }
}

fn details_of(opaque: Option<&Value>) -> Vec<Value> {
    opaque.and_then(|opaque| opaque.get("reasoning_details")).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The wire has no mark for a failed tool and takes only text: the failure is said in the text, and pictures follow
/// in a message of the user.
fn tool_message(
    request: &ModelRequest,
    media: &PreparedMedia,
    answer: &ToolAnswer,
    ids: &mut IdMap,
    pictures: &mut Vec<Value>,
) -> Value {
    let id = ids.id(answer.tool_call_id, &answer.provider_call_id, true);
    let mut text = answer.text.clone();
    if answer.is_error && !text.to_ascii_lowercase().starts_with("error") {
        text.insert_str(0, "Error: ");
    }
    for (blob, name) in &answer.media {
        let part = medium_part(request, media, &blob.hash, name);
        if let Some(note) = part.get("text").and_then(Value::as_str) {
            text.push('\n');
            text.push_str(note);
        } else {
            let label = if name.is_empty() { "picture" } else { name };
            pictures.push(json!({"type": "text", "text": format!("({label}, from the tool {})", answer.name)}));
            pictures.push(part);
        }
    }
    if text.trim().is_empty() {
        "(the result is the picture below)".clone_into(&mut text);
    }
    json!({"role": "tool", "tool_call_id": id, "content": text.trim_start_matches('\n')})
}

#[cfg(test)]
mod tests;
