//! Threads as people keep them: named, found, gone on with where they belong, forked and taken back.

use std::time::Instant;

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::setup::{Stage, ask_words, of_type, script, text};

/// Answers with what the user said last.
fn echo() -> Script {
    Script::new()
        .fallback(|request| Reply::text(format!("so {}", request.last_user_text().lines().last().unwrap_or(""))))
}

/// What the user and the model said in a request, without what mcode says.
fn said(messages: &[Value]) -> String {
    serde_json::to_string(messages).unwrap()
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|thread| text(&thread["thread_id"])).collect()
}

impl Stage {
    fn thread(&self, words: &str) -> String {
        text(&self.ask(&["--output", "json", words]).ok().json()["thread_id"])
    }

    fn listed(&self, more: &[&str]) -> Vec<String> {
        ids(&self.json(&[&["threads", "list"], more].concat())["threads"])
    }
}

#[test]
fn threads_are_named_tagged_pinned_and_put_away() {
    let stage = Stage::new(echo());
    let (first, second) = (stage.thread("one"), stage.thread("two"));
    stage.mcode(&["threads", "rename", &first, "  a better \n name "]).ok();
    stage.mcode(&["threads", "tag", &first, "later", "tests"]).ok();
    stage.mcode(&["threads", "tag", &first, "-later"]).ok();
    stage.mcode(&["threads", "pin", &first]).ok();
    let shown = stage.json(&["threads", "show", &first])["thread"].clone();
    assert_eq!(
        (&shown["title"], &shown["tags"], &shown["pinned"]),
        (&json!("a better name"), &json!(["tests"]), &json!(true))
    );
    assert_eq!(shown["preview"], "one");
    stage.ask(&["-t", &second, "again"]).ok();
    assert_eq!(stage.listed(&[]), [first.clone(), second.clone()], "what is pinned comes first");
    assert_eq!(stage.listed(&["--tag", "tests"]), std::slice::from_ref(&first));
    assert_eq!(stage.listed(&["--tag", "later"]), Vec::<String>::new());
    let latest = stage.json(&["threads", "show", "latest"])["thread"]["thread_id"].clone();
    assert_eq!(latest, json!(second), "the latest is the latest, pinned or not");
    stage.mcode(&["threads", "archive", &second]).ok();
    assert_eq!(stage.listed(&[]), std::slice::from_ref(&first));
    assert_eq!(stage.listed(&["--archived"]).len(), 2);
    stage.mcode(&["threads", "unarchive", &second]).ok();
    assert_eq!(stage.listed(&[]).len(), 2);
    let long = "x".repeat(201);
    for words in
        [["threads", "rename", &first, ""], ["threads", "rename", &first, &long], ["threads", "tag", &first, "a b"]]
    {
        let refused = stage.mcode(&words);
        assert!(refused.code == 2 && !refused.stderr.is_empty(), "{words:?}: {refused:#?}");
    }
    let text = stage.mcode(&["threads", "list"]).ok().stdout;
    assert!(text.contains("a better name (pinned #tests)"), "{text}");
}

#[test]
fn what_was_said_and_what_tools_gave_back_is_found() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": "echo the-needle in the haystack"}))]))
            .reply(Reply::text("An answer about parsers")),
    );
    let thread = text(&stage.ask(&["--yolo", "--output", "json", "look for it"]).ok().json()["thread_id"]);
    for (query, role) in
        [("haystack", "tool"), ("parsers", "assistant"), ("\"look for it\"", "title"), ("\"the-needle in\"", "tool")]
    {
        let found = stage.json(&["threads", "search", query]);
        let hits = found["hits"].as_array().unwrap();
        assert!(!hits.is_empty(), "{query}: {found}");
        for hit in hits {
            assert_eq!(hit["thread"]["thread_id"], json!(thread), "{query}: {hit}");
        }
        assert_eq!(hits[0]["role"], json!(role), "{query}: {found}");
    }
    let shown = stage.mcode(&["threads", "search", "haystack"]).ok().stdout;
    assert!(shown.contains(&thread) && shown.contains("haystack"), "{shown}");
    assert_eq!(stage.mcode(&["threads", "search", "nowhere-to-be-found"]).ok().stdout, "nothing was found\n");
    assert_eq!(stage.mcode(&["threads", "search", " "]).code, 2);
    // What is called so comes before where it was said; also when it is not written quite so.
    let roles: Vec<Value> = stage.json(&["threads", "search", "\"look for it\""])["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["role"].clone())
        .collect();
    assert_eq!(roles, ["title", "user"]);
    stage.mcode(&["threads", "tag", &thread, "archaeology"]).ok();
    for words in ["lok for", "archaeol", "archlgy"] {
        assert_eq!(stage.listed(&["--filter", words]), std::slice::from_ref(&thread), "{words}");
    }
    assert_eq!(stage.mcode(&["threads", "list", "--filter", "zebra"]).ok().stdout, "no thread fits\n");
    assert_eq!(stage.mcode(&["threads", "list", "--filter", &"x".repeat(1001)]).code, 2);
    // Forgotten is forgotten.
    stage.mcode(&["threads", "delete", &thread, "--yes"]).ok();
    assert_eq!(stage.json(&["threads", "search", "haystack"])["hits"], json!([]));
}

