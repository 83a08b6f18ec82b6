//! Runs that go round in circles, and a disk and a line that are slow to be read.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Stage, ask_words, of_type};

/// L05 at the front door: the same failing call is not repeated for ever.
#[test]
fn a_model_that_repeats_itself_is_stopped() {
    let stage = Stage::new(Script::new().fallback(|_| Reply::tool_calls([("view", json!({"path": "missing"}))])));
    let result = stage.ask(&["--output", "json", "look"]).json();
    assert_eq!((&result["error"]["reason"], &result["exit_code"]), (&json!("LOOP_DETECTED"), &json!(7)), "{result:#}");
    assert!(result["error"]["message"].as_str().unwrap().contains("view"));
    assert!(stage.server.requests().len() <= 10);
}

/// Bad arguments and tools that are not there are told to the model, which goes on.
#[test]
fn calls_that_make_no_sense_are_told_to_the_model() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::raw_tool_call("view", "{\"path\": "))
            .reply(Reply::tool_calls([("view", json!({"nothing": "f.txt"})), ("teleport", json!({}))]))
            .reply(Reply::text("sorry")),
    );
    assert_eq!(stage.ask(&["look"]).ok().stdout, "sorry\n");
    let requests = stage.server.requests();
    assert!(requests[1].tool_results()[0].1.contains("JSON"), "{:?}", requests[1].tool_results());
    let results = requests[2].tool_results();
    assert!(results[0].1.contains("path") && results[1].1.contains("teleport"), "{results:?}");
    stage.server.finish();
}

/// J09: a reader that is slow gets every line, and the client ends with its last one.
#[test]
fn a_slow_reader_gets_every_line() {
    let stage = Stage::new(Script::new().reply(Reply::deltas("0123456789", 20_000)));
    let mut command = stage.daemon.command(&stage.workspace.path(), &ask_words(&["--json", "talk"]));
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::with_capacity(64, child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    // The pipe is full and the run is over long before the rest is read.
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["type"], "thread_created");
    stage.daemon.wait_until("the run has ended", || stage.json(&["runs", "list"])["runs"][0]["status"] == "done");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let lines: Vec<Value> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["type"], last["text"].as_str().unwrap().len()), (&json!("result"), 200_000));
    stage.server.finish();
}

/// A reader that leaves ends the client and not the run.
#[test]
fn a_reader_that_leaves_ends_the_client_alone() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": crate::setup::WAIT_FOR_GO}))]))
            .reply(Reply::text("on")),
    );
    let mut command = stage.daemon.command(&stage.workspace.path(), &ask_words(&["--json", "--yolo", "talk"]));
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    stage.daemon.wait_until("the client has ended", || child.try_wait().unwrap().is_some());
    let run = stage.json(&["runs", "list", "--active"])["runs"][0].clone();
    stage.go();
    let events = stage.events(run["thread_id"].as_str().unwrap());
    assert_eq!(of_type(&events, "run_finished")[0]["status"], "done");
    stage.server.finish();
}

/// The day's budget refuses new runs, and says so.
#[test]
fn the_daily_budget_is_kept() {
    let stage = Stage::configured(Script::new().reply(Reply::text("one")), "[limits]\nmax_cost_per_day = 0.000001\n");
    stage.ask(&["hi"]).ok();
    let output = stage.ask(&["hi"]);
    assert_eq!(output.code, 7, "{output:#?}");
    assert!(output.stderr.contains("daily limit"), "{}", output.stderr);
    stage.server.finish();
}
