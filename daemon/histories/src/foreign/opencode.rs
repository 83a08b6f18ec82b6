//! opencode: a database `opencode.db`, before that files of JSON in `storage`.
//!
//! Both hold the same: a session, its messages, and the parts of each message (`text`, `reasoning`, `tool`, `file`,
//! `step-start`, `step-finish` and others). Newer databases hold whole messages in `session_message`. Ids rise with
//! time. What was reverted is still there, behind the message that the session names.

mod files;
mod messages;
mod tables;

use mcode_events::Usage;
use mcode_events::message::Part;
use serde_json::{Value, json};

use super::builder::{Builder, Given};
use super::media::data_of;
use super::model::Model;
use super::places::Places;
use super::value::{count, is_true, list, moment, some_text, text};
use super::{Discovery, ForeignError, Found};
use crate::own::COST_USD_MAX;

/// The most messages of a conversation.
const MESSAGES_MAX: usize = 200_000;

/// A message and its parts.
struct Whole {
    info: Value,
    parts: Vec<Value>,
}

pub(crate) fn discover(places: &Places) -> Discovery {
    let mut discovery = tables::discover(&places.opencode);
    let known: std::collections::HashSet<String> = discovery.found.iter().map(|found| found.id.clone()).collect();
    let mut older = files::discover(&places.opencode.join("storage"));
    // The files stay where they are when the database is made from them.
    discovery.found.extend(older.found.into_iter().filter(|found| !known.contains(&found.id)));
    discovery.problems.append(&mut older.problems);
    discovery
}

pub(crate) fn read(found: &Found, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    if found.path.is_dir() { files::read(found, builder) } else { tables::read(found, builder) }
}

/// Takes what a session says of itself; gives the message from which on all was reverted.
fn session(info: &Value, builder: &mut Builder<'_>) -> Option<String> {
    builder.title = some_text(info, "title").map(super::title_of);
    if let Some(directory) = some_text(info, "directory") {
        directory.clone_into(&mut builder.cwd);
    }
    info.get("revert").and_then(|revert| some_text(revert, "messageID")).map(str::to_owned)
}

fn message(id: &str, whole: &Whole, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let Whole { info, parts } = whole;
    let at_ms = info.get("time").and_then(|time| moment(time.get("created")));
    match text(info, "role") {
        "user" => {
            let mut said = Vec::new();
            for part in parts {
                said.extend(user_part(part, builder)?);
            }
            builder.user(at_ms, said);
        }
        "assistant" => answer(id, at_ms, info, parts, builder)?,
        other => builder.report.leave_out(&format!("messages of role {other}")),
    }
    Ok(())
}

fn user_part(part: &Value, builder: &mut Builder<'_>) -> Result<Option<Part>, ForeignError> {
    let said = match text(part, "type") {
        "text" if is_true(part, "synthetic") || is_true(part, "ignored") => {
            builder.report.leave_out("words of the program itself");
            None
        }
        "text" => Some(Part::text(builder.text(text(part, "text")))),
        "file" => Some(file(part, builder)?),
        // A name that stands in the text too, or the mark of a compaction that follows.
        "agent" | "compaction" => None,
        other => {
            builder.report.leave_out(&format!("parts of type {other}"));
            None
        }
    };
    Ok(said)
}

fn file(part: &Value, builder: &mut Builder<'_>) -> Result<Part, ForeignError> {
    let name = some_text(part, "filename").unwrap_or("file");
    Ok(match data_of(text(part, "url")) {
        Some(data) => builder.media(data, name)?,
        None => Part::text(format!("[{} was attached here]", super::title_of(name))),
    })
}

fn model_of(info: &Value) -> Option<Model> {
    let nested = info.get("model").unwrap_or(&Value::Null);
    let provider = some_text(info, "providerID").or(some_text(nested, "providerID"))?;
    let model = some_text(info, "modelID").or(some_text(nested, "modelID")).or(some_text(nested, "id"))?;
    Model::new(provider, model)
}

