//! Recorded requests: what the real servers took is taken, what they refused is refused in their words.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../daemon/providers/tests/fixtures")
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Trusts every mark that a body holds: nobody knows who was given it.
fn trust(value: &Value, model: &str, given: &mut Given) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_mark = matches!(
                    key.as_str(),
                    "signature" | "encrypted_content" | "thoughtSignature" | "data" | "redactedContent"
                );
                match value {
                    Value::String(mark) if is_mark => given.trust(mark, model),
                    other => trust(other, model, given),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| trust(item, model, given)),
        _ => {}
    }
}

/// Wire, model, body, and what was given.
fn request(path: &Path) -> Option<(Wire, String, Value, Given)> {
    let recorded = read(path);
    let url = recorded["url"].as_str()?;
    let path = url.split('?').next()?.split("://").nth(1)?.split_once('/')?.1;
    let (wire, path_model) = Wire::of_path(&format!("/{path}"))?;
    let body = recorded["body"].clone();
    let model = if path_model.is_empty() { text(&body, "model").to_owned() } else { path_model };
    let mut given = Given::default();
    trust(&body, &model, &mut given);
    Some((wire, model, body, given))
}

#[test]
fn what_was_refused_is_refused_in_the_same_words() {
    let (wire, model, body, given) = request(&fixtures().join("err-04-openai-reasoning-orphan.request.json")).unwrap();
    let expected = read(&fixtures().join("err-04-openai-reasoning-orphan.expected.json"));
    assert_eq!(refused(wire, &model, &body, &given).as_deref(), expected["error_body"]["error"]["message"].as_str());
}

#[test]
fn what_was_taken_is_taken() {
    let mut seen = Vec::new();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".request.json") || name.starts_with("err-") {
            continue;
        }
        let (wire, model, body, given) = request(&path).unwrap_or_else(|| panic!("{name} is of no wire"));
        seen.push(wire);
        assert_eq!(refused(wire, &model, &body, &given), None, "{name}");
    }
    for wire in Wire::ALL {
        let count = seen.iter().filter(|seen| **seen == wire).count();
        assert!(count >= 4, "{count} recorded requests of {wire:?}");
    }
}
