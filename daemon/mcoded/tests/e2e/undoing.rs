//! What the agent did to files, seen and undone.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Stage, of_type, script, text};

fn shell(command: &str) -> Reply {
    Reply::tool_calls([("shell", json!({"command": command}))])
}

/// A repository with something staged, something stashed, and what git ignores.
fn repository(stage: &Stage) {
    let dir = stage.workspace.path();
    script(
        &dir,
        "git init -q . && git config user.name a && git config user.email a@b
         printf 'a\\n' > a.txt; printf 'c\\n' > c.txt; printf 'gone\\n' > gone.txt; printf '#!/bin/sh\\n' > run.sh; chmod 755 run.sh
         printf '.env\\nout/\\n' > .gitignore; git add . && git commit -qm one
         printf 'stashed\\n' > a.txt && git stash -q
         printf 'staged\\n' > staged.txt && git add staged.txt
         printf 'SECRET=1\\n' > .env; mkdir out data; printf '{}\\n' > out/data.jsonl; printf 'mine\\n' > data/mine.txt",
    );
}

/// What of git must not change.
fn of_git(stage: &Stage) -> String {
    script(
        &stage.workspace.path(),
        "cat .git/HEAD; git rev-parse HEAD; git for-each-ref; git stash list; git ls-files --stage; git diff --cached; sha256sum .env out/data.jsonl",
    )
}

fn files(stage: &Stage) -> String {
    script(
        &stage.workspace.path(),
        "find . -path ./.git -prune -o -print0 | sort -z | xargs -0 stat -c '%n %a %F'; cat a.txt c.txt 2>&1",
    )
}

fn checkpoints(stage: &Stage) -> Vec<Value> {
    stage.json(&["checkpoint", "list"])["checkpoints"].as_array().unwrap().clone()
}

/// Case F11, with everything else that may happen in a turn.
#[test]
fn f11_a_turn_is_undone_and_what_others_did_is_left_alone() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("edit", json!({"path": "a.txt", "old_string": "a", "new_string": "A"}))]))
            .reply(shell("printf 'b\\n' > b.txt; rm gone.txt; mv run.sh ran.sh; chmod 600 data/mine.txt; mkdir -p new/deep; ln -s ../a.txt new/deep/link"))
            .reply(Reply::text("done")),
    );
    repository(&stage);
    let (git, before) = (of_git(&stage), files(&stage));
    stage.ask(&["--yolo", "change things"]).ok();
    assert_ne!(files(&stage), before);
    let listed = checkpoints(&stage);
    let by_agent: Vec<&Value> = listed.iter().filter(|it| !text(&it["tool_call_id"]).is_empty()).collect();
    assert_eq!(by_agent.len(), 2, "one for each call that changed something: {listed:#?}");
    let diff = stage.mcode(&["checkpoint", "diff"]).ok().stdout;
    for part in ["-a\n+A", "b.txt", "gone.txt", "ran.sh"] {
        assert!(diff.contains(part), "{part} is missing in: {diff}");
    }
    // The user's editor, after the turn.
    stage.workspace.write("c.txt", "mine now\n");
    stage.workspace.write("later.txt", "also mine\n");
    let would = stage.mcode(&["checkpoint", "restore", "--dry-run"]).ok().stdout;
    assert!(would.contains("would be created gone.txt"), "{would}");
    stage.mcode(&["checkpoint", "restore"]).ok();
    assert_eq!(stage.workspace.read("c.txt"), "mine now\n");
    assert_eq!(stage.workspace.read("later.txt"), "also mine\n");
    stage.workspace.write("c.txt", "c\n");
    std::fs::remove_file(stage.workspace.join("later.txt")).unwrap();
    assert_eq!(files(&stage), before);
    assert_eq!(of_git(&stage), git);
    let thread = stage.json(&["threads", "show", "latest"]);
    assert_eq!(of_type(thread["events"].as_array().unwrap(), "files_restored").len(), 1);
}

#[test]
fn a_file_that_was_changed_since_is_left_alone_unless_it_is_forced() {
    let stage = Stage::new(
        Script::new().reply(shell("printf 'agent\\n' > a.txt; printf 'agent\\n' > b.txt")).reply(Reply::text("done")),
    );
    repository(&stage);
    stage.ask(&["--yolo", "change things"]).ok();
    stage.workspace.write("a.txt", "mine\n");
    let left = stage.mcode(&["checkpoint", "restore"]);
    assert!(left.code == 1 && left.stderr.contains("a.txt: it was changed since"), "{left:#?}");
    assert_eq!(stage.workspace.read("a.txt"), "mine\n");
    assert!(!stage.exists("b.txt"));
    stage.mcode(&["checkpoint", "restore", "--force", "--file", "a.txt"]).ok();
    assert_eq!(stage.workspace.read("a.txt"), "a\n");
}

#[test]
fn single_files_and_hunks_are_brought_back() {
    let lines = |change: &str| {
        (1..=40)
            .map(|n| if [5, 30].contains(&n) { format!("{change}{n}\n") } else { format!("{n}\n") })
            .collect::<String>()
    };
    let stage = Stage::new(
        Script::new()
            .reply(shell("sed -i -e 's/^5$/x5/' -e 's/^30$/x30/' long.txt; echo more >> c.txt"))
            .reply(Reply::text("done")),
    );
    repository(&stage);
    stage.workspace.write("long.txt", lines(""));
    stage.ask(&["--yolo", "change things"]).ok();
    assert_eq!(stage.workspace.read("long.txt"), lines("x"));
    stage.mcode(&["checkpoint", "restore", "--file", "long.txt", "--hunk", "2"]).ok();
    assert_eq!(stage.workspace.read("long.txt"), lines("x").replace("x30", "30"));
    assert_eq!(stage.workspace.read("c.txt"), "c\nmore\n");
    stage.mcode(&["checkpoint", "restore", "--file", "c.txt"]).ok();
    assert_eq!(stage.workspace.read("c.txt"), "c\n");
    let refused = stage.mcode(&["checkpoint", "restore", "--file", "nowhere.txt"]);
    assert!(refused.code != 0 && refused.stderr.contains("nowhere.txt"), "{refused:#?}");
}

