//! One task over every wire, and one thread over all of them, against servers that refuse what the real ones refuse.

use mcode_testkit::model_server::Block;
use mcode_testkit::{ModelServer, RecordedRequest, Reply, Script, Usage, Wire};
use serde_json::{Value, json};

use crate::setup::{Stage, ask_words};

/// Wires with a model of each; on all but Chat the model's thinking is signed.
pub(crate) const WIRES: &[(Wire, &str)] = &[
    (Wire::Anthropic, "anthropic/claude-sonnet-5"),
    (Wire::Chat, "chatty/kimi-k3"),
    (Wire::Responses, "openai/gpt-5.5"),
    (Wire::Gemini, "google/gemini-3.1-pro-preview"),
    (Wire::Bedrock, "bedrock/us.anthropic.claude-opus-4-8-v1:0"),
];

/// A daemon whose configuration names a provider for every wire.
pub(crate) fn stage(script: Script) -> Stage {
    let mut stage = Stage::new(script);
    stage.daemon.unset("ANTHROPIC_BASE_URL");
    stage.daemon.unset("OPENAI_BASE_URL");
    let at = |wire: Wire| stage.server.base_url(wire);
    let config = [
        ("anthropic", "anthropic", at(Wire::Anthropic)),
        ("chatty", "openai-chat", at(Wire::Chat)),
        ("openai", "openai-responses", at(Wire::Responses)),
        ("google", "gemini", at(Wire::Gemini)),
        ("bedrock", "bedrock", at(Wire::Bedrock)),
        ("clouds-claude", "anthropic", on_vertex(&stage.server, "anthropic")),
        ("clouds-gemini", "gemini", on_vertex(&stage.server, "google")),
    ]
    .map(|(name, wire, url)| format!("[providers.{name}]\nwire = \"{wire}\"\nbase_url = \"{url}\"\n"));
    stage.daemon.write_config(&config.concat());
    stage.daemon.set("GEMINI_API_KEY", "test-key-google");
    stage.daemon.set("AWS_ACCESS_KEY_ID", "AKIDTEST");
    stage.daemon.set("AWS_SECRET_ACCESS_KEY", "test-secret");
    stage.daemon.set("AWS_REGION", "eu-west-1");
    stage.daemon.restart();
    stage.workspace.write("calc.sh", "add() { echo $(($1 - $2)); }\n");
    stage.workspace.write("note.txt", "a note\n");
    stage
}

/// Where Vertex has the models of a publisher.
fn on_vertex(server: &ModelServer, publisher: &str) -> String {
    format!("http://{}/v1/projects/p/locations/eu/publishers/{publisher}", server.address())
}

fn signature(number: usize) -> String {
    format!("c2lnbmF0dXJl{number:04}")
}

/// Thinks, shown and hidden, and asks for these tools; with the figures of this request.
fn thinks_and_calls(request: &RecordedRequest, calls: &[(&str, Value)]) -> Reply {
    let mut reply = Reply::thinking(format!("thought {}", request.number), signature(request.number));
    // On Gemini hidden thoughts are a signature and nothing else, and the call has one already.
    if request.wire != Wire::Gemini {
        reply = reply.then(Block::RedactedThinking(format!("cmVkYWN0ZWQ{:04}=", request.number)));
    }
    for (at, (name, arguments)) in calls.iter().enumerate() {
        // Ids that no other provider would give, nor take.
        let id = (request.wire == Wire::Chat).then(|| format!("functions.{name}:{at}"));
        reply = reply.then(Block::ToolCall { id, name: (*name).to_owned(), arguments: arguments.to_string() });
    }
    reply.usage(usage(request.number))
}

fn usage(number: usize) -> Usage {
    let number = number as u64;
    Usage { input: 100 + number, cache_read: 1000 * number, cache_write: 7, output: 20 + number, reasoning: 5 }
}