#[test]
fn a_fork_goes_its_own_way_and_both_are_gone_on_with() {
    let stage = Stage::new(echo());
    let thread = stage.thread("plant a tree");
    let before = stage.json(&["threads", "show", &thread])["thread"]["last_seq"].clone();
    stage.ask(&["-t", &thread, "make it an oak"]).ok();
    let fork = stage.json(&["threads", "fork", &thread, "--at", &before.to_string(), "--title", "another tree"]);
    let fork = text(&fork["thread_id"]);
    stage.ask(&["-t", &fork, "make it a birch"]).ok();
    let last = said(stage.server.requests().last().unwrap().messages());
    assert!(last.contains("plant a tree") && last.contains("birch") && !last.contains("oak"), "{last}");
    stage.ask(&["-t", &thread, "and a swing"]).ok();
    let last = said(stage.server.requests().last().unwrap().messages());
    assert!(last.contains("oak") && !last.contains("birch"), "{last}");
    let shown = stage.json(&["threads", "show", &fork]);
    assert_eq!(
        (&shown["thread"]["title"], &shown["thread"]["parent_thread_id"]),
        (&json!("another tree"), &json!(thread))
    );
    assert_eq!(shown["thread"]["usage"]["input_tokens"].as_u64().map(|tokens| tokens > 0), Some(true));
    assert_eq!(ids(&stage.json(&["threads", "show", &thread])["forks"]), std::slice::from_ref(&fork));
    let seqs: Vec<u64> = shown["events"].as_array().unwrap().iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    // The parent goes, the fork stays whole.
    stage.mcode(&["threads", "delete", &thread, "--yes"]).ok();
    assert!(stage.mcode(&["threads", "show", &fork]).ok().stdout.contains("plant a tree"));
    stage.ask(&["-t", &fork, "still there?"]).ok();
    let refused = stage.mcode(&["threads", "fork", &fork, "--at", "100000"]);
    assert!(refused.code == 2 && refused.stderr.contains("100000"), "{refused:#?}");
}

/// A fork in the middle of a turn: the call at work there belongs to the other thread, and the model is told so.
#[test]
fn a_fork_of_a_run_at_work_is_idle() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": crate::setup::WAIT_FOR_GO}))]))
            .fallback(|_| Reply::text("well")),
    );
    let run = stage.detach(&["--yolo", "wait"]);
    stage.daemon.wait_until("the command to run", || stage.exists("begun"));
    let fork = text(&stage.json(&["threads", "fork", &run.thread_id])["thread_id"]);
    assert_eq!(stage.json(&["threads", "show", &fork])["thread"]["state"], "idle");
    stage.ask(&["-t", &fork, "what now?"]).ok();
    let last = stage.server.requests().pop().unwrap();
    assert!(said(last.messages()).contains("forked while it ran"), "{}", said(last.messages()));
    assert_eq!(
        stage.json(&["threads", "show", &run.thread_id])["thread"]["state"],
        "running",
        "the other is not touched"
    );
    stage.go();
    let events = stage.events(&run.thread_id);
    assert_eq!(of_type(&events, "tool_call_finished")[0]["status"], "done");
}

#[test]
fn going_back_takes_prompts_back_and_keeps_the_log() {
    let stage = Stage::new(echo());
    let thread = stage.thread("first words");
    stage.ask(&["-t", &thread, "second words"]).ok();
    stage.ask(&["-t", &thread, "third words"]).ok();
    let back = stage.json(&["threads", "rewind", &thread, "--turns", "2"]);
    assert_eq!(back["dropped"], 4, "{back}");
    stage.ask(&["-t", &thread, "other words"]).ok();
    let last = said(stage.server.requests().last().unwrap().messages());
    assert!(last.contains("first words") && last.contains("other words"), "{last}");
    assert!(!last.contains("second words") && !last.contains("third words"), "{last}");
    let shown = stage.mcode(&["threads", "show", &thread]).ok().stdout;
    assert!(shown.contains("second words") && shown.contains("gone back to event"), "{shown}");
    // What was taken back does not count when more is.
    stage.mcode(&["threads", "rewind", &thread, "--turns", "2"]).ok();
    stage.ask(&["-t", &thread, "last words"]).ok();
    let last = said(stage.server.requests().last().unwrap().messages());
    assert!(!last.contains("first words") && !last.contains("other words"), "{last}");
    for words in [["--to", "100000"], ["--turns", "50"]] {
        let refused = stage.mcode(&[&["threads", "rewind", thread.as_str()], &words[..]].concat());
        assert!(refused.code == 2 && !refused.stderr.is_empty(), "{refused:#?}");
    }
}

