//! Area D of the fault reports, through the front door: what a rule forbids does not happen, however it is written.

use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{Stage, script, text};

fn shells(commands: &[&str]) -> Reply {
    Reply::tool_calls(commands.iter().map(|command| ("shell", json!({"command": command}))))
}

/// What became of the calls of an answer in JSON.
fn ends(result: &serde_json::Value) -> Vec<String> {
    result["tool_calls"].as_array().unwrap().iter().map(|call| text(&call["status"])).collect()
}

fn stage(reply: Reply, config: &str) -> Stage {
    Stage::configured(Script::new().reply(reply).reply(Reply::text("I could not")), config)
}

/// Runs the calls in a run of this policy; every one has to be denied.
fn all_denied(stage: &Stage, policy: &str, count: usize) {
    let result = stage.ask(&["--approve", policy, "--output", "json", "do it"]).json();
    assert_eq!(ends(&result), vec!["denied"; count], "{policy}: {result:#}");
    assert_eq!(result["exit_code"], 4, "{policy}");
}

/// Whether a text is anywhere in what the model was sent.
fn was_sent(stage: &Stage, secret: &str) -> bool {
    stage.server.requests().iter().any(|request| request.body.to_string().contains(secret))
}

#[test]
fn d01_every_part_of_a_chain_needs_its_rule() {
    let commands = ["true && rm keep.txt", "ls; rm keep.txt", "ls | xargs rm", "rm keep.txt || true"];
    let stage = stage(shells(&commands), "[permissions]\nallow = [\"shell(true)\", \"shell(ls *)\"]\n");
    stage.workspace.write("keep.txt", "keep\n");
    all_denied(&stage, "ask", commands.len());
    assert!(stage.exists("keep.txt"));
    stage.server.finish();
}

#[test]
fn d03_a_wrapper_does_not_hide_what_is_denied() {
    let commands = [
        "env A=1 git push",
        "nice -n 5 git push",
        "timeout 9 git push",
        "sh -c 'git push'",
        "xargs -I{} git push <<< x",
        "command git push",
        "busybox sh -c 'git push'",
    ];
    for (policy, allow) in [("all", ""), ("ask", "allow = [\"shell\"]\n")] {
        let config = format!("[permissions]\n{allow}deny = [\"shell(git push *)\"]\n");
        let mut stage = stage(shells(&commands), &config);
        script(
            &stage.workspace.path(),
            "mkdir bin; printf '#!/bin/sh\\necho x > PUSHED\\n' > bin/git; chmod +x bin/git",
        );
        let path = format!("{}:{}", stage.workspace.join("bin").display(), std::env::var("PATH").unwrap());
        stage.daemon.set("PATH", path);
        all_denied(&stage, policy, commands.len());
        assert!(!stage.exists("PUSHED"));
        stage.server.finish();
    }
}

#[test]
fn d04_a_denied_file_is_not_read_by_any_spelling() {
    let commands = [
        "{ cat secret; }",
        "cat <(cat secret)",
        "echo $(cat secret)",
        "eval 'cat secret'",
        "cat sec''ret",
        "cat ./secret",
        "(cat secret)",
        "cat link",
        "cat s*",
        "cat folder/secret",
        "cat /proc/self/cwd/secret",
        "cat /proc/self/root/$PWD/secret",
        "cd folder && cat secret",
        "grep -r . .",
        "cat $(ls | grep sec)",
        "for f in *; do cat $f; done",
        "find . -type f -exec cat {} +",
        "cp sec* copy",
        "tar c . | tar xO",
        "ls | xargs cat",
        "cat < link",
        "x=sec; cat ${x}ret",
        "mv folder other",
        "cat {sec,x}ret",
        "echo $(<secret)",
        "while read l; do echo $l; done < secret",
        "exec 3<secret; cat <&3",
        "cd $OLDPWD; cd - ; cat folder/s*",
        "python3 -c 'print(open(\"sec\" + \"ret\").read())'",
    ];
    for (policy, allow) in [("all", ""), ("ask", "allow = [\"shell\"]\n")] {
        let config = format!("[permissions]\n{allow}deny = [\"shell(cat secret)\", \"view(**/secret)\"]\n");
        let stage = stage(shells(&commands), &config);
        stage.workspace.write("secret", "S3CR3T\n");
        stage.workspace.write("folder/secret", "S3CR3T\n");
        script(&stage.workspace.path(), "ln -s secret link");
        all_denied(&stage, policy, commands.len());
        assert!(!was_sent(&stage, "S3CR3T"));
        assert!(stage.exists("folder/secret") && !stage.exists("copy"));
        stage.server.finish();
    }
}

