//! Claude Code: `projects/<folder>/<id>.jsonl`, one record a line.
//!
//! Records of type `user`, `assistant` and others hang together by `uuid` and `parentUuid`; a rewound conversation
//! branches. One answer of the model stands in several records with the same `message.id`, one for each block, and
//! results of tools are records of the user. A compaction begins a new root that names the old end as its
//! `logicalParentUuid`. Subagents are side chains, or files of their own (`agent-…`).

mod branch;

use std::path::Path;

use mcode_events::Usage;
use mcode_events::message::{Opaque, Part};
use serde_json::{Value, json};

use super::builder::{Builder, Given};
use super::json_lines::{JsonLines, head, tail};
use super::model::Model;
use super::places::{Places, changed_ms, files_below};
use super::value::{count, is_true, list, moment, some_text, text};
use super::{Discovery, FOUND_MAX, ForeignError, Found, Maker, title_of};

/// Bytes of each file that are looked at for a list.
const HEAD_BYTES: u64 = 64 * 1024;

/// Bytes of its end, where titles stand.
const TAIL_BYTES: u64 = 16 * 1024;

/// The most files that are looked at.
const FILES_MAX: usize = 100_000;

/// Texts that the program itself puts in as the user's.
const OWN_MARKS: [&str; 4] =
    ["<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "Caveat: The messages below were"];

pub(crate) fn discover(places: &Places) -> Discovery {
    let mut discovery = Discovery::default();
    let wanted = |name: &str| name.ends_with(".jsonl") && !name.starts_with("agent-");
    let root = places.claude_code.join("projects");
    let files = files_below(&root, 1, FILES_MAX, &wanted, &mut discovery.problems);
    let mut files: Vec<_> = files.into_iter().map(|path| (changed_ms(&path), path)).collect();
    files.sort_by(|one, other| other.cmp(one));
    for (updated_at_ms, path) in files.into_iter().take(FOUND_MAX) {
        match looked_at(&path, updated_at_ms) {
            Ok(found) => discovery.found.extend(found),
            Err(error) => discovery.problems.push(error.to_string()),
        }
    }
    discovery
}

fn looked_at(path: &Path, updated_at_ms: i64) -> Result<Option<Found>, ForeignError> {
    let (content, whole) = head(path, HEAD_BYTES)?;
    let (mut cwd, mut words, mut messages) = (String::new(), String::new(), 0u64);
    for line in content.split(|byte| *byte == b'\n') {
        let Ok(record) = serde_json::from_slice::<Value>(line) else { continue };
        if !matches!(text(&record, "type"), "user" | "assistant") || is_true(&record, "isSidechain") {
            continue;
        }
        messages += 1;
        if cwd.is_empty() {
            text(&record, "cwd").clone_into(&mut cwd);
        }
        if words.is_empty() && text(&record, "type") == "user" && !is_true(&record, "isMeta") {
            words = said(&record).map(|text| title_of(&text)).unwrap_or_default();
        }
    }
    if whole && messages == 0 {
        return Ok(None);
    }
    let titles = tail(path, TAIL_BYTES)?;
    let named = titles.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let title = named.filter_map(|record| named_by(&record)).max_by_key(|(rank, _)| *rank).map(|(_, title)| title);
    let id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Some(Found {
        maker: Maker::ClaudeCode,
        id,
        title: title.filter(|title| !title.is_empty()).unwrap_or(words),
        cwd,
        updated_at_ms,
        messages: whole.then_some(messages),
        path: path.to_path_buf(),
    }))
}

/// What the user said in a record, if that is words of a person.
fn said(record: &Value) -> Option<String> {
    let content = record.get("message")?.get("content")?;
    let words = match content {
        Value::String(words) => words.clone(),
        Value::Array(blocks) => {
            blocks.iter().find(|block| text(block, "type") == "text").map(|block| text(block, "text").to_owned())?
        }
        _ => return None,
    };
    (!words.trim_start().starts_with('<') && !is_own(&words)).then_some(words)
}

fn is_own(words: &str) -> bool {
    OWN_MARKS.iter().any(|mark| words.trim_start().starts_with(mark))
}

/// A title, and how much it counts: one that a person gave, one of a model, a summary.
fn named_by(record: &Value) -> Option<(u8, String)> {
    let (rank, field) = match text(record, "type") {
        "custom-title" => (3, "customTitle"),
        "ai-title" => (2, "aiTitle"),
        "summary" => (1, "summary"),
        _ => return None,
    };
    some_text(record, field).map(|title| (rank, title_of(title)))
}

pub(crate) fn read(found: &Found, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let mut lines = JsonLines::open(&found.path)?;
    let branch = branch::newest(&mut lines, &mut builder.report)?;
    builder.title = branch.title;
    for spot in branch.records {
        let record: Value = match serde_json::from_slice(lines.line_at(spot)?) {
            Ok(record) => record,
            // It was read before; somebody writes the file anew.
            Err(error) => {
                builder.report.damage(&format!("line {}", spot.line), &error.to_string());
                continue;
            }
        };
        if builder.cwd.is_empty() {
            text(&record, "cwd").clone_into(&mut builder.cwd);
        }
        match text(&record, "type") {
            "user" => user(&record, builder)?,
            "assistant" => assistant(&record, builder),
            "system" if text(&record, "subtype") == "compact_boundary" => {
                builder.notice(moment(record.get("timestamp")), "info", "The conversation was compacted here.");
            }
            other => builder.report.leave_out(&format!("records of type {other}")),
        }
    }
    Ok(())
}

