//! Several clients watch the same thread.

use std::io::Read;
use std::process::{Command, Stdio};

use mcode_client::v1;
use mcode_testkit::{Reply, Script, TestDaemon};
use serde_json::{Value, json};

use crate::setup::{Stage, WAIT_FOR_GO, joined, of_type, text};

fn durable(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line.get("seq").is_some()).collect()
}

fn watch<'a>(thread: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    ["watch", thread, "--until-idle", "--output", "jsonl"].iter().chain(words).copied().collect()
}

#[test]
fn early_late_and_resuming_watchers_see_the_same() {
    let words = "streamed wörds ".repeat(60);
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO}))]))
            .reply(Reply::text(words.clone()).delay(3)),
    );
    let dir = stage.workspace.path();
    let run = stage.detach(&["--yolo", "talk"]);
    let early = stage.daemon.spawn_mcode(&dir, &watch(&run.thread_id, &["--after", "0"]));
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    let amid = stage.daemon.spawn_mcode(&dir, &watch(&run.thread_id, &["--after", "3"]));
    stage.go();
    // In the middle of the words.
    stage.server.wait_for_requests_blocking(2);
    let late = stage.daemon.spawn_mcode(&dir, &watch(&run.thread_id, &["--after", "0"]));
    let newest = stage.daemon.spawn_mcode(&dir, &watch(&run.thread_id, &[]));
    let [early, amid, late, newest] = [early, amid, late, newest].map(|watcher| watcher.output().ok().json_lines());
    let after = stage.events(&run.thread_id);

    let all = durable(&early);
    let seqs: Vec<u64> = all.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(all.last().unwrap()["type"], "run_finished");
    assert_eq!(durable(&late), all);
    assert_eq!(durable(&newest), all);
    assert_eq!(durable(&after), all);
    assert_eq!(durable(&amid), all[3..]);
    let item = of_type(&early, "message_finished").pop().unwrap()["item_id"].clone();
    for lines in [&early, &amid, &late] {
        assert_eq!(joined(lines, "text_delta", &item), words);
    }
    assert!(of_type(&early, "text_delta").len() > 3, "not streamed");
    assert_eq!(of_type(&after, "text_delta").len(), 0);
    stage.server.finish();
}

/// A client that subscribes and never reads holds nobody up.
#[test]
fn a_slow_subscriber_does_not_hold_up_the_run() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO}))]))
            .reply(Reply::deltas("0123456789abcdef", 60_000)),
    );
    let run = stage.detach(&["--yolo", "talk"]);
    let (runtime, client) = stage.client();
    let request = v1::SubscribeRequest { thread_id: run.thread_id.clone(), after_seq: Some(0), durable_only: false };
    let streams: Vec<_> = (0..4).map(|_| runtime.block_on(client.subscribe(request.clone())).unwrap()).collect();
    let rss = stage.daemon.rss_kb();
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    stage.go();
    let events = stage.events(&run.thread_id);
    assert_eq!(of_type(&events, "message_finished").pop().unwrap()["text"].as_str().unwrap().len(), 960_000);
    assert!(stage.daemon.rss_kb() < rss + 60_000, "{rss} KiB became {}", stage.daemon.rss_kb());
    drop(streams);
    stage.server.finish();
}

fn open_files(daemon: &TestDaemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

/// K11: listeners that go without goodbye leave nothing behind.
#[test]
fn five_hundred_listeners_leave_nothing_behind() {
    let stage = Stage::new(Script::new().reply(Reply::text("hello")).reply(Reply::text("still here")));
    let thread_id = stage.ask(&["--output", "json", "hi"]).ok().json()["thread_id"].as_str().unwrap().to_owned();
    let listen = |count: usize| {
        for _ in 0..count {
            let (runtime, client) = stage.client();
            let request =
                v1::SubscribeRequest { thread_id: thread_id.clone(), after_seq: Some(0), durable_only: false };
            let mut stream = runtime.block_on(client.subscribe(request)).unwrap();
            assert!(runtime.block_on(stream.message()).unwrap().is_some());
            // The runtime goes first: the connection is cut without a word.
            runtime.shutdown_background();
        }
    };
    listen(20);
    let before = stage.daemon.rss_kb();
    listen(480);
    stage.daemon.wait_until("the connections are gone", || open_files(&stage.daemon) < 40);
    let after = stage.daemon.rss_kb();
    assert!(after < before + 30_000, "{before} KiB became {after}");
    assert_eq!(stage.ask(&["-c", "hi"]).ok().stdout, "still here\n");
    stage.server.finish();
}

/// The daemon listens on its socket alone.
#[test]
fn no_tcp_port_is_opened() {
    let stage = Stage::new(Script::new().reply(Reply::text("hello")));
    stage.ask(&["hi"]).ok();
    let own: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", stage.daemon.pid()))
        .unwrap()
        .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    assert!(!own.is_empty());
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", stage.daemon.pid())).unwrap_or_default();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // 0A is LISTEN; the tenth field is the inode.
            assert!(!(fields[3] == "0A" && own.iter().any(|inode| inode == fields[9])), "{line}");
        }
    }
    // The test would see one: this program's own model server listens.
    let ours = Command::new("sh").arg("-c").arg("grep -c ' 0A ' /proc/net/tcp").output().unwrap().stdout;
    assert_ne!(String::from_utf8(ours).unwrap().trim(), "0");
    stage.server.finish();
}

/// In text mode too, words are there before the message is complete, and a message without words is no line.
#[test]
fn words_are_watched_as_they_come() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO}))]))
            .reply(Reply::text("half of it ".repeat(200)).stall_after(1500)),
    );
    let run = stage.detach(&["--yolo", "talk"]);
    let words = ["watch", run.thread_id.as_str(), "--after", "0", "--until-idle"];
    let mut watcher = stage.daemon.command(&stage.workspace.path(), &words).stdin(Stdio::null()).spawn().unwrap();
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    stage.go();
    let (mut seen, mut stdout) = (String::new(), watcher.stdout.take().unwrap());
    while !seen.contains("message assistant: half of") {
        let mut bytes = [0; 1024];
        let length = stdout.read(&mut bytes).unwrap();
        if length == 0 {
            panic!("the watcher ended: {seen}\n{:?}", watcher.wait_with_output());
        }
        seen.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    stdout.read_to_string(&mut seen).unwrap();
    assert_eq!(watcher.wait().unwrap().code(), Some(0));
    assert!(seen.contains("(cut off)\n"), "{seen}");
    assert_eq!(seen.matches("message assistant:").count(), 1, "{seen}");
    assert!(seen.contains("message user: talk"), "{seen}");
    stage.server.finish();
}

/// Whoever only looks does not bring back a daemon that was stopped.
#[test]
fn a_watch_does_not_start_a_daemon_again() {
    let mut stage = Stage::new(Script::new().reply(Reply::text("hello")));
    let thread = text(&stage.ask(&["--output", "json", "hi"]).ok().json()["thread_id"]);
    let mut command = stage.daemon.command(&stage.workspace.path(), &["watch", &thread, "--after", "0"]);
    let mut watcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0];
    watcher.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    stage.daemon.stop();
    assert_eq!(watcher.wait().unwrap().code(), Some(6));
    assert!(std::os::unix::net::UnixStream::connect(stage.daemon.socket()).is_err(), "a daemon is there again");
    stage.server.finish();
}
