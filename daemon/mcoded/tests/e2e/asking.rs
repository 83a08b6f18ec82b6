//! The flags of `ask`, and what is piped into it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{PNG, Stage, ask_words, of_type, script, text};

#[test]
fn a_question_is_answered_from_another_client() {
    let question = json!({"question": "Which colour?", "options": ["red", "blue"]});
    let stage =
        Stage::new(Script::new().reply(Reply::tool_calls([("ask_user", question)])).reply(Reply::text("blue it is")));
    let run = stage.detach(&["--approve", "ask", "paint"]);
    let question = stage.waiting("questions");
    assert_eq!(stage.run(&run.run_id)["status"], "waiting");
    assert_eq!((&question["question"], &question["options"]), (&json!("Which colour?"), &json!(["red", "blue"])));
    stage.mcode(&["approvals", "answer", &text(&question["question_id"]), "rather", "blue"]).ok();
    let events = stage.events(&run.thread_id);
    assert!(stage.server.request(2).tool_results()[0].1.contains("rather blue"));
    assert_eq!(of_type(&events, "question_asked")[0]["question_id"], question["question_id"]);
    assert_eq!(of_type(&events, "question_answered")[0]["answer"], "rather blue");
    assert_eq!(stage.run(&run.run_id)["status"], "done");
    stage.server.finish();
}

#[test]
fn without_anybody_a_question_is_told_so_to_the_model() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("ask_user", json!({"question": "Which colour?"}))]))
            .reply(Reply::text("I took red")),
    );
    assert_eq!(stage.ask(&["paint"]).ok().stdout, "I took red\n");
    assert!(!stage.server.request(2).tool_results()[0].1.is_empty());
    stage.server.finish();
}

#[test]
fn tasks_are_told() {
    let items =
        json!({"items": [{"content": "look", "status": "completed"}, {"content": "mend", "status": "in_progress"}]});
    let stage = Stage::new(Script::new().reply(Reply::tool_calls([("tasks", items)])).reply(Reply::text("ok")));
    let lines = stage.ask(&["--json", "go"]).ok().json_lines();
    let tasks = of_type(&lines, "tasks_changed")[0]["items"].clone();
    assert_eq!((&tasks[0]["content"], &tasks[1]["status"]), (&json!("look"), &json!("in_progress")));
    let shown = stage.json(&["threads", "show", &text(&lines[0]["thread_id"])]);
    assert_eq!(shown["tasks"], tasks);
    stage.server.finish();
}

#[test]
fn an_answer_by_schema_is_tried_again_and_given_as_json() {
    let stage =
        Stage::new(Script::new().reply(Reply::text("there are 3")).reply(Reply::text("```json\n{\"n\": 3}\n```")));
    stage.workspace.write(
        "s.json",
        r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": false}"#,
    );
    let result = stage.ask(&["--schema", "s.json", "--output", "json", "count"]).ok().json();
    assert_eq!(result["structured"], json!({"n": 3}));
    assert!(stage.server.request(2).last_user_text().contains("JSON"));
    stage.server.finish();
}

#[test]
fn threads_are_continued_titled_and_forgotten() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::text("one"))
            .reply(Reply::text("two"))
            .reply(Reply::text("three"))
            .reply(Reply::text("gone")),
    );
    let first = stage.ask(&["--title", "My title", "--output", "json", "a1"]).ok().json();
    let thread_id = text(&first["thread_id"]);
    let shown = stage.json(&["threads", "show", &thread_id]);
    assert_eq!(shown["thread"]["title"], "My title");
    assert_eq!(shown["thread"]["cwd"].as_str().unwrap(), stage.workspace.path().to_str().unwrap());
    stage.ask(&["-c", "a2"]).ok();
    stage.ask(&["--thread", &thread_id, "-m", "openai/gpt-5.5", "a3"]).ok();
    let requests = stage.server.requests();
    let said = requests[2].body.to_string();
    for word in ["a1", "one", "a2", "two", "a3"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(requests[2].model(), "gpt-5.5");

    let gone = stage.ask(&["--ephemeral", "--output", "json", "b"]).ok().json();
    let ids = |list: Value| -> Vec<String> {
        list["threads"].as_array().unwrap().iter().map(|thread| text(&thread["thread_id"])).collect()
    };
    assert!(!ids(stage.json(&["threads", "list"])).contains(&text(&gone["thread_id"])));
    assert!(ids(stage.json(&["threads", "list", "--here"])).contains(&thread_id));
    stage.server.finish();
}

#[test]
fn pictures_and_folders_are_taken_along() {
    let outside = mcode_testkit::Workspace::plain();
    let file = outside.write("notes.txt", "outside words");
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("view", json!({"path": file.to_str().unwrap()}))]))
            .reply(Reply::text("seen")),
    );
    stage.workspace.write("p.png", PNG);
    let folder = outside.path();
    let words = ["-i", "p.png", "--add-dir", folder.to_str().unwrap(), "--approve", "deny", "look"];
    assert_eq!(stage.ask(&words).ok().stdout, "seen\n");
    let requests = stage.server.requests();
    assert!(requests[0].body.to_string().contains("image/png"));
    assert!(requests[1].tool_results()[0].1.contains("outside words"));
    stage.server.finish();
}

#[test]
fn piped_words_are_context_or_the_prompt() {
    let stage = Stage::new(Script::new().reply(Reply::text("1")).reply(Reply::text("2")));
    let dir = stage.workspace.path();
    stage.daemon.mcode_with(&dir, &ask_words(&["explain"]), b"a long log\n").ok();
    stage.daemon.mcode_with(&dir, &ask_words(&[]), b"the whole prompt\n").ok();
    let requests = stage.server.requests();
    let first = requests[0].body.to_string();
    assert!(first.contains("explain") && first.contains("<stdin>\\na long log\\n</stdin>"), "{first}");
    assert!(requests[1].last_user_text().contains("the whole prompt"));
    assert!(!requests[1].body.to_string().contains("<stdin>"));
    stage.server.finish();
}

/// J01: an open pipe that says nothing is left alone, anonymous or named.
#[test]
fn a_silent_open_pipe_is_not_waited_for() {
    let stage = Stage::new(Script::new().reply(Reply::text("quick")).reply(Reply::text("quick")));
    let dir = stage.workspace.path();
    let (reader, writer) = std::io::pipe().unwrap();
    script(&dir, "mkfifo p");
    let fifo = std::fs::File::options().read(true).write(true).open(stage.workspace.join("p")).unwrap();
    for stdin in [Stdio::from(reader), Stdio::from(fifo.try_clone().unwrap())] {
        let begun = Instant::now();
        let output = stage.daemon.command(&dir, &ask_words(&["hi"])).stdin(stdin).output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "quick\n");
    }
    drop((writer, fifo));
    stage.server.finish();
}

/// J09: a child that outlives the run does not hold the client.
#[test]
fn a_background_process_does_not_hold_the_client() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": "sleep 600 & echo begun"}))]))
            .reply(Reply::text("done")),
    );
    let begun = Instant::now();
    let lines = stage.ask(&["--yolo", "--json", "go"]).ok().json_lines();
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    stage.server.finish();
}
