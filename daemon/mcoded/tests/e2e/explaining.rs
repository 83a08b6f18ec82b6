//! What `permissions explain` says is what a run decides.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Stage, text};

#[test]
fn what_is_explained_by_its_subject_is_what_a_run_decides() {
    let calls = [
        ("view", json!({"path": "f.txt"})),
        ("view", json!({"path": "/etc/hostname"})),
        // Beyond the sandbox, also for file tools.
        ("write", json!({"path": ".git/x", "content": "x\n"})),
    ];
    let stage = Stage::new(Script::new().reply(Reply::tool_calls(calls.clone())).reply(Reply::text("done")));
    stage.workspace.write("f.txt", "words\n");
    let explained = calls.map(|(tool, arguments)| {
        let explained = stage.json(&["permissions", "explain", tool, &text(&arguments["path"])]);
        (text(&explained["verdict"]), text(&explained["why"]))
    });
    stage.ask(&["--output", "json", "look"]);
    let log = stage.json(&["permissions", "log"]);
    let records = log["decisions"].as_array().unwrap().iter().filter(|record| record["kind"] == "decided");
    let mut decided: Vec<(String, String)> =
        records.map(|record: &Value| (text(&record["verdict"]), text(&record["why"]))).collect();
    decided.reverse();
    assert_eq!(decided, explained, "{log:#}");
    assert!(decided[2].1.contains("sandbox"), "{decided:?}");
}
