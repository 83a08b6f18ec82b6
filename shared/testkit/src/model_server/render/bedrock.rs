//! Turns as the Converse wire of Amazon Bedrock tells them: binary frames that carry the name of their event.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use serde_json::{Value, json};

use super::super::given::Given;
use super::super::recorded::Wire;
use super::super::reply::{Block, End, Reply, Usage};
use super::{Asked, Frame, Frames, arguments_object, call_id, pieces, stop_reason};

/// One frame with its checksums; that of a bad one is wrong.
pub(super) fn frame_bytes(frame: &Frame) -> Vec<u8> {
    let name = frame.event.unwrap_or("unknown").to_owned();
    let text = |value: String| HeaderValue::String(value.into());
    let (kind, name_header) =
        if name.ends_with("Exception") { ("exception", ":exception-type") } else { ("event", ":event-type") };
    let message = Message::new(frame.data.clone().into_bytes())
        .add_header(Header::new(name_header, text(name)))
        .add_header(Header::new(":content-type", text("application/json".to_owned())))
        .add_header(Header::new(":message-type", text(kind.to_owned())));
    let mut bytes = Vec::new();
    write_message_to(&message, &mut bytes).expect("a frame of a test is small enough");
    if frame.is_bad
        && let Some(last) = bytes.last_mut()
    {
        *last ^= 0xff;
    }
    bytes
}

/// Remembers what the client has to send back.
pub(super) fn remember(blocks: &[Block], asked: &Asked<'_>, given: &mut Given) {
    for block in blocks {
        match block {
            Block::Thinking { text, signature } => given.sign(Wire::Bedrock, asked.model, signature, text),
            Block::RedactedThinking(data) => given.sign(Wire::Bedrock, asked.model, data, ""),
            _ => {}
        }
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.input + usage.cache_read + usage.cache_write + usage.output,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    })
}

fn stop(reply: &Reply, blocks: &[Block]) -> String {
    let reason = stop_reason(reply, blocks);
    if reason == "refusal" { "content_filtered".to_owned() } else { reason }
}

/// Padding, as the service sends it so that lengths tell nothing.
const PADDING: &str = "abcdefgh";

/// The frames of a stream.
pub(super) fn frames(frames: &mut Frames, reply: &Reply, blocks: &[Block], asked: &Asked<'_>) {
    frames.named("messageStart", &json!({"role": "assistant", "p": PADDING}));
    for (at, block) in blocks.iter().enumerate() {
        block_frames(frames, at, block, asked);
        if at + 1 < blocks.len() || reply.end == End::Normal {
            frames.named("contentBlockStop", &json!({"contentBlockIndex": at, "p": PADDING}));
        }
    }
    match &reply.end {
        End::Normal => {
            frames.named("messageStop", &json!({"stopReason": stop(reply, blocks), "p": PADDING}));
            let metrics = json!({"latencyMs": 1});
            frames.named("metadata", &json!({"usage": usage(reply.usage), "metrics": metrics, "p": PADDING}));
        }
        End::Error { kind, message } => frames.named(exception_of(kind), &json!({ "message": message })),
        End::Missing => {}
    }
}

/// The exception for a kind of error in Anthropic's words.
fn exception_of(kind: &str) -> &'static str {
    match kind {
        "overloaded_error" => "serviceUnavailableException",
        "rate_limit_error" => "throttlingException",
        "invalid_request_error" | "request_too_large" => "validationException",
        "timeout_error" => "modelTimeoutException",
        "model_stream_error" => "modelStreamErrorException",
        _ => "internalServerException",
    }
}

fn block_frames(frames: &mut Frames, at: usize, block: &Block, asked: &Asked<'_>) {
    let mut delta = |delta: Value, count: usize| {
        let data = json!({"contentBlockIndex": at, "delta": delta, "p": PADDING});
        frames.delta(Some("contentBlockDelta"), &data, count);
    };
    match block {
        Block::Text(text) => pieces(text).into_iter().for_each(|piece| delta(json!({ "text": piece }), 1)),
        Block::Deltas { piece, count } => delta(json!({ "text": piece }), *count),
        Block::Thinking { text, signature } => {
            for piece in pieces(text) {
                delta(json!({"reasoningContent": {"text": piece}}), 1);
            }
            delta(json!({"reasoningContent": {"signature": signature}}), 1);
        }
        Block::RedactedThinking(data) => delta(json!({"reasoningContent": {"redactedContent": data}}), 1),
        Block::ToolCall { id, name, arguments } => {
            let tool = json!({"toolUseId": call_id(asked, id.as_ref(), at), "name": name});
            let start = json!({"contentBlockIndex": at, "start": {"toolUse": tool}, "p": PADDING});
            frames.named("contentBlockStart", &start);
            for piece in pieces(arguments) {
                let data = json!({"contentBlockIndex": at, "delta": {"toolUse": {"input": piece}}, "p": PADDING});
                frames.delta(Some("contentBlockDelta"), &data, 1);
            }
        }
    }
}

/// The body without a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    let content: Vec<Value> = blocks
        .iter()
        .enumerate()
        .map(|(at, block)| match block {
            Block::Text(text) => json!({ "text": text }),
            Block::Deltas { piece, count } => json!({"text": piece.repeat(*count)}),
            Block::Thinking { text, signature } => {
                json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
            }
            Block::RedactedThinking(data) => json!({"reasoningContent": {"redactedContent": data}}),
            Block::ToolCall { id, name, arguments } => json!({"toolUse": {
                "toolUseId": call_id(asked, id.as_ref(), at), "name": name, "input": arguments_object(arguments)}}),
        })
        .collect();
    json!({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop(reply, blocks),
        "usage": usage(reply.usage), "metrics": {"latencyMs": 1}})
}

/// What the header of an error says.
pub(super) fn error_type(code: u16) -> &'static str {
    match code {
        400 | 413 => "ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/",
        401 | 403 => "AccessDeniedException:http://internal.amazon.com/coral/com.amazon.coral.service/",
        404 => "ResourceNotFoundException:http://internal.amazon.com/coral/com.amazon.bedrock/",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/",
        503 => "ServiceUnavailableException:http://internal.amazon.com/coral/com.amazon.bedrock/",
        _ => "InternalServerException:http://internal.amazon.com/coral/com.amazon.bedrock/",
    }
}
