//! What a run does, on stderr while it does it: a line for each tool call, the words between them, and on terminals a
//! status line.

use std::collections::BTreeMap;
use std::time::Duration;

use mcode_client::json::value_json;
use mcode_client::v1;
use mcode_client::v1::event::Body;
use mcode_text::{sanitize, sanitize_line, truncate_width};
use serde_json::Value;
use tokio::time::Instant;

use crate::live::Tail;
use crate::output::{stderr_line, stderr_text};
use crate::style::Style;
use crate::terminal;

/// How often the status line is drawn anew.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// Most cells of the status line.
const STATUS_CELLS: usize = 78;

/// Shortest time between two drawings while words come in.
const DRAW_PAUSE: Duration = Duration::from_millis(50);

/// Cells of the part of a line that shows arguments or results.
const DETAIL_CELLS: usize = 100;

/// Arguments that say what a call is about, in the order of preference.
const TELLING: [&str; 8] = ["command", "path", "pattern", "query", "url", "question", "action", "name"];

/// The activity of one run.
#[derive(Debug)]
pub(crate) struct Activity {
    style: Style,
    verbose: bool,
    started: Instant,
    status: String,
    // Rows above the status line, while that is shown.
    drawn: Option<usize>,
    drawn_at: Instant,
    tail: Tail,
    // Words that may turn out to be the final answer, which does not belong here.
    held: String,
    calls: BTreeMap<String, String>,
}

impl Activity {
    pub(crate) fn new(style: Style, verbose: bool) -> Self {
        let started = Instant::now();
        Self {
            style,
            verbose,
            started,
            status: "starting".to_owned(),
            drawn: None,
            drawn_at: started,
            tail: Tail::default(),
            held: String::new(),
            calls: BTreeMap::new(),
        }
    }

    /// Whether there is a status line to keep alive.
    pub(crate) fn is_live(&self) -> bool {
        self.style.live
    }

    /// Shows an event of the run.
    pub(crate) fn event(&mut self, event: &v1::Event) {
        match &event.body {
            Some(Body::RunStarted(run)) if self.verbose && !run.key_source.is_empty() => {
                self.note(&format!("{}, key: {}", run.model, run.key_source));
            }
            Some(Body::StepStarted(step)) => self.status(&format!("{} is thinking", sanitize_line(&step.model))),
            Some(Body::MessageFinished(message)) if message.role == "assistant" => {
                self.release();
                self.held.clone_from(&message.text);
            }
            Some(Body::MessageDiscarded(message)) => self.cut_off(message),
            Some(Body::ToolCallStarted(call)) => self.call_started(call),
            Some(Body::ToolCallFinished(end)) => self.call_finished(end),
            Some(Body::ApprovalRequested(_)) => self.status("waiting for an approval"),
            Some(Body::QuestionAsked(_)) => self.status("waiting for an answer"),
            Some(Body::ModelChanged(change)) => self.note(&format!("goes on with {}", change.model)),
            Some(Body::Notice(notice)) => {
                let text = sanitize_line(&notice.text).into_owned();
                match notice.level.as_str() {
                    "error" => self.line(&self.style.red(&text)),
                    "warning" => self.line(&self.style.yellow(&text)),
                    _ => self.line(&self.style.dim(&text)),
                }
            }
            // The figures of a scripted model mean nothing.
            Some(Body::UsageRecorded(record)) if self.verbose && !record.model.starts_with("demo/") => {
                if let Some(usage) = &record.usage {
                    let cached = usage.cache_read_tokens;
                    self.note(&format!(
                        "{}: {} tokens in ({cached} more from the cache), {} out{}",
                        record.model,
                        usage.input_tokens,
                        usage.output_tokens,
                        crate::verbs::runs::price(usage)
                    ));
                }
            }
            _ => {}
        }
    }

    /// Shows a live update.
    pub(crate) fn frame(&mut self, frame: &v1::Frame) {
        match &frame.body {
            Some(v1::frame::Body::TextDelta(delta)) => {
                self.release();
                self.status("writing");
                self.tail.push(&delta.item_id, &delta.text);
            }
            Some(v1::frame::Body::ThinkingDelta(_)) => self.status("thinking"),
            Some(v1::frame::Body::ToolOutputDelta(delta)) => {
                if let Some(line) = delta.text.lines().rev().find(|line| !line.trim().is_empty()) {
                    let call = self.calls.get(&delta.item_id).cloned().unwrap_or_default();
                    self.status(&format!("{call}: {}", sanitize_line(line)));
                }
            }
            // Why is told by the event that follows, or was told by a notice.
            Some(v1::frame::Body::ItemReset(_)) | None => {}
        }
    }

    /// Words that will not be finished: all of them are shown, since no answer follows that holds them.
    fn cut_off(&mut self, message: &v1::MessageDiscarded) {
        self.release();
        let seen = self.tail.take(&message.item_id);
        // An attempt that is made anew keeps no words.
        if message.text.trim().is_empty() && message.status == "failed" {
            return;
        }
        // What was seen live may be more than what was recorded.
        let text = if seen.len() > message.text.len() { &seen } else { &message.text };
        if !text.trim().is_empty() {
            let text = format!("{} {}", sanitize(text.trim()), self.style.dim("(cut off)"));
            self.line(&text);
        }
    }

    fn call_started(&mut self, call: &v1::ToolCallStarted) {
        self.release();
        let detail = call.arguments.as_ref().map(value_json).map(|value| telling(&value)).unwrap_or_default();
        let title = cut(&format!("{} {detail}", call.name));
        // Where a status line shows what runs, the line of its end is enough.
        if !self.style.live {
            self.line(&format!("{} {title}", self.style.dim("·")));
        }
        self.status(&format!("running {title}"));
        self.calls.insert(call.tool_call_id.clone(), title);
    }

