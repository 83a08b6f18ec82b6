//! Commands and file tools in the sandbox.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod stage;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use mcode_permissions::access::{Access, Unconfined};
use mcode_tools::bounds::{NetworkRule, Settings, Strength};
use mcode_tools::{Bounds, CallBounds, OwnPlaces, Reach, Tool, ToolFailure, ToolOutput, file_tools};
use serde_json::{Value, json};

use stage::{Out, Stage};

/// A command with the rest of the user's home beside the project.
struct Home {
    stage: Stage,
    kept: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let mut stage = Stage::new();
        let home = kept.path().canonicalize().unwrap();
        std::fs::create_dir(home.join(".ssh")).unwrap();
        std::fs::write(home.join(".ssh/key"), "K3Y").unwrap();
        stage.set_env("HOME", home.to_str().unwrap());
        stage.reach(Reach::default());
        Self { stage, kept }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.kept.path().canonicalize().unwrap().join(name)
    }

    async fn shell(&self, command: &str) -> Out {
        self.stage.shell(json!({"command": command})).await
    }

    fn settings(&self, settings: Settings) {
        *self.stage.settings.lock().unwrap() = settings;
    }
}

#[tokio::test]
async fn a_command_writes_in_the_project_and_to_temporary_files_and_nowhere_else() {
    let home = Home::new();
    let out = home.shell("echo x > new && f=$(mktemp) && echo y > $f && cat new $f").await;
    assert_eq!((out.text.as_str(), out.failed), ("x\ny\n[exit code 0]", false));
    let out = home.shell(&format!("echo x > {}", home.path("outside").display())).await;
    assert!(out.failed && !home.path("outside").exists(), "{}", out.text);
    assert!(out.text.contains("if the sandbox was in the way: writable: "), "{}", out.text);
    let out = home.shell("cat ~/.ssh/key").await;
    assert!(out.failed && !out.text.contains("K3Y"), "{}", out.text);
    // A plain failure says nothing of the sandbox.
    let out = home.shell("exit 3").await;
    assert_eq!(out.text, "(no output)\n[exit code 3]");
}

#[tokio::test]
async fn more_than_the_sandbox_gives_is_asked_for_and_then_given() {
    let home = Home::new();
    let plan = |arguments: Value| home.stage.shell_tool().plan(&arguments, &home.stage.context);
    let plain = plan(json!({"command": "true"})).unwrap();
    assert!(matches!(plain.access.as_slice(), [Access::Command { .. }]));
    let outside = json!({"command": format!("echo x > {}", home.path("outside").display()), "sandbox": "off"});
    let planned = plan(outside.clone()).unwrap();
    assert_eq!(planned.access[0], Access::Unconfined(Unconfined::Command));
    assert!(
        matches!(planned.access[1], Access::Command { .. }) && planned.preview.starts_with("OUTSIDE THE SANDBOX:\n")
    );
    assert!(!home.stage.shell(outside).await.failed && home.path("outside").exists());
    let network = json!({"command": "cat /proc/net/dev", "sandbox": "network"});
    let planned = plan(network.clone()).unwrap();
    assert_eq!(planned.access[0], Access::Unconfined(Unconfined::Network));
    let (without, with) = (home.shell("cat /proc/net/dev").await, home.stage.shell(network.clone()).await);
    let here = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let names = |text: &str| text.lines().filter(|line| line.contains(':')).count();
    assert_eq!(names(&with.text), names(&here), "{}", with.text);
    if matches!(home.stage.bounds.strength().await, Strength::Enforced { namespaces: true, .. }) {
        assert_eq!(names(&without.text), 1, "{}", without.text);
    }
    home.settings(Settings { network: NetworkRule::Deny, ..Settings::default() });
    let refused = plan(network.clone()).unwrap_err();
    assert!(refused.to_string().contains("network = \"deny\""), "{refused}");
    home.settings(Settings { network: NetworkRule::Allow, ..Settings::default() });
    let access = plan(network).unwrap().access;
    assert!(!access.iter().any(|access| matches!(access, Access::Unconfined(_))), "{access:?}");
    let always = home.shell("cat /proc/net/dev").await;
    assert_eq!(names(&always.text), names(&here), "{}", always.text);
}

