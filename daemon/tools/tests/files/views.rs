//! What `view` shows: pages, pictures, folders, stored outputs.

use mcode_events::tool::ResultPart;
use mcode_tools::cut_to_blob;
use serde_json::json;

use crate::rig::{Rig, text_of};

#[tokio::test]
async fn pages_say_how_to_go_on() {
    let rig = Rig::new();
    let lines: String = (1..=5000).map(|line| format!("line {line}\n")).collect();
    rig.put("f", &lines);
    let first = rig.ok("view", json!({"path": "f"})).await;
    assert!(first.starts_with("     1\tline 1\n") && first.contains("  2000\tline 2000\n"));
    assert!(first.ends_with("[lines 1-2000 of 5000 lines; go on with offset 2001]"), "{}", &first[first.len() - 80..]);
    let next = rig.ok("view", json!({"path": "f", "offset": "4999", "limit": 10})).await;
    assert_eq!(next, "  4999\tline 4999\n  5000\tline 5000\n[lines 4999-5000 of 5000 lines]");
    let message = rig.fails("view", json!({"path": "f", "offset": 5001})).await;
    assert_eq!(message, "f: there is no line 5001; the file has 5000 lines");
    rig.put("empty", "");
    assert_eq!(rig.ok("view", json!({"path": "empty"})).await, "[empty file]");
    rig.put("bare", "a\n\nb");
    assert_eq!(
        rig.ok("view", json!({"path": "bare"})).await,
        "     1\ta\n     2\t\n     3\tb\n[3 lines, no newline at the end]"
    );
}

#[tokio::test]
async fn pictures_and_documents_come_as_they_are() {
    let rig = Rig::new();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01".to_vec();
    for (name, content, kind) in [
        ("a.png", png.as_slice(), "image/png"),
        ("b", b"\xff\xd8\xff\xe0\0\x10JFIF\0".as_slice(), "image/jpeg"),
        ("c.txt", b"GIF89a\x01\0\x01\0".as_slice(), "image/gif"),
        ("d", b"RIFF\x10\0\0\0WEBPVP8 ".as_slice(), "image/webp"),
        ("e.pdf", b"%PDF-1.4\nall of this is text\n".as_slice(), "application/pdf"),
    ] {
        rig.put(name, content);
        let output = rig.call("view", json!({"path": name})).await.unwrap();
        let ResultPart::Media { blob, name: called } = &output.content[1] else { panic!("{output:?}") };
        assert_eq!((blob.media_type.as_str(), called.as_str()), (kind, name));
        assert_eq!(rig.context.blobs.get(&blob.hash).unwrap(), content);
        assert!(text_of(&output).contains(kind));
    }
    let large = [png.as_slice(), &vec![0; 20 * 1024 * 1024]].concat();
    rig.put("large.png", large);
    let message = rig.fails("view", json!({"path": "large.png"})).await;
    assert!(message.contains("the limit for pictures and documents is 20 MB"), "{message}");
}

#[tokio::test]
async fn folders_are_listed() {
    let rig = Rig::new();
    rig.put("d/b.txt", "");
    rig.put("d/a/x", "");
    crate::rig::symlink("b.txt", rig.path("d/link"));
    assert_eq!(rig.ok("view", json!({"path": "d"})).await, "a/\nb.txt\nlink -> b.txt\n[3 entries]");
    std::fs::create_dir(rig.path("none")).unwrap();
    assert_eq!(rig.ok("view", json!({"path": "none"})).await, "[empty folder]");
}

#[tokio::test]
async fn a_cut_output_can_be_paged() {
    let rig = Rig::new();
    let output: String = (1..=10_000).map(|line| format!("out {line}\n")).collect();
    let cut = cut_to_blob(&rig.context, &output, 1000, 500);
    assert!(cut.len() < 1800 && cut.starts_with("out 1\n") && cut.ends_with("out 10000\n"), "{cut}");
    assert!(cut.contains(&format!("full output: {} bytes", output.len())), "{cut}");
    let start = cut.find("blob:").unwrap();
    let path = &cut[start..start + 5 + 64];
    let page = rig.ok("view", json!({"path": path, "offset": 5000, "limit": 1})).await;
    assert_eq!(page, "  5000\tout 5000\n[lines 5000-5000 of 10000 lines; go on with offset 5001]");
    assert_eq!(rig.access("view", json!({"path": path})), [mcode_permissions::access::Access::Internal]);
    assert_eq!(cut_to_blob(&rig.context, "short", 3, 2), "short");
    let message = rig.fails("view", json!({"path": format!("blob:{}", "0".repeat(64))})).await;
    assert!(message.contains("is not in the store"), "{message}");
    assert!(rig.fails("view", json!({"path": "blob:../../x"})).await.contains("64 hex digits"));
}
