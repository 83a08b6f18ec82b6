//! Closing and deleting threads: nothing that they started is left.

use mcode_testkit::{Reply, Script, nap, running};
use serde_json::json;

use crate::setup::{Stage, of_type, text};

/// Threads of the large test.
const THREADS: usize = 100;

fn spools(stage: &Stage) -> usize {
    std::fs::read_dir(stage.daemon.home().join("state/toolhosts")).map_or(0, Iterator::count)
}

/// Each has a command in the background with a child in a session of its own and with a clean environment.
#[test]
fn a_hundred_closed_threads_leave_no_process() {
    let nap = nap();
    let command = format!("setsid env -i sleep {nap} & (setsid sleep {nap} &) ; sleep {nap}");
    let server = Script::new().fallback(move |request| {
        if request.tool_results().is_empty() {
            Reply::tool_calls([("shell", json!({"command": command, "background": true}))])
        } else {
            Reply::text("started")
        }
    });
    let stage = Stage::new(server);
    let threads: Vec<String> = (0..THREADS).map(|_| stage.detach(&["--yolo", "serve"]).thread_id).collect();
    stage.daemon.wait_until("all commands to run", || running(&nap).len() >= 3 * THREADS);
    for thread in &threads {
        let closed = stage.json(&["threads", "close", thread]);
        assert_eq!((&closed["processes_ended"], &closed["thread"]["state"]), (&json!(1), &json!("idle")), "{closed}");
    }
    assert_eq!(running(&nap), Vec::<u32>::new());
    stage.daemon.wait_until("the hosts to be gone", || stage.daemon.hosts().is_empty());
    stage.daemon.wait_until("their folders to be gone", || spools(&stage) == 0);
    // A closed thread can be gone on with.
    stage.ask(&["-t", &threads[0], "--yolo", "go on"]).ok();
}

#[test]
fn closing_cancels_the_run_and_withdraws_what_it_asked() {
    let stage = Stage::new(Script::new().reply(Reply::tool_calls([("shell", json!({"command": "touch made"}))])));
    let run = stage.detach(&["--approve", "ask", "make it"]);
    stage.waiting("approvals");
    stage.mcode(&["threads", "close", &run.thread_id]).ok();
    assert_eq!(stage.run(&run.run_id)["status"], "cancelled");
    assert_eq!(stage.json(&["approvals", "list"])["approvals"], json!([]));
    assert_eq!(of_type(&stage.events(&run.thread_id), "approval_resolved")[0]["outcome"], "withdrawn");
    assert!(!stage.exists("made"));
}

#[test]
fn a_deleted_thread_is_gone_with_all_that_only_it_had() {
    let (nap, secret) = (nap(), "only-in-this-thread");
    let long = format!("echo x > $TMPDIR/x; echo $TMPDIR > there; yes {secret} | head -c 300000; echo; sleep {nap}");
    let script = |long: &str| {
        Script::new()
            .reply(Reply::tool_calls([
                ("shell", json!({"command": format!("yes {secret} | head -c 300000")})),
                ("shell", json!({"command": long, "background": true})),
            ]))
            .reply(Reply::text("done"))
    };
    let mut stage = Stage::new(script(&long));
    let thread = text(&stage.ask(&["--yolo", "--output", "json", "serve"]).ok().json()["thread_id"]);
    let there = || std::fs::read_to_string(stage.workspace.join("there")).unwrap_or_default();
    stage.daemon.wait_until("the command to run", || there().ends_with('\n') && !running(&nap).is_empty());
    stage.mcode(&["permissions", "add", "allow", "shell(ls)", "--for", "thread", "--thread", &thread]).ok();
    let refused = stage.mcode(&["threads", "delete", &thread]);
    assert!(refused.code == 2 && refused.stderr.contains("--yes"), "{refused:#?}");
    let temp = there();
    let temp = std::path::Path::new(temp.trim());
    assert!(temp.join("x").exists(), "{temp:?}");
    stage.mcode(&["threads", "delete", &thread, "--yes"]).ok();
    assert_eq!(running(&nap), Vec::<u32>::new());
    assert!(!temp.exists(), "its temporary files stay");
    assert_eq!(stage.json(&["threads", "list"])["threads"], json!([]));
    let rules = stage.mcode(&["permissions", "list"]).ok().stdout;
    assert!(!rules.contains("shell(ls)"), "what was given in it is gone: {rules}");
    assert_ne!(stage.mcode(&["threads", "show", &thread]).code, 0);
    assert_ne!(stage.ask(&["-t", &thread, "go on"]).code, 0, "it does not come back");
    stage.daemon.wait_until("its folders to be gone", || spools(&stage) == 0);
    stage.daemon.stop();
    let data = stage.daemon.home().join("data");
    let blobs = walk(&data.join("blobs"));
    assert_eq!(blobs, Vec::<std::path::PathBuf>::new(), "what only it had is gone");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
