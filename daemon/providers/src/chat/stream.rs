//! Decodes a Chat Completions stream.

use std::sync::Arc;

use mcode_env::IdGen;
use mcode_events::message::{Opaque, Origin, Part};
use mcode_events::usage::Usage;
use mcode_models::{ModelError, ModelErrorKind, Response, StopReason, StreamEvent};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::Calls;
use super::dialect::Dialect;
use super::errors;
use super::frame::{Choice, Delta, Frame};
use super::think::{Piece, ThinkSplit, split_unopened};
use super::usage::RawUsage;
use crate::decode::{WireDecoder, bad_frame, protocol, push_text, push_thinking};
use crate::sse::SseEvent;

/// The most pieces of reasoning details that are kept of one response.
pub(crate) const MAX_REASONING_DETAILS: usize = 4_096;

/// Decodes one response.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: Arc<dyn IdGen>,
    origin: Origin,
    host: String,
    dialect: &'static Dialect,
    started: bool,
    response_id: String,
    model: String,
    text: String,
    thinking: String,
    split: ThinkSplit,
    details: Vec<Value>,
    calls: Calls,
    usage: Option<Box<RawUsage>>,
    finish: Option<String>,
    refused: bool,
    done: bool,
}

impl Decoder {
    /// A decoder for a response of `host` to a request whose answers are signed with `origin`.
    pub(crate) fn new(ids: Arc<dyn IdGen>, origin: Origin, host: String, dialect: &'static Dialect) -> Self {
        let split = if dialect.think_tags { ThinkSplit::default() } else { ThinkSplit::off() };
        Self {
            ids,
            origin,
            host,
            dialect,
            started: false,
            response_id: String::new(),
            model: String::new(),
            text: String::new(),
            thinking: String::new(),
            split,
            details: Vec::new(),
            calls: Calls::default(),
            usage: None,
            finish: None,
            refused: false,
            done: false,
        }
    }

    fn take_frame(&mut self, frame: Frame<'_>, data: &str, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if !self.started {
            self.started = true;
            out.push(StreamEvent::Started);
        }
        fill(&mut self.response_id, frame.id);
        fill(&mut self.model, frame.model);
        self.take_usage(frame.usage);
        self.take_usage(frame.x_groq.and_then(|groq| groq.usage));
        if frame.error.is_some() {
            return Err(errors::from_words(data, &self.host));
        }
        // We ask for one choice; a server that gives more is not followed into the others.
        for choice in frame.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.take_choice(choice, out)?;
        }
        Ok(())
    }

    fn take_usage(&mut self, usage: Option<Box<RawUsage>>) {
        if let Some(usage) = usage
            && (usage.says_something() || self.usage.is_none())
        {
            self.usage = Some(usage);
        }
    }

    fn take_choice(&mut self, choice: Choice<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        self.take_usage(choice.usage);
        if let Some(delta) = choice.delta {
            self.take_delta(delta, out)?;
        }
        match choice.finish_reason.as_deref() {
            None | Some("") => Ok(()),
            Some(reason @ ("error" | "network_error" | "insufficient_system_resource")) => {
                Err(ModelError::new(ModelErrorKind::Server, format!("{} ended the answer with '{reason}'", self.host)))
            }
            Some(_) => {
                self.finish = choice.finish_reason;
                Ok(())
            }
        }
    }

    fn take_delta(&mut self, delta: Delta<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        // Some servers send the same reasoning in two fields.
        let reasoning = [delta.reasoning_content, delta.reasoning, delta.reasoning_text]
            .into_iter()
            .flatten()
            .find(|text| !text.is_empty());
        for more in [reasoning.as_deref().unwrap_or_default(), &delta.content.thinking] {
            if !more.is_empty() {
                self.thinking.push_str(more);
                push_thinking(out, more);
            }
        }
        for detail in delta.reasoning_details.into_iter().flatten() {
            self.take_detail(detail)?;
        }
        if !delta.content.text.is_empty() {
            self.take_text(&delta.content.text, out);
        }
        if let Some(refusal) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refused = true;
            self.take_text(&refusal, out);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.calls.take(call, self.ids.as_ref(), out)?;
        }
        Ok(())
    }

    fn take_text(&mut self, text: &str, out: &mut Vec<StreamEvent>) {
        let (words, thoughts) = (&mut self.text, &mut self.thinking);
        self.split.feed(text, &mut |piece| keep(piece, words, thoughts, out));
    }

    /// Pieces of the same detail are joined; the whole list goes back to the provider.
    fn take_detail(&mut self, detail: Value) -> Result<(), ModelError> {
        if let Some(before) = self.details.last_mut()
            && joins(before, &detail)
        {
            join(before, detail);
            return Ok(());
        }
        if self.details.len() >= MAX_REASONING_DETAILS {
            return Err(protocol(format!("the response holds more than {MAX_REASONING_DETAILS} reasoning details")));
        }
        self.details.push(detail);
        Ok(())
    }

    fn finished(&mut self) -> Response {
        let stop_raw = self.finish.clone().unwrap_or_default();
        let mut text = std::mem::take(&mut self.text);
        let mut thinking = std::mem::take(&mut self.thinking);
        if self.dialect.think_tags
            && thinking.is_empty()
            && let Some((before, after)) = split_unopened(&text)
        {
            (thinking, text) = (before.to_owned(), after.to_owned());
        }
        let details = std::mem::take(&mut self.details);
        let opaque = (!details.is_empty()).then(|| Opaque(json!({ "reasoning_details": details })));
        let mut parts = Vec::new();
        match (thinking.is_empty(), opaque) {
            (false, opaque) => parts.push(Part::Thinking { text: thinking, opaque }),
            (true, Some(opaque)) => parts.push(Part::RedactedThinking { opaque }),
            (true, None) => {}
        }
        if !text.is_empty() {
            parts.push(Part::text(text));
        }
        let mut stop = stop_reason(&stop_raw);
        let calls = self.calls.finish(stop == StopReason::Length);
        // Servers do not agree on the reason when there are calls: the calls count.
        stop = match stop {
            StopReason::Stop | StopReason::Other if !calls.is_empty() => StopReason::ToolUse,
            StopReason::ToolUse if calls.is_empty() => StopReason::Stop,
            StopReason::Stop if self.refused => StopReason::Refusal,
            other => other,
        };
        parts.extend(calls);
        Response {
            parts,
            origin: self.origin.clone(),
            model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.response_id),
            stop,
            stop_raw,
            usage: self.usage(),
        }
    }
}

