//! Arguments as models give them: repaired where only one meaning is possible, then checked against the schema.

use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use mcode_events::depth;
use serde_json::{Map, Value};

use crate::output::floor_boundary;
use crate::tool::{ToolFailure, ToolSpec};

/// The most bytes of a refused value that are repeated in the message.
const SHOWN_VALUE_BYTES: usize = 80;
/// How deep nested arguments are looked at for repair; the schemas of our tools have three levels.
const MAX_DEPTH: usize = 8;
/// Other names that models use: (theirs, ours). Only used when ours is in the schema and absent from the call.
const SYNONYMS: &[(&str, &str)] = &[
    ("file_path", "path"),
    ("filepath", "path"),
    ("filename", "path"),
    ("file", "path"),
    ("directory", "path"),
    ("dir", "path"),
    ("old_str", "old_string"),
    ("old_text", "old_string"),
    ("old", "old_string"),
    ("new_str", "new_string"),
    ("new_text", "new_string"),
    ("new", "new_string"),
    ("all", "replace_all"),
    ("text", "content"),
    ("contents", "content"),
    ("file_text", "content"),
    ("input", "patch"),
    ("diff", "patch"),
    ("regex", "pattern"),
    ("query", "pattern"),
    ("include", "glob"),
    ("output_mode", "mode"),
    ("case_insensitive", "ignore_case"),
    ("cmd", "command"),
    ("workdir", "cwd"),
    ("timeout", "timeout_s"),
];

/// The arguments of a call, repaired where that is safe and checked against the tool's schema.
///
/// Repaired are: JSON in a string where an object or array is wanted, numbers and booleans in strings, `null` for an
/// optional field, one string where an array of strings is wanted, other names of a field that is absent. Fields that
/// the schema does not have are dropped. [`crate::registry::ToolSet::check_arguments`] does the same with a schema
/// that is compiled once.
///
/// # Errors
/// [`ToolFailure::BadArguments`] that names the field, what was given and what is wanted.
pub fn check_arguments(spec: &ToolSpec, given: &Value) -> Result<Value, ToolFailure> {
    check_with(spec, compile(spec).as_ref(), given)
}

/// The compiled schema; `None` (and a warning) when the schema itself is wrong, which a test of every tool excludes.
pub(crate) fn compile(spec: &ToolSpec) -> Option<Validator> {
    jsonschema::validator_for(&spec.schema)
        .inspect_err(|error| tracing::warn!(tool = spec.name, %error, "the schema of a tool is wrong"))
        .ok()
}

/// [`check_arguments`] with a compiled schema.
pub(crate) fn check_with(spec: &ToolSpec, validator: Option<&Validator>, given: &Value) -> Result<Value, ToolFailure> {
    let repaired = match repair(&spec.schema, given.clone(), 0) {
        // A call without arguments may come as null or an empty text.
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        other => other,
    };
    if !repaired.is_object() {
        return Err(ToolFailure::BadArguments(format!(
            "{}: the arguments must be a JSON object, but {} was given. {}",
            spec.name,
            shown(given),
            fields_of(&spec.schema)
        )));
    }
    let Some(validator) = validator else {
        return Err(ToolFailure::BadArguments(format!(
            "{}: this tool can not be used: its schema is wrong",
            spec.name
        )));
    };
    // Repaired texts may hold more levels than were given.
    if !depth::fits(&repaired) {
        let (name, most) = (spec.name, depth::JSON_DEPTH_MAX);
        let text =
            format!("{name}: the arguments nest deeper than {most} levels, so nothing was run. Send flatter ones.");
        return Err(ToolFailure::BadArguments(text));
    }
    let fault = validator.iter_errors(&repaired).next().map(|error| explain(spec, &error));
    fault.map_or(Ok(repaired), |message| Err(ToolFailure::BadArguments(message)))
}

