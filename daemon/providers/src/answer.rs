//! The JSON Schema of a final answer, in the subset that a server's own mode takes.
//!
//! A server that is given more than its subset refuses the request. So what only narrows is left out (the answer is
//! checked against the whole schema anyway), and where even that can not be sent, nothing is: the system prompt says
//! the schema too.

use std::collections::BTreeSet;

use mcode_models::ModelRequest;
use serde_json::{Map, Value, json};

/// What the schema is called where a name is wanted.
pub(crate) const NAME: &str = "answer";
/// In the list of what is left out: no form of the answer is asked for.
pub(crate) const FORM: &str = "answer_format";
/// Deepest schema that is sent, in levels of schemas.
const DEPTH_MAX: usize = 10;
/// Most schemas within one that is sent: servers compile them, and bound that.
const SCHEMAS_MAX: usize = 500;
/// Most properties that may be left out of an answer, and most choices of types, by Anthropic's documentation.
const OPTIONAL_MAX: usize = 24;
/// See [`OPTIONAL_MAX`].
const UNIONS_MAX: usize = 16;

/// Keywords that say nothing about the answer.
const SILENT: &[&str] = &["$schema", "$comment", "examples", "default", "deprecated", "readOnly", "writeOnly"];
/// Formats of texts that all servers with a mode of their own know.
const FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The schema that a request asks its answer to fit, as far as this server may be told of it.
pub(crate) fn wanted<'a>(request: &'a ModelRequest, left_out: &[String]) -> Option<&'a Value> {
    let refused = request.info.structured == Some(false) || left_out.iter().any(|field| field == FORM);
    request.answer_schema.as_ref().filter(|_| !refused)
}

/// For OpenAI's wires: the schema, and whether it is strict. Not strict is taken with any schema of an object.
pub(crate) fn openai(schema: &Value) -> Option<(Value, bool)> {
    let root = schema.as_object()?;
    if root.get("type") != Some(&json!("object")) {
        return None;
    }
    if !root.contains_key("anyOf")
        && let Some(strict) = Shaper::new(Subset::Strict).root(schema)
    {
        return Some((strict, true));
    }
    let mut loose = root.clone();
    SILENT.iter().for_each(|keyword| drop(loose.shift_remove(*keyword)));
    Some((Value::Object(loose), false))
}

/// For Claude, which is always strict: what only narrows is left out, and objects are closed.
pub(crate) fn claude(schema: &Value) -> Option<Value> {
    let mut shaper = Shaper::new(Subset::Closed);
    let shaped = shaper.root(schema)?;
    (shaper.optional <= OPTIONAL_MAX && shaper.unions <= UNIONS_MAX).then_some(shaped)
}

/// For Gemini's `responseJsonSchema`: what it does not know is left out.
pub(crate) fn gemini(schema: &Value) -> Option<Value> {
    Shaper::new(Subset::Open).root(schema)
}

/// Whether a model of Anthropic takes a schema: from 4.5 on, and Opus from 4.1 on. `least` is another least version.
pub(crate) fn claude_takes(model: &str, least: Option<(u32, u32)>) -> bool {
    let Some(at) = model.find("claude-") else { return false };
    let name = model[at + "claude-".len()..].split(['@', ':']).next().unwrap_or_default();
    let mut parts = name.split(['-', '.']);
    let family = parts.next().unwrap_or_default();
    // Before 4 the version stood before the family.
    if family.parse::<u32>().is_ok() {
        return false;
    }
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok()).filter(|number| *number < 100);
    let Some(major) = number() else { return false };
    let version = (major, number().unwrap_or(0));
    version >= least.unwrap_or(if family == "opus" { (4, 1) } else { (4, 5) })
}

/// What a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subset {
    /// OpenAI's strict one: exactly as it is, or not at all.
    Strict,
    /// Claude's: closed objects, nothing that refers to itself.
    Closed,
    /// Gemini's: what is not known is left out.
    Open,
}

impl Subset {
    /// Keywords that go as they are; those with schemas in them are handled by themselves.
    const fn plain(self) -> &'static [&'static str] {
        match self {
            Self::Strict | Self::Closed => &["type", "title", "description", "enum", "const", "required", "$ref"],
            Self::Open => &[
                "type",
                "title",
                "description",
                "enum",
                "required",
                "$ref",
                "minItems",
                "maxItems",
                "minimum",
                "maximum",
                "propertyOrdering",
            ],
        }
    }
}

struct Shaper {
    subset: Subset,
    schemas: usize,
    optional: usize,
    unions: usize,
}

impl Shaper {
    const fn new(subset: Subset) -> Self {
        Self { subset, schemas: 0, optional: 0, unions: 0 }
    }

