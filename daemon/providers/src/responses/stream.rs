//! Decodes a Responses stream. What is given whole at an item's end counts over what was streamed of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_env::IdGen;
use mcode_events::message::{Origin, Part};
use mcode_events::usage::Usage;
use mcode_ids::ToolCallId;
use mcode_models::{ModelError, ModelErrorKind, Response, StopReason, StreamEvent};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::frame::{Frame, RawUsage, Whole};
use super::item::{Item, PARAGRAPH};
use crate::chat::errors;
use crate::decode::{MAX_BLOCKS, WireDecoder, Words, bad_frame, protocol, push_arguments, push_text, push_thinking};
use crate::sse::SseEvent;

/// Decodes one response.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: Arc<dyn IdGen>,
    origin: Origin,
    host: String,
    started: bool,
    response_id: String,
    model: String,
    /// By the wire's index, which orders them.
    items: BTreeMap<u64, Item>,
    calls: usize,
    usage: Option<RawUsage>,
    /// How it ended and, if it is not complete, why.
    ended: Option<(String, String)>,
}

impl Decoder {
    /// A decoder for a response of `host` to a request whose answers are signed with `origin`.
    pub(crate) fn new(ids: Arc<dyn IdGen>, origin: Origin, host: String) -> Self {
        Self {
            ids,
            origin,
            host,
            started: false,
            response_id: String::new(),
            model: String::new(),
            items: BTreeMap::new(),
            calls: 0,
            usage: None,
            ended: None,
        }
    }

    fn item(&mut self, index: u64) -> Result<&mut Item, ModelError> {
        if !self.items.contains_key(&index) && self.items.len() >= MAX_BLOCKS {
            return Err(protocol(format!("the response holds more than {MAX_BLOCKS} items")));
        }
        let ids = &self.ids;
        Ok(self.items.entry(index).or_insert_with(|| Item {
            raw: Value::Null,
            streamed: String::new(),
            call_id: ToolCallId::from_uuid(ids.next()),
            place: 0,
            done: false,
        }))
    }

    /// Takes an item as it is given whole; `done` at its end.
    fn take_item(&mut self, index: u64, raw: Value, done: bool, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let place = self.calls;
        let item = self.item(index)?;
        let first = item.raw.is_null();
        item.raw = raw;
        item.done = done;
        let begins = first && item.is_call();
        if begins {
            item.place = place;
            push_arguments(out, place, item.name(), "");
        }
        // Servers may give an item whole without having streamed it.
        if done && item.streamed.is_empty() {
            let text = item.text();
            match item.kind() {
                _ if text.is_empty() => {}
                "message" => push_text(out, &text),
                "reasoning" => push_thinking(out, &text),
                "function_call" | "custom_tool_call" => push_arguments(out, item.place, item.name(), &text),
                _ => {}
            }
        }
        self.calls += usize::from(begins);
        Ok(())
    }

    fn take_delta(&mut self, frame: &Frame<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let Some(raw) = frame.delta else { return Ok(()) };
        let index = frame.output_index.unwrap_or(0);
        let kind = &*frame.kind;
        let is_known = DELTAS.contains(&kind);
        // Pieces of what only the provider understands come whole with their item.
        let (true, Ok(delta)) = (is_known, serde_json::from_str::<Words<'_>>(raw.get())) else { return Ok(()) };
        if delta.is_empty() {
            return Ok(());
        }
        let item = self.item(index)?;
        item.streamed.push_str(&delta);
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => push_text(out, &delta),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => push_thinking(out, &delta),
            _ => push_arguments(out, item.place, item.name(), &delta),
        }
        Ok(())
    }

    /// A further paragraph of a summary begins.
    fn take_paragraph(&mut self, frame: &Frame<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if frame.summary_index.unwrap_or(0) == 0 {
            return Ok(());
        }
        let item = self.item(frame.output_index.unwrap_or(0))?;
        if !item.streamed.is_empty() {
            item.streamed.push_str(PARAGRAPH);
            push_thinking(out, PARAGRAPH);
        }
        Ok(())
    }

