//! Who may allow what: approvals from another client, rules, modes.

use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{Stage, of_type, text};

fn makes(path: &str) -> Reply {
    Reply::tool_calls([("shell", json!({"command": format!("touch {path}")}))])
}

#[test]
fn another_client_sees_what_waits_and_allows_it() {
    let stage = Stage::new(Script::new().reply(makes("made")).reply(Reply::text("done")));
    let run = stage.detach(&["--approve", "ask", "make it"]);
    let approval = stage.waiting("approvals");
    assert_eq!(stage.run(&run.run_id)["status"], "waiting");
    assert_eq!(approval["tool"], "shell");
    assert_eq!(approval["arguments"], json!({"command": "touch made"}));
    assert!(text(&approval["preview"]).contains("touch made"));
    assert!(text(&approval["proposed_rule"]).starts_with("shell(touch"), "{approval}");
    for (field, expected) in [("thread_id", &run.thread_id), ("run_id", &run.run_id)] {
        assert_eq!(approval[field], **expected);
    }
    assert!(approval["asked_at"].is_string() && approval["deadline"].is_string());
    assert!(!stage.exists("made"));

    let id = text(&approval["approval_id"]);
    stage.mcode(&["approvals", "allow", &id]).ok();
    let events = stage.events(&run.thread_id);
    assert!(stage.exists("made"));
    assert_eq!(stage.run(&run.run_id)["status"], "done");
    assert_eq!(of_type(&events, "approval_requested")[0]["approval_id"], id);
    assert_eq!(of_type(&events, "approval_resolved")[0]["outcome"], "allowed");
    // The first answer counts.
    let late = stage.mcode(&["approvals", "deny", &id]);
    assert_ne!(late.code, 0, "{late:#?}");
    assert_eq!(stage.json(&["approvals", "list"])["approvals"], json!([]));
    stage.server.finish();
}

#[test]
fn a_refusal_reaches_the_model_with_its_reason() {
    let stage = Stage::new(Script::new().reply(makes("made")).reply(Reply::text("as you say")));
    let run = stage.detach(&["--approve", "ask", "make it"]);
    let id = text(&stage.waiting("approvals")["approval_id"]);
    stage.mcode(&["approvals", "deny", &id, "--reason", "not on a Monday"]).ok();
    stage.events(&run.thread_id);
    assert!(!stage.exists("made"));
    let results = stage.server.request(2).tool_results();
    assert!(results[0].1.contains("not on a Monday"), "{results:?}");
    assert_eq!(stage.run(&run.run_id)["exit_code"], 4);
    stage.server.finish();
}

#[test]
fn what_is_allowed_for_good_is_not_asked_again() {
    let stage = Stage::configured(
        Script::new().reply(makes("made")).reply(Reply::text("done")).reply(makes("made")).reply(Reply::text("again")),
        "# mine\n[permissions]\nask = [\"shell(git push *)\"]\n",
    );
    let run = stage.detach(&["--approve", "ask", "make it"]);
    let approval = stage.waiting("approvals");
    stage.mcode(&["approvals", "allow", "--for", "everywhere", &text(&approval["approval_id"])]).ok();
    stage.events(&run.thread_id);
    let config = std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    assert!(config.contains(&text(&approval["proposed_rule"])), "{config}");
    assert!(config.contains("# mine") && config.contains("git push"), "{config}");
    std::fs::remove_file(stage.workspace.join("made")).unwrap();
    assert_eq!(stage.ask(&["--approve", "ask", "make it again"]).ok().stdout, "again\n");
    assert!(stage.exists("made"));
    stage.server.finish();
}

#[test]
fn a_yes_counts_for_what_was_shown_and_not_against_a_rule_made_since() {
    let write = || Reply::tool_calls([("write", json!({"path": "a", "content": "models\n"}))]);
    let stage = Stage::configured(
        Script::new()
            .reply(write())
            .reply(Reply::text("not written"))
            .reply(makes("made"))
            .reply(Reply::text("not made")),
        "# mine\n",
    );
    stage.workspace.write("a", "old\n");
    let run = stage.detach(&["--approve", "ask", "write it"]);
    let approval = stage.waiting("approvals");
    stage.workspace.write("a", "what the user wrote meanwhile\n");
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"])]).ok();
    stage.events(&run.thread_id);
    assert_eq!(stage.workspace.read("a"), "what the user wrote meanwhile\n");
    let result = stage.server.request(2).tool_results().remove(0).1;
    assert!(result.contains("has changed since they were asked"), "{result}");
    let run = stage.detach(&["--approve", "ask", "make it"]);
    let approval = stage.waiting("approvals");
    stage.mcode(&["permissions", "add", "deny", "shell(touch *)"]).ok();
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"])]).ok();
    stage.events(&run.thread_id);
    assert!(!stage.exists("made"));
    let result = stage.server.request(4).tool_results().remove(0).1;
    assert!(result.contains("shell(touch *)") && result.contains("Nothing was run"), "{result}");
    stage.server.finish();
}