#[test]
fn going_back_waits_for_no_run() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": crate::setup::WAIT_FOR_GO}))]))
            .reply(Reply::text("done")),
    );
    let run = stage.detach(&["--yolo", "wait"]);
    stage.daemon.wait_until("the command to run", || stage.exists("begun"));
    let refused = stage.mcode(&["threads", "rewind", &run.thread_id]);
    assert!(refused.code == 2 && refused.stderr.contains("busy"), "{refused:#?}");
    stage.go();
    stage.events(&run.thread_id);
}

/// Case F07.
#[test]
fn f07_continue_goes_on_in_this_work_tree_and_no_other() {
    let stage = Stage::new(Script::new().fallback(|request| {
        let said = request.last_user_text();
        if request.tool_results().is_empty() && said.contains("where") {
            Reply::tool_calls([("shell", json!({"command": "pwd"}))])
        } else {
            Reply::text("ok")
        }
    }));
    let base = stage.workspace.path();
    script(
        &base,
        "git init -q a && cd a && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git worktree add -q ../b && git clone -q . ../c",
    );
    let (a, b, c) = (base.join("a"), base.join("b"), base.join("c"));
    let ask = |dir: &std::path::Path, words: &[&str]| stage.daemon.mcode_in(dir, &ask_words(words));
    let in_a = text(&ask(&a, &["--output", "json", "hello"]).ok().json()["thread_id"]);
    let in_b = text(&ask(&b, &["--output", "json", "hello"]).ok().json()["thread_id"]);
    let went_on = ask(&a, &["-c", "--yolo", "--output", "json", "where am I?"]).ok().json();
    assert_eq!(went_on["thread_id"], json!(in_a));
    let pwd = &stage.server.requests().last().unwrap().tool_results()[0].1;
    assert!(pwd.contains(a.to_str().unwrap()), "{pwd}");
    assert_eq!(ask(&b, &["-c", "--output", "json", "hi"]).ok().json()["thread_id"], json!(in_b));
    // Both are of one project; a clone has its own remote, and no thread.
    let listed = |dir: &std::path::Path| {
        ids(&stage.daemon.mcode_in(dir, &["threads", "list", "--here", "--output", "json"]).ok().json()["threads"])
    };
    assert_eq!(listed(&a).len(), 2);
    assert_eq!(listed(&b).len(), 2);
    script(&base, "rm -rf d; git init -q d; cp -r a/.git/config d/.git/config");
    script(
        &base,
        "for x in a d; do git -C $x remote add origin git@example.com:o/r.git; done; git -C c remote set-url origin https://u:p@EXAMPLE.com:443/o/r",
    );
    assert_eq!(
        (listed(&a).len(), listed(&c).len(), listed(&base.join("d")).len()),
        (2, 2, 2),
        "clones share their threads"
    );
    let refused = ask(&c, &["-c", "hello"]);
    assert!(refused.code == 2 && refused.stderr.contains("--thread"), "{refused:#?}");
    // A folder that was moved keeps what it has.
    std::fs::rename(&c, base.join("moved")).unwrap();
    assert_eq!(listed(&base.join("moved")).len(), 2);
    // The user decides otherwise.
    stage.daemon.mcode_in(&c.with_file_name("moved"), &["projects", "resource", "mine"]).ok();
    assert_eq!(listed(&base.join("moved")).len(), 0);
    let shown = stage.daemon.mcode_in(&base.join("moved"), &["projects", "show"]).ok().stdout;
    assert!(shown.contains("resource:mine"), "{shown}");
}

/// Case F09: what one thread's folder is on has nothing to do with a list.
#[test]
fn f09_a_folder_that_does_not_answer_keeps_no_list_waiting() {
    let stage = Stage::new(echo());
    let gone = stage.workspace.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    stage.daemon.mcode_in(&gone, &ask_words(&["hello"])).ok();
    let other = stage.thread("here");
    // As far as a list is concerned, a mount that hangs is a path that must not be looked at.
    std::fs::remove_dir_all(&gone).unwrap();
    let begun = Instant::now();
    assert_eq!(stage.listed(&[]).len(), 2);
    assert_eq!(stage.json(&["threads", "show", "latest"])["thread"]["thread_id"], json!(other));
    assert!(begun.elapsed().as_secs() < 2);
}