    fn call_finished(&mut self, end: &v1::ToolCallFinished) {
        self.release();
        let title = self.calls.remove(&end.tool_call_id).unwrap_or_else(|| cut(&end.name));
        let preview = cut(&end.result_preview);
        let text = match end.status.as_str() {
            "done" => format!("{} {title}: {}", self.style.green("✓"), self.style.dim(&preview)),
            status => {
                let status = sanitize_line(status);
                let more = beyond(&status, &preview);
                format!("{} {title}: {}{more}", self.style.red("✗"), self.style.red(&status))
            }
        };
        self.line(text.trim_end_matches([':', ' ']));
        if self.verbose && !end.diff.is_empty() {
            self.diff(&end.diff);
        }
        self.status("thinking");
    }

    /// A unified diff, indented below its call.
    fn diff(&mut self, diff: &str) {
        for line in sanitize(diff.trim_end()).lines() {
            let shown = match line.as_bytes().first() {
                _ if line.starts_with("+++") || line.starts_with("---") => self.style.dim(line),
                Some(b'+') => self.style.green(line),
                Some(b'-') => self.style.red(line),
                _ => self.style.dim(line),
            };
            self.line(&format!("    {shown}"));
        }
    }

    /// A remark of our own.
    pub(crate) fn note(&mut self, text: &str) {
        let text = self.style.dim(&sanitize_line(text));
        self.line(&text);
    }

    /// Shows the words that were held back: they were not the final answer.
    pub(crate) fn release(&mut self) {
        let text = std::mem::take(&mut self.held);
        if !text.trim().is_empty() {
            self.tail.clear();
            let text = sanitize(text.trim()).into_owned();
            if self.style.live {
                self.line("");
            }
            self.line(&text);
        }
    }

    /// One line, above the status line.
    pub(crate) fn line(&mut self, text: &str) {
        self.clear();
        stderr_line(text);
    }

    fn status(&mut self, text: &str) {
        text.clone_into(&mut self.status);
    }

    /// Draws what is being written and the status line anew.
    pub(crate) fn draw(&mut self) {
        if !self.style.live {
            return;
        }
        let (columns, lines) = terminal::size();
        let seconds = self.started.elapsed().as_secs();
        let status =
            truncate_width(&format!("{} {seconds} s", self.status), columns.saturating_sub(1).min(STATUS_CELLS));
        let rows = self.tail.rows(columns, lines);
        let mut text = self.drawn.map(erase).unwrap_or_default();
        for row in &rows {
            text.push_str(row);
            text.push('\n');
        }
        text.push_str(&self.style.dim(&status));
        stderr_text(&text);
        self.drawn = Some(rows.len());
        self.drawn_at = Instant::now();
    }

    /// Draws words soon after they came in, and not each of them.
    pub(crate) fn draw_soon(&mut self) {
        if self.drawn_at.elapsed() >= DRAW_PAUSE {
            self.draw();
        }
    }

    /// Takes away what is drawn.
    pub(crate) fn clear(&mut self) {
        if let Some(rows) = self.drawn.take() {
            stderr_text(&erase(rows));
        }
    }
}

/// Moves to the first of what is drawn, and clears the terminal from there on.
fn erase(rows: usize) -> String {
    let up = if rows == 0 { String::new() } else { format!("\x1b[{rows}A") };
    format!("\r{up}\x1b[J")
}

/// What a preview says beyond the status that stands before it.
pub(crate) fn beyond(status: &str, preview: &str) -> String {
    let rest = match preview.get(..status.len()) {
        Some(start) if start.eq_ignore_ascii_case(status) => &preview[status.len()..],
        _ => preview,
    };
    let rest = rest.trim_start_matches([':', ',', '.', ' ']).trim_end();
    if rest.is_empty() { String::new() } else { format!(": {rest}") }
}

fn cut(text: &str) -> String {
    truncate_width(&sanitize_line(text.trim()), DETAIL_CELLS)
}

/// The one argument that says what a call is about.
pub(crate) fn telling(arguments: &Value) -> String {
    let Value::Object(fields) = arguments else { return String::new() };
    let named = TELLING.iter().find_map(|name| fields.get(*name).and_then(Value::as_str));
    let any = || fields.values().find_map(Value::as_str);
    named.or_else(any).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_shown_by_what_it_is_about() {
        assert_eq!(telling(&json!({"timeout_s": 3, "command": "make", "path": "/x"})), "make");
        assert_eq!(telling(&json!({"prompt": "p"})), "p");
        assert_eq!(telling(&json!({"n": 1})), "");
        assert_eq!(telling(&json!([])), "");
    }

    #[test]
    fn a_status_is_not_said_twice() {
        assert_eq!(beyond("cancelled", "Cancelled by the user."), ": by the user.");
        assert_eq!(beyond("cancelled", "cancelled"), "");
        assert_eq!(beyond("denied", "the default: commands are asked for"), ": the default: commands are asked for");
        assert_eq!(beyond("failed", "exit 1"), ": exit 1");
        assert_eq!(beyond("denied", ""), "");
        assert_eq!(beyond("failed", "é"), ": é");
    }

    #[test]
    fn what_is_drawn_is_taken_away_again() {
        assert_eq!((erase(0), erase(2)), ("\r\x1b[J".to_owned(), "\r\x1b[2A\x1b[J".to_owned()));
    }

    #[test]
    fn foreign_text_is_cut_and_made_harmless() {
        assert_eq!(cut("a\n\u{1b}]0;T\u{7}"), "a\\n\\x1b]0;T\\x07");
        assert_eq!(mcode_text::width(&cut(&"x".repeat(500))), DETAIL_CELLS);
    }
}
