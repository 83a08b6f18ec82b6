//! The rules themselves: listing, changing, explaining and testing them.

use mcode_testkit::Script;
use serde_json::json;

use crate::setup::{Stage, text};

const RULES: &str = r#"# my rules
[permissions]
allow = [
  "shell(cargo test *)", # fast enough
]
deny = ["view(**/.env)", "edit(src/**"]
ask = ["shell(git push *)"]

[[permissions.test]]
call = "shell(git push origin)"
expect = "ask"

[[permissions.test]]
call = "view(.env)"
expect = "deny"
"#;

#[test]
fn rules_are_listed_with_their_place_and_what_is_wrong_with_them() {
    let stage = Stage::configured(Script::new(), RULES);
    let value = stage.json(&["permissions", "list"]);
    let all = value["rules"].as_array().unwrap();
    assert_eq!(all.iter().filter(|rule| rule["source"] == "built-in").count(), 3, "{value}");
    let rules: Vec<_> = all.iter().filter(|rule| rule["source"] == "user").collect();
    let brief: Vec<(&str, &str, u64)> = rules
        .iter()
        .map(|rule| (rule["effect"].as_str().unwrap(), rule["rule"].as_str().unwrap(), rule["line"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        brief,
        [
            ("deny", "view(**/.env)", 6),
            ("deny", "edit(src/**", 6),
            ("ask", "shell(git push *)", 7),
            ("allow", "shell(cargo test *)", 4),
        ]
    );
    assert!(text(&rules[1]["problem"]).contains("closing ')'"), "{value}");
    assert!(text(&rules[0]["file"]).ends_with("config/config.toml"));
    assert_eq!(value["next_page_token"], "");
    let shown = stage.mcode(&["permissions", "list"]).ok().stdout;
    assert!(shown.contains("config.toml:4") && shown.contains("broken: the closing"), "{shown}");
}

#[test]
fn rules_are_added_and_removed_and_comments_stay() {
    let stage = Stage::configured(Script::new(), RULES);
    let added = stage.json(&["permissions", "add", "allow", "edit(src/**)"]);
    assert_eq!((&added["created"], &added["rule"]["line"]), (&json!(true), &json!(5)));
    assert_eq!(stage.json(&["permissions", "add", "allow", "edit(src/**)"])["created"], json!(false));
    let broken = stage.mcode(&["permissions", "add", "deny", "shell(a 'b)"]);
    assert_eq!(broken.code, 2, "{broken:#?}");
    assert!(broken.stderr.contains("a quote is not closed"), "{broken:#?}");
    stage.mcode(&["permissions", "remove", "deny", "edit(src/**"]).ok();
    let missing = stage.mcode(&["permissions", "remove", "deny", "edit(src/**"]);
    assert_eq!(missing.code, 2, "{missing:#?}");
    stage.mcode(&["permissions", "remove", "allow", "shell(cargo test *)"]).ok();
    let file = std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    for kept in ["# my rules", "# fast enough", "edit(src/**)", "view(**/.env)"] {
        assert!(file.contains(kept), "{kept} in {file}");
    }
    assert!(!file.contains("cargo test") && !file.contains("\"edit(src/**\""), "{file}");
}

#[test]
fn a_rule_about_no_tool_is_told_and_a_deny_rule_of_that_kind_closes() {
    let rules = "[permissions]\nallow = [\"shell\"]\ndeny = [\"shel(rm *)\"]\n";
    let stage = Stage::configured(Script::new(), rules);
    let listed = stage.mcode(&["permissions", "list"]).ok().stdout;
    assert!(listed.contains("did you mean 'shell'?"), "{listed}");
    let explained = stage.json(&["permissions", "explain", "shell", "rm x"]);
    assert_eq!(explained["verdict"], "ask", "{explained}");
    assert!(text(&explained["why"]).contains("did you mean 'shell'?"), "{explained}");
    let added = stage.mcode(&["permissions", "add", "deny", "Bash(rm *)"]);
    assert_eq!(added.code, 2, "{added:#?}");
    assert!(added.stderr.contains("did you mean 'shell'?"), "{added:#?}");
    // Every tool that this daemon has may be spoken of.
    let unknown = stage.mcode(&["permissions", "explain", "nosuch", "x"]);
    let (_, tools) = unknown.stderr.split_once("the tools are: ").unwrap();
    let tools: Vec<&str> = tools.lines().next().unwrap().split(", ").map(str::trim).collect();
    assert!(tools.contains(&"shell"), "{tools:?}");
    for tool in tools {
        assert!(mcode_permissions::TOOL_NAMES.contains(&tool), "{tool}");
    }
}

#[test]
fn a_decision_is_explained_without_running_anything() {
    let stage = Stage::configured(
        Script::new(),
        "[permissions]\nallow = [\"shell(touch *)\"]\ndeny = [\"view(**/.env)\"]\nask = [\"shell(git push *)\"]\n",
    );
    let explain = |words: &[&str]| {
        let all: Vec<&str> = ["permissions", "explain"].iter().chain(words).copied().collect();
        stage.json(&all)
    };
    let push = explain(&["shell", "true && git -C x push"]);
    assert_eq!(
        (&push["verdict"], &push["rule"], &push["line"]),
        (&json!("ask"), &json!("shell(git push *)"), &json!(4))
    );
    assert_eq!(push["commands"], json!(["true", "git -C x push"]));
    assert!(text(&push["file"]).ends_with("config.toml"));

    let touch = explain(&["shell", "{\"command\": \"touch made\"}"]);
    assert_eq!((&touch["verdict"], &touch["rule"]), (&json!("allow"), &json!("shell(touch *)")));
    assert!(!stage.exists("made"));
    assert_eq!(explain(&["shell", "touch made", "--mode", "plan"])["verdict"], "deny");
    assert_eq!(explain(&["shell", "eval \"$x\""])["opaque"], true);

    let edit = explain(&["edit", "src/../f.txt"]);
    let path = std::fs::canonicalize(stage.workspace.join("f.txt")).unwrap();
    assert_eq!(edit["touches"], json!([{"kind": "edit", "what": path}]));
    assert_eq!((&edit["verdict"], &edit["proposed_rule"]), (&json!("ask"), &json!("edit(f.txt)")));
    assert_eq!(explain(&["edit", "f.txt", "--approve", "deny"])["verdict"], "deny");
    assert_eq!(explain(&["edit", "f.txt", "--approve", "all"])["verdict"], "allow");
    assert_eq!(explain(&["view", "{\"path\": \"f.txt\"}"])["verdict"], "allow");
    assert_eq!(explain(&["read", ".env"])["verdict"], "deny");
    assert_eq!(explain(&["network", "Example.org"])["touches"][0]["what"], "example.org");

    let shown = stage.mcode(&["permissions", "explain", "shell", "git push"]).ok().stdout;
    assert!(shown.starts_with("ask: the ask rule 'shell(git push *)' in "), "{shown}");
    for (words, told) in [
        (["nonsense", "x"], "there is no tool named 'nonsense'"),
        (["shell", "{\"comand\": \"x\"}"], "command"),
        (["shell", "{\"command\""], "not a JSON object"),
    ] {
        let refused = stage.mcode(&["permissions", "explain", words[0], words[1]]);
        assert_eq!(refused.code, 2, "{refused:#?}");
        assert!(refused.stderr.contains(told), "{refused:#?}");
    }
}

#[test]
fn examples_beside_the_rules_are_tested() {
    let mended = RULES.replace(", \"edit(src/**\"", "");
    let mut stage = Stage::configured(Script::new(), &mended);
    let all = stage.mcode(&["permissions", "test"]).ok().stdout;
    assert!(all.contains("2 of 2 examples hold"), "{all}");
    // An example that is wrong, one that is no call, and one in another mode.
    let more = "[[permissions.test]]\ncall = \"shell(cargo test)\"\nexpect = \"deny\"\n\
                [[permissions.test]]\ncall = \"cargo test\"\nexpect = \"allow\"\n\
                [[permissions.test]]\ncall = \"edit(f.txt)\"\nexpect = \"deny\"\nmode = \"explore\"\n";
    stage.daemon.write_config(&format!("{mended}{more}"));
    stage.daemon.restart();
    let failed = stage.mcode(&["permissions", "test", "--output", "json"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    let value = failed.json();
    assert_eq!(value["failed"], 2);
    let held: Vec<bool> = value["tests"].as_array().unwrap().iter().map(|it| it["holds"].as_bool().unwrap()).collect();
    assert_eq!(held, [true, true, false, false, true]);
    let shown = stage.mcode(&["permissions", "test"]).stdout;
    assert!(shown.contains("FAILED") && shown.contains("config.toml:17"), "{shown}");
}
