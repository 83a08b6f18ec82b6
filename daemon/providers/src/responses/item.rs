//! Items of the output: what a model said, thought or wants done, between the wire and a message's parts.

use mcode_events::message::{Opaque, Part};
use mcode_ids::ToolCallId;
use serde_json::{Value, json};

use crate::decode::{tool_call, with_call_opaque};

/// Between the paragraphs of a summary of reasoning.
pub(crate) const PARAGRAPH: &str = "\n\n";
/// Fields of an item that say how far it is; they do not go back.
const STATE_FIELDS: &[&str] = &["status"];
/// Kinds of items that the client is to carry out, beside calls of functions.
const CLIENT_CALLS: &[&str] = &["apply_patch_call", "local_shell_call", "shell_call", "computer_call"];

/// An item while it comes.
#[derive(Debug)]
pub(crate) struct Item {
    /// As it was last given whole, at its start or its end.
    pub(crate) raw: Value,
    /// What was streamed of its words, reasoning, arguments or input.
    pub(crate) streamed: String,
    /// Our id, if it is a call.
    pub(crate) call_id: ToolCallId,
    /// Its place among the calls.
    pub(crate) place: usize,
    /// Whether it was given whole at its end.
    pub(crate) done: bool,
}

impl Item {
    pub(crate) fn kind(&self) -> &str {
        self.raw.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self.kind(), "function_call" | "custom_tool_call")
    }

    pub(crate) fn name(&self) -> &str {
        self.field("name")
    }

    fn field(&self, key: &str) -> &str {
        self.raw.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the client is asked to do something.
    pub(crate) fn wants_action(&self) -> bool {
        self.is_call() || CLIENT_CALLS.contains(&self.kind())
    }

    /// Whether it holds a refusal.
    pub(crate) fn refuses(&self) -> bool {
        let content = self.raw.get("content").and_then(Value::as_array);
        self.kind() == "message" && content.is_some_and(|content| content.iter().any(|part| part["type"] == "refusal"))
    }

    /// The words, reasoning, arguments or input: of the whole item, else what was streamed.
    pub(crate) fn text(&self) -> String {
        let whole = match self.kind() {
            "message" => joined(&self.raw["content"], &["text", "refusal"], ""),
            "reasoning" => {
                let summary = joined(&self.raw["summary"], &["text"], PARAGRAPH);
                if summary.is_empty() { joined(&self.raw["content"], &["text"], "") } else { summary }
            }
            "function_call" => text_or_json(&self.raw["arguments"]),
            "custom_tool_call" => self.field("input").to_owned(),
            _ => String::new(),
        };
        if whole.is_empty() || !self.done { self.streamed.clone() } else { whole }
    }

    /// The part of a message that this is, if it says anything. `cut` says that the output limit ended it.
    pub(crate) fn into_part(self, cut: bool) -> Option<Part> {
        let text = self.text();
        let given = |key: &str| self.raw.get(key).filter(|value| !value.is_null()).cloned();
        match self.kind() {
            "message" if text.is_empty() => None,
            "message" => {
                let kept: serde_json::Map<String, Value> =
                    ["id", "phase"].into_iter().filter_map(|key| Some((key.to_owned(), given(key)?))).collect();
                let opaque = (!kept.is_empty()).then(|| Opaque(Value::Object(kept)));
                Some(Part::Text { text, opaque })
            }
            "reasoning" => {
                let opaque = Opaque(json!({ "item": without_state(&self.raw) }));
                Some(if text.is_empty() {
                    Part::RedactedThinking { opaque }
                } else {
                    Part::Thinking { text, opaque: Some(opaque) }
                })
            }
            "function_call" => {
                let opaque = given("id").map(|id| Opaque(json!({ "id": id })));
                let call =
                    tool_call(self.call_id, self.field("call_id").to_owned(), self.name().to_owned(), &text, cut);
                Some(with_call_opaque(call, opaque))
            }
            "custom_tool_call" => Some(Part::ToolCall {
                tool_call_id: self.call_id,
                provider_call_id: self.field("call_id").to_owned(),
                name: self.name().to_owned(),
                arguments: json!({ "input": text }),
                opaque: Some(Opaque(json!({ "id": given("id"), "custom": true }))),
            }),
            "" => None,
            _ => Some(Part::Provider { opaque: Opaque(self.raw) }),
        }
    }
}

/// An item as it goes back.
fn without_state(item: &Value) -> Value {
    let mut item = item.clone();
    if let Some(fields) = item.as_object_mut() {
        STATE_FIELDS.iter().for_each(|field| drop(fields.shift_remove(*field)));
    }
    item
}

fn joined(parts: &Value, keys: &[&str], between: &str) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| keys.iter().find_map(|key| part.get(*key).and_then(Value::as_str)));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(between)
}

/// Arguments are a text; sloppy servers give the object itself.
fn text_or_json(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
