//! What the daemon keeps, what it never keeps, and how it ends.

use std::time::{Duration, Instant};

use mcode_client::v1;
use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{MESSAGES, Stage, WAIT_FOR_GO, of_type, script, text};

fn request(stage: &Stage, words: &str) -> v1::StartRunRequest {
    let input = vec![v1::InputPart { part: Some(v1::input_part::Part::Text(words.to_owned())) }];
    let server = stage.server.base_url(mcode_testkit::Wire::Anthropic);
    let env = [
        ("ANTHROPIC_API_KEY", "test-key-anthropic"),
        ("ANTHROPIC_BASE_URL", server.as_str()),
        ("PATH", "/usr/bin:/bin"),
    ];
    v1::StartRunRequest {
        request_id: "same".to_owned(),
        input,
        model: MESSAGES.to_owned(),
        context: Some(v1::ClientContext {
            cwd: stage.workspace.path().to_str().unwrap().to_owned(),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            umask: 0o022,
            interactive: false,
            client: "test".to_owned(),
            detached: false,
        }),
        ..Default::default()
    }
}

#[test]
fn the_same_request_starts_one_run() {
    let stage = Stage::new(Script::new().reply(Reply::text("once")));
    let (runtime, client) = stage.client();
    let first = runtime.block_on(client.start_run(request(&stage, "hi"))).unwrap();
    stage.events(&first.thread_id);
    assert_eq!(runtime.block_on(client.start_run(request(&stage, "hi"))).unwrap(), first);
    assert_eq!(stage.json(&["runs", "list"])["runs"].as_array().unwrap().len(), 1);
    let error = runtime.block_on(client.start_run(request(&stage, "something else"))).unwrap_err();
    assert_eq!(error.reason, "REQUEST_ID_REUSED", "{error:?}");
    let mut service = mcode_client::v1::run_service_client::RunServiceClient::new(client.channel());
    let status = runtime.block_on(service.start_run(request(&stage, "something else"))).unwrap_err();
    assert!(format!("{:?}", status.code()).contains("AlreadyExists"), "{status:?}");
    stage.server.finish();
}

/// A row that can not be read makes its thread read-only, and no other.
#[test]
fn a_damaged_thread_is_told_and_the_others_work() {
    let mut stage = Stage::new(Script::new().repeat(3, &Reply::text("fine")));
    let broken = text(&stage.ask(&["--output", "json", "a"]).ok().json()["thread_id"]);
    let whole = text(&stage.ask(&["--output", "json", "b"]).ok().json()["thread_id"]);
    stage.daemon.stop();
    let edit = format!(
        "import sqlite3,glob,uuid\n\
         path=glob.glob('{home}/**/mcode.db',recursive=True)[0]\n\
         c=sqlite3.connect(path)\n\
         cols=[r[1] for r in c.execute('pragma table_info(events)')]\n\
         body=[n for n in cols if n in ('body','payload','data')][0]\n\
         hexid='{id}'[4:]\n\
         ids=[hexid,'{id}',uuid.UUID(hexid).bytes,str(uuid.UUID(hexid))]\n\
         n=sum(c.execute(f'update events set {{body}}=? where thread_id=? and seq=4',(b'{{oh',i)).rowcount for i in ids)\n\
         c.commit()\n\
         print(n)\n",
        home = stage.daemon.home().display(),
        id = broken
    );
    stage.workspace.write("edit.py", edit);
    assert_eq!(script(&stage.workspace.path(), "python3 edit.py 2>&1"), "1\n");
    stage.daemon.restart();
    let output = stage.ask(&["-t", &broken, "--output", "json", "more"]);
    assert_ne!(output.code, 0);
    assert_eq!(output.json()["error"]["reason"], "THREAD_DAMAGED", "{output:#?}");
    assert_eq!(stage.ask(&["-t", &whole, "more"]).ok().stdout, "fine\n");
    let shown = stage.json(&["threads", "list"]);
    let ids: Vec<_> = shown["threads"].as_array().unwrap().iter().map(|thread| text(&thread["thread_id"])).collect();
    assert!(ids.contains(&broken) && ids.contains(&whole));
    stage.server.finish();
}

/// The last good values stay in force while the file is broken.
#[test]
fn a_configuration_that_breaks_later_changes_nothing() {
    let stage = Stage::configured(Script::new().reply(Reply::text("still")), &format!("model = \"{MESSAGES}\"\n"));
    stage.daemon.write_config("model = \"openai/gpt-5.5\"\nlimits = 3\n");
    let (runtime, client) = stage.client();
    let errors = runtime.block_on(client.reload_config(v1::ReloadConfigRequest {})).unwrap().errors;
    assert!(errors[0].contains("config.toml:2") && errors[0].contains("limits"), "{errors:?}");
    let output = stage.mcode(&["ask", "hi"]).ok();
    assert_eq!(output.stdout, "still\n");
    assert_eq!(stage.server.request(1).model(), "claude-sonnet-5");
    let info = runtime.block_on(client.get_info(v1::GetInfoRequest {})).unwrap();
    assert!(info.config_errors[0].contains("config.toml:2"), "{info:?}");
    stage.server.finish();
}

