//! The same script over the wires of Responses, Gemini and Bedrock, as a client sees it over a bare socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use mcode_testkit::model_server::Block;
use mcode_testkit::{ModelServer, Reply, Script, Usage, Wire};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";
const GEMINI: &str = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
const GEMINI_LIST: &str = "/v1beta/models/gemini-3-pro:streamGenerateContent";
const BEDROCK: &str = "/model/anthropic.claude-x%3A0/converse-stream";

/// Head and body of the answer.
fn post(server: &ModelServer, path: &str, body: &Value) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = body.to_string();
    write!(stream, "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let body = answer.split_off(end + 4);
    let body = if head.contains("transfer-encoding: chunked") { dechunked(&body) } else { body };
    (head, body)
}

fn dechunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let Some(piece) = rest.get(end + 2..end + 2 + size).filter(|piece| !piece.is_empty()) else { break };
        body.extend_from_slice(piece);
        rest = &rest[end + 4 + size..];
    }
    body
}

fn data(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Names and payloads of all frames; `Err` for one that is broken.
fn frames(body: &[u8]) -> Result<Vec<(String, Value)>, String> {
    let named = |message: &Message, name: &str| {
        let header = message.headers().iter().find(|header| header.name().as_str() == name)?;
        Some(header.value().as_string().ok()?.as_str().to_owned())
    };
    let (mut decoder, mut rest, mut found) = (MessageFrameDecoder::new(), body, Vec::new());
    loop {
        match decoder.decode_frame(&mut rest).map_err(|error| error.to_string())? {
            DecodedFrame::Incomplete => return Ok(found),
            DecodedFrame::Complete(message) => {
                let name = named(&message, ":event-type").or_else(|| named(&message, ":exception-type")).unwrap();
                found.push((name, serde_json::from_slice(message.payload()).unwrap()));
            }
        }
    }
}

fn joined<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> String {
    texts.flatten().collect()
}

/// What to say on a wire, with nothing said before.
fn asked(wire: Wire) -> Value {
    match wire {
        Wire::Responses => json!({"model": "gpt", "stream": true, "store": false,
            "include": ["reasoning.encrypted_content"], "input": [{"role": "user", "content": "hi"}]}),
        Wire::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        Wire::Bedrock => json!({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}),
        _ => panic!("not one of these wires"),
    }
}

fn turn() -> Reply {
    let usage = Usage { input: 7, cache_read: 3, cache_write: 2, output: 9, reasoning: 4 };
    Reply::thinking("a longer thought", "S1")
        .then(Block::RedactedThinking("UjE=".to_owned()))
        .then_text("a somewhat longer text")
        .then_tool_calls([("view", json!({"path": "f"})), ("view", json!({"path": "g"}))])
        .usage(usage)
}

#[test]
fn responses_gives_items() {
    let server = ModelServer::start_blocking(Script::new().repeat(2, &turn()));
    let (head, body) = post(&server, RESPONSES, &asked(Wire::Responses));
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let events = data(&body);
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let deltas = |kind: &str| joined(of(kind).into_iter().map(|event| event["delta"].as_str()));
    assert_eq!(deltas("response.output_text.delta"), "a somewhat longer text");
    assert_eq!(deltas("response.reasoning_summary_text.delta"), "a longer thought");
    assert_eq!(deltas("response.function_call_arguments.delta"), r#"{"path":"f"}{"path":"g"}"#);
    let done: Vec<&Value> = of("response.output_item.done").into_iter().map(|event| &event["item"]).collect();
    let kinds: Vec<&str> = done.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "reasoning", "message", "function_call", "function_call"]);
    assert_eq!(done[0]["encrypted_content"], "S1");
    assert_eq!(done[0]["summary"][0]["text"], "a longer thought");
    assert_ne!(of("response.output_item.added")[0]["item"]["encrypted_content"], "S1", "only the end counts");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"].as_array().unwrap().len(), 5);
    let usage = &last["response"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(12), &json!(9)));
    assert_eq!(usage["input_tokens_details"], json!({"cached_tokens": 3, "cache_write_tokens": 2}));
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());

    let mut plain = asked(Wire::Responses);
    plain["include"] = json!([]);
    let (_, body) = post(&server, RESPONSES, &plain);
    assert!(!String::from_utf8(body).unwrap().contains("S1"), "encrypted content comes only where it is asked for");
    server.finish();
}

