//! Turns as the Gemini wire tells them: every frame a whole answer with more of the parts.

use serde_json::{Value, json};

use super::super::given::Given;
use super::super::recorded::Wire;
use super::super::reply::{Block, End, Reply, Usage};
use super::{Asked, Frames, arguments_object, pieces, stop_reason};

/// One part of a turn and its mark.
struct Part {
    value: Value,
    signature: Option<String>,
    /// How often it comes.
    count: usize,
}

/// The parts of a turn. Thoughts are never signed themselves: what signs them comes with the part that follows, and
/// of calls side by side only the first has it. Gemini 3 signs the first call whether its thoughts are shown or not.
fn parts(blocks: &[Block], asked: &Asked<'_>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut pending: Option<String> = None;
    let mut calls = 0;
    for (at, block) in blocks.iter().enumerate() {
        let (value, count) = match block {
            Block::Thinking { text, signature } => {
                pending = Some(signature.clone());
                parts.push(Part { value: json!({"text": text, "thought": true}), signature: None, count: 1 });
                continue;
            }
            Block::RedactedThinking(data) => {
                pending = Some(data.clone());
                continue;
            }
            Block::Text(text) => (json!({ "text": text }), 1),
            Block::Deltas { piece, count } => (json!({ "text": piece }), *count),
            Block::ToolCall { arguments, .. } if !is_object(arguments) => continue,
            Block::ToolCall { id, name, arguments } => {
                calls += 1;
                let mut call = json!({"name": name, "args": arguments_object(arguments)});
                if let Some(id) = id {
                    call["id"] = json!(id);
                }
                if calls == 1 && is_gemini_3(asked.model) {
                    pending.get_or_insert_with(|| format!("sig_{:04}_{at}", asked.number));
                }
                (json!({ "functionCall": call }), 1)
            }
        };
        parts.push(Part { value, signature: pending.take(), count });
    }
    if let Some(signature) = pending {
        parts.push(Part { value: json!({"text": ""}), signature: Some(signature), count: 1 });
    }
    parts
}

/// A call whose arguments are no object never gets onto this wire: it ends the turn.
fn is_object(arguments: &str) -> bool {
    serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object())
}

/// Whether calls of this model are checked for their signatures.
pub(in super::super) fn is_gemini_3(model: &str) -> bool {
    model.contains("gemini-3")
}

/// What a signature vouches for: the part, whatever state it is in.
pub(in super::super) fn vouched(part: &Value) -> String {
    match part.get("functionCall") {
        Some(call) => format!("{} {}", call["name"], call["args"]),
        None => part["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Remembers what the client has to send back.
pub(super) fn remember(blocks: &[Block], asked: &Asked<'_>, given: &mut Given) {
    for part in parts(blocks, asked) {
        let Some(signature) = part.signature else { continue };
        let mut whole = part.value;
        if part.count > 1
            && let Some(text) = whole["text"].as_str()
        {
            whole["text"] = json!(text.repeat(part.count));
        }
        given.sign(Wire::Gemini, asked.model, &signature, &vouched(&whole));
    }
}

/// The candidates' figure leaves reasoning out, the prompt's holds what came from the cache.
fn usage(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    let mut figures = json!({
        "promptTokenCount": prompt,
        "candidatesTokenCount": usage.output.saturating_sub(usage.reasoning),
        "totalTokenCount": prompt + usage.output,
    });
    if usage.cache_read > 0 {
        figures["cachedContentTokenCount"] = json!(usage.cache_read);
    }
    if usage.reasoning > 0 {
        figures["thoughtsTokenCount"] = json!(usage.reasoning);
    }
    figures
}

fn finish_reason(reply: &Reply, blocks: &[Block]) -> String {
    let broken = |block: &Block| matches!(block, Block::ToolCall { arguments, .. } if !is_object(arguments));
    if blocks.iter().any(broken) {
        return "MALFORMED_FUNCTION_CALL".to_owned();
    }
    let reason = stop_reason(reply, blocks);
    match reason.as_str() {
        "end_turn" | "tool_use" | "stop_sequence" => "STOP",
        "max_tokens" => "MAX_TOKENS",
        "refusal" => "SAFETY",
        other => other,
    }
    .to_owned()
}

fn answer(asked: &Asked<'_>, parts: &[Value], finish: Option<&str>, figures: Value) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({"candidates": [candidate], "usageMetadata": figures, "modelVersion": asked.model,
        "responseId": format!("resp-{:04}", asked.number)})
}

fn signed(mut value: Value, signature: Option<&String>) -> Value {
    if let Some(signature) = signature {
        value["thoughtSignature"] = json!(signature);
    }
    value
}

/// The frames of a stream. The figures of all but the last are of the prompt alone.
pub(super) fn frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
    let early = json!({"promptTokenCount": reply.usage.input + reply.usage.cache_read + reply.usage.cache_write});
    for part in parts(blocks, asked) {
        let Some(text) = part.value["text"].as_str().filter(|text| !text.is_empty() && part.count == 1) else {
            let whole = signed(part.value, part.signature.as_ref());
            frames.delta(None, &answer(asked, &[whole], None, early.clone()), part.count);
            continue;
        };
        let texts = pieces(text);
        for (at, piece) in texts.iter().enumerate() {
            let mut value = part.value.clone();
            value["text"] = json!(piece);
            let is_last = at + 1 == texts.len();
            let value = signed(value, part.signature.as_ref().filter(|_| is_last));
            frames.delta(None, &answer(asked, &[value], None, early.clone()), 1);
        }
    }
    match &reply.end {
        End::Normal => {
            let finish = finish_reason(reply, blocks);
            frames.push(None, &answer(asked, &[], Some(&finish), usage(reply.usage)));
        }
        End::Error { kind, message } => frames.push(None, &error(code_of(kind), message)),
        End::Missing => {}
    }
}

/// The status for a kind of error in Anthropic's words.
fn code_of(kind: &str) -> u16 {
    match kind {
        "overloaded_error" => 503,
        "rate_limit_error" => 429,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "invalid_request_error" | "request_too_large" => 400,
        "timeout_error" => 504,
        _ => 500,
    }
}

/// The body without a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    let mut values = Vec::new();
    for part in parts(blocks, asked) {
        let mut value = part.value;
        if part.count > 1
            && let Some(text) = value["text"].as_str()
        {
            value["text"] = json!(text.repeat(part.count));
        }
        values.push(signed(value, part.signature.as_ref()));
    }
    answer(asked, &values, Some(&finish_reason(reply, blocks)), usage(reply.usage))
}

/// An error body.
pub(super) fn error(code: u16, message: &str) -> Value {
    let status = match code {
        400 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    json!({"error": {"code": code, "message": message, "status": status}})
}
