//! What the wires' decoders have in common: the shape of a decoder and its bounds.

use std::borrow::Cow;
use std::ops::Deref;

use mcode_events::message::{Opaque, Part};
use mcode_events::usage::Usage;
use mcode_ids::ToolCallId;
use mcode_models::{ModelError, ModelErrorKind, StreamEvent};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use serde_json::Value;

use crate::sse::{SseError, SseEvent};

/// The most bytes that one response may have.
pub const MAX_RESPONSE_BYTES: u64 = 128 * 1024 * 1024;
/// The most blocks (texts, thoughts, calls) that one response may have.
pub const MAX_BLOCKS: usize = 1_024;

/// Turns the frames of one response into stream events.
pub(crate) trait WireDecoder: Send + Sync {
    /// Takes one frame of a stream.
    fn frame(&mut self, event: SseEvent<'_>, out: &mut Vec<StreamEvent>) -> Result<(), ModelError>;
    /// Takes a body that is plain JSON although a stream was asked for.
    fn body(&mut self, body: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError>;
    /// The bytes ended: gives `Finished`, or the error that the end was not seen. Called once, also after `is_done`.
    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError>;
    /// Whether the end was seen and nothing that matters can come any more.
    fn is_done(&self) -> bool;
    /// Whether the answer is complete, though more about it (usage) may come.
    fn is_complete(&self) -> bool {
        self.is_done()
    }
    /// Tokens that are known to be spent so far.
    fn usage(&self) -> Option<Usage>;
}

impl From<SseError> for ModelError {
    fn from(error: SseError) -> Self {
        protocol(error.to_string())
    }
}

/// What came is not what the wire promises.
pub(crate) fn protocol(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Protocol, message)
}

/// A frame that does not parse. It is never skipped: what it held may change the meaning of what stands around it.
pub(crate) fn bad_frame(error: &serde_json::Error, data: &str) -> ModelError {
    let start: String = data.chars().take(80).collect();
    protocol(format!("the provider sent a frame that can not be read ({error}): {start}"))
}

/// Adds a delta, joined with the one before when both came in the same piece of the network.
pub(crate) fn push_text(out: &mut Vec<StreamEvent>, delta: &str) {
    if let Some(StreamEvent::TextDelta(before)) = out.last_mut() {
        before.push_str(delta);
    } else {
        out.push(StreamEvent::TextDelta(delta.to_owned()));
    }
}

/// As [`push_text`] for reasoning.
pub(crate) fn push_thinking(out: &mut Vec<StreamEvent>, delta: &str) {
    if let Some(StreamEvent::ThinkingDelta(before)) = out.last_mut() {
        before.push_str(delta);
    } else {
        out.push(StreamEvent::ThinkingDelta(delta.to_owned()));
    }
}

/// As [`push_text`] for the arguments of a call. The name goes with every delta, as the border wants it.
pub(crate) fn push_arguments(out: &mut Vec<StreamEvent>, at: usize, tool: &str, delta: &str) {
    if let Some(StreamEvent::ToolCallDelta { index, arguments, .. }) = out.last_mut()
        && *index == at
    {
        arguments.push_str(delta);
    } else {
        out.push(StreamEvent::ToolCallDelta { index: at, name: tool.to_owned(), arguments: delta.to_owned() });
    }
}

/// A finished call. An empty text is no arguments; one that is no JSON object stays a string, which the agent
/// answers with an error instead of running it. `cut` says that the output limit ended the response inside this call.
pub(crate) fn tool_call(id: ToolCallId, provider_id: String, name: String, raw: &str, cut: bool) -> Part {
    let arguments =
        if raw.trim().is_empty() && !cut { Value::Object(serde_json::Map::new()) } else { parse_arguments(raw) };
    Part::ToolCall { tool_call_id: id, provider_call_id: provider_id, name, arguments, opaque: None }
}

fn parse_arguments(raw: &str) -> Value {
    match serde_json::from_str::<Value>(raw) {
        Ok(value @ Value::Object(_)) => value,
        Ok(Value::Null) => Value::Object(serde_json::Map::new()),
        // Some servers encode the arguments twice.
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(value @ Value::Object(_)) => value,
            _ => Value::String(raw.to_owned()),
        },
        _ => Value::String(raw.to_owned()),
    }
}

/// Sets the opaque data of a call.
pub(crate) fn with_call_opaque(part: Part, opaque: Option<Opaque>) -> Part {
    match part {
        Part::ToolCall { tool_call_id, provider_call_id, name, arguments, .. } => {
            Part::ToolCall { tool_call_id, provider_call_id, name, arguments, opaque }
        }
        other => other,
    }
}

/// A text of a frame that is only read and then let go: it is copied where it is written with escapes alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words<'a>(pub(crate) Cow<'a, str>);

impl Deref for Words<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordsVisitor;
        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = Words<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Words<'de>, E> {
                Ok(Words(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Words<'de>, E> {
                Ok(Words(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(WordsVisitor)
    }
}

/// A count as servers write them: an integer, a float, a text of digits, or null; never below zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl<'de> Visitor<'de> for CountVisitor {
            type Value = Count;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
                Ok(Count(Some(count)))
            }
            fn visit_i64<E>(self, count: i64) -> Result<Count, E> {
                Ok(Count(Some(u64::try_from(count).unwrap_or(0))))
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
            fn visit_f64<E>(self, count: f64) -> Result<Count, E> {
                Ok(Count(Some(count as u64)))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Count, E> {
                text.trim().parse().map(|count| Count(Some(count))).map_err(|_| E::custom("not a count"))
            }
            fn visit_unit<E>(self) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_none<E>(self) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Count, D::Error> {
                deserializer.deserialize_any(CountVisitor)
            }
            fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Count, E> {
                Err(E::custom("not a count"))
            }
        }
        deserializer.deserialize_any(CountVisitor).map_err(D::Error::custom)
    }
}

impl Count {
    /// The count, zero when it was not given.
    pub(crate) fn or_zero(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// The count of `self`, else of `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_or_kept_as_written() {
        let id = "tc_00000000000000000000000000000001".parse().unwrap();
        let arguments = |raw: &str, cut| match tool_call(id, "p".into(), "shell".into(), raw, cut) {
            Part::ToolCall { arguments, .. } => arguments,
            other => panic!("{other:?}"),
        };
        assert_eq!(arguments("", false), serde_json::json!({}));
        assert_eq!(arguments("", true), Value::String(String::new()), "the limit may have cut them off");
        assert_eq!(arguments("null", false), serde_json::json!({}));
        assert_eq!(arguments("{\"a\":1}", false), serde_json::json!({"a": 1}));
        assert_eq!(arguments("\"{\\\"a\\\":1}\"", false), serde_json::json!({"a": 1}));
        for raw in ["{\"a\":", "[1]", "3", "{\"a\":1}}"] {
            assert_eq!(arguments(raw, false), Value::String(raw.into()));
        }
    }

    #[test]
    fn counts_are_read_in_any_form() {
        for (text, count) in [
            ("3", Some(3)),
            ("-3", Some(0)),
            ("3.9", Some(3)),
            ("\"12\"", Some(12)),
            ("null", None),
            ("1e30", Some(u64::MAX)),
        ] {
            assert_eq!(serde_json::from_str::<Count>(text).unwrap().0, count, "{text}");
        }
    }
}