#[test]
fn what_has_nothing_to_do_with_a_denied_file_still_runs() {
    let commands = ["cat f.txt", "ls -la", "grep -rn one sub", "cat *.txt", "echo $HOME", "git status --short"];
    let stage = stage(shells(&commands), "[permissions]\ndeny = [\"view(secret)\"]\n");
    stage.workspace.write("secret", "S3CR3T\n");
    stage.workspace.write("sub/a", "one\n");
    let result = stage.ask(&["--approve", "all", "--output", "json", "look"]).json();
    assert_eq!(ends(&result), vec!["done"; commands.len()], "{result:#}");
    assert!(!was_sent(&stage, "S3CR3T"));
    stage.server.finish();
}

#[test]
fn d05_options_before_the_subcommand_do_not_defeat_a_rule() {
    let commands =
        ["git -C . commit -m x", "git --no-pager commit -m x", "git -c alias.z=commit z -m x", "git   commit -m x"];
    let stage = stage(shells(&commands), "[permissions]\nallow = [\"shell\"]\nask = [\"shell(git commit *)\"]\n");
    stage.workspace.write("f.txt", "changed\n");
    stage.workspace.git(&["add", "-A"]);
    all_denied(&stage, "ask", commands.len());
    assert_eq!(stage.workspace.git(&["rev-list", "--count", "HEAD"]), "1\n");
    stage.server.finish();
}

#[test]
fn d07_programs_that_only_look_are_not_allowed_to_run_or_write() {
    let commands = [
        "find . -name a -exec touch PWN \\;",
        "rg --pre ./x.sh a",
        "git show --output=PWN",
        "sort -o PWN a",
        "sed -n '1w PWN' a",
        "git -c core.pager='touch PWN' -p log",
        "git grep -O'touch PWN' a",
    ];
    let allow = ["find", "rg", "git", "sort", "sed -n"].map(|name| format!("\"shell({name} *)\"")).join(", ");
    let stage = stage(shells(&commands), &format!("[permissions]\nallow = [{allow}]\n"));
    stage.workspace.write("a", "a\n");
    script(&stage.workspace.path(), "printf '#!/bin/sh\\ntouch PWN\\n' > x.sh; chmod +x x.sh");
    all_denied(&stage, "ask", commands.len());
    assert!(!stage.exists("PWN"));
    stage.server.finish();
}

#[test]
fn d11_a_rule_is_about_the_file_and_not_about_the_link() {
    let outside = tempfile::tempdir().unwrap();
    let secrets = std::fs::canonicalize(outside.path()).unwrap().join("sec");
    std::fs::create_dir(&secrets).unwrap();
    std::fs::write(secrets.join("k"), "K3Y\n").unwrap();
    for policy in ["ask", "all"] {
        let calls = Reply::tool_calls([
            ("view", json!({"path": "link"})),
            ("view", json!({"path": "d/k"})),
            ("grep", json!({"pattern": ".", "path": "d"})),
            ("write", json!({"path": "d/new", "content": "x"})),
            ("edit", json!({"path": "link", "old_string": "3", "new_string": "x"})),
            ("shell", json!({"command": "cat link"})),
            ("shell", json!({"command": "cat d/k"})),
            ("shell", json!({"command": "cp f.txt d/new"})),
            ("shell", json!({"command": "grep -R . ."})),
        ]);
        let stage = stage(calls, &format!("[permissions]\ndeny = [\"view({}/**)\"]\n", secrets.display()));
        let links = format!("ln -s {0}/k link; ln -s {0} d", secrets.display());
        script(&stage.workspace.path(), &links);
        let result = stage.ask(&["--approve", policy, "--output", "json", "look"]).json();
        let ends = ends(&result);
        // The last reads a whole folder: where the kernel hides the file, it may.
        assert_eq!(ends[..8], vec!["denied"; 8], "{policy}: {result:#}");
        assert!(!was_sent(&stage, "K3Y"), "{policy}");
        assert_eq!(std::fs::read_dir(&secrets).unwrap().count(), 1);
        assert_eq!(std::fs::read_to_string(secrets.join("k")).unwrap(), "K3Y\n");
        stage.server.finish();
    }
}

