//! More words for a run at work, and its early end.

use mcode_client::v1;
use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{CHAT, MESSAGES, Stage, WAIT_FOR_GO, of_type, process_is_there, types};

fn input(text: &str) -> Vec<v1::InputPart> {
    vec![v1::InputPart { part: Some(v1::input_part::Part::Text(text.to_owned())) }]
}

/// Steering comes before the next step, queued input after the turn; all in one run.
#[test]
fn steering_and_queued_input_reach_the_model_in_their_places() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::tool_calls([("shell", json!({"command": WAIT_FOR_GO}))]))
            .reply(Reply::text("first answer"))
            .reply(Reply::text("second answer")),
    );
    let run = stage.detach(&["--yolo", "begin"]);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    let (runtime, client) = stage.client();
    let request = v1::QueueInputRequest {
        request_id: "q1".to_owned(),
        thread_id: run.thread_id.clone(),
        input: input("the second question"),
    };
    let queued = runtime.block_on(client.queue_input(request.clone())).unwrap();
    // The same again is the same input.
    assert_eq!(runtime.block_on(client.queue_input(request)).unwrap(), queued);
    stage.mcode(&["runs", "steer", &run.run_id, "mention", "foxes"]).ok();
    stage.go();
    let events = stage.events(&run.thread_id);
    let requests = stage.server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[1].tool_results()[0].1.contains("went"));
    assert!(requests[1].last_user_text().contains("mention foxes"), "{}", requests[1].last_user_text());
    assert!(!requests[1].body.to_string().contains("second question"));
    assert!(requests[2].last_user_text().ends_with("the second question"));
    assert!(requests[2].body.to_string().contains("first answer"));
    assert_eq!(of_type(&events, "input_queued").len(), 2);
    assert_eq!(of_type(&events, "turn_finished").len(), 2);
    assert_eq!(of_type(&events, "run_finished").len(), 1);
    let answer = of_type(&events, "message_finished").pop().unwrap();
    assert_eq!(answer["text"], "second answer");

    // Nothing is at work any more: there is nothing to steer.
    assert_eq!(stage.mcode(&["runs", "steer", &run.run_id, "late"]).code, 2);
    stage.server.finish();
}

/// E09: a cancel amid three calls leaves three results, and the thread can go on.
fn goes_on_after_a_cancel(model: &str) {
    let call = |n: usize| ("shell", json!({"command": format!("echo $$ > pid{n}; sleep 31 & wait")}));
    let stage = Stage::new(Script::new().reply(Reply::tool_calls((0..3).map(call))).reply(Reply::text("went on")));
    let run = stage.detach(&["-m", model, "--yolo", "begin"]);
    stage.daemon.wait_until("a command has begun", || stage.exists("pid0") && !stage.workspace.read("pid0").is_empty());
    assert_eq!(stage.mcode(&["runs", "cancel", &run.run_id]).ok().stdout, "cancelled\n");
    // The hosts first: one that ends in between is then in neither list.
    let hosts = stage.daemon.hosts();
    let left = stage.daemon.processes();
    let left: Vec<u32> = left.into_iter().filter(|pid| !hosts.contains(pid)).collect();
    let lines = || mcode_testkit::command_lines().filter(|(pid, _)| left.contains(pid)).collect::<Vec<_>>();
    assert_eq!(left, Vec::<u32>::new(), "something of the run is left: {:?}", lines());
    stage.daemon.wait_until("the hosts have ended too", || stage.daemon.processes().is_empty());
    assert!(!process_is_there(&stage.workspace.read("pid0")));

    assert_eq!(stage.ask(&["-t", &run.thread_id, "go on"]).ok().stdout, "went on\n");
    let results = stage.server.request(2).tool_results();
    assert_eq!(results.len(), 3, "{results:?}");
    for (_, text, _) in &results {
        assert!(text.to_lowercase().contains("cancel"), "{text}");
    }
    let events = stage.events(&run.thread_id);
    let ends: Vec<_> = of_type(&events, "tool_call_finished").iter().map(|end| end["status"].clone()).collect();
    assert_eq!(ends, [json!("cancelled"), json!("cancelled"), json!("cancelled")]);
    assert_eq!(types(&events).iter().filter(|kind| **kind == "run_finished").count(), 2);
    stage.server.finish();
}

#[test]
fn a_cancelled_thread_goes_on_over_the_messages_wire() {
    goes_on_after_a_cancel(MESSAGES);
}

#[test]
fn a_cancelled_thread_goes_on_over_the_chat_wire() {
    goes_on_after_a_cancel(CHAT);
}

/// A cancel in the middle of the answer ends the request to the model, and the thread can go on.
#[test]
fn a_cancel_in_the_middle_of_the_words_lets_the_thread_go_on() {
    let stage = Stage::new(
        Script::new().reply(Reply::text("half of it ".repeat(20)).stall_after(700)).reply(Reply::text("all of it")),
    );
    let run = stage.detach(&["talk"]);
    stage.server.wait_for_requests_blocking(1);
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    stage.server.wait_until_blocking("the request is dropped", |server| server.open_connections() == 0);
    assert_eq!(stage.ask(&["-c", "go on"]).ok().stdout, "all of it\n");
    assert_eq!(stage.run(&run.run_id)["exit_code"], 130);
    stage.server.finish();
}
