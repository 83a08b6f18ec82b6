//! Faults of model servers as their user meets them (area E).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use mcode_testkit::model_server::SseStyle;
use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{CHAT, MESSAGES, PNG, Stage, of_type, script};

/// E01: text survives every way of cutting and writing the stream.
#[test]
fn bytes_one_at_a_time_and_odd_lines_give_the_same_text() {
    let style = SseStyle { crlf: true, no_space: true, comments: true, two_lines: false };
    for model in [MESSAGES, CHAT] {
        let stage = Stage::new(Script::new().reply(Reply::text("héé€😀").split(1).sse_style(style)));
        assert_eq!(stage.ask(&["-m", model, "hi"]).ok().stdout, "héé€😀\n");
        stage.server.finish();
    }
}

/// E03: what was said around a broken frame is never joined and run.
#[test]
fn a_broken_frame_runs_nothing() {
    for model in [MESSAGES, CHAT] {
        let call = Reply::tool_calls([("shell", json!({"command": "touch SAFE && touch REST && touch MORE"}))]);
        let stage = Stage::new(Script::new().reply(call.bad_frame()).reply(Reply::text("ok")));
        assert_eq!(stage.ask(&["-m", model, "--yolo", "hi"]).ok().stdout, "ok\n");
        assert_eq!(stage.workspace.git(&["status", "--porcelain"]), "");
        stage.server.finish();
    }
}

/// E05: calls without an index stay two calls, in order.
#[test]
fn calls_without_index_are_kept_apart() {
    let calls = Reply::blocks([])
        .then_tool_call_as("a", "shell", &json!({"command": "echo A"}))
        .then_tool_call_as("b", "shell", &json!({"command": "echo B"}))
        .without_index();
    let stage = Stage::new(Script::new().reply(calls).reply(Reply::text("ok")));
    stage.ask(&["-m", CHAT, "--yolo", "hi"]).ok();
    let results = stage.server.request(2).tool_results();
    assert_eq!((results[0].0.as_str(), results[1].0.as_str()), ("a", "b"));
    assert!(results[0].1.contains('A') && results[1].1.contains('B'), "{results:?}");
    stage.server.finish();
}

/// E07: the wait that the server asks for is kept; one of a day is told instead.
#[test]
fn the_servers_wait_is_kept() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::status(429).header("retry-after", "2"))
            .reply(Reply::text("ok"))
            .reply(Reply::status(429).header("retry-after", "86400")),
    );
    assert_eq!(stage.ask(&["hi"]).ok().stdout, "ok\n");
    let requests = stage.server.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(2));
    let output = stage.ask(&["hi"]);
    assert_eq!((output.code, output.stdout.as_str()), (5, ""), "{output:#?}");
    assert!(output.stderr.contains("86400") || output.stderr.contains("24 h"), "{}", output.stderr);
    stage.server.finish();
}

/// E11: signed thinking goes back to its own model only.
#[test]
fn signatures_stay_with_their_model() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::thinking("hm", "S1").then_text("one"))
            .reply(Reply::text("two"))
            .reply(Reply::text("three")),
    );
    stage.ask(&["a"]).ok();
    stage.ask(&["-c", "-m", "anthropic/claude-haiku-4-5", "b"]).ok();
    stage.ask(&["-c", "-m", MESSAGES, "c"]).ok();
    let requests = stage.server.requests();
    assert!(!requests[1].body.to_string().contains("S1"));
    assert!(requests[2].body.to_string().contains("S1"));
    stage.server.finish();
}

/// E14: base URLs with and without slashes and versions.
#[test]
fn base_urls_of_every_form_lead_to_the_same_path() {
    let mut stage = Stage::new(Script::new().repeat(4, &Reply::text("ok")));
    let host = format!("http://{}", stage.server.address());
    for (path, expected) in
        [("/v1", "/v1/chat/completions"), ("/v1/", "/v1/chat/completions"), ("/x/v1//", "/x/v1/chat/completions")]
    {
        stage.daemon.set("OPENAI_BASE_URL", format!("{host}{path}"));
        stage.ask(&["-m", CHAT, "hi"]).ok();
        assert_eq!(stage.server.requests().pop().unwrap().path, expected);
    }
    stage.daemon.set("ANTHROPIC_BASE_URL", host);
    stage.ask(&["hi"]).ok();
    assert_eq!(stage.server.requests().pop().unwrap().path, "/v1/messages");
    stage.server.finish();
}

