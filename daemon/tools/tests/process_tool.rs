//! The `process`, `ask_user` and `tasks` tools.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod stage;

use std::sync::Arc;
use std::time::Duration;

use mcode_env::{IdGen, SystemIds};
use mcode_events::tool::{TaskItem, TaskStatus};
use mcode_ids::ThreadId;
use mcode_permissions::access::{Access, Below};
use mcode_sandbox::shell_for;
use mcode_testkit::{nap, sleeping};
use mcode_tools::ask::AskTool;
use mcode_tools::shell::{LIVE_MAX, ShellTool};
use mcode_tools::tasks::TasksTool;
use mcode_tools::{AskOutcome, Tool};
use serde_json::json;
use stage::{Stage, wait_until};

async fn background(stage: &Stage, command: &str) -> String {
    let out = stage.shell(json!({"command": command, "background": true})).await;
    out.text.split(' ').find(|word| word.starts_with("prc_")).unwrap().to_owned()
}

#[tokio::test]
async fn a_background_command_is_fed_read_and_ends_with_a_notice() {
    let stage = Stage::new();
    let id = background(&stage, "while read line; do echo \"got $line\"; done; exit 4").await;
    let out = stage.process(json!({"action": "write", "id": id, "input": "a\n"})).await;
    assert_eq!(out.text, format!("Wrote 2 bytes to {id}."));
    let out = stage.process(json!({"action": "poll", "id": id, "wait_s": 10})).await;
    assert!(out.text.starts_with("got a\n[running for "), "{}", out.text);
    let out = stage.process(json!({"action": "poll", "id": id})).await;
    assert!(out.text.starts_with("(no new output)\n[running"), "{}", out.text);
    stage.process(json!({"action": "write", "id": id, "input": "b\n\u{4}"})).await;
    wait_until("the end", || !stage.port.exited().is_empty()).await;
    let out = stage.process(json!({"action": "poll", "id": id, "wait_s": 10})).await;
    assert!(out.text.starts_with("got b\n[exit code 4 after "), "{}", out.text);
    assert_eq!(out.code, Some(4));
    let notice = stage.port.exited()[0].notice.clone().unwrap();
    assert!(notice.contains("exit code 4") && notice.contains("got a\ngot b"), "{notice}");
    let error = stage.try_process(json!({"action": "write", "id": id, "input": "c"})).await.unwrap_err();
    assert!(error.to_string().contains("takes no input"), "{error}");
    let out = stage.process(json!({"action": "kill", "id": id})).await;
    assert!(out.text.starts_with("It had already ended:"), "{}", out.text);
}

#[tokio::test]
async fn a_background_command_gets_a_terminal_that_is_typed_on() {
    let nap = nap();
    let stage = Stage::new();
    let error = stage.try_shell(json!({"command": "tty", "terminal": true})).await.unwrap_err().to_string();
    assert!(error.contains("background: true"), "{error}");
    let command =
        format!("test -t 0 && test -t 1 && stty size; stty -echo; read line; echo \"got $line\"; sleep {nap}; exit 9");
    let out = stage.shell(json!({"command": command, "background": true, "terminal": true})).await.text;
    let id = out.split(' ').find(|word| word.starts_with("prc_")).unwrap();
    let poll = stage.process(json!({"action": "poll", "id": id, "wait_s": 10})).await.text;
    assert!(poll.starts_with("50 200\n"), "{poll}");
    stage.process(json!({"action": "write", "id": id, "input": "it\n"})).await;
    wait_until("the sleep", || sleeping(&nap) == 1).await;
    let poll = stage.process(json!({"action": "poll", "id": id, "wait_s": 10})).await.text;
    assert!(poll.contains("got it\n"), "{poll}");
    // What Ctrl-C is on a terminal.
    stage.process(json!({"action": "write", "id": id, "input": "\u{3}"})).await;
    wait_until("the end", || !stage.port.exited().is_empty()).await;
    assert_eq!(sleeping(&nap), 0);
}

#[tokio::test]
async fn processes_are_listed_and_killed_and_belong_to_their_thread() {
    let nap = nap();
    let stage = Stage::new();
    assert_eq!(stage.process(json!({"action": "list"})).await.text, "No processes in this thread.");
    let id = background(&stage, &format!("sleep {nap} & sleep {nap}")).await;
    wait_until("both", || sleeping(&nap) == 2).await;
    let list = stage.process(json!({"action": "list"})).await.text;
    assert!(list.starts_with(&id) && list.contains("running for") && list.contains(&format!("sleep {nap}")), "{list}");
    let error = stage.try_process(json!({"action": "poll", "id": "prc_1"})).await.unwrap_err().to_string();
    assert!(error.contains("no process 'prc_1'") && error.contains(&id), "{error}");
    let out = stage.process(json!({"action": "kill", "id": id})).await;
    assert!(out.text.contains("killed: by the process tool"), "{}", out.text);
    assert_eq!(sleeping(&nap), 0);
    // The tool's result has said so; a notice would say it twice.
    assert_eq!(stage.port.exited()[0].notice, None);
}

