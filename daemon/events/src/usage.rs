//! What model requests cost, in one normal form over all providers.

use serde::{Deserialize, Serialize};

/// What a model was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsagePurpose {
    /// The thread's own work.
    #[default]
    Work,
    /// A title.
    Title,
    /// What is kept of a conversation.
    Memory,
    /// A verdict on a goal.
    Judge,
    /// The work of a thread that another one has started.
    Subagent,
    /// To find out whether a model answers.
    Probe,
}

impl UsagePurpose {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Work, Self::Title, Self::Memory, Self::Judge, Self::Subagent, Self::Probe];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Title => "title",
            Self::Memory => "memory",
            Self::Judge => "judge",
            Self::Subagent => "subagent",
            Self::Probe => "probe",
        }
    }

    /// For the stored form, which leaves out what is usual.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(crate) const fn is_work(&self) -> bool {
        matches!(self, Self::Work)
    }
}

/// Billionths of a US dollar: money that is summed. Sums of whole numbers are the same in any order, and the price of a
/// single token is still one (a token of 0.05 dollars a million is 50 of them).
pub type NanoUsd = i64;

/// US dollars as a whole number of billionths; what is no number is nothing.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the cast saturates, and of NaN makes zero")]
pub fn nanos(usd: f64) -> NanoUsd {
    (usd * 1e9).round() as NanoUsd
}

/// Billionths as US dollars.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "exact below nine million dollars")]
pub fn usd(nanos: NanoUsd) -> f64 {
    nanos as f64 / 1e9
}

/// Tokens and money. `input_tokens` is the uncached part; `output_tokens` includes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Output tokens spent on reasoning; part of `output_tokens`.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// US dollars; zero when the price is not known.
    #[serde(default)]
    pub cost_usd: f64,
}

impl Usage {
    /// Adds another request's figures; saturates.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost_usd += other.cost_usd;
    }

    /// All tokens that went in or came out.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }
}
