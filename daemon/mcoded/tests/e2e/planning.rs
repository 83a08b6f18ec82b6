//! Plans: written where nothing else may be, handed to a person, changed, approved, and carried out.

use std::path::PathBuf;

use mcode_testkit::{Reply, Script, Wire};
use serde_json::{Value, json};

use crate::setup::{Detached, OWN, Stage, of_type, text};

const PLAN: &str = ".mcode/plans/mend.md";

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write", json!({"path": path, "content": content}))
}

fn submit(path: &str) -> Reply {
    Reply::tool_calls([("submit_plan", json!({"path": path}))])
}

/// A stage whose daemon reaches the model by itself, and in which build mode may change files.
fn stage(script: Script) -> Stage {
    let mut stage = Stage::new(script);
    let url = stage.server.base_url(Wire::Chat);
    stage.daemon.write_config(&format!(
        "[permissions]\nallow = [\"edit\"]\n[providers.mine]\nwire = \"openai-chat\"\nbase_url = \"{url}\"\n\
         api_key = \"test-key-own\"\nmodels = [{{ id = \"one\", context = 100000, max_output = 1000 }}]\n"
    ));
    stage.daemon.restart();
    stage
}

fn planned(rest: impl FnOnce(Script) -> Script) -> Stage {
    let first =
        [write("evil.ts", "x"), write(".mcode/plans/evil.sh", "x"), write(PLAN, "# Mend it\n\nthe first way\n")];
    stage(rest(Script::new().reply(Reply::tool_calls(first)).reply(submit(PLAN))))
}

fn begin(stage: &Stage) -> Detached {
    stage.detach(&["-m", OWN, "--mode", "plan", "--approve", "ask", "plan it"])
}

fn plans(stage: &Stage) -> Vec<Value> {
    stage.json(&["plans", "list"])["plans"].as_array().unwrap().clone()
}

fn files(stage: &Stage) -> Vec<PathBuf> {
    let Ok(projects) = std::fs::read_dir(stage.daemon.home().join("data/plans")) else { return Vec::new() };
    let below = |folder: std::fs::DirEntry| std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = projects.flatten().flat_map(below).collect();
    files.sort();
    files
}

