//! Answers that have to satisfy a JSON Schema (pure).

use serde_json::Value;

/// Times a model is told what is wrong with its answer before the run fails.
pub const TRIES_MAX: u32 = 3;

/// The most problems that are told at once.
const PROBLEMS_MAX: usize = 5;

/// Whether a schema can be used; the error says what is wrong with it.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    jsonschema::validator_for(schema)
        .map(|_| ())
        .map_err(|error| format!("is no JSON Schema that can be used: {error}"))
}

/// Reads the JSON of a final answer and checks it; the error is what the model is told.
pub fn check(schema: &Value, text: &str) -> Result<Value, String> {
    let body = strip_fence(text.trim());
    let value: Value = serde_json::from_str(body).map_err(|error| {
        format!("Your final answer has to be JSON alone, without other words. It does not parse: {error}.")
    })?;
    let validator =
        jsonschema::validator_for(schema).map_err(|error| format!("The schema cannot be used: {error}."))?;
    let problems: Vec<String> = validator
        .iter_errors(&value)
        .take(PROBLEMS_MAX)
        .map(|error| format!("- at '{}': {error}", error.instance_path()))
        .collect();
    if problems.is_empty() {
        return Ok(value);
    }
    Err(format!(
        "Your final answer does not satisfy the schema:\n{}\nAnswer again with JSON alone.",
        problems.join("\n")
    ))
}

/// The inside of a Markdown code fence, if the whole text is one.
fn strip_fence(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    match inner.split_once('\n') {
        Some((_language, body)) => body.trim(),
        None => inner.trim(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_read_bare_or_fenced_and_checked() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        assert_eq!(check(&schema, r#"{"n": 1}"#), Ok(json!({"n": 1})));
        assert_eq!(check(&schema, "```json\n{\"n\": 2}\n```\n"), Ok(json!({"n": 2})));
        assert!(check(&schema, "n is 1").unwrap_err().contains("does not parse"));
        assert!(check(&schema, r#"{"n": "1"}"#).unwrap_err().contains("at '/n'"));
    }

    #[test]
    fn a_schema_is_judged_before_a_model_is_asked() {
        assert_eq!(check_schema(&json!({"type": "object"})), Ok(()));
        assert!(check_schema(&json!({"type": "obj"})).unwrap_err().contains("no JSON Schema"));
        // Nothing is fetched for a schema, neither from the network nor from the disk.
        for elsewhere in ["http://127.0.0.1:1/s.json", "file:///etc/hostname"] {
            assert!(check_schema(&json!({"$ref": elsewhere})).is_err(), "{elsewhere}");
        }
    }
}
