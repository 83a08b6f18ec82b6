//! Answers that have to satisfy a schema, over every wire, against servers that refuse what the real ones refuse.

use mcode_testkit::{RecordedRequest, Reply, Script, Wire};
use serde_json::{Value, json};

use crate::setup::{Stage, ask_words};
use crate::wires::{WIRES, stage};

const SCHEMA: &str = r#"{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "properties": {"n": {"type": "integer"}, "why": {"type": "string"}}, "required": ["n", "why"],
    "additionalProperties": false}"#;
const ANSWER: &str = r#"{"n": 3, "why": "é€😀"}"#;

/// The schema of the answer that a request asks for in its wire's own form.
fn native(request: &RecordedRequest) -> Option<Value> {
    let path = match request.wire {
        Wire::Anthropic => "/output_config/format/schema",
        Wire::Chat => "/response_format/json_schema/schema",
        Wire::Responses => "/text/format/schema",
        Wire::Gemini => "/generationConfig/responseJsonSchema",
        Wire::Bedrock => {
            let schema = request.body.pointer("/outputConfig/textFormat/structure/jsonSchema/schema")?;
            return serde_json::from_str(schema.as_str()?).ok();
        }
    };
    request.body.pointer(path).cloned()
}

fn ask(stage: &Stage, model: &str, words: &[&str]) -> mcode_testkit::Output {
    let words = [&["-m", model, "--yolo", "--schema", "s.json"], words, &["count"]].concat();
    stage.mcode(&ask_words(&words))
}

fn calls_view() -> Reply {
    Reply::tool_calls([("view", json!({"path": "note.txt"}))])
}

/// The schema goes in the wire's own form, the tools can still be called, and what comes is checked.
#[test]
fn the_schema_is_asked_for_natively_and_tools_are_called_before_the_answer() {
    for (wire, model) in WIRES {
        let stage = stage(Script::new().reply(calls_view()).reply(Reply::text(ANSWER)));
        stage.workspace.write("s.json", SCHEMA);
        let result = ask(&stage, model, &["--output", "json"]).ok().json();
        assert_eq!(result["structured"], json!({"n": 3, "why": "é€😀"}), "{wire:?}");
        assert_eq!(result["tool_calls"][0]["status"], "done", "{wire:?}");
        // What is only like OpenAI would hold every word to it, calls of tools too.
        let is_native = *wire != Wire::Chat;
        for request in stage.server.requests() {
            let schema = native(&request);
            assert_eq!(schema.is_some(), is_native, "{wire:?}");
            assert!(schema.is_none_or(|schema| schema["properties"]["n"]["type"] == "integer"));
            assert!(request.system().contains("JSON Schema") && !request.tool_names().is_empty(), "{wire:?}");
        }
        stage.server.finish();
    }
}

/// OpenAI's own Chat Completions takes it beside tools, strict where the schema is.
#[test]
fn chat_of_openai_takes_it_natively() {
    for (change, strict) in [("", true), ("\"minProperties\": 1, ", false)] {
        let mut stage = stage(Script::new().reply(calls_view()).reply(Reply::text(ANSWER)));
        let url = stage.server.base_url(Wire::Chat);
        stage.daemon.write_config(&format!("[providers.openai]\nwire = \"openai-chat\"\nbase_url = \"{url}\"\n"));
        stage.daemon.restart();
        stage.workspace.write("s.json", SCHEMA.replacen('{', &format!("{{{change}"), 1));
        assert_eq!(ask(&stage, "openai/gpt-5.5", &[]).ok().stdout, format!("{ANSWER}\n"));
        for request in stage.server.requests() {
            assert_eq!(request.body["response_format"]["json_schema"]["strict"], strict);
        }
        stage.server.finish();
    }
}

/// What a server's own mode can not say is left to words; the answer is checked all the same.
#[test]
fn a_schema_beyond_a_servers_subset_is_never_refused() {
    let schema = r#"{"type": "array", "minItems": 2, "items": {"type": "object", "patternProperties": {"^a": {}},
        "additionalProperties": false}, "contains": {"not": {"const": 1}}}"#;
    for (wire, model) in WIRES {
        let stage =
            stage(Script::new().reply(Reply::text("[{\"a\": 1}]")).reply(Reply::text("[{\"a\": 1}, {\"ab\": 2}]")));
        stage.workspace.write("s.json", schema);
        let result = ask(&stage, model, &["--output", "json"]).ok().json();
        assert_eq!(result["structured"], json!([{"a": 1}, {"ab": 2}]), "{wire:?}");
        assert!(stage.server.request(2).last_user_text().contains("does not satisfy"), "{wire:?}");
        stage.server.finish();
    }
}

