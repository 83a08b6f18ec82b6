//! A thread as one JSON document, for scripts.
//!
//! ```json
//! {
//!   "format": "mcode-messages",
//!   "version": 1,
//!   "thread": {
//!     "thread_id": "thr_…", "title": "…", "project": "…", "cwd": "/…", "model": "provider/model",
//!     "created_at": "2026-01-01T00:00:00Z", "exported_at": "2026-01-02T00:00:00Z"
//!   },
//!   "messages": [
//!     {"role": "user", "seq": 7, "at": "…", "turn": 1, "parts": [{"type": "text", "text": "…"}]},
//!     {"role": "assistant", "seq": 9, "at": "…", "turn": 1, "model": "provider/model", "parts": [
//!       {"type": "thinking", "text": "…"},
//!       {"type": "text", "text": "…"},
//!       {"type": "media", "name": "…", "media_type": "image/png", "size_bytes": 1, "hash": "…"},
//!       {"type": "tool_call", "tool_call_id": "tc_…", "name": "shell", "arguments": {"command": "…"}}
//!     ]},
//!     {"role": "tool", "seq": 11, "at": "…", "turn": 1, "tool_call_id": "tc_…", "name": "shell", "status": "failed",
//!      "exit_code": 1, "diff": "…", "parts": [{"type": "text", "text": "…"}]},
//!     {"role": "rewound", "seq": 20, "at": "…", "turn": 1, "to_seq": 10}
//!   ],
//!   "usage": {
//!     "requests": 1, "input_tokens": 1, "output_tokens": 1, "cache_read_tokens": 0, "cache_write_tokens": 0,
//!     "reasoning_tokens": 0, "cost_usd": 0.01, "priced": true,
//!     "by_model": {"provider/model": {"requests": 1, "…": 0}}
//!   }
//! }
//! ```
//!
//! Messages stand in the order in which they were complete; one stands in one line. `seq` is the event that it is, which
//! rises. `turn` counts from 1 and is 0 before the first. `rewound` says that what stands before it and has a `seq` after
//! `to_seq` is not part of the conversation any more. `status` is `done`, `failed`, `denied`, `cancelled` or `interrupted`; `exit_code` and `diff` stand only
//! where there is one. `priced` says whether the price of every request was known. What only a provider understands is
//! left out. Fields may be added within a version; none is removed or gets another meaning.

use std::io::Write;

use mcode_env::Timestamp;
use mcode_events::message::Part;
use mcode_events::tool::{ResultPart, ToolResult};
use mcode_events::{BlobRef, Event, EventBody, Message, Role};
use serde_json::{Map, Value, json};

use crate::error::ExportError;
use crate::own::ThreadInfo;
use crate::own::write::each_event;
use crate::rendering::{Paid, Rendering, Tally};

/// What the document says it is.
const FORMAT: &str = "mcode-messages";

/// The version of its shape.
const VERSION: u32 = 1;

/// Writes a thread up to `info.last_seq` as one JSON document. Blocking; needs the memory of its largest event.
pub fn write_messages<E>(
    info: &ThreadInfo,
    events: impl Iterator<Item = Result<Event, E>>,
    rendering: Rendering,
    exported_at: Timestamp,
    out: &mut dyn Write,
) -> Result<(), ExportError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let thread = json!({
        "thread_id": info.thread_id.to_string(),
        "title": rendering.text(&info.title),
        "project": rendering.text(&info.project_name),
        "cwd": rendering.text(&info.cwd),
        "model": rendering.text(&info.model),
        "created_at": Timestamp::from_millis(info.created_at_ms).to_string(),
        "exported_at": exported_at.to_string(),
    });
    write!(out, "{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\"thread\":{thread},\"messages\":[")?;
    let mut writer = Messages { rendering, turn: 0, tally: Tally::default() };
    let mut between = "\n";
    each_event(info.last_seq, events, |event| {
        if let Some(message) = writer.event(event) {
            write!(out, "{between}{message}")?;
            between = ",\n";
        }
        Ok(())
    })?;
    write!(out, "\n],\"usage\":{}}}\n", usage(&writer.tally, rendering))?;
    Ok(out.flush()?)
}

struct Messages {
    rendering: Rendering,
    turn: u64,
    tally: Tally,
}

