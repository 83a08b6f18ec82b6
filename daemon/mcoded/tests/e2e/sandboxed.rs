//! What commands and file tools can not do even when everything is approved.

use std::io::{Read, Write};
use std::path::Path;

use mcode_testkit::{ModelServer, Reply, Script, TestDaemon, Workspace};
use serde_json::{Value, json};

use crate::setup::{Stage, of_type, script, text};

fn shell(command: &str) -> (&'static str, Value) {
    ("shell", json!({"command": command}))
}

fn statuses(result: &Value) -> Vec<&str> {
    result["tool_calls"].as_array().unwrap().iter().map(|call| call["status"].as_str().unwrap()).collect()
}

/// Whether this machine gives namespaces, by what the daemon says.
fn namespaces(stage: &Stage) -> bool {
    let mut found = Value::Null;
    stage.daemon.wait_until("the sandbox was tried out", || {
        found = stage.json(&["daemon", "status"])["sandbox"].clone();
        !found.is_null()
    });
    assert_eq!(found["enforced"], true, "{found}");
    text(&found["strength"]).contains("+namespaces")
}

/// D09: what git obeys in a repository below the project's own.
#[test]
fn a_repository_below_the_project_keeps_its_hooks_and_settings() {
    let calls = [
        shell("echo 'touch /tmp/PWN' > vendor/sub/.git/hooks/pre-commit"),
        ("write", json!({"path": "vendor/sub/.git/hooks/post-checkout", "content": "touch /tmp/PWN"})),
        shell("git -C vendor/sub config core.fsmonitor 'touch /tmp/PWN'"),
        shell(
            "mv vendor/sub/.git x; mkdir vendor/sub/.git; cd vendor/sub/.git && mkdir hooks && echo x > hooks/pre-push",
        ),
    ];
    let stage = Stage::new(Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("no")));
    let sub = stage.workspace.join("vendor/sub");
    std::fs::create_dir_all(&sub).unwrap();
    script(&sub, "git init -q");
    let look = |folder: &Path| script(folder, "cat .git/config; ls .git/hooks | grep -v sample");
    let before = look(&sub);
    let result = stage.ask(&["--yolo", "--output", "json", "plant it"]).json();
    if namespaces(&stage) {
        assert_eq!(look(&sub), before, "{result:#}");
        assert_eq!(statuses(&result), ["failed", "denied", "failed", "failed"], "{result:#}");
    } else {
        assert_eq!(statuses(&result)[1], "denied", "{result:#}");
        let told = stage.server.request(2).tool_results();
        assert!(
            [0, 2]
                .iter()
                .all(|&call| told[call].1.contains("outside the sandbox") && told[call].1.contains("vendor/sub/.git")),
            "{told:?}"
        );
    }
    stage.server.finish();
}

/// D11: deny rules hold for what a link leads to.
#[test]
fn a_link_does_not_open_what_is_denied() {
    let kept = tempfile::tempdir().unwrap();
    let secret = kept.path().canonicalize().unwrap();
    std::fs::write(secret.join("k"), "K3Y").unwrap();
    let path = secret.display();
    let calls = [
        ("view", json!({"path": "link"})),
        ("view", json!({"path": "d/k"})),
        ("grep", json!({"pattern": ".", "path": "d"})),
        ("write", json!({"path": "d/new", "content": "x"})),
    ];
    let config = format!("[permissions]\ndeny = [\"view({path}/**)\", \"edit({path}/**)\"]\n");
    let steps = calls.into_iter().fold(Script::new(), |script, call| script.reply(Reply::tool_calls([call])));
    let stage = Stage::configured(steps.reply(Reply::text("no")), &config);
    script(&stage.workspace.path(), &format!("ln -s {path}/k link; ln -s {path} d"));
    let result = stage.ask(&["--yolo", "--output", "json", "look"]).json();
    assert_eq!(statuses(&result), ["denied"; 4], "{result:#}");
    for number in 2..=5 {
        let results = stage.server.request(number).tool_results();
        assert!(!results.iter().any(|(_, text, _)| text.contains("K3Y")), "{results:?}");
    }
    assert_eq!(secret.read_dir().unwrap().count(), 1);
    stage.server.finish();
}

#[test]
fn a_run_that_approves_everything_stays_in_the_sandbox() {
    let kept = tempfile::tempdir().unwrap();
    let outside = kept.path().canonicalize().unwrap();
    let path = outside.display();
    let mut daemon = TestDaemon::prepare();
    let private = daemon.home().join("data/mcode.db");
    let calls = [
        shell(&format!("echo x > {path}/a")),
        ("shell", json!({"command": format!("echo x > {path}/b"), "sandbox": "off"})),
        ("write", json!({"path": format!("{path}/c"), "content": "x"})),
        shell(&format!("head -c 16 {}", private.display())),
        ("view", json!({"path": private})),
        ("write", json!({"path": ".git/hooks/pre-commit", "content": "x"})),
        ("write", json!({"path": ".mcode/config.toml", "content": "x"})),
    ];
    let server = ModelServer::start_blocking(Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("no")));
    daemon.use_server(&server);
    daemon.restart();
    let stage = Stage { server, daemon, workspace: Workspace::with_files([("f.txt", "one\n")]) };
    let result = stage.ask(&["--yolo", "--output", "json", "get out"]).json();
    let wanted = ["failed", "denied", "denied", "failed", "denied", "denied", "denied"];
    assert_eq!(statuses(&result), wanted, "{result:#}");
    assert_eq!(outside.read_dir().unwrap().count(), 0);
    assert!(!stage.exists(".git/hooks/pre-commit") && !stage.exists(".mcode/config.toml"));
    assert!(!result.to_string().contains("SQLite"), "{result:#}");
}

