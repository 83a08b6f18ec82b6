//! Threads made of what other agents have left.

use std::path::{Path, PathBuf};

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::importing::threads;
use crate::setup::{Stage, script, text};
use crate::wires;

const AGENTS: [&str; 4] = ["claude-code", "codex", "opencode", "mastra-code"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../histories/tests/fixtures").join(name)
}

/// Puts what each of the four has left into the home of the test's user.
fn left(stage: &Stage) {
    let home = stage.daemon.user_home();
    let put = |from: &str, to: &str| {
        let to = home.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let copy = format!("cp -r {} {}", fixture(from).display(), to.display());
        script(&home, &copy);
        assert!(to.exists(), "{copy}");
    };
    put("claude-code.jsonl", ".claude/projects/-home-me-app/5e551011-0000-4000-8000-000000000001.jsonl");
    let codex = "rollout-2026-01-05T10-00-00-0199a213-81c0-7800-8aa1-bbab2a035a53.jsonl";
    put("codex.jsonl", &format!(".codex/sessions/2026/01/05/{codex}"));
    put("codex-flat.jsonl", ".codex/sessions/rollout-2025-06-01T10-00-00-0198b213-81c0-7800-8aa1-bbab2a035a53.jsonl");
    put("opencode", ".local/share/opencode");
    put("mastra-code.sql", ".local/share/mastracode/made.sql");
    let make = "import sqlite3\nsqlite3.connect('mastra.db').executescript(open('made.sql').read())\n";
    let folder = home.join(".local/share/mastracode");
    std::fs::write(folder.join("make.py"), make).unwrap();
    assert_eq!(script(&folder, "python3 make.py 2>&1"), "");
}

fn listed(stage: &Stage, agent: &str) -> Vec<Value> {
    let list = stage.json(&["threads", "import", "--from", agent, "--list"]);
    list["histories"].as_array().unwrap().clone()
}

fn imports(stage: &Stage, words: &[&str]) -> Vec<Value> {
    let value = stage.json(&[&["threads", "import", "--from"], words].concat());
    value["imports"].as_array().unwrap().clone()
}

#[test]
fn what_each_agent_has_left_becomes_threads_that_every_wire_goes_on_with() {
    let stage = wires::stage(Script::new().fallback(|_| Reply::text("gone on")));
    left(&stage);
    let counts = [1, 2, 1, 2];
    for (agent, count) in AGENTS.iter().zip(counts) {
        let found = listed(&stage, agent);
        assert_eq!(found.len(), count, "{agent}: {found:#?}");
        assert!(found.iter().all(|it| it["thread_id"] == "" && it["maker"] == *agent), "{found:#?}");
        let done = imports(&stage, &[agent, "--all"]);
        assert_eq!(done.len(), count, "{agent}: {done:#?}");
        for (one, number) in done.iter().zip(1..) {
            assert_eq!((&one["number"], &one["total"]), (&json!(number), &json!(count)));
            let imported = &one["imported"];
            assert_eq!(imported["outcome"], "imported", "{one:#}");
            // Where it worked is not on this machine.
            assert_eq!((&imported["folder_is_here"], &imported["project"]), (&json!(false), &json!("imported")));
            let thread = text(&imported["thread"]["thread_id"]);
            let shown = stage.mcode(&["threads", "show", &thread]).ok().stdout;
            assert!(shown.contains("Imported from") && !shown.contains('\u{1b}'), "{shown}");
            for (wire, model) in wires::WIRES {
                let answer = stage.mcode(&["ask", "-t", &thread, "-m", model, "and now"]);
                assert_eq!(answer.stdout, "gone on\n", "{agent} over {wire:?}: {answer:?}");
            }
        }
        let known = listed(&stage, agent);
        assert!(known.iter().all(|it| it["thread_id"].as_str().unwrap().starts_with("thr_")), "{known:#?}");
    }
    assert_eq!(threads(&stage), 6);
    let hits = stage.json(&["threads", "search", "failing", "test"]);
    assert!(!hits["hits"].as_array().unwrap().is_empty(), "{hits}");
    // What others were paid for is not booked: only what was asked here.
    let usage = stage.json(&["usage", "--by", "thread"]);
    assert_eq!(usage["requests"], 6 * wires::WIRES.len(), "{usage}");
    let check = stage.mcode(&["doctor", "--db"]).ok();
    assert!(check.stdout.contains("all of it is whole"), "{check:?}");
    stage.server.finish();
}

