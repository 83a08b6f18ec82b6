//! Decodes a Converse stream; its frames come with the name of their event.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_env::IdGen;
use mcode_events::message::{Opaque, Origin, Part};
use mcode_events::usage::Usage;
use mcode_ids::ToolCallId;
use mcode_models::{ModelError, ModelErrorKind, Response, StopReason, StreamEvent};
use serde::Deserialize;
use serde_json::{Value, json};

use super::errors;
use crate::decode::{
    Count, MAX_BLOCKS, WireDecoder, bad_frame, protocol, push_arguments, push_text, push_thinking, tool_call,
};
use crate::sse::SseEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart {
    #[serde(default)]
    content_block_index: u64,
    #[serde(default)]
    start: Option<Start>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    #[serde(default)]
    tool_use: Option<ToolStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolStart {
    #[serde(default)]
    tool_use_id: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta {
    #[serde(default)]
    content_block_index: u64,
    #[serde(default)]
    delta: Delta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Delta {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    tool_use: Option<ToolDelta>,
    #[serde(default)]
    reasoning_content: Option<ReasoningDelta>,
}

#[derive(Deserialize)]
struct ToolDelta {
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    redacted_content: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageStop {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    usage: Option<RawUsage>,
}

/// Token counts; `inputTokens` is the uncached part, as in our normal form.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_write_input_tokens: Count,
}

/// A block that is being written.
#[derive(Debug)]
enum Block {
    Text(String),
    Reasoning { text: String, signature: String, redacted: String },
    Tool { id: ToolCallId, provider_id: String, name: String, json: String, place: usize },
}

/// Decodes one response.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: Arc<dyn IdGen>,
    origin: Origin,
    host: String,
    started: bool,
    /// By the wire's index, which orders them.
    blocks: BTreeMap<u64, Block>,
    calls: usize,
    usage: Option<RawUsage>,
    stop: Option<String>,
}

impl Decoder {
    /// A decoder for a response of `host` to a request whose answers are signed with `origin`.
    pub(crate) fn new(ids: Arc<dyn IdGen>, origin: Origin, host: String) -> Self {
        let blocks = BTreeMap::new();
        Self { ids, origin, host, started: false, blocks, calls: 0, usage: None, stop: None }
    }

    fn room(&self, index: u64) -> Result<(), ModelError> {
        if self.blocks.len() >= MAX_BLOCKS && !self.blocks.contains_key(&index) {
            return Err(protocol(format!("the response holds more than {MAX_BLOCKS} blocks")));
        }
        Ok(())
    }

    /// Only tools say at their start what they are; other blocks begin with their first piece.
    fn start_block(&mut self, start: BlockStart, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let Some(tool) = start.start.and_then(|start| start.tool_use) else { return Ok(()) };
        self.room(start.content_block_index)?;
        let place = self.calls;
        self.calls += 1;
        push_arguments(out, place, &tool.name, "");
        let id = ToolCallId::from_uuid(self.ids.next());
        let (provider_id, name, json) = (tool.tool_use_id, tool.name, String::new());
        self.blocks.insert(start.content_block_index, Block::Tool { id, provider_id, name, json, place });
        Ok(())
    }

    fn take_delta(&mut self, piece: BlockDelta, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let index = piece.content_block_index;
        self.room(index)?;
        let Delta { text, tool_use, reasoning_content } = piece.delta;
        if let Some(more) = text.filter(|more| !more.is_empty())
            && let Block::Text(text) = self.blocks.entry(index).or_insert_with(|| Block::Text(String::new()))
        {
            text.push_str(&more);
            push_text(out, &more);
        }
        if let Some(more) = reasoning_content {
            let new = || Block::Reasoning { text: String::new(), signature: String::new(), redacted: String::new() };
            if let Block::Reasoning { text, signature, redacted } = self.blocks.entry(index).or_insert_with(new) {
                signature.push_str(&more.signature.unwrap_or_default());
                redacted.push_str(&more.redacted_content.unwrap_or_default());
                if let Some(more) = more.text.filter(|more| !more.is_empty()) {
                    text.push_str(&more);
                    push_thinking(out, &more);
                }
            }
        }
        if let Some(more) = tool_use {
            let Some(Block::Tool { json, name, place, .. }) = self.blocks.get_mut(&index) else {
                return Err(protocol(format!("a piece of the call in block {index} came before its start")));
            };
            if !more.input.is_empty() {
                json.push_str(&more.input);
                push_arguments(out, *place, name, &more.input);
            }
        }
        Ok(())
    }

    fn finished(&mut self, stop_raw: String) -> Response {
        let blocks = std::mem::take(&mut self.blocks);
        let last = blocks.len().saturating_sub(1);
        let cut = stop_raw == "max_tokens";
        let parts: Vec<Part> = blocks
            .into_values()
            .enumerate()
            .filter_map(|(index, block)| part_of(block, cut && index == last))
            .collect();
        let stop = match stop_raw.as_str() {
            "tool_use" => StopReason::ToolUse,
            "end_turn" | "stop_sequence" if self.calls > 0 => StopReason::ToolUse,
            "end_turn" | "stop_sequence" => StopReason::Stop,
            "max_tokens" => StopReason::Length,
            "guardrail_intervened" | "content_filtered" => StopReason::Refusal,
            "model_context_window_exceeded" => StopReason::ContextFull,
            _ => StopReason::Other,
        };
        Response {
            parts,
            origin: self.origin.clone(),
            model: String::new(),
            response_id: String::new(),
            stop,
            stop_raw,
            usage: self.usage(),
        }
    }
}

fn part_of(block: Block, cut: bool) -> Option<Part> {
    match block {
        Block::Text(text) => (!text.is_empty()).then(|| Part::text(text)),
        Block::Reasoning { redacted, .. } if !redacted.is_empty() => {
            Some(Part::RedactedThinking { opaque: Opaque(json!({ "data": redacted })) })
        }
        Block::Reasoning { text, signature, .. } if text.is_empty() && signature.is_empty() => None,
        Block::Reasoning { text, signature, .. } => {
            let opaque = (!signature.is_empty()).then(|| Opaque(json!({ "signature": signature })));
            Some(Part::Thinking { text, opaque })
        }
        Block::Tool { id, provider_id, name, json, .. } => Some(tool_call(id, provider_id, name, &json, cut)),
    }
}

impl WireDecoder for Decoder {
    fn frame(&mut self, event: SseEvent<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
            serde_json::from_str(data).map_err(|error| bad_frame(&error, data))
        }
        match event.name {
            "messageStart" if !self.started => {
                self.started = true;
                out.push(StreamEvent::Started);
                Ok(())
            }
            "contentBlockStart" => self.start_block(read(event.data)?, out),
            "contentBlockDelta" => self.take_delta(read(event.data)?, out),
            "messageStop" => {
                let stop: MessageStop = read(event.data)?;
                if matches!(stop.stop_reason.as_deref(), Some("malformed_tool_use" | "malformed_model_output")) {
                    let words = format!("{} ended the answer with {}", self.host, stop.stop_reason.unwrap_or_default());
                    return Err(ModelError::new(ModelErrorKind::BadToolCall, words));
                }
                self.stop = Some(stop.stop_reason.unwrap_or_default());
                Ok(())
            }
            "metadata" => {
                let metadata: Metadata = read(event.data)?;
                self.usage = metadata.usage.or_else(|| self.usage.take());
                Ok(())
            }
            name if name.ends_with("Exception") || name == "error" => {
                Err(errors::from_exception(name, event.data, &self.host))
            }
            // Ends of blocks, and kinds that this version does not know.
            _ => Ok(()),
        }
    }

    /// The service streams what it was asked to stream; only an error comes as plain JSON.
    fn body(&mut self, body: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let value: Value = serde_json::from_str(&text).map_err(|error| bad_frame(&error, &text))?;
        let Some(content) = value.pointer("/output/message/content").and_then(Value::as_array) else {
            return Err(errors::from_exception("error", &text, &self.host));
        };
        out.push(StreamEvent::Started);
        for (index, block) in content.iter().enumerate() {
            let index = json!(index);
            if let Some(tool) = block.get("toolUse") {
                let start = json!({"contentBlockIndex": index, "start": {"toolUse": tool}});
                self.frame(SseEvent { name: "contentBlockStart", data: &start.to_string() }, out)?;
                let input = tool.get("input").map(Value::to_string).unwrap_or_default();
                let delta = json!({"contentBlockIndex": index, "delta": {"toolUse": {"input": input}}});
                self.frame(SseEvent { name: "contentBlockDelta", data: &delta.to_string() }, out)?;
                continue;
            }
            let delta = match block.pointer("/reasoningContent/reasoningText") {
                Some(reasoning) => json!({"reasoningContent": reasoning}),
                None => block.clone(),
            };
            let delta = json!({"contentBlockIndex": index, "delta": delta});
            self.frame(SseEvent { name: "contentBlockDelta", data: &delta.to_string() }, out)?;
        }
        self.frame(SseEvent { name: "messageStop", data: &text }, out)?;
        self.frame(SseEvent { name: "metadata", data: &text }, out)
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let Some(stop) = self.stop.clone() else {
            let words = format!("the stream of {} ended before the answer was complete", self.host);
            let mut error = ModelError::new(ModelErrorKind::Transport, words);
            error.usage = self.usage();
            return Err(error);
        };
        let response = self.finished(stop);
        out.push(StreamEvent::Finished(Box::new(response)));
        Ok(())
    }

    /// Counts come after the reason to stop, or before it.
    fn is_done(&self) -> bool {
        self.stop.is_some() && self.usage.is_some()
    }

    fn is_complete(&self) -> bool {
        self.stop.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.as_ref().map(|usage| Usage {
            input_tokens: usage.input_tokens.or_zero(),
            output_tokens: usage.output_tokens.or_zero(),
            cache_read_tokens: usage.cache_read_input_tokens.or_zero(),
            cache_write_tokens: usage.cache_write_input_tokens.or_zero(),
            ..Usage::default()
        })
    }
}
