//! The list of models: a bundled snapshot, and what was fetched since over it.
//!
//! The snapshot is taken from models.dev (MIT, Copyright (c) 2025 models.dev) and the price file of litellm (MIT,
//! Copyright (c) 2023 Berri AI), in the shape of the former. They are a community's figures: good for estimates, not for
//! bills.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::{ModelInfo, ModelRef, Pricing, ThinkingForm, dev};

/// Models and what is known of them. The order within a provider is by preference.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    models: Vec<ModelInfo>,
    by_id: HashMap<String, usize>,
    left_out: usize,
}

impl Catalogue {
    /// The one that is part of this program.
    #[must_use]
    pub fn bundled() -> &'static Self {
        static BUNDLED: OnceLock<Catalogue> = OnceLock::new();
        // A test reads the text; a fault in it would leave an empty catalogue, which works.
        BUNDLED.get_or_init(|| Self::parse(include_str!("models.json")).unwrap_or_default())
    }

    /// Reads one in the shape of models.dev; `None` when the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let read = dev::read(text)?;
        Some(Self { left_out: read.left_out, ..Self::from_models(read.models) })
    }

    /// How many models of the text were left out, since what it says of them can not be.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    fn from_models(list: Vec<ModelInfo>) -> Self {
        let mut models: Vec<ModelInfo> = Vec::with_capacity(list.len());
        let mut by_id = HashMap::with_capacity(list.len());
        for info in list {
            if !by_id.contains_key(&info.id) {
                by_id.insert(info.id.clone(), models.len());
                models.push(info);
            }
        }
        Self { models, by_id, left_out: 0 }
    }

    /// This one with a newer one's figures over its own. How a model thinks is kept where it was known: the newer list
    /// is fetched, and a wrong form would make every request fail. So is a price, where the newer list has none or says
    /// that the model costs nothing: limits of money rest on it.
    #[must_use]
    pub fn refreshed(&self, newer: &Self) -> Self {
        let mut models = self.models.clone();
        for info in &mut models {
            if let Some(at) = newer.by_id.get(&info.id) {
                let newer = newer.models[*at].clone();
                let costs = |price: &Pricing| price.input > 0.0 || price.output > 0.0;
                let pricing = if newer.pricing.as_ref().is_some_and(costs) { newer.pricing } else { info.pricing };
                *info = ModelInfo { thinking: info.thinking, pricing, ..newer };
            }
        }
        models.extend(newer.models.iter().filter(|info| !self.by_id.contains_key(&info.id)).cloned());
        Self::from_models(models)
    }

    /// All models.
    #[must_use]
    pub fn models(&self) -> &[ModelInfo] {
        &self.models
    }

    /// What is listed of a model, under its exact name, its name without a date at the end, or its maker's name where
    /// another sells it.
    #[must_use]
    pub fn listed(&self, model: &ModelRef) -> Option<ModelInfo> {
        let full = model.to_string();
        let names = [Some(full.clone()), without_date(&full).map(str::to_owned), at_its_maker(model)];
        let found = names.into_iter().flatten().find_map(|name| {
            let at = self.by_id.get(&name).or_else(|| self.by_id.get(without_date(&name)?))?;
            Some(self.models[*at].clone())
        });
        found.map(|info| ModelInfo { id: full, ..info })
    }

    /// What is known of a model, else safe figures.
    ///
    /// An unlisted `claude-*` is taken for a newer one than this catalogue: it thinks adaptively.
    #[must_use]
    pub fn info(&self, model: &ModelRef) -> ModelInfo {
        if let Some(info) = self.listed(model) {
            return info;
        }
        let mut info = ModelInfo::unknown(model);
        let maker = at_its_maker(model);
        let name = maker.as_deref().and_then(|maker| maker.strip_prefix("anthropic/"));
        let name = name.or_else(|| (model.provider == "anthropic").then_some(model.model.as_str()));
        if let Some(name) = name.filter(|name| name.starts_with("claude-")) {
            info.context_tokens = 200_000;
            if !name.starts_with("claude-3") && !name.starts_with("claude-2") {
                info.max_output_tokens = 32_000;
                info.thinking = ThinkingForm::Adaptive;
            }
        }
        info
    }
}

/// `claude-sonnet-4-5` of `claude-sonnet-4-5-20250929`; also `-latest`.
fn without_date(name: &str) -> Option<&str> {
    let (before, last) = name.rsplit_once('-')?;
    let is_date = last.len() == 8 && last.bytes().all(|byte| byte.is_ascii_digit());
    (is_date || last == "latest").then_some(before)
}

