//! A request to a model, before any wire has shaped it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mcode_events::blob::BlobRef;
use mcode_events::message::{Origin, Part};
use mcode_events::run::ThinkingLevel;
use serde_json::Value;

use crate::catalog::{ModelInfo, ModelRef, Wire};
use crate::login::KeySource;

/// A text that no log, debug print or event may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The header that a key goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyPlace {
    /// The wire's own.
    #[default]
    Usual,
    /// `Authorization: Bearer`.
    Bearer,
    /// A header of this name, as it is.
    Header(&'static str),
}

/// A key, login or header that is for another address than the one that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// What is not sent, and why.
    pub what: String,
    /// How it would be.
    pub hint: String,
}

/// How a provider is reached for one run: from the client's environment, the stored logins and the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Provider name, such as `anthropic`.
    pub provider: String,
    /// How it is spoken to.
    pub wire: Wire,
    /// Base URL as the user gave it, with or without `/v1` and slashes.
    pub base_url: String,
    /// The key, when one is needed.
    pub key: Option<Secret>,
    /// Gives the key when the request is sent, in the place of `key`.
    pub key_source: Option<KeySource>,
    /// Where the key goes.
    pub key_place: KeyPlace,
    /// Where the key is from, in some words: `environment OPENAI_API_KEY`, `login`, `stored key`, `config.toml`, `none`, …
    pub key_word: String,
    /// What there is for the provider and is not sent, since a variable of the client names another address.
    pub withheld: Option<Withheld>,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// The client's `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` (names in capitals), if any.
    pub network_env: BTreeMap<String, String>,
    /// The client's variables that lead to its identity at a cloud (`AWS_…`, and where its home is), if any.
    pub identity_env: BTreeMap<String, Secret>,
    /// Ends a request when no byte came for this long, in milliseconds.
    pub idle_timeout_ms: u64,
}

/// A block of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPart {
    /// The words.
    pub text: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments; the root is an object.
    pub schema: Value,
}

/// Bytes of a picture or document, in the place of the part that names the blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaData {
    /// MIME type.
    pub media_type: String,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

/// What a tool gave back, as the model gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    /// Our id of the call.
    pub tool_call_id: mcode_ids::ToolCallId,
    /// The provider's id of the call, as it was given.
    pub provider_call_id: String,
    /// The tool.
    pub name: String,
    /// The words.
    pub text: String,
    /// Pictures and documents with their names; the bytes are in `ModelRequest::media`.
    pub media: Vec<(BlobRef, String)>,
    /// Whether the tool could not do it.
    pub is_error: bool,
}

/// One message of the prompt. Built by [`crate::history`], so every tool call has its answer and nothing is empty.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptMessage {
    /// The user's words and pictures.
    User(Vec<Part>),
    /// The model's own earlier message.
    Assistant {
        /// Its parts, in the order in which the model gave them.
        parts: Vec<Part>,
        /// Who made the opaque ones; `None` means that they must not be sent.
        origin: Option<Origin>,
    },
    /// The answers to all tool calls of the message before, in call order.
    Tools(Vec<ToolAnswer>),
}

/// A whole request.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Which model.
    pub model: ModelRef,
    /// What is known of it.
    pub info: ModelInfo,
    /// How it is reached.
    pub access: Access,
    /// The system prompt, stable parts first.
    pub system: Vec<SystemPart>,
    /// The conversation.
    pub messages: Vec<PromptMessage>,
    /// Bytes of the media that the messages name, by blob hash. A hash that is missing here is sent as a text note.
    pub media: BTreeMap<String, MediaData>,
    /// The tools.
    pub tools: Vec<ToolDefinition>,
    /// How much to think; `None` is the model's default.
    pub thinking: Option<ThinkingLevel>,
    /// Most tokens of output; `None` is the catalogue's figure.
    pub max_output_tokens: Option<u32>,
    /// A stable key of this conversation for the provider's cache routing.
    pub cache_key: String,
    /// JSON Schema of the final answer. A wire asks for it in its own form where that leaves the tools free; whether the
    /// answer fits is checked by whoever asks.
    pub answer_schema: Option<Value>,
}
