//! Catalogues in the shape of models.dev (`{provider: {name, npm, models: {id: {…}}}}`), read leniently: what is odd
//! in one model leaves out that model, not the rest.
//!
//! One field is our own: `thinking` names the form where the rest does not tell it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Efforts, ModelInfo, Pricing, ThinkingForm, Tier};

/// Providers that have another name here.
const OUR_NAMES: &[(&str, &str)] = &[
    ("moonshotai", "moonshot"),
    ("amazon-bedrock", "bedrock"),
    ("google-vertex", "vertex"),
    ("google-vertex-anthropic", "vertex"),
    ("alibaba", "dashscope"),
    ("fireworks-ai", "fireworks"),
    ("togetherai", "together"),
];
/// Most models that are taken from one list.
pub(super) const MODELS_MAX: usize = 20_000;
/// Longest name of a model, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Largest window that is believed, in tokens.
const CONTEXT_MAX: u32 = 100_000_000;
/// Highest price that is believed, in US dollars per million tokens; the dearest known model costs some hundreds.
const PRICE_MAX: f64 = 10_000.0;

/// Claude models that always think, by a part of their name.
const ALWAYS_THINK: &[&str] = &["fable", "mythos", "opus-5-5", "sonnet-5-5"];

#[derive(Deserialize)]
struct Provider {
    #[serde(default)]
    npm: String,
    #[serde(default)]
    models: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    name: String,
    #[serde(default)]
    reasoning: bool,
    #[serde(default)]
    reasoning_options: Vec<ReasoningOption>,
    #[serde(default = "yes")]
    tool_call: bool,
    #[serde(default)]
    structured_output: Option<bool>,
    #[serde(default)]
    modalities: Modalities,
    limit: Limit,
    #[serde(default)]
    cost: Option<Cost>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    thinking: Option<ThinkingForm>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct ReasoningOption {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    values: Vec<Value>,
}

#[derive(Deserialize, Default)]
struct Modalities {
    #[serde(default)]
    input: Vec<String>,
}

#[derive(Deserialize)]
struct Limit {
    context: u32,
    output: u32,
}

#[derive(Deserialize)]
struct Cost {
    #[serde(default)]
    input: f64,
    #[serde(default)]
    output: f64,
    #[serde(default)]
    cache_read: Option<f64>,
    #[serde(default)]
    cache_write: Option<f64>,
    #[serde(default)]
    tiers: Vec<CostTier>,
}

#[derive(Deserialize)]
struct CostTier {
    tier: TierSize,
    #[serde(default)]
    input: f64,
    #[serde(default)]
    output: f64,
    #[serde(default)]
    cache_read: Option<f64>,
}

#[derive(Deserialize)]
struct TierSize {
    size: u64,
}

/// What was read of a list.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Its models, in its order.
    pub(super) models: Vec<ModelInfo>,
    /// How many were left out, as what is said of them can not be.
    pub(super) left_out: usize,
}

/// The models of a catalogue; `None` when it is none at all.
pub(super) fn read(text: &str) -> Option<Read> {
    let providers: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let mut all = Read::default();
    for (id, value) in providers {
        let ordered: Vec<String> = value.get("models")?.as_object()?.keys().cloned().collect();
        let Ok(mut provider) = serde_json::from_value::<Provider>(value) else { continue };
        let name = OUR_NAMES.iter().find(|(theirs, _)| *theirs == id).map_or(id.as_str(), |(_, ours)| ours);
        for model in ordered {
            let read = provider.models.remove(&model).map(serde_json::from_value::<Model>);
            let Some(Ok(read)) = read.filter(|_| is_name(name) && is_name(&model)) else {
                all.left_out += 1;
                continue;
            };
            if read.status.as_deref() == Some("deprecated") {
                continue;
            }
            match checked(&read).then(|| info(name, &provider.npm, &model, read)) {
                None => all.left_out += 1,
                Some(info) => all.models.extend(info),
            }
            if all.models.len() > MODELS_MAX {
                return None;
            }
        }
    }
    Some(all)
}

/// Whether a name can stand in a list, a command line and a file.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '`');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(fits)
}