#[tokio::test]
async fn what_is_written_to_a_command_outside_is_asked_as_one_outside() {
    let home = Home::new();
    let start = async |sandbox: Option<&str>| {
        let mut arguments = json!({"command": "cat", "background": true});
        if let Some(sandbox) = sandbox {
            arguments["sandbox"] = json!(sandbox);
        }
        let text = home.stage.shell(arguments).await.text;
        text.split_whitespace().find(|word| word.starts_with("prc_")).unwrap().to_owned()
    };
    for (sandbox, beyond) in
        [(None, None), (Some("network"), Some(Unconfined::Network)), (Some("off"), Some(Unconfined::Command))]
    {
        let id = start(sandbox).await;
        let write = json!({"action": "write", "id": id, "input": "touch x\n"});
        let planned = home.stage.process_tool().plan(&write, &home.stage.context).unwrap();
        let wanted = beyond.map(Access::Unconfined);
        let command = Access::Command { command: "touch x\n".into(), cwd: home.stage.context.cwd.clone() };
        assert_eq!(planned.access, wanted.into_iter().chain([command]).collect::<Vec<_>>(), "{sandbox:?}");
        assert_eq!(planned.preview.starts_with("write to"), sandbox.is_none(), "{}", planned.preview);
    }
    home.stage.table.kill_all().await;
}

#[tokio::test]
async fn a_run_that_only_looks_writes_nothing_by_any_command() {
    let mut home = Home::new();
    home.stage.reach(Reach { looking_only: true, network: true, ..Reach::default() });
    let project = home.stage.context.cwd.clone();
    std::fs::write(project.join("file"), "as it was").unwrap();
    for command in [
        "echo x > new",
        "rm -f file; echo x > file",
        "python3 -c 'open(\"new\", \"w\")'",
        "mkdir -p a/b; git init -q .; ln -s / l; mv file other; truncate -s 0 file; sed -i s/a/b/ file",
        "sort -o file file; find . -name file -delete; tee file < /dev/null; touch -d 2001-01-01 file",
    ] {
        home.shell(command).await;
        assert_eq!(std::fs::read_to_string(project.join("file")).unwrap(), "as it was", "{command}");
        assert_eq!(project.read_dir().unwrap().count(), 1, "{command}");
    }
    assert!(!home.shell("f=$(mktemp) && echo x > $f").await.failed);
    // Nor does the sandbox itself.
    std::fs::create_dir(project.join(".git")).unwrap();
    std::fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    home.shell("git status").await;
    assert_eq!(project.join(".git").read_dir().unwrap().count(), 1);
}

#[tokio::test]
async fn what_git_would_run_later_is_told() {
    let home = Home::new();
    let out = home.shell("mkdir -p sub && git init -q sub && echo 'touch x' > sub/.git/hooks/pre-commit").await;
    assert!(!out.failed, "{}", out.text);
    let remark = out.text.lines().last().unwrap();
    assert!(remark.contains("sub/.git/hooks/pre-commit") && remark.contains("outside the sandbox"), "{remark}");
    let out = home
        .shell("git -C sub config core.fsmonitor 'touch x'; echo x > sub/.git/hooks/pre-push; git -C sub status")
        .await;
    if matches!(home.stage.bounds.strength().await, Strength::Enforced { namespaces: true, .. }) {
        assert!(!home.stage.context.cwd.join("sub/.git/hooks/pre-push").exists(), "{}", out.text);
        let config = std::fs::read_to_string(home.stage.context.cwd.join("sub/.git/config")).unwrap();
        assert!(!config.contains("fsmonitor"), "{config}");
    } else {
        assert!(out.text.contains("pre-push"), "{}", out.text);
    }
}

#[tokio::test]
async fn that_nothing_is_held_is_said_once() {
    let home = Home::new();
    home.settings(Settings { enabled: Some(false), ..Settings::default() });
    let first = home.shell(&format!("echo x > {}; echo done", home.path("outside").display())).await;
    assert!(first.text.contains("[no sandbox: ") && first.text.contains("enabled = false"), "{}", first.text);
    assert!(home.path("outside").exists());
    assert!(!home.shell("true").await.text.contains("no sandbox"));
}

