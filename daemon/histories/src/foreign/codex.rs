//! Codex: `sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, and `archived_sessions`.
//!
//! A line is `{timestamp, type, payload}`: `session_meta`, `turn_context` (which model from here on), `response_item`
//! (what went to and came from the model, as the Responses API has it) and `event_msg` (what was shown). Older files
//! have the items themselves as lines; still older ones are one JSON document with `items`. The model's reasoning is
//! encrypted for an account that no file names: what can be read of it is kept, the rest is left out.

use std::collections::HashMap;
use std::path::Path;

use mcode_events::Usage;
use mcode_events::message::Part;
use serde_json::{Value, json};

use super::builder::{Builder, Given};
use super::json_lines::{JsonLines, Line, head, json_file};
use super::media::data_of;
use super::model::Model;
use super::places::{Places, changed_ms, files_below};
use super::value::{count, list, moment, some_text, text};
use super::{Discovery, FOUND_MAX, ForeignError, Found, Maker, title_of};

/// Bytes of each file that are looked at for a list. Its first line holds the instructions.
const HEAD_BYTES: u64 = 128 * 1024;

/// Bytes of the list of names.
const NAMES_BYTES: u64 = 8 * 1024 * 1024;

/// The largest document of the oldest form, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most files that are looked at.
const FILES_MAX: usize = 100_000;

/// Characters of an id.
const ID_LENGTH: usize = 36;

/// Texts that the program itself puts in as the user's.
const OWN_MARKS: [&str; 9] = [
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<skills_instructions>",
    "<skill>",
    "<user_shell_command>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
];

/// What was shown, and stands among the items too or is of no use any more.
const SHOWN: [&str; 22] = [
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "task_started",
    "turn_started",
    "task_complete",
    "turn_complete",
    "patch_apply_begin",
    "patch_apply_end",
    "exec_command_begin",
    "exec_command_end",
    "mcp_tool_call_begin",
    "mcp_tool_call_end",
    "web_search_begin",
    "web_search_end",
    "view_image_tool_call",
    "context_compacted",
    "item_completed",
    "turn_diff",
    "plan_update",
];

pub(crate) fn discover(places: &Places) -> Discovery {
    let mut discovery = Discovery::default();
    let names = names(&places.codex.join("session_index.jsonl"));
    let wanted = |name: &str| name.starts_with("rollout-") && (name.ends_with(".jsonl") || name.ends_with(".json"));
    let mut files = Vec::new();
    for folder in ["sessions", "archived_sessions"] {
        files.extend(files_below(&places.codex.join(folder), 3, FILES_MAX, &wanted, &mut discovery.problems));
    }
    let mut files: Vec<_> = files.into_iter().map(|path| (changed_ms(&path), path)).collect();
    files.sort_by(|one, other| other.cmp(one));
    for (updated_at_ms, path) in files.into_iter().take(FOUND_MAX) {
        match looked_at(&path, updated_at_ms, &names) {
            Ok(found) => discovery.found.extend(found),
            Err(error) => discovery.problems.push(error.to_string()),
        }
    }
    discovery
}

/// What conversations are called, by id; the last name counts.
fn names(path: &Path) -> HashMap<String, String> {
    let content = head(path, NAMES_BYTES).map(|(content, _)| content).unwrap_or_default();
    let lines = content.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    lines.filter_map(|line| Some((some_text(&line, "id")?.to_owned(), title_of(text(&line, "thread_name"))))).collect()
}

fn looked_at(path: &Path, updated_at_ms: i64, names: &HashMap<String, String>) -> Result<Option<Found>, ForeignError> {
    let (content, whole) = head(path, HEAD_BYTES)?;
    let (mut cwd, mut words, mut messages) = (String::new(), String::new(), 0u64);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let id = stem.get(stem.len().saturating_sub(ID_LENGTH)..).unwrap_or(&stem).to_owned();
    for line in content.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        let payload = line.get("payload").unwrap_or(&line);
        if text(&line, "type") == "session_meta" {
            if payload.get("source").is_some_and(is_subagent) {
                return Ok(None);
            }
            if cwd.is_empty() {
                text(payload, "cwd").clone_into(&mut cwd);
            }
        }
        if text(payload, "type") != "message" {
            continue;
        }
        messages += 1;
        if words.is_empty() && text(payload, "role") == "user" {
            let said = list(payload, "content").iter().map(|item| text(item, "text"));
            words = said.filter(|said| !is_own(said)).map(title_of).find(|title| !title.is_empty()).unwrap_or_default();
        }
    }
    let title = names.get(&id).filter(|name| !name.is_empty()).cloned().unwrap_or(words);
    let messages = (whole && stem.len() > ID_LENGTH && messages > 0).then_some(messages);
    Ok(Some(Found { maker: Maker::Codex, id, title, cwd, updated_at_ms, messages, path: path.to_path_buf() }))
}

