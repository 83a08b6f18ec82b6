//! A thread as Markdown, for people to read.
//!
//! Headings name turns and who speaks; thinking and diffs are folded; calls stand with their arguments, results are cut
//! to what is read. At the end stands what it took. What models, tools and people wrote can not reach out of its place
//! (see [`prose`]), and nothing in the file is loaded from anywhere.

mod prose;

use std::collections::HashMap;
use std::io::Write;

use mcode_env::Timestamp;
use mcode_events::event::ApprovalOutcome;
use mcode_events::message::Part;
use mcode_events::tool::{ResultPart, ToolCall, ToolCallStatus, ToolResult};
use mcode_events::{BlobRef, Event, EventBody, Message, Role, RunError, RunStatus};
use mcode_ids::ToolCallId;
use mcode_text::{sanitize, truncate_middle};
use serde_json::Value;

use self::prose::{code, fence, prose, within};
use crate::error::ExportError;
use crate::own::ThreadInfo;
use crate::own::write::each_event;
use crate::rendering::{Paid, Rendering, Tally};

/// Bytes of a result that are shown.
const RESULT_BYTES: usize = 16 * 1024;

/// Bytes of one argument that are shown.
const ARGUMENT_BYTES: usize = 16 * 1024;

/// Bytes of a diff that are shown.
const DIFF_BYTES: usize = 64 * 1024;

/// The longest argument that stands in its line, in bytes.
const IN_LINE_BYTES: usize = 120;

/// Writes a thread up to `info.last_seq` as Markdown. Blocking; needs the memory of its largest event.
pub fn write_markdown<E>(
    info: &ThreadInfo,
    events: impl Iterator<Item = Result<Event, E>>,
    rendering: Rendering,
    exported_at: Timestamp,
    out: &mut dyn Write,
) -> Result<(), ExportError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut page = Page { rendering, turn: 0, calls: HashMap::new(), called: 0, tally: Tally::default() };
    out.write_all(page.top(info, exported_at).as_bytes())?;
    each_event(info.last_seq, events, |event| {
        let mut text = String::new();
        page.event(event, &mut text);
        Ok(out.write_all(text.as_bytes())?)
    })?;
    out.write_all(page.bottom().as_bytes())?;
    Ok(out.flush()?)
}

struct Page {
    rendering: Rendering,
    turn: u64,
    /// Calls that run, by their number on the page.
    calls: HashMap<ToolCallId, u64>,
    called: u64,
    tally: Tally,
}

impl Page {
    fn top(&self, info: &ThreadInfo, exported_at: Timestamp) -> String {
        let clean = |text: &str| self.rendering.text(text).into_owned();
        let title = if info.title.trim().is_empty() { "A thread without a title" } else { &info.title };
        let mut text = format!("# {}\n\n", within(&clean(title)));
        for (name, value) in [
            ("Thread", info.thread_id.to_string()),
            ("Project", clean(&info.project_name)),
            ("Folder", clean(&info.cwd)),
            ("Model", clean(&info.model)),
            ("Begun", Timestamp::from_millis(info.created_at_ms).to_string()),
            ("Exported", exported_at.to_string()),
        ] {
            text.push_str(&format!("- {name}: {}\n", code(&value)));
        }
        text.push('\n');
        text
    }

    fn event(&mut self, event: &Event, text: &mut String) {
        let at = Timestamp::from_millis(event.at_ms);
        self.tally.add(&event.body);
        match &event.body {
            EventBody::TurnStarted { .. } => {
                self.turn += 1;
                text.push_str(&format!("## Turn {}\n\n", self.turn));
            }
            EventBody::MessageFinished { message } => self.message(message, at, text),
            EventBody::MessageDiscarded { text: said, status, .. } if !said.trim().is_empty() => {
                text.push_str(&format!("### Assistant, cut off ({}) · {at}\n\n", status.as_str()));
                prose(&self.rendering.text(said), text);
            }
            EventBody::ToolCallStarted { call, .. } => self.call(call, text),
            EventBody::ToolCallFinished { name, result } => self.result(name, result, text),
            EventBody::ApprovalResolved { outcome, by, reason, .. } if *outcome != ApprovalOutcome::Allowed => {
                let why = if reason.trim().is_empty() { String::new() } else { format!(": {}", self.line(reason)) };
                text.push_str(&format!(
                    "Approval: {}, by {}{why}\n\n",
                    outcome.as_str().replace('_', " "),
                    self.line(by)
                ));
            }
            EventBody::ThreadForked { parent_id, .. } => {
                text.push_str(&format!("Forked here from {}.\n\n", code(&parent_id.to_string())));
            }
            EventBody::Rewound { to_seq, .. } => {
                let said = "The thread went back: what was said after event";
                text.push_str(&format!("{said} {to_seq} is not given to the model any more.\n\n"));
            }
            EventBody::Notice { level, text: said } => {
                text.push_str(&format!("Notice ({}):\n\n", self.line(level)));
                prose(&self.rendering.text(said), text);
            }
            EventBody::Opaque { .. } => {
                if let Some(what) = event.body.damage() {
                    text.push_str(&format!("(event {} cannot be read: {})\n\n", event.seq, self.line(&what)));
                }
            }
            EventBody::RunFinished { status, error, .. } => self.end(*status, error.as_ref(), text),
            _ => {}
        }
    }

    fn line(&self, text: &str) -> String {
        within(&self.rendering.text(text))
    }