#[test]
fn a_run_that_approves_everything_gives_the_network_to_commands_that_ask() {
    let calls = [shell("cat /proc/net/dev"), ("shell", json!({"command": "cat /proc/net/dev", "sandbox": "network"}))];
    let stage = Stage::new(Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("done")));
    stage.ask(&["--yolo", "look"]).ok();
    let told = stage.server.request(2).tool_results();
    let count = |text: &str| text.lines().filter(|line| line.contains(':')).count();
    let here = count(&std::fs::read_to_string("/proc/net/dev").unwrap());
    assert_eq!(count(&told[1].1), here, "{told:?}");
    assert!(!namespaces(&stage) || count(&told[0].1) == 1, "{told:?}");
    stage.server.finish();
}

#[test]
fn a_person_lets_one_command_out() {
    let kept = tempfile::tempdir().unwrap();
    let outside = kept.path().canonicalize().unwrap();
    let command = format!("echo x > {}/made", outside.display());
    let calls = Reply::tool_calls([("shell", json!({"command": command, "sandbox": "off"}))]);
    let again = Reply::tool_calls([shell(&format!("rm {}/made", outside.display()))]);
    let config = "[permissions]\nallow = [\"shell(rm *)\", \"shell(echo *)\"]\n";
    let stage = Stage::configured(Script::new().reply(calls).reply(again).reply(Reply::text("done")), config);
    let run = stage.detach(&["--approve", "ask", "make it"]);
    let approval = stage.waiting("approvals");
    assert!(text(&approval["preview"]).starts_with("OUTSIDE THE SANDBOX:\n"), "{approval}");
    assert!(approval["proposed_rule"].as_str().unwrap_or_default().is_empty(), "{approval}");
    stage.mcode(&["approvals", "allow", &text(&approval["approval_id"])]).ok();
    let events = stage.events(&run.thread_id);
    // The next command is held again.
    assert!(outside.join("made").exists());
    let ends: Vec<&Value> = of_type(&events, "tool_call_finished").into_iter().map(|end| &end["status"]).collect();
    assert_eq!(ends, ["done", "failed"], "{events:#?}");
    stage.server.finish();
}

/// D18 in the whole: the hosts that the user has listed, and no others.
#[test]
fn a_listed_host_is_reached_without_asking() {
    let stage = Stage::configured(Script::new(), "[sandbox]\nnetwork = \"deny\"\nhosts = [\"127.0.0.1\"]\n");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let get = |host: &str| {
        let code =
            format!("import urllib.request; print(urllib.request.urlopen('http://{host}:{port}/', timeout=9).read())");
        shell(&format!("unset no_proxy NO_PROXY; python3 -c \"{code}\""))
    };
    let calls = [get("127.0.0.1"), get("localhost"), ("shell", json!({"command": "true", "sandbox": "network"}))];
    let server = ModelServer::start_blocking(Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("no")));
    let mut stage = Stage { server, ..stage };
    stage.daemon.use_server(&stage.server);
    stage.daemon.restart();
    let result = stage.ask(&["--yolo", "--output", "json", "fetch"]).json();
    let told = stage.server.request(2).tool_results();
    if namespaces(&stage) {
        assert!(told[0].1.contains("hello"), "{told:?}");
        assert!(told[1].1.contains("403"), "{told:?}");
        assert_eq!(statuses(&result), ["done", "failed", "failed"], "{result:#}");
        served.join().unwrap();
    } else {
        assert_eq!(statuses(&result), ["failed", "failed", "failed"], "{result:#}");
    }
}

#[test]
fn what_is_held_and_what_is_not_is_told() {
    let stage = Stage::new(Script::new());
    let named = if namespaces(&stage) { "+namespaces" } else { "namespaces can not be had" };
    let doctor = stage.mcode(&["doctor", "--output", "json"]).json();
    let checks = doctor["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == "sandbox").unwrap();
    assert!(text(&check["found"]).starts_with("landlock-") && text(&check["found"]).contains(named), "{check}");
    let status = stage.mcode(&["daemon", "status"]).ok().stdout;
    assert!(status.contains("sandbox  landlock-") && status.contains(named), "{status}");
}

#[test]
fn that_it_is_turned_off_is_told_to_the_model_once() {
    let script = Script::new()
        .reply(Reply::tool_calls([shell("echo one")]))
        .reply(Reply::tool_calls([shell("echo two")]))
        .reply(Reply::text("done"));
    let stage = Stage::configured(script, "[sandbox]\nenabled = false\n");
    stage.ask(&["--yolo", "go"]).ok();
    let [first, second] = [2, 3].map(|number| stage.server.request(number).tool_results());
    assert!(first[0].1.contains("[no sandbox: ") && !second[0].1.contains("no sandbox"), "{first:?} {second:?}");
    assert_eq!(stage.json(&["daemon", "status"])["sandbox"]["strength"], "off");
    stage.server.finish();
}