fn user(record: &Value, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let at_ms = moment(record.get("timestamp"));
    if is_true(record, "isMeta") {
        builder.report.leave_out("words of the program itself");
        return Ok(());
    }
    let mut parts = Vec::new();
    match record.get("message").and_then(|message| message.get("content")) {
        Some(Value::String(words)) => said_by_user(words, &mut parts, builder),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match text(block, "type") {
                    "text" => said_by_user(text(block, "text"), &mut parts, builder),
                    "tool_result" => {
                        let given = given(block, record.get("toolUseResult"), builder)?;
                        builder.result(at_ms, text(block, "tool_use_id"), given)?;
                    }
                    "image" | "document" => parts.push(media(block, builder)?),
                    other => builder.report.leave_out(&format!("blocks of type {other}")),
                }
            }
        }
        _ => builder.report.leave_out("messages without content"),
    }
    builder.user(at_ms, parts);
    Ok(())
}

fn said_by_user(words: &str, parts: &mut Vec<Part>, builder: &mut Builder<'_>) {
    if words.starts_with("[Request interrupted by user") {
        builder.interrupted();
    } else if is_own(words) {
        builder.report.leave_out("words of the program itself");
    } else {
        let words = builder.text(words);
        parts.push(Part::text(words));
    }
}

fn media(block: &Value, builder: &mut Builder<'_>) -> Result<Part, ForeignError> {
    let source = block.get("source").unwrap_or(&Value::Null);
    Ok(builder.media(text(source, "data"), some_text(block, "title").unwrap_or(text(block, "type")))?)
}

fn given(block: &Value, details: Option<&Value>, builder: &mut Builder<'_>) -> Result<Given, ForeignError> {
    let mut given = Given { failed: is_true(block, "is_error"), ..Given::default() };
    match block.get("content") {
        Some(Value::String(words)) => given.text.clone_from(words),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match text(block, "type") {
                    "text" if given.text.is_empty() => text(block, "text").clone_into(&mut given.text),
                    "text" => given.text.push_str(&format!("\n{}", text(block, "text"))),
                    "image" | "document" => given.media.push(media(block, builder)?),
                    other => builder.report.leave_out(&format!("blocks of type {other}")),
                }
            }
        }
        _ => {}
    }
    given.diff = details.and_then(diff);
    Ok(given)
}

/// The change that an edit made, as a unified diff.
fn diff(details: &Value) -> Option<String> {
    let path = some_text(details, "filePath")?;
    let hunks = list(details, "structuredPatch");
    if hunks.is_empty() {
        return None;
    }
    let name = path.trim_start_matches('/');
    let mut diff = format!("--- a/{name}\n+++ b/{name}\n");
    for hunk in hunks {
        let [old, old_lines, new, new_lines] =
            ["oldStart", "oldLines", "newStart", "newLines"].map(|field| count(hunk, field));
        diff.push_str(&format!("@@ -{old},{old_lines} +{new},{new_lines} @@\n"));
        for line in list(hunk, "lines").iter().filter_map(Value::as_str) {
            diff.push_str(line);
            diff.push('\n');
        }
    }
    Some(diff)
}

fn assistant(record: &Value, builder: &mut Builder<'_>) {
    let at_ms = moment(record.get("timestamp"));
    let message = record.get("message").unwrap_or(&Value::Null);
    let model = text(message, "model");
    if model == "<synthetic>" || is_true(record, "isApiErrorMessage") {
        let words: Vec<&str> = list(message, "content").iter().map(|block| text(block, "text")).collect();
        return builder.notice(at_ms, "warning", &words.join("\n"));
    }
    // Answers of Bedrock, Vertex and servers of others have other ids.
    let own = text(message, "id").starts_with("msg_0");
    let model = Model::new("anthropic", model).map(|model| if own { model } else { model.elsewhere() });
    let key = some_text(message, "id").or(some_text(record, "uuid")).unwrap_or("?");
    builder.answer(at_ms, Some(key), model);
    match message.get("content") {
        Some(Value::String(words)) => {
            let words = builder.text(words);
            builder.part(Part::text(words));
        }
        Some(Value::Array(blocks)) => {
            for block in blocks {
                answered(block, builder);
            }
        }
        _ => builder.report.leave_out("messages without content"),
    }
    if let Some(stop) = some_text(message, "stop_reason") {
        builder.stop(stop);
    }
    if let Some(usage) = message.get("usage").filter(|usage| usage.is_object()) {
        builder.usage(Usage {
            input_tokens: count(usage, "input_tokens"),
            output_tokens: count(usage, "output_tokens"),
            cache_read_tokens: count(usage, "cache_read_input_tokens"),
            cache_write_tokens: count(usage, "cache_creation_input_tokens"),
            ..Usage::default()
        });
    }
}

fn answered(block: &Value, builder: &mut Builder<'_>) {
    match text(block, "type") {
        "text" => {
            let words = builder.text(text(block, "text"));
            builder.part(Part::text(words));
        }
        "thinking" => builder.thinking(text(block, "thinking"), some_text(block, "signature")),
        "redacted_thinking" if builder.is_signed() => {
            let opaque = Opaque(json!({ "data": text(block, "data") }));
            builder.part(Part::RedactedThinking { opaque });
        }
        "tool_use" => {
            let arguments = block.get("input").cloned().unwrap_or_else(|| json!({}));
            builder.call(text(block, "id"), text(block, "name"), arguments);
        }
        other => builder.report.leave_out(&format!("blocks of type {other}")),
    }
}
