//! Decodes a Messages stream.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_env::IdGen;
use mcode_events::message::{Opaque, Origin, Part};
use mcode_events::usage::Usage;
use mcode_ids::ToolCallId;
use mcode_models::{ModelError, ModelErrorKind, Response, StopReason, StreamEvent};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::errors;
use super::usage::RawUsage;
use crate::decode::{
    MAX_BLOCKS, WireDecoder, Words, bad_frame, protocol, push_arguments, push_text, push_thinking, tool_call,
};
use crate::sse::SseEvent;

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    usage: Option<Box<RawUsage>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// All kinds of delta in one shape: of a block and of the message.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<Words<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Words<'a>>,
    #[serde(borrow, default)]
    signature: Option<Words<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Words<'a>>,
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    usage: Option<RawUsage>,
    #[serde(default)]
    stop_reason: Option<String>,
}

/// A block that is being written.
#[derive(Debug)]
enum Block {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(Value),
    Tool {
        id: ToolCallId,
        provider_id: String,
        name: String,
        start: Value,
        json: String,
        place: usize,
    },
    /// A block of the provider's own, word for word; `json` becomes its `input`.
    Provider {
        block: Value,
        json: String,
    },
}

/// Decodes one response.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: Arc<dyn IdGen>,
    origin: Origin,
    host: String,
    message_id: Option<String>,
    model: String,
    /// By the wire's index, which orders them.
    blocks: BTreeMap<u64, Block>,
    calls: usize,
    usage: RawUsage,
    has_usage: bool,
    stop: Option<String>,
    stopped: bool,
}

impl Decoder {
    /// A decoder for a response of `host` to a request whose answers are signed with `origin`.
    pub(crate) fn new(ids: Arc<dyn IdGen>, origin: Origin, host: String) -> Self {
        Self {
            ids,
            origin,
            host,
            message_id: None,
            model: String::new(),
            blocks: BTreeMap::new(),
            calls: 0,
            usage: RawUsage::default(),
            has_usage: false,
            stop: None,
            stopped: false,
        }
    }

    fn start_message(&mut self, raw: &RawValue, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let start: Start = serde_json::from_str(raw.get()).map_err(|error| bad_frame(&error, raw.get()))?;
        let id = start.id.unwrap_or_default();
        match &self.message_id {
            // Some proxies send it twice.
            Some(before) if *before == id => return Ok(()),
            Some(before) => {
                return Err(protocol(format!("a second message ({id}) began inside message {before}")));
            }
            None => self.message_id = Some(id),
        }
        self.model = start.model.unwrap_or_default();
        if let Some(usage) = start.usage {
            self.add_usage(usage);
        }
        out.push(StreamEvent::Started);
        for (index, block) in start.content.into_iter().enumerate() {
            self.start_block(index as u64, block, out)?;
        }
        Ok(())
    }

    fn add_usage(&mut self, usage: RawUsage) {
        self.has_usage = true;
        self.usage.override_with(usage);
    }

    fn start_block(&mut self, index: u64, block: Value, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(protocol(format!("the response holds more than {MAX_BLOCKS} blocks")));
        }
        let text_of = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let made = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                let text = text_of("text");
                if !text.is_empty() {
                    push_text(out, &text);
                }
                Block::Text(text)
            }
            "thinking" => {
                let text = text_of("thinking");
                if !text.is_empty() {
                    push_thinking(out, &text);
                }
                Block::Thinking { text, signature: text_of("signature") }
            }
            "redacted_thinking" => Block::Redacted(json!({ "data": block.get("data") })),
            "tool_use" => {
                let place = self.calls;
                self.calls += 1;
                let name = text_of("name");
                push_arguments(out, place, &name, "");
                let start = block.get("input").cloned().unwrap_or_default();
                let id = ToolCallId::from_uuid(self.ids.next());
                Block::Tool { id, provider_id: text_of("id"), name, start, json: String::new(), place }
            }
            _ => Block::Provider { block, json: String::new() },
        };
        self.blocks.insert(index, made);
        Ok(())
    }

    fn take_delta(&mut self, index: u64, delta: Delta<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let Some(block) = self.blocks.get_mut(&index) else {
            return Err(protocol(format!("a piece of block {index} came before its start")));
        };
        match (&*delta.kind, block) {
            ("text_delta", Block::Text(text)) => {
                if let Some(more) = delta.text.filter(|more| !more.is_empty()) {
                    text.push_str(&more);
                    push_text(out, &more);
                }
            }
            ("thinking_delta", Block::Thinking { text, .. }) => {
                if let Some(more) = delta.thinking.filter(|more| !more.is_empty()) {
                    text.push_str(&more);
                    push_thinking(out, &more);
                }
            }
            ("signature_delta", Block::Thinking { signature, .. }) => {
                signature.push_str(&delta.signature.unwrap_or_default());
            }
            ("input_json_delta", Block::Tool { json, name, place, .. }) => {
                if let Some(more) = delta.partial_json.filter(|more| !more.is_empty()) {
                    json.push_str(&more);
                    push_arguments(out, *place, name, &more);
                }
            }
            ("input_json_delta", Block::Provider { json, .. }) => {
                json.push_str(&delta.partial_json.unwrap_or_default());
            }
            // Citations and kinds that this version does not know.
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self) -> Response {
        let stop_raw = self.stop.clone().unwrap_or_default();
        let blocks = std::mem::take(&mut self.blocks);
        let last = blocks.len().saturating_sub(1);
        let parts: Vec<Part> = blocks
            .into_values()
            .enumerate()
            .filter_map(|(index, block)| part_of(block, index == last && stop_raw == "max_tokens"))
            .collect();
        let calls = parts.iter().any(|part| matches!(part, Part::ToolCall { .. }));
        Response {
            parts,
            origin: self.origin.clone(),
            model: std::mem::take(&mut self.model),
            response_id: self.message_id.clone().unwrap_or_default(),
            stop: stop_reason(&stop_raw, calls),
            stop_raw,
            usage: self.usage(),
        }
    }
}