#[tokio::test]
async fn a_command_that_takes_long_goes_on_in_the_background() {
    let stage = Stage::new();
    let tool = ShellTool::new(stage.hosts.clone(), shell_for("/usr/bin:/bin"), Arc::clone(&stage.table))
        .background_after(Duration::from_millis(300));
    let command = "echo early; while [ ! -e go ]; do sleep 0.02; done; echo late; exit 5";
    let out = stage.call(&tool, json!({"command": command})).await.unwrap();
    assert!(
        out.text.starts_with("early\n[it still runs after 0 s and goes on in the background as prc_"),
        "{}",
        out.text
    );
    assert_eq!((out.code, out.failed), (None, false));
    let id = out.text.split(' ').find(|word| word.starts_with("prc_")).unwrap();
    let poll = stage.process(json!({"action": "poll", "id": id})).await.text;
    assert!(poll.starts_with("(no new output)\n[running for "), "{poll}");
    let list = stage.process(json!({"action": "list"})).await.text;
    assert!(list.contains("s of CPU") && list.contains(" MB"), "{list}");
    std::fs::write(stage.context.cwd.join("go"), "").unwrap();
    wait_until("the end", || !stage.port.exited().is_empty()).await;
    let notice = stage.port.exited()[0].notice.clone().unwrap();
    assert!(notice.contains("exit code 5") && notice.contains("early\nlate"), "{notice}");
    let poll = stage.process(json!({"action": "poll", "id": id})).await.text;
    assert!(poll.starts_with("late\n[exit code 5 after "), "{poll}");
}

#[tokio::test]
async fn a_command_with_a_limit_of_its_own_is_waited_for() {
    let stage = Stage::new();
    let tool = ShellTool::new(stage.hosts.clone(), shell_for("/usr/bin:/bin"), Arc::clone(&stage.table))
        .background_after(Duration::from_millis(50));
    let out = stage.call(&tool, json!({"command": "sleep 0.4; echo done", "timeout_s": 30})).await.unwrap();
    assert_eq!((out.text.as_str(), out.code), ("done\n[exit code 0]", Some(0)));
}

#[tokio::test]
async fn closing_a_hundred_threads_leaves_nothing() {
    let nap = nap();
    let mut stage = Stage::new();
    let mut threads = Vec::new();
    for _ in 0..100 {
        stage.context.thread_id = ThreadId::from_uuid(SystemIds.next());
        threads.push(stage.context.thread_id);
        background(&stage, &format!("(setsid sleep {nap} &); sleep {nap} & sleep {nap}")).await;
    }
    wait_until("all of it", || sleeping(&nap) == 300).await;
    futures::future::join_all(threads.iter().map(|thread| stage.table.kill_thread(*thread))).await;
    assert_eq!((sleeping(&nap), stage.port.exited().len()), (0, 100));
}

#[tokio::test]
async fn the_number_of_processes_is_bounded() {
    let nap = nap();
    let stage = Stage::new();
    for _ in 0..LIVE_MAX {
        background(&stage, &format!("sleep {nap}")).await;
    }
    let error = stage.try_shell(json!({"command": "echo"})).await.unwrap_err().to_string();
    assert!(error.starts_with("32 processes of this thread still run"), "{error}");
    stage.table.kill_all().await;
    assert_eq!((sleeping(&nap), stage.port.exited().len()), (0, LIVE_MAX));
    assert_eq!(stage.shell(json!({"command": "echo"})).await.code, Some(0));
}

#[tokio::test]
async fn what_is_written_is_judged_as_a_command() {
    let stage = Stage::new();
    let id = background(&stage, "cat").await;
    let plan = |arguments| stage.process_tool().plan(&arguments, &stage.context).unwrap().access;
    assert_eq!(plan(json!({"action": "poll", "id": id})), [Access::Internal]);
    let written = plan(json!({"action": "write", "id": id, "input": "rm -rf /\n"}));
    assert_eq!(written[0], Access::Command { command: "rm -rf /\n".into(), cwd: stage.context.cwd.clone() });
    let named = Access::Mentioned { path: "/".into(), below: Below::Nothing, changes: true };
    assert_eq!(written[1..], [named], "what it names is judged too");
    stage.table.kill_all().await;
}

#[tokio::test]
async fn questions_are_answered_or_left() {
    let stage = Stage::new();
    let question = json!({"question": "Which?", "options": ["a", "b"]});
    let out = stage.call(&AskTool, question.clone()).await.unwrap();
    assert!(out.text.starts_with("Nobody is there to answer."), "{}", out.text);
    *stage.port.answer.lock().unwrap() = Some(AskOutcome::Answered("b".into()));
    assert_eq!(stage.call(&AskTool, question).await.unwrap().text, "The user answered:\nb");
    for (arguments, wanted) in [
        (json!({"question": " "}), "question: give"),
        (json!({"question": "a".repeat(4001)}), "question: at most 4000"),
        (json!({"question": "a", "options": vec!["x"; 21]}), "options: 21 are given"),
        (json!({"question": "a", "options": [""]}), "options[0]: give"),
    ] {
        let error = stage.call(&AskTool, arguments).await.unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[tokio::test]
async fn the_task_list_is_replaced() {
    let stage = Stage::new();
    let items = json!({"items": [{"content": "one", "status": "in_progress", "active_form": "Doing one"}, {"content": "two", "status": "in_progress"}]});
    let out = stage.call(&TasksTool, items).await.unwrap();
    assert_eq!(out.text, "[>] 1: one\n[>] 2: two\n[2 tasks are in_progress; keep only the one you are working on]\n");
    assert_eq!(
        stage.port.tasks.lock().unwrap()[0],
        TaskItem {
            id: "1".into(),
            content: "one".into(),
            status: TaskStatus::InProgress,
            active_form: Some("Doing one".into())
        }
    );
    assert_eq!(TasksTool.spec().name, "tasks");
    assert_eq!(stage.call(&TasksTool, json!({"items": []})).await.unwrap().text, "The task list is empty now.");
}
