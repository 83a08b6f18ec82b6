//! Mastra Code: a database with the tables `mastra_threads` and `mastra_messages`.
//!
//! A message's content is JSON: `{"format": 2, "parts": […]}`, its parts as the AI SDK has them (`text`, `reasoning`,
//! `tool-invocation`, `file`, `step-start`, and `data-…` of its own), in newer versions also `tool-<name>`. Older
//! messages are text alone. The thread's metadata say where it worked and which model it used.

use std::path::Path;

use mcode_events::message::Part;
use rusqlite::types::ValueRef;
use serde_json::{Value, json};

use super::builder::{Builder, Given};
use super::database::Database;
use super::media::data_of;
use super::model::Model;
use super::places::Places;
use super::value::{is_true, list, moment_of, some_text, text};
use super::{Discovery, FOUND_MAX, ForeignError, Found, Maker, title_of};

/// The most messages of a thread.
const MESSAGES_MAX: usize = 200_000;

const TABLES: [&str; 2] = ["mastra_threads", "mastra_messages"];

pub(crate) fn discover(places: &Places) -> Discovery {
    let mut discovery = Discovery::default();
    let path = &places.mastra_code;
    if !path.exists() {
        return discovery;
    }
    match listed(path) {
        Ok(found) => discovery.found = found,
        Err(error) => discovery.problems.push(error.to_string()),
    }
    discovery
}

fn listed(path: &Path) -> Result<Vec<Found>, ForeignError> {
    let database = Database::open(path, Maker::MastraCode, &TABLES)?;
    let read = || -> rusqlite::Result<Vec<Found>> {
        let mut statement = database.connection.prepare(
            "SELECT id, title, metadata, updatedAt,
                    (SELECT COUNT(*) FROM mastra_messages WHERE thread_id = mastra_threads.id) AS messages
             FROM mastra_threads ORDER BY updatedAt DESC LIMIT ?1",
        )?;
        let mut rows = statement.query([FOUND_MAX as i64 + 1])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let messages: i64 = row.get(4)?;
            if messages == 0 {
                continue;
            }
            let metadata = json_of(row.get_ref(2)?);
            found.push(Found {
                maker: Maker::MastraCode,
                id: row.get(0)?,
                title: title_of(&row.get::<_, Option<String>>(1)?.unwrap_or_default()),
                cwd: text(&metadata, "projectPath").to_owned(),
                updated_at_ms: time_of(row.get_ref(3)?).unwrap_or(0),
                messages: u64::try_from(messages).ok(),
                path: path.to_path_buf(),
            });
        }
        Ok(found)
    };
    let found = read().map_err(|error| database.fault(&error))?;
    database.was_at_rest().map(|()| found)
}

/// JSON of a column: as text, or as the bytes of a text.
fn json_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Text(text) | ValueRef::Blob(text) => serde_json::from_slice(text).unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

fn time_of(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Text(text) => moment_of(std::str::from_utf8(text).ok()?),
        ValueRef::Integer(number) => Some(number),
        _ => None,
    }
}