/// Whether the figures can be true. Money is counted by them, so one that can not be is not mended.
fn checked(read: &Model) -> bool {
    let is_price = |price: f64| price.is_finite() && (0.0..=PRICE_MAX).contains(&price);
    let prices = |cost: &Cost| {
        let tiers = cost.tiers.iter().flat_map(|tier| [Some(tier.input), Some(tier.output), tier.cache_read]);
        let own = [Some(cost.input), Some(cost.output), cost.cache_read, cost.cache_write];
        own.into_iter().chain(tiers).flatten().all(is_price)
    };
    let readable = |name: &str| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    read.limit.context <= CONTEXT_MAX && readable(&read.name) && read.cost.as_ref().is_none_or(prices)
}

fn info(provider: &str, npm: &str, model: &str, read: Model) -> Option<ModelInfo> {
    let Limit { context, output } = read.limit;
    // Embeddings and pictures are listed too, some with limits of zero.
    if context == 0 || output == 0 {
        return None;
    }
    let takes = |kind: &str| read.modalities.input.iter().any(|input| input == kind);
    let (images, documents) = (takes("image"), takes("pdf"));
    let efforts = read.reasoning_options.iter().filter(|option| option.kind == "effort");
    let efforts = Efforts::of(efforts.flat_map(|option| &option.values).filter_map(Value::as_str));
    let derived =
        || if read.reasoning { form(provider, npm, model, &read.reasoning_options) } else { ThinkingForm::None };
    Some(ModelInfo {
        id: format!("{provider}/{model}"),
        name: if read.name.is_empty() { model.to_owned() } else { read.name },
        context_tokens: context,
        max_output_tokens: output.min(context),
        images,
        documents,
        tools: read.tool_call,
        structured: read.structured_output,
        thinking: read.thinking.unwrap_or_else(derived),
        efforts,
        pricing: read.cost.map(pricing),
        known: true,
    })
}

/// How thinking is asked for, as far as the maker and the listed switches tell.
fn form(provider: &str, npm: &str, model: &str, options: &[ReasoningOption]) -> ThinkingForm {
    let has = |kind: &str| options.iter().any(|option| option.kind == kind);
    let takes_max = options.iter().any(|option| option.values.iter().any(|value| value == "max"));
    match provider {
        "openrouter" => return ThinkingForm::OpenRouter,
        "dashscope" => return ThinkingForm::EnableThinking,
        _ => {}
    }
    let claude = model.contains("claude");
    if claude || npm.ends_with("/anthropic") {
        return match (has("budget_tokens"), has("effort")) {
            (true, true) if !takes_max => ThinkingForm::Budget,
            (true, false) => ThinkingForm::Budget,
            (_, true) if ALWAYS_THINK.iter().any(|part| model.contains(part)) => ThinkingForm::AdaptiveAlways,
            (_, true) => ThinkingForm::Adaptive,
            // Servers that are only like Anthropic's.
            (false, false) => ThinkingForm::None,
        };
    }
    match npm.rsplit('/').next().unwrap_or_default() {
        "google" | "google-vertex" if has("budget_tokens") => ThinkingForm::GeminiBudget,
        "google" | "google-vertex" => ThinkingForm::GeminiLevel,
        _ if has("toggle") => ThinkingForm::Toggle,
        _ if has("effort") => ThinkingForm::Effort,
        _ => ThinkingForm::None,
    }
}