fn keep(piece: Piece<'_>, text: &mut String, thinking: &mut String, out: &mut Vec<StreamEvent>) {
    match piece {
        Piece::Text(more) => {
            text.push_str(more);
            push_text(out, more);
        }
        Piece::Thinking(more) => {
            thinking.push_str(more);
            push_thinking(out, more);
        }
    }
}

/// Takes a text once, whatever type the server gave it.
fn fill(target: &mut String, raw: Option<&RawValue>) {
    if target.is_empty()
        && let Some(raw) = raw
    {
        *target = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().chars().take(200).collect());
    }
}

fn joins(before: &Value, detail: &Value) -> bool {
    let same = |key: &str| before.get(key) == detail.get(key);
    let kind = detail.get("type").and_then(Value::as_str);
    let streamed = matches!(kind, Some("reasoning.text" | "reasoning.summary"));
    let same_id = detail.get("id").is_none_or(Value::is_null) || same("id");
    streamed && same("type") && same("index") && same_id
}

/// Adds a later piece of a detail: texts grow, the other fields are taken when they say something.
fn join(before: &mut Value, detail: Value) {
    let (Some(before), Value::Object(detail)) = (before.as_object_mut(), detail) else { return };
    for (key, value) in detail {
        match (before.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if matches!(key.as_str(), "text" | "summary") => {
                text.push_str(&more);
            }
            (_, value) => {
                before.insert(key, value);
            }
        }
    }
}

fn stop_reason(raw: &str) -> StopReason {
    match raw {
        "stop" | "end_turn" | "eos" | "stop_sequence" => StopReason::Stop,
        "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
        "length" | "max_tokens" | "model_length" => StopReason::Length,
        "content_filter" | "sensitive" | "refusal" => StopReason::Refusal,
        "model_context_window_exceeded" => StopReason::ContextFull,
        _ => StopReason::Other,
    }
}

impl WireDecoder for Decoder {
    fn frame(&mut self, event: SseEvent<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if self.done {
            return Ok(());
        }
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        if event.name == "error" {
            return Err(errors::from_words(data, &self.host));
        }
        let frame = serde_json::from_str(data).map_err(|error| bad_frame(&error, data))?;
        self.take_frame(frame, data, out)
    }

    fn body(&mut self, body: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        if text.starts_with('[') {
            return Err(errors::from_words(text, &self.host));
        }
        let frame: Frame<'_> = serde_json::from_str(text).map_err(|error| bad_frame(&error, text))?;
        if frame.choices.is_none() {
            return Err(errors::from_words(text, &self.host));
        }
        self.take_frame(frame, text, out)
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if self.finish.is_none() {
            let mut error = ModelError::new(
                ModelErrorKind::Transport,
                format!("the stream of {} ended before the answer was complete", self.host),
            );
            error.usage = self.usage();
            return Err(error);
        }
        let (words, thoughts) = (&mut self.text, &mut self.thinking);
        self.split.finish(&mut |piece| keep(piece, words, thoughts, out));
        let response = self.finished();
        out.push(StreamEvent::Finished(Box::new(response)));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.as_ref().map(|usage| usage.normal(self.dialect))
    }
}