#[test]
fn mcode_s_own_files_are_not_the_models_to_change() {
    let mut stage = Stage::new(Script::new());
    let home = stage.daemon.home();
    let (config, data) = (home.join("config/config.toml"), home.join("data/mcode.db"));
    let rule = "[permissions]\nallow = [\"shell\"]\n";
    let calls = Reply::tool_calls([
        ("write", json!({"path": config, "content": rule})),
        ("shell", json!({"command": format!("echo x >> {}", config.display())})),
        ("shell", json!({"command": format!("cp f.txt {}", config.display())})),
        ("shell", json!({"command": format!("cd {} && cp f.txt config.toml", config.parent().unwrap().display())})),
        ("write", json!({"path": data, "content": ""})),
        ("shell", json!({"command": format!("rm -f {}", data.display())})),
    ]);
    stage.server.push(calls);
    stage.server.push(Reply::text("I could not"));
    stage.daemon.write_config("approve = \"all\"\n");
    stage.daemon.restart();
    all_denied(&stage, "all", 6);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "approve = \"all\"\n");
    assert!(data.exists());
}

#[test]
fn a_rule_about_a_link_holds_what_it_leads_to() {
    let calls = [
        ("view", json!({"path": ".env"})),
        ("view", json!({"path": "again"})),
        ("grep", json!({"pattern": ".", "path": ".env"})),
        ("view", json!({"path": "private/k"})),
        ("grep", json!({"pattern": ".", "path": "private"})),
        ("edit", json!({"path": "private/k", "old": "K3Y", "new": "x"})),
        ("write", json!({"path": "private/new", "content": "x"})),
    ];
    let stage = Stage::configured(
        Script::new().reply(Reply::tool_calls(calls)).reply(Reply::text("done")),
        "[permissions]\ndeny = [\"view(**/.env)\", \"view(private/**)\"]\n",
    );
    stage.workspace.write("outside/prod", "K3Y\n");
    stage.workspace.write("store/k", "K3Y\n");
    script(&stage.workspace.path(), "ln -s outside/prod .env; ln -s .env again; ln -s store private");
    assert_eq!(stage.ask(&["--approve", "all", "read"]).code, 4);
    let results = stage.server.request(2).tool_results();
    assert_eq!(results.len(), 7);
    for (_, text, _) in &results {
        assert!(text.contains("Permission denied") && !text.contains("K3Y"), "{text}");
    }
    assert!(!stage.exists("store/new"));
    stage.server.finish();
}

#[test]
fn d17_deny_beats_allow_and_always_means_no_more_than_was_seen() {
    let package = r#"{"scripts": {"dev": "touch dev-ran", "evil": "touch evil-ran"}}"#;
    let run = |command: &str| Reply::tool_calls([("shell", json!({"command": command}))]);
    let stage = Stage::configured(
        Script::new()
            .reply(run("git reset --hard"))
            .reply(run("npm run dev"))
            .reply(run("npm run dev"))
            .reply(run("npm run evil"))
            .reply(run("npm run dev; rm f.txt"))
            .reply(Reply::text("done")),
        "[permissions]\nallow = [\"shell(git reset *)\"]\ndeny = [\"shell(git reset *)\"]\n",
    );
    stage.workspace.write("package.json", package);
    // Whatever npm is on this machine, the test's own stands for it.
    script(&stage.workspace.path(), "mkdir bin; printf '#!/bin/sh\\necho $2 >> ran\\n' > bin/npm; chmod +x bin/npm");
    let mut stage = stage;
    let path = format!("{}:{}", stage.workspace.join("bin").display(), std::env::var("PATH").unwrap());
    stage.daemon.set("PATH", path);
    stage.workspace.write("f.txt", "changed\n");
    let detached = stage.detach(&["--approve", "ask", "work"]);
    let first = stage.waiting("approvals");
    assert_eq!(first["arguments"]["command"], "npm run dev", "the denied call did not ask");
    assert_eq!(first["proposed_rule"], "shell(npm run dev)");
    stage.mcode(&["approvals", "allow", "--always", &text(&first["approval_id"])]).ok();
    for wanted in ["npm run evil", "npm run dev; rm f.txt"] {
        let next = stage.waiting("approvals");
        assert_eq!(next["arguments"]["command"], wanted);
        stage.mcode(&["approvals", "deny", &text(&next["approval_id"])]).ok();
        stage.daemon.wait_until("the answer has an effect", || {
            stage.json(&["approvals", "list"])["approvals"][0]["approval_id"] != next["approval_id"]
        });
    }
    let events = stage.events(&detached.thread_id);
    let asked = events.iter().filter(|event| event["type"] == "approval_requested").count();
    assert_eq!(asked, 3, "dev once, evil, and the chain");
    assert_eq!(stage.workspace.read("ran"), "dev\ndev\n");
    assert_eq!(stage.workspace.read("f.txt"), "changed\n");
    stage.server.finish();
}
