//! What `ask` prints in its three forms (interface.md section 3).

use std::collections::BTreeSet;

use mcode_testkit::{Reply, Script, Usage};
use serde_json::{Value, json};

use crate::setup::{Stage, joined, of_type, types};

const USAGE: [&str; 6] =
    ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost_usd"];
const RESULT: [&str; 9] =
    ["thread_id", "run_id", "status", "text", "structured", "usage", "tool_calls", "error", "exit_code"];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn words() -> String {
    "Words and wörds 😀 in a row. ".repeat(40)
}

fn looks_and_answers() -> Script {
    let usage = Usage { input: 100, cache_read: 30, cache_write: 20, output: 7, reasoning: 0 };
    Script::new()
        .reply(
            Reply::thinking("First a look.", "S1").then_tool_calls([("view", json!({"path": "f.txt"}))]).usage(usage),
        )
        .reply(Reply::tool_calls([("shell", json!({"command": "echo out; exit 3"}))]).usage(usage))
        .reply(Reply::text(words()).usage(usage))
}

#[test]
fn json_is_one_object_of_the_fixed_fields() {
    let stage = Stage::new(looks_and_answers());
    let result = stage.ask(&["--yolo", "--output", "json", "look"]).ok().json();
    assert_eq!(keys(&result), RESULT);
    assert_eq!(keys(&result["usage"]), USAGE);
    assert_eq!(result["text"], words());
    assert_eq!((&result["status"], &result["exit_code"]), (&json!("done"), &json!(0)));
    assert_eq!((&result["structured"], &result["error"]), (&Value::Null, &Value::Null));
    let usage = &result["usage"];
    let figures: Vec<u64> = USAGE[..4].iter().map(|name| usage[*name].as_u64().unwrap()).collect();
    assert_eq!(figures, [300, 21, 90, 60]);
    assert!(usage["cost_usd"].as_f64().unwrap() > 0.0);
    let calls = result["tool_calls"].as_array().unwrap();
    assert_eq!(keys(&calls[0]), ["id", "name", "arguments", "status", "result_preview"]);
    assert_eq!(calls[0]["arguments"], json!({"path": "f.txt"}));
    let ends: Vec<_> = calls.iter().map(|call| (call["name"].as_str(), call["status"].as_str())).collect();
    assert_eq!(ends, [(Some("view"), Some("done")), (Some("shell"), Some("failed"))]);
    stage.server.finish();
}

#[test]
fn json_lines_are_events_deltas_and_last_the_result() {
    let stage = Stage::new(looks_and_answers());
    let lines = stage.ask(&["--yolo", "--output", "jsonl", "look"]).ok().json_lines();
    let (result, events) = lines.split_last().unwrap();
    assert_eq!(result["type"], "result");
    assert_eq!(keys(result)[1..], RESULT);
    for line in &lines {
        assert_eq!(keys(line)[0], "type", "{line}");
        assert_eq!(line["thread_id"], result["thread_id"], "{line}");
    }
    let seen: BTreeSet<&str> = types(events).into_iter().collect();
    for kind in [
        "run_started",
        "turn_started",
        "step_started",
        "message_started",
        "thinking_delta",
        "text_delta",
        "message_finished",
        "tool_call_started",
        "tool_call_finished",
        "usage_recorded",
        "step_finished",
        "turn_finished",
        "run_finished",
    ] {
        assert!(seen.contains(kind), "no {kind} among {seen:?}");
    }
    let durable: Vec<u64> = events.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert!(durable.windows(2).all(|pair| pair[1] == pair[0] + 1) && durable.len() > 15, "{durable:?}");

    let answer = of_type(events, "message_finished").pop().unwrap();
    assert_eq!(joined(events, "text_delta", &answer["item_id"]), words());
    let first = of_type(events, "message_finished")[1];
    assert_eq!(joined(events, "thinking_delta", &first["item_id"]), "First a look.");
    for end in of_type(events, "tool_call_finished") {
        for field in ["tool_call_id", "name", "status", "result_preview"] {
            assert!(end[field].is_string(), "{end}");
        }
    }
    stage.server.finish();
}

/// J07: nothing but JSON on stdout, whatever else there is to say.
#[test]
fn noise_stays_away_from_stdout() {
    let mut stage = Stage::new(
        Script::new()
            .repeat(
                1,
                &Reply::tool_calls([(
                    "shell",
                    json!({"command": "printf 'a\\377\\000b\\n\\033[31mred\\n'; echo x >&2"}),
                )]),
            )
            .reply(Reply::text("said"))
            .reply(Reply::text("said")),
    );
    for (name, value) in [("RUST_LOG", "trace"), ("MCODE_LOG", "trace")] {
        stage.daemon.set(name, value);
    }
    stage.daemon.restart();
    let lines = stage.ask(&["-v", "--yolo", "--json", "hi"]).ok().json_lines();
    assert_eq!(lines.last().unwrap()["type"], "result");
    let end = of_type(&lines, "tool_call_finished")[0].to_string();
    assert!(end.contains("red") && !end.contains("\\u001b") && !end.contains("\\u0000"), "{end}");
    assert_eq!(stage.ask(&["-v", "hi"]).ok().stdout, "said\n");
    stage.server.finish();
}

/// Terminal sequences of the model do not reach a terminal's owner unasked, and colours only on request.
#[test]
fn text_is_plain_without_a_terminal() {
    let stage = Stage::new(
        Script::new().reply(Reply::tool_calls([("view", json!({"path": "f.txt"}))])).reply(Reply::text("plain")),
    );
    let output = stage.ask(&["hi"]).ok();
    assert_eq!(output.stdout, "plain\n");
    assert!(!output.stderr.contains('\u{1b}'), "{:?}", output.stderr);
    assert!(output.stderr.contains("view") && output.stderr.contains("f.txt"), "{:?}", output.stderr);
    stage.server.finish();
}
