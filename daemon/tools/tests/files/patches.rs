//! `apply_patch`: both grammars, all or nothing.

use mcode_permissions::access::Access;
use mcode_tools::ToolFailure;
use serde_json::json;

use crate::rig::Rig;

const LOG: &str = "fn a() {\n    one();\n}\n\nfn b() {\n    one();\n}\n";

#[tokio::test]
async fn begin_patch_grammar() {
    let rig = Rig::new();
    rig.put("src/log.rs", LOG);
    rig.put("old.txt", "bye\n");
    rig.put("name.sh", "echo 1\n");
    rig.chmod("name.sh", 0o755);
    let patch = "*** Begin Patch\n*** Add File: docs/new.md\n+# Title\n+\n+text\n*** Delete File: old.txt\n\
        *** Update File: src/log.rs\n@@ fn b() {\n-    one();\n+    two();\n+    three();\n }\n\
        *** Update File: name.sh\n*** Move to: bin/run.sh\n@@\n-echo 1\n+echo 2\n*** End Patch\n";
    let access = rig.access("apply_patch", json!({"patch": patch}));
    let wanted = ["docs/new.md", "old.txt", "src/log.rs", "name.sh", "bin/run.sh"];
    assert_eq!(access, wanted.map(|name| Access::EditPath(rig.path(name))));
    let text = rig.ok("apply_patch", json!({"patch": patch})).await;
    assert_eq!(
        text,
        "docs/new.md: created\nold.txt: deleted\nsrc/log.rs: updated\nname.sh: deleted\nbin/run.sh: created"
    );
    assert_eq!(rig.text("docs/new.md"), "# Title\n\ntext\n");
    assert_eq!(rig.text("src/log.rs"), "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n    three();\n}\n");
    assert_eq!((rig.text("bin/run.sh").as_str(), rig.mode("bin/run.sh")), ("echo 2\n", 0o755));
    assert!(!rig.path("old.txt").exists() && !rig.path("name.sh").exists());
}

#[tokio::test]
async fn unified_diffs_of_git() {
    let rig = Rig::new();
    rig.put("a.rs", LOG);
    rig.put("gone", "x\n");
    rig.put("caf\u{e9}", "1\n");
    let patch = "diff --git a/a.rs b/a.rs\nindex 1..2 100644\n--- a/a.rs\n+++ b/a.rs\n@@ -5,3 +5,4 @@ fn a() {\n \
        fn b() {\n-    one();\n+    two();\n+    --- deep;\n }\n\
        diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+exit\n\\ No newline at end of file\n\
        diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
        diff --git \"a/caf\\303\\251\" b/tea\nsimilarity index 100%\nrename from \"caf\\303\\251\"\nrename to tea\n\
        diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n";
    rig.ok("apply_patch", json!({"patch": patch})).await;
    assert_eq!(rig.text("a.rs"), "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n    --- deep;\n}\n");
    assert_eq!((rig.text("run").as_str(), rig.mode("run")), ("#!/bin/sh\nexit", 0o755));
    assert_eq!((rig.text("tea").as_str(), rig.text("empty").as_str()), ("1\n", ""));
    assert_eq!(rig.names("."), ["a.rs", "empty", "run", "tea"]);
}

#[tokio::test]
async fn a_hunk_may_be_elsewhere_but_never_in_two_places() {
    let rig = Rig::new();
    rig.put("f", LOG);
    let moved = "--- a/f\n+++ b/f\n@@ -40,2 +40,2 @@\n-    one();\n+    two();\n }\n";
    rig.ok("apply_patch", json!({"patch": moved})).await;
    assert_eq!(rig.text("f"), LOG.replacen("b() {\n    one", "b() {\n    two", 1), "the place nearest to line 40");
    rig.put("g", LOG);
    let vague = "*** Begin Patch\n*** Update File: g\n@@\n-    one();\n+    two();\n*** End Patch";
    let message = rig.fails("apply_patch", json!({"patch": vague})).await;
    assert!(message.contains("g: hunk 1: it fits at lines 2, 6"), "{message}");
    assert_eq!(rig.text("g"), LOG);
}

