//! Messages: a role and ordered parts that the model can see.

use mcode_ids::{ItemId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::BlobRef;

/// Characters of a message that lists show, about.
const PREVIEW_CHARS_MAX: usize = 120;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or mcode on the user's behalf.
    User,
    /// The model.
    Assistant,
}

/// Where opaque data comes from; it goes back to exactly this place and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Provider name, such as `anthropic`.
    pub provider: String,
    /// Wire name, such as `anthropic` or `openai-chat`.
    pub wire: String,
    /// The model id that the request named.
    pub model: String,
}

/// Provider data that must come back unchanged: signatures, encrypted reasoning, reasoning details.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Opaque(pub Value);

/// A piece of a message, in the order in which the model gave or gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
        /// Signature, phase and the like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Opaque>,
    },
    /// The model's visible reasoning.
    Thinking {
        /// The reasoning; may be empty when the provider hides it and signs it.
        text: String,
        /// Signature and the like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Opaque>,
    },
    /// Reasoning that the provider gives encrypted only.
    RedactedThinking {
        /// The encrypted form.
        opaque: Opaque,
    },
    /// A picture (or a document) that the user or a tool gave.
    Media {
        /// The content.
        blob: BlobRef,
        /// What to call it when it can not be shown.
        name: String,
    },
    /// A tool the model wants run.
    ToolCall {
        /// Our id of the call.
        tool_call_id: ToolCallId,
        /// The provider's id of the call, as it was given.
        provider_call_id: String,
        /// The tool.
        name: String,
        /// The arguments as the model wrote them: a JSON object, or a string when they did not parse.
        arguments: Value,
        /// Signature and the like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Opaque>,
    },
    /// A block that only its provider understands, kept word for word (server tools and their results).
    Provider {
        /// The block.
        opaque: Opaque,
    },
}

impl Part {
    /// Words that nobody signed.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), opaque: None }
    }
}

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The item that shows it.
    pub item_id: ItemId,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// For the assistant: who made the opaque parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

impl Message {
    /// All text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| if let Part::Text { text, .. } = part { Some(text.as_str()) } else { None })
            .collect()
    }

    /// The beginning of the text, in one line.
    #[must_use]
    pub fn preview(&self) -> String {
        let mut line = String::new();
        let text = self.text();
        for word in text.split_whitespace() {
            let left = PREVIEW_CHARS_MAX.saturating_sub(line.chars().count());
            if left == 0 {
                break;
            }
            line.extend((!line.is_empty()).then_some(' '));
            line.extend(word.chars().take(left));
        }
        line
    }

    /// All visible reasoning, joined.
    #[must_use]
    pub fn thinking(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| if let Part::Thinking { text, .. } = part { Some(text.as_str()) } else { None })
            .collect()
    }
}