/// A rule that was written into the file with an editor holds from the next run on, without a word to the daemon.
#[test]
fn an_edit_of_the_configuration_counts_at_once() {
    let call = || Reply::tool_calls([("shell", json!({"command": "touch made"}))]);
    let stage =
        Stage::new(Script::new().reply(call()).reply(Reply::text("one")).reply(call()).reply(Reply::text("two")));
    stage.ask(&["--yolo", "make it"]).ok();
    std::fs::remove_file(stage.workspace.path().join("made")).unwrap();
    stage.daemon.write_config(&format!("model = \"{MESSAGES}\"\n[permissions]\ndeny = [\"shell(touch *)\"]\n"));
    stage.mcode(&["ask", "--yolo", "make it"]);
    let told = stage.server.request(4).tool_results().pop().unwrap().1;
    assert!(told.contains("deny rule") && told.contains("config.toml"), "{told}");
    assert!(!stage.workspace.path().join("made").exists());
    stage.server.finish();
}

/// Keys serve their run and are found nowhere afterwards, nor in the environment of a command.
#[test]
fn keys_are_kept_nowhere() {
    let mut stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": "env; seq 1 20000"}))]))
            .reply(Reply::status(500))
            .reply(Reply::text("done")),
    );
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "sk-ant-veryveryhidden1"),
        ("GITHUB_TOKEN", "ghp_veryveryhidden2"),
        ("MCODE_LOG", "trace"),
        ("HARMLESS", "is-passed-on"),
    ] {
        stage.daemon.set(name, value);
    }
    stage.daemon.restart();
    stage.ask(&["--yolo", "look"]).ok();
    let requests = stage.server.requests();
    assert!(requests[0].headers.values().any(|value| value.contains("veryveryhidden1")), "{:?}", requests[0].headers);
    let result = &requests[1].tool_results()[0].1;
    assert!(!result.contains("veryveryhidden"), "{result}");
    assert!(result.contains("HARMLESS=is-passed-on"), "{result}");
    let found = script(&stage.daemon.home(), "grep -rlaF veryveryhidden1 . ; grep -rlaF is-passed-on . | head -1");
    assert!(
        !found.is_empty() && !script(&stage.daemon.home(), "grep -rlaF veryveryhidden1 .").contains('.'),
        "{found}"
    );
    assert!(!stage.daemon.log().contains("veryveryhidden"));
    stage.server.finish();
}

/// The daemon answers while a turn is busy.
#[test]
fn health_is_answered_while_a_command_is_busy() {
    let command = "touch begun; while [ ! -e go ]; do :; done";
    let stage = Stage::new(
        Script::new().reply(Reply::tool_calls([("shell", json!({"command": command}))])).reply(Reply::text("done")),
    );
    let run = stage.detach(&["--yolo", "spin"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    let (runtime, client) = stage.client();
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = Instant::now();
            runtime.block_on(client.get_info(v1::GetInfoRequest {})).unwrap();
            begun.elapsed()
        })
        .collect();
    took.sort();
    // The machine is shared with other tests: half of the answers say what the daemon can do.
    assert!(took[10] < Duration::from_millis(100), "{took:?}");
    stage.go();
    stage.events(&run.thread_id);
    stage.server.finish();
}

/// `daemon stop` ends a run in order: one terminal event, and the next daemon has nothing to mend.
#[test]
fn a_stop_interrupts_the_run_once() {
    let mut stage = Stage::new(
        Script::new().reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO}))])).reply(Reply::text("on")),
    );
    let run = stage.detach(&["--yolo", "work"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    // A watcher that may start a daemon would bring it back at once.
    let words = ["watch", run.thread_id.as_str(), "--after", "0", "--output", "jsonl", "--no-autostart"];
    let watcher = stage.daemon.spawn_mcode(&stage.workspace.path(), &words);
    let stopped = stage.mcode(&["daemon", "stop", "--force"]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    stage.daemon.wait_until("the socket is gone", || !stage.daemon.socket().exists());
    drop(watcher);
    stage.daemon.wait_until("all processes are gone", || stage.daemon.processes().is_empty());
    stage.daemon.restart();
    let events = stage.events(&run.thread_id);
    let ends = of_type(&events, "run_finished");
    assert_eq!((ends.len(), &ends[0]["status"], &ends[0]["exit_code"]), (1, &json!("interrupted"), &json!(130)));
    assert_eq!(of_type(&events, "tool_call_finished").len(), 1);
    assert_eq!(stage.ask(&["-c", "go on"]).ok().stdout, "on\n");
    stage.server.finish();
}