impl Messages {
    fn event(&mut self, event: &Event) -> Option<Value> {
        self.tally.add(&event.body);
        let mut message = self.content(event)?;
        // Behind the role.
        let mut fields = Map::new();
        fields.insert("role".to_owned(), message["role"].take());
        fields.insert("seq".to_owned(), json!(event.seq.get()));
        fields.insert("at".to_owned(), json!(Timestamp::from_millis(event.at_ms).to_string()));
        fields.insert("turn".to_owned(), json!(self.turn));
        if let Value::Object(rest) = message {
            fields.extend(rest.into_iter().filter(|(name, _)| name != "role"));
        }
        Some(Value::Object(fields))
    }

    fn content(&mut self, event: &Event) -> Option<Value> {
        match &event.body {
            EventBody::TurnStarted { .. } => {
                self.turn += 1;
                None
            }
            EventBody::MessageFinished { message } => Some(self.message(message)),
            EventBody::ToolCallFinished { name, result } => Some(self.result(name, result)),
            EventBody::Rewound { to_seq, .. } => Some(json!({"role": "rewound", "to_seq": to_seq.get()})),
            _ => None,
        }
    }

    fn message(&self, message: &Message) -> Value {
        let mut fields = Map::new();
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        fields.insert("role".to_owned(), json!(role));
        if let Some(origin) = &message.origin {
            let model = format!("{}/{}", origin.provider, origin.model);
            fields.insert("model".to_owned(), json!(self.rendering.text(&model)));
        }
        let parts: Vec<Value> = message.parts.iter().filter_map(|part| self.part(part)).collect();
        fields.insert("parts".to_owned(), json!(parts));
        Value::Object(fields)
    }

    fn part(&self, part: &Part) -> Option<Value> {
        match part {
            Part::Text { text, .. } => Some(self.text("text", text)),
            Part::Thinking { text, .. } if !text.is_empty() => Some(self.text("thinking", text)),
            Part::Media { blob, name } => Some(self.media(blob, name)),
            Part::ToolCall { tool_call_id, name, arguments, .. } => Some(json!({
                "type": "tool_call",
                "tool_call_id": tool_call_id.to_string(),
                "name": self.rendering.text(name),
                "arguments": self.rendering.value(arguments),
            })),
            Part::Thinking { .. } | Part::RedactedThinking { .. } | Part::Provider { .. } => None,
        }
    }

    fn result(&self, name: &str, result: &ToolResult) -> Value {
        let parts = result.content.iter().map(|part| match part {
            ResultPart::Text { text } => self.text("text", text),
            ResultPart::Media { blob, name } => self.media(blob, name),
        });
        let mut message = json!({
            "role": "tool",
            "tool_call_id": result.tool_call_id.to_string(),
            "name": self.rendering.text(name),
            "status": result.status.as_str(),
            "parts": parts.collect::<Vec<_>>(),
        });
        if let Some(exit) = result.exit_code {
            message["exit_code"] = json!(exit);
        }
        if let Some(diff) = &result.diff {
            message["diff"] = json!(self.rendering.text(diff));
        }
        message
    }

    fn text(&self, kind: &str, text: &str) -> Value {
        json!({"type": kind, "text": self.rendering.text(text)})
    }

    fn media(&self, blob: &BlobRef, name: &str) -> Value {
        json!({
            "type": "media",
            "name": self.rendering.text(name),
            "media_type": blob.media_type,
            "size_bytes": blob.size_bytes,
            "hash": blob.hash,
        })
    }
}

fn usage(tally: &Tally, rendering: Rendering) -> Value {
    let mut all = figures(&tally.sum());
    let by_model: Map<String, Value> =
        tally.0.iter().map(|(model, paid)| (rendering.text(model).into_owned(), figures(paid))).collect();
    all["by_model"] = Value::Object(by_model);
    all
}

fn figures(paid: &Paid) -> Value {
    json!({
        "requests": paid.requests,
        "input_tokens": paid.usage.input_tokens,
        "output_tokens": paid.usage.output_tokens,
        "cache_read_tokens": paid.usage.cache_read_tokens,
        "cache_write_tokens": paid.usage.cache_write_tokens,
        "reasoning_tokens": paid.usage.reasoning_tokens,
        "cost_usd": paid.usage.cost_usd,
        "priced": paid.priced,
    })
}
