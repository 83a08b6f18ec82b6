//! Who answers approvals, for how long that counts, and who may not.

use std::process::Stdio;

use mcode_testkit::daemon::program;
use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{MESSAGES, Stage, of_type, text};

/// What was given with answers.
fn grants(stage: &Stage) -> Vec<serde_json::Value> {
    let mut rules = stage.json(&["permissions", "list"])["rules"].as_array().unwrap().clone();
    rules.retain(|rule| rule["source"] == "grant");
    rules
}

fn run(command: &str) -> Reply {
    Reply::tool_calls([("shell", json!({"command": command}))])
}

/// `mcode` as a command of the model has to call it: the variables that say where the daemon is are kept from commands.
pub(crate) fn client(stage: &Stage) -> String {
    format!("{} --socket {}", program("mcode").display(), stage.daemon.socket().display())
}

#[test]
fn a_tool_call_answers_no_approval_and_changes_no_rules() {
    // Without the sandbox, which keeps commands from the socket altogether.
    let stage =
        Stage::configured(Script::new().reply(run("touch made")).allow_unused(), "[sandbox]\nenabled = false\n");
    let waits = stage.detach(&["--approve", "ask", "make it"]);
    let id = text(&stage.waiting("approvals")["approval_id"]);
    let mcode = client(&stage);
    let commands = [
        format!("{mcode} approvals allow {id}"),
        format!("env -u MCODE_TOOL_CALL_ID {mcode} approvals allow {id} --always"),
        format!("setsid -w {mcode} approvals allow {id}"),
        format!("env -i {mcode} approvals allow {id}"),
        format!("setsid -w env -i sh -c '{mcode} approvals allow {id}; echo tried'"),
        format!(
            "({mcode} approvals allow {id} > out 2>&1 &) ; while [ ! -s out ]; do sleep 0.02; done; cat out; false"
        ),
        format!("{mcode} permissions add allow shell"),
        format!("{mcode} permissions add allow shell --until 2h"),
        format!("{mcode} trust allow"),
        format!("{mcode} daemon stop --force"),
        format!("{mcode} daemon restart --force"),
        format!("{mcode} runs steer {} now", waits.run_id),
        format!("{mcode} threads resend {} other", waits.thread_id),
    ];
    stage.workspace.write(".mcode/config.toml", "model = \"a/b\"\n");
    let calls = commands.iter().map(|command| ("shell", json!({"command": command})));
    stage.server.push(Reply::tool_calls(calls));
    stage.server.push(Reply::text("they do not let me"));
    let result = stage.ask(&["--approve", "all", "--output", "json", "try"]).json();
    let requests = stage.server.requests();
    let told = requests.last().unwrap().tool_results();
    assert_eq!(told.len(), commands.len(), "{result:#}");
    for (command, (_, told, _)) in commands.iter().zip(&told) {
        assert!(told.contains("is for people"), "{command}: {told}");
    }
    assert!(!stage.exists("made"));
    assert_eq!(stage.waiting("approvals")["approval_id"], id);
    let rules = stage.json(&["permissions", "list"])["rules"].clone();
    assert!(rules.as_array().unwrap().iter().all(|rule| rule["source"] == "built-in"), "{rules:#}");
    assert_eq!(stage.json(&["trust", "status"])["trust"]["state"], "untrusted");
    let log = stage.json(&["permissions", "log"]);
    let refused: Vec<_> =
        log["decisions"].as_array().unwrap().iter().filter(|record| record["kind"] == "refused").collect();
    assert_eq!(refused.len(), commands.len());
    // A person may.
    stage.server.push(Reply::text("done"));
    stage.mcode(&["approvals", "allow", &id]).ok();
    stage.events(&waits.thread_id);
    assert!(stage.exists("made"));
}

