//! Turns a reply into the bytes of one wire.

use serde_json::{Value, json};

use super::recorded::Wire;
use super::reply::{Block, End, Reply, SseStyle, Usage};

/// Characters per text delta; small, so that every text of some length comes in several.
const DELTA_CHARS: usize = 12;

/// What stands in for a delta when a bad frame is asked for: JSON cut in the middle.
const BAD_FRAME: &str = r#"{"id":"x","obj"#;

struct Frame {
    event: Option<&'static str>,
    data: String,
    count: usize,
    is_delta: bool,
}

struct Frames {
    list: Vec<Frame>,
}

impl Frames {
    fn push(&mut self, event: Option<&'static str>, data: &Value) {
        self.list.push(Frame { event, data: data.to_string(), count: 1, is_delta: false });
    }

    fn delta(&mut self, event: Option<&'static str>, data: &Value, count: usize) {
        self.list.push(Frame { event, data: data.to_string(), count, is_delta: true });
    }

    /// A turn's named event, Anthropic style.
    fn named(&mut self, event: &'static str, data: &Value) {
        self.push(Some(event), data);
    }

    fn spoil_the_middle(&mut self) {
        let deltas: Vec<usize> =
            self.list.iter().enumerate().filter(|(_, frame)| frame.is_delta).map(|(at, _)| at).collect();
        let at = deltas.get(deltas.len() / 2).copied().unwrap_or(self.list.len() / 2);
        if let Some(frame) = self.list.get_mut(at) {
            frame.data = BAD_FRAME.to_owned();
            frame.count = 1;
        }
    }

    fn bytes(&self, style: SseStyle) -> Vec<u8> {
        let mut body = Vec::new();
        for frame in &self.list {
            let one = frame_bytes(frame, style);
            body.reserve(one.len() * frame.count);
            for _ in 0..frame.count {
                body.extend_from_slice(&one);
            }
        }
        body
    }
}

fn frame_bytes(frame: &Frame, style: SseStyle) -> Vec<u8> {
    let newline = if style.crlf { "\r\n" } else { "\n" };
    let field = if style.no_space { "data:" } else { "data: " };
    let mut text = String::new();
    if style.comments {
        text.push_str(&format!(": ping{newline}{newline}"));
    }
    if let Some(event) = frame.event {
        text.push_str(&format!("event: {event}{newline}"));
    }
    match frame.data.split_at_checked(1) {
        Some((first, rest)) if style.two_lines && first == "{" => {
            text.push_str(&format!("{field}{first}{newline}{field}{rest}{newline}"));
        }
        _ => text.push_str(&format!("{field}{}{newline}", frame.data)),
    }
    text.push_str(newline);
    text.into_bytes()
}

/// The facts of a request that its reply repeats.
pub(super) struct Asked<'a> {
    /// Number of the request, from 1; makes ids unique.
    pub(super) number: usize,
    pub(super) model: &'a str,
    pub(super) wire: Wire,
    /// Chat: whether a usage chunk was asked for.
    pub(super) include_usage: bool,
}

/// The body of an event stream.
pub(super) fn stream(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Vec<u8> {
    let mut frames = Frames { list: Vec::new() };
    match asked.wire {
        Wire::Anthropic => anthropic_frames(&mut frames, reply, blocks, asked),
        Wire::Chat => chat_frames(&mut frames, reply, blocks, asked),
    }
    if reply.bad_frame {
        frames.spoil_the_middle();
    }
    let mut body = frames.bytes(reply.style);
    if asked.wire == Wire::Chat && reply.end == End::Normal {
        body.extend_from_slice(if reply.style.crlf { b"data: [DONE]\r\n\r\n" } else { b"data: [DONE]\n\n" });
    }
    body
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(DELTA_CHARS).map(|piece| piece.iter().collect()).collect()
}

fn call_id(asked: &Asked<'_>, id: Option<&String>, at: usize) -> String {
    let prefix = match asked.wire {
        Wire::Anthropic => "toolu",
        Wire::Chat => "call",
    };
    id.cloned().unwrap_or_else(|| format!("{prefix}_{:04}_{at}", asked.number))
}

fn stop_reason(reply: &Reply, blocks: &[Block]) -> String {
    reply.stop.clone().unwrap_or_else(|| {
        let calls = blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        if calls { "tool_use" } else { "end_turn" }.to_owned()
    })
}

fn anthropic_usage(usage: Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
    })
}

