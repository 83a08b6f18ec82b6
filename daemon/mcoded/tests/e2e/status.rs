//! Every exit status, reached for real (interface.md section 3).

use mcode_testkit::{ModelServer, Reply, Script, TestDaemon, Workspace};
use serde_json::{Value, json};

use crate::setup::{Stage, ask_words, process_is_there};

fn failed(stage: &Stage, words: &[&str], code: i32) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--output", "json"]).collect();
    let output = stage.ask(&words);
    assert_eq!(output.code, code, "{output:#?}");
    assert!(!output.stderr.trim().is_empty(), "nothing on stderr");
    let result = output.json();
    assert_eq!(result["exit_code"], code);
    for field in ["kind", "reason", "message", "hint"] {
        assert!(result["error"].get(field).is_some(), "no {field}: {result}");
    }
    result
}

#[test]
fn a_failed_run_is_1_with_its_reason() {
    let stage = Stage::new(Script::new().repeat(3, &Reply::text("no JSON")));
    stage.workspace.write("s.json", r#"{"type": "object", "required": ["n"]}"#);
    let result = failed(&stage, &["--schema", "s.json", "count"], 1);
    assert_eq!((&result["status"], &result["error"]["reason"]), (&json!("failed"), &json!("ANSWER_SCHEMA")));
    stage.server.finish();
}

#[test]
fn slips_of_usage_are_2() {
    let stage = Stage::new(Script::new());
    for words in [
        &["--nonsense", "hi"][..],
        &["--schema", "missing.json", "hi"],
        &["--image", "f.txt", "hi"],
        &["--add-dir", "missing", "hi"],
        &["-t", "nope", "hi"],
        &[],
    ] {
        let result = failed(&stage, words, 2);
        assert!(result["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
    }
    assert_eq!(stage.json(&["threads", "list"])["threads"], json!([]));
    assert_eq!(stage.server.requests().len(), 0);
}

/// J06: a thread that is not there is named, and nothing is made.
#[test]
fn a_missing_thread_is_named() {
    let stage = Stage::new(Script::new());
    let missing = format!("thr_{}", "0".repeat(32));
    for id in ["nope", missing.as_str()] {
        let output = stage.ask(&["-t", id, "--json", "hi"]);
        assert_ne!(output.code, 0);
        let lines = output.json_lines();
        assert_eq!((lines.len(), &lines[0]["type"]), (1, &json!("result")), "{lines:?}");
        assert!(lines[0]["error"]["message"].as_str().unwrap().contains(id), "{lines:?}");
        assert!(output.stderr.contains(id));
    }
    assert_eq!(stage.json(&["threads", "list"])["threads"], json!([]));
    assert_eq!(stage.server.requests().len(), 0);
}

#[test]
fn a_model_that_nobody_has_is_3_and_starts_nothing() {
    let stage = Stage::new(Script::new());
    for model in ["nowhere/none", "no-provider"] {
        let result = failed(&stage, &["-m", model, "hi"], 3);
        assert!(result["error"]["message"].to_string().contains("provider"), "{result}");
    }
    assert_eq!(stage.json(&["threads", "list"])["threads"], json!([]));
    assert_eq!(stage.server.requests().len(), 0);
}

#[test]
fn a_broken_configuration_is_3_with_file_line_and_key() {
    let stage = Stage::configured(Script::new(), "approve = \"ask\"\nmodel = 5\n");
    let result = failed(&stage, &["hi"], 3);
    let message = result["error"].to_string();
    assert!(message.contains("config.toml:2") && message.contains("model"), "{message}");
    assert_eq!(stage.server.requests().len(), 0);
}

#[test]
fn a_refusal_that_nobody_could_lift_is_4() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": "touch made"}))]))
            .reply(Reply::text("I could not.")),
    );
    let result = failed(&stage, &["--approve", "ask", "make it"], 4);
    assert_eq!(result["error"]["kind"], "permission");
    assert_eq!(result["tool_calls"][0]["status"], "denied");
    assert!(!stage.exists("made"));
    assert!(stage.server.request(2).tool_results()[0].1.contains("Permission denied"));
    stage.server.finish();
}

/// J05: also when the model has nothing to say about it.
#[test]
fn a_refusal_without_words_is_4_too() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("view", json!({"path": "/etc/hostname"}))]))
            .reply(Reply::blocks([]))
            .allow_unused(),
    );
    let output = stage.ask(&["--json", "--approve", "ask", "what is it called"]);
    assert_eq!(output.code, 4, "{output:#?}");
    assert!(output.stderr.contains("view"), "{}", output.stderr);
    let last = output.json_lines().pop().unwrap();
    assert_eq!(last["error"]["reason"], "PERMISSION_DENIED");
    assert_eq!(last["tool_calls"][0]["status"], "denied");
}

