//! Makes a stored history fit to be sent: every call answered, nothing empty, opaque data kept with its maker.
//!
//! The functions are total and pure: any list of entries, however cut, gives messages that every wire accepts. What
//! depends on the target (ids, roles, foreign opaque data) is left to the wires.

mod ease;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use mcode_events::ease::Ease;
use mcode_events::message::{Message, Part, Role};
use mcode_events::state::Entry;
use mcode_events::tool::{ResultPart, ToolCallStatus, ToolResult};
use mcode_ids::ToolCallId;

pub use self::ease::{LEFT_OUT, NO_PICTURE, has_pictures, smaller};
use crate::request::{ModelRequest, PromptMessage, ToolAnswer};

/// What the model is told of a call whose result was never recorded.
pub const INTERRUPTED: &str = "This call was interrupted and gave no result. It may have had effects.";
/// What the model is told when a tool succeeded without a word.
pub const NO_OUTPUT: &str = "(no output)";

/// The messages of a prompt from what was said, in order.
///
/// Every tool call is answered exactly once, directly after its message and in call order; a call without a result
/// gets an error that says so, and a result without a call is left out. Empty texts and messages are left out and
/// consecutive messages of the user are joined. What `ease` leaves out is left out.
#[must_use]
pub fn prompt_messages(history: &[Arc<Entry>], ease: &Ease) -> Vec<PromptMessage> {
    let history = ease::applied(history, ease);
    let results = results_by_call(&history);
    let mut seen = HashSet::new();
    let mut messages: Vec<PromptMessage> = Vec::with_capacity(history.len());
    for entry in history.iter() {
        let Entry::Message { message, .. } = entry.as_ref() else { continue };
        match message.role {
            Role::User => push_user(&mut messages, message),
            Role::Assistant => push_assistant(&mut messages, message, &results, &mut seen),
        }
    }
    messages
}

type Results<'a> = HashMap<ToolCallId, (&'a str, &'a ToolResult)>;

fn results_by_call(history: &[Arc<Entry>]) -> Results<'_> {
    let mut results = HashMap::new();
    for entry in history {
        if let Entry::ToolResult { name, result } = entry.as_ref() {
            results.entry(result.tool_call_id).or_insert((name.as_str(), result));
        }
    }
    results
}

fn push_user(messages: &mut Vec<PromptMessage>, message: &Message) {
    let parts: Vec<Part> = message.parts.iter().filter(|part| is_users(part)).cloned().collect();
    if parts.is_empty() {
        return;
    }
    if let Some(PromptMessage::User(before)) = messages.last_mut() {
        before.extend(parts);
    } else {
        messages.push(PromptMessage::User(parts));
    }
}

fn is_users(part: &Part) -> bool {
    match part {
        Part::Text { text, .. } => !text.trim().is_empty(),
        Part::Media { .. } => true,
        _ => false,
    }
}

fn push_assistant(
    messages: &mut Vec<PromptMessage>,
    message: &Message,
    results: &Results<'_>,
    seen: &mut HashSet<ToolCallId>,
) {
    let mut parts = Vec::with_capacity(message.parts.len());
    let mut answers = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text, .. } if text.trim().is_empty() => continue,
            Part::Thinking { text, opaque: None } if text.trim().is_empty() => continue,
            Part::Media { .. } => continue,
            Part::ToolCall { tool_call_id, provider_call_id, name, .. } => {
                if !seen.insert(*tool_call_id) {
                    continue;
                }
                answers.push(answer(*tool_call_id, provider_call_id, name, results.get(tool_call_id)));
            }
            _ => {}
        }
        parts.push(part.clone());
    }
    // A message of nothing but reasoning belongs to an answer that never came; no provider takes it alone.
    let only_reasoning = parts.iter().all(|part| matches!(part, Part::Thinking { .. } | Part::RedactedThinking { .. }));
    if only_reasoning {
        return;
    }
    messages.push(PromptMessage::Assistant { parts, origin: message.origin.clone() });
    if !answers.is_empty() {
        messages.push(PromptMessage::Tools(answers));
    }
}

fn answer(
    tool_call_id: ToolCallId,
    provider_call_id: &str,
    name: &str,
    result: Option<&(&str, &ToolResult)>,
) -> ToolAnswer {
    let mut answer = ToolAnswer {
        tool_call_id,
        provider_call_id: provider_call_id.to_owned(),
        name: name.to_owned(),
        text: INTERRUPTED.to_owned(),
        media: Vec::new(),
        is_error: true,
    };
    let Some((_, result)) = result else { return answer };
    answer.is_error = result.status != ToolCallStatus::Done;
    answer.text = result.joined_text();
    for part in &result.content {
        if let ResultPart::Media { blob, name } = part {
            answer.media.push((blob.clone(), name.clone()));
        }
    }
    if answer.text.trim().is_empty() {
        answer.text = match result.status {
            ToolCallStatus::Done if !answer.media.is_empty() => String::new(),
            ToolCallStatus::Done => NO_OUTPUT.to_owned(),
            ToolCallStatus::Interrupted => INTERRUPTED.to_owned(),
            other => format!("The call ended without output: {}.", other.as_str()),
        };
    }
    answer
}

/// What a picture counts for in [`estimate_tokens`]; providers shrink larger ones to about this.
pub const TOKENS_PER_MEDIA: u64 = 1_600;
/// What the wire's framing of a message counts for in [`estimate_tokens`].
const TOKENS_PER_MESSAGE: u64 = 4;

/// About how many tokens a request holds: its bytes over 3.6, which errs high for prose and is near for code.
#[must_use]
pub fn estimate_tokens(request: &ModelRequest) -> u64 {
    let mut bytes = 0u64;
    let mut tokens = 0u64;
    for part in &request.system {
        bytes += length(&part.text);
    }
    for tool in &request.tools {
        bytes += length(&tool.name) + length(&tool.description) + json_length(&tool.schema);
    }
    for message in &request.messages {
        tokens += TOKENS_PER_MESSAGE;
        match message {
            PromptMessage::User(parts) | PromptMessage::Assistant { parts, .. } => {
                for part in parts {
                    match part {
                        Part::Text { text, .. } => bytes += length(text),
                        Part::Thinking { text, opaque } => {
                            bytes += length(text) + opaque.as_ref().map_or(0, |opaque| json_length(&opaque.0));
                        }
                        Part::RedactedThinking { opaque } | Part::Provider { opaque } => {
                            bytes += json_length(&opaque.0);
                        }
                        Part::ToolCall { name, arguments, .. } => bytes += length(name) + json_length(arguments),
                        Part::Media { .. } => tokens += TOKENS_PER_MEDIA,
                    }
                }
            }
            PromptMessage::Tools(answers) => {
                for answer in answers {
                    bytes += length(&answer.text);
                    tokens += TOKENS_PER_MEDIA * answer.media.len() as u64 + TOKENS_PER_MESSAGE;
                }
            }
        }
    }
    tokens + bytes * 10 / 36
}

fn length(text: &str) -> u64 {
    text.len() as u64
}

fn json_length(value: &serde_json::Value) -> u64 {
    /// Counts what is written to it.
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // A value always serialises; a counting writer never fails.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests;
