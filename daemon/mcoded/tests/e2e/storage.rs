//! What is kept: checked, mended, copied and brought back by people.

use std::path::PathBuf;

use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{Stage, of_type, script, text};

fn said_by(stage: &Stage, words: &str) -> String {
    text(&stage.ask(&["--output", "json", words]).ok().json()["thread_id"])
}

/// Overwrites the stored form of an event behind the daemon's back.
pub(crate) fn damage(stage: &Stage, thread: &str, seq: u64) {
    let edit = format!(
        "import sqlite3,glob\n\
         c=sqlite3.connect(glob.glob('{home}/**/mcode.db',recursive=True)[0])\n\
         n=c.execute('update events set payload=? where thread_id=? and seq=?',('{{\"role\":\"us','{thread}',{seq})).rowcount\n\
         c.commit()\n\
         print(n)\n",
        home = stage.daemon.home().display(),
    );
    stage.workspace.write("edit.py", edit);
    assert_eq!(script(&stage.workspace.path(), "python3 edit.py 2>&1"), "1\n");
}

/// One torn record of a thread: the others load, the damaged one is shown as unreadable, and mending lets it go on.
#[test]
fn a_damaged_event_is_shown_told_and_mended() {
    let mut stage = Stage::new(Script::new().repeat(4, &Reply::text("fine")));
    let broken = said_by(&stage, "a question");
    let whole = said_by(&stage, "another");
    assert_eq!(stage.mcode(&["doctor", "--db"]).ok().stdout.lines().last(), Some("all of it is whole"));
    let events = stage.json(&["threads", "show", &broken])["events"].as_array().unwrap().len();
    stage.daemon.stop();
    damage(&stage, &broken, 4);
    stage.daemon.restart();
    let shown = stage.mcode(&["threads", "show", &broken]).ok().stdout;
    assert!(shown.contains("(event 4 cannot be read: its content does not match its checksum)"), "{shown}");
    assert!(shown.contains("fine"), "what is behind it is shown: {shown}");
    assert_eq!(stage.json(&["threads", "show", &broken])["events"].as_array().unwrap().len(), events);
    let watched = stage.mcode(&["watch", &broken, "--after", "0", "--until-idle"]).ok().stdout;
    assert!(watched.contains("cannot be read") && watched.contains("finished"), "{watched}");
    assert_eq!(stage.ask(&["-t", &broken, "--output", "json", "more"]).json()["error"]["reason"], "THREAD_DAMAGED");
    let told = stage.mcode(&["doctor", "--db"]);
    assert_ne!(told.code, 0);
    assert!(told.stdout.contains(&format!("event 4 of {broken}")) && told.stdout.contains("--mend"), "{told:?}");
    let faults = stage.mcode(&["doctor", "--db", "--output", "json"]).json()["faults"].clone();
    assert_eq!((&faults[0]["thread_id"], faults.as_array().unwrap().len()), (&json!(broken), 1), "{faults}");
    let unasked = stage.mcode(&["doctor", "--db", "--mend", "--output", "json"]);
    assert_eq!(unasked.json()["error"]["reason"], "NOT_CONFIRMED", "{unasked:?}");
    stage.mcode(&["doctor", "--db", "--mend", "--yes"]).ok();
    stage.mcode(&["doctor", "--db"]).ok();
    let notices = stage.events(&broken);
    assert!(of_type(&notices, "notice").iter().any(|it| it.to_string().contains("was mended")), "{notices:#?}");
    assert_eq!(stage.ask(&["-t", &broken, "more"]).ok().stdout, "fine\n");
    assert_eq!(stage.ask(&["-t", &whole, "more"]).ok().stdout, "fine\n");
    stage.mcode(&["doctor", "--db"]).ok();
    stage.server.finish();
}

