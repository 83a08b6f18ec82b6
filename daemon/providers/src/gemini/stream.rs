//! Decodes a Gemini stream: each frame is a whole answer with more of the parts.

use std::fmt;
use std::sync::Arc;

use mcode_env::IdGen;
use mcode_events::message::{Opaque, Origin, Part};
use mcode_events::usage::Usage;
use mcode_ids::ToolCallId;
use mcode_models::{ModelError, ModelErrorKind, Response, StopReason, StreamEvent};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use smallvec::SmallVec;

use super::errors;
use crate::decode::{
    Count, MAX_BLOCKS, WireDecoder, Words, bad_frame, protocol, push_arguments, push_text, push_thinking, tool_call,
    with_call_opaque,
};
use crate::sse::SseEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow, default)]
    candidates: Option<SmallVec<[Candidate<'a>; 1]>>,
    #[serde(default)]
    usage_metadata: Option<Box<RawUsage>>,
    #[serde(default, borrow)]
    model_version: Option<Words<'a>>,
    #[serde(default, borrow)]
    response_id: Option<Words<'a>>,
    #[serde(default)]
    prompt_feedback: Option<Box<PromptFeedback>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    #[serde(default)]
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Words<'a>>,
    #[serde(borrow, default)]
    finish_message: Option<Words<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<SmallVec<[RawPart<'a>; 1]>>,
}

/// A part; `rest` is what is not known of it. What is rare is kept apart, as a part is moved several times while it is
/// read.
#[derive(Default)]
struct RawPart<'a> {
    text: Option<Words<'a>>,
    thought: Option<bool>,
    thought_signature: Option<Box<str>>,
    function_call: Option<Box<FunctionCall>>,
    rest: Option<Box<serde_json::Map<String, Value>>>,
}

/// By hand: `#[serde(flatten)]` copies every part into a tree first, and nearly all of a stream are parts.
impl<'de: 'a, 'a> Deserialize<'de> for RawPart<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "camelCase")]
        enum Key {
            Text,
            Thought,
            ThoughtSignature,
            FunctionCall,
            Other(String),
        }
        struct OfPart;

        impl<'de> Visitor<'de> for OfPart {
            type Value = RawPart<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawPart<'de>, A::Error> {
                let mut part = RawPart::default();
                while let Some(key) = map.next_key()? {
                    match key {
                        Key::Text => part.text = map.next_value()?,
                        Key::Thought => part.thought = map.next_value()?,
                        Key::ThoughtSignature => part.thought_signature = map.next_value()?,
                        Key::FunctionCall => part.function_call = map.next_value()?,
                        Key::Other(name) => drop(part.rest.get_or_insert_default().insert(name, map.next_value()?)),
                    }
                }
                Ok(part)
            }
        }

        deserializer.deserialize_map(OfPart)
    }
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    args: Option<Value>,
}

/// Token counts. The prompt's hold the cached ones; the candidates' leave reasoning out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawUsage {
    #[serde(default)]
    prompt_token_count: Count,
    #[serde(default)]
    tool_use_prompt_token_count: Count,
    #[serde(default)]
    cached_content_token_count: Count,
    #[serde(default)]
    candidates_token_count: Count,
    #[serde(default)]
    thoughts_token_count: Count,
}

impl RawUsage {
    fn normal(&self) -> Usage {
        let read = self.cached_content_token_count.or_zero();
        let reasoning = self.thoughts_token_count.or_zero();
        let input = self.prompt_token_count.or_zero().saturating_sub(read);
        Usage {
            input_tokens: input.saturating_add(self.tool_use_prompt_token_count.or_zero()),
            output_tokens: self.candidates_token_count.or_zero().saturating_add(reasoning),
            cache_read_tokens: read,
            cache_write_tokens: 0,
            reasoning_tokens: reasoning,
            cost_usd: 0.0,
        }
    }

    /// A later report counts for what it names.
    fn then(self, later: Self) -> Self {
        Self {
            prompt_token_count: later.prompt_token_count.or(self.prompt_token_count),
            tool_use_prompt_token_count: later.tool_use_prompt_token_count.or(self.tool_use_prompt_token_count),
            cached_content_token_count: later.cached_content_token_count.or(self.cached_content_token_count),
            candidates_token_count: later.candidates_token_count.or(self.candidates_token_count),
            thoughts_token_count: later.thoughts_token_count.or(self.thoughts_token_count),
        }
    }
}

/// What was said so far, in order.
#[derive(Debug)]
enum Block {
    Words { text: String, thought: bool, signature: Option<String> },
    Whole(Part),
}

