//! Turns as the Responses wire of OpenAI tells them: items, each of which is given whole at its end.

use serde_json::{Value, json};

use super::super::given::Given;
use super::super::recorded::Wire;
use super::super::reply::{Block, End, Reply, Usage};
use super::{Asked, Frames, call_id, pieces, stop_reason};

fn usage(usage: Usage) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": input + usage.output,
    })
}

fn item_id(asked: &Asked<'_>, block: &Block, at: usize) -> String {
    let prefix = match block {
        Block::Text(_) | Block::Deltas { .. } => "msg",
        Block::Thinking { .. } | Block::RedactedThinking(_) => "rs",
        Block::ToolCall { .. } => "fc",
    };
    format!("{prefix}_{:04}_{at}", asked.number)
}

/// Whether the model does anything after this block.
fn phase(blocks: &[Block], at: usize) -> &'static str {
    let acts = blocks[at..].iter().any(|block| matches!(block, Block::ToolCall { .. }));
    if acts { "commentary" } else { "final_answer" }
}

/// An item as it stands at its end, with all of `said`.
fn item(blocks: &[Block], at: usize, asked: &Asked<'_>) -> Value {
    let id = item_id(asked, &blocks[at], at);
    let encrypted = |data: &str| if asked.include_encrypted { json!(data) } else { Value::Null };
    let message = |text: &str| {
        json!({"id": id, "type": "message", "role": "assistant", "status": "completed", "phase": phase(blocks, at),
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
    };
    match &blocks[at] {
        Block::Text(text) => message(text),
        Block::Deltas { piece, count } => message(&piece.repeat(*count)),
        Block::Thinking { text, signature } => json!({"id": id, "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text}], "encrypted_content": encrypted(signature)}),
        Block::RedactedThinking(data) => {
            json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": encrypted(data)})
        }
        Block::ToolCall { id: given, name, arguments } => json!({"id": id, "type": "function_call",
            "status": "completed", "call_id": call_id(asked, given.as_ref(), at), "name": name,
            "arguments": arguments}),
    }
}

/// The same at its start. Its encrypted content is not yet the one that counts.
fn begun(mut item: Value) -> Value {
    match item["type"].as_str() {
        Some("message") => item["content"] = json!([]),
        Some("function_call") => item["arguments"] = json!(""),
        _ => {
            item["summary"] = json!([]);
            if let Some(encrypted) = item["encrypted_content"].as_str() {
                item["encrypted_content"] = json!(format!("{encrypted}~unfinished"));
            }
            return item;
        }
    }
    item["status"] = json!("in_progress");
    item
}

/// Remembers what the client has to send back: encrypted reasoning with its id, and what each reasoning led to.
pub(super) fn remember(blocks: &[Block], asked: &Asked<'_>, given: &mut Given) {
    let mut leader: Option<String> = None;
    for (at, block) in blocks.iter().enumerate() {
        let id = item_id(asked, block, at);
        match block {
            Block::Thinking { signature: data, .. } | Block::RedactedThinking(data) => {
                if asked.include_encrypted {
                    given.sign(Wire::Responses, asked.model, data, &id);
                }
                leader = Some(id);
            }
            _ => {
                if let Some(leader) = leader.take() {
                    given.lead(&leader, &id);
                }
            }
        }
    }
}

/// The response as a whole, in this state.
fn response(reply: &Reply, blocks: &[Block], asked: &Asked<'_>, status: &str) -> Value {
    let stop = stop_reason(reply, blocks);
    let reason = match stop.as_str() {
        _ if status != "incomplete" => Value::Null,
        "refusal" => json!({"reason": "content_filter"}),
        _ => json!({"reason": "max_output_tokens"}),
    };
    let over = !matches!(status, "in_progress" | "failed");
    let output: Vec<Value> =
        if over { (0..blocks.len()).map(|at| item(blocks, at, asked)).collect() } else { Vec::new() };
    json!({"id": format!("resp_{:04}", asked.number), "object": "response", "created_at": 1, "status": status,
        "model": asked.model, "error": null, "incomplete_details": reason, "output": output, "store": false,
        "usage": if over { usage(reply.usage) } else { Value::Null }})
}

fn status(reply: &Reply, blocks: &[Block]) -> &'static str {
    match stop_reason(reply, blocks).as_str() {
        "max_tokens" | "model_context_window_exceeded" | "refusal" => "incomplete",
        _ => "completed",
    }
}

/// Numbers the events.
struct Events<'a> {
    frames: &'a mut Frames,
    sequence: usize,
}

impl Events<'_> {
    fn add(&mut self, kind: &'static str, mut data: Value, count: usize, is_delta: bool) {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += count;
        self.frames.add(Some(kind), &data, count, is_delta);
    }

    fn push(&mut self, kind: &'static str, data: Value) {
        self.add(kind, data, 1, false);
    }
}

/// The frames of a stream.
pub(super) fn frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
    let mut events = Events { frames, sequence: 0 };
    events.push("response.created", json!({"response": response(reply, blocks, asked, "in_progress")}));
    events.push("response.in_progress", json!({"response": response(reply, blocks, asked, "in_progress")}));
    for at in 0..blocks.len() {
        let is_cut = at + 1 == blocks.len() && reply.end != End::Normal;
        item_frames(&mut events, blocks, at, asked, is_cut);
    }
    match &reply.end {
        End::Normal => {
            let status = status(reply, blocks);
            let kind = if status == "completed" { "response.completed" } else { "response.incomplete" };
            events.push(kind, json!({"response": response(reply, blocks, asked, status)}));
        }
        End::Error { kind, message } => {
            let code = code_of(kind);
            let error = json!({"type": kind, "code": code, "message": message, "param": null});
            events.push("error", json!({ "error": error }));
            let mut failed = response(reply, blocks, asked, "failed");
            failed["error"] = json!({"code": code, "message": message});
            events.push("response.failed", json!({ "response": failed }));
        }
        End::Missing => {}
    }
}

