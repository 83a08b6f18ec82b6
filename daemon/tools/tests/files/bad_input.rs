//! Bad input: a typed result for the model, and the file untouched.

use mcode_tools::{ToolFailure, file_tools};
use serde_json::json;
use tokio::time::{Duration, timeout};

use crate::rig::Rig;

#[tokio::test]
async fn a_missing_file_is_named_and_one_like_it_too() {
    let rig = Rig::new();
    rig.put("src/config.rs", "x");
    let message = rig.fails("view", json!({"path": "src/confg.rs"})).await;
    assert_eq!(message, "src/confg.rs: no such file or folder; in that folder: config.rs");
    let message = rig.fails("edit", json!({"path": "none/f", "old_string": "a", "new_string": "b"})).await;
    assert_eq!(message, "none/f: no such file or folder");
    let message = rig.fails("view", json!({"path": "src/config.rs/deeper"})).await;
    assert!(message.contains("a part of the path is a file"), "{message}");
    assert!(rig.fails("glob", json!({"pattern": "*", "path": "nowhere"})).await.contains("no such file"));
    assert!(!rig.path("none").exists());
}

#[tokio::test]
async fn a_binary_file_is_refused_by_size_and_kind() {
    let rig = Rig::new();
    let elf = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 200]].concat();
    rig.put("prog", &elf);
    rig.put("blob.bin", [0u8, 1, 2, 3]);
    let message = rig.fails("view", json!({"path": "prog"})).await;
    assert!(message.contains("binary file (application/x-executable, 207 bytes)"), "{message}");
    let message = rig.fails("view", json!({"path": "blob.bin"})).await;
    assert!(message.contains("binary file (unknown kind, 4 bytes)"), "{message}");
    let message = rig.fails("edit", json!({"path": "prog", "old_string": "ELF", "new_string": "elf"})).await;
    assert!(message.contains("which edit does not change"), "{message}");
    let patch = "--- a/prog\n+++ b/prog\n@@ -1 +1 @@\n-ELF\n+elf\n";
    assert!(rig.fails("apply_patch", json!({"patch": patch})).await.contains("binary file"));
    assert!(rig.fails("grep", json!({"pattern": "ELF", "path": "prog"})).await.contains("binary file"));
    assert_eq!(
        rig.ok("grep", json!({"pattern": "ELF"})).await,
        "[no match in 0 files; 2 files not searched (binary, or not readable)]"
    );
    assert_eq!(rig.bytes("prog"), elf);
}

#[tokio::test]
async fn other_encodings_are_shown_and_kept() {
    let rig = Rig::new();
    rig.put("latin", b"caf\xe9\r\nna\xefve\r\n");
    let view = rig.ok("view", json!({"path": "latin"})).await;
    assert!(view.contains("1\tcafé\n") && view.contains("CRLF line endings, windows-1252"), "{view}");
    rig.ok("edit", json!({"path": "latin", "old_string": "café\nn", "new_string": "thé\nN"})).await;
    assert_eq!(rig.bytes("latin"), b"th\xe9\r\nNa\xefve\r\n");
    let message = rig.fails("edit", json!({"path": "latin", "old_string": "thé", "new_string": "漢"})).await;
    assert!(message.contains("stored as windows-1252, which has no character '漢'"), "{message}");
    assert_eq!(rig.bytes("latin"), b"th\xe9\r\nNa\xefve\r\n");
    rig.put("wide", b"\xff\xfea\0\n\0");
    assert!(rig.ok("view", json!({"path": "wide"})).await.contains("1\ta\n[1 line, UTF-16LE]"));
    rig.ok("edit", json!({"path": "wide", "old_string": "a", "new_string": "ß"})).await;
    assert_eq!(rig.bytes("wide"), b"\xff\xfe\xdf\0\n\0");
    rig.ok("write", json!({"path": "wide", "content": "b"})).await;
    assert_eq!(rig.bytes("wide"), b"\xff\xfeb\0");
}

#[tokio::test]
async fn pipes_and_devices_never_hang() {
    let rig = Rig::new();
    let made = std::process::Command::new("mkfifo").arg(rig.path("pipe")).status().unwrap();
    assert!(made.success());
    for (tool, call) in [
        ("view", json!({"path": "pipe"})),
        ("edit", json!({"path": "pipe", "old_string": "a", "new_string": "b"})),
        ("write", json!({"path": "pipe", "content": "b"})),
        ("grep", json!({"pattern": "x", "path": "pipe"})),
    ] {
        let message = timeout(Duration::from_secs(5), rig.fails(tool, call)).await.unwrap();
        assert_eq!(message, "pipe: this is a pipe, not a regular file", "{tool}");
    }
    let searched = timeout(Duration::from_secs(5), rig.ok("grep", json!({"pattern": "x"}))).await.unwrap();
    assert_eq!(searched, "[no match in 0 files]");
    assert!(rig.fails("view", json!({"path": "/dev/zero"})).await.contains("this is a device"));
}