#[test]
fn a_copy_is_made_and_brought_back() {
    let stage = Stage::new(Script::new().repeat(2, &Reply::text("fine")));
    let first = said_by(&stage, "before the copy");
    let file = stage.workspace.path().join("copy.tar");
    let file = file.to_str().unwrap();
    assert!(stage.mcode(&["doctor", "--backup", "copy.tar"]).ok().stdout.contains("holds 1 thread"));
    let again = stage.mcode(&["doctor", "--backup", file]);
    assert!(again.code != 0 && again.stderr.contains("there already"), "{again:?}");
    let second = said_by(&stage, "after the copy");
    let unasked = stage.mcode(&["doctor", "--restore", file]);
    assert!(unasked.code != 0 && unasked.stderr.contains("--yes"), "{unasked:?}");
    stage.workspace.write("bad.tar", "no copy at all");
    let refused = stage.mcode(&["doctor", "--restore", "bad.tar", "--yes"]);
    assert!(refused.code != 0 && refused.stderr.contains("nothing was changed"), "{refused:?}");
    assert_eq!(stage.json(&["threads", "list"])["threads"].as_array().unwrap().len(), 2);
    let restored = stage.mcode(&["doctor", "--restore", file, "--yes", "--output", "json"]).ok().json();
    assert_eq!(restored["threads"], 1);
    let threads = stage.json(&["threads", "list"])["threads"].clone();
    assert_eq!(threads.as_array().unwrap().len(), 1);
    assert_eq!(threads[0]["thread_id"], first.as_str());
    let former = PathBuf::from(text(&restored["former"]));
    assert!(former.join("mcode.db").exists() && former.join("blobs").exists(), "{}", former.display());
    assert_ne!(first, second);
    stage.mcode(&["doctor", "--db"]).ok();
    stage.server.finish();
}

/// Runs SQL behind the daemon's back.
fn sql(stage: &Stage, statement: &str) {
    let edit = format!(
        "import sqlite3,glob\n\
         c=sqlite3.connect(glob.glob('{home}/**/mcode.db',recursive=True)[0])\n\
         print(c.execute(\"{statement}\").rowcount)\n\
         c.commit()\n",
        home = stage.daemon.home().display(),
    );
    stage.workspace.write("edit.py", edit);
    assert_eq!(script(&stage.workspace.path(), "python3 edit.py 2>&1"), "1\n");
}

/// A policy is shown before it acts, acts after its time of grace, and says what it did.
#[test]
fn a_policy_lets_go_what_was_put_away_and_nothing_before_its_time() {
    let mut stage = Stage::configured(Script::new().repeat(2, &Reply::text("fine")), "[threads]\nkeep_days = 900\n");
    let (away, kept) = (said_by(&stage, "put away"), said_by(&stage, "kept"));
    let shown = stage.mcode(&["doctor", "--db", "--retention"]).ok().stdout;
    assert!(shown.contains("keep_days = 900") && shown.contains("nothing is let go now"), "{shown}");
    stage.mcode(&["threads", "archive", &away]).ok();
    stage.mcode(&["config", "set", "threads.max_bytes_per_project", "1"]).ok();
    let shown = stage.mcode(&["doctor", "--db", "--retention"]).ok().stdout;
    assert!(shown.contains(&away) && !shown.contains(&kept), "{shown}");
    assert!(shown.contains("threads.max_bytes_per_project") && shown.contains("Nothing is deleted before"), "{shown}");
    let all = stage.mcode(&["doctor", "--db"]).ok().stdout;
    assert!(all.starts_with("leaving  1 thread with ") && all.contains("--retention"), "{all}");
    // The daemon notes it by itself.
    stage.daemon.stop();
    stage.daemon.restart();
    let noted = |stage: &Stage| stage.mcode(&["doctor", "--db", "--retention", "--output", "json"]).ok().json();
    while noted(&stage)["noted_at"].is_null() {
        std::thread::yield_now();
    }
    assert_eq!(stage.json(&["threads", "list", "--archived"])["threads"].as_array().unwrap().len(), 2);
    stage.daemon.stop();
    sql(&stage, "update retention set since = since - 3 * 24 * 60 * 60 * 1000");
    stage.daemon.restart();
    let record = loop {
        let log = stage.mcode(&["permissions", "log"]).ok().stdout;
        if log.contains("let_go") && stage.mcode(&["threads", "show", &away]).code != 0 {
            break log;
        }
        std::thread::yield_now();
    };
    assert!(record.contains("put away"), "{record}");
    let left = stage.json(&["threads", "list", "--archived"])["threads"].clone();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["thread_id"]), (1, &json!(kept)));
    stage.mcode(&["doctor", "--db"]).ok();
    stage.server.finish();
}

