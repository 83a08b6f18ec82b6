//! Threads that leave as files.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::answering::client;
use crate::setup::{PNG, Stage, text};
use crate::storage::damage;
use crate::terminal::Terminal;

/// Nobody's key.
const KEY: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwx";

/// A thread with a call, its result, a picture and a secret, and a fork of it that has gone on.
fn stage() -> (Stage, String, String) {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::text("I look").then_tool_calls([("shell", json!({"command": "cat f.txt"}))]))
            .reply(Reply::text("it has two lines"))
            .reply(Reply::text("gone on")),
    );
    stage.workspace.write("p.png", PNG);
    let words = ["--yolo", "--output", "json", "-i", "p.png", &format!("read it with {KEY}")];
    let thread = text(&stage.ask(&words).ok().json()["thread_id"]);
    let fork = text(&stage.json(&["threads", "fork", &thread])["thread_id"]);
    stage.ask(&["-t", &fork, "and on"]).ok();
    (stage, thread, fork)
}

fn last_seq(stage: &Stage, thread: &str) -> u64 {
    stage.json(&["threads", "show", thread])["thread"]["last_seq"].as_u64().unwrap()
}

fn names(stage: &Stage) -> Vec<String> {
    let names = std::fs::read_dir(stage.workspace.path()).unwrap();
    let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_fork_leaves_as_one_whole_file_with_what_it_shares() {
    let (stage, thread, fork) = stage();
    let told = stage.json(&["threads", "export", &fork, "-o", "fork.jsonl"]);
    let content = stage.workspace.read("fork.jsonl");
    assert_eq!(told["size_bytes"].as_u64(), Some(content.len() as u64), "{told}");
    let lines: Vec<Value> = content.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((&first["format"], &first["thread_id"]), (&json!("mcode-thread"), &json!(fork)));
    let seqs: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=last_seq(&stage, &fork)).collect::<Vec<u64>>(), "the shared beginning is in it");
    assert_eq!(last["end"]["events"].as_u64(), Some(seqs.len() as u64));
    let picture = lines.iter().find(|line| line["media_type"] == "image/png").expect("the picture is in it");
    assert_eq!(picture["size_bytes"].as_u64(), Some(PNG.len() as u64));
    for words in ["read it with", "cat f.txt", "two", "gone on", KEY] {
        assert!(content.contains(words), "{words}");
    }
    // The parent's has nothing of the fork; on standard output there is the file and nothing else.
    let parent = stage.mcode(&["threads", "export", &thread]).ok().stdout;
    assert!(!parent.contains("gone on") && parent.lines().last().unwrap().starts_with("{\"end\""), "{parent}");
    // The same thread gives the same events and bodies.
    let again = stage.mcode(&["threads", "export", &fork]).ok().stdout;
    let middle = |text: &str| text.lines().skip(1).take(lines.len() - 2).collect::<Vec<_>>().join("\n");
    assert_eq!(middle(&again), middle(&content));
    stage.server.finish();
}

#[test]
fn a_thread_leaves_to_be_read_and_for_scripts() {
    let (stage, thread, _) = stage();
    let page = stage.mcode(&["threads", "export", &thread, "--format", "markdown"]).ok().stdout;
    assert!(page.starts_with("# ") && page.contains("it has two lines") && page.contains(KEY), "{page}");
    let clean = stage.mcode(&["threads", "export", &thread, "--format", "markdown", "--redact"]).ok().stdout;
    assert!(clean.contains("read it with") && !clean.contains(KEY), "{clean}");
    let document = stage.mcode(&["threads", "export", &thread, "--format", "json", "--redact"]).ok();
    assert!(!document.stdout.contains(KEY));
    let document = document.json();
    assert_eq!((&document["format"], &document["thread"]["thread_id"]), (&json!("mcode-messages"), &json!(thread)));
    let roles: Vec<&str> =
        document["messages"].as_array().unwrap().iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    stage.server.finish();
}

