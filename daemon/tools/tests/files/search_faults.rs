//! Area C of the fault reports: glob and grep.

use std::sync::Arc;

use mcode_tools::ToolSet;
use mcode_tools::search::GrepTool;
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::rig::{Rig, symlink};

#[tokio::test]
async fn c01_hidden_files_are_found() {
    let rig = Rig::new();
    rig.put(".github/workflows/ci.yml", "x");
    rig.put(".eslintrc.json", "x");
    rig.put(".git/config", "x");
    assert_eq!(rig.ok("glob", json!({"pattern": ".github/workflows/*.yml"})).await, ".github/workflows/ci.yml");
    assert_eq!(rig.ok("glob", json!({"pattern": ".eslintrc.json"})).await, ".eslintrc.json");
    assert_eq!(rig.ok("glob", json!({"pattern": "**/*"})).await, ".eslintrc.json\n.github/workflows/ci.yml");
}

#[tokio::test]
async fn c03_an_ignored_file_is_found_by_its_path() {
    let rig = Rig::new();
    rig.put(".gitignore", "dist/\n*.log\n");
    rig.put("dist/app.js", "let x;\n");
    rig.put("a.log", "x");
    rig.put("src/app.js", "let y;\n");
    assert_eq!(rig.ok("glob", json!({"pattern": "dist/app.js"})).await, "dist/app.js");
    assert_eq!(rig.ok("glob", json!({"pattern": "*.log"})).await, "a.log (ignored)");
    assert_eq!(rig.ok("glob", json!({"pattern": "**/app.js"})).await, "src/app.js");
    assert!(rig.ok("view", json!({"path": "dist/app.js"})).await.contains("1\tlet x;"));
    let hits = rig.ok("grep", json!({"pattern": "x", "path": "dist/app.js"})).await;
    assert_eq!(hits, "dist/app.js\n1: let x;\n\n[1 matching line in 1 file]");
    let hits = rig.ok("grep", json!({"pattern": "let"})).await;
    assert!(hits.contains("src/app.js") && !hits.contains("dist"), "{hits}");
    let listing = rig.ok("view", json!({"path": "."})).await;
    assert_eq!(listing, ".gitignore\na.log (ignored)\ndist/ (ignored)\nsrc/\n[4 entries]");
}

#[tokio::test]
async fn c05_braces_and_spaces_are_part_of_names() {
    let rig = Rig::new();
    let name = "vault/{rule} deep research.md";
    rig.put(name, "x\n");
    for pattern in ["vault/*deep research*", "vault/[{]rule[}]*", name, "vault/{rule}*", "**/{rule} deep*"] {
        assert_eq!(rig.ok("glob", json!({"pattern": pattern})).await, name, "{pattern}");
    }
    rig.put("app/[id]/page.tsx", "x");
    for pattern in ["app/[id]/page.tsx", "app/[id]/*.tsx", "**/[id]/*"] {
        assert_eq!(rig.ok("glob", json!({"pattern": pattern})).await, "app/[id]/page.tsx", "{pattern}");
    }
    let hits = rig.ok("grep", json!({"pattern": "x", "path": name})).await;
    assert!(hits.contains("[1 matching line in 1 file]"), "{hits}");
}

#[tokio::test]
async fn c07_links_are_not_followed() {
    let rig = Rig::new();
    rig.put("p/a.txt", "needle\n");
    symlink(".", rig.path("p/loop"));
    symlink("/", rig.path("p/root"));
    let start = Instant::now();
    assert_eq!(rig.ok("glob", json!({"pattern": "**/*.txt", "path": "p"})).await, "p/a.txt");
    let hits = rig.ok("grep", json!({"pattern": "needle", "path": "p"})).await;
    assert_eq!(hits, "p/a.txt\n1: needle\n\n[1 matching line in 1 file]");
    assert!(start.elapsed() < Duration::from_secs(3));
    symlink("circle-b", rig.path("circle-a"));
    symlink("circle-a", rig.path("circle-b"));
    assert!(rig.fails("view", json!({"path": "circle-a/x"})).await.contains("or a circle"));
}

#[tokio::test]
async fn c08_a_narrow_pattern_walks_a_narrow_tree() {
    let mut rig = Rig::new();
    rig.put("apps/web/tsconfig.json", "{}");
    rig.put("aaa.txt", "zzz\n");
    // Names are what a walk costs; links to a few files are made much faster than as many files.
    for folder in 0..200 {
        let one = rig.put(&format!("data/{folder}/0"), "zzz\n");
        for file in 1..1000 {
            std::fs::hard_link(&one, one.with_file_name(file.to_string())).unwrap();
        }
    }
    let start = Instant::now();
    assert_eq!(rig.ok("glob", json!({"pattern": "apps/**/tsconfig.json"})).await, "apps/web/tsconfig.json");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let hurried = GrepTool { time_max: Duration::from_millis(200) };
    rig.tools = ToolSet::new(vec![Arc::new(hurried)]);
    let start = Instant::now();
    let hits = rig.ok("grep", json!({"pattern": "zzz"})).await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(hits.contains("1: zzz") && hits.contains("stopped early"), "{hits}");
    let hits = rig.ok("grep", json!({"pattern": "zzz", "path": "aaa.txt"})).await;
    assert_eq!(hits, "aaa.txt\n1: zzz\n\n[1 matching line in 1 file]");
}

