//! Many threads at one provider: they share its limits, wait in order, are parked and fall back.

use std::time::{Duration, Instant};

use mcode_testkit::{RecordedRequest, Reply, Script};
use serde_json::{Value, json};

use crate::setup::{CHAT, Detached, MESSAGES, OWN, Stage, of_type, text};

/// Answers with what was asked.
fn echo(request: &RecordedRequest) -> Reply {
    Reply::text(format!("re {}", request.last_user_text().lines().last().unwrap_or_default()))
}

fn notices(stage: &Stage, thread_id: &str) -> Vec<String> {
    of_type(&stage.events(thread_id), "notice").iter().map(|notice| text(&notice["text"])).collect()
}

fn limit_is_told(stage: &Stage) {
    let told = |request: &RecordedRequest| request.replied_at.is_some();
    stage.server.wait_until_blocking("the limit is told", |server| server.requests().first().is_some_and(told));
}

fn status(stage: &Stage, run: &Detached) -> String {
    text(&stage.run(&run.run_id)["status"])
}

/// How long after the first request another one came.
fn after_first(requests: &[RecordedRequest], at: usize) -> Duration {
    requests[at].at - requests[0].at
}

/// Twenty threads meet one limit: nobody asks in the pause, one probes, the others follow.
#[test]
fn a_pause_is_kept_by_all_threads() {
    let script = Script::new()
        .reply(Reply::status(429).header("retry-after", "3"))
        .fallback(|request| echo(request).delay_before(if request.number == 2 { 400 } else { 0 }));
    let stage = Stage::new(script);
    let first = stage.detach(&["first"]);
    limit_is_told(&stage);
    let others: Vec<Detached> = (0..19).map(|number| stage.detach(&[&format!("thread {number}")])).collect();
    let all: Vec<&Detached> = others.iter().chain([&first]).collect();
    stage.daemon.wait_until("all have an answer", || all.iter().all(|run| status(&stage, run) == "done"));
    let requests = stage.server.requests();
    assert_eq!(requests.len(), 21, "each thread asks once, and the first again");
    let in_pause = (1..requests.len()).filter(|at| after_first(&requests, *at) < Duration::from_secs(3)).count();
    assert_eq!(in_pause, 0, "{:?}", requests.iter().map(|request| request.at).collect::<Vec<_>>());
    assert!(requests[2].at >= requests[1].replied_at.unwrap(), "the probe goes alone");
    stage.server.finish();
}

/// What somebody waits for goes before what runs in the background, although that was there first.
#[test]
fn interactive_runs_go_first() {
    let script = Script::new()
        .reply(Reply::status(429).header("retry-after", "2"))
        .fallback(|request| echo(request).delay_before(50));
    let stage = Stage::new(script);
    let mut background = vec![stage.detach(&["background 0"])];
    limit_is_told(&stage);
    background.extend((1..4).map(|number| stage.detach(&[&format!("background {number}")])));
    assert_eq!(stage.ask(&["somebody waits"]).ok().stdout, "re somebody waits\n");
    stage.daemon.wait_until("the others follow", || background.iter().all(|run| status(&stage, run) == "done"));
    let asked: Vec<String> = stage.server.requests()[1..]
        .iter()
        .map(|request| request.last_user_text().lines().last().unwrap().to_owned())
        .collect();
    assert_eq!(asked[0], "somebody waits", "{asked:?}");
    // The others follow, more than one at a time: in which order they reach the server is open.
    let mut others = asked[1..].to_vec();
    others.sort();
    assert_eq!(others, ["background 0", "background 1", "background 2", "background 3"]);
    stage.server.finish();
}

/// A run that nobody waits for sleeps until the quota starts again, says until when, and can be cancelled.
#[test]
fn a_quota_parks_what_runs_in_the_background() {
    let quota = json!({"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached",
        "resets_in_seconds": 7200}});
    let stage = Stage::new(Script::new().reply(Reply::status(429).json(quota)).fallback(echo));
    let run = stage.detach(&["-m", CHAT, "later"]);
    stage.daemon.wait_until("the run waits", || status(&stage, &run) == "waiting");
    let listed = stage.json(&["runs", "list", "--active"]);
    assert_eq!(listed["runs"][0]["status"], "waiting");
    stage.mcode(&["runs", "cancel", &run.run_id]).ok();
    assert_eq!(status(&stage, &run), "cancelled");
    let told =
        notices(&stage, &run.thread_id).into_iter().find(|text| text.contains("takes no requests until")).unwrap();
    let time = told.split("until ").nth(1).unwrap();
    assert!(
        time.len() > 5 && time.as_bytes()[2] == b':' && time[..2].parse::<u8>().is_ok_and(|hour| hour < 24),
        "{told}"
    );
    // Another one of the same account waits without asking; who sits there asks, and with the answer all go on.
    let second = stage.detach(&["-m", CHAT, "later too"]);
    stage.daemon.wait_until("the run waits", || status(&stage, &second) == "waiting");
    assert_eq!(stage.server.requests().len(), 1);
    assert_eq!(stage.ask(&["-m", CHAT, "now"]).ok().stdout, "re now\n");
    stage.daemon.wait_until("the other goes on", || status(&stage, &second) == "done");
    stage.server.finish();
}

