//! What a run waits for outlives the daemon: the answer to an approval or a question, and the run itself where the daemon
//! can reach the model without its client.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Detached, OWN, Stage, of_type, text};

fn shell(command: &str) -> Reply {
    Reply::tool_calls([("shell", json!({"command": command}))])
}

/// The line that a call leaves each time it runs.
fn lines(stage: &Stage) -> usize {
    if stage.exists("made") { stage.workspace.read("made").lines().count() } else { 0 }
}

fn asked(stage: &Stage, model: &str, prompt: &str) -> (Detached, Value) {
    let run = stage.detach(&["-m", model, "--approve", "ask", prompt]);
    (run, stage.waiting("approvals"))
}

/// The run has one end of this status, and every call one result.
fn ended_once(stage: &Stage, run: &Detached, status: &str) -> Vec<Value> {
    let events = stage.events(&run.thread_id);
    let ends = of_type(&events, "run_finished");
    assert_eq!((ends.len(), &ends[0]["status"]), (1, &json!(status)), "{ends:#?}");
    assert_eq!(ends[0]["run_id"], *run.run_id);
    let (begun, ended) = (of_type(&events, "tool_call_started").len(), of_type(&events, "tool_call_finished").len());
    assert_eq!(begun, ended, "{events:#?}");
    assert_eq!(of_type(&events, "approval_requested").len(), of_type(&events, "approval_resolved").len());
    events
}

#[test]
fn an_approval_outlives_the_daemon_and_its_run_goes_on() {
    let script = Script::new()
        .reply(Reply::tool_calls([("shell", json!({"command": "echo x >> made"})), ("view", json!({"path": "f.txt"}))]))
        .reply(Reply::text("done"));
    let mut stage = Stage::reached_by_itself(script);
    let (run, before) = asked(&stage, OWN, "make it");
    for _ in 0..2 {
        stage.daemon.kill9();
        stage.daemon.restart();
        let after = stage.waiting("approvals");
        for field in ["approval_id", "deadline", "tool", "arguments", "preview", "run_id", "proposed_rule"] {
            assert_eq!(before[field], after[field], "{field}");
        }
        assert_eq!(stage.run(&run.run_id)["status"], "waiting");
    }
    assert_eq!(lines(&stage), 0);
    stage.mcode(&["approvals", "allow", &text(&before["approval_id"])]).ok();
    let events = ended_once(&stage, &run, "done");
    assert_eq!(lines(&stage), 1);
    assert_eq!(of_type(&events, "approval_resolved")[0]["outcome"], "allowed");
    assert_eq!(of_type(&events, "tool_call_begun").len(), 1);
    assert_eq!(of_type(&events, "run_resumed").len(), 2);
    let results = stage.server.request(2).tool_results();
    assert!(results[1].1.contains("two"), "what came after it was carried out too: {results:?}");
    stage.server.finish();
}

#[test]
fn certificates_that_only_the_client_names_are_no_reason_to_end() {
    let mut stage = Stage::reached_by_itself(Script::new().reply(shell("echo x >> made")).reply(Reply::text("done")));
    stage.daemon.set("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/../providers/tests/tls/ca.pem"));
    let (run, approval) = asked(&stage, OWN, "make it");
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"])]).ok();
    ended_once(&stage, &run, "done");
    assert_eq!(lines(&stage), 1);
    stage.server.finish();
}

#[test]
fn a_refusal_after_a_restart_reaches_the_model() {
    let mut stage =
        Stage::reached_by_itself(Script::new().reply(shell("echo x >> made")).reply(Reply::text("as you say")));
    let (run, approval) = asked(&stage, OWN, "make it");
    // An orderly end leaves it to the next daemon as well.
    stage.daemon.stop();
    stage.daemon.restart();
    stage.waiting("approvals");
    stage.mcode(&["approvals", "deny", &text(&approval["approval_id"]), "--reason", "not on a Monday"]).ok();
    ended_once(&stage, &run, "failed");
    assert_eq!((lines(&stage), &stage.run(&run.run_id)["exit_code"]), (0, &json!(4)));
    assert!(stage.server.request(2).tool_results()[0].1.contains("not on a Monday"));
    stage.server.finish();
}