#[test]
fn a_run_that_a_tool_call_starts_may_do_no_more_than_that_call() {
    let mut stage = Stage::new(Script::new());
    let base = stage.server.base_url(mcode_testkit::Wire::Anthropic);
    let mcode = client(&stage);
    let inner = format!("{mcode} ask --approve all -m {MESSAGES} --output json inner");
    stage.daemon.write_config(&format!(
        "[providers.anthropic]\nbase_url = \"{base}\"\napi_key = \"literal-key-of-the-test\"\n\
         [sandbox]\nenabled = false\n[permissions]\nallow = [\"shell({mcode} *)\"]\n"
    ));
    stage.daemon.restart();
    for reply in [run(&inner), run("touch nested"), Reply::text("inner end"), Reply::text("outer end")] {
        stage.server.push(reply);
    }
    let result = stage.ask(&["--approve", "ask", "--output", "json", "outer"]).json();
    assert_eq!(result["tool_calls"][0]["status"], "failed", "the inner run was refused and said so: {result:#}");
    assert!(!stage.exists("nested"));
    let (_, told, _) = stage.server.requests().last().unwrap().tool_results().pop().unwrap();
    assert!(told.contains("\"denied\""), "{told}");
}

#[test]
fn nothing_hangs_where_nobody_can_answer() {
    let stage = Stage::new(
        Script::new()
            .fallback(|request| match request.tool_results().is_empty() {
                true => run("touch made"),
                false => Reply::text("I could not"),
            })
            .allow_unused(),
    );
    let words = ["ask", "-m", MESSAGES, "--approve", "ask", "make it"];
    let mut null = stage.daemon.command(&stage.workspace.path(), &words);
    let output = null.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    // Standard input closed altogether.
    let line =
        format!("exec {} {} <&-", program("mcode").display(), "ask -m anthropic/claude-sonnet-5 --approve ask make");
    let mut closed = std::process::Command::new("sh");
    closed.args(["-c", &line]).current_dir(stage.workspace.path()).env_clear();
    for (name, value) in stage.daemon.command(&stage.workspace.path(), &words).get_envs() {
        closed.env(name, value.unwrap_or_default());
    }
    let output = closed.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(!stage.exists("made"));
}

