//! Commands outlive the daemon: what was begun before it died is delivered, once, by the next.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Detached, Stage, WAIT_FOR_GO, of_type, text};

/// A model that asks for one command and, when it is asked again, says "on".
fn asks_for(arguments: Value) -> Script {
    Script::new().reply(Reply::tool_calls([("shell", arguments)])).reply(Reply::text("on"))
}

/// A run that has begun its command; the command makes the file `begun`.
fn begun(stage: &Stage) -> Detached {
    let run = stage.detach(&["--yolo", "work"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    let shown = || stage.json(&["threads", "show", &run.thread_id])["events"].clone();
    stage.daemon.wait_until("its start is recorded", || shown().to_string().contains("process_started"));
    run
}

fn state(stage: &Stage, thread_id: &str) -> String {
    let threads = stage.json(&["threads", "list"]);
    let found = threads["threads"].as_array().unwrap().iter().find(|thread| thread["thread_id"] == thread_id);
    text(&found.unwrap()["state"])
}

/// The run has one end, which is an interruption with a hint, and its call one result, which holds `words`.
fn delivered_once(stage: &Stage, run: &Detached, words: &[&str]) -> Value {
    let events = stage.events(&run.thread_id);
    let results = of_type(&events, "tool_call_finished");
    assert_eq!((results.len(), &results[0]["status"]), (1, &json!("done")), "{results:#?}");
    for word in words {
        assert!(results[0].to_string().contains(word), "{word}: {:#}", results[0]);
    }
    for (begins, ends) in [("process_started", "process_exited"), ("step_started", "step_finished")] {
        assert_eq!((of_type(&events, begins).len(), of_type(&events, ends).len()), (1, 1), "{begins}: {events:#?}");
    }
    let ends = of_type(&events, "run_finished");
    assert_eq!((ends.len(), &ends[0]["status"]), (1, &json!("interrupted")), "{ends:#?}");
    assert!(ends[0]["error"]["hint"].as_str().unwrap().contains("--thread"), "{ends:#?}");
    results[0].clone()
}

/// The model is given the result when the thread goes on.
fn goes_on(stage: Stage, run: &Detached, words: &str) {
    assert_eq!(stage.ask(&["-t", &run.thread_id, "go on"]).ok().stdout, "on\n");
    let results = stage.server.request(2).tool_results();
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].1.contains(words), "{results:?}");
    stage.server.finish();
}

#[test]
fn a_command_that_was_running_is_delivered_once_and_complete() {
    let mut stage = Stage::new(asks_for(json!({"command": format!("echo first; {WAIT_FOR_GO}; exit 0")})));
    let run = begun(&stage);
    stage.daemon.kill9();
    stage.daemon.restart();
    assert_eq!(state(&stage, &run.thread_id), "running");
    let words = ["watch", &run.thread_id, "--after", "0", "--until-idle", "--output", "jsonl"];
    let watcher = stage.daemon.spawn_mcode(&stage.workspace.path(), &words);
    stage.go();
    delivered_once(&stage, &run, &["first\\nwent\\n[exit code 0]"]);
    let watched = watcher.output().ok().json_lines();
    assert_eq!(of_type(&watched, "tool_call_finished").len(), 1, "whoever watches sees the end");
    stage.daemon.wait_until("nothing is left", || stage.daemon.processes().is_empty());
    goes_on(stage, &run, "first\nwent\n[exit code 0]");
}

/// The command of the issue itself, with daemons that die again and again.
#[test]
fn daemons_may_die_as_often_as_they_like() {
    let mut stage = Stage::new(asks_for(json!({"command": "touch begun; sleep 3; echo ok"})));
    let run = begun(&stage);
    for _ in 0..3 {
        stage.daemon.kill9();
        stage.daemon.restart();
    }
    delivered_once(&stage, &run, &["ok\\n[exit code 0]"]);
    goes_on(stage, &run, "ok\n[exit code 0]");
}

#[test]
fn a_command_that_ended_while_no_daemon_ran_is_delivered() {
    let mut stage = Stage::new(asks_for(json!({"command": WAIT_FOR_GO})));
    let run = begun(&stage);
    stage.daemon.kill9();
    stage.go();
    stage.daemon.wait_until("the command has ended", || stage.daemon.processes().is_empty());
    stage.daemon.restart();
    delivered_once(&stage, &run, &["went\\n[exit code 0]"]);
    goes_on(stage, &run, "went\n[exit code 0]");
}

#[test]
fn much_output_from_before_and_after_is_counted_and_not_held() {
    let many = "yes | head -c 200000000";
    let command = format!(
        "echo BEGIN-MARK; {many}; touch begun; while [ ! -e go ]; do sleep 0.02; done; {many}; echo; echo END-MARK"
    );
    let mut stage = Stage::new(asks_for(json!({"command": command})));
    let run = begun(&stage);
    stage.daemon.kill9();
    stage.daemon.restart();
    let before = stage.daemon.rss_kb();
    stage.go();
    delivered_once(&stage, &run, &["BEGIN-MARK", "END-MARK", "400000021 bytes"]);
    let grown = stage.daemon.rss_kb().saturating_sub(before);
    assert!(grown < 100_000, "{grown} KiB more for 400 MB of output");
    goes_on(stage, &run, "END-MARK");
}

#[test]
fn the_time_limit_of_a_command_holds_without_a_daemon() {
    let mut stage = Stage::new(asks_for(json!({"command": "touch begun; sleep 300 & sleep 300", "timeout_s": 1})));
    let run = begun(&stage);
    stage.daemon.kill9();
    stage.daemon.wait_until("the command was ended", || stage.daemon.processes().is_empty());
    stage.daemon.restart();
    let events = stage.events(&run.thread_id);
    let result = of_type(&events, "tool_call_finished")[0].to_string();
    assert!(result.contains("timed out after 1 s"), "{result}");
    goes_on(stage, &run, "timed out after 1 s");
}