    fn root(&mut self, schema: &Value) -> Option<Value> {
        if self.subset != Subset::Strict && refers_to_itself(schema) {
            return None;
        }
        self.schema(schema, 1)
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        self.schemas += 1;
        if depth > DEPTH_MAX || self.schemas > SCHEMAS_MAX {
            return None;
        }
        let given = schema.as_object()?;
        let mut shaped = Map::new();
        for (keyword, value) in given {
            match keyword.as_str() {
                "properties" | "$defs" | "definitions" => {
                    let mut named = Map::new();
                    for (name, schema) in value.as_object()? {
                        named.insert(name.clone(), self.schema(schema, depth + 1)?);
                    }
                    shaped.insert(keyword.clone(), Value::Object(named));
                }
                "items" if !given.contains_key("prefixItems") => {
                    shaped.insert(keyword.clone(), self.schema(value, depth + 1)?);
                }
                "anyOf" | "oneOf" if keyword == "anyOf" || self.subset != Subset::Strict => {
                    let any: Option<Vec<Value>> =
                        value.as_array()?.iter().map(|schema| self.schema(schema, depth + 1)).collect();
                    self.unions += 1;
                    // What fits exactly one fits any.
                    shaped.insert("anyOf".into(), Value::Array(any?));
                }
                "additionalProperties" => self.additional(given, value, &mut shaped, depth)?,
                "enum" | "const" if !is_simple(value) => self.leave_out()?,
                "const" if self.subset == Subset::Open => {
                    shaped.insert("enum".into(), json!([value]));
                }
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    shaped.insert(keyword.clone(), value.clone());
                }
                plain if self.subset.plain().contains(&plain) => {
                    shaped.insert(keyword.clone(), value.clone());
                }
                silent if SILENT.contains(&silent) => {}
                _ => self.leave_out()?,
            }
        }
        self.finish(given, shaped)
    }

    /// A keyword is left out, where that may be.
    fn leave_out(&self) -> Option<()> {
        (self.subset != Subset::Strict).then_some(())
    }

    fn additional(
        &mut self,
        given: &Map<String, Value>,
        value: &Value,
        shaped: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        let value = match (self.subset, value) {
            (_, Value::Bool(false)) if !given.contains_key("patternProperties") => Value::Bool(false),
            // Names by a pattern are not known; closed without them, no answer would fit.
            (Subset::Open, _) if given.contains_key("patternProperties") => return Some(()),
            (Subset::Open, Value::Bool(true)) => Value::Bool(true),
            (Subset::Open, schema) => self.schema(schema, depth + 1)?,
            _ => return None,
        };
        shaped.insert("additionalProperties".into(), value);
        Some(())
    }

    /// What a schema has to be as a whole.
    fn finish(&mut self, given: &Map<String, Value>, mut shaped: Map<String, Value>) -> Option<Value> {
        let kinds: Vec<&str> = match shaped.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if kinds.len() > 1 {
            self.unions += 1;
        }
        let is_object = kinds.contains(&"object") || shaped.contains_key("properties");
        if self.subset == Subset::Open {
            // Beside a reference nothing else may stand.
            return Some(match shaped.get("$ref") {
                Some(reference) => json!({ "$ref": reference }),
                None => Value::Object(shaped),
            });
        }
        let says_something =
            !kinds.is_empty() || ["enum", "const", "anyOf", "$ref"].iter().any(|keyword| shaped.contains_key(*keyword));
        if !says_something {
            return None;
        }
        if !is_object {
            return Some(Value::Object(shaped));
        }
        let names: BTreeSet<&str> = shaped.get("properties")?.as_object()?.keys().map(String::as_str).collect();
        let required: BTreeSet<&str> =
            shaped.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        match self.subset {
            Subset::Strict => {
                if names != required || given.get("additionalProperties") != Some(&Value::Bool(false)) {
                    return None;
                }
            }
            _ => {
                // An object of any fields can not be asked for here, nor one with a field that has no schema.
                let open = names.is_empty() || given.contains_key("patternProperties") || !required.is_subset(&names);
                if open {
                    return None;
                }
                self.optional += names.difference(&required).count();
                shaped.insert("additionalProperties".into(), Value::Bool(false));
            }
        }
        Some(Value::Object(shaped))
    }
}

/// Texts, numbers and the like, or a list of them.
fn is_simple(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().all(|value| !value.is_array() && !value.is_object()),
        value => !value.is_object(),
    }
}

/// Whether a definition leads back to itself, or a reference to anything but a definition.
fn refers_to_itself(schema: &Value) -> bool {
    let mut closed = BTreeSet::new();
    let mut open = Vec::new();
    leads_back(schema, schema, &mut open, &mut closed)
}