#[tokio::test]
async fn what_does_not_match_is_named_and_nothing_is_written() {
    let rig = Rig::new();
    rig.put("first", "1\n");
    rig.put("f", LOG);
    let patch = |hunk: &str| {
        format!(
            "*** Begin Patch\n*** Update File: first\n-1\n+2\n*** Add File: n/new\n+x\n*** Update File: f\n@@\n{hunk}*** End Patch"
        )
    };
    for (hunk, wanted) in [
        (
            "-one();\n+two();\n",
            r#"f: hunk 1: line 2 differs in whitespace: the file has "    one();", the patch "one();""#,
        ),
        (
            " fn a() {\n-    two();\n",
            r#"it fits at line 1 but not at line 2: the file has "    one();", the patch "    two();""#,
        ),
        ("-nowhere\n", r#"its lines are not in the file: there is no line "nowhere""#),
    ] {
        let message = rig.fails("apply_patch", json!({"patch": patch(hunk)})).await;
        assert!(message.contains(wanted) && message.contains("no file was changed"), "{message}");
    }
    assert_eq!((rig.text("first").as_str(), rig.text("f").as_str()), ("1\n", LOG));
    assert_eq!(rig.names("."), ["f", "first"]);
}

#[tokio::test]
async fn a_failure_in_the_middle_brings_all_back() {
    let rig = Rig::new();
    rig.put("a", "1\n");
    rig.put("gone", "x\n");
    rig.chmod("a", 0o640);
    rig.put("wall", "");
    // Both new files are fine alone; that the first becomes a folder of the second shows only when writing.
    let patch = "*** Begin Patch\n*** Update File: a\n-1\n+2\n*** Delete File: gone\n*** Add File: deep/er/new\n+x\n\
        *** Add File: deep/er/new/below\n+x\n*** End Patch";
    let message = rig.fails("apply_patch", json!({"patch": patch})).await;
    assert!(message.starts_with("deep/er/new/below: "), "{message}");
    assert_eq!((rig.text("a").as_str(), rig.mode("a"), rig.text("gone").as_str()), ("1\n", 0o640, "x\n"));
    assert_eq!(rig.names("."), ["a", "gone", "wall"]);
    // What the model believes is as before, too.
    rig.ok("edit", json!({"path": "a", "old_string": "1", "new_string": "3"})).await;
}

#[tokio::test]
async fn files_are_not_overwritten_by_adding_or_moving() {
    let rig = Rig::new();
    rig.put("a", "1\n");
    rig.put("b", "2\n");
    let add = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";
    assert!(rig.fails("apply_patch", json!({"patch": add})).await.contains("but it exists"));
    let moved = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n-1\n+x\n*** End Patch";
    assert!(rig.fails("apply_patch", json!({"patch": moved})).await.contains("there is a file already"));
    let less = "--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-3\n";
    assert!(rig.fails("apply_patch", json!({"patch": less})).await.contains("b: hunk 1"));
    assert_eq!((rig.text("a").as_str(), rig.text("b").as_str()), ("1\n", "2\n"));
    let twice = "*** Begin Patch\n*** Update File: a\n-1\n+x\n*** Update File: a\n-x\n+y\n*** End Patch";
    rig.ok("apply_patch", json!({"patch": twice})).await;
    assert_eq!(rig.text("a"), "y\n");
}

#[tokio::test]
async fn a_link_is_not_taken_for_what_it_leads_to() {
    let rig = Rig::new();
    rig.put("real", "1\n");
    crate::rig::symlink("real", rig.path("link"));
    for action in ["*** Delete File: link", "*** Update File: link\n*** Move to: other\n-1\n+2"] {
        let patch = format!("*** Begin Patch\n{action}\n*** End Patch");
        assert!(rig.fails("apply_patch", json!({"patch": patch})).await.contains("this is a link"));
    }
    let update = "*** Begin Patch\n*** Update File: link\n-1\n+2\n*** End Patch";
    rig.ok("apply_patch", json!({"patch": update})).await;
    assert_eq!((rig.text("real").as_str(), rig.path("link").is_symlink()), ("2\n", true));
}

#[tokio::test]
async fn mailed_patches_and_code_blocks_end_where_they_end() {
    let rig = Rig::new();
    rig.put("f", "- \na\nb\n");
    let mail =
        "From x\nSubject: y\n\n---\n f | 2 +-\n\n--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n-- \n-a\n+A\n b\n-- \n2.43.0\n\n";
    rig.ok("apply_patch", json!({"patch": mail})).await;
    assert_eq!(rig.text("f"), "A\nb\n");
    let block = "```diff\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-A\n+B\n```\n";
    rig.ok("apply_patch", json!({"patch": block})).await;
    assert_eq!(rig.text("f"), "B\nb\n");
}

#[tokio::test]
async fn line_endings_of_the_file_are_kept() {
    let rig = Rig::new();
    rig.put("f", "a\r\nb\r\nc");
    let patch = "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n";
    rig.ok("apply_patch", json!({"patch": patch})).await;
    assert_eq!(rig.text("f"), "a\r\nB\r\nB2\r\nc");
    let whole = "*** Begin Patch\r\n*** Update File: f\r\n@@\r\n c\r\n+d\r\n*** End of File\r\n*** End Patch\r\n";
    rig.ok("apply_patch", json!({"patch": whole})).await;
    assert_eq!(rig.text("f"), "a\r\nB\r\nB2\r\nc\r\nd");
    rig.put("g", "a\n");
    let bare = "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n";
    rig.ok("apply_patch", json!({"patch": bare})).await;
    assert_eq!(rig.text("g"), "b");
}

#[tokio::test]
async fn a_patch_that_is_none_is_refused_by_line() {
    let rig = Rig::new();
    for (patch, wanted) in [
        ("hello", "names no file"),
        ("*** Begin Patch\n*** Add File: a\n+x\n", "no '*** End Patch'"),
        (
            "*** Begin Patch\n*** Add File: a\nx\n*** End Patch",
            "line 3 of the patch: each line of a new file starts with '+'",
        ),
        ("*** Begin Patch\n*** Change File: a\n*** End Patch", "line 2 of the patch"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "has no changes"),
        ("@@ -1 +1 @@\n-a\n+b\n", "line 1 of the patch: a hunk without"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "use chmod"),
        ("diff --git a/x b/x\nGIT binary patch\n", "binary patches"),
    ] {
        let failure = rig.call("apply_patch", json!({"patch": patch})).await.unwrap_err();
        assert!(matches!(&failure, ToolFailure::BadArguments(message) if message.contains(wanted)), "{failure:?}");
    }
    assert!(rig.names(".").is_empty());
}
