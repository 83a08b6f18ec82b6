//! Puts tool calls together from the pieces in which servers send them.
//!
//! The index may be missing, start at one, or be the same for two calls; ids may come once, every time or never;
//! a call may come whole.

use mcode_env::IdGen;
use mcode_events::message::{Opaque, Part};
use mcode_ids::ToolCallId;
use mcode_models::{ModelError, StreamEvent};
use serde_json::Value;
use serde_json::json;
use serde_json::value::RawValue;

use super::frame::CallDelta;
use crate::decode::{MAX_BLOCKS, bad_frame, protocol, push_arguments, tool_call, with_call_opaque};

#[derive(Debug)]
struct Slot {
    index: Option<i64>,
    id: ToolCallId,
    given_id: String,
    name: String,
    arguments: String,
    extra: Option<Value>,
}

/// The calls of one response.
#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<Slot>);

impl Calls {
    /// Takes a piece.
    pub(crate) fn take(
        &mut self,
        piece: CallDelta<'_>,
        ids: &dyn IdGen,
        out: &mut Vec<StreamEvent>,
    ) -> Result<(), ModelError> {
        let given_id = piece.id.unwrap_or_default();
        let (name, arguments) = match piece.function {
            Some(function) => (function.name.unwrap_or_default(), text_of(function.arguments)?),
            None => (String::new(), String::new()),
        };
        let place = match self.find(piece.index, &given_id, &name) {
            Some(place) => place,
            None if given_id.is_empty() && name.is_empty() && piece.index.is_none() => {
                return Err(protocol("the provider sent a piece of a tool call that belongs to none"));
            }
            None if self.0.len() >= MAX_BLOCKS => {
                return Err(protocol(format!("the response holds more than {MAX_BLOCKS} tool calls")));
            }
            None => {
                self.0.push(Slot {
                    index: piece.index,
                    id: ToolCallId::from_uuid(ids.next()),
                    given_id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                    extra: None,
                });
                self.0.len() - 1
            }
        };
        let slot = &mut self.0[place];
        let is_news = !arguments.is_empty() || (slot.name.is_empty() && !name.is_empty());
        if slot.given_id.is_empty() {
            slot.given_id = given_id;
        }
        if slot.name.is_empty() {
            slot.name = name;
        }
        slot.extra = piece.extra_content.or_else(|| slot.extra.take());
        slot.arguments.push_str(&arguments);
        if is_news {
            push_arguments(out, place, &slot.name, &arguments);
        }
        Ok(())
    }

    /// The call that a piece belongs to; `None` when it begins a new one.
    fn find(&self, index: Option<i64>, given_id: &str, name: &str) -> Option<usize> {
        let place = match index {
            Some(_) => self.0.iter().rposition(|slot| slot.index == index)?,
            None if !given_id.is_empty() => {
                return self.0.iter().rposition(|slot| slot.given_id == given_id);
            }
            None => self.0.len().checked_sub(1)?,
        };
        let slot = &self.0[place];
        let other_id = !given_id.is_empty() && !slot.given_id.is_empty() && slot.given_id != given_id;
        // Without ids, a name after complete arguments begins the next call.
        let begins = given_id.is_empty()
            && !name.is_empty()
            && !slot.name.is_empty()
            && (slot.name != name || is_object(&slot.arguments));
        (!other_id && !begins).then_some(place)
    }

    /// The finished calls in order. `cut` says that the output limit ended the response.
    pub(crate) fn finish(&mut self, cut: bool) -> Vec<Part> {
        let slots = std::mem::take(&mut self.0);
        let last = slots.len().saturating_sub(1);
        slots
            .into_iter()
            .enumerate()
            .filter(|(_, slot)| !slot.name.is_empty() || !slot.arguments.is_empty())
            .map(|(place, slot)| {
                let part = tool_call(slot.id, slot.given_id, slot.name, &slot.arguments, cut && place == last);
                with_call_opaque(part, slot.extra.map(|extra| Opaque(json!({ "extra_content": extra }))))
            })
            .collect()
    }
}