pub(crate) fn read(found: &Found, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
    let database = Database::open(&found.path, Maker::MastraCode, &TABLES)?;
    let fault = |error: rusqlite::Error| database.fault(&error);
    let sql = "SELECT title, metadata FROM mastra_threads WHERE id = ?1";
    let thread = database
        .connection
        .query_row(sql, [&found.id], |row| Ok((row.get::<_, Option<String>>(0)?, json_of(row.get_ref(1)?))));
    let (title, metadata) = match thread {
        Err(rusqlite::Error::QueryReturnedNoRows) => {
            return Err(ForeignError::Missing { id: found.id.clone(), path: found.path.clone() });
        }
        other => other.map_err(fault)?,
    };
    builder.title = title.map(|title| title_of(&title));
    if let Some(path) = some_text(&metadata, "projectPath") {
        path.clone_into(&mut builder.cwd);
    }
    let model = some_text(&metadata, "currentModelId").and_then(named);
    let mut statement = database
        .connection
        .prepare("SELECT id, role, content, createdAt FROM mastra_messages WHERE thread_id = ?1 ORDER BY createdAt, rowid LIMIT ?2")
        .map_err(fault)?;
    let mut rows = statement.query(rusqlite::params![found.id, MESSAGES_MAX as i64]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let id: String = row.get(0).map_err(fault)?;
        let role: Option<String> = row.get(1).map_err(fault)?;
        let at_ms = time_of(row.get_ref(3).map_err(fault)?);
        let written = match row.get_ref(2).map_err(fault)? {
            ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
            _ => {
                builder.report.damage(&format!("message {id}"), "it has no content");
                continue;
            }
        };
        // Older messages are their words.
        let content = serde_json::from_str(&written).ok().filter(|content: &Value| !content.is_number());
        let content = content.unwrap_or(Value::String(written));
        let message = Message { id: &id, at_ms, model: model.as_ref() };
        match role.as_deref().unwrap_or_default() {
            "user" => message.user(&content, builder)?,
            "assistant" => message.assistant(&content, builder)?,
            "tool" => message.results(&content, builder)?,
            other => builder.report.leave_out(&format!("messages of role {other}")),
        }
    }
    database.was_at_rest()
}

/// `provider/model`; what goes through Mastra's gateway begins with its name.
fn named(id: &str) -> Option<Model> {
    let (provider, model) = id.strip_prefix("mastra/").unwrap_or(id).split_once('/')?;
    Model::new(provider, model)
}

struct Message<'a> {
    id: &'a str,
    at_ms: Option<i64>,
    model: Option<&'a Model>,
}

impl Message<'_> {
    fn user(&self, content: &Value, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
        let mut said = Vec::new();
        if let Some(words) = content.as_str() {
            said.push(Part::text(builder.text(words)));
        }
        let parts = parts(content);
        for part in parts {
            match text(part, "type") {
                "text" if text(part, "text").trim_start().starts_with("<system-reminder") => {
                    builder.report.leave_out("words of the program itself");
                }
                "text" => said.push(Part::text(builder.text(text(part, "text")))),
                "file" | "image" => said.push(file(part, builder)?),
                other => builder.report.leave_out(&format!("parts of type {other}")),
            }
        }
        if parts.is_empty()
            && let Some(words) = some_text(content, "content")
        {
            said.push(Part::text(builder.text(words)));
        }
        for attached in list(content, "experimental_attachments") {
            said.push(file(attached, builder)?);
        }
        builder.user(self.at_ms, said);
        Ok(())
    }

    fn assistant(&self, content: &Value, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
        let metadata = content.get("metadata").unwrap_or(&Value::Null);
        let answered = some_text(metadata, "modelId").map(|model| match some_text(metadata, "provider") {
            Some(provider) => Model::new(provider, model),
            None => named(model),
        });
        let model = answered.flatten().or_else(|| self.model.cloned());
        let mut steps = 0;
        let begin = |steps: u32, builder: &mut Builder<'_>| {
            let key = format!("{}/{steps}", self.id);
            builder.answer(self.at_ms, Some(&key), model.clone());
        };
        if let Some(words) = content.as_str() {
            begin(steps, builder);
            let words = builder.text(words);
            builder.part(Part::text(words));
        }
        for part in parts(content) {
            match text(part, "type") {
                "step-start" => steps += 1,
                "text" => {
                    begin(steps, builder);
                    let words = builder.text(text(part, "text"));
                    builder.part(Part::text(words));
                }
                "reasoning" => {
                    begin(steps, builder);
                    reasoning(part, builder);
                }
                "tool-invocation" => {
                    begin(steps, builder);
                    let call = part.get("toolInvocation").unwrap_or(&Value::Null);
                    self.invocation(call, text(call, "toolName"), builder)?;
                }
                "dynamic-tool" => {
                    begin(steps, builder);
                    self.invocation(part, text(part, "toolName"), builder)?;
                }
                "tool-call" => {
                    begin(steps, builder);
                    builder.call(text(part, "toolCallId"), text(part, "toolName"), arguments(part));
                }
                kind if kind.starts_with("tool-") => {
                    begin(steps, builder);
                    self.invocation(part, kind.trim_start_matches("tool-"), builder)?;
                }
                "file" | "image" => {
                    begin(steps, builder);
                    builder.report.leave_out("pictures that a model made");
                }
                other => builder.report.leave_out(&format!("parts of type {other}")),
            }
        }
        Ok(())
    }

    /// Results of the oldest form: messages of their own.
    fn results(&self, content: &Value, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
        for part in parts(content) {
            match text(part, "type") {
                "tool-result" => {
                    let result = part.get("result").unwrap_or(&Value::Null);
                    let given = Given { failed: is_true(part, "isError"), text: words_of(result), ..Given::default() };
                    builder.result(self.at_ms, text(part, "toolCallId"), given)?;
                }
                other => builder.report.leave_out(&format!("parts of type {other}")),
            }
        }
        Ok(())
    }

    fn invocation(&self, call: &Value, name: &str, builder: &mut Builder<'_>) -> Result<(), ForeignError> {
        let call_id = text(call, "toolCallId");
        builder.call(call_id, name, arguments(call));
        let given = match text(call, "state") {
            "result" => {
                let result = call.get("result").unwrap_or(&Value::Null);
                Given { failed: is_true(result, "isError"), text: words_of(result), ..Given::default() }
            }
            "output-available" => {
                let output = call.get("output").unwrap_or(&Value::Null);
                Given { text: words_of(output), ..Given::default() }
            }
            "output-error" | "error" => {
                let told = some_text(call, "errorText").or(some_text(call, "error"));
                Given { failed: true, text: told.unwrap_or("The tool failed.").to_owned(), ..Given::default() }
            }
            _ => return Ok(()),
        };
        builder.result(self.at_ms, call_id, given)
    }
}

