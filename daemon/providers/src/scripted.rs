//! The scripted model of `mcode demo`: no network, no key, a fixed play that reacts to what the tools say.
//!
//! It mends one spelling fault in a scratch repository whose test fails. Everything it says makes clear that it is a
//! script; what the tools do is real.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mcode_env::IdGen;
use mcode_events::message::Part;
use mcode_events::usage::Usage;
use mcode_ids::ToolCallId;
use mcode_models::history::estimate_tokens;
use mcode_models::{
    ModelError, ModelErrorKind, ModelProvider, ModelRequest, ModelStream, PromptMessage, Response, StopReason,
    StreamEvent, ToolAnswer,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::prompt;

/// Its name at the provider `demo`.
pub const MODEL: &str = "scripted";
/// Pause between two words.
const WORD_PAUSE: Duration = Duration::from_millis(8);

/// The scratch repository that the script is written for.
pub mod demo {
    /// Name and content of its files.
    pub const FILES: &[(&str, &str)] = &[
        (
            "greet.sh",
            "#!/bin/sh\n# Prints a greeting for each name.\ngreet() { printf 'Helo, %s!\\n' \"$1\"; }\nfor name in \"$@\"; do greet \"$name\"; done\n",
        ),
        (
            "test.sh",
            "#!/bin/sh\n# The test of greet.sh.\nwant='Hello, Ada!'\ngot=$(sh ./greet.sh Ada)\nif [ \"$got\" = \"$want\" ]; then echo \"ok: $got\"; else echo \"FAILED: want '$want', got '$got'\"; exit 1; fi\n",
        ),
    ];
    /// What the user asks.
    pub const PROMPT: &str = "The test test.sh fails. Find out why and mend it.";
    /// The command that runs the test.
    pub const TEST_COMMAND: &str = "sh test.sh";
}

/// Plays the script.
#[derive(Debug)]
pub struct ScriptedProvider {
    ids: Arc<dyn IdGen>,
}

impl ScriptedProvider {
    /// A player whose calls get ids from `ids`.
    #[must_use]
    pub fn new(ids: Arc<dyn IdGen>) -> Self {
        Self { ids }
    }
}

/// What the script says and does next.
#[derive(Debug, Clone, PartialEq)]
struct Scene {
    words: String,
    calls: Vec<(&'static str, Value)>,
}

impl Scene {
    fn say(words: impl Into<String>) -> Self {
        Self { words: words.into(), calls: Vec::new() }
    }

    fn with(mut self, tool: &'static str, arguments: Value) -> Self {
        self.calls.push((tool, arguments));
        self
    }
}

/// The next scene after everything since the user's last words.
fn next_scene(request: &ModelRequest) -> Scene {
    let since = request.messages.iter().rposition(|message| matches!(message, PromptMessage::User(_)));
    let answers: Vec<&ToolAnswer> = request.messages[since.unwrap_or(0)..]
        .iter()
        .filter_map(|message| if let PromptMessage::Tools(answers) = message { Some(answers) } else { None })
        .flatten()
        .collect();
    let missing =
        ["view", "grep", "shell", "edit"].iter().find(|name| !request.tools.iter().any(|tool| tool.name == **name));
    if let Some(missing) = missing {
        return Scene::say(format!(
            "I am the scripted demo model, not a real one, and my script needs the tool `{missing}`, which is not \
             offered in this run. I stop here."
        ));
    }
    let Some(last) = answers.last() else { return opening() };
    if let Some(failed) = answers.iter().find(|answer| answer.is_error && answer.name != "shell") {
        return stopped(failed);
    }
    let edited = answers.iter().any(|answer| answer.name == "edit");
    match (last.name.as_str(), edited) {
        ("shell", _) => after_test(last, edited),
        ("edit", _) => run_test("The edit is made. I run the test again to see whether it passes now."),
        ("view" | "grep", _) => run_test("Now I run the test, to see how it fails."),
        (other, _) => {
            Scene::say(format!("My script does not know what to do with the answer of `{other}`. I stop here."))
        }
    }
}

fn opening() -> Scene {
    Scene::say(
        "I am the scripted demo model: I follow a fixed script and understand nothing, but the tools I call are real. \
         First I look at the program.",
    )
    .with("grep", json!({"pattern": "greet", "path": "."}))
    .with("view", json!({"path": "greet.sh"}))
}

fn run_test(words: &str) -> Scene {
    Scene::say(words).with("shell", json!({"command": demo::TEST_COMMAND}))
}

fn after_test(test: &ToolAnswer, edited: bool) -> Scene {
    let passed = test.text.contains("ok: Hello, Ada!");
    let failed = test.text.contains("FAILED: want");
    match (passed, failed, edited) {
        (true, _, true) => Scene::say(
            "Done. The test failed because `greet.sh` wrote \"Helo\" where \"Hello\" was wanted; I changed that one \
             word, and the test passes now. All of this was scripted: with a real model you ask for what you like.",
        ),
        (true, _, false) => {
            Scene::say("The test passes already, so there is nothing for my script to mend. Nothing was changed.")
        }
        (false, true, false) => Scene::say(
            "The test fails: it wants \"Hello, Ada!\" and gets \"Helo, Ada!\". The greeting in `greet.sh` is misspelt. \
             I change that word.",
        )
        .with("edit", json!({"path": "greet.sh", "old_string": "'Helo, %s!", "new_string": "'Hello, %s!"})),
        (false, true, true) => Scene::say(
            "The test still fails after the edit, which my script did not foresee. I stop here; the edit is in \
             `greet.sh`.",
        ),
        (false, false, _) => stopped(test),
    }
}

fn stopped(answer: &ToolAnswer) -> Scene {
    let first: String = answer.text.lines().next().unwrap_or_default().chars().take(200).collect();
    Scene::say(format!(
        "The call of `{}` did not give what my script needs ({first}). I stop here, and I changed nothing more.",
        answer.name
    ))
}

/// The events of a scene: words in small pieces, the calls, the end.
fn events(scene: Scene, request: &ModelRequest, ids: &dyn IdGen) -> VecDeque<StreamEvent> {
    let mut events = VecDeque::from([StreamEvent::Started]);
    for word in scene.words.split_inclusive(' ') {
        events.push_back(StreamEvent::TextDelta(word.to_owned()));
    }
    let output_tokens = scene.words.len() as u64 / 4 + 1;
    let mut parts = vec![Part::text(scene.words)];
    for (index, (name, arguments)) in scene.calls.into_iter().enumerate() {
        let tool_call_id = ToolCallId::from_uuid(ids.next());
        events.push_back(StreamEvent::ToolCallDelta { index, name: name.to_owned(), arguments: arguments.to_string() });
        parts.push(Part::ToolCall {
            tool_call_id,
            provider_call_id: tool_call_id.to_string(),
            name: name.to_owned(),
            arguments,
            opaque: None,
        });
    }
    let stop = if parts.len() > 1 { StopReason::ToolUse } else { StopReason::Stop };
    events.push_back(StreamEvent::Finished(Box::new(Response {
        parts,
        origin: prompt::origin(request),
        model: MODEL.to_owned(),
        response_id: String::new(),
        stop,
        stop_raw: stop.as_str().to_owned(),
        usage: Some(Usage { input_tokens: estimate_tokens(request), output_tokens, ..Usage::default() }),
    })));
    events
}

impl ModelProvider for ScriptedProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let events = events(next_scene(&request), &request, self.ids.as_ref());
        let start = (events, cancel);
        Box::pin(futures::stream::unfold(start, |(mut events, cancel)| async move {
            let event = events.pop_front()?;
            if matches!(event, StreamEvent::TextDelta(_)) {
                let cancelled = tokio::select! {
                    biased;
                    () = cancel.cancelled() => true,
                    () = tokio::time::sleep(WORD_PAUSE) => false,
                };
                if cancelled {
                    let error = ModelError::new(ModelErrorKind::Cancelled, "the request was cancelled");
                    return Some((Err(error), (VecDeque::new(), cancel)));
                }
            }
            Some((Ok(event), (events, cancel)))
        }))
    }
}

#[cfg(test)]
mod tests;
