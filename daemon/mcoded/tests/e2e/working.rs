//! The main job: look, change, check, answer.

use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{CHAT, MESSAGES, Stage, of_type};

fn mends_a_repository(model: &str) {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("view", json!({"path": "calc.sh"}))]))
            .reply(Reply::tool_calls([(
                "edit",
                json!({"path": "calc.sh", "old_string": "$1 - $2", "new_string": "$1 + $2"}),
            )]))
            .reply(Reply::tool_calls([("shell", json!({"command": "sh test.sh"}))]))
            .reply(Reply::text("It was a minus: **mended** é€😀")),
    );
    stage.workspace.write("calc.sh", "add() { echo $(($1 - $2)); }\n");
    stage.workspace.write("test.sh", ". ./calc.sh; [ $(add 2 3) = 5 ] && echo PASSED\n");
    let output = stage.ask(&["-m", model, "--yolo", "mend", "the", "test"]).ok();
    assert_eq!(output.stdout, "It was a minus: **mended** é€😀\n");
    assert_eq!(stage.workspace.read("calc.sh"), "add() { echo $(($1 + $2)); }\n");

    let requests = stage.server.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[0].last_user_text().lines().last(), Some("mend the test"));
    assert!(requests[1].tool_results()[0].1.contains("add() { echo $(($1 - $2)); }"));
    assert!(requests[3].tool_results()[0].1.contains("PASSED"));

    let thread = stage.json(&["threads", "list"])["threads"][0].clone();
    let shown = stage.json(&["threads", "show", thread["thread_id"].as_str().unwrap()]);
    assert_eq!(shown["thread"]["title"], "mend the test");
    assert_eq!(shown["runs"][0]["status"], "done");
    let events = shown["events"].as_array().unwrap().clone();
    let ended: Vec<_> =
        of_type(&events, "tool_call_finished").iter().map(|end| (end["name"].clone(), end["status"].clone())).collect();
    let done = |name: &str| (json!(name), json!("done"));
    assert_eq!(ended, [done("view"), done("edit"), done("shell")]);
    let last = of_type(&events, "message_finished").pop().unwrap()["text"].clone();
    assert_eq!(last, "It was a minus: **mended** é€😀");
    let text = stage.mcode(&["threads", "show", thread["thread_id"].as_str().unwrap()]).ok().stdout;
    assert!(text.contains("mend the test") && text.contains("PASSED") && text.contains("**mended**"), "{text}");
    stage.server.finish();
}

#[test]
fn a_repository_is_mended_over_the_messages_wire() {
    mends_a_repository(MESSAGES);
}

#[test]
fn a_repository_is_mended_over_the_chat_wire() {
    mends_a_repository(CHAT);
}