/// The value as the schema wants it, where only one meaning is possible; otherwise as it is.
fn repair(schema: &Value, value: Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return value;
    }
    match (wanted_type(schema), value) {
        (Some("object"), Value::String(text)) => {
            parsed(&text, Value::is_object).map_or(Value::String(text), |object| repair(schema, object, depth + 1))
        }
        (Some("object"), Value::Object(fields)) => Value::Object(repair_fields(schema, fields, depth)),
        (Some("array"), Value::String(text)) => match parsed(&text, Value::is_array) {
            Some(array) => repair(schema, array, depth + 1),
            None if schema.get("items").and_then(wanted_type) == Some("string") => {
                Value::Array(vec![Value::String(text)])
            }
            None => Value::String(text),
        },
        (Some("array"), Value::Object(fields)) if schema.get("items").and_then(wanted_type) == Some("object") => {
            repair(schema, Value::Array(vec![Value::Object(fields)]), depth + 1)
        }
        (Some("array"), Value::Array(items)) => {
            let each = schema.get("items").unwrap_or(&Value::Null);
            Value::Array(items.into_iter().map(|item| repair(each, item, depth + 1)).collect())
        }
        (Some("integer"), value) => whole_number(&value).map_or(value, Value::from),
        (Some("number"), Value::String(text)) => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Value::from(number),
            _ => Value::String(text),
        },
        (Some("boolean"), Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::String(text),
        },
        (_, value) => value,
    }
}

fn repair_fields(schema: &Value, mut fields: Map<String, Value>, depth: usize) -> Map<String, Value> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return fields };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    fields.retain(|name, value| !value.is_null() || required.contains(&name.as_str()));
    for (theirs, ours) in SYNONYMS {
        if properties.contains_key(*ours)
            && !properties.contains_key(*theirs)
            && !fields.contains_key(*ours)
            && let Some(value) = fields.remove(*theirs)
        {
            fields.insert((*ours).to_owned(), value);
        }
    }
    // In the order of the schema, so that the same call is always the same text.
    properties
        .iter()
        .filter_map(|(name, wanted)| Some((name.clone(), repair(wanted, fields.remove(name)?, depth + 1))))
        .collect()
}

fn wanted_type(schema: &Value) -> Option<&str> {
    schema.get("type").and_then(Value::as_str)
}

fn parsed(text: &str, fits: fn(&Value) -> bool) -> Option<Value> {
    serde_json::from_str::<Value>(text).ok().filter(fits)
}

fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        // 3.0 is 3; 3.5 is not repaired.
        Value::Number(number) if !number.is_i64() && !number.is_u64() => {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
            format!("{float:.0}").parse().ok()
        }
        _ => None,
    }
}

fn explain(spec: &ToolSpec, error: &jsonschema::ValidationError<'_>) -> String {
    let name = spec.name;
    let path = error.instance_path().to_string();
    let path = path.trim_start_matches('/').replace('/', ".");
    let given = shown(error.instance());
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let field = property.as_str().unwrap_or_default();
            let field = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
            format!("{name}: the field '{field}' is missing. {}", fields_of(&spec.schema))
        }
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(_) => "another type".to_owned(),
            };
            format!("{name}: the field '{path}' must be of type {wanted}, but {given} was given")
        }
        ValidationErrorKind::Enum { options } => {
            format!("{name}: the field '{path}' must be one of {options}, but {given} was given")
        }
        _ => format!("{name}: the field '{path}' does not fit: {}", error.masked_with("the value given")),
    }
}

/// A value as it is repeated to the model, cut.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= SHOWN_VALUE_BYTES {
        return text;
    }
    format!("{}… ({} bytes)", text.get(..floor_boundary(&text, SHOWN_VALUE_BYTES)).unwrap_or_default(), text.len())
}

fn fields_of(schema: &Value) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return String::new() };
    let fields: Vec<String> = properties
        .keys()
        .map(|name| if required.contains(&name.as_str()) { name.clone() } else { format!("{name}?") })
        .collect();
    format!("Fields: {} (? = optional)", fields.join(", "))
}

#[cfg(test)]
mod tests {
    use mcode_permissions::access::Category;
    use serde_json::json;

    use super::*;

