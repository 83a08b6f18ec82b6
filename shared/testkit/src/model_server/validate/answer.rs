//! What servers refuse in the schema of an answer.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{is_id, list, text};

/// Keywords that OpenAI's strict mode knows.
const STRICT: &[&str] = &[
    "type",
    "title",
    "description",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "$ref",
    "$defs",
    "definitions",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
];
/// Keywords that Claude's takes.
const CLAUDE: &[&str] = &[
    "type",
    "title",
    "description",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "format",
    "default",
];
/// Keywords that Gemini's knows.
const GEMINI: &[&str] = &[
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
];

/// OpenAI's `{name, schema, strict?}`; `place` is what the server calls it.
pub(super) fn openai(format: &Value, place: &str) -> Result<(), String> {
    if !is_id(text(format, "name"), 64) {
        return Err(format!("Missing required parameter: '{place}.name'."));
    }
    let schema = format.get("schema").unwrap_or(&Value::Null);
    let name = text(format, "name");
    if text(schema, "type") != "object" {
        return Err(format!(
            "Invalid schema for response_format '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{}\"'.",
            schema.get("type").and_then(Value::as_str).unwrap_or("None")
        ));
    }
    if format.get("strict") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    each(schema, &mut |schema| {
        only(schema, STRICT).map_err(|keyword| {
            format!("Invalid schema for response_format '{name}': In context=(), '{keyword}' is not permitted.")
        })?;
        let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
        if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err(format!(
                "Invalid schema for response_format '{name}': In context=(), 'additionalProperties' is required to be supplied and to be false."
            ));
        }
        let required: BTreeSet<&str> = list(schema, "required").iter().filter_map(Value::as_str).collect();
        match fields.keys().find(|field| !required.contains(field.as_str())) {
            None => Ok(()),
            Some(field) => Err(format!(
                "Invalid schema for response_format '{name}': In context=(), 'required' is required to be supplied and to be an array including every key in properties. Missing '{field}'."
            )),
        }
    })
}

/// Claude's `{type, schema}`.
pub(super) fn claude(schema: &Value) -> Result<(), String> {
    if !schema.is_object() {
        return Err("output_config.format.schema: Field required".to_owned());
    }
    each(schema, &mut |schema| {
        only(schema, CLAUDE).map_err(|keyword| {
            format!(
                "output_config.format.schema: For '{}' type, property '{keyword}' is not supported",
                text(schema, "type")
            )
        })?;
        let object = text(schema, "type") == "object" || schema.get("properties").is_some();
        if object && schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err("output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false".to_owned());
        }
        Ok(())
    })
}

/// Gemini's `responseJsonSchema`.
pub(super) fn gemini(schema: &Value) -> Result<(), String> {
    each(schema, &mut |schema| {
        only(schema, GEMINI).map_err(|keyword| {
            format!(
                "Invalid JSON payload received. Unknown name \"{keyword}\" at 'generation_config.response_json_schema'"
            )
        })
    })
}

/// The first keyword of a schema that is not one of these.
fn only<'a>(schema: &'a Value, keywords: &[&str]) -> Result<(), &'a str> {
    let unknown = schema.as_object().and_then(|fields| fields.keys().find(|key| !keywords.contains(&key.as_str())));
    unknown.map_or(Ok(()), |keyword| Err(keyword))
}

/// Looks at a schema and all within it.
fn each(schema: &Value, look: &mut dyn FnMut(&Value) -> Result<(), String>) -> Result<(), String> {
    look(schema)?;
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.values().try_for_each(|schema| each(schema, look))?;
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter().try_for_each(|schema| each(schema, look))?;
            }
            ("items" | "additionalProperties", Value::Object(_)) => each(value, look)?,
            _ => {}
        }
    }
    Ok(())
}
