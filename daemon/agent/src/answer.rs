//! Answers that have to satisfy a JSON Schema (pure).

use mcode_events::depth;
use serde_json::Value;

/// Times a model is told what is wrong with its answer before the run fails.
pub const TRIES_MAX: u32 = 3;

/// The most problems that are told at once.
const PROBLEMS_MAX: usize = 5;

/// The most opening brackets at which an answer is looked for between words.
const STARTS_MAX: usize = 32;

/// Deepest nesting of an answer: the log takes no more.
const DEPTH_MAX: usize = depth::JSON_DEPTH_MAX;

/// Whether a schema can be used; the error says what is wrong with it.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    jsonschema::validator_for(schema)
        .map(|_| ())
        .map_err(|error| format!("is no JSON Schema that can be used: {error}"))
}

/// Reads the JSON of a final answer and checks it; the error is what the model is told.
///
/// The JSON may stand in a fence or between words, and a comma may stand before a closing bracket; of several values
/// the last that satisfies the schema counts.
pub fn check(schema: &Value, text: &str) -> Result<Value, String> {
    let validator =
        jsonschema::validator_for(schema).map_err(|error| format!("The schema cannot be used: {error}."))?;
    let mut first_problem = None;
    for candidate in candidates(text) {
        let Some(value) = parse(candidate) else { continue };
        let problems: Vec<String> = validator
            .iter_errors(&value)
            .take(PROBLEMS_MAX)
            .map(|error| format!("- at '{}': {error}", error.instance_path()))
            .collect();
        if problems.is_empty() {
            return Ok(value);
        }
        first_problem.get_or_insert(problems);
    }
    Err(match first_problem {
        Some(problems) => format!(
            "Your final answer does not satisfy the schema:\n{}\nAnswer again with JSON alone.",
            problems.join("\n")
        ),
        None => {
            let why = match serde_json::from_str::<Value>(text.trim()) {
                Ok(_) => Some(format!(": it nests deeper than {DEPTH_MAX} levels")),
                Err(error) => Some(format!(": {error}")),
            };
            format!(
                "Your final answer has to be JSON alone, without other words. It does not parse{}.",
                why.unwrap_or_default()
            )
        }
    })
}

/// What of a text may be the answer, the likeliest first: all of it, then what stands in brackets, from the end.
fn candidates(text: &str) -> Vec<&str> {
    let mut candidates = vec![text.trim()];
    candidates.extend(bracketed(text).into_iter().rev());
    candidates
}

/// The outermost texts in brackets. What is in quotes opens and closes nothing within them.
fn bracketed(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut at, mut starts) = (0, 0);
    while let Some(next) = text.get(at..).and_then(|rest| rest.find(['{', '['])) {
        let start = at + next;
        starts += 1;
        if starts > STARTS_MAX {
            break;
        }
        match closing(&text[start..]) {
            Some(length) => {
                found.push(&text[start..start + length]);
                at = start + length;
            }
            None => at = start + 1,
        }
    }
    found
}

/// The length of the text in brackets that begins here; `None` when it does not end, or nests too deep.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return None;
                }
            }
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// JSON, or what is JSON but for commas before closing brackets.
fn parse(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value).filter(depth::fits);
    }
    // The lenient reader knows no bound of its own for nesting: only a text that closes within ours is given to it.
    if closing(text) != Some(text.len()) {
        return None;
    }
    let lenient = jsonc_parser::ParseOptions { allow_trailing_commas: true, ..strict() };
    jsonc_parser::parse_to_serde_value::<Value>(text, &lenient).ok()
}

/// Nothing but JSON.
fn strict() -> jsonc_parser::ParseOptions {
    jsonc_parser::ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
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
        for (text, n) in [
            ("Here it is: {\"n\": 3}. Done.", 3),
            ("First {\"n\": 1}, then {\"m\": 0}, {x}, at last:\n```json\n{\"n\": 4,}\n```\nThat is all.", 4),
            ("{{{ \"quoted } \\\" {\" {\"n\": 5}", 5),
        ] {
            assert_eq!(check(&schema, text), Ok(json!({ "n": n })), "{text}");
        }
        // Nothing is guessed: neither quotes nor words are made JSON.
        for text in ["n is 1", "{n: 1}", "{'n': 1}", "{\"n\": 1", "{\"n\": 1 // one\n}"] {
            assert!(check(&schema, text).unwrap_err().contains("does not parse"), "{text}");
        }
        assert!(check(&schema, r#"{"n": "1"}"#).unwrap_err().contains("at '/n'"));
    }

    #[test]
    fn hostile_texts_are_looked_through_within_bounds() {
        let schema = json!({"type": "array"});
        for text in
            ["[".repeat(1 << 20), format!("{}{}", "[".repeat(1 << 17), "],".repeat(1 << 17)), "{\"".repeat(1 << 19)]
        {
            assert!(check(&schema, &text).is_err());
        }
        // What stands behind so many brackets that open nothing is not found any more.
        assert!(check(&schema, &format!("{}[1]", "{ ".repeat(STARTS_MAX))).is_err());
        assert!(check(&schema, &format!("{}[1]", "{ ".repeat(STARTS_MAX - 1))).is_ok());
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
