//! Daemons that `mcode ask` starts (area K, and J11), with the programs that a user has.

use std::path::PathBuf;

use mcode_testkit::daemon::program;
use mcode_testkit::{ModelServer, Reply, Script, TestDaemon, Workspace};

/// Process ids of the daemons of this home.
fn daemons(daemon: &TestDaemon) -> Vec<u32> {
    let is_daemon = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "mcoded")
            && std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| !environ.is_empty())
    };
    daemon.processes().into_iter().filter(is_daemon).collect()
}

fn home(server: &ModelServer) -> TestDaemon {
    let mut daemon = TestDaemon::prepare();
    daemon.use_server(server);
    daemon
}

fn signal(daemon: &TestDaemon, signal: rustix::process::Signal) {
    for pid in daemons(daemon) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    }
}

/// K01: after a hard kill every client is served, and by one daemon.
#[test]
fn after_a_hard_kill_asking_goes_on() {
    let server = ModelServer::start_blocking(Script::new().repeat(6, &Reply::text("hello")));
    let (daemon, workspace) = (home(&server), Workspace::new());
    daemon.mcode_in(&workspace.path(), &["ask", "hi"]).ok();
    signal(&daemon, rustix::process::Signal::KILL);
    daemon.wait_until("the daemon is gone", || daemons(&daemon).is_empty());
    assert!(daemon.socket().exists());
    for _ in 0..5 {
        assert_eq!(daemon.mcode_in(&workspace.path(), &["ask", "hi"]).ok().stdout, "hello\n");
    }
    assert_eq!(daemons(&daemon).len(), 1);
    server.finish();
}

/// K03: clients that begin at the same moment are all answered rightly, by one daemon.
#[test]
fn cold_starts_at_once_are_all_answered() {
    let echo = |request: &mcode_testkit::RecordedRequest| {
        let said = request.last_user_text();
        Reply::text(said.split_whitespace().last().unwrap_or_default())
    };
    let server = ModelServer::start_blocking(Script::new().fallback(echo));
    let (daemon, workspace) = (home(&server), Workspace::new());
    for _ in 0..2 {
        let words: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
        let clients: Vec<_> = words.iter().map(|word| daemon.spawn_mcode(&workspace.path(), &["ask", word])).collect();
        for (client, word) in clients.into_iter().zip(&words) {
            let output = client.output().ok();
            assert_eq!(output.stdout, format!("{word}\n"));
            assert!(!output.stderr.contains("error"), "{}", output.stderr);
        }
        assert_eq!(daemons(&daemon).len(), 1);
        signal(&daemon, rustix::process::Signal::KILL);
        daemon.wait_until("the daemon is gone", || daemons(&daemon).is_empty());
    }
}

/// K09: programs that are replaced and removed under the daemon.
#[test]
fn replaced_and_removed_programs_do_not_stop_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let to = folder.path().join(name);
        // By another process, so that no fork of another test holds it open for writing.
        assert!(std::process::Command::new("cp").arg(program(name)).arg(&to).status().unwrap().success());
        to
    };
    let programs: Vec<PathBuf> = ["mcode", "mcoded", "mcode-toolhost"].into_iter().map(copy).collect();
    let server = ModelServer::start_blocking(
        Script::new()
            .reply(Reply::text("before"))
            .reply(Reply::tool_calls([("shell", serde_json::json!({"command": "echo works"}))]))
            .reply(Reply::text("after")),
    );
    let mut daemon = TestDaemon::prepare_with(folder.path().to_path_buf());
    daemon.use_server(&server);
    let workspace = Workspace::new();
    daemon.mcode_in(&workspace.path(), &["ask", "hi"]).ok();
    for replaced in &programs[1..] {
        std::fs::remove_file(replaced).unwrap();
    }
    let output = daemon.mcode_in(&workspace.path(), &["ask", "-c", "--yolo", "go"]).ok();
    assert_eq!(output.stdout, "after\n");
    assert!(server.request(3).tool_results()[0].1.contains("works"));
    // The restart can not find the program; it says so and leaves the thread alone.
    let restart = daemon.mcode(&["daemon", "restart"]);
    assert!(restart.code != 0 && restart.stderr.contains("mcoded"), "{restart:#?}");
    copy("mcoded");
    let list = daemon.mcode(&["threads", "list", "--output", "json"]).ok().json();
    assert_eq!(list["threads"].as_array().unwrap().len(), 1);
    for pid in daemons(&daemon) {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!command.contains("(deleted)"), "{command}");
    }
    server.finish();
}

/// J11: no home and one that is not there.
#[test]
fn a_home_that_can_not_be_used_is_named() {
    let server = ModelServer::start_blocking(Script::new().reply(Reply::text("hello")));
    let (mut daemon, workspace) = (home(&server), Workspace::new());
    // MCODE_HOME is enough, without HOME or with a bad one.
    daemon.set("HOME", "/nonexistent");
    assert_eq!(daemon.mcode_in(&workspace.path(), &["ask", "hi"]).ok().stdout, "hello\n");
    daemon.unset("MCODE_SOCKET");
    daemon.unset("MCODE_HOME");
    let output = daemon.mcode_in(&workspace.path(), &["ask", "hi"]);
    assert_ne!(output.code, 0);
    assert!(output.stderr.contains("/nonexistent") && output.stderr.contains("HOME"), "{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    assert!(!std::path::Path::new("/nonexistent").exists());
    assert_eq!(workspace.git(&["status", "--porcelain"]), "");
    server.finish();
}