/// Decodes one response.
#[derive(Debug)]
pub(crate) struct Decoder {
    ids: Arc<dyn IdGen>,
    origin: Origin,
    host: String,
    started: bool,
    response_id: String,
    model: String,
    blocks: Vec<Block>,
    calls: usize,
    usage: Option<RawUsage>,
    finish: Option<String>,
    blocked: Option<String>,
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
            blocks: Vec::new(),
            calls: 0,
            usage: None,
            finish: None,
            blocked: None,
        }
    }

    fn take_frame(&mut self, frame: Frame<'_>, data: &str, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        if frame.error.is_some() {
            return Err(errors::from_words(data, &self.host));
        }
        if !self.started {
            self.started = true;
            out.push(StreamEvent::Started);
        }
        if let Some(id) = frame.response_id.filter(|_| self.response_id.is_empty()) {
            self.response_id = id.0.into_owned();
        }
        if let Some(model) = frame.model_version.filter(|_| self.model.is_empty()) {
            self.model = model.0.into_owned();
        }
        if let Some(usage) = frame.usage_metadata {
            self.usage = Some(self.usage.take().unwrap_or_default().then(*usage));
        }
        self.blocked = frame.prompt_feedback.and_then(|feedback| feedback.block_reason).or_else(|| self.blocked.take());
        // We ask for one; a server that gives more is not followed into the others.
        for candidate in frame.candidates.into_iter().flatten().filter(|one| one.index.unwrap_or(0) == 0) {
            for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
                self.take_part(part, out)?;
            }
            let Some(reason) = candidate.finish_reason.filter(|reason| !reason.is_empty()) else { continue };
            if matches!(&*reason, "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") {
                let words = candidate.finish_message.as_deref().unwrap_or_default();
                return Err(ModelError::new(
                    ModelErrorKind::BadToolCall,
                    format!("{} ended the answer with {}: {words}", self.host, &*reason),
                ));
            }
            self.finish = Some(reason.0.into_owned());
        }
        Ok(())
    }

    fn take_part(&mut self, part: RawPart<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let RawPart { text, thought, thought_signature, function_call, rest } = part;
        let signature = thought_signature.filter(|signature| !signature.is_empty()).map(String::from);
        if let Some(call) = function_call {
            return self.take_call(*call, signature, out);
        }
        if let Some(text) = text {
            return self.take_words(&text, thought == Some(true), signature, out);
        }
        match (signature, rest) {
            (Some(signature), None) => self.take_words("", false, Some(signature), out),
            (None, None) => Ok(()),
            // Code that the provider ran, and its like: only it understands them.
            (signature, Some(rest)) => {
                let mut block = Value::Object(*rest);
                if let Some(signature) = signature {
                    block["thoughtSignature"] = json!(signature);
                }
                self.add(Block::Whole(Part::Provider { opaque: Opaque(block) }))
            }
        }
    }

    /// A signature belongs to the part that it came with: words are joined with those before only where that leaves
    /// one of them signed at most, and words that end without a text stay alone.
    fn take_words(
        &mut self,
        more: &str,
        is_thought: bool,
        signed: Option<String>,
        out: &mut Vec<StreamEvent>,
    ) -> Result<(), ModelError> {
        if more.is_empty() && signed.is_none() {
            return Ok(());
        }
        if !more.is_empty() {
            let push = if is_thought { push_thinking } else { push_text };
            push(out, more);
        }
        if let Some(Block::Words { text, thought, signature }) = self.blocks.last_mut()
            && *thought == is_thought
            && (signed.is_none() || (signature.is_none() && !more.is_empty()))
        {
            text.push_str(more);
            *signature = signature.take().or(signed);
            return Ok(());
        }
        self.add(Block::Words { text: more.to_owned(), thought: is_thought, signature: signed })
    }

    fn take_call(
        &mut self,
        call: FunctionCall,
        signature: Option<String>,
        out: &mut Vec<StreamEvent>,
    ) -> Result<(), ModelError> {
        let name = call.name.unwrap_or_default();
        let raw = call.args.filter(|args| !args.is_null()).map(|args| args.to_string()).unwrap_or_default();
        push_arguments(out, self.calls, &name, &raw);
        self.calls += 1;
        let id = ToolCallId::from_uuid(self.ids.next());
        let part = tool_call(id, call.id.unwrap_or_default(), name, &raw, false);
        let opaque = signature.map(|signature| Opaque(json!({ "thought_signature": signature })));
        self.add(Block::Whole(with_call_opaque(part, opaque)))
    }

    fn add(&mut self, block: Block) -> Result<(), ModelError> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(protocol(format!("the response holds more than {MAX_BLOCKS} parts")));
        }
        self.blocks.push(block);
        Ok(())
    }

    fn finished(&mut self, stop_raw: String, stop: StopReason) -> Response {
        let parts = std::mem::take(&mut self.blocks).into_iter().map(|block| match block {
            Block::Whole(part) => part,
            Block::Words { text, thought, signature } => {
                let opaque = signature.map(|signature| Opaque(json!({ "thought_signature": signature })));
                if thought { Part::Thinking { text, opaque } } else { Part::Text { text, opaque } }
            }
        });
        Response {
            parts: parts.collect(),
            origin: self.origin.clone(),
            model: std::mem::take(&mut self.model),
            response_id: std::mem::take(&mut self.response_id),
            stop,
            stop_raw,
            usage: self.usage(),
        }
    }
}

