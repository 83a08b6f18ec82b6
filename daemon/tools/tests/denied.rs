//! Deny rules on paths: held for what a command starts, and for files under other names.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod stage;

use std::path::Path;

use mcode_permissions::DeniedPaths;
use mcode_permissions::access::{Access, Below, Unconfined};
use mcode_tools::Reach;
use mcode_tools::bounds::Strength;
use serde_json::json;

use stage::Stage;

fn staged(files: &[&str]) -> Stage {
    let stage = Stage::new();
    for name in files {
        let path = stage.context.cwd.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{name} S3CR3T\n")).unwrap();
    }
    stage
}

fn denying(stage: &mut Stage, view: &[&str], edit: &[&str]) {
    let root = stage.context.cwd.display().to_string();
    let globs = |list: &[&str]| list.iter().map(|glob| format!("{root}/{glob}")).collect();
    stage.reach(Reach { denied: DeniedPaths { view: globs(view), edit: globs(edit) }, ..Reach::default() });
}

async fn namespaces(stage: &Stage) -> bool {
    matches!(stage.bounds.strength().await, Strength::Enforced { namespaces: true, .. })
}

#[tokio::test]
async fn a_script_neither_reads_nor_changes_what_a_rule_denies() {
    let mut stage = staged(&["secret", "keys/a.pem", "kept/file", "plain"]);
    let cwd = stage.context.cwd.clone();
    std::fs::write(
        cwd.join("x.sh"),
        "cat secret keys/a.pem; echo x >> kept/file; cat plain; echo y > made; cat kept/file\n",
    )
    .unwrap();
    let out = stage.shell(json!({"command": "sh x.sh"})).await;
    assert_eq!(out.text.matches("S3CR3T").count(), 4, "{}", out.text);
    denying(&mut stage, &["secret", "**/*.pem"], &["kept/**"]);
    std::fs::write(cwd.join("kept/file"), "kept\n").unwrap();
    let out = stage.shell(json!({"command": "sh x.sh"})).await;
    assert!(out.text.contains("plain S3CR3T") && out.text.matches("S3CR3T").count() == 1, "{}", out.text);
    if namespaces(&stage).await {
        assert_eq!(std::fs::read_to_string(cwd.join("kept/file")).unwrap(), "kept\n", "{}", out.text);
    }
    // A file that comes to be later is found by the next command.
    std::fs::write(cwd.join("later.pem"), "S3CR3T").unwrap();
    denying(&mut stage, &["secret", "**/*.pem"], &["kept/**"]);
    let out = stage.shell(json!({"command": "cat later.pem; cat made"})).await;
    assert!(!out.text.contains("S3CR3T") && out.text.contains("y\n"), "{}", out.text);
}

#[tokio::test]
async fn a_hard_link_that_was_there_opens_nothing_by_shell_nor_by_tool() {
    let mut stage = staged(&["secret", "kept", "plain"]);
    let cwd = stage.context.cwd.clone();
    std::fs::create_dir(cwd.join("deep")).unwrap();
    std::fs::hard_link(cwd.join("secret"), cwd.join("deep/other")).unwrap();
    std::fs::hard_link(cwd.join("kept"), cwd.join("deep/kept-too")).unwrap();
    denying(&mut stage, &["secret"], &["kept"]);
    let out = stage.shell(json!({"command": "cat deep/other; echo x >> deep/kept-too; true"})).await;
    assert!(!out.text.contains("S3CR3T"), "{}", out.text);
    if namespaces(&stage).await {
        assert_eq!(std::fs::read_to_string(cwd.join("kept")).unwrap(), "kept S3CR3T\n");
    }
    let beyond = |access: Access| stage.context.bounds.beyond(&[access]);
    assert_eq!(beyond(Access::ReadPath(cwd.join("deep/other"))), [Access::ReadPath(cwd.join("secret"))]);
    assert_eq!(beyond(Access::EditPath(cwd.join("deep/kept-too"))), [Access::EditPath(cwd.join("kept"))]);
    for name in ["plain", "secret", "not-there"] {
        assert_eq!(beyond(Access::ReadPath(cwd.join(name))), [], "{name}");
    }
    let planned = stage.shell_tool().plan(&json!({"command": "cat deep/other"}), &stage.context).unwrap();
    let named =
        |name: &str, access: &Access| matches!(access, Access::Mentioned { path, .. } if *path == cwd.join(name));
    assert!(planned.access.iter().any(|access| named("deep/other", access)), "{:?}", planned.access);
    assert!(stage.context.bounds.beyond(&planned.access).iter().any(|access| named("secret", access)));
}