#[test]
fn a_plan_is_changed_as_asked_approved_and_carried_out() {
    let stage = planned(|script| {
        script
            .reply(Reply::tool_calls([write(PLAN, "# Mend it\n\nthe second way\n")]))
            .reply(submit(PLAN))
            .reply(Reply::tool_calls([write("done.txt", "did")]))
            .reply(Reply::text("carried out"))
            .fallback(|_| Reply::text("more"))
    });
    let run = begin(&stage);
    let asked = stage.waiting("approvals");
    let preview = text(&asked["preview"]);
    assert!(preview.starts_with("Plan: Mend it\n") && preview.contains("the first way"), "{preview}");
    assert_eq!((&asked["tool"], &asked["proposed_rule"]), (&json!("submit_plan"), &json!("")));
    assert!(!stage.exists("evil.ts") && !stage.exists(".mcode/plans/evil.sh") && stage.exists(PLAN));
    let listed = plans(&stage);
    assert_eq!((listed.len(), &listed[0]["status"], &listed[0]["title"]), (1, &json!("waiting"), &json!("Mend it")));
    let kept = files(&stage);
    assert_eq!(std::fs::read_to_string(&kept[0]).unwrap(), "# Mend it\n\nthe first way\n");
    stage.mcode(&["approvals", "deny", &text(&asked["approval_id"]), "--reason", "be shorter"]).ok();
    let mut again = Value::Null;
    stage.daemon.wait_until("the revision", || {
        again = stage.json(&["approvals", "list"])["approvals"][0].clone();
        !again.is_null() && again["approval_id"] != asked["approval_id"]
    });
    let preview = text(&again["preview"]);
    assert!(preview.contains("Revised plan") && preview.contains("-the first way\n+the second way"), "{preview}");
    let told = &stage.server.request(3).tool_results()[0].1;
    assert!(told.contains("asks for changes to the plan: be shorter"), "{told}");
    let diff = stage.mcode(&["plans", "diff"]).ok().stdout;
    assert!(diff.contains("-the first way\n+the second way"), "{diff}");
    assert_eq!(stage.mcode(&["plans", "show"]).ok().stdout, "# Mend it\n\nthe second way\n");
    // A file that is changed while a person thinks is another plan; the answer is about the one that was shown.
    stage.workspace.write(PLAN, "# Another\n\nand worse\n");
    stage.mcode(&["approvals", "allow", &text(&again["approval_id"])]).ok();
    let events = stage.events(&run.thread_id);
    assert_eq!(stage.run(&run.run_id)["status"], "done");
    assert_eq!(stage.workspace.read("done.txt"), "did");
    let ends: Vec<&Value> = of_type(&events, "plan_settled").iter().map(|event| &event["status"]).collect();
    assert_eq!(ends, ["changes", "approved"]);
    let thread = stage.json(&["threads", "show", &run.thread_id])["thread"].clone();
    assert_eq!((&thread["mode"], &stage.run(&run.run_id)["mode"]), (&json!("build"), &json!("build")));
    let system = stage.server.requests().last().unwrap().system();
    assert!(system.contains("Mode: build") && system.contains("the second way"), "{system}");
    // It stays, until it is taken back.
    stage.ask(&["-t", &run.thread_id, "go on"]).ok();
    assert!(stage.server.requests().last().unwrap().system().contains("the second way"));
    // Whoever takes the thread in elsewhere has approved nothing.
    stage.mcode(&["threads", "export", &run.thread_id, "-o", "thread.jsonl"]).ok();
    let imported = text(&stage.json(&["threads", "import", "thread.jsonl"])["imported"]["thread"]["thread_id"]);
    stage.ask(&["-t", &imported, "-m", OWN, "go on"]).ok();
    assert!(!stage.server.requests().last().unwrap().system().contains("the second way"));
    stage.mcode(&["threads", "rewind", &run.thread_id, "--turns", "2"]).ok();
    stage.ask(&["-t", &run.thread_id, "anew"]).ok();
    assert!(!stage.server.requests().last().unwrap().system().contains("the second way"));
    let mut statuses = Vec::new();
    let mut token = String::new();
    loop {
        let page = ["plans", "list", "--thread", &run.thread_id, "--limit", "1", "--page-token", &token];
        let page = stage.json(&page);
        statuses.extend(page["plans"].as_array().unwrap().iter().map(|plan| plan["status"].clone()));
        token = text(&page["next_page_token"]);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(statuses, ["approved", "changes"]);
    assert_eq!(plans(&stage).len(), 4, "the imported thread's are listed too");
}

#[test]
fn a_plan_waits_through_a_crash_and_is_carried_out_by_the_next_daemon() {
    let mut stage =
        planned(|script| script.reply(Reply::tool_calls([write("done.txt", "did")])).reply(Reply::text("carried out")));
    let run = begin(&stage);
    let asked = stage.waiting("approvals");
    stage.daemon.kill9();
    // As if it had come no further than the log.
    for file in files(&stage) {
        std::fs::remove_file(file).unwrap();
    }
    std::fs::remove_file(stage.workspace.join(PLAN)).unwrap();
    stage.daemon.restart();
    stage.daemon.wait_until("the plan to be kept again", || files(&stage).len() == 1);
    assert_eq!(stage.waiting("approvals")["approval_id"], asked["approval_id"]);
    assert_eq!(plans(&stage)[0]["status"], "waiting");
    stage.mcode(&["approvals", "allow", &text(&asked["approval_id"])]).ok();
    stage.events(&run.thread_id);
    assert_eq!(stage.run(&run.run_id)["status"], "done", "{:#}", stage.run(&run.run_id));
    assert_eq!(stage.workspace.read("done.txt"), "did");
    assert!(stage.server.requests().last().unwrap().system().contains("the first way"));
    assert_eq!(plans(&stage)[0]["status"], "approved");
}

#[test]
fn where_nobody_is_there_a_plan_is_kept_and_not_carried_out() {
    let stage = planned(|script| script.reply(Reply::text("here is the plan")));
    let output = stage.ask(&["-m", OWN, "--mode", "plan", "--output", "json", "plan it"]);
    assert_eq!(output.code, 4, "{output:#?}");
    let listed = plans(&stage);
    assert_eq!((&listed[0]["status"], listed.len(), files(&stage).len()), (&json!("dropped"), 1, 1));
    let thread = text(&output.json()["thread_id"]);
    assert_eq!(stage.json(&["threads", "show", &thread])["thread"]["mode"], "plan");
    assert!(!stage.exists("evil.ts"));
}

#[test]
fn who_allows_everything_approves_and_who_refuses_does_not() {
    let stage = planned(|script| script.reply(Reply::tool_calls([write("done.txt", "did")])).reply(Reply::text("ok")));
    let output = stage.ask(&["-m", OWN, "--mode", "plan", "--approve", "all", "plan it"]).ok();
    assert_eq!((output.stdout.as_str(), stage.workspace.read("done.txt").as_str()), ("ok\n", "did"));
    assert_eq!((&plans(&stage)[0]["status"], stage.exists("evil.ts")), (&json!("approved"), false));
    let stage = planned(|script| script.reply(Reply::text("no")));
    let output = stage.ask(&["-m", OWN, "--mode", "plan", "--approve", "deny", "plan it"]);
    assert_eq!((output.code, plans(&stage).len()), (4, 0));
}

#[test]
fn a_declined_plan_is_not_carried_out() {
    let stage = planned(|script| script.reply(Reply::text("I stop")));
    let run = begin(&stage);
    let asked = stage.waiting("approvals");
    stage.mcode(&["approvals", "deny", &text(&asked["approval_id"])]).ok();
    let events = stage.events(&run.thread_id);
    assert_eq!(of_type(&events, "plan_settled")[0]["status"], "declined");
    assert!(stage.server.requests().last().unwrap().tool_results()[0].1.contains("declined the plan"));
    assert_eq!(stage.json(&["threads", "show", &run.thread_id])["thread"]["mode"], "plan");
}

#[test]
fn a_cancelled_run_leaves_no_plan_waiting() {
    let stage = planned(|script| script);
    let run = begin(&stage);
    stage.waiting("approvals");
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    assert_eq!(plans(&stage)[0]["status"], "dropped");
    assert_eq!(stage.json(&["approvals", "list"])["approvals"], json!([]));
}

#[test]
fn what_is_no_plan_is_not_submitted() {
    let paths = [
        "/etc/passwd",
        "f.txt",
        ".mcode/plans/link.md",
        ".mcode/plans/none.md",
        ".mcode/plans/long.md",
        ".mcode/plans/../../f.md",
        ".mcode/plans",
        ".mcode/plans/empty.md",
    ];
    let stage = stage(
        Script::new()
            .reply(Reply::tool_calls(paths.map(|path| ("submit_plan", json!({"path": path})))))
            .reply(Reply::text("no")),
    );
    stage.workspace.write("f.md", "# secret");
    stage.workspace.write(".mcode/plans/long.md", "x".repeat(64 * 1024 + 1));
    stage.workspace.write(".mcode/plans/empty.md", " \n");
    std::os::unix::fs::symlink(stage.workspace.join("f.md"), stage.workspace.join(".mcode/plans/link.md")).unwrap();
    stage.ask(&["-m", OWN, "--mode", "plan", "--approve", "all", "plan it"]).ok();
    let results = stage.server.requests().last().unwrap().tool_results();
    assert_eq!(results.len(), paths.len());
    for (path, (_, told, _)) in paths.iter().zip(&results) {
        let why = ["no plan", "no such file", "does not exist", "too much for a plan", "is empty", "there is no"];
        assert!(why.iter().any(|why| told.contains(why)), "{path}: {told}");
    }
    assert_eq!((plans(&stage).len(), files(&stage).len()), (0, 0));
    let explore = planned(|script| script.reply(Reply::text("no")));
    explore.workspace.write(PLAN, "# Mine");
    explore.ask(&["-m", OWN, "--mode", "explore", "--approve", "all", "plan it"]);
    assert_eq!(plans(&explore).len(), 0);
}
