//! Work for a daemon that is going to be killed: slow answers and tool calls of every kind that leaves a trace.
//!
//! Every call that changes something carries a number that was never used before, so a call that ran twice shows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use crate::model_server::{ModelServer, RecordedRequest, Reply, Script};
use crate::workspace::Workspace;

/// File that shell calls append their lines to.
const LINES: &str = "lines.txt";
/// File that is edited.
const NOTES: &str = "notes.txt";
/// What a prompt holds that asks for the whole programme.
pub const LOAD: &str = "carry the load";
/// What a prompt holds that only has to be answered.
pub const GO_ON: &str = "go on";
/// The answer to that.
pub const GOING_ON: &str = "going on";

/// A model server and a folder for one series of kills.
pub struct Load {
    /// The model.
    pub server: ModelServer,
    /// Where tools work.
    pub workspace: Workspace,
}

impl Load {
    /// Starts the server and fills the folder.
    #[must_use]
    pub fn start() -> Self {
        let workspace = Workspace::new();
        workspace.write(LINES, "");
        workspace.write(NOTES, "begin\nend of notes\n");
        let next = Arc::new(AtomicU64::new(1));
        let server = ModelServer::start_blocking(Script::new().fallback(move |request| answer(request, &next)));
        Self { server, workspace }
    }

    /// Numbers that occur more than once in what the calls left behind.
    #[must_use]
    pub fn repeated(&self) -> Vec<String> {
        let text = format!("{}{}", self.workspace.read(LINES), self.workspace.read(NOTES));
        let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with("effect-")).collect();
        lines.sort_unstable();
        lines.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned()).collect()
    }

    /// Whether the shell call with this effect left its line.
    #[must_use]
    pub fn has_line(&self, effect: &str) -> bool {
        self.workspace.read(LINES).lines().any(|line| line == effect)
    }

    /// Lines of shell calls so far.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.workspace.read(LINES).lines().count()
    }
}

/// The argument of `sleep` by which this program knows its own children.
#[must_use]
pub fn nap() -> &'static str {
    static NAP: LazyLock<String> = LazyLock::new(crate::processes::nap);
    &NAP
}

fn answer(request: &RecordedRequest, next: &AtomicU64) -> Reply {
    let Some(step) = step_of_the_load(request) else { return Reply::text(GOING_ON) };
    let effect = || format!("effect-{}", next.fetch_add(1, Ordering::Relaxed));
    let append = |what: &str| json!({"command": format!("echo {} >> {LINES}{what}", effect())});
    let words = |count| Reply::deltas("word ", count);
    let nap = nap();
    let reply = match step {
        0 => words(150).then_tool_calls([
            ("view", json!({"path": NOTES})),
            ("view", json!({"path": LINES})),
            ("view", json!({"path": NOTES, "limit": 1})),
        ]),
        1 => {
            let edit =
                json!({"path": NOTES, "old_string": "end of notes", "new_string": format!("{}\nend of notes", effect())});
            words(20).then_tool_calls([("shell", append("")), ("edit", edit), ("shell", append(""))])
        }
        2 => words(10).then_tool_calls([(
            "shell",
            append(&format!(
                "; sleep {nap} & setsid sleep {nap} & env -i /bin/sleep {nap} & bare=$!; sleep 0.3; kill $bare; echo half; sleep 0.2"
            )),
        )]),
        3 => {
            let mut call = append(&format!("; sleep {nap}"));
            call["background"] = json!(true);
            words(5).then_tool_calls([("shell", call), ("shell", append(""))])
        }
        _ => words(100),
    };
    reply.split(200).delay(2)
}

/// Answers since the load was asked for; `None` when something else was asked for after it.
fn step_of_the_load(request: &RecordedRequest) -> Option<usize> {
    let mut steps = 0;
    for message in request.messages().iter().rev() {
        if message["role"] == "assistant" {
            steps += 1;
        }
        // Inputs without an answer between them come as one message; the last of them counts.
        let texts = message["content"].as_array().map_or(&[][..], Vec::as_slice).iter().map(|part| &part["text"]);
        let words: String = texts.chain([&message["content"]]).filter_map(Value::as_str).collect();
        match (message["role"] == "user", words.rfind(LOAD), words.rfind(GO_ON)) {
            (true, Some(load), other) if other.is_none_or(|other| other < load) => return Some(steps),
            (true, _, Some(_)) => return None,
            _ => {}
        }
    }
    None
}