/// E17: a server that says nothing after its head is given up after the configured time.
#[test]
fn a_silent_server_is_given_up_and_asked_again() {
    let stage = Stage::configured(
        Script::new().reply(Reply::text("never").stall_after(0)).reply(Reply::text("second")),
        "[providers.anthropic]\nidle_timeout = \"1s\"\n",
    );
    let lines = stage.ask(&["--json", "hi"]).ok().json_lines();
    assert_eq!(lines.last().unwrap()["text"], "second");
    let told = of_type(&lines, "notice").iter().any(|notice| notice["text"].as_str().unwrap().contains("1 s"));
    assert!(told, "nothing was told: {lines:#?}");
    stage.server.wait_until_blocking("the silent request is dropped", |server| server.open_connections() <= 1);
    stage.server.finish();
}

/// A line to the server that can be made to swallow everything, as after a sleep of the machine.
fn line_that_can_die(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dead = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dead);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let server = TcpStream::connect(to).unwrap();
            // Only lines made before the sleep are dead.
            let mortal = !flag.load(SeqCst);
            for (from, into) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                let flag = Arc::clone(&flag);
                std::thread::spawn(move || pump(from, into, || mortal && flag.load(SeqCst)));
            }
        }
    });
    (address, dead)
}

fn pump(mut from: TcpStream, mut into: TcpStream, is_dead: impl Fn() -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !is_dead() && into.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    if !is_dead() {
        into.shutdown(std::net::Shutdown::Both).ok();
    }
}

/// K13: a kept connection that died unseen costs one idle time, not minutes.
#[test]
fn after_the_line_died_the_answer_comes_over_a_new_one() {
    let mut stage = Stage::configured(
        Script::new().reply(Reply::text("first")).reply(Reply::text("second")),
        "[providers.anthropic]\nidle_timeout = \"2s\"\n",
    );
    let (address, dead) = line_that_can_die(stage.server.address());
    stage.daemon.set("ANTHROPIC_BASE_URL", format!("http://{address}"));
    assert_eq!(stage.ask(&["hi"]).ok().stdout, "first\n");
    dead.store(true, SeqCst);
    let begun = Instant::now();
    assert_eq!(stage.ask(&["-c", "hi"]).ok().stdout, "second\n");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    stage.server.finish();
}

/// E13: a picture that the provider refuses does not spoil the thread.
#[test]
fn a_picture_that_is_refused_does_not_spoil_the_thread() {
    // 9000 x 50 pixels, by the standard library of Python.
    const MAKE: &str = "import zlib,struct\n\
        c=lambda t,d:struct.pack('>I',len(d))+t+d+struct.pack('>I',zlib.crc32(t+d))\n\
        open('big.png','wb').write(b'\\x89PNG\\r\\n\\x1a\\n'+c(b'IHDR',struct.pack('>IIBBBBB',9000,50,8,0,0,0,0))\
        +c(b'IDAT',zlib.compress((b'\\0'+b'\\x7f'*9000)*50))+c(b'IEND',b''))\n";
    let answer = |request: &mcode_testkit::RecordedRequest| {
        // The width stands in the head of the file; base64 of a picture of 9000 pixels begins like this.
        if request.body.to_string().contains("iVBORw0KGgoAAAANSUhEUgAAIyg") {
            Reply::status(400).message("messages.0: image dimensions exceed max allowed size: 8000 pixels")
        } else if request.number == 1 {
            Reply::tool_calls([("view", json!({"path": "big.png"}))])
        } else {
            Reply::text("fine")
        }
    };
    let stage = Stage::new(Script::new().fallback(answer));
    stage.workspace.write("make.py", MAKE);
    script(&stage.workspace.path(), "python3 make.py");
    assert!(stage.workspace.read_bytes("big.png").len() > 100);
    stage.ask(&["look"]);
    assert_eq!(stage.ask(&["-c", "hello"]).ok().stdout, "fine\n");
}

