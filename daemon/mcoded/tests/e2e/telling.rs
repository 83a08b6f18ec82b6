//! What people are told: ids in short, prices, refusals, verbs that are none.

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{MESSAGES, OWN, Stage, WAIT_FOR_GO, text};

fn makes(path: &str) -> Reply {
    Reply::tool_calls([("shell", json!({"command": format!("touch {path}")}))])
}

#[test]
fn only_what_helps_is_hinted_at_after_a_refusal() {
    let stage = Stage::configured(
        Script::new()
            .reply(makes("made"))
            .reply(Reply::text("no"))
            .reply(makes("made"))
            .reply(Reply::text("no"))
            .reply(makes("denied"))
            .reply(Reply::text("no")),
        "[permissions]\ndeny = [\"shell(touch denied)\"]\n",
    );
    let stderr = |words: &[&str]| {
        let output = stage.ask(words);
        assert_eq!(output.code, 4, "{output:#?}");
        output.stderr
    };
    let nobody = stderr(&["make it"]);
    assert!(nobody.contains("--detach --approve ask") && nobody.contains("--approve all"), "{nobody}");
    assert!(nobody.contains("denied: the default"), "{nobody}");
    let explore = stderr(&["--mode", "explore", "--yolo", "make it"]);
    assert!(!explore.contains("--approve all") && explore.contains("--mode build"), "{explore}");
    let rule = stderr(&["--yolo", "make it"]);
    assert!(!rule.contains("--approve all") && !rule.contains("hint:"), "{rule}");
    stage.server.finish();
}

#[test]
fn ids_may_be_short_or_latest_and_their_kind_is_checked() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::text("one"))
            .reply(Reply::text("two"))
            .reply(Reply::text("three"))
            .reply(makes("made"))
            .reply(Reply::text("done")),
    );
    let first = stage.ask(&["--output", "json", "a"]).ok().json();
    let (thread, run) = (text(&first["thread_id"]), text(&first["run_id"]));
    stage.ask(&["b"]).ok();
    assert_eq!(stage.json(&["threads", "show", &thread[..thread.len() - 1]])["thread"]["thread_id"], thread);
    assert_eq!(stage.json(&["runs", "show", &run["run_".len()..run.len() - 2]])["run"]["run_id"], run);
    assert_eq!(
        stage.json(&["runs", "show", "latest"])["run"]["thread_id"],
        stage.json(&["threads", "show", "latest"])["thread"]["thread_id"]
    );
    assert_eq!(
        stage.ask(&["-t", &thread[..thread.len() - 1], "--output", "json", "c"]).ok().json()["thread_id"],
        thread
    );

    let wrong = stage.mcode(&["threads", "show", &run]);
    assert_eq!((wrong.code, wrong.stderr.contains(&format!("{run} is a run, not a thread"))), (2, true), "{wrong:#?}");
    // Both begin with what the clock gave them.
    let both = stage.mcode(&["threads", "show", &thread[.."thr_".len() + 4]]);
    assert!(both.code == 2 && both.stderr.contains("2 threads"), "{both:#?}");
    let none = stage.mcode(&["watch", "thr_ffffff"]);
    assert!(none.code == 2 && none.stderr.contains("thr_ffffff"), "{none:#?}");

    assert_eq!(stage.mcode(&["approvals", "allow", "latest"]).code, 2);
    let run = stage.detach(&["--approve", "ask", "make it"]);
    stage.waiting("approvals");
    let waiting = stage.run(&run.run_id);
    assert_eq!((&waiting["status"], waiting.get("exit_code")), (&json!("waiting"), None));
    stage.mcode(&["approvals", "allow", "latest"]).ok();
    stage.events(&run.thread_id);
    assert_eq!((stage.exists("made"), &stage.run("latest")["exit_code"]), (true, &json!(0)));
    stage.server.finish();
}