/// Case F01: clients beside each other, in threads of their own.
#[test]
fn f01_eight_clients_at_once_lose_nothing() {
    let stage = Stage::new(Script::new().fallback(|request| {
        let done = request.messages().iter().filter(|message| message.to_string().contains("tool_result")).count();
        let name = request.last_user_text().lines().last().unwrap_or_default().to_owned();
        if done < 3 && request.tool_results().len() < 3 {
            Reply::tool_calls([("shell", json!({"command": format!("echo call {done}")}))])
        } else {
            Reply::text(name)
        }
    }));
    let asks: Vec<_> = (1..=8)
        .map(|at| stage.daemon.spawn_mcode(&stage.workspace.path(), &ask_words(&["--yolo", &format!("say done_{at}")])))
        .collect();
    let mut answers: Vec<String> = asks.into_iter().map(|ask| ask.output().ok().stdout).collect();
    answers.sort();
    assert_eq!(answers, (1..=8).map(|at| format!("say done_{at}\n")).collect::<Vec<_>>());
    stage.mcode(&["doctor", "--db"]).ok();
    let threads = stage.listed(&[]);
    assert_eq!(threads.len(), 8);
    for thread in &threads {
        let events = stage.events(thread);
        let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
        assert_eq!(of_type(&events, "run_finished")[0]["status"], "done");
    }
}

#[test]
fn two_clients_that_talk_into_one_thread_each_get_their_own_answers() {
    let stage = Stage::new(echo());
    let thread = stage.thread("begin");
    let words = |who: &str| (1..=6).map(|at| format!("{who} {at}")).collect::<Vec<_>>();
    let talk = |who: &str| {
        for words in words(who) {
            // One run at a time: who is refused, since the other is at work, asks again.
            stage.daemon.wait_until("the thread to be free", || {
                let output = stage.ask(&["-t", &thread, &words]);
                let busy = output.code == 2 && output.stderr.contains("is busy with run");
                if !busy {
                    assert_eq!(output.ok().stdout, format!("so {words}\n"));
                }
                !busy
            });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| talk("one"));
        scope.spawn(|| talk("other"));
    });
    let events = stage.events(&thread);
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    let runs = of_type(&events, "run_finished");
    assert_eq!(runs.len(), 13);
    assert!(runs.iter().all(|run| run["status"] == "done"), "{runs:?}");
    let asked = json!(of_type(&events, "message_finished")).to_string();
    for words in words("one").iter().chain(&words("other")) {
        assert_eq!(asked.matches(&format!("\"so {words}\"")).count(), 1, "{words}");
    }
}

/// A stage in which the small model is asked for titles, and answers so.
fn titled(title: Reply, rest: Script) -> Stage {
    let script = rest.always(|request| request.system().contains("its title"), title);
    let mut stage = Stage::new(script);
    stage.daemon.set("MCODE_DISABLE", "keyring,update");
    stage.daemon.restart();
    stage
}

#[test]
fn a_new_thread_gets_its_title_from_the_small_model_beside_its_run() {
    let stage = titled(Reply::text("\"Planting trees\"\n").delay_before(300), echo());
    let thread = stage.thread("could you please plant some trees for me");
    let title = |thread: &str| text(&stage.json(&["threads", "show", thread])["thread"]["title"]);
    stage.daemon.wait_until("the title to be there", || title(&thread) == "Planting trees");
    let asked = stage.server.requests().into_iter().find(|request| request.system().contains("its title")).unwrap();
    assert!(asked.model().contains("haiku"), "{}", asked.model());
    let rows = stage.json(&["usage", "--by", "purpose"]);
    assert!(rows.to_string().contains("\"title\""), "its cost is told: {rows}");
    // A title of one's own is kept, and none is asked for.
    let asked = stage.server.requests().len();
    let own = text(&stage.ask(&["--title", "mine", "--output", "json", "x"]).ok().json()["thread_id"]);
    assert_eq!((title(&own).as_str(), stage.server.requests().len()), ("mine", asked + 1));
}

#[test]
fn a_title_that_comes_late_or_not_at_all_changes_nothing() {
    let stage = titled(Reply::text("Too late").delay_before(1500), echo());
    let thread = stage.thread("first words");
    stage.mcode(&["threads", "rename", &thread, "by hand"]).ok();
    stage.daemon.wait_until("the request for a title to be paid", || {
        stage.json(&["usage", "--by", "purpose"]).to_string().contains("\"title\"")
    });
    assert_eq!(stage.json(&["threads", "show", &thread])["thread"]["title"], "by hand");
    let broken = titled(Reply::status(500), echo());
    let thread = broken.thread("first words");
    assert_eq!(broken.json(&["threads", "show", &thread])["thread"]["title"], "first words");
    assert_eq!(broken.run(&text(&broken.json(&["threads", "show", &thread])["runs"][0]["run_id"]))["status"], "done");
}
