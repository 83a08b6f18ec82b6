//! The scripted server as a client sees it, over a bare socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use mcode_testkit::model_server::SseStyle;
use mcode_testkit::{ModelServer, Reply, Script, Usage, Wire};
use serde_json::{Value, json};

/// Sends one request on a connection of its own and reads to the end of the connection.
async fn post(address: SocketAddr, path: &'static str, body: Value) -> String {
    tokio::task::spawn_blocking(move || {
        let mut stream = open(address, path, &body);
        let mut answer = Vec::new();
        let mut piece = [0_u8; 4096];
        // Keep-alive: the end is the last chunk, the stated length or the end of the line.
        loop {
            let read = stream.read(&mut piece).unwrap_or(0);
            answer.extend_from_slice(&piece[..read]);
            if read == 0 || is_complete(&answer) {
                return String::from_utf8_lossy(&answer).into_owned();
            }
        }
    })
    .await
    .unwrap()
}

fn open(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    match head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()) {
        Some(length) => body.len() >= length.parse::<usize>().unwrap(),
        None => body.ends_with("0\r\n\r\n"),
    }
}

/// The body of a chunked answer.
fn dechunk(answer: &str) -> String {
    let mut rest = answer.split_once("\r\n\r\n").unwrap().1;
    let mut body = String::new();
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(piece) = more.get(..size).filter(|piece| !piece.is_empty()) else { break };
        body.push_str(piece);
        rest = more[size..].trim_start_matches("\r\n");
    }
    body
}

fn data(answer: &str) -> Vec<Value> {
    dechunk(answer)
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn ask(model: &str) -> Value {
    json!({"model": model, "max_tokens": 10, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_script_serves_both_wires() {
    let usage = Usage { input: 7, cache_read: 3, cache_write: 0, output: 9, reasoning: 0 };
    let reply = Reply::text("a somewhat longer text").then_tool_calls([("view", json!({"path": "f"}))]).usage(usage);
    let server = ModelServer::start(Script::new().repeat(2, &reply)).await;

    let events = data(&post(server.address(), "/v1/messages", ask("m")).await);
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, "a somewhat longer text");
    let json: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(json, r#"{"path":"f"}"#);
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 7);

    let answer = post(server.address(), "/v1/chat/completions", ask("m")).await;
    assert!(dechunk(&answer).ends_with("data: [DONE]\n\n"));
    let chunks = data(&answer);
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "a somewhat longer text");
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 10);
    assert!(chunks.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "tool_calls"));

    assert_eq!(server.request(2).wire, Wire::Chat);
    assert!(server.request(1).replied_at.is_some());
    server.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_gets_the_providers_words_and_fails_the_test() {
    let server = ModelServer::start(Script::new().reply(Reply::text("never"))).await;
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": ""}]});
    let answer = post(server.address(), "/v1/messages", body).await;
    assert!(answer.starts_with("HTTP/1.1 400"));
    assert!(answer.contains("all messages must have non-empty content"));
    let problems = server.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("request 1 was refused"));
    assert!(problems[1].contains("never asked for"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_goes_back_to_its_own_model_only() {
    let server =
        ModelServer::start(Script::new().reply(Reply::thinking("hm", "S1").then_text("a")).reply(Reply::text("b")))
            .await;
    post(server.address(), "/v1/messages", ask("m1")).await;
    let history = |model: &str| {
        json!({"model": model, "max_tokens": 1, "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "S1"},
                {"type": "text", "text": "a"}]},
            {"role": "user", "content": "more"}]})
    };
    assert!(post(server.address(), "/v1/messages", history("m2")).await.contains("Invalid `signature`"));
    assert!(post(server.address(), "/v1/messages", history("m1")).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_can_be_split_cut_stalled_and_spoiled() {
    let style = SseStyle { crlf: true, no_space: true, comments: true, two_lines: true };
    let server = ModelServer::start(
        Script::new()
            .reply(Reply::text("héé€😀").split(1).sse_style(style))
            .reply(Reply::text("cut").cut_after(40))
            .reply(Reply::text("a text of several deltas, spoiled in the middle").bad_frame())
            .reply(Reply::overloaded_midstream("Par"))
            .reply(Reply::text("silent").stall_after(0)),
    )
    .await;
    let styled = post(server.address(), "/v1/chat/completions", ask("m")).await;
    assert!(styled.contains("1\r\n:\r\n"), "one byte per chunk, beginning with a comment");
    let cut = post(server.address(), "/v1/messages", ask("m")).await;
    assert!(cut.starts_with("HTTP/1.1 200") && !cut.ends_with("0\r\n\r\n"));
    let spoiled = post(server.address(), "/v1/chat/completions", ask("m")).await;
    assert!(dechunk(&spoiled).contains("data: {\"id\":\"x\",\"obj\n\n"));
    let overloaded = data(&post(server.address(), "/v1/messages", ask("m")).await);
    assert_eq!(overloaded.last().unwrap()["error"]["type"], "overloaded_error");

    let silent = open(server.address(), "/v1/messages", &ask("m"));
    server.wait_for_requests(5).await;
    drop(silent);
    server.wait_until("the stalled line to be given up", |server| server.open_connections() == 0).await;
    assert!(server.request(5).client_left);
    server.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_can_depend_on_the_request_and_stand_beside_the_list() {
    let server = ModelServer::start(
        Script::new()
            .always(|request| request.model() == "small", Reply::text("title"))
            .reply(Reply::from(|request| Reply::text(format!("you said {}", request.last_user_text()))))
            .fallback(|_| Reply::status(429).header("retry-after", "3").message("slow down")),
    )
    .await;
    assert!(dechunk(&post(server.address(), "/v1/messages", ask("small")).await).contains("title"));
    assert!(dechunk(&post(server.address(), "/v1/messages", ask("big")).await).contains("you said hi"));
    let limited = post(server.address(), "/v1/chat/completions", ask("big")).await;
    assert!(limited.starts_with("HTTP/1.1 429") && limited.contains("retry-after: 3") && limited.contains("slow down"));
    server.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_deltas_come_in_one_piece() {
    let server = ModelServer::start(Script::new().reply(Reply::deltas("tok ", 20_000))).await;
    let answer = post(server.address(), "/v1/chat/completions", ask("m")).await;
    assert_eq!(answer.matches("\"content\":\"tok \"").count(), 20_000);
    server.finish();
}