#[tokio::test]
async fn what_the_kernel_holds_need_not_be_searched_for_in_words() {
    let mut stage = staged(&["secret", "a/x.pem"]);
    let outside = Access::Unconfined(Unconfined::Command);
    for (view, edit, wanted) in [
        (&["secret", "a/*.pem"][..], &[][..], true),
        (&[], &["a/**"], true),
        // New files that fit could be made.
        (&[], &["a/*.pem"], false),
        (&[], &["new"], false),
    ] {
        denying(&mut stage, view, edit);
        let held = namespaces(&stage).await;
        let bounds = &stage.context.bounds;
        assert_eq!(bounds.shields("shell", &[]), wanted && held, "{view:?} {edit:?}");
        assert!(!bounds.shields("process", &[]) && !bounds.shields("shell", std::slice::from_ref(&outside)));
    }
    let everywhere = DeniedPaths { view: vec!["/**/.env".into()], edit: Vec::new() };
    stage.reach(Reach { denied: everywhere, ..Reach::default() });
    assert!(!stage.context.bounds.shields("shell", &[]), "a file elsewhere is not held");
}

#[tokio::test]
async fn a_command_that_was_not_searched_runs_only_while_the_kernel_holds_what_rules_name() {
    let mut stage = staged(&["secret", "a/x.pem"]);
    if !namespaces(&stage).await {
        return;
    }
    let call = json!({"command": "echo hi > ran; cat ran"});
    stage.context.shielded = true;
    denying(&mut stage, &["secret", "a/*.pem"], &[]);
    let out = stage.shell(call.clone()).await;
    assert!(out.text.starts_with("hi\n"), "{}", out.text);
    std::fs::remove_file(stage.context.cwd.join("ran")).unwrap();
    // Rules, files and settings that came while a person was asked.
    let refused = async |stage: &Stage, what: &str| {
        let refused = stage.try_shell(call.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("can not be held any more") && refused.contains("call again"), "{what}: {refused}");
        assert!(!stage.context.cwd.join("ran").exists(), "{what}");
    };
    let everywhere = DeniedPaths { view: vec!["/**/.env".into()], edit: Vec::new() };
    stage.reach(Reach { denied: everywhere, ..Reach::default() });
    refused(&stage, "another rule").await;
    denying(&mut stage, &["secret", "a/*.pem"], &[]);
    stage.settings.lock().unwrap().enabled = Some(false);
    refused(&stage, "no sandbox").await;
    stage.settings.lock().unwrap().enabled = None;
    for number in 0..1001 {
        std::fs::write(stage.context.cwd.join(format!("a/{number}.pem")), "x").unwrap();
    }
    // As each call has bounds of its own.
    denying(&mut stage, &["secret", "a/*.pem"], &[]);
    refused(&stage, "too many files").await;
    stage.context.shielded = false;
    assert!(stage.shell(call.clone()).await.text.starts_with("hi\n"));
}

#[tokio::test]
async fn folders_that_hold_very_much_together_are_unknown() {
    const FOLDERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let stage = staged(&["a/x", "b/x", "c/x", "d/x", "e/x", "f/x"]);
    for folder in FOLDERS {
        (0..3999).for_each(|number| drop(std::fs::File::create(stage.context.cwd.join(format!("{folder}/{number}")))));
    }
    let planned = stage.shell_tool().plan(&json!({"command": "grep -r x a b c d e f"}), &stage.context).unwrap();
    let kinds: Vec<Option<usize>> = planned
        .access
        .iter()
        .filter_map(|access| match access {
            Access::Mentioned { below: Below::Files(files), .. } => Some(Some(files.len())),
            Access::Mentioned { below: Below::Unknown, .. } => Some(None),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [Some(4000), Some(4000), Some(4000), Some(4000), Some(4000), None]);
}

#[tokio::test]
async fn what_is_not_held_is_said_once() {
    let mut stage = staged(&["plain"]);
    for number in 0..1001 {
        std::fs::write(stage.context.cwd.join(format!("{number}.pem")), "x").unwrap();
    }
    denying(&mut stage, &["*.pem"], &[]);
    let out = stage.shell(json!({"command": "true"})).await;
    assert!(out.text.contains("deny rules on paths are not wholly held"), "{}", out.text);
    assert_eq!(stage.shell(json!({"command": "true"})).await.text, "(no output)\n[exit code 0]");
}

#[tokio::test]
async fn a_command_in_a_hidden_folder_is_refused_with_the_reason() {
    let mut stage = staged(&["keys/a"]);
    denying(&mut stage, &["keys/**"], &[]);
    let refused = stage.try_shell(json!({"command": "ls", "cwd": "keys"})).await.unwrap_err();
    assert!(refused.to_string().contains("a deny rule, or the sandbox, hides this folder"), "{refused}");
    assert!(Path::new(&stage.context.cwd).join("keys/a").exists());
}