    fn spec() -> ToolSpec {
        ToolSpec {
            name: "edit",
            description: String::new(),
            schema: json!({"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string"},
                "old_string": {"type": "string"},
                "replace_all": {"type": "boolean"},
                "limit": {"type": "integer", "minimum": 1},
                "names": {"type": "array", "items": {"type": "string"}},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "edits": {"type": "array", "items": {"type": "object", "required": ["old_string"], "properties": {
                    "old_string": {"type": "string"}, "replace_all": {"type": "boolean"}}}},
            }}),
            category: Category::Edit,
        }
    }

    #[test]
    fn arguments_that_nest_too_deep_are_refused_also_as_text() {
        let mut free = spec();
        free.schema["properties"]["any"] = json!({"type": "object"});
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
        let given = |any: Value| json!({"path": "f", "any": any});
        let deepest = nested(depth::JSON_DEPTH_MAX - 1);
        for any in [deepest.clone(), Value::String(deepest.to_string())] {
            assert_eq!(check_arguments(&free, &given(any)).unwrap(), given(deepest.clone()));
        }
        let deeper = nested(depth::JSON_DEPTH_MAX);
        for any in [deeper.clone(), Value::String(deeper.to_string())] {
            let refused = check_arguments(&free, &given(any)).unwrap_err().to_string();
            assert!(refused.contains("nest deeper than 100 levels"), "{refused}");
        }
    }

    fn fault(given: Value) -> String {
        check_arguments(&spec(), &given).unwrap_err().to_string()
    }

    #[test]
    fn what_has_one_meaning_is_repaired() {
        let given = json!(
            "{\"file_path\":\"f\",\"old_str\":\"x\",\"all\":\"true\",\"limit\":\" 12\",\"mode\":null,\
            \"names\":\"one\",\"why\":1,\"edits\":\"[{\\\"old\\\":\\\"y\\\",\\\"all\\\":\\\"False\\\"}]\"}"
        );
        let wanted = json!({"path": "f", "old_string": "x", "replace_all": true, "limit": 12, "names": ["one"],
            "edits": [{"old_string": "y", "replace_all": false}]});
        assert_eq!(check_arguments(&spec(), &given).unwrap(), wanted);
        assert_eq!(check_arguments(&spec(), &wanted).unwrap(), wanted);
        let list = json!({"path": "f", "names": "[\"a\",\"b\"]", "limit": 3.0});
        assert_eq!(check_arguments(&spec(), &list).unwrap(), json!({"path": "f", "limit": 3, "names": ["a", "b"]}));
    }

    #[test]
    fn a_synonym_never_replaces_the_field_itself() {
        let given = json!({"path": "right", "file_path": "wrong"});
        assert_eq!(check_arguments(&spec(), &given).unwrap(), json!({"path": "right"}));
    }

    #[test]
    fn text_stays_text_where_text_is_wanted() {
        let given = json!({"path": "12", "old_string": "{\"a\":true}"});
        assert_eq!(check_arguments(&spec(), &given).unwrap(), given);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(
            fault(json!({"limit": 1})),
            "edit: the field 'path' is missing. Fields: path, old_string?, replace_all?, limit?, names?, mode?, \
             edits? (? = optional)"
        );
        assert_eq!(
            fault(json!({"path": "f", "limit": "many"})),
            "edit: the field 'limit' must be of type integer, but \"many\" was given"
        );
        assert_eq!(
            fault(json!({"path": "f", "mode": "c"})),
            "edit: the field 'mode' must be one of [\"a\",\"b\"], but \"c\" was given"
        );
        assert!(
            fault(json!({"path": "f", "edits": [{}]})).starts_with("edit: the field 'edits.0.old_string' is missing")
        );
        assert!(fault(json!([1])).starts_with("edit: the arguments must be a JSON object, but [1] was given"));
        assert!(fault(json!(null)).contains("'path' is missing"));
        let long = fault(json!({"path": {"x": "y".repeat(10_000)}}));
        assert!(long.len() < 250 && long.contains("(10008 bytes)"), "{long}");
        assert!(
            fault(json!({"path": "f", "limit": 0})).contains("'limit'"),
            "{}",
            fault(json!({"path": "f", "limit": 0}))
        );
    }
}
