//! What is known of a model: limits, prices, abilities.

mod catalogue;
mod dev;
mod effort;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use catalogue::Catalogue;
pub use effort::Efforts;

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
    /// What a long request costs, if that is more.
    pub long: Option<Tier>,
}

/// Prices of a whole request whose input is longer than so much.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Input of any kind above which they hold, in tokens.
    pub above_tokens: u64,
    /// Uncached input.
    pub input: f64,
    /// Output, reasoning included.
    pub output: f64,
    /// Input read from the cache.
    pub cache_read: f64,
}

impl Pricing {
    /// What a request's tokens cost in US dollars.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn cost(&self, usage: &mcode_events::Usage) -> f64 {
        let all = usage.input_tokens.saturating_add(usage.cache_read_tokens).saturating_add(usage.cache_write_tokens);
        let (input, output, cache_read) = match self.long.filter(|long| all > long.above_tokens) {
            Some(long) => (long.input, long.output, long.cache_read),
            None => (self.input, self.output, self.cache_read),
        };
        // Where writing has a price of its own, it is a multiple of the price of input.
        let cache_write = if self.input > 0.0 { self.cache_write * input / self.input } else { self.cache_write };
        (usage.input_tokens as f64 * input
            + usage.output_tokens as f64 * output
            + usage.cache_read_tokens as f64 * cache_read
            + usage.cache_write_tokens as f64 * cache_write)
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

impl ThinkingForm {
    /// The form of this name, as the catalogue and the configuration write it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
    }
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
    /// Whether it takes documents (PDF).
    pub documents: bool,
    /// Whether it can call tools.
    pub tools: bool,
    /// Whether it can be held to a JSON Schema by its provider; `None` when nobody says.
    pub structured: Option<bool>,
    /// How thinking is asked for.
    pub thinking: ThinkingForm,
    /// The words for how much it thinks, where they are known.
    pub efforts: Efforts,
    /// Prices, when known.
    pub pricing: Option<Pricing>,
    /// Whether the catalogue knows it.
    pub known: bool,
}

impl ModelInfo {
    /// Safe figures for a model that the catalogue does not know.
    #[must_use]
    pub fn unknown(model: &ModelRef) -> Self {
        Self {
            id: model.to_string(),
            name: model.model.clone(),
            context_tokens: 128_000,
            max_output_tokens: 8_192,
            images: true,
            documents: true,
            tools: true,
            structured: None,
            thinking: ThinkingForm::None,
            efforts: Efforts::default(),
            pricing: None,
            known: false,
        }
    }
}
