//! Deny rules hold for what a command starts, and what a command leaves behind to be run later is moved aside and told.

use std::path::{Path, PathBuf};

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Stage, WAIT_FOR_GO, of_type, script, text};

const DENYING: &str =
    "[permissions]\nallow = [\"shell\"]\ndeny = [\"view(secret)\", \"view(keys/**)\", \"edit(kept)\"]\n";

fn shell(command: &str) -> (&'static str, Value) {
    ("shell", json!({"command": command}))
}

/// Whether this machine gives namespaces, by what the daemon says.
fn namespaces(stage: &Stage) -> bool {
    let mut found = Value::Null;
    stage.daemon.wait_until("the sandbox was tried out", || {
        found = stage.json(&["daemon", "status"])["sandbox"].clone();
        !found.is_null()
    });
    text(&found["strength"]).contains("+namespaces")
}

#[test]
fn a_script_and_make_get_nothing_that_a_rule_denies() {
    let calls = [
        shell("sh x.sh"),
        shell("make -s"),
        ("view", json!({"path": "other"})),
        ("grep", json!({"pattern": "S3CR3T"})),
        ("edit", json!({"path": "kept-too", "old": "mine", "new": "theirs"})),
    ];
    let stage = Stage::configured(Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("no")), DENYING);
    for (name, content) in [
        ("secret", "S3CR3T\n"),
        ("keys/k", "S3CR3T\n"),
        ("kept", "mine\n"),
        ("x.sh", "cat secret keys/k other; echo x >> kept; echo x >> kept-too\n"),
        ("Makefile", "all:\n\t@cat secret other\n"),
    ] {
        stage.workspace.write(name, content);
    }
    script(&stage.workspace.path(), "ln secret other; ln kept kept-too");
    let held = namespaces(&stage);
    let result = stage.ask(&["--yolo", "--output", "json", "look"]).json();
    let sent = stage.server.requests().iter().any(|request| request.body["messages"].to_string().contains("S3CR3T\\n"));
    assert!(!sent, "{result:#}");
    let ends: Vec<&str> =
        result["tool_calls"].as_array().unwrap().iter().map(|call| call["status"].as_str().unwrap()).collect();
    assert_eq!((ends[2], ends[4]), ("denied", "denied"), "{result:#}");
    if held {
        assert_eq!(std::fs::read_to_string(stage.workspace.join("kept")).unwrap(), "mine\n");
    }
    stage.server.finish();
}

#[test]
fn what_the_kernel_holds_is_not_asked_about() {
    let stage = Stage::configured(Script::new(), DENYING);
    for name in ["secret", "kept", "keys/k"] {
        stage.workspace.write(name, "x\n");
    }
    let held = namespaces(&stage);
    let verdict = |words: &[&str]| {
        let words: Vec<&str> = ["permissions", "explain"].iter().chain(words).copied().collect();
        text(&stage.json(&words)["verdict"])
    };
    assert_eq!(verdict(&["shell", "cat $x"]), if held { "allow" } else { "ask" });
    assert_eq!(verdict(&["shell", "cat secret"]), "deny");
    let outside = json!({"command": "cat $x", "sandbox": "off"}).to_string();
    assert_eq!(verdict(&["shell", outside.as_str()]), "ask");
}

#[test]
fn what_a_command_plants_is_told_to_people() {
    let plant = "echo ../evil > .git/commondir";
    let stage = Stage::new(Script::new().reply(Reply::tool_calls([shell(plant)])).reply(Reply::text("done")));
    let output = stage.ask(&["--yolo", "plant it"]).ok();
    assert!(output.stderr.contains("moved aside to"), "{}", output.stderr);
    assert!(!stage.exists(".git/commondir"));
    let shown = stage.mcode(&["threads", "show", "latest"]).ok().stdout;
    assert!(shown.contains("moved aside to"), "{shown}");
    let log = stage.json(&["permissions", "log"]);
    let records = log["decisions"].as_array().unwrap_or_else(|| panic!("{log:#}"));
    let planted: Vec<&Value> = records.iter().filter(|record| record["kind"] == "planted").collect();
    assert!(planted.len() == 1 && planted[0].to_string().contains(".git/commondir"), "{log:#}");
    let told = stage.server.request(2).tool_results();
    assert!(told[0].1.contains("moved aside to"), "{told:?}");
    stage.server.finish();
}

#[test]
fn a_command_that_outlives_its_daemon_is_watched_by_the_next() {
    for crash in [true, false] {
        let command =
            format!("{WAIT_FOR_GO}; echo $TMPDIR > $TMPDIR/x && cp $TMPDIR/x there; echo ../evil > .git/commondir");
        let calls = [("shell", json!({"command": command, "background": true}))];
        let script = Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("done")).reply(Reply::text("oh"));
        let mut stage = Stage::new(script);
        let result = stage.ask(&["--yolo", "--output", "json", "plant it"]).ok().json();
        let thread = text(&result["thread_id"]);
        stage.daemon.wait_until("it has begun", || stage.exists("begun"));
        if crash {
            stage.daemon.kill9();
        }
        stage.daemon.restart();
        stage.go();
        stage.daemon.wait_until("people are told", || {
            let shown = stage.json(&["threads", "show", &thread])["events"].clone();
            let notices = of_type(shown.as_array().unwrap(), "notice");
            notices.iter().any(|notice| notice.to_string().contains("moved aside to"))
        });
        assert!(!stage.exists(".git/commondir") && stage.exists("there"), "crash {crash}");
    }
}

/// The records of watches below a folder.
fn records(folder: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> = folder.read_dir().into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    if folder.ends_with("watches") {
        return entries;
    }
    entries.iter().filter(|path| path.is_dir() && !path.is_symlink()).flat_map(|path| records(path)).collect()
}

#[test]
fn a_record_that_the_next_daemon_can_not_read_is_told() {
    let calls = [("shell", json!({"command": WAIT_FOR_GO, "background": true}))];
    let script = Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("done")).reply(Reply::text("oh"));
    let mut stage = Stage::new(script);
    let result = stage.ask(&["--yolo", "--output", "json", "wait"]).ok().json();
    let thread = text(&result["thread_id"]);
    stage.daemon.wait_until("it has begun", || stage.exists("begun"));
    stage.daemon.kill9();
    let found = records(&stage.daemon.home());
    let [record] = found.as_slice() else { panic!("{found:?}") };
    std::fs::write(record, "{\"roots\": 5").unwrap();
    stage.daemon.restart();
    stage.daemon.wait_until("people are told", || {
        let shown = stage.json(&["threads", "show", &thread])["events"].clone();
        let notices = of_type(shown.as_array().unwrap(), "notice");
        notices.iter().any(|notice| notice.to_string().contains("was started by an earlier daemon"))
    });
    assert!(!record.exists());
    stage.go();
}