/// Runs that are parked wait on under the next daemon, if that reaches the model by itself: nobody asks before the time, and
/// with the answer that somebody else gets all go on.
#[test]
fn parked_runs_outlive_their_daemon_and_wait_as_one() {
    let quota = Reply::status(429).header("retry-after", "7200");
    let mut stage = Stage::reached_by_itself(Script::new().reply(quota).fallback(echo));
    let first = stage.detach(&["-m", OWN, "later"]);
    stage.daemon.wait_until("the run waits", || status(&stage, &first) == "waiting");
    let runs = [first, stage.detach(&["-m", OWN, "later too"]), stage.detach(&["-m", OWN, "and later"])];
    stage.daemon.wait_until("all wait", || runs.iter().all(|run| status(&stage, run) == "waiting"));
    for killed in [true, false] {
        // Killed, then ended in order by the next start.
        if killed {
            stage.daemon.kill9();
        }
        stage.daemon.restart();
        for run in &runs {
            stage.daemon.wait_until("it is taken up", || stage.run(&run.run_id)["status"] == "waiting");
        }
    }
    // Nothing of it would be cut.
    stage.mcode(&["daemon", "restart"]).ok();
    assert_eq!(stage.server.requests().len(), 1, "nobody asks before the time");
    assert_eq!(stage.ask(&["-m", OWN, "now"]).ok().stdout, "re now\n");
    stage.daemon.wait_until("the runs go on", || runs.iter().all(|run| status(&stage, run) == "done"));
    let asked = stage.server.requests()[1].last_user_text();
    assert!(asked.contains("now"), "{asked}");
    for run in &runs {
        let events = stage.events(&run.thread_id);
        assert_eq!(of_type(&events, "turn_finished").len(), 1);
        let started: Vec<&Value> = of_type(&events, "step_started");
        assert_eq!(started.len(), of_type(&events, "step_finished").len(), "each step has one end");
        let waits: Vec<&Value> =
            of_type(&events, "run_status_changed").into_iter().filter(|change| change["status"] == "waiting").collect();
        assert!(waits.len() == 1 && waits[0]["waits_until"].is_string(), "it is told once: {waits:?}");
        let said: Vec<&Value> =
            of_type(&events, "message_finished").into_iter().filter(|message| message["role"] == "assistant").collect();
        assert!(said.len() == 1 && text(&said[0]["text"]).starts_with("re "), "{said:?}");
    }
    stage.mcode(&["daemon", "stop"]).ok();
    stage.server.finish();
}

/// One whose key was its client's alone ends with its daemon.
#[test]
fn a_parked_run_with_a_clients_key_ends_with_its_daemon() {
    let mut stage = Stage::new(Script::new().reply(Reply::status(429).header("retry-after", "7200")));
    let run = stage.detach(&["later"]);
    stage.daemon.wait_until("the run waits", || status(&stage, &run) == "waiting");
    stage.daemon.kill9();
    stage.daemon.restart();
    assert_eq!(status(&stage, &run), "interrupted");
    stage.server.finish();
}

/// While a model is out of reach the next of the list is asked at once; afterwards the first one again. What only the one
/// can read is kept from the other.
#[test]
fn a_model_that_cools_down_is_left_out_and_comes_back() {
    let stage = Stage::configured(
        Script::new()
            .reply(Reply::thinking("hm", "S1").then_text("one"))
            .reply(Reply::status(429).header("retry-after", "7"))
            .reply(Reply::text("two"))
            .reply(Reply::text("three"))
            .reply(Reply::text("four")),
        &format!("fallback = [\"{CHAT}\"]\n"),
    );
    stage.ask(&["a"]).ok();
    let begun = stage.ask(&["-c", "--json", "b"]).ok().json_lines();
    let met = Instant::now();
    let told = text(&of_type(&begun, "notice")[0]["text"]);
    assert!(told.contains("429") && told.ends_with(&format!("going on with {CHAT}")), "{told}");
    let during = stage.ask(&["-c", "--json", "c"]).ok().json_lines();
    let told = text(&of_type(&during, "notice")[0]["text"]);
    assert!(told.starts_with(&format!("{MESSAGES} is out of reach until ")) && told.ends_with(CHAT), "{told}");
    let requests = stage.server.requests();
    let models: Vec<&str> = requests.iter().map(RecordedRequest::model).collect();
    assert_eq!(models, ["claude-sonnet-5", "claude-sonnet-5", "gpt-5.5", "gpt-5.5"]);
    assert!(requests[1].body.to_string().contains("S1") && !requests[2].body.to_string().contains("S1"));
    stage.daemon.wait_until("the pause is over", || met.elapsed() > Duration::from_secs(7));
    assert_eq!(stage.ask(&["-c", "-m", MESSAGES, "d"]).ok().stdout, "four\n");
    let last = stage.server.requests().pop().unwrap();
    assert_eq!(last.model(), "claude-sonnet-5");
    assert!(last.body.to_string().contains("S1"), "and its own words come with it");
    stage.server.finish();
}