/// A slip in the configuration of a daemon at work costs no run, but whoever begins one is told, once.
#[test]
fn a_slip_in_the_configuration_is_told_when_a_run_begins() {
    let stage = Stage::configured(Script::new().repeat(3, &Reply::text("ok")), "approve = \"deny\"\n");
    assert!(!stage.ask(&["hi"]).ok().stderr.contains("config.toml"));
    stage.daemon.write_config("approve = \"deny\"\nmax_cost = 5\n[limits]\nmax_cost_per_run = \"much\"\n");
    for words in [&["hi"][..], &["--detach", "--output", "json", "hi"]] {
        let output = stage.ask(words).ok();
        let told: Vec<&str> =
            output.stderr.lines().filter(|line| line.contains("config.toml:4: limits.max_cost_per_run")).collect();
        assert_eq!(told.len(), 1, "{output:#?}");
        assert!(output.stderr.contains("hint: mend it"), "{output:#?}");
    }
    stage.server.wait_until_blocking("all were asked", |server| server.requests().len() == 3);
    stage.server.finish();
}

/// Which key is used is told of the run, by where it is from.
#[test]
fn the_key_of_a_run_is_told_by_where_it_is_from() {
    let stage = Stage::reached_by_itself(Script::new().repeat(2, &Reply::text("ok")));
    for (model, key) in [(MESSAGES, "environment ANTHROPIC_API_KEY"), (OWN, "config.toml")] {
        let output = stage.ask(&["-m", model, "-v", "hi"]).ok();
        assert!(output.stderr.contains(&format!("{model}, key: {key}")), "{output:#?}");
        let shown = stage.mcode(&["runs", "show", "latest"]).ok().stdout;
        assert!(shown.contains(&format!("key     {key}")), "{shown}");
        assert_eq!(stage.json(&["runs", "show", "latest"])["run"]["key_source"], key);
        assert!(!shown.contains("test-key") && !output.stderr.contains("test-key"), "{shown}");
    }
    stage.server.finish();
}

#[test]
fn a_price_that_is_not_known_is_told() {
    let stage = Stage::new(Script::new().repeat(3, &Reply::text("ok")));
    let unknown = stage.ask(&["-m", "openai/gpt-of-tomorrow", "--max-cost", "1", "hi"]).ok();
    assert!(unknown.stderr.contains("the price of this model is not known"), "{}", unknown.stderr);
    let shown = stage.mcode(&["runs", "show", "latest"]).ok().stdout;
    assert!(shown.contains("price unknown") && !shown.contains('$'), "{shown}");
    let known = stage.ask(&["--max-cost", "1", "hi"]).ok();
    assert!(!known.stderr.contains("price"), "{}", known.stderr);
    assert!(stage.mcode(&["runs", "show", "latest"]).ok().stdout.contains('$'));
    assert!(!stage.ask(&["-m", "openai/gpt-of-tomorrow", "hi"]).ok().stderr.contains("price"));
    stage.server.finish();
}

#[test]
fn models_that_can_be_used_come_first_and_needs_are_said_once() {
    let stage = Stage::new(Script::new());
    let text = stage.mcode(&["models", "list", "--limit", "500"]).ok().stdout;
    assert_eq!(text.matches("MOONSHOT_API_KEY").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let listed = stage.json(&["models", "list", "--limit", "500"])["models"].as_array().unwrap().clone();
    let usable: Vec<bool> = listed.iter().map(|model| model["usable"].as_bool().unwrap()).collect();
    let count = usable.iter().filter(|usable| **usable).count();
    assert!(usable.is_sorted_by(|a, b| a >= b) && count > 2 && count < usable.len());
    // The page that holds the last of them is the last page, and one before it is not.
    for (limit, more) in [(count, false), (count + 1, false), (count - 1, true)] {
        let page = stage.json(&["models", "list", "--usable", "--limit", &limit.to_string()]);
        assert_eq!(page["models"].as_array().unwrap().len(), limit.min(count));
        assert_eq!(page["next_page_token"] != "", more, "{limit} of {count}");
    }
    stage.server.finish();
}

#[test]
fn without_a_model_the_ways_to_one_are_named() {
    let mut stage = Stage::new(Script::new());
    for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"] {
        stage.daemon.unset(name);
    }
    let output = stage.mcode(&["ask", "hi"]);
    assert_eq!(output.code, 3, "{output:#?}");
    for way in ["mcode login", "ANTHROPIC_API_KEY", "mcode providers scan", "--model", "mcode demo"] {
        assert!(output.stderr.contains(way), "{}", output.stderr);
    }
}

