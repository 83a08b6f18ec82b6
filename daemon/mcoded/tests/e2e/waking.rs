//! The end of a command in the background begins a run of its idle thread.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{OWN, Stage, WAIT_FOR_GO, of_type, text};

fn background(command: &str) -> Reply {
    Reply::tool_calls([("shell", json!({"command": command, "background": true}))])
}

/// Starts it and gives the thread, which is idle then.
fn begun(stage: &Stage, words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().copied().chain(["--yolo", "--output", "json", "serve"]).collect();
    let thread = text(&stage.ask(&words).ok().json()["thread_id"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    thread
}

fn runs(stage: &Stage, thread: &str) -> Vec<Value> {
    stage.json(&["threads", "show", thread])["runs"].as_array().unwrap().clone()
}

fn woken(stage: &Stage, thread: &str, count: usize) -> Vec<Value> {
    stage.daemon.wait_until("the woken run has ended", || {
        let runs = runs(stage, thread);
        runs.len() == count && runs.iter().all(|run| run["status"] == "done")
    });
    runs(stage, thread)
}

/// So many runs, and none that the thread began by itself.
fn by_people(stage: &Stage, thread: &str, count: usize) {
    let runs = runs(stage, thread);
    assert_eq!(runs.len(), count, "{runs:#?}");
    assert!(runs.iter().all(|run| run["trigger"] == "person"), "{runs:#?}");
}

#[test]
fn b14_the_end_of_a_command_wakes_its_thread() {
    let stage = Stage::new(
        Script::new().reply(background(WAIT_FOR_GO)).reply(Reply::text("started")).reply(Reply::text("it went")),
    );
    let thread = begun(&stage, &[]);
    assert_eq!(runs(&stage, &thread).len(), 1);
    stage.go();
    let runs = woken(&stage, &thread, 2);
    assert_eq!((&runs[0]["trigger"], &runs[1]["trigger"]), (&json!("person"), &json!("background")));
    assert_eq!((&runs[0]["model"], &runs[0]["mode"]), (&runs[1]["model"], &runs[1]["mode"]));
    let told = stage.server.request(3).messages().last().unwrap().to_string();
    assert!(told.contains("has ended: exit code 0") && told.contains("went"), "{told}");
    let events = stage.events(&thread);
    assert!(events.iter().any(|event| event["type"] == "message_finished" && event["text"] == "it went"));
    stage.server.finish();
}

#[test]
fn a_limit_that_is_reached_wakes_too() {
    let call = json!({"command": "sleep 90; echo late", "background": true, "timeout_s": 1});
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", call)]))
            .reply(Reply::text("started"))
            .reply(Reply::text("I see")),
    );
    let thread = text(&stage.ask(&["--yolo", "--output", "json", "serve"]).ok().json()["thread_id"]);
    woken(&stage, &thread, 2);
    let told = stage.server.request(3).messages().last().unwrap().to_string();
    assert!(told.contains("timed out after 1 s") && !told.contains("late\\n"), "{told}");
    stage.server.finish();
}

/// Several that end together are told in one run.
#[test]
fn ends_at_the_same_time_are_one_run() {
    let calls = [(); 3].map(|()| ("shell", json!({"command": WAIT_FOR_GO, "background": true})));
    let stage = Stage::new(
        Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("started")).reply(Reply::text("all went")),
    );
    let thread = begun(&stage, &[]);
    stage.go();
    woken(&stage, &thread, 2);
    let told = stage.server.request(3).messages().iter().map(Value::to_string).collect::<String>();
    assert_eq!(told.matches("has ended: exit code 0").count(), 3, "{told}");
    stage.server.finish();
}

/// A thread whose waking is off stays quiet; the model is told at the next prompt.
#[test]
fn waking_can_be_off() {
    let stage = Stage::configured(
        Script::new().reply(background(WAIT_FOR_GO)).reply(Reply::text("started")).reply(Reply::text("I see")),
        "[background]\nwake = false\n",
    );
    let thread = begun(&stage, &[]);
    stage.go();
    let notices = || of_type(&stage.events(&thread), "notice").len();
    stage.daemon.wait_until("its end is told", || notices() == 1);
    stage.ask(&["-t", &thread, "and?"]).ok();
    by_people(&stage, &thread, 2);
    assert!(stage.server.request(3).messages().last().unwrap().to_string().contains("has ended: exit code 0"));
    stage.server.finish();
}

/// The next daemon wakes a thread only when it can ask the model by itself.
#[test]
fn the_next_daemon_wakes_what_it_can() {
    let mut stage = Stage::reached_by_itself(
        Script::new().reply(background(WAIT_FOR_GO)).reply(Reply::text("started")).reply(Reply::text("it went")),
    );
    let thread = begun(&stage, &["-m", OWN]);
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.go();
    let runs = woken(&stage, &thread, 2);
    assert_eq!(runs[1]["trigger"], "background");
    stage.server.finish();
}

/// A command that somebody has stopped is no news.
#[test]
fn what_was_stopped_wakes_nobody() {
    let stage = Stage::new(
        Script::new().reply(background(WAIT_FOR_GO)).reply(Reply::text("started")).reply(Reply::text("I see")),
    );
    let thread = begun(&stage, &[]);
    stage.mcode(&["threads", "close", &thread]).ok();
    let events = stage.events(&thread);
    assert!(text(&of_type(&events, "process_exited")[0]["reason"]).contains("killed"), "{events:#?}");
    stage.ask(&["-t", &thread, "and?"]).ok();
    by_people(&stage, &thread, 2);
    stage.server.finish();
}
