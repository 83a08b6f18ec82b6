//! A request to a model as it arrived, and what tests ask about it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::reply::Usage;

/// The wire format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages: `POST …/v1/messages`, and on Vertex `POST …/models/MODEL:streamRawPredict`.
    Anthropic,
    /// OpenAI Chat Completions: `POST …/chat/completions`.
    Chat,
    /// OpenAI Responses: `POST …/responses`.
    Responses,
    /// Gemini: `POST …/models/MODEL:streamGenerateContent?alt=sse` (without `alt=sse`, a list in JSON) and
    /// `:generateContent`.
    Gemini,
    /// Converse of Amazon Bedrock: `POST …/model/MODEL/converse-stream` and `…/converse`.
    Bedrock,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::Chat, Self::Responses, Self::Gemini, Self::Bedrock];

    /// The name for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
        }
    }

    /// The path of a base URL as its users configure it.
    pub(super) const fn base_path(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Bedrock => "",
            Self::Chat | Self::Responses => "/v1",
            Self::Gemini => "/v1beta",
        }
    }

    /// The wire of a path, and the model where the path names it.
    pub(super) fn of_path(path: &str) -> Option<(Self, String)> {
        if path.contains("//") || path.contains("/v1/v1/") {
            return None;
        }
        let unnamed = |wire| Some((wire, String::new()));
        if path.ends_with("/v1/messages") {
            return unnamed(Self::Anthropic);
        }
        if path.ends_with("/chat/completions") {
            return unnamed(Self::Chat);
        }
        if path.ends_with("/responses") {
            return unnamed(Self::Responses);
        }
        let (before, last) = path.rsplit_once('/')?;
        if let Some((model, verb)) = last.rsplit_once(':') {
            let wire = match verb {
                "streamGenerateContent" | "generateContent" => Self::Gemini,
                "streamRawPredict" | "rawPredict" => Self::Anthropic,
                _ => return None,
            };
            let is_model = before.ends_with("/models") || before.ends_with("/tunedModels");
            return is_model.then(|| (wire, decoded(model)));
        }
        let (folder, model) = before.rsplit_once('/')?;
        let converse = matches!(last, "converse-stream" | "converse") && folder.ends_with("/model");
        converse.then(|| (Self::Bedrock, decoded(model)))
    }
}

/// Takes the `%XX` out of a part of a path.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| more.get(..2)).flatten();
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
    /// The tokens that the reply told of, once it was sent: what this wire can say of the script's figures; of a reply that
    /// was cut or failed, what it had said until then.
    pub usage: Option<Usage>,
    /// The model, where the path names it.
    pub(super) path_model: String,
}