#[test]
fn a_killed_daemon_leaves_what_it_asked_and_the_record_tells_one_question_and_one_answer() {
    let mut stage = Stage::new(Script::new().reply(run("touch made")).reply(Reply::text("done")));
    let first = stage.detach(&["--approve", "ask", "make it"]);
    let id = text(&stage.waiting("approvals")["approval_id"]);
    stage.daemon.kill9();
    stage.daemon.restart();
    assert_eq!(stage.waiting("approvals")["approval_id"], id);
    stage.mcode(&["approvals", "allow", &id]).ok();
    let events = stage.events(&first.thread_id);
    let resolved = of_type(&events, "approval_resolved");
    assert_eq!((resolved.len(), &resolved[0]["outcome"]), (1, &json!("allowed")), "{resolved:?}");
    assert!(stage.exists("made"));
    let late = stage.mcode(&["approvals", "deny", &id]);
    assert_eq!(late.code, 2, "{late:#?}");
    let log = stage.json(&["permissions", "log", "--thread", &first.thread_id]);
    let brief: Vec<(&str, &str)> = log["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|record| (record["kind"].as_str().unwrap(), record["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(brief, [("decided", "ask"), ("answered", "allowed")]);
    stage.mcode(&["permissions", "log", "--verify"]).ok();
    stage.ask(&["-t", &first.thread_id, "go on"]).ok();
    stage.server.finish();
}

#[test]
fn what_is_allowed_in_a_thread_counts_there_until_it_is_taken_back() {
    let stage = Stage::new(
        Script::new()
            .reply(run("touch one"))
            .reply(run("touch one"))
            .reply(Reply::text("done"))
            .fallback(|request| match request.tool_results().is_empty() {
                true => run("touch one"),
                false => Reply::text("end"),
            })
            .allow_unused(),
    );
    let first = stage.detach(&["--approve", "ask", "make it"]);
    let approval = stage.waiting("approvals");
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"]), "--for", "thread"]).ok();
    let events = stage.events(&first.thread_id);
    assert_eq!(of_type(&events, "approval_requested").len(), 1, "the second call did not ask");
    let rules = grants(&stage);
    assert_eq!((&rules[0]["source"], &rules[0]["thread_id"]), (&json!("grant"), &json!(first.thread_id)));
    let verdict = |words: &[&str]| {
        let all: Vec<&str> = ["permissions", "explain", "shell", "touch one"].iter().chain(words).copied().collect();
        text(&stage.json(&all)["verdict"])
    };
    assert_eq!((verdict(&["--thread", &first.thread_id]), verdict(&[])), ("allow".into(), "ask".into()));
    let grant = text(&rules[0]["grant_id"]);
    stage.mcode(&["permissions", "remove", "--grant", &grant]).ok();
    assert_eq!(verdict(&["--thread", &first.thread_id]), "ask");
    assert_eq!(stage.mcode(&["permissions", "remove", "--grant", &grant]).code, 2);
}

#[test]
fn what_is_given_for_a_project_or_for_a_while_ends_there() {
    let mut stage = Stage::new(Script::new());
    stage.mcode(&["permissions", "add", "allow", "shell(make *)", "--for", "project"]).ok();
    stage.mcode(&["permissions", "add", "allow", "shell(ls *)", "--until", "2s"]).ok();
    let elsewhere = tempfile::tempdir().unwrap();
    let verdict = |stage: &Stage, dir: &std::path::Path, command: &str| {
        let words = ["permissions", "explain", "shell", command, "--output", "json"];
        text(&stage.daemon.mcode_in(dir, &words).ok().json()["verdict"])
    };
    let here = stage.workspace.path();
    assert_eq!(verdict(&stage, &here, "make all"), "allow");
    assert_eq!(verdict(&stage, elsewhere.path(), "make all"), "ask");
    // It outlives the daemon.
    stage.daemon.kill9();
    stage.daemon.restart();
    assert_eq!(verdict(&stage, &here, "make all"), "allow");
    stage.daemon.wait_until("the end of the grant", || verdict(&stage, &here, "ls") == "ask");
    assert_eq!(grants(&stage).len(), 1);
    let past = stage.mcode(&["permissions", "add", "allow", "shell(ls *)", "--until", "2001-01-01T00:00Z"]);
    assert_eq!(past.code, 2, "{past:#?}");
    let deny = stage.mcode(&["permissions", "add", "deny", "shell(ls *)", "--for", "project"]);
    assert_eq!(deny.code, 2, "{deny:#?}");
}

#[test]
fn the_machines_own_rules_hold_against_everything() {
    let machine = tempfile::tempdir().unwrap();
    let file = machine.path().join("managed.toml");
    std::fs::write(
        &file,
        "approve = \"ask\"\n[permissions]\ndeny = [\"shell(rm *)\"]\nask = [\"shell(git push *)\"]\n",
    )
    .unwrap();
    let mut stage = Stage::configured(Script::new(), "[permissions]\nallow = [\"shell\", \"shell(rm *)\"]\n");
    stage.daemon.set("MCODE_MANAGED", file.display().to_string());
    stage.daemon.restart();
    for reply in [
        Reply::tool_calls(["rm f.txt", "git push", "touch made"].map(|command| ("shell", json!({"command": command})))),
        Reply::text("end"),
    ] {
        stage.server.push(reply);
    }
    let result = stage.ask(&["--approve", "all", "--output", "json", "go"]).json();
    let ends: Vec<_> = result["tool_calls"].as_array().unwrap().iter().map(|call| call["status"].clone()).collect();
    assert_eq!(ends, ["denied", "denied", "done"], "{result:#}");
    assert_eq!(stage.mcode(&["permissions", "remove", "deny", "shell(rm *)"]).code, 2);
    let explained = stage.json(&["permissions", "explain", "shell", "rm x", "--approve", "all"]);
    assert_eq!(
        (&explained["verdict"], &explained["source"], &explained["approve"]),
        (&json!("deny"), &json!("managed"), &json!("ask"))
    );
    assert_eq!(explained["file"], file.display().to_string());
    // A file of the machine that is broken stops everything.
    std::fs::write(&file, "[permissions]\ndeny = 1\n").unwrap();
    stage.daemon.restart();
    let broken = stage.ask(&["hi"]);
    assert_eq!(broken.code, 3, "{broken:#?}");
    assert!(broken.stderr.contains("managed.toml:2"), "{broken:#?}");
}