#[tokio::test]
async fn where_it_can_not_be_held_it_is_said_and_where_it_is_demanded_nothing_runs() {
    let mut home = Home::new();
    let settings = Arc::clone(&home.stage.settings);
    let current = Arc::new(move || settings.lock().unwrap().clone());
    let places = OwnPlaces { temp: home.path("temp"), ..OwnPlaces::default() };
    let bounds = Bounds::knowing(current, places, Strength::None("the kernel is too old".into()));
    let reach = Reach { project_root: home.stage.context.cwd.clone(), ..Reach::default() };
    let (thread, env) = (home.stage.context.thread_id, Arc::clone(&home.stage.context.env));
    home.stage.context.bounds = CallBounds::new(bounds, thread, reach, env);
    let out = home.shell("echo x > new").await;
    assert!(out.text.contains("[no sandbox: ") && out.text.contains("too old") && !out.failed, "{}", out.text);
    home.settings(Settings { enabled: Some(true), ..Settings::default() });
    let refused = home.stage.try_shell(json!({"command": "echo x > other"})).await.unwrap_err();
    assert!(refused.to_string().contains("nothing was run"), "{refused}");
    assert!(!home.stage.context.cwd.join("other").exists());
}

/// A file tool's call after permission was given for what it planned, and `meanwhile` happened.
async fn call(home: &Home, name: &str, arguments: Value, meanwhile: impl FnOnce()) -> Result<ToolOutput, ToolFailure> {
    let tools = file_tools();
    let tool: &Arc<dyn Tool> = tools.iter().find(|tool| tool.spec().name == name).unwrap();
    let plan = tool.plan(&arguments, &home.stage.context)?;
    meanwhile();
    let mut context = home.stage.context.clone();
    context.granted = Some(plan.access.into());
    tool.run(arguments, context).await
}

#[tokio::test]
async fn a_link_that_is_changed_after_the_permission_leads_nowhere() {
    let home = Home::new();
    let project = home.stage.context.cwd.clone();
    for (name, arguments) in [
        ("view", json!({"path": "l/key"})),
        ("grep", json!({"pattern": ".", "path": "l"})),
        ("glob", json!({"pattern": "*", "path": "l"})),
        ("write", json!({"path": "l/new", "content": "x"})),
        ("edit", json!({"path": "l/key", "old_string": "K3Y", "new_string": "x"})),
        ("apply_patch", json!({"patch": "*** Begin Patch\n*** Add File: l/new\n+x\n*** End Patch"})),
    ] {
        std::fs::create_dir_all(project.join("safe")).unwrap();
        std::fs::write(project.join("safe/key"), "K3Y").unwrap();
        std::fs::remove_file(project.join("l")).ok();
        symlink("safe", project.join("l")).unwrap();
        let swap = || {
            std::fs::remove_file(project.join("l")).unwrap();
            symlink(home.path(".ssh"), project.join("l")).unwrap();
        };
        let failure = call(&home, name, arguments, swap).await.unwrap_err().to_string();
        assert!(failure.contains("led elsewhere"), "{name}: {failure}");
        assert_eq!(std::fs::read_to_string(home.path(".ssh/key")).unwrap(), "K3Y", "{name}");
        assert_eq!(home.path(".ssh").read_dir().unwrap().count(), 1, "{name}");
    }
}

#[tokio::test]
async fn file_tools_ask_for_what_a_command_could_not_do() {
    let home = Home::new();
    let project = home.stage.context.cwd.clone();
    std::fs::create_dir_all(project.join(".mcode/plans")).unwrap();
    let bounds = &home.stage.context.bounds;
    let edit = |path: &Path| bounds.beyond(&[Access::EditPath(path.to_path_buf())]);
    let beyond = |path: &Path| vec![Access::Unconfined(Unconfined::Edit(path.to_path_buf()))];
    for inside in ["src/new", ".gitignore", ".mcode/plans/one.md"] {
        assert_eq!(edit(&project.join(inside)), [], "{inside}");
    }
    for kept in [".mcode/config.toml", ".git/hooks/pre-commit", "vendor/sub/.git/hooks/post-checkout", "a/.GIT/config"]
    {
        assert_eq!(edit(&project.join(kept)), beyond(&project.join(kept)), "{kept}");
    }
    assert_eq!(edit(&home.path("outside")), beyond(&home.path("outside")));
    let key = home.path(".ssh/key");
    assert_eq!(bounds.beyond(&[Access::ReadPath(key.clone())]), [Access::Unconfined(Unconfined::Read(key.clone()))]);
    assert!(!bounds.may_read(&key) && bounds.may_read(&home.path("other")));
    home.settings(Settings { enabled: Some(false), ..Settings::default() });
    let (thread, env) = (home.stage.context.thread_id, Arc::clone(&home.stage.context.env));
    let off = CallBounds::new(Arc::clone(&home.stage.bounds), thread, Reach::default(), env);
    assert_eq!(off.beyond(&[Access::EditPath(key)]), []);
}