fn answer(
    id: &str,
    at_ms: Option<i64>,
    info: &Value,
    parts: &[Value],
    builder: &mut Builder<'_>,
) -> Result<(), ForeignError> {
    let mut steps = 0;
    let mut key = format!("{id}/{steps}");
    for part in parts {
        let time = part.get("time");
        let part_ms = time.and_then(|time| moment(time.get("start"))).or(at_ms);
        match text(part, "type") {
            "step-start" => {
                steps += 1;
                key = format!("{id}/{steps}");
            }
            "step-finish" => {
                builder.stop(text(part, "reason"));
                builder.usage(usage(part.get("tokens").unwrap_or(&Value::Null), part.get("cost")));
            }
            "text" if is_true(part, "ignored") => builder.report.leave_out("words of the program itself"),
            "text" => {
                builder.answer(part_ms, Some(&key), model_of(info));
                let words = builder.text(text(part, "text"));
                builder.part(Part::text(words));
            }
            "reasoning" => {
                builder.answer(part_ms, Some(&key), model_of(info));
                let signature = part.pointer("/metadata/anthropic/signature").and_then(Value::as_str);
                builder.thinking(text(part, "text"), signature);
            }
            "tool" => {
                builder.answer(part_ms, Some(&key), model_of(info));
                tool(part, builder)?;
            }
            "snapshot" | "patch" => {}
            other => builder.report.leave_out(&format!("parts of type {other}")),
        }
    }
    // Versions without marks of steps say it of the whole.
    if steps == 0 && info.get("tokens").is_some() {
        builder.usage(usage(info.get("tokens").unwrap_or(&Value::Null), info.get("cost")));
    }
    if let Some(error) = info.get("error").filter(|error| error.is_object()) {
        failed(error, at_ms, builder);
    }
    Ok(())
}

fn failed(error: &Value, at_ms: Option<i64>, builder: &mut Builder<'_>) {
    let message = error.pointer("/data/message").and_then(Value::as_str).unwrap_or(text(error, "message"));
    if text(error, "name") != "MessageAbortedError" {
        builder.notice(at_ms, "warning", if message.is_empty() { "The request failed." } else { message });
    }
    builder.interrupted();
}

fn tool(part: &Value, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let state = part.get("state").unwrap_or(&Value::Null);
    let call_id = text(part, "callID");
    let input = state.get("input").cloned().unwrap_or_else(|| json!({}));
    builder.call(call_id, text(part, "tool"), input);
    let ended_ms = state.get("time").and_then(|time| moment(time.get("end")));
    let mut given = match text(state, "status") {
        "completed" => Given { text: text(state, "output").to_owned(), ..Given::default() },
        "error" => Given { failed: true, text: text(state, "error").to_owned(), ..Given::default() },
        _ => return Ok(()),
    };
    given.exit_code = state.pointer("/metadata/exit").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
    given.diff = state.pointer("/metadata/diff").and_then(Value::as_str).map(str::to_owned);
    for attachment in list(state, "attachments") {
        given.media.push(file(attachment, builder)?);
    }
    builder.result(ended_ms, call_id, given)
}

fn usage(tokens: &Value, cost: Option<&Value>) -> Usage {
    let cache = tokens.get("cache").unwrap_or(&Value::Null);
    let cost_usd = cost.and_then(Value::as_f64).filter(|cost| (0.0..=COST_USD_MAX).contains(cost)).unwrap_or(0.0);
    Usage {
        input_tokens: count(tokens, "input"),
        // Reasoning is counted beside the output there and is part of it here.
        output_tokens: count(tokens, "output").saturating_add(count(tokens, "reasoning")),
        cache_read_tokens: count(cache, "read"),
        cache_write_tokens: count(cache, "write"),
        reasoning_tokens: count(tokens, "reasoning"),
        cost_usd,
    }
}