/// This wire's word for a kind of error in Anthropic's words.
fn code_of(kind: &str) -> &str {
    match kind {
        "overloaded_error" => "server_is_overloaded",
        "rate_limit_error" => "rate_limit_exceeded",
        "api_error" | "timeout_error" => "server_error",
        "billing_error" => "insufficient_quota",
        "invalid_request_error" => "invalid_prompt",
        "request_too_large" => "context_length_exceeded",
        other => other,
    }
}

fn item_frames(events: &mut Events<'_>, blocks: &[Block], at: usize, asked: &Asked<'_>, is_cut: bool) {
    let whole = item(blocks, at, asked);
    let id = whole["id"].clone();
    events.push("response.output_item.added", json!({"output_index": at, "item": begun(whole.clone())}));
    let place = |more: Value| {
        let mut data = json!({"item_id": id, "output_index": at});
        if let (Some(data), Some(more)) = (data.as_object_mut(), more.as_object()) {
            data.extend(more.clone());
        }
        data
    };
    match &blocks[at] {
        Block::Text(_) | Block::Deltas { .. } => {
            let part = json!({"type": "output_text", "text": "", "annotations": []});
            events.push("response.content_part.added", place(json!({"content_index": 0, "part": part})));
            let (texts, count) = match &blocks[at] {
                Block::Deltas { piece, count } => (vec![piece.clone()], *count),
                Block::Text(text) => (pieces(text), 1),
                _ => (Vec::new(), 1),
            };
            for text in texts {
                let data = place(json!({"content_index": 0, "delta": text, "obfuscation": "x7"}));
                events.add("response.output_text.delta", data, count, true);
            }
            if !is_cut {
                let part = &whole["content"][0];
                let done = json!({"content_index": 0, "text": part["text"]});
                events.push("response.output_text.done", place(done));
                events.push("response.content_part.done", place(json!({"content_index": 0, "part": part})));
            }
        }
        Block::Thinking { text, .. } => {
            let part = |text: &str| json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}});
            events.push("response.reasoning_summary_part.added", place(part("")));
            for piece in pieces(text) {
                let data = place(json!({"summary_index": 0, "delta": piece}));
                events.add("response.reasoning_summary_text.delta", data, 1, true);
            }
            let done = json!({"summary_index": 0, "text": text});
            events.push("response.reasoning_summary_text.done", place(done));
            events.push("response.reasoning_summary_part.done", place(part(text)));
        }
        Block::RedactedThinking(_) => {}
        Block::ToolCall { name, arguments, .. } => {
            for piece in pieces(arguments) {
                events.add("response.function_call_arguments.delta", place(json!({ "delta": piece })), 1, true);
            }
            if !is_cut {
                let done = json!({"arguments": arguments, "name": name});
                events.push("response.function_call_arguments.done", place(done));
            }
        }
    }
    if !is_cut {
        events.push("response.output_item.done", json!({"output_index": at, "item": whole}));
    }
}

/// The body without a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    response(reply, blocks, asked, status(reply, blocks))
}

/// An error body.
pub(super) fn error(code: u16, message: &str) -> Value {
    let (kind, word) = match code {
        400 | 422 => ("invalid_request_error", Value::Null),
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        503 => ("server_error", json!("server_is_overloaded")),
        403 => ("permission_error", Value::Null),
        413 => ("invalid_request_error", json!("request_too_large")),
        _ => ("server_error", json!("server_error")),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": word}})
}