fn stop_reason(raw: &str, calls: usize) -> StopReason {
    match raw {
        "STOP" if calls > 0 => StopReason::ToolUse,
        "STOP" => StopReason::Stop,
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE" => StopReason::Refusal,
        _ => StopReason::Other,
    }
}

impl WireDecoder for Decoder {
    fn frame(&mut self, event: SseEvent<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        if event.name == "error" {
            return Err(errors::from_words(data, &self.host));
        }
        let frame = serde_json::from_str(data).map_err(|error| bad_frame(&error, data))?;
        self.take_frame(frame, data, out)
    }

    /// Without `alt=sse` the frames come as a list.
    fn body(&mut self, body: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let value: Value = serde_json::from_str(&text).map_err(|error| bad_frame(&error, &text))?;
        let frames = match value {
            Value::Array(frames) => frames,
            one => vec![one],
        };
        for value in frames {
            let data = value.to_string();
            let says_nothing =
                ["candidates", "promptFeedback", "usageMetadata"].iter().all(|key| value[*key].is_null());
            if says_nothing {
                return Err(errors::from_words(&data, &self.host));
            }
            let frame = serde_json::from_str(&data).map_err(|error| bad_frame(&error, &data))?;
            self.take_frame(frame, &data, out)?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let (raw, stop) = match (self.finish.clone(), self.blocked.clone()) {
            (Some(raw), _) => {
                let stop = stop_reason(&raw, self.calls);
                (raw, stop)
            }
            (None, Some(reason)) => (reason, StopReason::Refusal),
            (None, None) => {
                let words = format!("the stream of {} ended before the answer was complete", self.host);
                let mut error = ModelError::new(ModelErrorKind::Transport, words);
                error.usage = self.usage();
                return Err(error);
            }
        };
        // It happens, and the next attempt gives an answer.
        if stop == StopReason::Stop && self.blocks.is_empty() {
            let mut error = ModelError::new(ModelErrorKind::Server, format!("{} gave an empty answer", self.host));
            error.usage = self.usage();
            return Err(error);
        }
        let response = self.finished(raw, stop);
        out.push(StreamEvent::Finished(Box::new(response)));
        Ok(())
    }

    /// Counts may come after the reason to stop.
    fn is_done(&self) -> bool {
        false
    }

    fn is_complete(&self) -> bool {
        self.finish.is_some() || self.blocked.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.as_ref().map(RawUsage::normal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> Decoder {
        let origin = Origin { provider: "google".into(), wire: "gemini".into(), model: "m".into() };
        Decoder::new(Arc::new(mcode_env::SeededIds::new(1)), origin, "h".into())
    }

    fn answer(body: &str) -> Result<Response, ModelError> {
        let (mut decoder, mut out) = (decoder(), Vec::new());
        decoder.body(body.as_bytes(), &mut out)?;
        decoder.end(&mut out)?;
        match out.pop() {
            Some(StreamEvent::Finished(response)) => Ok(*response),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn signed_words_are_never_joined_with_signed_words() {
        let body = r#"[{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":"S1"}]}}]},
            {"candidates":[{"content":{"parts":[{"text":"b"}]}}]},
            {"candidates":[{"content":{"parts":[{"text":"c","thoughtSignature":"S2"}]}}]},
            {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"S3"}]},"finishReason":"STOP"}]}]"#;
        let signed = |text: &str, signature: &str| Part::Text {
            text: text.into(),
            opaque: Some(Opaque(json!({ "thought_signature": signature }))),
        };
        assert_eq!(answer(body).unwrap().parts, [signed("ab", "S1"), signed("c", "S2"), signed("", "S3")]);
    }

    #[test]
    fn odd_ends_are_told_apart() {
        let refused = answer(r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#).unwrap();
        assert_eq!((refused.stop, refused.stop_raw.as_str()), (StopReason::Refusal, "SAFETY"));
        let empty = answer(r#"{"candidates":[{"finishReason":"STOP"}]}"#).unwrap_err();
        assert!(empty.is_retryable(), "{empty}");
        let cut = answer(r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#).unwrap();
        assert_eq!(cut.stop, StopReason::Length);
        let call = r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(x)"}]}"#;
        let error = answer(call).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadToolCall);
        assert!(error.message.contains("print(x)"), "{error}");
        assert_eq!(answer(r#"{"usageMetadata":{"promptTokenCount":3}}"#).unwrap_err().kind, ModelErrorKind::Transport);
        assert_eq!(answer(r#"{"error":{"code":503,"message":"x"}}"#).unwrap_err().kind, ModelErrorKind::Overloaded);
    }
}