/// The key was the client's: the answer is still carried out, once, and then the run says what to do.
#[test]
fn without_the_clients_key_the_call_is_carried_out_and_the_run_ends() {
    let mut stage = Stage::new(Script::new().reply(shell("echo x >> made")).reply(Reply::text("on")));
    let (run, approval) = asked(&stage, crate::setup::MESSAGES, "make it");
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.waiting("approvals");
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"])]).ok();
    let events = ended_once(&stage, &run, "interrupted");
    assert_eq!(lines(&stage), 1);
    let error = &of_type(&events, "run_finished")[0]["error"];
    assert!(text(&error["message"]).contains("environment of the client"), "{error}");
    assert!(text(&error["hint"]).contains(&format!("mcode ask --thread {} \"go on\"", run.thread_id)), "{error}");
    assert_eq!(of_type(&events, "tool_call_finished")[0]["status"], "done");
    assert_eq!(stage.ask(&["-t", &run.thread_id, "go on"]).ok().stdout, "on\n");
    assert!(stage.server.request(2).tool_results()[0].1.contains("[exit code 0]"));
    stage.server.finish();
}

/// What would happen is not what was shown any more, so the yes does not count for it.
#[test]
fn a_yes_is_for_what_was_shown() {
    let edit = json!({"path": "f.txt", "old_string": "one", "new_string": "1"});
    let mut stage =
        Stage::reached_by_itself(Script::new().reply(Reply::tool_calls([("edit", edit)])).reply(Reply::text("well")));
    stage.workspace.write("f.txt", "one\ntwo\n");
    let (run, approval) = asked(&stage, OWN, "edit it");
    stage.daemon.kill9();
    stage.workspace.write("f.txt", "zero\none\ntwo\n");
    stage.daemon.restart();
    stage.waiting("approvals");
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"])]).ok();
    ended_once(&stage, &run, "failed");
    assert_eq!(stage.workspace.read("f.txt"), "zero\none\ntwo\n");
}

#[test]
fn a_question_outlives_the_daemon() {
    let question = Reply::tool_calls([("ask_user", json!({"question": "which?", "options": ["a", "b"]}))]);
    let mut stage = Stage::reached_by_itself(Script::new().reply(question).reply(Reply::text("b it is")));
    let run = stage.detach(&["-m", OWN, "--approve", "ask", "ask me"]);
    let before = stage.waiting("questions");
    stage.daemon.kill9();
    stage.daemon.restart();
    let after = stage.waiting("questions");
    assert_eq!(before["question_id"], after["question_id"]);
    stage.mcode(&["approvals", "answer", &text(&after["question_id"]), "b"]).ok();
    let events = ended_once(&stage, &run, "done");
    assert_eq!(of_type(&events, "question_asked").len(), 1);
    assert!(stage.server.request(2).tool_results()[0].1.contains("The user answered:\nb"));
    stage.server.finish();
}

/// A run that waits for its command goes on as well, when the model can be asked without its client.
#[test]
fn a_run_goes_on_after_its_command() {
    let mut stage =
        Stage::reached_by_itself(Script::new().reply(shell(crate::setup::WAIT_FOR_GO)).reply(Reply::text("it went")));
    let run = stage.detach(&["-m", OWN, "--yolo", "work"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    let shown = || stage.json(&["threads", "show", &run.thread_id])["events"].to_string();
    stage.daemon.wait_until("its start is recorded", || shown().contains("process_started"));
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.go();
    let events = ended_once(&stage, &run, "done");
    assert!(events.iter().any(|event| event["type"] == "message_finished" && event["text"] == "it went"));
    assert!(stage.server.request(2).tool_results()[0].1.contains("went\n[exit code 0]"));
    stage.server.finish();
}

/// What is kept for the next daemon holds no secret of the client.
#[test]
fn nothing_secret_is_kept_for_the_next_daemon() {
    let stage = Stage::new(Script::new().reply(shell("echo x >> made")));
    let (run, _) = asked(&stage, crate::setup::MESSAGES, "make it");
    let data = stage.daemon.home().join("data");
    let kept: Vec<u8> =
        ["mcode.db", "mcode.db-wal"].iter().flat_map(|name| std::fs::read(data.join(name)).unwrap()).collect();
    let kept = String::from_utf8_lossy(&kept);
    assert!(kept.contains("own_access") && !kept.contains("test-key-anthropic"), "{}", run.thread_id);
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
}