/// J03: whatever goes wrong with the model is told, and is not 0.
#[test]
fn model_errors_are_5() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::status(401).message("invalid x-api-key"))
            .reply(Reply::status(400).message("prompt is too long: 300000 tokens > 200000 maximum")),
    );
    let result = failed(&stage, &["hi"], 5);
    assert_eq!(result["error"]["kind"], "model");
    let output = stage.ask(&["hi"]);
    assert_eq!((output.code, output.stdout.as_str()), (5, ""), "{output:#?}");
    assert!(output.stderr.contains("hint:"), "{}", output.stderr);
    stage.server.finish();
}

#[test]
fn a_model_server_that_is_not_there_is_5() {
    let mut stage = Stage::new(Script::new());
    stage.daemon.set("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
    let result = failed(&stage, &["hi"], 5);
    assert!(result["error"]["message"].as_str().unwrap().contains("127.0.0.1"), "{result}");
}

#[test]
fn no_daemon_is_6() {
    let daemon = TestDaemon::prepare();
    let output = daemon.mcode(&["--no-autostart", "ask", "hi", "--output", "json"]);
    assert_eq!((output.code, &output.json()["exit_code"]), (6, &json!(6)), "{output:#?}");
    assert!(output.stderr.contains(daemon.socket().to_str().unwrap()), "{}", output.stderr);
}

#[test]
fn limits_are_7_and_named() {
    let look = Reply::tool_calls([("view", json!({"path": "f.txt"}))]);
    let stage = Stage::new(Script::new().repeat(3, &look));
    for (flag, value, reason) in [
        ("--max-steps", "1", "STEP_LIMIT"),
        ("--max-tokens", "10", "TOKEN_LIMIT"),
        ("--max-cost", "0.000001", "COST_LIMIT"),
    ] {
        let result = failed(&stage, &[flag, value, "look"], 7);
        assert_eq!(result["error"]["reason"], reason);
        assert!(result["error"]["hint"].as_str().unwrap().contains(flag), "{result}");
    }
    stage.server.finish();
}

#[test]
fn a_timeout_is_124_and_leaves_nothing_running() {
    let stage = Stage::new(
        Script::new().reply(Reply::tool_calls([("shell", json!({"command": "echo $$ > pid; sleep 60 & wait"}))])),
    );
    let result = failed(&stage, &["--yolo", "--timeout", "1s", "wait"], 124);
    assert_eq!(result["error"]["kind"], "timeout");
    let pid = stage.workspace.read("pid");
    stage.daemon.wait_until("the command is gone", || !process_is_there(&pid));
    stage.server.finish();
}

#[test]
fn an_interrupt_is_130_and_cancels_the_run() {
    let stage = Stage::new(Script::new().reply(Reply::text("never ends").stall_after(40)));
    let words = ask_words(&["--output", "json", "talk"]);
    let running = stage.daemon.spawn_mcode(&stage.workspace.path(), &words);
    stage.server.wait_for_requests_blocking(1);
    running.interrupt();
    let output = running.output();
    assert_eq!((output.code, &output.json()["status"]), (130, &json!("cancelled")), "{output:#?}");
    stage.server.wait_until_blocking("the request is dropped", |server| server.open_connections() == 0);
    assert_eq!(stage.json(&["runs", "list", "--active"])["runs"], json!([]));
}

/// A client that merely disappears cancels nothing.
#[test]
fn a_killed_client_leaves_its_run_at_work() {
    let script = Script::new()
        .reply(Reply::tool_calls([("shell", json!({"command": crate::setup::WAIT_FOR_GO}))]))
        .reply(Reply::text("ended alone"));
    let stage = Stage::new(script);
    let mut running = stage.daemon.spawn_mcode(&stage.workspace.path(), &ask_words(&["--yolo", "work"]));
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    running.kill9();
    drop(running);
    let run = stage.json(&["runs", "list", "--active"])["runs"][0].clone();
    assert_eq!(run["status"], "running");
    stage.go();
    stage.events(run["thread_id"].as_str().unwrap());
    assert_eq!(stage.run(run["run_id"].as_str().unwrap())["status"], "done");
    stage.server.finish();
}

/// A daemon is started when none answers (and one only).
#[test]
fn ask_starts_the_daemon() {
    let server = ModelServer::start_blocking(Script::new().reply(Reply::text("hello")));
    let mut daemon = TestDaemon::prepare();
    daemon.use_server(&server);
    let workspace = Workspace::new();
    assert_eq!(daemon.mcode_in(&workspace.path(), &["ask", "hi"]).ok().stdout, "hello\n");
    let status = daemon.mcode(&["--no-autostart", "daemon", "status", "--output", "json"]).ok();
    assert!(status.json()["pid"].as_u64().is_some(), "{}", status.stdout);
    daemon.mcode(&["daemon", "stop"]).ok();
    daemon.wait_until("the daemon is gone", || !daemon.socket().exists());
    server.finish();
}