/// A provider that refuses every picture: the model is told so, and the thread goes on.
#[test]
fn a_thread_goes_on_without_pictures_that_are_refused() {
    let answer = |request: &mcode_testkit::RecordedRequest| {
        if request.body.to_string().contains("iVBORw0KGgo") {
            Reply::status(400).message("messages.0.content.1: Could not process image")
        } else if request.body.to_string().contains("A picture or document is left out here") {
            Reply::text("I can not see it")
        } else {
            Reply::text("no picture")
        }
    };
    let stage = Stage::new(Script::new().fallback(answer));
    stage.workspace.write("small.png", PNG);
    let asked = stage.ask(&["-i", "small.png", "what is this?"]).ok();
    assert_eq!(asked.stdout, "I can not see it\n");
    assert!(asked.stderr.contains("not given to this model any more"), "{}", asked.stderr);
    let before = stage.server.requests().len();
    assert_eq!(stage.ask(&["-c", "and now?"]).ok().stdout, "I can not see it\n");
    assert_eq!(stage.server.requests().len(), before + 1, "it is not sent again");
}

/// A prompt that has become too long: the oldest parts are left out, until it fits, and stay so. One that can not be made
/// shorter ends with its reason.
#[test]
fn a_thread_that_has_become_too_long_goes_on_with_less() {
    const WINDOW_BYTES: usize = 40_000;
    let answer = |request: &mcode_testkit::RecordedRequest| {
        let said = request.body["messages"].to_string();
        if said.len() > WINDOW_BYTES {
            Reply::status(400).message("prompt is too long: 212000 tokens > 200000 maximum")
        } else if said.contains("look once more") || !said.contains("look") {
            Reply::text("done")
        } else {
            Reply::tool_calls([("view", json!({"path": "big.txt", "offset": request.number}))])
        }
    };
    let stage = Stage::new(Script::new().fallback(answer));
    stage.workspace.write("big.txt", "some words of a line\n".repeat(400));
    let looked = stage.ask(&["--max-steps", "12", "look"]);
    assert!(looked.stderr.contains("the oldest parts of the conversation"), "{}", looked.stderr);
    assert_eq!(stage.ask(&["-c", "look once more"]).ok().stdout, "done\n");
    let before = stage.server.requests().len();
    assert_eq!(stage.ask(&["-c", "thanks"]).ok().stdout, "done\n");
    assert_eq!(stage.server.requests().len(), before + 1, "what is left out stays left out");

    let failed = stage.ask(&["--output", "json", &"long ".repeat(20_000)]);
    assert_eq!((failed.code, &failed.json()["error"]["reason"]), (5, &json!("MODEL_CONTEXT_OVERFLOW")));
}

/// E18: chunks that say nothing, and servers that refuse fields.
#[test]
fn odd_chunks_and_refused_fields() {
    let body = concat!(
        "data: {\"id\":\"x\",\"choices\":[]}\n\n",
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{}}]}\n\n",
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":null},\"finish_reason\":\"\"}]}\n\n",
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"}}]}\n\n",
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}\n\n",
        "data: [DONE]\n\n",
    );
    let stage = Stage::new(Script::new().reply(Reply::raw_sse(body)));
    let result = stage.ask(&["-m", CHAT, "--output", "json", "hi"]).ok().json();
    assert_eq!(result["text"], "ok");
    assert_eq!((&result["usage"]["input_tokens"], &result["usage"]["output_tokens"]), (&json!(7), &json!(3)));

    let stage = Stage::configured(
        Script::new().refuse_fields(["stream_options"]).reply(Reply::text("ok")),
        "[providers.openai]\nomit_fields = [\"stream_options\"]\n",
    );
    assert_eq!(stage.ask(&["-m", CHAT, "hi"]).ok().stdout, "ok\n");
    stage.server.finish();
}