#[tokio::test]
async fn c09_one_hit_in_a_long_line_is_short() {
    let rig = Rig::new();
    let line = format!("{}needle{}", "a".repeat(2_500_000), "b".repeat(2_500_000));
    rig.put("bundle.min.js", line);
    let hits = rig.ok("grep", json!({"pattern": "needle"})).await;
    assert!(hits.len() < 4096 && hits.contains("aaneedlebb"), "{hits}");
    assert!(hits.contains("[… 2499850 bytes]") && hits.contains("[1 matching line in 1 file]"), "{hits}");
    let count = rig.ok("grep", json!({"pattern": "needle", "mode": "count"})).await;
    assert_eq!(count, "bundle.min.js: 1\n[1 matching line in 1 file]");
}

#[tokio::test]
async fn c11_dashes_are_only_text() {
    let rig = Rig::new();
    rig.put("x.sh", "touch PWN\n");
    rig.chmod("x.sh", 0o755);
    rig.put("notes", "call it with --pre=./x.sh\n");
    let hits = rig.ok("grep", json!({"pattern": "--pre=./x.sh", "path": "."})).await;
    assert_eq!(hits, "notes\n1: call it with --pre=./x.sh\n\n[1 matching line in 1 file]");
    let message = rig.fails("grep", json!({"pattern": "x", "path": "--pre=./x.sh"})).await;
    assert!(message.starts_with("--pre=./x.sh: no such file"), "{message}");
    assert!(rig.ok("glob", json!({"pattern": "--files"})).await.starts_with("[no files match --files"));
    assert!(!rig.path("PWN").exists());
}

#[tokio::test]
async fn modes_context_case_and_globs() {
    let rig = Rig::new();
    rig.put("a.rs", "one\nTwo\nthree\nfour\nfive\nsix\ntwo\n");
    rig.put("sub/b.rs", "two\r\n");
    rig.put("c.txt", "two\n");
    let near = rig.ok("grep", json!({"pattern": "t[w]o$", "glob": "*.rs", "ignore_case": true, "context": 1})).await;
    let wanted =
        "a.rs\n1- one\n2: Two\n3- three\n--\n6- six\n7: two\n\nsub/b.rs\n1: two\n\n[3 matching lines in 2 files]";
    assert_eq!(near, wanted);
    let files = rig.ok("grep", json!({"pattern": "two", "mode": "files"})).await;
    assert_eq!(files, "a.rs\nc.txt\nsub/b.rs\n[3 matching lines in 3 files]");
    assert_eq!(
        rig.ok("grep", json!({"pattern": "two", "glob": "sub/**", "mode": "count"})).await,
        "sub/b.rs: 1\n[1 matching line in 1 file]"
    );
    let multi = rig.ok("grep", json!({"pattern": "four\\nfive", "multiline": true})).await;
    assert_eq!(multi, "a.rs\n4: four\n5: five\n\n[2 matching lines in 1 file]");
    rig.put("wide", b"\xff\xfet\0w\0i\0c\0e\0");
    assert!(rig.ok("grep", json!({"pattern": "twice"})).await.contains("wide\n1: twice\n"));
    std::fs::remove_file(rig.path("wide")).unwrap();
    assert_eq!(rig.ok("grep", json!({"pattern": "nowhere"})).await, "[no match in 3 files]");
}

#[tokio::test]
async fn bad_patterns_are_named_with_the_mend() {
    let rig = Rig::new();
    let message = rig.fails("grep", json!({"pattern": "foo("})).await;
    assert!(message.contains("'pattern' is no regular expression") && message.contains("put \\ before"), "{message}");
    let message = rig.fails("grep", json!({"pattern": "a\\nb"})).await;
    assert!(message.contains("set multiline to true"), "{message}");
    let message = rig.fails("grep", json!({"pattern": "a", "glob": "[z"})).await;
    assert!(message.contains("'glob' is no pattern"), "{message}");
    let message = rig.fails("glob", json!({"pattern": "z\\"})).await;
    assert!(message.contains("'pattern' is no pattern"), "{message}");
    let message = rig.fails("grep", json!({"pattern": "(\\pL{1000}){1000}"})).await;
    assert!(message.contains("'pattern'"), "{message}");
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let rig = Rig::new();
    rig.put("a", "x");
    rig.context.cancel.cancel();
    assert_eq!(rig.fails("grep", json!({"pattern": "x"})).await, "cancelled");
    assert_eq!(rig.fails("glob", json!({"pattern": "**/*"})).await, "cancelled");
}

#[tokio::test]
async fn patterns_may_lead_elsewhere_and_say_so() {
    use mcode_permissions::access::Access;
    let rig = Rig::new();
    let other = tempfile::tempdir().unwrap();
    let other = other.path().canonicalize().unwrap();
    std::fs::write(other.join("x.txt"), "").unwrap();
    let pattern = format!("{}/*.txt", other.display());
    let access = rig.access("glob", json!({"pattern": pattern}));
    assert!(access.contains(&Access::ReadPath(other.clone())), "{access:?}");
    assert_eq!(rig.ok("glob", json!({"pattern": pattern})).await, format!("{}/x.txt", other.display()));
    let up = rig.access("glob", json!({"pattern": "../*"}));
    assert!(up.contains(&Access::ReadPath(rig.root.parent().unwrap().to_path_buf())), "{up:?}");
}

#[tokio::test]
async fn files_that_need_a_permission_are_left_out_of_a_walk() {
    let rig = Rig::new();
    rig.put("open.txt", "needle in the open\n");
    rig.put("sub/withheld", "needle withheld\n");
    let text = rig.ok("grep", json!({"pattern": "needle"})).await;
    assert!(text.contains("needle in the open"), "{text}");
    assert!(!text.contains("needle withheld"), "{text}");
    assert!(text.contains("1 file not searched (a permission is needed)"), "{text}");
}