    fn take_response(&mut self, kind: &str, raw: &RawValue, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let whole: Whole = serde_json::from_str(raw.get()).map_err(|error| bad_frame(&error, raw.get()))?;
        if !self.started {
            self.started = true;
            out.push(StreamEvent::Started);
        }
        fill(&mut self.response_id, whole.id);
        fill(&mut self.model, whole.model);
        self.usage = whole.usage.or_else(|| self.usage.take());
        let status = match kind {
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => whole.status,
            // A body that is no stream.
            "" => whole.status,
            _ => return Ok(()),
        };
        let status = status.unwrap_or_else(|| kind.trim_start_matches("response.").replace("done", "completed"));
        if matches!(status.as_str(), "failed" | "cancelled") {
            let words = json!({ "error": whole.error.filter(|error| !error.is_null()).unwrap_or_else(|| {
                json!({"code": "server_error", "message": format!("the response ended as '{status}'")})
            }) });
            return Err(errors::from_words(&words.to_string(), &self.host));
        }
        for (index, item) in whole.output.into_iter().flatten().enumerate() {
            let index = index as u64;
            if !self.items.get(&index).is_some_and(|known| known.done) {
                self.take_item(index, item, true, out)?;
            }
        }
        let reason = whole.incomplete_details.and_then(|details| details.reason).unwrap_or_default();
        self.ended = Some((status, reason));
        Ok(())
    }

    fn finished(&mut self, status: String, reason: &str) -> Response {
        let items = std::mem::take(&mut self.items);
        let last = items.len().saturating_sub(1);
        let limited = status == "incomplete" && reason != "content_filter";
        let wants_action = items.values().any(Item::wants_action);
        let refuses = items.values().any(Item::refuses);
        let parts: Vec<Part> = items
            .into_values()
            .enumerate()
            .filter_map(|(index, item)| item.into_part(limited && index == last))
            .collect();
        let stop = match (status.as_str(), reason) {
            ("incomplete", "content_filter") => StopReason::Refusal,
            ("incomplete", _) => StopReason::Length,
            ("completed", _) if wants_action => StopReason::ToolUse,
            ("completed", _) if refuses => StopReason::Refusal,
            ("completed", _) => StopReason::Stop,
            _ => StopReason::Other,
        };
        Response {
            parts,
            origin: self.origin.clone(),
            model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.response_id),
            stop,
            stop_raw: status,
            usage: self.usage(),
        }
    }
}

/// Pieces of text that are shown as they come.
const DELTAS: &[&str] = &[
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
];

fn fill(target: &mut String, given: Option<String>) {
    if target.is_empty()
        && let Some(given) = given
    {
        *target = given;
    }
}

impl WireDecoder for Decoder {
    fn frame(&mut self, event: SseEvent<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if self.ended.is_some() || event.data == "[DONE]" {
            return Ok(());
        }
        let frame: Frame<'_> = match serde_json::from_str(event.data) {
            Ok(frame) => frame,
            Err(_) if event.name == "error" => return Err(errors::from_words(event.data, &self.host)),
            Err(error) => return Err(bad_frame(&error, event.data)),
        };
        if frame.kind == "error" || (event.name == "error" && frame.kind.is_empty()) {
            return Err(errors::from_words(event.data, &self.host));
        }
        let index = frame.output_index.unwrap_or(0);
        match (&*frame.kind, frame.item, frame.response) {
            ("response.output_item.added" | "response.output_item.done", Some(raw), _) => {
                let item = serde_json::from_str(raw.get()).map_err(|error| bad_frame(&error, raw.get()))?;
                self.take_item(index, item, frame.kind.ends_with("done"), out)
            }
            ("response.reasoning_summary_part.added", ..) => self.take_paragraph(&frame, out),
            (kind, _, Some(response)) => self.take_response(kind, response, out),
            // Among them kinds that this version does not know.
            _ => self.take_delta(&frame, out),
        }
    }

    fn body(&mut self, body: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let raw: &RawValue = serde_json::from_str(&text).map_err(|error| bad_frame(&error, &text))?;
        let value: Value = serde_json::from_str(raw.get()).map_err(|error| bad_frame(&error, &text))?;
        if value.get("output").is_none() {
            return Err(errors::from_words(&text, &self.host));
        }
        self.take_response("", raw, out)
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let Some((status, reason)) = self.ended.clone() else {
            let mut error = ModelError::new(
                ModelErrorKind::Transport,
                format!("the stream of {} ended before the answer was complete", self.host),
            );
            error.usage = self.usage();
            return Err(error);
        };
        let response = self.finished(status, &reason);
        out.push(StreamEvent::Finished(Box::new(response)));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.as_ref().map(RawUsage::normal)
    }
}
