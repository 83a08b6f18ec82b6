//! Token counts of the chat wire, whose servers do not agree on what the figures include.

use mcode_events::usage::Usage;
use serde::Deserialize;

use super::dialect::Dialect;
use crate::decode::Count;

/// The counts as they come; every one may be missing.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct RawUsage {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    total_tokens: Count,
    /// DeepSeek.
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
    /// Moonshot.
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    prompt_tokens_details: Option<InputDetails>,
    #[serde(default)]
    completion_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    cache_write_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: Count,
}

impl RawUsage {
    /// Whether it says anything; some servers send a frame of zeros first.
    pub(crate) fn says_something(&self) -> bool {
        self.prompt_tokens.or_zero() > 0 || self.completion_tokens.or_zero() > 0
    }

    /// The normal form. Figures that do not add up saturate.
    pub(crate) fn normal(&self, dialect: &Dialect) -> Usage {
        let input = self.prompt_tokens_details.clone().unwrap_or_default();
        let cached = input.cached_tokens.or(self.prompt_cache_hit_tokens).or(self.cached_tokens).or_zero();
        let written = input
            .cache_write_tokens
            .or(input.cache_creation_input_tokens)
            .or(self.cache_creation_input_tokens)
            .or_zero();
        let read = if dialect.cached_includes_written { cached.saturating_sub(written) } else { cached };
        let prompt = self.prompt_tokens.or_zero();
        let completion = self.completion_tokens.or_zero();
        let reasoning = self.completion_tokens_details.as_ref().map_or(0, |details| details.reasoning_tokens.or_zero());
        // xAI behind another name is known by its sum.
        let sum = prompt.saturating_add(completion).saturating_add(reasoning);
        let apart = dialect.output_without_reasoning || (reasoning > 0 && self.total_tokens.or_zero() == sum);
        Usage {
            input_tokens: prompt.saturating_sub(read).saturating_sub(written),
            output_tokens: if apart { completion.saturating_add(reasoning) } else { completion },
            cache_read_tokens: read,
            cache_write_tokens: written,
            reasoning_tokens: reasoning,
            cost_usd: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::dialect;

    fn normal(provider: &str, text: &str) -> (u64, u64, u64, u64, u64) {
        let usage = serde_json::from_str::<RawUsage>(text).unwrap().normal(dialect::of(provider, ""));
        (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
        )
    }

    #[test]
    fn each_server_is_read_in_its_way() {
        let deepseek = r#"{"prompt_tokens":339,"completion_tokens":83,"prompt_cache_hit_tokens":320}"#;
        assert_eq!(normal("deepseek", deepseek), (19, 320, 0, 83, 0));
        let openrouter = r#"{"prompt_tokens":100,"completion_tokens":5,
            "prompt_tokens_details":{"cached_tokens":80,"cache_write_tokens":30}}"#;
        assert_eq!(normal("openrouter", openrouter), (20, 50, 30, 5, 0));
        let xai = r#"{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":7}}"#;
        assert_eq!(normal("xai", xai), (10, 0, 0, 12, 7));
        assert_eq!(normal("openai", xai), (10, 0, 0, 5, 7));
        let moonshot = r#"{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":4}"#;
        assert_eq!(normal("moonshot", moonshot), (6, 4, 0, 5, 0));
    }

    #[test]
    fn figures_that_do_not_add_up_saturate() {
        let odd = r#"{"prompt_tokens":3,"completion_tokens":null,"prompt_tokens_details":{"cached_tokens":9}}"#;
        assert_eq!(normal("x", odd), (0, 9, 0, 0, 0));
    }
}
