//! Every limit is reached once.

use mcode_tools::MAX_RESULT_BYTES;
use mcode_tools::fs::MAX_FILE_BYTES;
use mcode_tools::output::MAX_DIFF_BYTES;
use mcode_tools::search::grep::{MAX_BYTES, MAX_COUNTED, MAX_MATCHES};
use serde_json::json;

use crate::rig::Rig;

#[tokio::test]
async fn a_view_is_bounded_in_bytes_and_lines_in_length() {
    let rig = Rig::new();
    rig.put("wide", format!("{}\n", "é".repeat(1500)).repeat(100));
    let view = rig.ok("view", json!({"path": "wide"})).await;
    assert!(view.len() <= MAX_RESULT_BYTES && view.len() > MAX_RESULT_BYTES / 2, "{}", view.len());
    assert!(view.ends_with("[lines 1-16 of 100 lines; go on with offset 17]"), "{}", &view[view.len() - 90..]);
    rig.put("long", format!("{}\nnext\n", "é".repeat(50_000)));
    let view = rig.ok("view", json!({"path": "long"})).await;
    assert!(view.contains("é [line cut: 50000 characters, the first 2000 characters shown]\n     2\tnext"));
}

#[tokio::test]
async fn a_line_of_a_huge_file_is_never_held() {
    let rig = Rig::new();
    let path = rig.path("one-line");
    let file = std::fs::File::create(&path).unwrap();
    std::io::Write::write_all(&mut &file, &vec![b'x'; 10_000]).unwrap();
    // Sparse: what was not written reads as NUL, far behind what is looked at.
    file.set_len(MAX_FILE_BYTES + 10_000).unwrap();
    let view = rig.ok("view", json!({"path": "one-line"})).await;
    assert!(
        view.len() < 2500 && view.contains("[line cut: 67118864 bytes, the first 2000 characters shown]"),
        "{view}"
    );
    let message = rig.fails("view", json!({"path": "one-line", "offset": 2})).await;
    assert!(message.contains("there is no line 2"), "{message}");
    let message = rig.fails("write", json!({"path": "one-line", "content": "x"})).await;
    assert!(message.contains("files over 64 MB are not changed"), "{message}");
}

#[tokio::test]
async fn a_listing_is_bounded() {
    let rig = Rig::new();
    for file in 0..1005 {
        rig.put(&format!("d/{file:04}"), "");
    }
    let listing = rig.ok("view", json!({"path": "d"})).await;
    assert!(listing.ends_with("0999\n[1000 of 1005 entries shown; use glob for the others]"), "{listing}");
    let found = rig.ok("glob", json!({"pattern": "d/*"})).await;
    assert!(found.ends_with("d/0999\n[1000 of 1005 files shown; narrow the pattern for the others]"), "{found}");
}

#[tokio::test]
async fn hits_are_bounded_in_number_and_bytes() {
    let rig = Rig::new();
    rig.put("a", "hit\n".repeat(600));
    rig.put("b", "hit\n");
    let hits = rig.ok("grep", json!({"pattern": "hit"})).await;
    assert!(hits.contains(&format!("{MAX_MATCHES}: hit\n[500 of 601 matching lines in 2 files shown")), "{hits}");
    rig.put("a", format!("hit {}\n", "y".repeat(290)).repeat(400));
    let hits = rig.ok("grep", json!({"pattern": "hit"})).await;
    assert!(hits.len() <= MAX_BYTES && hits.len() > MAX_BYTES / 2 && hits.contains("narrow the search"), "{hits}");
    for file in 0..8 {
        rig.put(&format!("many/{file}"), "hit\n".repeat(4000));
    }
    let hits = rig.ok("grep", json!({"pattern": "hit", "path": "many", "mode": "count"})).await;
    assert!(hits.contains(&format!("stopped early after {MAX_COUNTED} matching lines")), "{hits}");
}

#[tokio::test]
async fn a_diff_is_bounded() {
    let rig = Rig::new();
    let content: String = (0..20_000).map(|line| format!("{line}\n")).collect();
    let output = rig.call("write", json!({"path": "f", "content": content})).await.unwrap();
    let diff = output.diff.unwrap();
    assert!(diff.len() < MAX_DIFF_BYTES + 100 && diff.contains("[diff cut: "), "{}", diff.len());
    let large = format!("{}x\n", "y".repeat(99)).repeat(50_000);
    let output = rig.call("write", json!({"path": "f", "content": large})).await.unwrap();
    assert!(output.diff.unwrap().contains("[no diff of a large file:"));
    rig.ok("edit", json!({"path": "f", "old": "x\n", "new": "z\n", "replace_all": true})).await;
}

#[tokio::test]
async fn edits_and_files_of_a_patch_are_counted() {
    let rig = Rig::new();
    rig.put("f", "x");
    let edits: Vec<_> = (0..501).map(|_| json!({"old_string": "x", "new_string": "y"})).collect();
    let message = rig.fails("edit", json!({"path": "f", "edits": edits})).await;
    assert!(message.contains("501 entries, the limit is 500"), "{message}");
    let adds: String = (0..501).map(|file| format!("*** Add File: n{file}\n+x\n")).collect();
    let patch = format!("*** Begin Patch\n{adds}*** End Patch");
    let message = rig.fails("apply_patch", json!({"patch": patch})).await;
    assert!(message.contains("501 files, the limit is 500"), "{message}");
    assert_eq!(rig.names("."), ["f"]);
}