    fn message(&self, message: &Message, at: Timestamp, text: &mut String) {
        match message.role {
            Role::User => text.push_str(&format!("### User · {at}\n\n")),
            Role::Assistant => {
                let by = message.origin.as_ref().map(|origin| format!("{}/{}", origin.provider, origin.model));
                let by = by.map(|by| format!(" · {}", code(&self.rendering.text(&by)))).unwrap_or_default();
                text.push_str(&format!("### Assistant{by} · {at}\n\n"));
            }
        }
        for part in &message.parts {
            match part {
                Part::Text { text: said, .. } => prose(&self.rendering.text(said), text),
                Part::Thinking { text: thought, .. } if !thought.trim().is_empty() => {
                    text.push_str("<details><summary>Thinking</summary>\n\n");
                    prose(&self.rendering.text(thought), text);
                    text.push_str("</details>\n\n");
                }
                Part::RedactedThinking { .. } => text.push_str("(thinking that its provider encrypted)\n\n"),
                Part::Media { blob, name } => self.media(blob, name, text),
                Part::Provider { .. } => text.push_str("(a step of a tool of its provider)\n\n"),
                // Calls stand where they begin, with the arguments that were run.
                Part::Thinking { .. } | Part::ToolCall { .. } => {}
            }
        }
    }

    fn media(&self, blob: &BlobRef, name: &str, text: &mut String) {
        let (name, kind) = (self.rendering.text(name), code(&blob.media_type));
        text.push_str(&format!("Attached: {} ({kind}, {} bytes)\n\n", code(&name), blob.size_bytes));
    }

    fn call(&mut self, call: &ToolCall, text: &mut String) {
        self.called += 1;
        self.calls.insert(call.tool_call_id, self.called);
        text.push_str(&format!("#### Call {}: {}\n\n", self.called, code(&self.rendering.text(&call.name))));
        match self.rendering.value(&call.arguments) {
            Value::Object(fields) => {
                for (name, value) in &fields {
                    argument(name, value, text);
                }
            }
            other => argument("arguments", &other, text),
        }
        text.push('\n');
    }

    fn result(&mut self, name: &str, result: &ToolResult, text: &mut String) {
        let number = self.calls.remove(&result.tool_call_id).map_or_else(String::new, |number| format!(" {number}"));
        let mut told = format!("#### Result of call{number}: {}", code(&self.rendering.text(name)));
        if result.status != ToolCallStatus::Done {
            told.push_str(&format!(", {}", result.status.as_str()));
        }
        if let Some(exit) = result.exit_code.filter(|exit| *exit != 0) {
            told.push_str(&format!(", exit code {exit}"));
        }
        text.push_str(&format!("{told}\n\n"));
        let words = result.joined_text();
        if !words.trim().is_empty() {
            self.block(&words, "text", RESULT_BYTES, text);
        }
        for part in &result.content {
            if let ResultPart::Media { blob, name } = part {
                self.media(blob, name, text);
            }
        }
        if let Some(diff) = result.diff.as_deref().filter(|diff| !diff.trim().is_empty()) {
            text.push_str("<details><summary>Diff</summary>\n\n");
            self.block(diff, "diff", DIFF_BYTES, text);
            text.push_str("</details>\n\n");
        }
    }

    fn block(&self, words: &str, language: &str, most: usize, text: &mut String) {
        // Before it is cut: half a key is one too.
        let clean = self.rendering.text(words);
        fence(&truncate_middle(&sanitize(&clean), most), language, text);
    }

    fn end(&self, status: RunStatus, error: Option<&RunError>, text: &mut String) {
        match error {
            Some(error) => {
                text.push_str(&format!("**The run ended: {}.**\n\n", status.as_str()));
                prose(&self.rendering.text(&error.message), text);
            }
            None if status == RunStatus::Done => {}
            None => text.push_str(&format!("**The run ended: {}.**\n\n", status.as_str())),
        }
    }

    fn bottom(&self) -> String {
        let mut text = "## Usage\n\n".to_owned();
        if self.tally.0.is_empty() {
            text.push_str("No request to a model is on record.\n");
        }
        for (model, paid) in &self.tally.0 {
            text.push_str(&format!("- {}: {}\n", code(&self.rendering.text(model)), figures(paid)));
        }
        if self.tally.0.len() > 1 {
            text.push_str(&format!("- all: {}\n", figures(&self.tally.sum())));
        }
        text
    }
}

fn argument(name: &str, value: &Value, text: &mut String) {
    let (words, language) = match value {
        Value::String(words) => (words.clone(), "text"),
        other => (other.to_string(), "json"),
    };
    if words.len() <= IN_LINE_BYTES && !words.contains('\n') {
        text.push_str(&format!("- {}: {}\n", code(name), code(&words)));
    } else {
        text.push_str(&format!("- {}:\n", code(name)));
        fence(&truncate_middle(&sanitize(&words), ARGUMENT_BYTES), language, text);
    }
}

fn figures(paid: &Paid) -> String {
    let Paid { requests, usage, priced } = paid;
    let cost = if *priced {
        format!("${:.4}", usage.cost_usd)
    } else {
        format!("${:.4}, prices not known for all", usage.cost_usd)
    };
    let requests = if *requests == 1 { "1 request".to_owned() } else { format!("{requests} requests") };
    format!(
        "{requests}, {} tokens in, {} read from the cache, {} written to it, {} out, {cost}",
        usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens
    )
}