#[test]
fn a_command_of_an_earlier_daemon_can_be_cancelled() {
    let mut stage = Stage::new(asks_for(json!({"command": "touch begun; (setsid sleep 300 &); sleep 300"})));
    let run = begun(&stage);
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    let events = stage.events(&run.thread_id);
    assert_eq!(of_type(&events, "run_finished")[0]["status"], "cancelled");
    let results = of_type(&events, "tool_call_finished");
    assert_eq!((results.len(), &results[0]["status"]), (1, &json!("cancelled")));
    stage.daemon.wait_until("nothing is left", || stage.daemon.processes().is_empty());
}

/// A restart, as for an upgrade, keeps commands; a stop ends them.
#[test]
fn a_restart_keeps_a_server_and_a_stop_ends_it() {
    let server = "touch begun; while read line; do echo \"got $line\"; done; echo bye";
    let id = |request: &mcode_testkit::RecordedRequest| {
        let said = Value::from(request.messages()).to_string();
        let at = said.find("prc_").unwrap();
        said[at..at + 36].to_owned()
    };
    let write = |text: &str| {
        let text = text.to_owned();
        Reply::from(move |request| {
            let input = json!({"action": "write", "id": id(request), "input": text});
            let poll = json!({"action": "poll", "id": id(request), "wait_s": 10});
            Reply::tool_calls([("process", input), ("process", poll)])
        })
    };
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": server, "background": true}))]))
            .reply(Reply::text("started"))
            .reply(write("one\n"))
            .reply(Reply::text("written"))
            .reply(write("two\n"))
            .reply(Reply::text("written again")),
    );
    let thread = text(&stage.ask(&["--yolo", "--output", "json", "serve"]).ok().json()["thread_id"]);
    let hosts = stage.daemon.hosts();
    assert_eq!(hosts.len(), 1);
    let shown = stage.json(&["threads", "show", &thread])["processes"].clone();
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["state"]), (1, &json!("running")), "{shown:#}");
    assert!(shown[0]["rss_bytes"].as_u64().unwrap() > 0 && shown[0]["age_seconds"].is_number(), "{shown:#}");
    let run = text(&stage.json(&["runs", "list"])["runs"][0]["run_id"]);
    let told = stage.mcode(&["runs", "show", &run]).ok().stdout;
    assert!(told.contains("process prc_") && told.contains("s of CPU") && told.contains("while read line"), "{told}");
    stage.mcode(&["daemon", "restart"]).ok();
    assert_eq!(stage.daemon.hosts(), hosts, "the verb keeps it");
    stage.ask(&["-t", &thread, "--yolo", "use it"]).ok();
    let results = stage.server.request(4).tool_results();
    assert!(results[1].1.contains("got one"), "{results:?}");
    stage.mcode(&["daemon", "restart"]).ok();
    stage.ask(&["-t", &thread, "--yolo", "use it"]).ok();
    let results = stage.server.request(6).tool_results();
    assert!(results[1].1.contains("got two"), "{results:?}");
    stage.mcode(&["daemon", "stop"]).ok();
    stage.daemon.wait_until("the server is gone", || stage.daemon.hosts().is_empty());
    stage.server.finish();
}

/// The end of a process in the background is told by the daemon that sees it.
#[test]
fn the_end_of_an_earlier_daemons_server_is_told() {
    let mut stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO, "background": true}))]))
            .reply(Reply::text("started"))
            .reply(Reply::text("I see")),
    );
    let thread = text(&stage.ask(&["--yolo", "--output", "json", "serve"]).ok().json()["thread_id"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    stage.daemon.kill9();
    stage.daemon.restart();
    stage.go();
    let ended = || !of_type(&stage.events(&thread), "process_exited").is_empty();
    stage.daemon.wait_until("its end is recorded", ended);
    assert_eq!(of_type(&stage.events(&thread), "process_exited")[0]["exit_code"], 0);
    stage.ask(&["-t", &thread, "and?"]).ok();
    let told = stage.server.request(3).messages().last().unwrap().to_string();
    assert!(told.contains("has ended: exit code 0") && told.contains("went"), "{told}");
    stage.server.finish();
}

/// A service manager that ends the daemon does not end what it runs; a run waits on under the next daemon.
#[test]
fn a_terminated_daemon_hands_its_run_over() {
    let mut stage = Stage::new(asks_for(json!({"command": WAIT_FOR_GO})));
    let run = begun(&stage);
    stage.daemon.stop();
    assert_eq!(stage.daemon.hosts().len(), 1);
    stage.daemon.restart();
    stage.go();
    delivered_once(&stage, &run, &["went\\n[exit code 0]"]);
    goes_on(stage, &run, "went\n[exit code 0]");
}

/// What belongs to a thread that is not there any more is ended at the next start.
#[test]
fn commands_of_forgotten_threads_are_ended() {
    let mut stage = Stage::new(asks_for(json!({"command": "touch begun; sleep 300", "background": true})));
    stage.ask(&["--yolo", "serve"]).ok();
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    stage.daemon.kill9();
    for name in ["mcode.db", "mcode.db-wal", "mcode.db-shm"] {
        std::fs::remove_file(stage.daemon.home().join("data").join(name)).ok();
    }
    stage.daemon.restart();
    stage.daemon.wait_until("it was ended", || stage.daemon.hosts().is_empty());
    let left = || std::fs::read_dir(stage.daemon.home().join("state/toolhosts")).unwrap().count();
    stage.daemon.wait_until("its folder is gone", || left() == 0);
}