fn is_subagent(source: &Value) -> bool {
    source.get("subagent").is_some() || source.get("sub_agent").is_some() || source.get("internal").is_some()
}

fn is_own(words: &str) -> bool {
    let words = words.trim_start();
    OWN_MARKS.iter().any(|mark| words.starts_with(mark))
}

/// What holds from a line on.
#[derive(Default)]
struct Context {
    provider: Option<String>,
    model: Option<String>,
    begun: bool,
}

impl Context {
    fn model(&self) -> Option<Model> {
        Model::new(self.provider.as_deref().unwrap_or("openai"), self.model.as_deref()?)
    }
}

pub(crate) fn read(found: &Found, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let mut context = Context::default();
    if found.path.extension().is_some_and(|extension| extension == "json") {
        return document(found, &mut context, builder);
    }
    let mut lines = JsonLines::open(&found.path)?;
    while let Some((spot, line)) = lines.next()? {
        let line = match line {
            Line::Wrong(why) => Err(why.to_owned()),
            Line::Whole(line) => serde_json::from_slice::<Value>(line).map_err(|error| error.to_string()),
        };
        match line {
            Ok(line) => take(&line, &mut context, builder)?,
            Err(why) => builder.report.damage(&format!("line {}", spot.line), &why),
        }
    }
    Ok(())
}

fn document(found: &Found, context: &mut Context, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    match json_file(&found.path, DOCUMENT_BYTES_MAX) {
        Ok(document) => {
            let at_ms = document.get("session").and_then(|session| moment(session.get("timestamp")));
            list(&document, "items").iter().try_for_each(|line| item(line, at_ms, context, builder))
        }
        Err(why) => {
            builder.report.damage("the file", &why);
            Ok(())
        }
    }
}

