//! Whole messages of newer databases: table `session_message`, one row each, with its type beside it.

use mcode_events::message::Part;
use serde_json::{Value, json};

use super::tables::{ids, value};
use super::{file, model_of, usage};
use crate::foreign::builder::{Builder, Given};
use crate::foreign::database::Database;
use crate::foreign::value::{is_true, list, moment, some_text, text};
use crate::foreign::{ForeignError, Found};

pub(super) fn read(
    database: &Database,
    found: &Found,
    reverted: Option<&str>,
    builder: &mut Builder<'_>,
) -> Result<(), ForeignError> {
    let fault = |error: rusqlite::Error| database.fault(&error);
    for id in ids(database, "session_message", found).map_err(fault)? {
        if reverted.is_some_and(|from| id.as_str() >= from) {
            builder.report.leave_out("messages that were taken back");
            continue;
        }
        let sql = "SELECT json_object('type', type, 'data', json(data)) FROM session_message WHERE id = ?1";
        let Some(row) = value(database, sql, &id, builder).map_err(fault)? else { continue };
        let message = row.get("data").unwrap_or(&Value::Null);
        let at_ms = message.get("time").and_then(|time| moment(time.get("created")));
        match text(&row, "type") {
            "user" => user(message, at_ms, builder)?,
            "assistant" => assistant(&id, message, at_ms, builder)?,
            "shell" => shell(message, at_ms, builder),
            "compaction" => {
                builder.notice(at_ms, "info", "The conversation was compacted here.");
                let summary = builder.text(text(message, "summary"));
                builder.user(at_ms, vec![Part::text(summary)]);
            }
            "model-switched" | "agent-switched" => {}
            "synthetic" | "system" => builder.report.leave_out("words of the program itself"),
            other => builder.report.leave_out(&format!("messages of type {other}")),
        }
    }
    Ok(())
}

fn user(message: &Value, at_ms: Option<i64>, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let mut parts = vec![Part::text(builder.text(text(message, "text")))];
    for attached in list(message, "files") {
        parts.push(attachment(attached, builder)?);
    }
    builder.user(at_ms, parts);
    Ok(())
}

/// A file, whose address and name have had more than one field.
fn attachment(attached: &Value, builder: &mut Builder<'_>) -> Result<Part, ForeignError> {
    let url = some_text(attached, "uri").or(some_text(attached, "url")).unwrap_or_default();
    let name = some_text(attached, "name").or(some_text(attached, "filename")).unwrap_or("file");
    file(&json!({"url": url, "filename": name}), builder)
}

/// A command that the user ran: told as the user's words, as no model asked for it.
fn shell(message: &Value, at_ms: Option<i64>, builder: &mut Builder<'_>) {
    let words = format!("I ran this command:\n{}\n\n{}", text(message, "command"), text(message, "output"));
    let words = builder.text(&words);
    builder.user(at_ms, vec![Part::text(words)]);
}

fn assistant(id: &str, message: &Value, at_ms: Option<i64>, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    for part in list(message, "content") {
        let part_ms = part.get("time").and_then(|time| moment(time.get("created"))).or(at_ms);
        match text(part, "type") {
            "text" if is_true(part, "ignored") => builder.report.leave_out("words of the program itself"),
            "text" => {
                builder.answer(part_ms, Some(id), model_of(message));
                let words = builder.text(text(part, "text"));
                builder.part(Part::text(words));
            }
            "reasoning" => {
                builder.answer(part_ms, Some(id), model_of(message));
                let signature = part.pointer("/providerMetadata/anthropic/signature").and_then(Value::as_str);
                builder.thinking(text(part, "text"), signature);
            }
            "tool" => {
                builder.answer(part_ms, Some(id), model_of(message));
                tool(part, builder)?;
            }
            other => builder.report.leave_out(&format!("parts of type {other}")),
        }
    }
    if let Some(finish) = some_text(message, "finish") {
        builder.stop(finish);
    }
    if let Some(tokens) = message.get("tokens") {
        builder.usage(usage(tokens, message.get("cost")));
    }
    if let Some(error) = message.get("error").filter(|error| error.is_object()) {
        super::failed(error, at_ms, builder);
    }
    Ok(())
}

fn tool(part: &Value, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let state = part.get("state").unwrap_or(&Value::Null);
    let input = match state.get("input") {
        Some(Value::String(written)) => serde_json::from_str(written).unwrap_or_else(|_| json!(written)),
        Some(input) => input.clone(),
        None => json!({}),
    };
    let call_id = text(part, "id");
    builder.call(call_id, text(part, "name"), input);
    let failed = match text(state, "status") {
        "completed" => false,
        "error" => true,
        _ => return Ok(()),
    };
    let mut given = Given { failed, ..Given::default() };
    let mut words: Vec<&str> = Vec::new();
    for content in list(state, "content") {
        match text(content, "type") {
            "text" => words.push(text(content, "text")),
            "file" => given.media.push(attachment(content, builder)?),
            other => builder.report.leave_out(&format!("content of type {other}")),
        }
    }
    words.extend(state.get("error").and_then(|error| some_text(error, "message")));
    given.text = words.join("\n");
    let ended_ms = part.get("time").and_then(|time| moment(time.get("completed")));
    builder.result(ended_ms, call_id, given)
}