#[test]
fn a_file_that_is_there_stays_and_what_fails_leaves_none() {
    let (stage, thread, _) = stage();
    stage.workspace.write("kept.md", "mine");
    let words = ["threads", "export", &thread, "--format", "markdown", "-o", "kept.md"];
    let refused = stage.mcode(&words);
    assert!(refused.code == 2 && refused.stderr.contains("kept.md is there already"), "{refused:#?}");
    assert!(refused.stderr.contains("--force"), "{refused:#?}");
    assert_eq!(stage.workspace.read("kept.md"), "mine");
    stage.mcode(&[&words[..], &["--force"]].concat()).ok();
    assert!(stage.workspace.read("kept.md").contains("it has two lines"));
    let before = names(&stage);
    let unknown = stage.mcode(&["threads", "export", "thr_00000000-0000-7000-8000-000000000000", "-o", "none"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("mcode threads list"), "{unknown:#?}");
    let whole = stage.mcode(&["threads", "export", &thread, "--redact", "-o", "none"]);
    assert!(whole.code == 2 && whole.stderr.contains("--format markdown"), "{whole:#?}");
    let nowhere = stage.mcode(&["threads", "export", &thread, "-o", "no/such/folder/file"]);
    assert!(nowhere.code == 2 && nowhere.stderr.contains("can not be written"), "{nowhere:#?}");
    assert_eq!(names(&stage), before);
    stage.server.finish();
}

/// Who a tool call has started gets no file: that would hold all that any text in the thread names.
#[test]
fn a_tool_call_exports_nothing() {
    // Without the sandbox, which keeps commands from the socket altogether.
    let stage = Stage::configured(
        Script::new()
            .reply(Reply::text("a secret of another thread"))
            .reply(Reply::tool_calls([("shell", json!({"command": "sh ./steal"}))]))
            .fallback(|_| Reply::text("tried")),
        "[sandbox]\nenabled = false\n",
    );
    let thread = text(&stage.ask(&["--output", "json", "hi"]).ok().json()["thread_id"]);
    let call = format!("{} threads export {thread} > stolen 2> told", client(&stage));
    stage.workspace.write("steal", call);
    stage.ask(&["--yolo", "do it"]).ok();
    let told = stage.workspace.read("told");
    assert!(told.contains("is for people"), "{told}");
    assert_eq!(stage.workspace.read("stolen"), "");
}

#[test]
fn a_thread_in_its_own_form_is_not_for_a_terminal() {
    let (stage, thread, _) = stage();
    let own = Terminal::run(&stage, &format!("\"$MCODE\" threads export {thread}"));
    let (status, screen) = own.end();
    assert_eq!(status, 2, "{screen}");
    assert!(screen.contains("not for a terminal") && screen.contains("-o FILE"), "{screen}");
    assert!(!screen.contains("mcode-thread"), "{screen}");
    let page = Terminal::run(&stage, &format!("\"$MCODE\" threads export {thread} --format markdown"));
    let (status, screen) = page.end();
    assert!(status == 0 && screen.contains("it has two lines"), "{screen}");
    stage.server.finish();
}

/// What can be read of a damaged thread leaves, with a word in the place of what can not.
#[test]
fn a_damaged_thread_leaves_with_what_can_be_read() {
    let (mut stage, thread, _) = stage();
    stage.daemon.stop();
    damage(&stage, &thread, 4);
    stage.daemon.restart();
    let page = stage.mcode(&["threads", "export", &thread, "--format", "markdown"]).ok().stdout;
    assert!(page.contains("it has two lines"), "{page}");
    let file = stage.mcode(&["threads", "export", &thread, "-o", "damaged.jsonl"]).ok();
    assert!(file.stdout.contains("damaged.jsonl"), "{file:?}");
    let content = stage.workspace.read("damaged.jsonl");
    let fourth: Value = serde_json::from_str(content.lines().nth(4).unwrap()).unwrap();
    assert_eq!(fourth["seq"], 4, "{fourth}");
    assert!(fourth.to_string().contains("does not match its checksum"), "{fourth}");
    let imported = stage.json(&["threads", "import", "damaged.jsonl"])["imported"].clone();
    let copy = text(&imported["thread"]["thread_id"]);
    let shown = stage.mcode(&["threads", "show", &copy]).ok().stdout;
    assert!(shown.contains("cannot be read") && shown.contains("it has two lines"), "{shown}");
    // The copy is whole, and can be gone on with.
    stage.ask(&["-t", &copy, "more"]);
    assert_eq!(stage.json(&["threads", "show", &copy])["thread"]["state"], "idle");
}

#[test]
fn a_client_or_a_daemon_that_goes_away_in_the_middle_leaves_no_file() {
    let (mut stage, thread, _) = stage();
    // Large enough that it does not fit into what is on its way.
    let file = stage.mcode(&["threads", "export", &thread]).ok().stdout;
    stage.workspace.write("long.jsonl", crate::importing::longer(&file, 400, 100_000));
    let long = text(&stage.json(&["threads", "import", "long.jsonl"])["imported"]["thread"]["thread_id"]);
    let before = names(&stage);
    // A reader that takes a little and goes: nobody complains.
    let command = stage.daemon.command(&stage.workspace.path(), &[]);
    let mcode = command.get_program().to_string_lossy().into_owned();
    let socket = stage.daemon.socket();
    let taken = crate::setup::script(
        &stage.workspace.path(),
        &format!("{mcode} --socket {} threads export {long} 2> told | head -c 1000 | wc -c", socket.display()),
    );
    assert_eq!(taken.trim(), "1000");
    assert_eq!(stage.workspace.read("told"), "");
    std::fs::remove_file(stage.workspace.join("told")).unwrap();
    // A client that is killed leaves no file of this name, whatever of it was written.
    let mut client =
        stage.daemon.spawn_mcode(&stage.workspace.path(), &["threads", "export", &long, "-o", "part.jsonl"]);
    let begun = |stage: &Stage| names(stage).iter().any(|name| name.starts_with(".mcode-"));
    stage.daemon.wait_until("it is being written", || begun(&stage));
    client.kill9();
    drop(client.output());
    assert!(!names(&stage).contains(&"part.jsonl".to_owned()));
    for name in names(&stage).into_iter().filter(|name| name.starts_with(".mcode-")) {
        std::fs::remove_file(stage.workspace.join(&name)).unwrap();
    }
    // And so does a daemon that is killed; the client says so and takes away what it has.
    let words = ["--no-autostart", "threads", "export", &long, "-o", "part.jsonl"];
    let client = stage.daemon.spawn_mcode(&stage.workspace.path(), &words);
    stage.daemon.wait_until("it is being written", || begun(&stage));
    stage.daemon.kill9();
    let told = client.output();
    assert_eq!(told.code, 6, "{told:?}");
    assert_eq!(names(&stage), before);
}