/// Arguments as text: the content of a string, or an object as it stands.
fn text_of(raw: Option<&RawValue>) -> Result<String, ModelError> {
    match raw.map(RawValue::get) {
        None => Ok(String::new()),
        Some(text) if text.starts_with('"') => serde_json::from_str(text).map_err(|error| bad_frame(&error, text)),
        Some(text) => Ok(text.to_owned()),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_end().ends_with('}') && matches!(serde_json::from_str(text), Ok(Value::Object(_)))
}

#[cfg(test)]
mod tests {
    use mcode_env::SeededIds;

    use super::*;

    /// Ids, names and arguments of the calls that the pieces make.
    fn calls(pieces: &[Value]) -> Vec<(String, String, Value)> {
        let ids = SeededIds::new(1);
        let mut calls = Calls::default();
        let mut out = Vec::new();
        for piece in pieces {
            let text = piece.to_string();
            calls.take(serde_json::from_str(&text).unwrap(), &ids, &mut out).unwrap();
        }
        calls
            .finish(false)
            .into_iter()
            .map(|part| match part {
                Part::ToolCall { provider_call_id, name, arguments, .. } => (provider_call_id, name, arguments),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn piece(index: Option<i64>, id: Option<&str>, name: Option<&str>, arguments: Value) -> Value {
        let mut piece = json!({"function": {"arguments": arguments}});
        if let Some(index) = index {
            piece["index"] = json!(index);
        }
        if let Some(id) = id {
            piece["id"] = json!(id);
        }
        if let Some(name) = name {
            piece["function"]["name"] = json!(name);
        }
        piece
    }

    fn call(id: &str, arguments: Value) -> (String, String, Value) {
        (id.to_owned(), "shell".to_owned(), arguments)
    }

    #[test]
    fn calls_without_index_are_told_apart() {
        let whole = [
            piece(None, Some("a"), Some("shell"), json!("{\"command\":\"A\"}")),
            piece(None, Some("b"), Some("shell"), json!("{\"command\":\"B\"}")),
        ];
        assert_eq!(calls(&whole), [call("a", json!({"command": "A"})), call("b", json!({"command": "B"}))]);
        let pieces = [
            piece(None, Some("a"), Some("shell"), json!("{\"comm")),
            piece(None, Some(""), Some(""), json!("and\":")),
            piece(None, None, None, json!("\"A\"}")),
        ];
        assert_eq!(calls(&pieces), [call("a", json!({"command": "A"}))]);
        let without_ids = [
            piece(None, None, Some("shell"), json!("{\"n\":1}")),
            piece(None, None, Some("shell"), json!("{\"n\":")),
            piece(None, None, None, json!("2}")),
        ];
        assert_eq!(calls(&without_ids), [call("", json!({"n": 1})), call("", json!({"n": 2}))]);
    }

    #[test]
    fn the_index_may_start_at_one_and_be_used_twice() {
        let pieces = [
            piece(Some(1), Some("a"), Some("shell"), json!("")),
            piece(Some(2), Some("b"), Some("shell"), json!("{\"n\":")),
            piece(Some(1), None, None, json!("{}")),
            piece(Some(2), Some("b"), Some("shell"), json!("2}")),
            piece(Some(2), Some("c"), Some("shell"), json!("{\"n\":3}")),
        ];
        let expected = [call("a", json!({})), call("b", json!({"n": 2})), call("c", json!({"n": 3}))];
        assert_eq!(calls(&pieces), expected);
    }

    #[test]
    fn arguments_may_be_an_object() {
        assert_eq!(calls(&[piece(Some(0), Some("a"), Some("shell"), json!({"n": 1}))]), [call("a", json!({"n": 1}))]);
        assert_eq!(calls(&[piece(Some(0), Some("a"), Some("shell"), Value::Null)]), [call("a", json!({}))]);
    }

    #[test]
    fn calls_are_bounded_and_stray_pieces_refused() {
        let ids = SeededIds::new(1);
        let mut out = Vec::new();
        let stray = piece(None, None, None, json!("x")).to_string();
        assert!(Calls::default().take(serde_json::from_str(&stray).unwrap(), &ids, &mut out).is_err());
        let mut many = Calls::default();
        let failed = (0..=MAX_BLOCKS).find(|number| {
            let text = piece(None, Some(&format!("id{number}")), Some("shell"), json!("{}")).to_string();
            many.take(serde_json::from_str(&text).unwrap(), &ids, &mut out).is_err()
        });
        assert_eq!(failed, Some(MAX_BLOCKS));
    }
}