fn anthropic_frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
    frames.named(
        "message_start",
        &json!({"type": "message_start", "message": {
            "id": format!("msg_{:04}", asked.number), "type": "message", "role": "assistant", "model": asked.model,
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": anthropic_usage(reply.usage, 1),
        }}),
    );
    frames.named("ping", &json!({"type": "ping"}));
    for (at, block) in blocks.iter().enumerate() {
        let last = at + 1 == blocks.len();
        let open_ended = last && reply.end != End::Normal;
        anthropic_block(frames, at, block, asked, open_ended);
    }
    match &reply.end {
        End::Normal => {
            frames.named(
                "message_delta",
                &json!({"type": "message_delta",
                    "delta": {"stop_reason": stop_reason(reply, blocks), "stop_sequence": null},
                    "usage": anthropic_usage(reply.usage, reply.usage.output)}),
            );
            frames.named("message_stop", &json!({"type": "message_stop"}));
        }
        End::Error { kind, message } => {
            frames.named("error", &json!({"type": "error", "error": {"type": kind, "message": message}}));
        }
        End::Missing => {}
    }
}

fn anthropic_block(frames: &mut Frames, at: usize, block: &Block, asked: &Asked<'_>, open_ended: bool) {
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

fn chat_stop(reason: &str) -> &str {
    match reason {
        "tool_use" => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        _ => "stop",
    }
}

fn chat_usage(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

fn chat_frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
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
                for call in chat_call(&id, name, arguments, (!reply.without_index).then_some(calls)) {
                    frames.delta(None, &delta(json!({"tool_calls": [call]})), 1);
                }
                calls += 1;
            }
        }
    }
    match &reply.end {
        End::Normal => {
            let stop = stop_reason(reply, blocks);
            frames.push(None, &chunk(json!([{"index": 0, "delta": {}, "finish_reason": chat_stop(&stop)}])));
            if asked.include_usage {
                let mut last = chunk(json!([]));
                last["usage"] = chat_usage(reply.usage);
                frames.push(None, &last);
            }
        }
        End::Error { kind, message } => {
            frames.push(None, &json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}));
        }
        End::Missing => {}
    }
}

fn chat_call(id: &str, name: &str, arguments: &str, index: Option<usize>) -> Vec<Value> {
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

/// The body of a reply to a request that did not ask for a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    let stop = stop_reason(reply, blocks);
    match asked.wire {
        Wire::Anthropic => {
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
                            "input": serde_json::from_str::<Value>(arguments).unwrap_or_else(|_| json!({}))})
                    }
                })
                .collect();
            json!({"id": format!("msg_{:04}", asked.number), "type": "message", "role": "assistant",
                "model": asked.model, "content": content, "stop_reason": stop, "stop_sequence": null,
                "usage": anthropic_usage(reply.usage, reply.usage.output)})
        }
        Wire::Chat => chat_whole(reply, blocks, asked, &stop),
    }
}

fn chat_whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>, stop: &str) -> Value {
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
        "model": asked.model, "choices": [{"index": 0, "message": message, "finish_reason": chat_stop(stop)}],
        "usage": chat_usage(reply.usage)})
}

/// An error body in the wire's own shape.
pub(super) fn error(wire: Wire, code: u16, message: &str, number: usize) -> Value {
    let kind = match (wire, code) {
        (_, 400 | 422) => "invalid_request_error",
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 404) => "not_found_error",
        (_, 413) => "request_too_large",
        (Wire::Anthropic, 402) => "billing_error",
        (Wire::Anthropic, 429) => "rate_limit_error",
        (Wire::Chat, 429) => "rate_limit_exceeded",
        (Wire::Anthropic, 504) => "timeout_error",
        (Wire::Anthropic, 529) => "overloaded_error",
        (Wire::Anthropic, _) => "api_error",
        (Wire::Chat, _) => "server_error",
    };
    match wire {
        Wire::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message},
            "request_id": format!("req_{number:04}")}),
        Wire::Chat => json!({"error": {"message": message, "type": kind, "param": null, "code": null}}),
    }
}
