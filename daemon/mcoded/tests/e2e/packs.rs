//! Which model a run gets: packs, modes, and what a thread remembers.

use mcode_testkit::{Reply, Script, Wire};
use serde_json::json;

use crate::setup::{Stage, text};

const BUILD: &str = "mine/build";
const PLAN: &str = "mine/plan";

/// A daemon with a provider of three models, and a pack of two of them.
fn stage(script: Script) -> Stage {
    let mut stage = Stage::new(script);
    let url = stage.server.base_url(Wire::Chat);
    stage.daemon.write_config(&format!(
        "# keep me\n[providers.mine]\nwire = \"openai-chat\"\nbase_url = \"{url}\"\n\
         models = [{{ id = \"build\" }}, {{ id = \"plan\", thinking = \"effort\" }}, {{ id = \"own\" }}]\n"
    ));
    stage.daemon.restart();
    stage
}

fn models(stage: &Stage) -> Vec<String> {
    stage.server.requests().iter().map(|request| text(&request.body["model"])).collect()
}

fn ask(stage: &Stage, words: &[&str]) {
    let words: Vec<&str> = ["ask"].iter().chain(words).copied().collect();
    assert_eq!(stage.mcode(&words).ok().stdout, "ok\n");
}

#[test]
fn a_mode_switch_takes_the_packs_model_and_a_thread_remembers_its_own_choice() {
    let mut stage = stage(Script::new().repeat(8, &Reply::text("ok")));
    stage.mcode(&["packs", "create", "pair", "build=mine/build", "plan=mine/plan", "--think", "plan=high"]).ok();
    stage.mcode(&["packs", "use", "pair"]).ok();
    // The pack has a model for each mode.
    ask(&stage, &["one"]);
    ask(&stage, &["-c", "--mode", "plan", "two"]);
    ask(&stage, &["-c", "--mode", "build", "three"]);
    assert_eq!(models(&stage), ["build", "plan", "build"]);
    let requests = stage.server.requests();
    assert_eq!(requests[1].body["reasoning_effort"], "high", "the pack says how much is thought");
    assert_eq!(requests[0].body.get("reasoning_effort"), None);
    // What the thread was given for a mode it keeps for that mode, also over a restart.
    ask(&stage, &["-c", "-m", "mine/own", "four"]);
    ask(&stage, &["-c", "--mode", "plan", "five"]);
    stage.daemon.restart();
    ask(&stage, &["-c", "--mode", "build", "six"]);
    assert_eq!(models(&stage)[3..], ["own", "plan", "own"]);
    // Another thread knows nothing of it, and a setting of the mode comes before the pack.
    ask(&stage, &["seven"]);
    stage.mcode(&["models", "use", "mine/own", "--mode", "plan"]).ok();
    ask(&stage, &["--mode", "plan", "eight"]);
    assert_eq!(models(&stage)[6..], ["build", "own"]);
    stage.server.finish();
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let stage = stage(Script::new());
    let file = || std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    let before = file();
    for (words, code, said) in [
        (&["packs", "create", "pair", "build=mine/build", "build=mine/plan"][..], 2, "build is given twice"),
        (&["providers", "add", "demo", "--base-url", "http://127.0.0.1:9"], 2, "the scripted model"),
        (&["providers", "add", "gemini", "--wire", "gemini", "--base-url", "http://127.0.0.1:9"], 2, "google"),
        (&["models", "use", "anthropc/claude-sonnet-5"], 3, "did you mean 'anthropic'"),
        (&["models", "use", "nobody-here/x"], 3, "There are anthropic"),
        (&["models", "use", "demo/other"], 3, "demo/scripted"),
    ] {
        let output = stage.mcode(words);
        assert!(output.code == code && output.stderr.contains(said), "{words:?}: {output:#?}");
        assert!(output.stderr.contains("hint:"), "{words:?}: {output:#?}");
    }
    assert_eq!(file(), before);
    // An id that nobody knows yet, of a provider without a key.
    for model in ["openai/of-tomorrow", "mine/new"] {
        stage.mcode(&["models", "use", model]).ok();
        assert!(file().contains(&format!("model = \"{model}\"")), "{}", file());
    }
}

