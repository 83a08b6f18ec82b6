//! What is known of a model: limits, prices, abilities.

pub mod table;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions and its many dialects.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Google's `generateContent`, of its API for developers and of Vertex AI.
    Gemini,
    /// Amazon Bedrock's Converse.
    Bedrock,
    /// The scripted model of `mcode demo`; no network.
    Scripted,
}

impl Wire {
    /// The name used in `config.toml` and in [`mcode_events::Origin`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
            Self::Scripted => "scripted",
        }
    }
}

impl FromStr for Wire {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "anthropic" => Ok(Self::Anthropic),
            "openai-chat" => Ok(Self::OpenaiChat),
            "openai-responses" => Ok(Self::OpenaiResponses),
            "gemini" => Ok(Self::Gemini),
            "bedrock" => Ok(Self::Bedrock),
            "scripted" => Ok(Self::Scripted),
            _ => Err(()),
        }
    }
}

/// A model by its full name, `provider/model`; the model part may hold further slashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRef {
    /// Before the first slash.
    pub provider: String,
    /// After it.
    pub model: String,
}

impl FromStr for ModelRef {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.trim().split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self { provider: provider.to_owned(), model: model.to_owned() })
            }
            _ => Err(()),
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Pricing {
    /// Uncached input.
    pub input: f64,
    /// Output, reasoning included.
    pub output: f64,
    /// Input read from the cache.
    pub cache_read: f64,
    /// Input written to the cache.
    pub cache_write: f64,
}

impl Pricing {
    /// What a request's tokens cost in US dollars.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn cost(&self, usage: &mcode_events::Usage) -> f64 {
        (usage.input_tokens as f64 * self.input
            + usage.output_tokens as f64 * self.output
            + usage.cache_read_tokens as f64 * self.cache_read
            + usage.cache_write_tokens as f64 * self.cache_write)
            / 1e6
    }
}

/// How thinking is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingForm {
    /// Not at all: the model does not think, or nothing is known of it.
    #[default]
    None,
    /// Anthropic `thinking.budget_tokens`.
    Budget,
    /// Anthropic `thinking: adaptive` with an effort; can be switched off.
    Adaptive,
    /// As `Adaptive`, but it can not be switched off.
    AdaptiveAlways,
    /// OpenAI `reasoning_effort`.
    Effort,
    /// `thinking: {type: enabled|disabled}` on the chat wire.
    Toggle,
    /// `enable_thinking` on the chat wire.
    EnableThinking,
    /// OpenRouter's `reasoning: {effort}`.
    OpenRouter,
    /// Gemini's `thinkingBudget`.
    GeminiBudget,
    /// Gemini's `thinkingLevel`; can not be switched off.
    GeminiLevel,
}

/// What is known of a model. Unknown models get [`ModelInfo::unknown`], which is safe everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Full name, `provider/model`.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Context window in tokens.
    pub context_tokens: u32,
    /// Most output tokens.
    pub max_output_tokens: u32,
    /// Whether it takes pictures.
    pub images: bool,
    /// Whether it can call tools.
    pub tools: bool,
    /// How thinking is asked for.
    pub thinking: ThinkingForm,
    /// Prices, when known.
    pub pricing: Option<Pricing>,
    /// Whether the catalogue knows it.
    pub known: bool,
}

impl ModelInfo {
    /// What the bundled catalogue knows of a model, else safe figures.
    ///
    /// An unlisted `claude-*` of Anthropic is taken for a newer one than this catalogue: it thinks adaptively.
    #[must_use]
    pub fn of(model: &ModelRef) -> Self {
        if let Some(info) = table::lookup(model) {
            return info;
        }
        let mut info = Self::unknown(model);
        if model.provider == "anthropic" && model.model.starts_with("claude-") {
            let old = model.model.starts_with("claude-3") || model.model.starts_with("claude-2");
            info.context_tokens = 200_000;
            if !old {
                info.max_output_tokens = 32_000;
                info.thinking = ThinkingForm::Adaptive;
            }
        }
        info
    }

    /// Safe figures for a model that the catalogue does not know.
    #[must_use]
    pub fn unknown(model: &ModelRef) -> Self {
        Self {
            id: model.to_string(),
            name: model.model.clone(),
            context_tokens: 128_000,
            max_output_tokens: 8_192,
            images: true,
            tools: true,
            thinking: ThinkingForm::None,
            pricing: None,
            known: false,
        }
    }
}