fn pricing(cost: Cost) -> Pricing {
    let long = cost.tiers.iter().max_by_key(|tier| tier.tier.size).map(|tier| Tier {
        above_tokens: tier.tier.size,
        input: tier.input,
        output: tier.output,
        cache_read: tier.cache_read.unwrap_or(tier.input),
    });
    Pricing {
        input: cost.input,
        output: cost.output,
        // A provider that lists no price for the cache bills it as other input.
        cache_read: cost.cache_read.unwrap_or(cost.input),
        cache_write: cost.cache_write.unwrap_or(cost.input),
        long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_models_are_left_out_and_the_rest_is_read() {
        let text = r#"{"moonshotai": {"npm": "@ai-sdk/openai-compatible", "models": {
            "a": {"name": "A", "reasoning": true, "reasoning_options": [{"type": "toggle"}],
                "limit": {"context": 1000, "output": 100}, "cost": {"input": 1, "output": 2}},
            "odd": {"limit": "large"},
            "old": {"status": "deprecated", "limit": {"context": 1, "output": 1}},
            "embed": {"limit": {"context": 8, "output": 0}}}}}"#;
        let Read { models, left_out } = read(text).unwrap();
        assert_eq!(left_out, 1);
        assert_eq!(models.len(), 1);
        assert_eq!((models[0].id.as_str(), models[0].thinking), ("moonshot/a", ThinkingForm::Toggle));
        let pricing = models[0].pricing.unwrap();
        assert_eq!((pricing.cache_read, pricing.cache_write), (1.0, 1.0));
        assert!(read("[]").is_none() && read("{\"a\": 1}").is_none());
    }

    #[test]
    fn what_can_not_be_true_is_left_out() {
        let limit = r#""limit": {"context": 1000, "output": 100}"#;
        for (name, rest) in [
            ("m", r#""cost": {"input": -1, "output": 2}"#),
            ("m", r#""cost": {"input": 1, "output": 20000}"#),
            ("m", r#""cost": {"input": 1, "output": 2, "cache_read": -0.1}"#),
            ("m", r#""cost": {"input": 1, "output": 2, "tiers": [{"tier": {"size": 1}, "input": -5, "output": 1}]}"#),
            ("m", r#""cost": {"input": "1", "output": 2}"#),
            ("m", r#""name": "\u001b[31mred""#),
            ("m\\u0007", r#""name": "bell""#),
            ("a b", r#""name": "space""#),
        ] {
            let text = format!(r#"{{"p": {{"models": {{"{name}": {{{limit}, {rest}}}, "good": {{{limit}}}}}}}}}"#);
            let read = read(&text).unwrap();
            assert_eq!((read.models.len(), read.left_out), (1, 1), "{text}");
            assert_eq!(read.models[0].id, "p/good");
        }
        // What is no number at all makes the whole text none.
        assert!(read(r#"{"p": {"models": {"m": {"cost": {"input": NaN}}}}}"#).is_none());
        assert!(read(r#"{"p": {"models": {"m": {"cost": {"input": 1e999}}}}}"#).is_none());
    }

    #[test]
    fn a_list_without_bounds_is_none() {
        let model = r#"{"limit": {"context": 10, "output": 10}}"#;
        let many = |count: usize| {
            let models: Vec<String> = (0..count).map(|at| format!(r#""m{at}": {model}"#)).collect();
            format!(r#"{{"p": {{"models": {{{}}}}}}}"#, models.join(","))
        };
        assert_eq!(read(&many(MODELS_MAX)).unwrap().models.len(), MODELS_MAX);
        assert!(read(&many(MODELS_MAX + 1)).is_none());
    }

    #[test]
    fn the_form_of_thinking_follows_from_what_is_listed() {
        let option = |kind: &str, values: &[&str]| ReasoningOption {
            kind: kind.into(),
            values: values.iter().map(|value| Value::from(*value)).collect(),
        };
        let max = ["low", "max"];
        for (provider, npm, model, options, expected) in [
            ("anthropic", "@ai-sdk/anthropic", "claude-x", vec![option("budget_tokens", &[])], ThinkingForm::Budget),
            ("anthropic", "@ai-sdk/anthropic", "claude-x", vec![option("effort", &max)], ThinkingForm::Adaptive),
            (
                "anthropic",
                "@ai-sdk/anthropic",
                "claude-fable-9",
                vec![option("effort", &max)],
                ThinkingForm::AdaptiveAlways,
            ),
            (
                "bedrock",
                "@ai-sdk/amazon-bedrock",
                "us.anthropic.claude-x",
                vec![option("effort", &max)],
                ThinkingForm::Adaptive,
            ),
            ("google", "@ai-sdk/google", "g", vec![option("budget_tokens", &[])], ThinkingForm::GeminiBudget),
            ("google", "@ai-sdk/google", "g", vec![option("effort", &max)], ThinkingForm::GeminiLevel),
            ("openai", "@ai-sdk/openai", "g", vec![option("effort", &max)], ThinkingForm::Effort),
            ("openrouter", "@openrouter/ai-sdk-provider", "anthropic/claude-x", vec![], ThinkingForm::OpenRouter),
            ("minimax", "@ai-sdk/anthropic", "m", vec![], ThinkingForm::None),
        ] {
            assert_eq!(form(provider, npm, model, &options), expected, "{provider}/{model}");
        }
    }
}
