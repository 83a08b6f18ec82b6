//! Who answered in a history, and what of the answer may go back there.

use mcode_events::Origin;
use mcode_text::truncate_bytes;

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Model {
    provider: String,
    model: String,
    /// Whether what it signed may go back to where it is from.
    pub(crate) signs: bool,
}

impl Model {
    /// A model whose provider and name are harmless; `None` when either is missing.
    pub(crate) fn new(provider: &str, model: &str) -> Option<Self> {
        let clean = |name: &str| -> String {
            let plain = |char: &char| char.is_ascii_alphanumeric() || "-_.:/@[]".contains(*char);
            truncate_bytes(name.trim(), 120).chars().filter(plain).collect()
        };
        let (provider, model) = (clean(provider).replace('/', "-"), clean(model));
        let signs = provider == "anthropic" && model.starts_with("claude");
        (!provider.is_empty() && !model.is_empty()).then_some(Self { provider, model, signs })
    }

    /// The same from a platform whose signatures are taken by that platform only.
    pub(crate) fn elsewhere(self) -> Self {
        Self { signs: false, ..self }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    pub(crate) fn origin(&self) -> Origin {
        let wire = match self.provider.as_str() {
            "anthropic" => "anthropic",
            "openai" => "openai-responses",
            "google" => "gemini",
            // No wire of ours: nothing that is opaque goes back.
            _ => "unknown",
        };
        Origin { provider: self.provider.clone(), wire: wire.to_owned(), model: self.model.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_are_harmless() {
        let model = Model::new("open\u{1b}ai/x", " gpt-5\n").unwrap();
        assert_eq!(model.name(), "openai-x/gpt-5");
        assert_eq!(Model::new("", "x"), None);
        assert!(!Model::new("bedrock", "claude-x").unwrap().signs);
        assert!(!Model::new("anthropic", "claude-x").unwrap().elsewhere().signs);
    }
}