#[test]
fn conversations_are_named_told_of_and_known_again() {
    let stage = Stage::new(Script::new().fallback(|_| Reply::text("gone on")));
    left(&stage);
    // Told in words on stderr; the threads on stdout.
    let told = stage.mcode(&["threads", "import", "--from", "claude-code", "5e55"]).ok();
    let thread = told.stdout.trim().to_owned();
    assert!(thread.starts_with("thr_") && !thread.contains('\n'), "{told:?}");
    for words in ["[1/1]", "imported", "left out: ", "is not here", "could not be read", "1 imported, 0 there already"]
    {
        assert!(told.stderr.contains(words), "{words}: {told:?}");
    }
    let again = stage.mcode(&["threads", "import", "--from", "claude-code", "--all"]).ok();
    assert!(again.stderr.contains(&format!("imported before, as {thread}: nothing was changed")), "{again:?}");
    assert!(again.stdout.is_empty() && again.stderr.contains("0 imported, 1 there already"), "{again:?}");
    assert_eq!(threads(&stage), 1);
    // It went on there.
    let path =
        stage.daemon.user_home().join(".claude/projects/-home-me-app/5e551011-0000-4000-8000-000000000001.jsonl");
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(listed(&stage, "claude-code")[0]["changed"], true);
    let grown = imports(&stage, &["claude-code", "--all"]);
    assert_eq!((&grown[0]["imported"]["outcome"], threads(&stage)), (&json!("changed"), 1), "{grown:#?}");
    let another = imports(&stage, &["claude-code", "--all", "--again"]);
    assert_eq!((&another[0]["imported"]["outcome"], threads(&stage)), (&json!("imported"), 2));
    assert_eq!(another[0]["imported"]["earlier_thread_id"], thread);
    // A page at a time.
    let page = stage.json(&["threads", "import", "--from", "codex", "--list", "--limit", "1"]);
    let next = text(&page["next_page_token"]);
    let rest = stage.json(&["threads", "import", "--from", "codex", "--list", "--page-token", &next]);
    assert_eq!((page["histories"].as_array().unwrap().len(), rest["histories"].as_array().unwrap().len()), (1, 1));
    assert_ne!(page["histories"][0]["id"], rest["histories"][0]["id"]);
    let table = stage.mcode(&["threads", "import", "--from", "claude-code", "--list"]).ok().stdout;
    assert!(table.contains("IMPORTED AS") && table.contains("thr_") && !table.contains('\u{1b}'), "{table}");
    stage.server.finish();
}

#[test]
fn what_is_not_there_or_can_not_be_read_is_told_and_keeps_nobody_from_the_rest() {
    let stage = Stage::new(Script::new());
    left(&stage);
    let refused = |words: &[&str], expected: &str| {
        let told = stage.mcode(&[&["threads", "import", "--from"], words].concat());
        assert_eq!(told.code, 2, "{told:?}");
        assert!(told.stderr.contains(expected), "{expected}: {told:?}");
    };
    refused(&["codex", "nobody"], "there is no history nobody of Codex");
    refused(&["codex", "nobody"], "--from AGENT --list");
    refused(&["codex", "019"], "more than one conversation of Codex begins with '019'");
    refused(&["codex"], "--list");
    refused(&["somebody", "--all"], "claude-code");
    // A path is no name: only what was found is read.
    refused(&["codex", "/etc/passwd"], "there is no history /etc/passwd");
    assert_eq!(threads(&stage), 0);
    // One that holds nothing beside others that do.
    let empty = ".codex/sessions/rollout-2026-02-01T10-00-00-0199ffff-81c0-7800-8aa1-bbab2a035a53.jsonl";
    std::fs::write(
        stage.daemon.user_home().join(empty),
        "{\"timestamp\":\"2026-01-05T10:00:00.000Z\",\"type\":\"x\"}\n",
    )
    .unwrap();
    let told = stage.mcode(&["threads", "import", "--from", "codex", "--all", "--output", "jsonl"]);
    assert_eq!(told.code, 1, "{told:?}");
    let lines = told.json_lines();
    let outcome = |line: &Value| (line["problem"] == "", line["imported"]["outcome"].clone());
    let mut outcomes: Vec<String> = lines.iter().map(|line| format!("{:?}", outcome(line))).collect();
    outcomes.sort();
    assert_eq!(lines.len(), 3, "{told:?}");
    assert!(told.stderr.contains("not imported: ") && told.stderr.contains("2 imported, 0 there already, 1 failed"));
    assert_eq!(threads(&stage), 2);
    // Nobody there at all.
    let none = Stage::new(Script::new());
    let list = none.mcode(&["threads", "import", "--from", "opencode", "--list"]).ok().stdout;
    assert!(list.contains("no conversations of opencode were found"), "{list}");
    assert_eq!(imports(&none, &["opencode", "--all"]).len(), 0);
    stage.server.finish();
}

#[test]
fn a_conversation_whose_folder_is_here_belongs_to_its_project() {
    let stage = Stage::new(Script::new().fallback(|_| Reply::text("gone on")));
    let cwd = stage.workspace.path().display().to_string();
    let folder = stage.daemon.user_home().join(".claude/projects/here");
    std::fs::create_dir_all(&folder).unwrap();
    let line = |kind: &str, uuid: &str, parent: Value, message: Value| {
        json!({"parentUuid": parent, "isSidechain": false, "cwd": cwd, "sessionId": "here", "version": "2.1.12",
               "type": kind, "uuid": uuid, "timestamp": "2026-01-05T10:00:01.000Z", "message": message})
        .to_string()
    };
    let question = line("user", "u1", Value::Null, json!({"role": "user", "content": "Where is it?"}));
    let calls = json!([{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "toolu_1", "name": "Bash",
                        "input": {"command": "ls"}}]);
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5",
                         "content": calls, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}});
    // It ends in the middle of a call.
    let answer = line("assistant", "a1", json!("u1"), message);
    std::fs::write(folder.join("here-1.jsonl"), format!("{question}\n{answer}\n")).unwrap();
    let done = imports(&stage, &["claude-code", "--all"]);
    let imported = &done[0]["imported"];
    assert_eq!((&imported["folder_is_here"], &imported["was_at_work"]), (&json!(true), &json!(true)), "{done:#?}");
    let thread = text(&imported["thread"]["thread_id"]);
    let here = stage.json(&["threads", "list", "--here"]);
    assert!(here.to_string().contains(&thread), "{here}");
    assert_eq!(stage.ask(&["-c", "and now"]).ok().stdout, "gone on\n");
    assert_eq!(stage.json(&["threads", "show", &thread])["thread"]["preview"], "and now");
    stage.server.finish();
}
