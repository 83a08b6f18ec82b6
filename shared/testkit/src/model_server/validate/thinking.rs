//! How much models let themselves be asked to think, by family, as their makers document it.

use serde_json::Value;

use super::text;

/// Claude models that can not be kept from thinking.
const ALWAYS: &[&str] = &["fable", "mythos", "opus-5-5", "sonnet-5-5"];

/// What the families of OpenAI and of others on its wires take; the first whose name is in the model's counts.
const EFFORTS: &[(&str, &str)] = &[
    ("astra", "low medium high xhigh max"),
    ("gpt-6.1", "low medium high xhigh max"),
    ("gpt-6", "none low medium high xhigh max"),
    ("gpt-5.1-codex-max", "low medium high xhigh"),
    ("gpt-5.1-codex", "low medium high"),
    ("gpt-5.2-codex", "low medium high xhigh"),
    ("gpt-5.6", "none low medium high xhigh max"),
    ("gpt-5.1", "none low medium high"),
    ("gpt-5.", "none low medium high xhigh"),
    ("gpt-5", "minimal low medium high"),
    ("gpt-oss", "low medium high"),
    ("o3", "low medium high"),
    ("o4", "low medium high"),
    ("kimi-k3", "low high max"),
    ("devstral", "none high"),
    ("mistral", "none high"),
    ("deepseek-v4", "high max"),
    ("glm-5.2", "high max"),
];

/// `thinking` and `output_config` of a Claude, on whichever wire.
pub(super) fn claude(model: &str, thinking: &Value, output: &Value, max_tokens: u64) -> Result<(), String> {
    let Some(version) = claude_version(model) else { return Ok(()) };
    let always = ALWAYS.iter().any(|part| model.contains(part));
    let kind = text(thinking, "type");
    let refused = match kind {
        "adaptive" => version < (4, 6),
        "enabled" => version >= (4, 7),
        "disabled" => always,
        _ => false,
    };
    if refused {
        return Err(format!("\"thinking.type.{kind}\" is not supported for this model."));
    }
    if kind == "enabled" {
        let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
        if budget < 1024 {
            return Err("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".to_owned());
        }
        if budget >= max_tokens {
            return Err("`max_tokens` must be greater than `thinking.budget_tokens`.".to_owned());
        }
    }
    let effort = text(output, "effort");
    let taken = match version {
        (4, 7..) | (5.., _) => "low medium high xhigh max",
        (4, 6) => "low medium high max",
        (4, 5) if model.contains("opus") => "low medium high",
        _ => "",
    };
    let too_much = kind == "disabled" && matches!(effort, "xhigh" | "max");
    if !effort.is_empty() && (too_much || !taken.split(' ').any(|word| word == effort)) {
        return Err(format!("This model does not support effort level '{effort}'. Supported levels: {taken}."));
    }
    Ok(())
}

/// The version in a name such as `us.anthropic.claude-opus-4-8-v1:0`.
fn claude_version(model: &str) -> Option<(u32, u32)> {
    let name = model.split("claude-").nth(1)?;
    let mut parts = name.split(['-', '.', '@', ':']).skip(1);
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok()).filter(|number| *number < 100);
    Some((number()?, number().unwrap_or(0)))
}

/// The effort of a model on OpenAI's wires.
pub(super) fn effort(model: &str, effort: Option<&Value>) -> Result<(), String> {
    let Some(effort) = effort.and_then(Value::as_str) else { return Ok(()) };
    let name = model.rsplit('/').next().unwrap_or(model);
    let family = EFFORTS.iter().find(|(family, _)| name.contains(family));
    let taken = family.map_or("none minimal low medium high xhigh max", |(_, taken)| taken);
    if taken.split(' ').any(|word| word == effort) {
        return Ok(());
    }
    Err(format!(
        "Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are: {taken}."
    ))
}

/// The budget or level of a Gemini.
pub(super) fn gemini(model: &str, config: &Value) -> Result<(), String> {
    let second = model.contains("gemini-2.5");
    if let Some(budget) = config.get("thinkingBudget").and_then(Value::as_i64) {
        let range = if model.contains("pro") { 128..=32_768 } else { 0..=24_576 };
        if !second || !(budget == -1 || range.contains(&budget)) {
            return Err(format!("The thinking budget {budget} is invalid for this model."));
        }
    }
    let level = text(config, "thinkingLevel").to_ascii_lowercase();
    let taken = if model.contains("flash") { "minimal low medium high" } else { "low medium high" };
    if !level.is_empty() && (second || !taken.split(' ').any(|word| word == level)) {
        return Err(format!("Thinking level {level} is not supported for this model."));
    }
    Ok(())
}