/// The name of a model at its maker, where a cloud sells it under a name of its own:
/// `us.anthropic.claude-sonnet-4-5-20250929-v1:0` of Bedrock, `claude-sonnet-4-5@20250929` of Vertex, a deployment of
/// Azure that is named as the model is.
fn at_its_maker(model: &ModelRef) -> Option<String> {
    let name = model.model.as_str();
    match model.provider.as_str() {
        "bedrock" => {
            let at = name.find("anthropic.claude-")? + "anthropic.".len();
            let name = name[at..].split(':').next().unwrap_or_default();
            let (before, version) = name.rsplit_once("-v").unwrap_or((name, ""));
            let versioned = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
            Some(format!("anthropic/{}", if versioned { before } else { name }))
        }
        "vertex" if name.starts_with("claude-") => Some(format!("anthropic/{}", name.replace('@', "-"))),
        "vertex" => Some(format!("google/{name}")),
        "azure" => Some(format!("openai/{name}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ModelRef {
        name.parse().unwrap()
    }

    #[test]
    fn the_bundled_list_reads_and_makes_sense() {
        let text: serde_json::Value = serde_json::from_str(include_str!("models.json")).unwrap();
        let written: usize =
            text.as_object().unwrap().values().map(|provider| provider["models"].as_object().unwrap().len()).sum();
        let models = Catalogue::bundled().models();
        assert_eq!(models.len(), written, "every model of the file is read");
        for info in models {
            assert!(info.max_output_tokens > 0 && info.max_output_tokens <= info.context_tokens, "{}", info.id);
            if let Some(prices) = info.pricing {
                assert!(prices.input >= 0.0 && prices.input <= prices.output, "{}", info.id);
                assert!(prices.long.is_none_or(|long| long.input >= prices.input), "{}", info.id);
            }
        }
    }

    #[test]
    fn names_with_dates_and_of_clouds_take_the_figures_of_the_model() {
        let catalogue = Catalogue::bundled();
        for name in [
            "anthropic/claude-sonnet-4-5-20250929",
            "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "bedrock/anthropic.claude-sonnet-4-5",
            "vertex/claude-sonnet-4-5@20250929",
        ] {
            let info = catalogue.listed(&named(name)).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((info.id.as_str(), info.context_tokens), (name, 200_000));
            assert_eq!(info.thinking, ThinkingForm::Budget, "{name}");
        }
        assert!(catalogue.listed(&named("azure/gpt-5.5")).is_some());
        assert!(catalogue.listed(&named("vertex/gemini-2.5-pro")).is_some());
        assert!(catalogue.listed(&named("anthropic/claude-sonnet-4-5-beta")).is_none());
    }

    #[test]
    fn unknown_models_get_safe_figures() {
        let catalogue = Catalogue::bundled();
        assert_eq!(catalogue.info(&named("anthropic/claude-next-9")).thinking, ThinkingForm::Adaptive);
        assert_eq!(catalogue.info(&named("bedrock/eu.anthropic.claude-next-9-v1:0")).thinking, ThinkingForm::Adaptive);
        let info = catalogue.info(&named("mine/x"));
        assert!(!info.known && info.thinking == ThinkingForm::None && info.pricing.is_none());
    }

    #[test]
    fn a_newer_list_brings_figures_and_models_but_no_other_way_to_think() {
        let newer = r#"{"anthropic": {"npm": "@ai-sdk/anthropic", "models": {
            "claude-opus-5": {"name": "Newer", "reasoning": true, "limit": {"context": 5, "output": 4},
                "cost": {"input": 1, "output": 2}},
            "claude-new": {"reasoning": true, "reasoning_options": [{"type": "effort", "values": ["low", "max"]}],
                "limit": {"context": 9, "output": 8}}}}}"#;
        let merged = Catalogue::bundled().refreshed(&Catalogue::parse(newer).unwrap());
        let opus = merged.info(&named("anthropic/claude-opus-5"));
        assert_eq!((opus.name.as_str(), opus.context_tokens, opus.thinking), ("Newer", 5, ThinkingForm::Adaptive));
        assert_eq!(merged.info(&named("anthropic/claude-new")).context_tokens, 9);
        assert!(merged.listed(&named("openai/gpt-5.5")).is_some());
        assert_eq!(merged.models().len(), Catalogue::bundled().models().len() + 1);
        let free = r#"{"anthropic": {"models": {
            "claude-opus-5": {"limit": {"context": 5, "output": 4}, "cost": {"input": 0, "output": 0}},
            "claude-opus-4-8": {"limit": {"context": 5, "output": 4}}}}}"#;
        let merged = Catalogue::bundled().refreshed(&Catalogue::parse(free).unwrap());
        for model in ["anthropic/claude-opus-5", "anthropic/claude-opus-4-8"] {
            assert_eq!(merged.info(&named(model)).pricing.map(|price| price.input), Some(5.0), "{model}");
        }
    }
}