#[tokio::test]
async fn odd_paths_are_refused_by_name() {
    let rig = Rig::new();
    for path in ["", "  ", "a\0b", &"x".repeat(5000)] {
        let failure = rig.call("view", json!({"path": path})).await.unwrap_err();
        assert!(matches!(&failure, ToolFailure::BadArguments(message) if message.contains("'path'")), "{failure:?}");
    }
    rig.put("home/in", "at home\n");
    assert!(rig.ok("view", json!({"path": "~/in"})).await.contains("at home"));
    let message = rig.fails("write", json!({"path": "home", "content": "x"})).await;
    assert!(message.contains("this is a folder"), "{message}");
}

#[tokio::test]
async fn edits_that_do_not_fit_change_nothing() {
    let rig = Rig::new();
    rig.put("f", "one\ntwo\n");
    let edits = json!({"path": "f", "edits": [
        {"old_string": "one", "new_string": "1"}, {"old_string": "three", "new_string": "3"}]});
    let message = rig.fails("edit", edits).await;
    assert!(message.contains("f: edit 2: old_string is not in the file") && message.contains("nothing was changed"));
    let same = json!({"path": "f", "old_string": "one", "new_string": "one"});
    assert!(rig.fails("edit", same).await.contains("no change"));
    let empty = json!({"path": "f", "old_string": "", "new_string": "x"});
    assert!(rig.fails("edit", empty).await.contains("old_string is empty but the file is not"));
    for call in [
        json!({"path": "f"}),
        json!({"path": "f", "old_string": "one"}),
        json!({"path": "f", "new_string": "one"}),
        json!({"path": "f", "old_string": "a", "new_string": "b", "edits": [{"old_string": "a", "new_string": "b"}]}),
    ] {
        let failure = rig.call("edit", call).await.unwrap_err();
        assert!(matches!(failure, ToolFailure::BadArguments(_)), "{failure:?}");
    }
    assert_eq!(rig.text("f"), "one\ntwo\n");
    assert_eq!(rig.names("."), ["f"]);
    let order = json!({"path": "f", "edits": [
        {"old_string": "one", "new_string": "1"}, {"old_string": "1\ntwo", "new_string": "2"}]});
    assert_eq!(rig.ok("edit", order).await, "f: 2 replacements, 2 lines changed");
    assert_eq!(rig.text("f"), "2\n");
    rig.ok("edit", json!({"path": "new/file", "old_string": "", "new_string": "made\n"})).await;
    assert_eq!(rig.text("new/file"), "made\n");
}

#[tokio::test]
async fn what_is_planned_is_what_people_see() {
    let rig = Rig::new();
    rig.put("f", "one\ntwo\n");
    let edit = json!({"path": "f", "old_string": "two", "new_string": "2"});
    let diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(rig.preview("edit", edit.clone()), diff);
    let output = rig.call("edit", edit.clone()).await.unwrap();
    assert_eq!(output.diff.as_deref(), Some(diff));
    assert_eq!(output.preview, "1 replacement, 1 line changed");
    assert_eq!(output.files[0].hash, Some(blake3::hash(b"one\n2\n").to_hex().to_string()));
    // A plan that can not be carried out still names its path, so that permission comes first.
    assert!(rig.preview("edit", edit).contains("0 matches"));
    assert_eq!(
        rig.preview("write", json!({"path": "n", "content": "x\n"})),
        "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
    );
}

#[test]
fn every_tool_is_small_and_its_schema_right() {
    let rig = Rig::new();
    let mut total = 0;
    for spec in rig.tools.specs() {
        let size = spec.description.len() + spec.schema.to_string().len();
        assert!(size <= 900, "{}: {size} bytes", spec.name);
        total += size;
        let failure = rig.tools.check_arguments(spec.name, &json!({})).unwrap_err();
        assert!(failure.to_string().contains("is missing"), "{failure}");
    }
    assert!(total < 4200, "{total}");
    assert_eq!(rig.tools.names().collect::<Vec<_>>(), ["view", "write", "edit", "apply_patch", "glob", "grep"]);
    assert_eq!(file_tools().len(), 6);
    let failure = rig.tools.check_arguments("viev", &json!({})).unwrap_err();
    assert!(failure.to_string().contains("no tool named 'viev'; the tools are: view, write"), "{failure}");
}