/// Every place that mcode writes has a line, the largest first, and the project has its share.
#[test]
fn what_takes_space_is_told_place_by_place() {
    let stage = Stage::new(Script::new());
    stage.workspace.write("file", "x".repeat(50_000));
    stage.server.push(Reply::tool_calls([("shell", json!({ "command": "head -c 300000 /dev/urandom > made" }))]));
    stage.server.push(Reply::text("made"));
    stage.ask(&["--yolo", "make it"]).ok();
    // A daemon in the foreground logs elsewhere.
    std::fs::write(stage.daemon.home().join("state/mcoded.log.1"), "x".repeat(20_000)).unwrap();
    let found = stage.mcode(&["doctor", "--db", "--output", "json"]).ok().json();
    let places: Vec<(String, u64)> = found["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| (text(&place["what"]), place["bytes"].as_u64().unwrap()))
        .collect();
    assert!(places.iter().any(|(what, bytes)| what == "checkpoints" && *bytes > 300_000), "{places:?}");
    assert!(places.iter().any(|(what, bytes)| what == "the daemon's log" && *bytes >= 20_000), "{places:?}");
    assert!(places.windows(2).all(|two| two[0].1 >= two[1].1), "{places:?}");
    let used = &found["use"][0];
    assert!(used["checkpoint_bytes"].as_u64().unwrap() > 300_000, "{used}");
    let told = stage.mcode(&["doctor", "--db"]).ok().stdout;
    let line = told.lines().find(|line| line.contains(": 1 thread,")).unwrap();
    assert!(line.contains(": 1 thread, checkpoints "), "the largest first: {line}");
    assert!(told.contains("/data/checkpoints") && told.contains("the daemon's log 20 kB"), "{told}");
    stage.server.finish();
}

/// A disk with the bodies that is not mounted loses none of them.
#[test]
fn bodies_whose_folder_is_not_mounted_are_not_given_up() {
    let mut stage = Stage::new(Script::new().reply(Reply::text("long ".repeat(30_000))).reply(Reply::text("fine")));
    let thread = said_by(&stage, "a long answer");
    let (data, aside) = (stage.daemon.home().join("data"), stage.daemon.home().join("unmounted"));
    stage.daemon.stop();
    std::fs::rename(data.join("blobs"), &aside).unwrap();
    stage.daemon.restart();
    let told = stage.mcode(&["doctor", "--db"]);
    assert!(told.code != 0 && told.stdout.contains("as if its disk were not mounted"), "{told:?}");
    let refused = stage.mcode(&["doctor", "--db", "--mend", "--yes", "--output", "json"]);
    assert_eq!(refused.json()["error"]["reason"], "BODIES_ABSENT", "{refused:?}");
    assert!(refused.json()["error"]["hint"].to_string().contains("--force"), "{refused:?}");
    stage.daemon.stop();
    std::fs::remove_dir_all(data.join("blobs")).unwrap();
    std::fs::rename(&aside, data.join("blobs")).unwrap();
    stage.daemon.restart();
    stage.mcode(&["doctor", "--db"]).ok();
    assert_eq!(stage.ask(&["-t", &thread, "more"]).ok().stdout, "fine\n");
    stage.server.finish();
}

/// A program of a tool call neither mends nor copies.
#[test]
fn mending_and_copying_are_for_people() {
    // Without the sandbox, which keeps commands from the socket altogether.
    let stage = Stage::configured(Script::new(), "[sandbox]\nenabled = false\n");
    let mcode = crate::answering::client(&stage);
    let damaged = said_at(&stage);
    let command = format!("{mcode} doctor --backup copy.tar; {mcode} doctor --db --mend --yes; true");
    stage.server.push(Reply::tool_calls([("shell", json!({ "command": command }))]));
    stage.server.push(Reply::text("done"));
    let asked = stage.ask(&["--yolo", "--output", "json", "try it"]).ok().json();
    let events = stage.events(&text(&asked["thread_id"]));
    let results = of_type(&events, "tool_call_finished");
    let told = results[0].to_string();
    for refused in ["copying everything that is kept is for people", "mending what is damaged is for people"] {
        assert!(told.contains(refused), "{told}");
    }
    assert!(!stage.exists("copy.tar"));
    assert_ne!(stage.mcode(&["doctor", "--db"]).code, 0, "{damaged} is as damaged as it was");
    stage.server.finish();
}

/// A thread with an event that cannot be read.
fn said_at(stage: &Stage) -> String {
    stage.server.push(Reply::text("fine"));
    let thread = said_by(stage, "a question");
    damage(stage, &thread, 4);
    thread
}