#[test]
fn gemini_gives_answers_with_more_of_the_parts() {
    let server = ModelServer::start_blocking(Script::new().repeat(2, &turn()));
    let (_, body) = post(&server, GEMINI, &asked(Wire::Gemini));
    let answers = data(&body);
    let (head, body) = post(&server, GEMINI_LIST, &asked(Wire::Gemini));
    assert!(head.contains("content-type: application/json"), "{head}");
    // Ids hold the number of the request.
    let listed: Vec<Value> =
        serde_json::from_str(&String::from_utf8(body).unwrap().replace("_0002", "_0001").replace("-0002", "-0001"))
            .unwrap();
    assert_eq!(listed, answers, "the list holds the same");
    let parts: Vec<Value> = answers
        .iter()
        .flat_map(|answer| answer["candidates"][0]["content"]["parts"].as_array().unwrap().clone())
        .collect();
    let said = |thought: bool| {
        joined(parts.iter().filter(|part| (part["thought"] == true) == thought).map(|part| part["text"].as_str()))
    };
    assert_eq!((said(true).as_str(), said(false).as_str()), ("a longer thought", "a somewhat longer text"));
    let signed: Vec<&Value> = parts.iter().filter(|part| part.get("thoughtSignature").is_some()).collect();
    assert_eq!(signed.len(), 2, "{signed:#?}");
    assert_eq!(signed[0]["thoughtSignature"], "UjE=", "what follows a thought is signed, and the last mark counts");
    assert_eq!(signed[1]["functionCall"]["args"], json!({"path": "f"}), "of calls side by side only the first");
    let last = answers.last().unwrap();
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    assert_eq!(
        last["usageMetadata"],
        json!({"promptTokenCount": 12, "cachedContentTokenCount": 3, "candidatesTokenCount": 5,
            "thoughtsTokenCount": 4, "totalTokenCount": 21})
    );
    assert_eq!(server.request(1).model(), "gemini-3-pro");
    server.finish();
}