/// A server that refuses the form after all is asked again without, once for all runs.
#[test]
fn a_server_that_refuses_the_form_is_asked_without() {
    for (wire, model) in WIRES.iter().filter(|(wire, _)| *wire != Wire::Chat) {
        let refusal = Reply::status(400).message("Invalid schema: structured output is not enabled for this project");
        let stage = stage(Script::new().reply(refusal).repeat(2, &Reply::text(ANSWER)));
        stage.workspace.write("s.json", SCHEMA);
        for _ in 0..2 {
            let result = ask(&stage, model, &["--output", "json"]).ok().json();
            assert_eq!(result["structured"]["n"], 3, "{wire:?}");
        }
        let asked: Vec<bool> = stage.server.requests().iter().map(|request| native(request).is_some()).collect();
        assert_eq!(asked, [true, false, false], "{wire:?}");
        stage.server.finish();
    }
}

/// JSON in a fence, between words, or with a comma too many is the answer; nothing else is printed.
#[test]
fn an_answer_is_taken_out_of_what_stands_around_it() {
    for text in [
        "```json\n{\"n\": 3, \"why\": \"x\"}\n```",
        "I counted {files}. Here:\n\n{\"n\": 3, \"why\": \"x\"}\n\nThat is all.",
        "{\"n\": 3, \"why\": \"x\",}",
    ] {
        let stage = stage(Script::new().reply(Reply::text(text)));
        stage.workspace.write("s.json", SCHEMA);
        let printed: Value = serde_json::from_str(&ask(&stage, WIRES[0].1, &[]).ok().stdout).unwrap();
        assert_eq!(printed, json!({"n": 3, "why": "x"}), "{text}");
        stage.server.finish();
    }
}

/// Three wrong answers end the run with 1 and say why, on every wire.
#[test]
fn a_model_that_gives_no_such_answer_fails_the_run() {
    for (wire, model) in WIRES {
        let stage = stage(Script::new().repeat(3, &Reply::text("{\"n\": \"three\", \"why\": \"x\"}")));
        stage.workspace.write("s.json", SCHEMA);
        let output = ask(&stage, model, &["--output", "json"]);
        let result = output.json();
        assert_eq!((output.code, &result["error"]["reason"]), (1, &json!("ANSWER_SCHEMA")), "{wire:?}");
        assert_eq!(result["structured"], Value::Null);
        assert!(result["error"]["message"].as_str().unwrap().contains("at '/n'"), "{result}");
        stage.server.finish();
    }
}

/// Objects in each other, each of which has to be there.
fn nested_schema(levels: usize) -> Value {
    (0..levels).fold(
        json!({"type": "integer"}),
        |inner, _| json!({"type": "object", "properties": {"a": inner}, "required": ["a"]}),
    )
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(3), |inner, _| json!({"a": inner}))
}

/// What nests deeper than a message of the protocol can tell goes as text, in both directions.
#[test]
fn schemas_and_answers_nest_deep_and_too_deep_ones_are_refused() {
    let (_, model) = WIRES[0];
    // Each level of the answer is two of the schema.
    let (schema, answer) = (nested_schema(45), nested(45));
    let stage = stage(Script::new().repeat(2, &Reply::text(answer.to_string())));
    stage.workspace.write("s.json", schema.to_string());
    assert_eq!(ask(&stage, model, &["--output", "json"]).ok().json()["structured"], answer);
    let lines = ask(&stage, model, &["--output", "jsonl"]).ok().json_lines();
    assert_eq!(lines.last().unwrap()["structured"], answer);
    for levels in [101, 3000] {
        stage.workspace.write("s.json", format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)));
        let output = ask(&stage, model, &[]);
        assert!(output.code == 2 && output.stderr.contains("nests deeper than 100 levels"), "{levels}: {output:#?}");
    }
    stage.server.finish();
}

/// A model may nest its arguments as deep as it likes: its thread can be read, now and by the next daemon.
#[test]
fn arguments_that_nest_deep_hurt_nobody() {
    let (_, model) = WIRES[0];
    // What a tool does not know of its arguments is left out of them; of a tool that is none everything is kept.
    let [shown, deepest, deeper] = [("none", 60), ("none", 99), ("view", 110)]
        .map(|(tool, levels)| Reply::tool_calls([(tool, json!({"path": "note.txt", "x": nested(levels)}))]));
    let mut stage = stage(Script::new().reply(shown).reply(deepest).reply(deeper).repeat(2, &Reply::text("ok")));
    let lines = stage.mcode(&ask_words(&["-m", model, "--yolo", "--json", "look"])).ok().json_lines();
    let thread_id = lines[0]["thread_id"].as_str().unwrap().to_owned();
    let results: Vec<&Value> = crate::setup::of_type(&lines, "tool_call_finished");
    let statuses: Vec<&str> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failed", "failed", "done"], "{results:#?}");
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.mcode(&["threads", "show", &thread_id]).ok();
    stage.mcode(&["ask", "-t", &thread_id, "-m", model, "and?"]).ok();
    stage.server.finish();
}
