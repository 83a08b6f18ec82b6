//! Secrets stay out of everything that is written down or shown, and escape sequences out of terminals.

use std::path::Path;
use std::process::Command;

use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{MESSAGES, Stage, text};

/// A key of the run's own; put together, so that no scanner takes this file for a leak.
fn key() -> String {
    ["sk-ant", "api03", "Zm9vYmFyYmF6cXV4", "1234567890abcdef"].join("-")
}

fn holds(folder: &Path, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path)
                && bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
            {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_key_is_in_no_environment_log_database_or_error() {
    let (key, other) = (key(), format!("ghp_{}", "0123456789abcdefABCDEF"));
    let mut stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([
                ("shell", json!({"command": "env; echo; cat key.txt"})),
                ("view", json!({"path": "key.txt"})),
            ]))
            .reply(Reply::status(400).message(format!("bad key {} and {other}", self::key())))
            .allow_unused(),
    );
    stage.daemon.set("ANTHROPIC_API_KEY", key.clone());
    stage.daemon.set("INNOCENT_NAME", other.clone());
    stage.workspace.write("key.txt", format!("{key}\n"));
    let output = stage.ask(&["--approve", "all", "--output", "jsonl", "look"]);
    assert_eq!(output.code, 5, "{output:#?}");
    for (name, shown) in [("stdout", &output.stdout), ("stderr", &output.stderr), ("log", &stage.daemon.log())] {
        assert!(!shown.contains(&key) && !shown.contains(&other), "{name}: {shown}");
    }
    assert!(output.stdout.contains("[redacted"), "{}", output.stdout);
    assert!(!stage.server.request(2).body.to_string().contains(&key));
    stage.daemon.stop();
    for secret in [&key, &other] {
        // The user's own file is kept as it is, readable by the user alone.
        let found = holds(&stage.daemon.home(), secret).into_iter().filter(|path| !path.contains("/checkpoints/"));
        assert_eq!(found.collect::<Vec<_>>(), Vec::<String>::new());
    }
}

#[test]
fn which_variables_commands_do_not_get_is_told() {
    let mut stage = Stage::configured(Script::new(), "[permissions]\nenv = [\"GH_TOKEN\"]\n");
    stage.daemon.set("GH_TOKEN", "passed");
    stage.daemon.set("OTHER_TOKEN", "kept");
    stage.daemon.set("DATABASE_URL", "postgres://app:s3cr3t@db/x");
    stage.daemon.set("PLAIN_URL", "postgres://app@db/x");
    stage.daemon.set("TMUX", "/tmp/tmux-1/default,1,0");
    let explained = stage.json(&["permissions", "explain", "shell", "ls"]);
    let names: Vec<String> = explained["withheld"].as_array().unwrap().iter().map(text).collect();
    assert!(names.contains(&"OTHER_TOKEN".to_owned()) && names.contains(&"ANTHROPIC_API_KEY".to_owned()), "{names:?}");
    assert!(names.contains(&"DATABASE_URL".to_owned()) && names.contains(&"TMUX".to_owned()), "{names:?}");
    assert!(!names.contains(&"PLAIN_URL".to_owned()), "{names:?}");
    assert!(!names.contains(&"GH_TOKEN".to_owned()) && !names.contains(&"PATH".to_owned()), "{names:?}");
    let doctor = stage.mcode(&["doctor"]).stdout;
    assert!(doctor.contains("OTHER_TOKEN") && !doctor.contains("kept"), "{doctor}");
    stage.server.push(Reply::tool_calls([(
        "shell",
        json!({"command": "echo got:$GH_TOKEN:$OTHER_TOKEN:$DATABASE_URL:$PLAIN_URL"}),
    )]));
    stage.server.push(Reply::text("end"));
    stage.ask(&["--approve", "all", "look"]).ok();
    let (_, told, _) = stage.server.request(2).tool_results().pop().unwrap();
    assert!(told.contains("got:passed:::postgres://app@db/x"), "{told}");
    assert!(!told.contains("kept"), "{told}");
}

#[test]
fn d15_escape_sequences_do_not_reach_the_terminal() {
    let hostile =
        "\u{1b}]52;c;cHduZWQ=\u{7} \u{1b}]8;;http://evil\u{7}ok\u{1b}]8;;\u{7} \u{1b}]0;T\u{7} \u{1b}[2J \u{9b}31m end";
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([
                ("view", json!({"path": "hostile.txt"})),
                ("shell", json!({"command": "cat raw.txt"})),
                ("shell", json!({"command": format!("echo '{hostile}'")})),
            ]))
            .reply(Reply::text(format!("it says {hostile}"))),
    );
    stage.workspace.write("hostile.txt", format!("{hostile}\n"));
    stage.workspace.write("raw.txt", [hostile.as_bytes(), b" \x9b31m\n"].concat());
    let line = stage.daemon.home().join("line.sh");
    let log = stage.daemon.home().join("typescript");
    let on_a_terminal = |words: &str| {
        // In a file of its own, since what `script` is told to run stands in the head of its log.
        std::fs::write(&line, format!("{} {words}", mcode_testkit::daemon::program("mcode").display())).unwrap();
        let mut script = Command::new("script");
        script
            .args(["-qec", &format!("sh {}", line.display())])
            .arg(&log)
            .current_dir(stage.workspace.path())
            .env_clear();
        for (name, value) in stage.daemon.command(&stage.workspace.path(), &[]).get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        let output = script.env("TERM", "xterm-256color").stdin(std::process::Stdio::null()).output().unwrap();
        let seen = std::fs::read(&log).unwrap();
        let text = String::from_utf8_lossy(&seen).into_owned();
        assert!(text.contains("52;c;cHduZWQ"), "{output:?} {text}");
        for (what, sign) in [
            ("clipboard", "\u{1b}]52"),
            ("link", "\u{1b}]8"),
            ("title", "\u{1b}]0;T"),
            ("clear", "\u{1b}[2J"),
            ("C1", "\u{9b}"),
        ] {
            assert!(!text.contains(sign), "{what} in {words}: {text:?}");
        }
        assert!(!seen.windows(2).any(|pair| pair[1] == 0x9b && pair[0].is_ascii()), "a lone 0x9b in {words}");
        text
    };
    let quoted = format!("'{hostile}'");
    let text = on_a_terminal(&format!("ask -m {MESSAGES} --approve all --title {quoted} look"));
    assert!(text.contains("52;c;cHduZWQ="), "it is shown as text: {text}");
    on_a_terminal("threads list");
    let threads = stage.json(&["threads", "list"]);
    let id = self::text(&threads["threads"][0]["thread_id"]);
    on_a_terminal(&format!("threads show {id}"));
    on_a_terminal("permissions log");
    stage.server.finish();
}
