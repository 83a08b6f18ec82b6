//! `mcode ask` as a process: what reaches stdout and stderr, and the exit status.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(unreachable_pub, dead_code, reason = "shared with the tests of the client")]

#[path = "../../client/tests/scripted/mod.rs"]
mod scripted;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use mcode_proto::v1;
use mcode_proto::v1::event::Body;
use scripted::{RUN, Script, THREAD, call_finished, call_started, finished, said};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

const DEADLINE: Duration = Duration::from_secs(20);

fn mcode(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcode"));
    command
        .args(words)
        .current_dir(home)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("MCODE_HOME", home)
        .env("MCODE_SOCKET", home.join("sock"))
        .env("RUST_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn end(child: Child) -> Output {
    tokio::time::timeout(DEADLINE, child.wait_with_output()).await.expect("mcode did not end").unwrap()
}

/// Runs `mcode` against a daemon that plays `script`.
async fn play(script: &Script, words: &[&str]) -> (i32, String, String) {
    let home = tempfile::tempdir().unwrap();
    let _server = script.serve(&home.path().join("sock")).await;
    let output = end(mcode(home.path(), words).spawn().unwrap()).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn work() -> Vec<Body> {
    vec![
        said("I will look."),
        call_started("tc_1", "make"),
        call_finished("tc_1", "done", "exit 0"),
        said("It works.\u{1b}[31m"),
        finished("done", 0),
    ]
}

#[tokio::test]
async fn text_puts_the_answer_and_nothing_else_on_stdout() {
    let script = Script::run(work());
    let (code, stdout, stderr) = play(&script, &["ask", "do", "it"]).await;
    assert_eq!((code, stdout.as_str()), (0, "It works.\u{1b}[31m\n"));
    assert!(stderr.contains("I will look.") && stderr.contains("shell make") && !stderr.contains('\u{1b}'), "{stderr}");
    let request = script.started().remove(0);
    let context = request.context.unwrap();
    assert!(!context.interactive && Path::new(&context.cwd).is_absolute());
    assert_eq!(context.env.get("RUST_LOG").map(String::as_str), Some("trace"));
    assert!(!request.request_id.is_empty());
    assert_eq!(request.input[0].part, Some(v1::input_part::Part::Text("do it".into())));
}

#[tokio::test]
async fn json_is_one_object() {
    let (code, stdout, _) = play(&Script::run(work()), &["ask", "--output", "json", "x"]).await;
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, 0);
    assert_eq!((value["thread_id"].as_str(), value["run_id"].as_str()), (Some(THREAD), Some(RUN)));
    assert_eq!(value["text"], "It works.\u{1b}[31m");
    assert_eq!(value["tool_calls"][0]["arguments"]["command"], "make");
    assert_eq!(value["tool_calls"][0]["status"], "done");
    assert_eq!(value["exit_code"], 0);
    assert_eq!(value["error"], Value::Null);
}

#[tokio::test]
async fn json_lines_are_objects_and_the_last_is_the_result() {
    let (code, stdout, _) = play(&Script::run(work()), &["ask", "--json", "x"]).await;
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(code, 0);
    assert_eq!(
        types,
        [
            "text_delta",
            "message_finished",
            "tool_call_started",
            "tool_call_finished",
            "text_delta",
            "message_finished",
            "run_finished",
            "result"
        ]
    );
    // Words that nobody saw being written are deltas all the same.
    assert_eq!(lines[4]["text"], lines[5]["text"]);
    assert_eq!(lines[1]["seq"], 1);
    assert_eq!(lines[7]["thread_id"], THREAD);
}

#[tokio::test]
async fn a_failed_run_says_why_and_keeps_stdout_empty() {
    let error = v1::RunError {
        kind: "model".into(),
        reason: "MODEL_AUTH".into(),
        message: "the key was refused".into(),
        hint: "set another key".into(),
    };
    let end = v1::RunFinished { status: "failed".into(), exit_code: 5, error: Some(error), ..Default::default() };
    let script = || Script::run(vec![said("half"), Body::RunFinished(end.clone())]);
    let (code, stdout, stderr) = play(&script(), &["ask", "x"]).await;
    assert_eq!((code, stdout.as_str()), (5, ""));
    assert!(stderr.contains("the key was refused") && stderr.contains("hint: set another key"), "{stderr}");
    let (code, stdout, _) = play(&script(), &["ask", "--output", "json", "x"]).await;
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, value["error"]["reason"].as_str()), (5, Some("MODEL_AUTH")));
}