/// The model is told what somebody else did to what it has seen, once, and what it has not seen is not its business.
#[test]
fn the_model_is_told_what_others_changed() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([
                ("view", json!({"path": "a.txt"})),
                ("write", json!({"path": "own.txt", "content": "x\n"})),
            ]))
            .reply(Reply::text("seen"))
            .reply(Reply::text("well"))
            .reply(Reply::text("well")),
    );
    repository(&stage);
    stage.ask(&["--yolo", "look"]).ok();
    stage.workspace.write("a.txt", "other\n");
    stage.workspace.write("c.txt", "other\n");
    stage.ask(&["-c", "--yolo", "and now?"]).ok();
    stage.ask(&["-c", "--yolo", "and now?"]).ok();
    let told: Vec<usize> = stage
        .server
        .requests()
        .iter()
        .map(|request| {
            serde_json::to_string(request.messages()).unwrap().matches("Somebody else has changed files").count()
        })
        .collect();
    let last = serde_json::to_string(stage.server.requests().last().unwrap().messages()).unwrap();
    assert_eq!(told.last(), Some(&1), "{told:?}");
    let word = &last[last.find("Somebody else").unwrap()..][..120];
    assert!(word.contains("a.txt") && !word.contains("c.txt") && !word.contains("own.txt"), "{word}");
}

/// What others change while a turn is at work is told between its steps, without a call that would have to be looked at.
#[cfg(target_os = "linux")]
#[test]
fn the_model_is_told_of_changes_while_it_works() {
    const STEPS_MAX: usize = 60;
    let file: Arc<OnceLock<PathBuf>> = Arc::default();
    let shared = Arc::clone(&file);
    let stage = Stage::new(Script::new().fallback(move |request| {
        let steps = request.messages().len() / 2;
        let said = serde_json::to_string(request.messages()).unwrap();
        if said.contains("Somebody else has changed files that you have seen: a.txt.") {
            return Reply::text("told");
        }
        if steps == STEPS_MAX {
            return Reply::text("never told");
        }
        if let Some(file) = shared.get().filter(|_| steps > 1) {
            std::fs::write(file, format!("other {steps}\n")).unwrap();
        }
        Reply::tool_calls([("view", json!({"path": if steps == 0 { "a.txt" } else { "c.txt" }, "limit": steps + 1}))])
    }));
    repository(&stage);
    file.set(stage.workspace.join("a.txt")).unwrap();
    assert_eq!(stage.ask(&["--yolo", "look"]).ok().stdout, "told\n");
}

/// A thread that is gone on with in another work tree: what it did there is undone there, and the first is left alone.
#[test]
fn what_was_done_in_another_work_tree_is_undone_there() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::text("here"))
            .reply(shell("echo agent > new.txt"))
            .reply(Reply::text("done"))
            .reply(shell("true"))
            .reply(Reply::text("done")),
    );
    repository(&stage);
    let other = stage.daemon.home().join("other");
    stage.workspace.git(&["worktree", "add", "-q", &other.to_string_lossy()]);
    let thread = text(&stage.ask(&["--output", "json", "look"]).ok().json()["thread_id"]);
    stage.daemon.mcode_in(&other, &["ask", "-t", &thread, "--yolo", "do it"]).ok();
    assert_eq!(std::fs::read_to_string(other.join("new.txt")).unwrap(), "agent\n");
    stage.workspace.write("new.txt", "the user's own\n");
    stage.ask(&["-t", &thread, "--yolo", "and here?"]).ok();
    stage.mcode(&["checkpoint", "restore", "-t", &thread]).ok();
    assert_eq!(stage.workspace.read("new.txt"), "the user's own\n");
    assert!(!other.join("new.txt").exists());
}

#[test]
fn tools_bring_nothing_back() {
    let stage = Stage::new(
        Script::new()
            .reply(shell("echo x > a.txt"))
            .reply(shell("mcode checkpoint restore; echo code $?"))
            .reply(Reply::text("done")),
    );
    repository(&stage);
    stage.ask(&["--yolo", "try it"]).ok();
    assert_eq!(stage.workspace.read("a.txt"), "x\n");
}

/// Looks at the files cost no request and no log where nothing changes.
#[test]
fn a_turn_that_changes_nothing_leaves_no_checkpoint() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("view", json!({"path": "f.txt"}))]))
            .reply(Reply::text("ok"))
            .reply(Reply::text("ok")),
    );
    stage.ask(&["look"]).ok();
    stage.ask(&["-c", "again"]).ok();
    let thread = stage.json(&["threads", "show", "latest"]);
    let taken = of_type(thread["events"].as_array().unwrap(), "checkpoint_taken").len();
    assert!(taken <= 1, "{taken}");
    let refused = stage.mcode(&["checkpoint", "restore"]);
    assert!(refused.code == 2 && refused.stderr.contains("has changed a file"), "{refused:#?}");
}
