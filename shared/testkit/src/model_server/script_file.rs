//! Scripts as JSON files, for the `fake-model` program.
//!
//! ```json
//! {
//!   "replies": [
//!     {"text": "hello"},
//!     {"tool_calls": [{"name": "view", "arguments": {"path": "f"}}], "usage": {"input": 100, "output": 7}},
//!     {"thinking": "hm", "signature": "s1", "redacted_thinking": "cjE=", "text": "so be it"},
//!     {"status": 429, "headers": {"retry-after": "3"}, "message": "slow down"},
//!     {"deltas": {"text": "tok ", "count": 20000}},
//!     {"text": "Par", "error": {"kind": "overloaded_error", "message": "Overloaded"}},
//!     {"raw_sse": "data: {}\n\n", "split": 1, "delay_ms": 5},
//!     {"text": "again", "times": 3}
//!   ],
//!   "loop": false,
//!   "fallback": {"text": "nothing more to say"},
//!   "validate": true
//! }
//! ```
//!
//! Any reply may also have `split` (bytes per write), `delay_ms`, `delay_before_ms`, `stall_after`, `cut_after` (bytes),
//! `hang_up`, `bad_frame`, `stop_reason`, `headers`, `times`, and `when` (a text that has to occur in the request's
//! last user text: such a reply is a standing rule and is not used up). `loop` starts the list again at its end.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::reply::{Block, End, Reply, Usage};
use super::script::Script;

/// A script as written in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptFile {
    #[serde(default)]
    replies: Vec<Line>,
    #[serde(default, rename = "loop")]
    again: bool,
    #[serde(default)]
    fallback: Option<Line>,
    #[serde(default = "yes")]
    validate: bool,
}

/// A script file that cannot be used.
#[derive(Debug)]
pub enum ScriptFileError {
    /// It cannot be read.
    Read(std::io::Error),
    /// It is not a script.
    Parse(serde_json::Error),
}

impl std::fmt::Display for ScriptFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot read the script: {error}"),
            Self::Parse(error) => write!(f, "not a script: {error}"),
        }
    }
}

impl std::error::Error for ScriptFileError {}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Line {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    redacted_thinking: Option<String>,
    tool_calls: Vec<CallLine>,
    deltas: Option<DeltasLine>,
    status: Option<u16>,
    message: Option<String>,
    body: Option<Value>,
    headers: BTreeMap<String, String>,
    error: Option<ErrorLine>,
    raw_sse: Option<String>,
    usage: Option<UsageLine>,
    stop_reason: Option<String>,
    split: Option<usize>,
    delay_ms: Option<u64>,
    delay_before_ms: Option<u64>,
    stall_after: Option<usize>,
    cut_after: Option<usize>,
    hang_up: bool,
    bad_frame: bool,
    times: Option<usize>,
    when: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallLine {
    name: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    arguments: Value,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeltasLine {
    text: String,
    count: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorLine {
    kind: String,
    message: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UsageLine {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
}

impl Default for UsageLine {
    fn default() -> Self {
        let Usage { input, cache_read, cache_write, output, reasoning } = Usage::default();
        Self { input, cache_read, cache_write, output, reasoning }
    }
}

impl ScriptFile {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ScriptFileError> {
        let text = std::fs::read_to_string(path).map_err(ScriptFileError::Read)?;
        Self::parse(&text)
    }

    /// Checks the text of a script.
    pub fn parse(text: &str) -> Result<Self, ScriptFileError> {
        serde_json::from_str(text).map_err(ScriptFileError::Parse)
    }

    /// The script it describes. Unused replies are no failure here: the program runs until it is stopped.
    #[must_use]
    pub fn script(&self) -> Script {
        let mut script = Script::new().allow_unused();
        if !self.validate {
            script = script.without_validation();
        }
        let mut ordered = Vec::new();
        for line in &self.replies {
            match line.when.clone() {
                Some(text) => {
                    script = script.always(move |request| request.last_user_text().contains(&text), reply(line))
                }
                None => ordered.extend(std::iter::repeat_n(reply(line), line.times.unwrap_or(1))),
            }
        }
        if self.again && !ordered.is_empty() {
            let next = std::sync::atomic::AtomicUsize::new(0);
            return script.fallback(move |_| {
                ordered[next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % ordered.len()].clone()
            });
        }
        for reply in ordered {
            script = script.reply(reply);
        }
        match &self.fallback {
            Some(line) => {
                let reply = reply(line);
                script.fallback(move |_| reply.clone())
            }
            None => script,
        }
    }
}

fn reply(line: &Line) -> Reply {
    let mut reply = match (line.status, &line.raw_sse) {
        (Some(code), _) => {
            let status = Reply::status(code);
            let status = line.body.clone().map_or(status.clone(), |body| status.json(body));
            line.message.clone().map_or(status.clone(), |message| status.message(message))
        }
        (None, Some(raw)) => Reply::raw_sse(raw.as_bytes()),
        (None, None) => turn(line),
    };
    for (name, value) in &line.headers {
        reply = reply.header(name, value);
    }
    if let Some(usage) = line.usage {
        let UsageLine { input, cache_read, cache_write, output, reasoning } = usage;
        reply = reply.usage(Usage { input, cache_read, cache_write, output, reasoning });
    }
    if let Some(error) = &line.error {
        reply.end = End::Error { kind: error.kind.clone(), message: error.message.clone() };
    }
    reply.stop.clone_from(&line.stop_reason);
    reply.bad_frame = line.bad_frame;
    reply.delivery.hang_up = line.hang_up;
    reply.delivery.stall_after = line.stall_after;
    reply.delivery.cut_after = line.cut_after;
    if let Some(bytes) = line.split {
        reply = reply.split(bytes);
    }
    if let Some(ms) = line.delay_ms {
        reply = reply.delay(ms);
    }
    reply.delay_before(line.delay_before_ms.unwrap_or(0))
}

fn turn(line: &Line) -> Reply {
    let mut blocks = Vec::new();
    if let Some(text) = &line.thinking {
        blocks.push(Block::Thinking { text: text.clone(), signature: line.signature.clone().unwrap_or_default() });
    }
    if let Some(data) = &line.redacted_thinking {
        blocks.push(Block::RedactedThinking(data.clone()));
    }
    if let Some(text) = &line.text {
        blocks.push(Block::Text(text.clone()));
    }
    if let Some(deltas) = &line.deltas {
        blocks.push(Block::Deltas { piece: deltas.text.clone(), count: deltas.count });
    }
    for call in &line.tool_calls {
        // A string is sent as it stands, so that broken JSON can be scripted too.
        let arguments = match &call.arguments {
            Value::String(raw) => raw.clone(),
            Value::Null => "{}".to_owned(),
            other => other.to_string(),
        };
        blocks.push(Block::ToolCall { id: call.id.clone(), name: call.name.clone(), arguments });
    }
    Reply::blocks(blocks)
}