#[tokio::test]
async fn a_refused_call_is_named_and_gives_the_daemons_exit_status() {
    let script =
        Script::run(vec![call_started("tc_1", "rm x"), call_finished("tc_1", "denied", ""), finished("done", 4)]);
    let (code, stdout, stderr) = play(&script, &["ask", "x"]).await;
    assert_eq!((code, stdout.as_str()), (4, ""));
    assert!(stderr.contains("rm x: denied") && stderr.contains("refused: shell"), "{stderr}");
}

#[tokio::test]
async fn a_thread_that_is_not_there_is_named_in_one_line() {
    let script = Script::default();
    let (code, stdout, stderr) = play(&script, &["ask", "--thread", "nope", "--json", "hi"]).await;
    let value: Value = serde_json::from_str(stdout.trim()).unwrap();
    assert_eq!((code, stdout.lines().count()), (2, 1));
    assert!(value["error"]["message"].as_str().unwrap().contains("nope") && stderr.contains("nope"));
    assert!(script.started().is_empty());
}

#[tokio::test]
async fn an_open_silent_stdin_is_not_awaited() {
    let home = tempfile::tempdir().unwrap();
    let script = Script::run(work());
    let _server = script.serve(&home.path().join("sock")).await;
    let (reader, writer) = std::io::pipe().unwrap();
    let output = end(mcode(home.path(), &["ask", "hi"]).stdin(reader).spawn().unwrap()).await;
    assert_eq!(output.status.code(), Some(0));
    drop(writer);
    assert_eq!(script.started()[0].input.len(), 1);
}

#[tokio::test]
async fn detached_prints_both_ids_and_leaves() {
    let script = Script::default();
    let (code, stdout, _) = play(&script, &["ask", "--detach", "--approve", "ask", "hi"]).await;
    assert_eq!((code, stdout), (0, format!("run {RUN}\nthread {THREAD}\n")));
    assert!(script.started()[0].context.as_ref().unwrap().interactive);
}

#[tokio::test]
async fn ctrl_c_cancels_the_run_and_exits_130() {
    let home = tempfile::tempdir().unwrap();
    let script = Script::run(vec![call_started("tc_1", "sleep 600")]);
    let _server = script.serve(&home.path().join("sock")).await;
    let mut child = mcode(home.path(), &["ask", "x"]).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = Vec::new();
    let shown = async {
        while !String::from_utf8_lossy(&seen).contains("sleep 600") {
            assert!(stderr.read_buf(&mut seen).await.unwrap() > 0, "mcode ended");
        }
    };
    tokio::time::timeout(DEADLINE, shown).await.expect("the call was not shown");
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = end(child).await;
    assert_eq!(output.status.code(), Some(130));
    assert_eq!((script.cancelled(), output.stdout.len()), (1, 0));
}

#[tokio::test]
async fn a_reader_that_leaves_cancels_nothing_and_sees_no_complaint() {
    let home = tempfile::tempdir().unwrap();
    let script = Script::run(vec![said("x"), finished("done", 0)]);
    let _server = script.serve(&home.path().join("sock")).await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = end(mcode(home.path(), &["ask", "--json", "x"]).stdout(writer).spawn().unwrap()).await;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((String::from_utf8_lossy(&output.stderr).contains("panicked"), script.cancelled()), (false, 0));
}

#[tokio::test]
async fn without_a_daemon_json_has_the_error() {
    let home = tempfile::tempdir().unwrap();
    let output = end(mcode(home.path(), &["ask", "--no-autostart", "--output", "json", "x"]).spawn().unwrap()).await;
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), value["exit_code"].as_i64()), (Some(6), Some(6)));
    assert_eq!(value["error"]["kind"], "daemon");
}

#[tokio::test]
async fn an_answer_without_words_is_told_and_leaves_stdout_empty() {
    for end in [vec![finished("done", 0)], vec![said(""), finished("done", 0)], vec![said(" \n"), finished("done", 0)]]
    {
        let (code, stdout, stderr) = play(&Script::run(end), &["ask", "hi"]).await;
        assert_eq!((code, stdout.as_str()), (0, ""));
        assert!(stderr.contains("without an answer") && stderr.contains(THREAD), "{stderr}");
    }
}