#[test]
fn packs_are_made_changed_passed_on_and_deleted() {
    let stage = stage(Script::new());
    let file = || std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    stage.mcode(&["packs", "create", "pair", "build=mine/build", "plan=mine/plan"]).ok();
    stage.mcode(&["packs", "set", "pair", "small=mine/own", "plan=", "build=mine/plan", "--think", "build=low"]).ok();
    let shown = stage.json(&["packs", "show", "pair"]);
    let roles: Vec<(String, String, String)> = shown["roles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|role| (text(&role["role"]), text(&role["model"]), text(&role["thinking"])))
        .collect();
    let own = |role: &str, model: &str, thinking: &str| (role.to_owned(), model.to_owned(), thinking.to_owned());
    assert_eq!(roles, [own("build", PLAN, "low"), own("small", "mine/own", "")]);
    let exported = stage.mcode(&["packs", "export", "pair"]).ok().stdout;
    assert!(exported.contains("[packs.pair]") && !exported.contains("base_url"), "{exported}");
    stage.workspace.write("pair.toml", exported.clone());
    stage.workspace.write("pair.json", stage.mcode(&["packs", "export", "pair", "--output", "json"]).ok().stdout);
    stage.mcode(&["packs", "import", "pair.toml", "--name", "two"]).ok();
    stage.mcode(&["packs", "import", "pair.json", "--name", "three"]).ok();
    for name in ["two", "three"] {
        assert_eq!(stage.json(&["packs", "show", name])["roles"], shown["roles"], "{name}");
    }
    stage.workspace.write("bad.toml", format!("{exported}\n[permissions]\nallow = [\"shell\"]\n"));
    for (words, said) in [
        (&["packs", "import", "bad.toml", "--name", "four"][..], "nothing else"),
        (&["packs", "import", "pair.toml"], "already"),
        (&["packs", "create", "Bad!", "build=a/b"], "small letters"),
        (&["packs", "create", "x", "build=nonsense"], "provider/model"),
        (&["packs", "create", "x", "builder=a/b"], "is none of"),
        (&["packs", "set", "nope", "build=a/b"], "no pack 'nope'"),
        (&["packs", "use", "nope"], "no pack 'nope'"),
        (&["packs", "show", "nope"], "no pack 'nope'"),
    ] {
        let before = file();
        let output = stage.mcode(words);
        assert!(output.code == 2 && output.stderr.contains(said), "{words:?}: {output:#?}");
        assert_eq!(file(), before, "{words:?}");
    }
    // Where a value comes from is said by file and line.
    stage.mcode(&["packs", "use", "two"]).ok();
    let told = stage.mcode(&["config", "explain", "packs.two"]).ok().stdout;
    assert!(told.contains("packs.two.build") && told.contains("config.toml:"), "{told}");
    let listed = stage.json(&["packs", "list"]);
    assert!(listed["packs"].as_array().unwrap().iter().any(|pack| pack["name"] == "two" && pack["in_use"] == true));
    let role = |role: &str| listed["roles"].as_array().unwrap().iter().find(|row| row["role"] == role).unwrap().clone();
    assert_eq!((&role("small")["model"], &role("small")["reason"]), (&json!("mine/own"), &json!("pack two")));
    assert_eq!(role("judge")["model"], PLAN);
    // What is deleted is not in use any more; comments stay.
    for name in ["pair", "two", "three"] {
        stage.mcode(&["packs", "delete", name]).ok();
    }
    assert!(file().starts_with("# keep me\n") && !file().contains("pack"), "{}", file());
    stage.server.finish();
}

#[test]
fn packs_of_what_can_be_reached_come_from_the_catalogue() {
    let mut stage = stage(Script::new());
    stage.daemon.set("GEMINI_API_KEY", "test-key-google");
    let names = |stage: &Stage| -> Vec<String> {
        stage.json(&["packs", "list"])["packs"].as_array().unwrap().iter().map(|pack| text(&pack["name"])).collect()
    };
    let listed = names(&stage);
    assert!(listed.contains(&"google".to_owned()) && listed.contains(&"mine".to_owned()), "{listed:?}");
    let roles = stage.json(&["packs", "show", "google"])["roles"].clone();
    let model = |role: &str| roles.as_array().unwrap().iter().find(|row| row["role"] == role).unwrap()["model"].clone();
    assert_ne!(model("build"), model("small"), "{roles}");
    assert!(text(&model("small")).starts_with("google/"));
    // The declared provider has one, too; a pack that is gone for this client is named.
    assert_eq!(stage.json(&["packs", "show", "mine"])["roles"][0]["model"], BUILD);
    stage.mcode(&["packs", "use", "google"]).ok();
    stage.daemon.unset("GEMINI_API_KEY");
    let output = stage.mcode(&["ask", "hi"]);
    assert!(output.code != 0 && output.stderr.contains("no pack 'google'"), "{output:#?}");
    stage.server.finish();
}
