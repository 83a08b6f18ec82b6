//! What may happen to the program that tends a command, and what a command may try against it.

use std::process::Command;

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Detached, Stage, WAIT_FOR_GO, of_type, text};

const UNCONFINED: &str = "[sandbox]\nenabled = false\n";

fn asks_for(arguments: Value) -> Script {
    Script::new().reply(Reply::tool_calls([("shell", arguments)])).reply(Reply::text("on"))
}

/// A run that has begun its command; the command makes the file `begun`.
fn begun(stage: &Stage) -> Detached {
    let run = stage.detach(&["--yolo", "work"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    run
}

fn result(stage: &Stage, run: &Detached) -> Value {
    let events = stage.events(&run.thread_id);
    let results = of_type(&events, "tool_call_finished");
    assert_eq!(results.len(), 1, "{results:#?}");
    results[0].clone()
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn the_daemon_keeps_the_time_limit_of_a_host_that_was_stopped() {
    let stage = Stage::new(asks_for(json!({"command": "touch begun; sleep 300", "timeout_s": 2})));
    let run = begun(&stage);
    let hosts = stage.daemon.hosts();
    signal(hosts[0], "-STOP");
    let result = result(&stage, &run);
    assert!(result.to_string().contains("timed out after 2 s"), "{result}");
    stage.daemon.wait_until("nothing is left", || stage.daemon.processes().is_empty());
    stage.server.finish();
}

#[test]
fn output_whose_file_was_deleted_is_told_as_lost() {
    let stage = Stage::new(asks_for(json!({"command": format!("echo before; {WAIT_FOR_GO}")})));
    let run = begun(&stage);
    let folder = stage.daemon.home().join("state/toolhosts");
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        std::fs::remove_dir_all(entry.path()).unwrap();
    }
    stage.go();
    let result = result(&stage, &run);
    assert_eq!(result["status"], "failed", "{result}");
    let said = text(&result["text"]);
    assert!(said.contains("is lost") && said.contains("deleted") && said.contains("[exit code 0]"), "{said}");
    stage.server.finish();
}

/// Without the sandbox, a command kills its own host while a child of it has a session of its own and a clean
/// environment: that child is still known, refused what is for people, and ended.
#[test]
fn what_kills_its_own_host_is_known_and_ended() {
    let stage = Stage::configured(Script::new(), UNCONFINED);
    let mcode = mcode_testkit::program("mcode");
    let nap = format!("919.{}", std::process::id());
    // The child waits for its host to be gone, then tries to start over as if it were a person.
    let child = format!(
        "while kill -0 $1 2>/dev/null; do sleep 0.01; done; {} --no-autostart --socket {} trust revoke > told 2>&1; \
         echo $? > code; sleep {nap}",
        mcode.display(),
        stage.daemon.socket().display()
    );
    stage.workspace.write("child.sh", child);
    let command = "setsid -f env -i PATH=$PATH HOME=$HOME sh child.sh $PPID; touch begun; kill -9 $PPID; sleep 300";
    stage.server.push(Reply::tool_calls([("shell", json!({"command": command}))]));
    stage.server.push(Reply::text("on"));
    let run = begun(&stage);
    let result = result(&stage, &run);
    assert!(result.to_string().contains("was killed"), "{result}");
    let sleeping = || {
        let lines = Command::new("ps").args(["-eo", "args"]).output().unwrap().stdout;
        String::from_utf8_lossy(&lines).contains(&format!("sleep {nap}"))
    };
    stage.daemon.wait_until("nothing of it is left", || !sleeping() && stage.daemon.processes().is_empty());
    // It was ended before it could ask, or it was refused; never was it taken for a person.
    if stage.exists("code") {
        assert_ne!(stage.workspace.read("code").trim(), "0", "{}", stage.workspace.read("told"));
    }
}

/// A process in the background is still known as a tool call's after the daemon has died and another one serves.
#[test]
fn the_next_daemon_knows_what_a_tool_call_has_started() {
    let mut stage = Stage::configured(Script::new(), UNCONFINED);
    let (mcode, socket) = (mcode_testkit::program("mcode"), stage.daemon.socket());
    let verb = |words: &str| format!("{} --no-autostart --socket {} {words}", mcode.display(), socket.display());
    let command = format!(
        "touch begun; while [ ! -e go ]; do sleep 0.02; done; {} > told 2>&1; echo $? > code; \
         env -i PATH=$PATH HOME=$HOME {} > told2 2>&1; echo $? > code2",
        verb("trust revoke"),
        verb("runs cancel $(cat run)")
    );
    stage.server.push(Reply::tool_calls([("shell", json!({"command": command, "background": true}))]));
    stage.server.push(Reply::text("on"));
    stage.server.push(Reply::tool_calls([("shell", json!({"command": "touch made"}))]));
    let run = begun(&stage);
    stage.events(&run.thread_id);
    stage.daemon.kill9();
    stage.daemon.restart();
    let other = stage.detach(&["--approve", "ask", "make it"]);
    stage.waiting("approvals");
    stage.workspace.write("run", &other.run_id);
    stage.go();
    stage.daemon.wait_until("it has tried", || stage.exists("code2") && !stage.workspace.read("code2").is_empty());
    for (code, told) in [("code", "told"), ("code2", "told2")] {
        assert_eq!(stage.workspace.read(code), "4\n", "{}", stage.workspace.read(told));
        assert!(stage.workspace.read(told).contains("is for people"), "{}", stage.workspace.read(told));
    }
    assert_eq!(stage.run(&other.run_id)["status"], "waiting");
}

/// A daemon that a tool call starts would end with that call.
#[test]
fn a_tool_call_starts_no_daemon() {
    let stage = Stage::configured(Script::new(), UNCONFINED);
    let mcode = mcode_testkit::program("mcode");
    let command = format!(
        "export MCODE_HOME=$PWD/other; {0} daemon status; env -i PATH=$PATH HOME=$HOME MCODE_HOME=$PWD/other {0} threads list",
        mcode.display()
    );
    stage.server.push(Reply::tool_calls([("shell", json!({"command": command}))]));
    stage.server.push(Reply::text("on"));
    stage.ask(&["--yolo", "try"]).ok();
    let (_, told, _) = stage.server.request(2).tool_results().pop().unwrap();
    assert!(told.contains("may not start one") && told.contains("[exit code 6]"), "{told}");
}

/// An editor that is called by its name finds no terminal and may wait for ever: its limit ends it. (Without one it goes on
/// in the background, and the model is told what that may mean.)
#[test]
fn b06_an_editor_without_a_terminal_is_ended_by_its_limit() {
    let call = json!({"command": "vi f.txt", "timeout_s": 3});
    let stage = Stage::new(Script::new().reply(Reply::tool_calls([("shell", call)])).reply(Reply::text("on")));
    let before = std::time::Instant::now();
    stage.ask(&["--yolo", "edit it"]).ok();
    let results = stage.server.request(2).tool_results();
    assert!(before.elapsed().as_secs() < 15, "{results:?}");
    assert!(results[0].1.contains("[timed out after 3 s") || results[0].1.contains("[exit code 1"), "{results:?}");
    stage.daemon.wait_until("nothing is left", || stage.daemon.processes().is_empty());
}
