//! Turns as the Chat Completions wire tells them.

use serde_json::{Value, json};

use super::super::reply::{Block, End, Reply, Usage};
use super::{Asked, Frames, call_id, pieces, stop_reason};

fn finish_reason(reason: &str) -> &str {
    match reason {
        "tool_use" => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        _ => "stop",
    }
}

fn usage(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

/// The frames of a stream.
pub(super) fn frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
    let chunk = |choices: Value| {
        json!({"id": format!("chatcmpl-{:04}", asked.number), "object": "chat.completion.chunk", "created": 1,
            "model": asked.model, "choices": choices})
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    frames.push(None, &delta(json!({"role": "assistant", "content": ""})));
    let mut calls = 0;
    for (at, block) in blocks.iter().enumerate() {
        match block {
            Block::Text(text) => {
                for piece in pieces(text) {
                    frames.delta(None, &delta(json!({"content": piece})), 1);
                }
            }
            Block::Deltas { piece, count } => frames.delta(None, &delta(json!({"content": piece})), *count),
            Block::Thinking { text, .. } => {
                for piece in pieces(text) {
                    frames.delta(None, &delta(json!({"reasoning_content": piece})), 1);
                }
            }
            Block::RedactedThinking(_) => {}
            Block::ToolCall { id, name, arguments } => {
                let id = call_id(asked, id.as_ref(), at);
                for call in call_parts(&id, name, arguments, (!reply.without_index).then_some(calls)) {
                    frames.delta(None, &delta(json!({"tool_calls": [call]})), 1);
                }
                calls += 1;
            }
        }
    }
    match &reply.end {
        End::Normal => {
            let stop = stop_reason(reply, blocks);
            frames.push(None, &chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(&stop)}])));
            if asked.include_usage {
                let mut last = chunk(json!([]));
                last["usage"] = usage(reply.usage);
                frames.push(None, &last);
            }
        }
        End::Error { kind, message } => {
            frames.push(None, &json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}));
        }
        End::Missing => {}
    }
}

fn call_parts(id: &str, name: &str, arguments: &str, index: Option<usize>) -> Vec<Value> {
    let with_index = |mut call: Value| {
        if let Some(index) = index {
            call["index"] = json!(index);
        }
        call
    };
    let mut parts =
        vec![with_index(json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}}))];
    for piece in pieces(arguments) {
        parts.push(with_index(json!({"function": {"arguments": piece}})));
    }
    parts
}

/// The body without a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    let mut text = String::new();
    let mut reasoning = String::new();
    let mut calls = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        match block {
            Block::Text(more) => text.push_str(more),
            Block::Deltas { piece, count } => text.push_str(&piece.repeat(*count)),
            Block::Thinking { text: more, .. } => reasoning.push_str(more),
            Block::RedactedThinking(_) => {}
            Block::ToolCall { id, name, arguments } => calls.push(json!({
                "id": call_id(asked, id.as_ref(), at), "type": "function",
                "function": {"name": name, "arguments": arguments},
            })),
        }
    }
    let mut message = json!({"role": "assistant", "content": if text.is_empty() { Value::Null } else { json!(text) }});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    json!({"id": format!("chatcmpl-{:04}", asked.number), "object": "chat.completion", "created": 1,
        "model": asked.model, "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(&stop_reason(reply, blocks))}],
        "usage": usage(reply.usage)})
}

/// An error body.
pub(super) fn error(code: u16, message: &str) -> Value {
    let kind = match code {
        400 | 422 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_exceeded",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}
