//! The bundled figures: a selection of current models.
//!
//! Taken from models.dev (MIT, Copyright (c) 2025 models.dev) and the price file of litellm (MIT, Copyright (c) 2023
//! Berri AI). They are a community's figures: good for estimates, not for bills. Dated names (`…-20250929`) take the
//! figures of the name without the date.

use std::sync::OnceLock;

use serde::Deserialize;

use super::{ModelInfo, ModelRef, Pricing, ThinkingForm};

/// Name, display name, context, most output, `i` for images, thinking, prices (input, output, read, write).
#[derive(Deserialize)]
struct Row(String, String, u32, u32, String, ThinkingForm, Option<[f64; 4]>);

impl From<Row> for ModelInfo {
    fn from(row: Row) -> Self {
        let Row(id, name, context_tokens, max_output_tokens, abilities, thinking, prices) = row;
        let pricing =
            prices.map(|[input, output, cache_read, cache_write]| Pricing { input, output, cache_read, cache_write });
        let images = abilities.contains('i');
        Self { id, name, context_tokens, max_output_tokens, images, tools: true, thinking, pricing, known: true }
    }
}

/// Every bundled model; the order within a provider is by preference.
#[must_use]
pub fn bundled() -> &'static [ModelInfo] {
    static MODELS: OnceLock<Vec<ModelInfo>> = OnceLock::new();
    MODELS.get_or_init(|| {
        // The text is part of this program and a test reads it; a fault in it leaves an empty catalogue, which works.
        let rows: Vec<Row> = serde_json::from_str(include_str!("models.json")).unwrap_or_default();
        rows.into_iter().map(ModelInfo::from).collect()
    })
}

/// What is known of a model, under its exact name or its name without a date at the end.
#[must_use]
pub fn lookup(model: &ModelRef) -> Option<ModelInfo> {
    let full = model.to_string();
    let exact = bundled().iter().find(|info| info.id == full);
    let found = exact.or_else(|| {
        let undated = without_date(&full)?;
        bundled().iter().find(|info| info.id == undated)
    });
    found.map(|info| ModelInfo { id: full, ..info.clone() })
}

/// `claude-sonnet-4-5` of `claude-sonnet-4-5-20250929`; also `-latest`.
fn without_date(name: &str) -> Option<&str> {
    let (before, last) = name.rsplit_once('-')?;
    let is_date = last.len() == 8 && last.bytes().all(|byte| byte.is_ascii_digit());
    (is_date || last == "latest").then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_table_reads_and_makes_sense() {
        assert!(bundled().len() >= 60);
        let mut names = std::collections::HashSet::new();
        for info in bundled() {
            assert!(names.insert(&info.id), "{} stands twice", info.id);
            assert!(info.id.parse::<ModelRef>().is_ok(), "{}", info.id);
            assert!(info.max_output_tokens > 0 && info.max_output_tokens <= info.context_tokens, "{}", info.id);
            if let Some(prices) = info.pricing {
                assert!(prices.input >= 0.0 && prices.input <= prices.output, "{}", info.id);
            }
        }
    }

    #[test]
    fn dated_names_take_the_figures_of_the_undated() {
        let dated = lookup(&"anthropic/claude-sonnet-4-5-20250929".parse().unwrap()).unwrap();
        assert_eq!(dated.id, "anthropic/claude-sonnet-4-5-20250929");
        assert_eq!((dated.context_tokens, dated.thinking), (200_000, ThinkingForm::Budget));
        assert!(lookup(&"anthropic/claude-sonnet-4-5-beta".parse().unwrap()).is_none());
        assert!(lookup(&"mistral/devstral-latest".parse().unwrap()).is_some());
    }
}
