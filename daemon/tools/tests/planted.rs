//! What a command plants to be run outside its sandbox: moved aside and told, for as long as anything of it runs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use stage::{Stage, wait_until};

fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn staged() -> Stage {
    let stage = Stage::new();
    git(&stage.context.cwd, &["init", "-q"]);
    stage
}

fn aside(stage: &Stage) -> Vec<PathBuf> {
    let folder = stage.temp.path().join("t/aside").join(stage.context.thread_id.to_string());
    folder.read_dir().into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn what_a_command_plants_is_moved_aside_and_told() {
    let stage = staged();
    let cwd = stage.context.cwd.clone();
    let out = stage
        .shell(json!({"command": "echo ../evil > .git/commondir; git init -q sub; printf '[core]\\nfsmonitor = ./x\\n' >> sub/.git/config; \
                                  echo true > sub/.git/hooks/pre-commit; echo plain"}))
        .await;
    assert!(!cwd.join(".git/commondir").exists() && !cwd.join("sub/.git/hooks/pre-commit").exists(), "{}", out.text);
    assert!(out.text.contains("moved aside to") && out.text.contains("sub/.git/hooks/pre-commit"), "{}", out.text);
    let warned = stage.port.warned.lock().unwrap().clone();
    let [warning] = warned.as_slice() else { panic!("{warned:?}") };
    assert!(warning.moved && warning.subject.contains("commondir"), "{warning:?}");
    let moved = aside(&stage);
    assert_eq!(moved.len(), 3, "{moved:?}");
    let kept: Vec<String> = moved.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(kept.iter().any(|text| text == "../evil\n") && kept.iter().any(|text| text.contains("fsmonitor")));
    // Git goes on working in both.
    git(&cwd, &["status"]);
    let out = stage.shell(json!({"command": "git init -q more && git worktree list"})).await;
    assert!(!out.text.contains("while this ran"), "{}", out.text);
}

#[tokio::test]
async fn all_of_very_many_are_moved_and_some_are_named() {
    let stage = staged();
    let cwd = stage.context.cwd.clone();
    let script = "git init -q sub; for i in $(seq 25); do echo true > sub/.git/hooks/made-$i; done";
    let out = stage.shell(json!({"command": script})).await;
    assert!(out.text.contains("and 5 more") && out.text.matches("made-").count() == 20, "{}", out.text);
    let warned = stage.port.warned.lock().unwrap().clone();
    let [warning] = warned.as_slice() else { panic!("{warned:?}") };
    assert!(warning.text.contains("and 5 more") && warning.subject.contains("and 5 more"), "{warning:?}");
    assert_eq!(aside(&stage).len(), 25);
    let mut left = cwd.join("sub/.git/hooks").read_dir().unwrap().map(|it| it.unwrap().file_name());
    assert!(!left.any(|name| name.to_string_lossy().starts_with("made")));
}

#[tokio::test]
async fn that_not_all_could_be_looked_at_is_said_once() {
    let stage = staged();
    let out = stage.shell(json!({"command": "mkdir -p many; cd many; mkdir $(seq 2001)"})).await;
    assert!(out.text.contains("so much was made that not all of it could be looked at"), "{}", out.text);
    let warned = stage.port.warned.lock().unwrap().clone();
    let [warning] = warned.as_slice() else { panic!("{warned:?}") };
    assert!(warning.text.contains("so much was made") && !warning.moved, "{warning:?}");
    // It could not be looked at before the next one either.
    let out = stage.shell(json!({"command": "true"})).await;
    assert_eq!(out.text, "(no output)\n[exit code 0]");
}

#[tokio::test]
async fn a_command_in_the_background_is_watched_to_its_end() {
    let stage = staged();
    let cwd = stage.context.cwd.clone();
    let script = "while [ ! -e go ]; do sleep 0.01; done; echo ../evil > .git/commondir";
    stage.shell(json!({"command": script, "background": true})).await;
    std::fs::write(cwd.join("go"), "").unwrap();
    wait_until("its end", || !stage.port.exited().is_empty()).await;
    assert!(!cwd.join(".git/commondir").exists());
    assert_eq!(stage.port.warned.lock().unwrap().len(), 1);
    let notice = stage.port.exited()[0].notice.clone().unwrap();
    assert!(notice.contains("moved aside to"), "{notice}");
    // What goes on after the command itself is watched too, and a file is planted again.
    let script = "(while [ ! -e on ]; do sleep 0.01; done; echo ../evil > .git/commondir) >/dev/null 2>&1 & echo x > .git/commondir";
    let out = stage.shell(json!({"command": script})).await;
    assert!(out.text.contains("moved aside to"), "{}", out.text);
    std::fs::write(cwd.join("on"), "").unwrap();
    wait_until("its end", || stage.port.exited().len() == 2).await;
    assert!(!cwd.join(".git/commondir").exists());
    assert_eq!((stage.port.warned.lock().unwrap().len(), aside(&stage).len()), (3, 3));
}

#[tokio::test]
async fn what_settings_name_in_the_project_is_fixed_and_what_was_there_stays() {
    let stage = staged();
    let cwd = stage.context.cwd.clone();
    std::fs::create_dir(cwd.join(".hooks")).unwrap();
    std::fs::write(cwd.join(".hooks/pre-push"), "mine\n").unwrap();
    git(&cwd, &["config", "core.hooksPath", ".hooks"]);
    git(&cwd, &["config", "include.path", "../more"]);
    git(&cwd, &["config", "extensions.worktreeConfig", "true"]);
    let script = "echo x >> .hooks/pre-push; echo x > .hooks/pre-commit; echo '[core]' > more; echo '[core]' > .git/config.worktree; cat .hooks/pre-push";
    let out = stage.shell(json!({"command": script})).await;
    assert!(cwd.join(".hooks/pre-push").exists(), "{}", out.text);
    assert!(!cwd.join(".hooks/pre-commit").exists() && !cwd.join("more").exists(), "{}", out.text);
    if matches!(stage.bounds.strength().await, mcode_tools::bounds::Strength::Enforced { namespaces: true, .. }) {
        assert!(out.text.starts_with("/") || out.text.contains("mine"), "{}", out.text);
        assert_eq!(std::fs::read_to_string(cwd.join(".hooks/pre-push")).unwrap(), "mine\n");
        assert_eq!(std::fs::read_to_string(cwd.join(".git/config.worktree")).unwrap(), "");
    }
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let stage = staged();
    let cwd = stage.context.cwd.clone();
    git(&cwd, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one"]);
    git(&cwd, &["worktree", "add", "-q", "tree"]);
    let thread = stage.temp.path().join("t").join(stage.context.thread_id.to_string());
    let out = stage.shell(json!({"command": "echo $TMPDIR; ls -d $TMPDIR"})).await;
    assert!(out.text.starts_with(thread.to_str().unwrap()), "{}", out.text);
    wait_until("the folder to go", || !thread.exists()).await;
    assert!(!cwd.join(".git/worktrees/tree/hooks").exists());
    assert!(stage.temp.path().join("t/watches").read_dir().unwrap().next().is_none(), "a record is left");
    stage.shell(json!({"command": "echo x > $TMPDIR/kept"})).await;
    let out = stage.shell(json!({"command": "cat $TMPDIR/kept"})).await;
    assert!(out.text.starts_with("x\n"), "{}", out.text);
}
