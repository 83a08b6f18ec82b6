//! Token counts of the Messages wire. `input_tokens` is the uncached part there, as in our normal form.

use mcode_events::usage::Usage;
use serde::Deserialize;

use crate::decode::Count;

/// The counts as they come; every one may be missing.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct RawUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
    #[serde(default)]
    iterations: Option<Vec<Iteration>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct OutputDetails {
    #[serde(default)]
    thinking_tokens: Count,
}

/// One internal request of a response; the top-level figures leave compactions out.
#[derive(Debug, Clone, Deserialize)]
struct Iteration {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
}

impl RawUsage {
    /// A later report: what it names replaces what was known.
    pub(crate) fn override_with(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.output_tokens_details = later.output_tokens_details.or_else(|| self.output_tokens_details.take());
        self.iterations = later.iterations.or_else(|| self.iterations.take());
    }

    /// The normal form.
    pub(crate) fn normal(&self) -> Usage {
        let mut usage = Usage {
            input_tokens: self.input_tokens.or_zero(),
            output_tokens: self.output_tokens.or_zero(),
            cache_read_tokens: self.cache_read_input_tokens.or_zero(),
            cache_write_tokens: self.cache_creation_input_tokens.or_zero(),
            reasoning_tokens: self
                .output_tokens_details
                .as_ref()
                .map_or(0, |details| details.thinking_tokens.or_zero()),
            cost_usd: 0.0,
        };
        for iteration in self.iterations.iter().flatten().filter(|iteration| iteration.kind == "compaction") {
            usage.add(&Usage {
                input_tokens: iteration.input_tokens.or_zero(),
                output_tokens: iteration.output_tokens.or_zero(),
                cache_read_tokens: iteration.cache_read_input_tokens.or_zero(),
                cache_write_tokens: iteration.cache_creation_input_tokens.or_zero(),
                ..Usage::default()
            });
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_report_replaces_and_compactions_are_added() {
        let mut usage: RawUsage = serde_json::from_str(r#"{"input_tokens":5,"output_tokens":1}"#).unwrap();
        let later = r#"{"input_tokens":null,"output_tokens":9,"output_tokens_details":{"thinking_tokens":4},
            "iterations":[{"type":"compaction","input_tokens":100,"output_tokens":10},{"type":"message","input_tokens":5}]}"#;
        usage.override_with(serde_json::from_str(later).unwrap());
        let normal = usage.normal();
        assert_eq!((normal.input_tokens, normal.output_tokens, normal.reasoning_tokens), (105, 19, 4));
    }
}