fn take(line: &Value, context: &mut Context, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let at_ms = moment(line.get("timestamp"));
    let Some(payload) = line.get("payload") else {
        // Before lines had a payload, the first was the head and the others the items.
        if line.get("record_type").is_some() {
            return Ok(());
        }
        return if line.get("type").is_some() {
            item(line, at_ms, context, builder)
        } else {
            head_of(line, context, builder)
        };
    };
    match text(line, "type") {
        "session_meta" => head_of(payload, context, builder),
        "turn_context" => {
            context.model = some_text(payload, "model").map(str::to_owned).or(context.model.take());
            Ok(())
        }
        "response_item" => item(payload, at_ms, context, builder),
        "event_msg" => {
            shown(payload, at_ms, builder);
            Ok(())
        }
        "compacted" => {
            builder.notice(at_ms, "info", "The conversation was compacted here.");
            if let Some(summary) = some_text(payload, "message") {
                let summary = builder.text(summary);
                builder.user(at_ms, vec![Part::text(summary)]);
            }
            Ok(())
        }
        other => {
            builder.report.leave_out(&format!("lines of type {other}"));
            Ok(())
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the arms that call it have to be alike")]
fn head_of(meta: &Value, context: &mut Context, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    // A fork has the heads of those it was made from too.
    if !std::mem::replace(&mut context.begun, true) {
        context.provider = some_text(meta, "model_provider").map(str::to_owned);
        if let Some(cwd) = some_text(meta, "cwd") {
            cwd.clone_into(&mut builder.cwd);
        }
        builder.begins(moment(meta.get("timestamp")));
    }
    Ok(())
}

fn item(item: &Value, at_ms: Option<i64>, context: &Context, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let call_id = some_text(item, "call_id").or(some_text(item, "id")).unwrap_or_default();
    match text(item, "type") {
        "message" => return message(item, at_ms, context, builder),
        "reasoning" => reasoning(item, at_ms, context, builder),
        "function_call" => {
            builder.answer(at_ms, None, context.model());
            let written = text(item, "arguments");
            let arguments = serde_json::from_str(written).unwrap_or_else(|_| json!(written));
            builder.call(call_id, text(item, "name"), arguments);
        }
        "custom_tool_call" => {
            builder.answer(at_ms, None, context.model());
            builder.call(call_id, text(item, "name"), json!({"input": text(item, "input")}));
        }
        "local_shell_call" => {
            builder.answer(at_ms, None, context.model());
            builder.call(call_id, "local_shell", item.get("action").cloned().unwrap_or_else(|| json!({})));
        }
        "function_call_output" | "custom_tool_call_output" => {
            let given = given(item.get("output").unwrap_or(&Value::Null), builder)?;
            builder.result(at_ms, call_id, given)?;
        }
        other => builder.report.leave_out(&format!("items of type {other}")),
    }
    Ok(())
}

fn message(item: &Value, at_ms: Option<i64>, context: &Context, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let role = text(item, "role");
    if role == "assistant" {
        builder.answer(at_ms, None, context.model());
    } else if role != "user" {
        builder.report.leave_out("words of the program itself");
        return Ok(());
    }
    let mut parts = Vec::new();
    for content in list(item, "content") {
        match text(content, "type") {
            "input_text" | "output_text" | "text" => {
                let words = text(content, "text");
                if role == "user" && words.trim_start().starts_with("<turn_aborted>") {
                    builder.interrupted();
                } else if role == "user" && is_own(words) {
                    builder.report.leave_out("words of the program itself");
                } else {
                    let words = builder.text(words);
                    parts.push(Part::text(words));
                }
            }
            "input_image" => parts.push(image(content, builder)?),
            other => builder.report.leave_out(&format!("content of type {other}")),
        }
    }
    if role == "user" {
        builder.user(at_ms, parts);
    } else {
        parts.into_iter().for_each(|part| builder.part(part));
    }
    Ok(())
}

fn image(content: &Value, builder: &mut Builder<'_>) -> Result<Part, ForeignError> {
    Ok(builder.media(data_of(text(content, "image_url")).unwrap_or_default(), "picture")?)
}

fn reasoning(item: &Value, at_ms: Option<i64>, context: &Context, builder: &mut Builder<'_>) {
    let of = |field| list(item, field).iter().map(|part| text(part, "text")).filter(|text| !text.is_empty());
    let words: Vec<&str> = of("content").collect();
    let words = if words.is_empty() { of("summary").collect() } else { words };
    builder.answer(at_ms, None, context.model());
    builder.thinking(&words.join("\n\n"), None);
    if some_text(item, "encrypted_content").is_some() {
        builder.report.leave_out("encrypted reasoning");
    }
}

fn given(output: &Value, builder: &mut Builder<'_>) -> Result<Given, ForeignError> {
    let mut given = Given::default();
    match output {
        Value::String(words) => told(words, &mut given),
        Value::Array(items) => {
            for item in items {
                match text(item, "type") {
                    "input_text" if given.text.is_empty() => text(item, "text").clone_into(&mut given.text),
                    "input_text" => given.text.push_str(&format!("\n{}", text(item, "text"))),
                    "input_image" => given.media.push(image(item, builder)?),
                    other => builder.report.leave_out(&format!("content of type {other}")),
                }
            }
        }
        Value::Object(_) => {
            told(text(output, "content"), &mut given);
            given.failed |= output.get("success") == Some(&Value::Bool(false));
        }
        _ => {}
    }
    Ok(given)
}

/// What a command gave: in JSON with its exit code, or with a head of lines that say it.
fn told(words: &str, given: &mut Given) {
    let exit = |given: &mut Given, code: i64| {
        given.exit_code = i32::try_from(code).ok();
        given.failed = code != 0;
    };
    let document = serde_json::from_str::<Value>(words).ok();
    if let Some(document) = document.filter(|document| document.get("metadata").is_some()) {
        text(&document, "output").clone_into(&mut given.text);
        if let Some(code) = document.pointer("/metadata/exit_code").and_then(Value::as_i64) {
            exit(given, code);
        }
        return;
    }
    words.clone_into(&mut given.text);
    let code = |line: &str| {
        let code = line.strip_prefix("Exit code: ").or_else(|| line.strip_prefix("Process exited with code "))?;
        code.trim().parse().ok()
    };
    if let Some(code) = words.lines().take(6).take_while(|line| *line != "Output:").find_map(code) {
        exit(given, code);
    }
}

fn shown(event: &Value, at_ms: Option<i64>, builder: &mut Builder<'_>) {
    match text(event, "type") {
        "turn_aborted" => builder.interrupted(),
        "thread_rolled_back" => builder.roll_back(count(event, "num_turns")),
        "error" | "warning" | "stream_error" => builder.notice(at_ms, "warning", text(event, "message")),
        "thread_name_updated" => {
            let name = some_text(event, "thread_name").or(some_text(event, "name"));
            builder.title = name.map(title_of).or(builder.title.take());
        }
        "token_count" => {
            if let Some(last) = event.pointer("/info/last_token_usage").filter(|usage| usage.is_object()) {
                let cached = count(last, "cached_input_tokens");
                builder.usage(Usage {
                    input_tokens: count(last, "input_tokens").saturating_sub(cached),
                    output_tokens: count(last, "output_tokens"),
                    cache_read_tokens: cached,
                    reasoning_tokens: count(last, "reasoning_output_tokens"),
                    ..Usage::default()
                });
            }
        }
        kind if SHOWN.contains(&kind) => {}
        kind => builder.report.leave_out(&format!("events of type {kind}")),
    }
}
