//! What comes back from a model while it works.

use std::fmt;
use std::pin::Pin;

use futures::Stream;
use mcode_events::message::{Origin, Part};
use mcode_events::usage::Usage;
use tokio_util::sync::CancellationToken;

use crate::error::ModelError;
use crate::request::ModelRequest;

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It said all it wanted.
    Stop,
    /// It wants tools run.
    ToolUse,
    /// Its output limit was reached.
    Length,
    /// It (or its provider) refuses to answer.
    Refusal,
    /// The provider paused a long turn of its own tools: send the same conversation again.
    Pause,
    /// The context window is full.
    ContextFull,
    /// Something this version does not know.
    Other,
}

impl StopReason {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolUse => "tool_use",
            Self::Length => "length",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::ContextFull => "context_full",
            Self::Other => "other",
        }
    }
}

/// A complete answer. Only a stream whose end was positively seen gives one.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Parts in the order in which the model gave them. Tool calls carry fresh `tool_call_id`s.
    pub parts: Vec<Part>,
    /// Who made them.
    pub origin: Origin,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// The provider's id of the response.
    pub response_id: String,
    /// Why it stopped.
    pub stop: StopReason,
    /// The provider's own word for why.
    pub stop_raw: String,
    /// What it cost in tokens; `None` when the provider did not say. `cost_usd` is left zero.
    pub usage: Option<Usage>,
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// The provider has begun to answer.
    Started,
    /// More words.
    TextDelta(String),
    /// More visible reasoning.
    ThinkingDelta(String),
    /// A tool call takes shape; the arguments are not complete.
    ToolCallDelta {
        /// Its place among the calls of this response.
        index: usize,
        /// The tool.
        name: String,
        /// More of the arguments' text.
        arguments: String,
    },
    /// The stream ended well; always the last event.
    Finished(Box<Response>),
}

/// Pieces, then exactly one `Finished` or one error, then nothing.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<StreamEvent, ModelError>> + Send>>;

/// Speaks to models of one kind. One attempt per call; dropping the stream or cancelling closes the connection.
pub trait ModelProvider: Send + Sync + fmt::Debug {
    /// Sends the request and streams the answer.
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream;
}
