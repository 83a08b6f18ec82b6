//! Turns as the Messages wire of Anthropic tells them.

use serde_json::{Value, json};

use super::super::given::Given;
use super::super::recorded::Wire;
use super::super::reply::{Block, End, Reply, Usage};
use super::{Asked, Frames, arguments_object, call_id, pieces, stop_reason};

/// Remembers what the client has to send back.
pub(super) fn remember(blocks: &[Block], asked: &Asked<'_>, given: &mut Given) {
    for block in blocks {
        match block {
            Block::Thinking { text, signature } => given.sign(Wire::Anthropic, asked.model, signature, text),
            Block::RedactedThinking(data) => given.sign(Wire::Anthropic, asked.model, data, ""),
            _ => {}
        }
    }
}

fn usage(usage: Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    })
}

/// The frames of a stream.
pub(super) fn frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
    frames.named(
        "message_start",
        &json!({"type": "message_start", "message": {
            "id": format!("msg_{:04}", asked.number), "type": "message", "role": "assistant", "model": asked.model,
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage(reply.usage, 1),
        }}),
    );
    frames.named("ping", &json!({"type": "ping"}));
    for (at, block) in blocks.iter().enumerate() {
        let last = at + 1 == blocks.len();
        let open_ended = last && reply.end != End::Normal;
        block_frames(frames, at, block, asked, open_ended);
    }
    match &reply.end {
        End::Normal => {
            frames.named(
                "message_delta",
                &json!({"type": "message_delta",
                    "delta": {"stop_reason": stop_reason(reply, blocks), "stop_sequence": null},
                    "usage": usage(reply.usage, reply.usage.output)}),
            );
            frames.named("message_stop", &json!({"type": "message_stop"}));
        }
        End::Error { kind, message } => {
            frames.named("error", &json!({"type": "error", "error": {"type": kind, "message": message}}));
        }
        End::Missing => {}
    }
}

fn block_frames(frames: &mut Frames, at: usize, block: &Block, asked: &Asked<'_>, open_ended: bool) {
    let start = match block {
        Block::Text(_) | Block::Deltas { .. } => json!({"type": "text", "text": ""}),
        Block::Thinking { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Block::RedactedThinking(data) => json!({"type": "redacted_thinking", "data": data}),
        Block::ToolCall { id, name, .. } => {
            json!({"type": "tool_use", "id": call_id(asked, id.as_ref(), at), "name": name, "input": {}})
        }
    };
    frames.named("content_block_start", &json!({"type": "content_block_start", "index": at, "content_block": start}));
    let delta = |frames: &mut Frames, delta: Value, count: usize| {
        let data = json!({"type": "content_block_delta", "index": at, "delta": delta});
        frames.delta(Some("content_block_delta"), &data, count);
    };
    match block {
        Block::Text(text) => {
            for piece in pieces(text) {
                delta(frames, json!({"type": "text_delta", "text": piece}), 1);
            }
        }
        Block::Deltas { piece, count } => delta(frames, json!({"type": "text_delta", "text": piece}), *count),
        Block::Thinking { text, signature } => {
            for piece in pieces(text) {
                delta(frames, json!({"type": "thinking_delta", "thinking": piece}), 1);
            }
            delta(frames, json!({"type": "signature_delta", "signature": signature}), 1);
        }
        Block::RedactedThinking(_) => {}
        Block::ToolCall { arguments, .. } => {
            delta(frames, json!({"type": "input_json_delta", "partial_json": ""}), 1);
            for piece in pieces(arguments) {
                delta(frames, json!({"type": "input_json_delta", "partial_json": piece}), 1);
            }
        }
    }
    if !open_ended {
        frames.named("content_block_stop", &json!({"type": "content_block_stop", "index": at}));
    }
}

/// The body without a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    let content: Vec<Value> = blocks
        .iter()
        .enumerate()
        .map(|(at, block)| match block {
            Block::Text(text) => json!({"type": "text", "text": text}),
            Block::Deltas { piece, count } => json!({"type": "text", "text": piece.repeat(*count)}),
            Block::Thinking { text, signature } => {
                json!({"type": "thinking", "thinking": text, "signature": signature})
            }
            Block::RedactedThinking(data) => json!({"type": "redacted_thinking", "data": data}),
            Block::ToolCall { id, name, arguments } => {
                json!({"type": "tool_use", "id": call_id(asked, id.as_ref(), at), "name": name,
                    "input": arguments_object(arguments)})
            }
        })
        .collect();
    json!({"id": format!("msg_{:04}", asked.number), "type": "message", "role": "assistant",
        "model": asked.model, "content": content, "stop_reason": stop_reason(reply, blocks), "stop_sequence": null,
        "usage": usage(reply.usage, reply.usage.output)})
}

/// An error body.
pub(super) fn error(code: u16, message: &str, number: usize) -> Value {
    let kind = match code {
        400 | 422 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": format!("req_{number:04}")})
}