#[test]
fn a_yes_for_good_counts_in_its_project() {
    let stage = Stage::configured(
        Script::new()
            .reply(makes("made"))
            .reply(Reply::text("done"))
            .reply(makes("made"))
            .reply(Reply::text("again"))
            .reply(makes("made"))
            .reply(Reply::text("not here")),
        "# mine\n",
    );
    let run = stage.detach(&["--approve", "ask", "make it"]);
    let approval = stage.waiting("approvals");
    stage.mcode(&["approvals", "allow", "--always", &text(&approval["approval_id"])]).ok();
    stage.events(&run.thread_id);
    std::fs::remove_file(stage.workspace.join("made")).unwrap();
    assert_eq!(stage.ask(&["--approve", "ask", "make it again"]).ok().stdout, "again\n");
    assert!(stage.exists("made"));
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path().to_str().unwrap();
    stage.mcode(&["--cwd", folder, "ask", "--approve", "ask", "make it here"]);
    assert!(!elsewhere.path().join("made").exists(), "the same words may do something else in another project");
    stage.server.finish();
}

#[test]
fn deny_rules_hold_even_when_all_is_approved() {
    let stage = Stage::configured(
        Script::new()
            .reply(Reply::tool_calls([
                ("shell", json!({"command": "true && touch made"})),
                ("view", json!({"path": ".env"})),
                ("shell", json!({"command": "cat .env"})),
            ]))
            .reply(Reply::text("no")),
        "[permissions]\ndeny = [\"shell(touch *)\", \"view(**/.env)\"]\n",
    );
    stage.workspace.write(".env", "PASSWORD=hunter2\n");
    let output = stage.ask(&["--approve", "all", "make it"]);
    assert!(!stage.exists("made"));
    let results = stage.server.request(2).tool_results();
    assert!(results[0].1.contains("shell(touch *)"), "{results:?}");
    assert!(results[1].1.contains("view(**/.env)") && !results[1].1.contains("hunter2"), "{results:?}");
    assert!(output.code == 4 || output.code == 0, "{output:#?}");
    stage.server.finish();
}

#[test]
fn plan_and_explore_change_nothing() {
    for mode in ["plan", "explore"] {
        let calls = [
            ("edit", json!({"path": "f.txt", "old_string": "one", "new_string": "1"})),
            ("write", json!({"path": "g.txt", "content": "x"})),
            ("apply_patch", json!({"patch": "*** Begin Patch\n*** Add File: h.txt\n+x\n*** End Patch\n"})),
            ("shell", json!({"command": "echo x > i.txt"})),
            ("shell", json!({"command": "sh -c 'touch j.txt'"})),
            ("shell", json!({"command": "cat f.txt | tee k.txt"})),
            ("shell", json!({"command": "git commit --allow-empty -m x"})),
            ("shell", json!({"command": "find . -name f.txt -delete"})),
        ];
        let count = calls.len();
        let stage = Stage::new(
            Script::new()
                .reply(Reply::tool_calls([
                    ("view", json!({"path": "f.txt"})),
                    ("shell", json!({"command": "git status"})),
                ]))
                .reply(Reply::tool_calls(calls))
                .reply(Reply::text("a plan")),
        );
        let result = stage.ask(&["--mode", mode, "--yolo", "--output", "json", "plan it"]).json();
        let ends: Vec<&str> =
            result["tool_calls"].as_array().unwrap().iter().map(|call| call["status"].as_str().unwrap()).collect();
        assert_eq!(ends[..2], ["done", "done"], "{result:#}");
        assert_eq!(ends[2..], vec!["denied"; count], "{result:#}");
        assert_eq!(stage.workspace.git(&["status", "--porcelain"]), "");
        assert_eq!(stage.workspace.git(&["rev-list", "--count", "HEAD"]), "1\n");
        stage.server.finish();
    }
}