fn part_of(block: Block, cut: bool) -> Option<Part> {
    Some(match block {
        Block::Text(text) if text.is_empty() => return None,
        Block::Text(text) => Part::text(text),
        Block::Thinking { text, signature } if text.is_empty() && signature.is_empty() => return None,
        Block::Thinking { text, signature } => {
            let opaque = (!signature.is_empty()).then(|| Opaque(json!({ "signature": signature })));
            Part::Thinking { text, opaque }
        }
        Block::Redacted(data) => Part::RedactedThinking { opaque: Opaque(data) },
        Block::Tool { id, provider_id, name, start, json, .. } => {
            let given_whole = json.is_empty() && start.as_object().is_some_and(|input| !input.is_empty());
            let raw = if given_whole { start.to_string() } else { json };
            tool_call(id, provider_id, name, &raw, cut)
        }
        Block::Provider { mut block, json } => {
            if let (Some(object), Ok(input)) = (block.as_object_mut(), serde_json::from_str::<Value>(&json)) {
                object.insert("input".to_owned(), input);
            }
            Part::Provider { opaque: Opaque(block) }
        }
    })
}

fn stop_reason(raw: &str, calls: bool) -> StopReason {
    match raw {
        "max_tokens" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        "model_context_window_exceeded" => StopReason::ContextFull,
        "tool_use" => StopReason::ToolUse,
        "end_turn" | "stop_sequence" if calls => StopReason::ToolUse,
        "end_turn" | "stop_sequence" => StopReason::Stop,
        _ => StopReason::Other,
    }
}

impl WireDecoder for Decoder {
    fn frame(&mut self, event: SseEvent<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if self.stopped || event.data == "[DONE]" {
            return Ok(());
        }
        let frame: Frame<'_> = match serde_json::from_str(event.data) {
            Ok(frame) => frame,
            Err(_) if event.name == "error" => return Err(errors::from_words(event.data, &self.host)),
            Err(error) => return Err(bad_frame(&error, event.data)),
        };
        if frame.kind == "error" || event.name == "error" || frame.error.is_some() {
            return Err(errors::from_words(event.data, &self.host));
        }
        match (&*frame.kind, frame.delta) {
            ("content_block_delta", Some(delta)) => self.take_delta(frame.index.unwrap_or(0), delta, out),
            ("content_block_start", _) => {
                let raw = frame.content_block.map_or("{}", RawValue::get);
                let block = serde_json::from_str(raw).map_err(|error| bad_frame(&error, raw))?;
                self.start_block(frame.index.unwrap_or(0), block, out)
            }
            ("message_start", _) => match frame.message {
                Some(message) => self.start_message(message, out),
                None => Err(protocol("the provider began a message without saying which")),
            },
            ("message_delta", delta) => {
                if let Some(stop) = delta.and_then(|delta| delta.stop_reason) {
                    self.stop = Some(stop);
                }
                if let Some(usage) = frame.usage {
                    self.add_usage(*usage);
                }
                Ok(())
            }
            ("message_stop", _) => {
                self.stopped = true;
                Ok(())
            }
            // Pings, ends of blocks, and kinds that this version does not know.
            _ => Ok(()),
        }
    }

    fn body(&mut self, body: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let raw: &RawValue = serde_json::from_str(&text).map_err(|error| bad_frame(&error, &text))?;
        let is_error = serde_json::from_str::<Value>(raw.get())
            .is_ok_and(|value| value.is_array() || value.get("error").is_some_and(|error| !error.is_null()));
        if is_error {
            return Err(errors::from_words(&text, &self.host));
        }
        let start: Start = serde_json::from_str(raw.get()).map_err(|error| bad_frame(&error, &text))?;
        self.stop = start.stop_reason;
        self.start_message(raw, out)?;
        self.stopped = true;
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if !self.stopped || self.stop.is_none() || self.message_id.is_none() {
            let mut error = ModelError::new(
                ModelErrorKind::Transport,
                format!("the stream of {} ended before the answer was complete", self.host),
            );
            error.usage = self.usage();
            return Err(error);
        }
        let response = self.finished();
        out.push(StreamEvent::Finished(Box::new(response)));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.stopped
    }

    fn usage(&self) -> Option<Usage> {
        self.has_usage.then(|| self.usage.normal())
    }
}
