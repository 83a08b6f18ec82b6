//! The words for how much models think that are asked in OpenAI's way; they differ by family, and a wrong one is refused.

use mcode_events::run::ThinkingLevel;
use mcode_models::ModelRequest;

/// What the families take of which the catalogue lists no words, the first whose name the model's begins with counts: name, the word for no
/// thinking, the word for the most.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("gpt-6.1", "low", "xhigh"),
    ("gpt-6", "none", "xhigh"),
    ("gpt-5.6-codex", "low", "xhigh"),
    ("gpt-5.6", "none", "xhigh"),
    ("gpt-5.1-codex-max", "low", "xhigh"),
    ("gpt-5.1-codex", "low", "high"),
    ("gpt-5.1", "none", "high"),
    ("gpt-5.2-codex", "low", "xhigh"),
    ("gpt-5.3-codex", "low", "xhigh"),
    ("gpt-5-codex", "low", "high"),
    ("gpt-5.", "none", "xhigh"),
    ("gpt-5", "minimal", "high"),
    ("gpt-oss", "low", "high"),
    ("codex", "low", "high"),
    ("o1", "low", "high"),
    ("o3", "low", "high"),
    ("o4", "low", "high"),
];
/// Of a family that this version does not know: words that most take.
const UNKNOWN: (&str, &str) = ("low", "high");

/// The word for an effort: by the catalogue, else by the family.
pub(crate) fn word(request: &ModelRequest, level: ThinkingLevel) -> &'static str {
    request.info.efforts.word(level).unwrap_or_else(|| by_family(&request.model.model, level))
}

/// `model` may have a vendor before it, as gateways write it.
fn by_family(model: &str, level: ThinkingLevel) -> &'static str {
    let name = model.rsplit('/').next().unwrap_or(model);
    let family = FAMILIES.iter().find(|(family, _, _)| name.starts_with(family));
    let (off, most) = family.map_or(UNKNOWN, |(_, off, most)| (*off, *most));
    match level {
        ThinkingLevel::Off if name.contains("astra") => "low",
        ThinkingLevel::Off => off,
        ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Xhigh => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_gets_words_that_it_takes() {
        for (model, off, most) in [
            ("gpt-5", "minimal", "high"),
            ("gpt-5-mini-2025-08-07", "minimal", "high"),
            ("openai/gpt-5.1", "none", "high"),
            ("gpt-5.5", "none", "xhigh"),
            ("gpt-5.1-codex-max", "low", "xhigh"),
            ("gpt-5-codex", "low", "high"),
            ("gpt-5.6", "none", "xhigh"),
            ("gpt-6.1", "low", "xhigh"),
            ("o4-mini", "low", "high"),
            ("something-new", "low", "high"),
        ] {
            assert_eq!(by_family(model, ThinkingLevel::Off), off, "{model}");
            assert_eq!(by_family(model, ThinkingLevel::Xhigh), most, "{model}");
            assert_eq!(by_family(model, ThinkingLevel::Medium), "medium", "{model}");
        }
    }
}