#[test]
fn bedrock_gives_frames_with_checksums() {
    let server = ModelServer::start_blocking(Script::new().reply(turn().split(3)).reply(turn().bad_frame()));
    let (head, body) = post(&server, BEDROCK, &asked(Wire::Bedrock));
    assert!(head.contains("content-type: application/vnd.amazon.eventstream"), "{head}");
    let frames_of_turn = frames(&body).unwrap();
    let deltas: Vec<&Value> = frames_of_turn.iter().map(|(_, data)| &data["delta"]).collect();
    let text = |pointer: &'static str| joined(deltas.iter().map(|delta| delta.pointer(pointer)?.as_str()));
    assert_eq!(text("/text"), "a somewhat longer text");
    assert_eq!(text("/reasoningContent/text"), "a longer thought");
    assert_eq!(text("/reasoningContent/signature"), "S1");
    assert_eq!(text("/reasoningContent/redactedContent"), "UjE=");
    assert_eq!(text("/toolUse/input"), r#"{"path":"f"}{"path":"g"}"#);
    let (name, last) = frames_of_turn.last().unwrap();
    assert_eq!(name, "metadata");
    assert_eq!((&last["usage"]["inputTokens"], &last["usage"]["cacheWriteInputTokens"]), (&json!(7), &json!(2)));
    assert_eq!(server.request(1).model(), "anthropic.claude-x:0");

    let (_, body) = post(&server, BEDROCK, &asked(Wire::Bedrock));
    assert!(frames(&body).is_err(), "the checksum of a bad frame is wrong");
    server.finish();
}

#[test]
fn errors_have_the_shape_of_their_wire() {
    let reply = Reply::error_midstream("Par", "overloaded_error", "Overloaded");
    let limited = Reply::status(429).message("slow down");
    let script = (0..3).fold(Script::new(), |script, _| script.reply(reply.clone()).reply(limited.clone()));
    let server = ModelServer::start_blocking(script);

    let (_, body) = post(&server, RESPONSES, &asked(Wire::Responses));
    let events = data(&body);
    assert_eq!(events[events.len() - 2]["error"]["code"], "server_is_overloaded");
    assert_eq!(events.last().unwrap()["response"]["error"]["code"], "server_is_overloaded");
    let (head, body) = post(&server, RESPONSES, &asked(Wire::Responses));
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        error["error"],
        json!({"message": "slow down", "type": "requests", "param": null, "code": "rate_limit_exceeded"})
    );

    let (_, body) = post(&server, GEMINI, &asked(Wire::Gemini));
    assert_eq!(data(&body).last().unwrap()["error"]["status"], "UNAVAILABLE");
    let (_, body) = post(&server, GEMINI, &asked(Wire::Gemini));
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["error"], json!({"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}));

    let (_, body) = post(&server, BEDROCK, &asked(Wire::Bedrock));
    assert_eq!(
        frames(&body).unwrap().pop().unwrap(),
        ("serviceUnavailableException".to_owned(), json!({"message": "Overloaded"}))
    );
    let (head, body) = post(&server, BEDROCK, &asked(Wire::Bedrock));
    assert!(head.contains("x-amzn-errortype: ThrottlingException"), "{head}");
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({"message": "slow down"}));
    server.finish();
}

#[test]
fn requests_are_read_alike_on_every_wire() {
    let server = ModelServer::start_blocking(Script::new().repeat(3, &Reply::text("ok")));
    let call = json!({"path": "f"});
    let responses = json!({"model": "m", "instructions": "sys", "store": false,
        "tools": [{"type": "function", "name": "view", "parameters": {"type": "object"}, "strict": false}],
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "look"}]},
            {"type": "function_call", "call_id": "c1", "name": "view", "arguments": call.to_string()},
            {"type": "function_call_output", "call_id": "c1", "output": "result"}]});
    let gemini = json!({"systemInstruction": {"parts": [{"text": "sys"}]},
        "tools": [{"functionDeclarations": [{"name": "view"}]}],
        "contents": [{"role": "user", "parts": [{"text": "look"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "view", "args": call}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "view", "response": {"output": "result"}}}]}]});
    let tool = json!({"toolSpec": {"name": "view", "inputSchema": {"json": {"type": "object"}}}});
    let bedrock = json!({"system": [{"text": "sys"}], "toolConfig": {"tools": [tool]},
        "messages": [{"role": "user", "content": [{"text": "look"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "view", "input": call}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "result"}]}}]}]});
    for (path, body, model, id) in [
        (RESPONSES, responses, "m", "c1"),
        ("/v1beta/models/m:streamGenerateContent?alt=sse", gemini, "m", "view"),
        ("/model/m/converse", bedrock, "m", "c1"),
    ] {
        post(&server, path, &body);
        let request = server.requests().pop().unwrap();
        assert_eq!((request.model(), request.system().as_str()), (model, "sys"), "{path}");
        assert_eq!(
            (request.last_user_text().as_str(), request.tool_names()),
            ("look", vec!["view".to_owned()]),
            "{path}"
        );
        assert_eq!(request.tool_results(), [(id.to_owned(), "result".to_owned(), false)], "{path}");
        assert_eq!(request.messages().len(), 3, "{path}");
        assert_eq!(request.usage, Some(Usage::default()), "{path}");
    }
    assert_eq!(server.usage(), Usage { input: 30, output: 15, ..Usage::default() });
    server.finish();
}