/// The parts of a content, whichever form it has.
fn parts(content: &Value) -> &[Value] {
    let parts = list(content, "parts");
    match content {
        Value::Array(parts) => parts,
        _ if parts.is_empty() => list(content, "content"),
        _ => parts,
    }
}

fn arguments(call: &Value) -> Value {
    call.get("args").or_else(|| call.get("input")).cloned().unwrap_or_else(|| json!({}))
}

/// A result as words.
fn words_of(result: &Value) -> String {
    match result {
        Value::Null => String::new(),
        Value::String(words) => words.clone(),
        Value::Object(_) => {
            match ["content", "output", "result", "error"].iter().find_map(|it| some_text(result, it)) {
                Some(words) => words.to_owned(),
                None => result.to_string(),
            }
        }
        other => other.to_string(),
    }
}

fn reasoning(part: &Value, builder: &mut Builder<'_>) {
    let details = list(part, "details");
    let of_provider = part.pointer("/providerMetadata/anthropic/signature").and_then(Value::as_str);
    let signature = details.iter().find_map(|detail| some_text(detail, "signature")).or(of_provider);
    let detailed: Vec<&str> = details.iter().map(|detail| text(detail, "text")).collect();
    let words =
        some_text(part, "reasoning").or(some_text(part, "text")).map_or_else(|| detailed.concat(), str::to_owned);
    builder.thinking(&words, signature);
}

fn file(part: &Value, builder: &mut Builder<'_>) -> Result<Part, ForeignError> {
    let name = some_text(part, "filename").or(some_text(part, "name")).unwrap_or("file");
    let given = ["data", "image", "url"].iter().find_map(|field| some_text(part, field)).unwrap_or_default();
    let data = data_of(given).unwrap_or(given);
    if data.contains("://") {
        return Ok(Part::text(format!("[{} was attached here]", title_of(name))));
    }
    Ok(builder.media(data, name)?)
}