fn calls(calls: &'static [(&'static str, &'static str)]) -> Reply {
    Reply::from(move |request| {
        let calls: Vec<_> =
            calls.iter().map(|(name, arguments)| (*name, serde_json::from_str(arguments).unwrap())).collect();
        thinks_and_calls(request, &calls)
    })
}

fn says(text: &'static str) -> Reply {
    Reply::from(move |request| {
        Reply::thinking("nearly done", signature(request.number)).then_text(text).usage(usage(request.number))
    })
}

const VIEW: (&str, &str) = ("view", r#"{"path":"calc.sh"}"#);
const NOTE: (&str, &str) = ("view", r#"{"path":"note.txt"}"#);
const RUN: (&str, &str) = ("shell", r#"{"command":"cat note.txt"}"#);
const EDIT: (&str, &str) = ("edit", r#"{"path":"calc.sh","old_string":"$1 - $2","new_string":"$1 + $2"}"#);
const MENDED: &str = "It was a minus: **mended** é€😀";
const AGAIN: &str = "Still mended — é€😀.";

/// Requests of the first run, and of each that follows in the thread.
const FIRST: usize = 4;
const NEXT: usize = 2;

fn sum(runs: &[Value]) -> Usage {
    let of = |key: &str| runs.iter().map(|run| run["usage"][key].as_u64().unwrap_or(0)).sum();
    Usage {
        input: of("input_tokens"),
        cache_read: of("cache_read_tokens"),
        cache_write: of("cache_write_tokens"),
        output: of("output_tokens"),
        reasoning: of("reasoning_tokens"),
    }
}

/// The task over the wire `first`, then the thread goes on over each of the others, and over the first again.
fn works_and_moves_on(first: usize) {
    let mut script =
        Script::new().reply(calls(&[VIEW])).reply(calls(&[NOTE, RUN])).reply(calls(&[EDIT])).reply(says(MENDED));
    for _ in WIRES {
        script = script.reply(calls(&[RUN, NOTE])).reply(says(AGAIN));
    }
    let stage = stage(script);
    let ring: Vec<_> = (0..=WIRES.len()).map(|step| WIRES[(first + step) % WIRES.len()]).collect();
    let mut runs = Vec::new();
    for (step, (wire, model)) in ring.iter().enumerate() {
        let go_on: &[&str] = if step == 0 { &[] } else { &["-c"] };
        let words = [go_on, &["-m", model, "--yolo", "--output", "json", "mend", "it"]].concat();
        let run = stage.mcode(&ask_words(&words)).ok().json();
        assert_eq!(run["text"], if step == 0 { MENDED } else { AGAIN }, "{wire:?}");
        assert_eq!(stage.workspace.read("calc.sh"), "add() { echo $(($1 + $2)); }\n", "{wire:?}");
        runs.push(run);
    }

    let requests = stage.server.requests();
    assert_eq!(requests.len(), FIRST + NEXT * WIRES.len());
    for (at, request) in requests.iter().enumerate() {
        let step = if at < FIRST { 0 } else { 1 + (at - FIRST) / NEXT };
        assert_eq!(request.wire, ring[step].0, "request {}", at + 1);
        assert!(request.system().len() > 100 && request.tool_names().contains(&"edit".to_owned()));
        assert_eq!(request.last_user_text().lines().last(), Some("mend it"));
        let begins = at == 0 || (at >= FIRST && (at - FIRST).is_multiple_of(NEXT));
        if begins {
            continue;
        }
        // What was thought goes back to who thought it, signed as it was.
        let is_signed = request.body.to_string().contains(&signature(at));
        assert_eq!(is_signed, request.wire != Wire::Chat, "request {} over {:?}", at + 1, request.wire);
        let results = request.tool_results();
        assert!(results.iter().all(|(_, _, is_error)| !is_error), "{results:?}");
        if at >= FIRST || at == 2 {
            assert!(results.len() == 2 && results.iter().all(|(_, text, _)| text.contains("a note")), "{results:?}");
        }
    }
    // Nobody gets what another signed: the last run is of the first wire again and holds what that one gave at first.
    let last = requests.last().unwrap().body.to_string();
    for number in 1..=requests.len() {
        let own = requests[number - 1].wire == ring[0].0 && number < requests.len() && ring[0].0 != Wire::Chat;
        assert_eq!(last.contains(&signature(number)), own, "the signature of request {number}");
    }
    assert_eq!(sum(&runs), stage.server.usage(), "tokens");
    assert_eq!(stage.server.request(1).usage.unwrap().output, 21);
    stage.server.finish();
}

#[test]
fn a_thread_begins_on_messages_and_moves_over_every_wire() {
    works_and_moves_on(0);
}

#[test]
fn a_thread_begins_on_chat_and_moves_over_every_wire() {
    works_and_moves_on(1);
}

#[test]
fn a_thread_begins_on_responses_and_moves_over_every_wire() {
    works_and_moves_on(2);
}

#[test]
fn a_thread_begins_on_gemini_and_moves_over_every_wire() {
    works_and_moves_on(3);
}

#[test]
fn a_thread_begins_on_bedrock_and_moves_over_every_wire() {
    works_and_moves_on(4);
}

/// The task where Google sells them: Claude over its maker's wire, Gemini over its own, each at its own path.
#[test]
fn the_task_is_done_over_vertex() {
    for (model, wire, path) in [
        (
            "clouds-claude/claude-sonnet-5",
            Wire::Anthropic,
            "/publishers/anthropic/models/claude-sonnet-5:streamRawPredict",
        ),
        (
            "clouds-gemini/gemini-3.1-pro",
            Wire::Gemini,
            "/publishers/google/models/gemini-3.1-pro:streamGenerateContent",
        ),
    ] {
        let script =
            Script::new().reply(calls(&[VIEW])).reply(calls(&[NOTE, RUN])).reply(calls(&[EDIT])).reply(says(MENDED));
        let stage = stage(script);
        let run = stage.mcode(&ask_words(&["-m", model, "--yolo", "--output", "json", "mend", "it"])).ok().json();
        assert_eq!(run["text"], MENDED, "{model}");
        assert_eq!(stage.workspace.read("calc.sh"), "add() { echo $(($1 + $2)); }\n", "{model}");
        let last = stage.server.requests().pop().unwrap();
        assert_eq!((last.wire, last.number), (wire, FIRST));
        assert!(last.path.ends_with(path), "{}", last.path);
        assert!(last.body.to_string().contains(&signature(1)), "{model}");
        assert_eq!(sum(&[run]), stage.server.usage(), "{model}");
        stage.server.finish();
    }
}

/// What is printed is the answer, byte for byte, however the bytes came.
#[test]
fn answers_are_printed_to_the_byte_over_every_wire() {
    for (wire, model) in WIRES {
        let stage = stage(Script::new().reply(Reply::text(MENDED).split(1)));
        assert_eq!(stage.ask(&["-m", model, "hi"]).ok().stdout, format!("{MENDED}\n"), "{wire:?}");
        assert_eq!(stage.server.request(1).wire, *wire);
        stage.server.finish();
    }
}

/// A call in a frame that is broken, or in an answer that is cut, never runs; the answer is asked for again.
#[test]
fn what_was_not_seen_to_end_runs_nothing_over_any_wire() {
    for (wire, model) in WIRES {
        let call = || Reply::tool_calls([("shell", json!({"command": "touch SAFE && touch REST && touch MORE"}))]);
        let script = Script::new().reply(call().bad_frame()).reply(call().without_end()).reply(Reply::text("ok"));
        let stage = stage(script);
        let before = stage.workspace.git(&["status", "--porcelain"]);
        assert_eq!(stage.ask(&["-m", model, "--yolo", "hi"]).ok().stdout, "ok\n", "{wire:?}");
        assert_eq!(stage.workspace.git(&["status", "--porcelain"]), before, "{wire:?}");
        stage.server.finish();
    }
}