#[test]
fn verbs_that_are_none_lead_to_the_right_one() {
    let stage = Stage::new(Script::new());
    for (words, hint) in [
        (&["why is it red"][..], "mcode ask \"why is it red\""),
        (&["mend"], "mcode ask PROMPT"),
        (&["logs"], "mcode daemon logs"),
        (&["ask", "--nonsense"], "--help"),
        (&["config", "unset", "nonsense"], "hint:"),
    ] {
        let output = stage.mcode(words);
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:#?}");
        assert!(output.stderr.starts_with("mcode: ") && output.stderr.contains(hint), "{}", output.stderr);
    }
    assert_eq!(stage.mcode(&["help", "ask"]).ok().stdout, stage.mcode(&["ask", "--help"]).ok().stdout);
}

#[test]
fn a_disk_that_is_full_is_told_once() {
    let stage = Stage::new(Script::new().repeat(3, &Reply::text("ok")));
    for form in ["text", "json", "jsonl"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let words = crate::setup::ask_words(&["--output", form, "hi"]);
        let mut command = stage.daemon.command(&stage.workspace.path(), &words);
        let output = command.stdin(std::process::Stdio::null()).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.matches("can not write").count()), (Some(2), 1), "{form}: {stderr}");
    }
}

#[test]
fn what_was_said_to_a_run_and_never_taken_up_is_shown() {
    let stage = Stage::new(Script::new().reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO}))])));
    let run = stage.detach(&["--yolo", "begin"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    stage.mcode(&["runs", "steer", &run.run_id, "mention", "foxes"]).ok();
    let shown = stage.mcode(&["threads", "show", &run.thread_id]).ok().stdout;
    assert!(shown.contains("not taken up yet") && shown.contains("mention foxes"), "{shown}");
    assert!(shown.contains("since ") || !shown.contains(" to \n"), "{shown}");
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    let shown = stage.mcode(&["threads", "show", &run.thread_id]).ok().stdout;
    assert!(shown.contains("mention foxes"), "{shown}");
    stage.server.finish();
}

#[test]
fn doctor_names_each_thing_once_and_tries_the_server() {
    let mut stage = Stage::configured(Script::new(), "nonsense = 1\n");
    let checks =
        |stage: &Stage| stage.mcode(&["doctor", "--output", "json"]).json()["checks"].as_array().unwrap().clone();
    let of = |checks: &[Value], name: &str| -> Vec<Value> {
        checks.iter().filter(|check| check["check"] == name).map(|check| check["status"].clone()).collect()
    };
    let found = checks(&stage);
    assert_eq!(
        (of(&found, "config"), of(&found, "config.toml")),
        (vec![json!("ok")], vec![json!("warn")]),
        "{found:?}"
    );
    assert_eq!(of(&found, "server"), [json!("ok")], "{found:?}");
    // Nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    stage.daemon.set("ANTHROPIC_BASE_URL", format!("http://{free}"));
    stage.daemon.set("OPENAI_BASE_URL", format!("http://{free}"));
    let output = stage.mcode(&["doctor"]);
    assert!(output.code == 5 && output.stdout.contains("can not be reached"), "{output:#?}");
    assert_eq!(stage.server.requests().len(), 0);
}

#[test]
fn a_title_ends_where_the_piped_words_begin() {
    let stage = Stage::new(Script::new().reply(Reply::text("ok")));
    let words = crate::setup::ask_words(&["Review this"]);
    stage.daemon.mcode_with(&stage.workspace.path(), &words, b"a diff\n").ok();
    assert_eq!(stage.json(&["threads", "show", "latest"])["thread"]["title"], "Review this");
    stage.server.finish();
}
