//! A request to a model as it arrived, and what tests ask about it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// The wire format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages: `POST /v1/messages`.
    Anthropic,
    /// OpenAI Chat Completions: `POST /v1/chat/completions`.
    Chat,
}

/// One request to a model, as it arrived.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Number, from 1, among the model requests of this server.
    pub number: usize,
    /// Which wire it speaks.
    pub wire: Wire,
    /// The path as sent, without the query.
    pub path: String,
    /// What follows `?`, or empty.
    pub query: String,
    /// Headers; names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The JSON body; `null` when it was not JSON.
    pub body: Value,
    /// Size of the body in bytes.
    pub body_bytes: usize,
    /// When it was read, since the server started.
    pub at: Duration,
    /// When the last byte of the reply was handed to the socket, since the server started.
    pub replied_at: Option<Duration>,
    /// Whether the client left before the reply ended.
    pub client_left: bool,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

impl RecordedRequest {
    /// The model asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// The messages of the body.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body.get("messages").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The system text, of whichever shape.
    #[must_use]
    pub fn system(&self) -> String {
        match self.wire {
            Wire::Anthropic => text_of(self.body.get("system").unwrap_or(&Value::Null)),
            Wire::Chat => self
                .messages()
                .iter()
                .filter(|message| matches!(message["role"].as_str(), Some("system" | "developer")))
                .map(|message| text_of(&message["content"]))
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    /// Text of the last user message that is not a tool result.
    #[must_use]
    pub fn last_user_text(&self) -> String {
        self.messages()
            .iter()
            .rev()
            .filter(|message| message["role"] == "user")
            .map(|message| text_of(&message["content"]))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// The results of the last tool calls as `(call id, text, is an error)`, in the order of the request. On the Chat
    /// wire there is no error mark.
    #[must_use]
    pub fn tool_results(&self) -> Vec<(String, String, bool)> {
        match self.wire {
            Wire::Anthropic => {
                let last = self.messages().iter().rev().find(|message| message["role"] == "user");
                let blocks = last.and_then(|message| message["content"].as_array()).map_or(&[][..], Vec::as_slice);
                blocks
                    .iter()
                    .filter(|block| block["type"] == "tool_result")
                    .map(|block| {
                        let id = block["tool_use_id"].as_str().unwrap_or_default().to_owned();
                        (id, text_of(&block["content"]), block["is_error"] == true)
                    })
                    .collect()
            }
            Wire::Chat => {
                let mut results: Vec<_> = self
                    .messages()
                    .iter()
                    .rev()
                    .skip_while(|message| message["role"] != "tool")
                    .take_while(|message| message["role"] == "tool")
                    .map(|message| {
                        let id = message["tool_call_id"].as_str().unwrap_or_default().to_owned();
                        (id, text_of(&message["content"]), false)
                    })
                    .collect();
                results.reverse();
                results
            }
        }
    }

    /// Names of the tools on offer.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        let tools = self.body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let name = |tool: &Value| tool.get("function").unwrap_or(tool)["name"].as_str().map(str::to_owned);
        tools.iter().filter_map(name).collect()
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter(|part| part["type"] == "text")
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}