fn leads_back(root: &Value, at: &Value, open: &mut Vec<String>, closed: &mut BTreeSet<String>) -> bool {
    match at {
        Value::Object(fields) => fields.iter().any(|(keyword, value)| match (keyword.as_str(), value) {
            ("$ref", Value::String(reference)) => {
                if open.contains(reference)
                    || !(reference.starts_with("#/$defs/") || reference.starts_with("#/definitions/"))
                {
                    return true;
                }
                if closed.contains(reference) || open.len() > DEPTH_MAX {
                    return open.len() > DEPTH_MAX;
                }
                let Some(target) = root.pointer(&reference[1..]) else { return true };
                open.push(reference.clone());
                let back = leads_back(root, target, open, closed);
                open.pop();
                closed.insert(reference.clone());
                back
            }
            ("$defs" | "definitions" | "enum" | "const" | "default" | "examples", _) => false,
            _ => leads_back(root, value, open, closed),
        }),
        Value::Array(values) => values.iter().any(|value| leads_back(root, value, open, closed)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(fields: Value) -> Value {
        let required: Vec<&String> = fields.as_object().unwrap().keys().collect();
        json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
    }

    #[test]
    fn openais_strict_mode_gets_only_what_it_takes() {
        let fits = object(json!({"n": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "who": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]}}));
        let mut titled = fits.clone();
        titled["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        assert_eq!(openai(&titled), Some((fits.clone(), true)));
        for (path, change) in [
            ("/required", json!(["n"])),
            ("/additionalProperties", json!(true)),
            ("/properties/n", json!({"type": "integer", "minimum": 1})),
            ("/properties/n", json!({"type": "object"})),
            ("/properties/n", json!({})),
            ("/properties/who", json!({"oneOf": [{"type": "string"}, {"type": "null"}]})),
        ] {
            let mut changed = fits.clone();
            *changed.pointer_mut(path).unwrap() = change.clone();
            assert_eq!(openai(&changed), Some((changed.clone(), false)), "{path} {change}");
        }
        // No object: refused in any mode.
        assert_eq!(openai(&json!({"type": "array", "items": {"type": "string"}})), None);
        assert_eq!(openai(&json!({"anyOf": [fits]})), None);
    }

    #[test]
    fn claude_gets_closed_objects_without_what_only_narrows() {
        let given = json!({"type": "object", "minProperties": 1, "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 9},
            "s": {"type": "string", "minLength": 2, "pattern": "^a", "format": "iri"},
            "e": {"oneOf": [{"const": "x"}, {"$ref": "#/$defs/y"}]}},
            "$defs": {"y": {"type": "string", "enum": ["y"]}}});
        let shaped = claude(&given).unwrap();
        assert_eq!(
            shaped,
            json!({"type": "object", "required": ["n"], "properties": {
                "n": {"type": "integer"}, "s": {"type": "string"},
                "e": {"anyOf": [{"const": "x"}, {"$ref": "#/$defs/y"}]}},
                "$defs": {"y": {"type": "string", "enum": ["y"]}}, "additionalProperties": false})
        );
        // What fits the given schema, and no further fields, fits what is sent.
        let answer = json!({"n": 3, "s": "ab", "e": "y"});
        assert!(jsonschema::is_valid(&given, &answer) && jsonschema::is_valid(&shaped, &answer));
        let recursive = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"type": "object", "properties": {"next": {"$ref": "#/$defs/a"}}}}});
        let many: Map<String, Value> = (0..30).map(|at| (format!("p{at}"), json!({"type": "string"}))).collect();
        for refused in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}),
            json!({"type": "object", "required": ["b"], "properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "properties": {"a": true}}),
            recursive,
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            json!({"type": "object", "properties": many}),
        ] {
            assert_eq!(claude(&refused), None, "{refused}");
        }
    }

    #[test]
    fn gemini_gets_what_it_knows() {
        let given = json!({"type": "object", "properties": {
            "n": {"type": "integer", "minimum": 1, "multipleOf": 2}, "k": {"const": "x"},
            "map": {"type": "object", "additionalProperties": {"type": "string", "pattern": "a"}},
            "p": {"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": false},
            "r": {"$ref": "#/$defs/y", "description": "d"}}, "$defs": {"y": {"type": "string"}}, "not": {"const": 1}});
        assert_eq!(
            gemini(&given),
            Some(json!({"type": "object", "properties": {
                "n": {"type": "integer", "minimum": 1}, "k": {"enum": ["x"]},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "p": {"type": "object"}, "r": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"type": "string"}}}))
        );
    }

    #[test]
    fn a_schema_without_bounds_is_not_sent() {
        let mut deep = json!({"type": "string"});
        for _ in 0..DEPTH_MAX {
            deep = object(json!({ "a": deep }));
        }
        assert_eq!((claude(&deep), gemini(&deep)), (None, None));
        assert_eq!(openai(&deep), Some((deep, false)));
        let wide: Map<String, Value> = (0..SCHEMAS_MAX).map(|at| (format!("p{at}"), json!({"type": "null"}))).collect();
        assert_eq!(gemini(&json!({"type": "object", "properties": wide})), None);
    }

    #[test]
    fn models_that_take_a_schema_are_known_by_their_names() {
        for (model, taken) in [
            ("claude-sonnet-4-5-20250929", true),
            ("claude-opus-4-1", true),
            ("us.anthropic.claude-opus-4-8-v1:0", true),
            ("claude-haiku-4-5@20251001", true),
            ("claude-fable-5", true),
            ("anthropic/claude-sonnet-4.6", true),
            ("claude-sonnet-4-20250514", false),
            ("claude-opus-4-0", false),
            ("claude-3-7-sonnet-20250219", false),
            ("MiniMax-M3", false),
        ] {
            assert_eq!(claude_takes(model, None), taken, "{model}");
        }
        assert!(!claude_takes("claude-sonnet-4-5", Some((4, 6))) && claude_takes("claude-opus-4-6", Some((4, 6))));
    }
}
