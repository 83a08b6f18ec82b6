//! A message that is changed and said again, and the tree of what was forked.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Stage, text};

fn echo() -> Stage {
    Stage::new(
        Script::new().fallback(|request| {
            Reply::text(format!("so {}", request.last_user_text().lines().last().unwrap_or_default()))
        }),
    )
}

/// The events of what the user said.
fn said(stage: &Stage, thread: &str) -> Vec<u64> {
    let events = stage.json(&["threads", "show", thread])["events"].clone();
    let user = |event: &&Value| event["type"] == "message_finished" && event["role"] == "user";
    events.as_array().unwrap().iter().filter(user).map(|event| event["seq"].as_u64().unwrap()).collect()
}

fn last_request(stage: &Stage) -> String {
    serde_json::to_string(stage.server.requests().last().unwrap().messages()).unwrap()
}

#[test]
fn what_was_said_is_said_again_in_one_step() {
    let stage = echo();
    let thread = text(&stage.ask(&["--output", "json", "plant a tree"]).ok().json()["thread_id"]);
    stage.ask(&["-t", &thread, "make it an oak"]).ok();
    let answer = stage.mcode(&["threads", "resend", &thread, "make", "it a birch"]).ok();
    assert_eq!(answer.stdout, "so make it a birch\n");
    let request = last_request(&stage);
    assert!(request.contains("plant a tree") && request.contains("birch") && !request.contains("oak"), "{request}");
    // An earlier one, by its event, from stdin, in a fork, as a script asks for it.
    let first = said(&stage, &thread)[0].to_string();
    let words = ["threads", "resend", &thread, "--at", &first, "--fork", "--title", "bushes", "--output", "json"];
    let value = stage.daemon.mcode_with(&stage.workspace.path(), &words, b"plant a bush").ok().json();
    assert_eq!(
        (&value["text"], &value["status"], &value["exit_code"]),
        (&json!("so plant a bush"), &json!("done"), &json!(0))
    );
    let fork = text(&value["thread_id"]);
    assert_ne!(fork, thread);
    assert!(!last_request(&stage).contains("tree"), "{}", last_request(&stage));
    let shown = stage.json(&["threads", "show", &fork]);
    assert_eq!((&shown["thread"]["title"], &shown["thread"]["parent_thread_id"]), (&json!("bushes"), &json!(thread)));
    // Everything of `ask` that is about a run is there.
    let detached =
        stage.mcode(&["threads", "resend", &thread, "--mode", "plan", "--detach", "--output", "json", "a plan"]).ok();
    let run = text(&detached.json()["run_id"]);
    stage.events(&thread);
    assert_eq!(stage.run(&run)["mode"], "plan");
}

#[test]
fn what_can_not_be_said_again_is_told() {
    let stage = echo();
    let thread = text(&stage.ask(&["--output", "json", "plant a tree"]).ok().json()["thread_id"]);
    let last = &stage.json(&["threads", "show", &thread])["thread"]["last_seq"];
    for words in [&["--at", "9999", "x"][..], &["--at", "1", "x"], &["x", "--title", "y"], &[]] {
        let refused = stage.mcode(&[&["threads", "resend", &thread], words].concat());
        assert!(refused.code == 2 && !refused.stderr.is_empty(), "{words:?}: {refused:#?}");
    }
    let result = stage.mcode(&["threads", "resend", &thread, "--at", "9999", "x", "--output", "json"]);
    assert_eq!((result.code, &result.json()["exit_code"]), (2, &json!(2)), "{result:#?}");
    assert_eq!(&stage.json(&["threads", "show", &thread])["thread"]["last_seq"], last, "nothing was taken back");
}

#[test]
fn forks_are_shown_under_what_they_left() {
    let stage = echo();
    let thread = text(&stage.ask(&["--output", "json", "plant a tree"]).ok().json()["thread_id"]);
    stage.ask(&["-t", &thread, "make it an oak"]).ok();
    let second = said(&stage, &thread)[1].to_string();
    let words = ["threads", "resend", &thread, "--at", &second, "--fork", "a birch", "--output", "json"];
    let fork = text(&stage.mcode(&words).ok().json()["thread_id"]);
    let below = text(&stage.json(&["threads", "fork", &fork])["thread_id"]);
    let other = text(&stage.ask(&["--output", "json", "something else"]).ok().json()["thread_id"]);
    let nodes = |words: &[&str]| {
        let mut shown = Vec::new();
        let mut token = String::new();
        loop {
            let value = stage.json(&[&["threads", "tree", "--limit", "2", "--page-token", &token], words].concat());
            let node = |node: &Value| (text(&node["thread"]["thread_id"]), node["depth"].as_u64().unwrap_or(0));
            shown.extend(value["nodes"].as_array().unwrap().iter().map(node));
            token = text(&value["next_page_token"]);
            if token.is_empty() {
                return shown;
            }
        }
    };
    let family = vec![(thread.clone(), 0), (fork.clone(), 1), (below.clone(), 2)];
    assert_eq!(nodes(&[]), [vec![(other, 0)], family.clone()].concat());
    assert_eq!(nodes(&[&below]), family);
    let shown = stage.mcode(&["threads", "tree", "latest"]).ok().stdout;
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let shown = stage.mcode(&["threads", "tree", &fork]).ok().stdout;
    let left = stage.json(&["threads", "show", &fork])["thread"]["parent_seq"].to_string();
    assert!(shown.contains(&format!("└ {fork}")) && shown.contains(&format!("event {left}")), "{shown}");
    assert!(shown.contains(&format!("  └ {below}")), "{shown}");
    // What is gone leaves its forks at the top.
    stage.mcode(&["threads", "delete", &thread, "--yes"]).ok();
    assert_eq!(nodes(&[&below]), [(fork, 0), (below, 1)]);
    assert_eq!(stage.mcode(&["threads", "tree", &thread]).code, 2);
}

/// What the README shows a shell to do is done by one, word for word.
#[test]
fn the_shell_of_the_readme_does_what_it_says() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let block = blocks.into_iter().find(|block| block.contains("field()")).expect("the README has the section");
    let stage = Stage::new(Script::new().fallback(|request| {
        if request.tool_results().is_empty() && request.last_user_text().contains("Run the tests") {
            Reply::tool_calls([("write", json!({"path": "made.txt", "content": "by the agent"}))])
        } else {
            Reply::text("said")
        }
    }));
    stage.ask(&["--approve", "all", "Run the tests"]).ok();
    assert!(stage.exists("made.txt"));
    let mcode = stage.daemon.command(&stage.workspace.path(), &[]);
    let folder = std::path::Path::new(mcode.get_program()).parent().unwrap().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.env_clear().envs(mcode.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    shell.env("PATH", path).current_dir(stage.workspace.path());
    let output = shell.args(["-euc", block]).output().unwrap();
    let (told, fault) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{fault}");
    for part in [
        "said\n",
        "\"role\":\"user\"",
        "\"depth\": 1",
        "\"checkpoints\"",
        "made.txt",
        "\"action\": \"removed\"",
        "\"plans\": []",
    ] {
        assert!(told.contains(part), "{part}: {told}\n{fault}");
    }
    assert!(!stage.exists("made.txt"), "it was undone");
    assert!(stage.workspace.read("thread.md").contains("Run the tests"));
}
