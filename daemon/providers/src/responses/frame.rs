//! The shapes of a frame. Text that is not needed is not copied.

use std::borrow::Cow;

use mcode_events::usage::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode::Count;

/// One event of a stream.
#[derive(Deserialize)]
pub(crate) struct Frame<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(crate) kind: Cow<'a, str>,
    /// By it items are told apart: some proxies change their ids on the way.
    #[serde(default)]
    pub(crate) output_index: Option<u64>,
    #[serde(default)]
    pub(crate) summary_index: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) response: Option<&'a RawValue>,
}

/// What is needed of a whole response.
#[derive(Deserialize, Default)]
pub(crate) struct Whole {
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) status: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<Value>,
    #[serde(default)]
    pub(crate) incomplete_details: Option<Incomplete>,
    #[serde(default)]
    pub(crate) output: Option<Vec<Value>>,
    #[serde(default)]
    pub(crate) usage: Option<RawUsage>,
}

/// Why a response is not complete.
#[derive(Deserialize, Default)]
pub(crate) struct Incomplete {
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// Token counts. `input_tokens` holds the cached ones here, `output_tokens` the reasoning.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct RawUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    input_tokens_details: Option<InputDetails>,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    cache_write_tokens: Count,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: Count,
}

impl RawUsage {
    /// The normal form.
    pub(crate) fn normal(&self) -> Usage {
        let input = self.input_tokens_details.clone().unwrap_or_default();
        let (read, written) = (input.cached_tokens.or_zero(), input.cache_write_tokens.or_zero());
        Usage {
            input_tokens: self.input_tokens.or_zero().saturating_sub(read).saturating_sub(written),
            output_tokens: self.output_tokens.or_zero(),
            cache_read_tokens: read,
            cache_write_tokens: written,
            reasoning_tokens: self
                .output_tokens_details
                .as_ref()
                .map_or(0, |details| details.reasoning_tokens.or_zero()),
            cost_usd: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_and_written_tokens_are_taken_off_the_input() {
        let raw = r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},
            "output_tokens":9,"output_tokens_details":{"reasoning_tokens":4}}"#;
        let usage = serde_json::from_str::<RawUsage>(raw).unwrap().normal();
        assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens), (10, 60, 30));
        assert_eq!((usage.output_tokens, usage.reasoning_tokens), (9, 4));
        let odd = serde_json::from_str::<RawUsage>(r#"{"input_tokens":1,"input_tokens_details":{"cached_tokens":9}}"#);
        assert_eq!(odd.unwrap().normal().input_tokens, 0);
    }
}