impl RecordedRequest {
    /// The model asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        if !self.path_model.is_empty() {
            return &self.path_model;
        }
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// The messages of the body; on the Responses wire, the items of the input, on Gemini the contents.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        let key = match self.wire {
            Wire::Responses => "input",
            Wire::Gemini => "contents",
            _ => "messages",
        };
        list(&self.body[key])
    }

    /// Whether a stream is wanted.
    pub(super) fn wants_stream(&self) -> bool {
        match self.wire {
            Wire::Gemini => self.path.ends_with(":streamGenerateContent"),
            Wire::Bedrock => self.path.ends_with("/converse-stream"),
            _ => self.body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    /// Whether a stream is to be a list in JSON: Gemini without `alt=sse`.
    pub(super) fn wants_list(&self) -> bool {
        self.wire == Wire::Gemini && self.wants_stream() && !self.query.split('&').any(|pair| pair == "alt=sse")
    }

    /// The system text, of whichever shape.
    #[must_use]
    pub fn system(&self) -> String {
        let of_messages = || {
            let messages = self.messages().iter();
            messages
                .filter(|message| matches!(message["role"].as_str(), Some("system" | "developer")))
                .map(|message| text_of(&message["content"]))
        };
        let texts: Vec<String> = match self.wire {
            Wire::Anthropic | Wire::Bedrock => vec![text_of(&self.body["system"])],
            Wire::Gemini => vec![text_of(&self.body["systemInstruction"]["parts"])],
            Wire::Chat => of_messages().collect(),
            Wire::Responses => std::iter::once(text_of(&self.body["instructions"])).chain(of_messages()).collect(),
        };
        texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// Text of the last user message that is not a tool result.
    #[must_use]
    pub fn last_user_text(&self) -> String {
        if let (Wire::Responses, Value::String(text)) = (self.wire, &self.body["input"]) {
            return text.clone();
        }
        let key = if self.wire == Wire::Gemini { "parts" } else { "content" };
        self.messages()
            .iter()
            .rev()
            .filter(|message| message["role"] == "user")
            .map(|message| text_of(&message[key]))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// The results of the last tool calls as `(call id, text, is an error)`, in the order of the request. On the Chat
    /// and Responses wires there is no error mark; on Gemini a call without an id goes by the name of its tool.
    #[must_use]
    pub fn tool_results(&self) -> Vec<(String, String, bool)> {
        match self.wire {
            Wire::Anthropic => {
                let blocks = self.last_user_parts("content").filter(|block| block["type"] == "tool_result");
                blocks
                    .map(|block| (owned(&block["tool_use_id"]), text_of(&block["content"]), block["is_error"] == true))
                    .collect()
            }
            Wire::Bedrock => {
                let results = self.last_user_parts("content").filter_map(|block| block.get("toolResult"));
                results
                    .map(|one| (owned(&one["toolUseId"]), text_of(&one["content"]), one["status"] == "error"))
                    .collect()
            }
            Wire::Gemini => {
                let results = self.last_user_parts("parts").filter_map(|part| part.get("functionResponse"));
                results.map(gemini_result).collect()
            }
            Wire::Chat => self.last_run("role", &["tool"], "tool_call_id", "content"),
            Wire::Responses => {
                self.last_run("type", &["function_call_output", "custom_tool_call_output"], "call_id", "output")
            }
        }
    }

    fn last_user_parts(&self, key: &str) -> impl Iterator<Item = &Value> {
        let last = self.messages().iter().rev().find(|message| message["role"] == "user");
        last.map_or(&[][..], |message| list(&message[key])).iter()
    }

    /// The last messages in a row that are of these kinds.
    fn last_run(&self, kind: &str, kinds: &[&str], id: &str, content: &str) -> Vec<(String, String, bool)> {
        let is_result = |message: &&Value| message[kind].as_str().is_some_and(|kind| kinds.contains(&kind));
        let messages = self.messages().iter().rev();
        let mut results: Vec<_> = messages
            .skip_while(|message| !is_result(message))
            .take_while(is_result)
            .map(|message| (owned(&message[id]), text_of(&message[content]), false))
            .collect();
        results.reverse();
        results
    }

    /// Names of the tools on offer.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        let name = |tool: &Value| tool["name"].as_str().map(str::to_owned);
        match self.wire {
            Wire::Gemini => list(&self.body["tools"])
                .iter()
                .flat_map(|tool| list(&tool["functionDeclarations"]))
                .filter_map(name)
                .collect(),
            Wire::Bedrock => {
                let specs = list(&self.body["toolConfig"]["tools"]).iter().filter_map(|tool| tool.get("toolSpec"));
                specs.filter_map(name).collect()
            }
            _ => {
                list(&self.body["tools"]).iter().filter_map(|tool| name(tool.get("function").unwrap_or(tool))).collect()
            }
        }
    }
}

fn gemini_result(result: &Value) -> (String, String, bool) {
    let id = if result["id"].is_string() { &result["id"] } else { &result["name"] };
    let error = result["response"].get("error");
    let said = error.unwrap_or(&result["response"]["output"]);
    let text = if said.is_string() { owned(said) } else { said.to_string() };
    (owned(id), text, error.is_some())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn owned(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn text_of(content: &Value) -> String {
    const TEXTS: &[&str] = &["text", "input_text", "output_text"];
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            // Gemini and Bedrock tell the kind of a part by its key alone.
            .filter(|part| part["type"].as_str().is_none_or(|kind| TEXTS.contains(&kind)))
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}
