//! Every recorded stream decodes to what its `expected.json` says, at any split of its bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcode_env::SeededIds;
use mcode_events::message::{Opaque, Origin, Part};
use mcode_events::usage::Usage;
use mcode_models::{ModelError, ModelErrorKind, Response, StreamEvent};
use serde_json::{Value, json};

use crate::anthropic;
use crate::bedrock;
use crate::chat::{self, dialect};
use crate::decode::WireDecoder;
use crate::frames::FrameDecoder;
use crate::gemini;
use crate::responses;
use crate::sse::{SseDecoder, SseEvent};

struct Fixture {
    name: String,
    bytes: Vec<u8>,
    /// Ending of the file's name.
    form: &'static str,
    expected: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn fixtures(prefixes: &[&str]) -> Vec<Fixture> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".expected.json") else { continue };
        if !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let expected: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let form = ["sse", "eventstream.bin", "json"]
            .into_iter()
            .find(|ending| folder().join(format!("{name}.{ending}")).exists())
            .unwrap();
        let bytes = std::fs::read(folder().join(format!("{name}.{form}"))).unwrap();
        found.push(Fixture { name: name.to_owned(), bytes, form, expected });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn decoder(fixture: &Fixture) -> Box<dyn WireDecoder> {
    let ids = Arc::new(SeededIds::new(1));
    let origin = Origin { provider: "p".into(), wire: "w".into(), model: "m".into() };
    if fixture.expected["wire"].as_str().unwrap().starts_with("anthropic") {
        return Box::new(anthropic::stream::Decoder::new(ids, origin, "host".into()));
    }
    if fixture.expected["wire"] == "converse" {
        return Box::new(bedrock::stream::Decoder::new(ids, origin, "host".into()));
    }
    if fixture.expected["wire"] == "gemini" {
        return Box::new(gemini::stream::Decoder::new(ids, origin, "host".into()));
    }
    if fixture.expected["wire"] == "responses" {
        return Box::new(responses::stream::Decoder::new(ids, origin, "host".into()));
    }
    let provider = ["xai", "deepseek", "mistral", "openrouter", "groq", "zai", "moonshot", "vercel", "openai"]
        .into_iter()
        .find(|provider| fixture.name.contains(provider))
        .unwrap_or("local");
    Box::new(chat::stream::Decoder::new(ids, origin, "host".into(), dialect::of(provider, "")))
}

/// What a fixture gives: the events before the end, and the end.
struct Outcome {
    text: String,
    thinking: String,
    end: Result<Response, ModelError>,
}

fn decode(fixture: &Fixture, piece: usize) -> Outcome {
    let mut decoder = decoder(fixture);
    let mut out = Vec::new();
    let result = if fixture.form == "json" {
        decoder.body(&fixture.bytes, &mut out)
    } else if fixture.form == "eventstream.bin" {
        let mut frames = FrameDecoder::default();
        let mut pieces = fixture.bytes.chunks(piece);
        pieces.try_for_each(|bytes| frames.feed(bytes, &mut |event| decoder.frame(event, &mut out)))
    } else {
        let mut sse = SseDecoder::new();
        let mut result = Ok(());
        for bytes in fixture.bytes.chunks(piece) {
            result = sse.feed(bytes, &mut |event| decoder.frame(event, &mut out));
            if result.is_err() {
                break;
            }
        }
        result.and_then(|()| sse.finish(&mut |event| decoder.frame(event, &mut out)))
    };
    let result = result.and_then(|()| decoder.end(&mut out));
    let (mut text, mut thinking, mut finished) = (String::new(), String::new(), None);
    for event in out {
        assert!(finished.is_none(), "{}: something after the end", fixture.name);
        match event {
            StreamEvent::TextDelta(more) => text.push_str(&more),
            StreamEvent::ThinkingDelta(more) => thinking.push_str(&more),
            StreamEvent::Finished(response) => finished = Some(*response),
            StreamEvent::Started | StreamEvent::ToolCallDelta { .. } => {}
        }
    }
    let end = result.map(|()| finished.expect("an end without an error gives the response"));
    let end = end.map_err(|mut error| {
        error.usage = decoder.usage();
        error
    });
    Outcome { text, thinking, end }
}

/// A call in the words of `expected.json`.
fn call_block(provider_call_id: &str, name: &str, arguments: &Value, opaque: Option<&Opaque>) -> Value {
    let mut block = json!({"type": "tool_call", "id": provider_call_id, "name": name});
    let kept = |key: &str| opaque.and_then(|opaque| opaque.0.get(key));
    if let Some(id) = kept("id") {
        block["item_id"] = id.clone();
    }
    // Google leaves it out at times.
    if provider_call_id.is_empty() {
        block["id"] = Value::Null;
    }
    if let Some(signature) = kept("thought_signature") {
        block["thought_signature"] = signature.clone();
    }
    match kept("custom") {
        Some(custom) => {
            block["custom"] = custom.clone();
            block["input"] = arguments["input"].clone();
        }
        None => block["args"] = arguments.clone(),
    }
    block
}

/// A part in the words of `expected.json`.
fn block(part: &Part) -> Value {
    match part {
        Part::Text { text, opaque } => {
            let mut block = json!({"type": "text", "text": text});
            if let Some(id) = opaque.as_ref().and_then(|opaque| opaque.0.get("id")) {
                block["item_id"] = id.clone();
            }
            block
        }
        Part::Thinking { text, opaque } => {
            let mut block = json!({"type": "thinking", "text": text});
            if let Some(item) = opaque.as_ref().and_then(|opaque| opaque.0.get("item")) {
                block["item_id"] = item["id"].clone();
                let summary = item["summary"].as_array().is_some_and(|summary| !summary.is_empty());
                block["kind"] = json!(if summary { "summary" } else { "raw" });
                if let Some(encrypted) = item["encrypted_content"].as_str() {
                    block["encrypted_content_len"] = json!(encrypted.len());
                }
            }
            if let Some(signature) = opaque.as_ref().and_then(|opaque| opaque.0.get("signature")) {
                block["signature"] = signature.clone();
            }
            block
        }
        Part::RedactedThinking { opaque } if opaque.0.get("item").is_some() => {
            let mut block =
                json!({"type": "thinking", "text": "", "item_id": opaque.0["item"]["id"], "kind": "hidden"});
            if let Some(encrypted) = opaque.0["item"]["encrypted_content"].as_str() {
                block["encrypted_content_len"] = json!(encrypted.len());
            }
            block
        }
        Part::RedactedThinking { opaque } => json!({"type": "redacted_thinking", "data": opaque.0["data"]}),
        Part::ToolCall { provider_call_id, name, arguments, opaque, .. } => {
            call_block(provider_call_id, name, arguments, opaque.as_ref())
        }
        Part::Provider { opaque } => {
            let kind = opaque.0["type"].as_str().unwrap();
            if kind == "apply_patch_call" {
                let mut block = opaque.0.clone();
                (block["type"], block["wire_type"]) = (json!("provider_item"), json!(kind));
                return block;
            }
            if kind.ends_with("_tool_use") || kind == "server_tool_use" {
                let (id, name, args) = (&opaque.0["id"], &opaque.0["name"], &opaque.0["input"]);
                json!({"type": "provider_tool_call", "wire_type": kind, "id": id, "name": name, "args": args})
            } else {
                json!({"type": "provider_block", "wire_type": kind, "tool_use_id": opaque.0["tool_use_id"]})
            }
        }
        Part::Media { .. } => panic!("models give no media"),
    }
}

fn wanted_blocks(expected: &Value) -> Vec<Value> {
    let mut blocks = expected["blocks"].as_array().unwrap().clone();
    for block in &mut blocks {
        let object = block.as_object_mut().unwrap();
        if object["type"] == "tool_call" {
            object.shift_remove("wire_type");
        }
        object.shift_remove("encrypted_content_sha256");
        object.shift_remove("citations");
        object.shift_remove("content");
    }
    blocks
}

fn check_usage(name: &str, usage: Option<Usage>, expected: &Value) {
    if expected.is_null() {
        assert_eq!(usage, None, "{name}");
        return;
    }
    let usage = usage.unwrap_or_else(|| panic!("{name}: no usage"));
    let figure = |key: &str| expected[key].as_u64().unwrap_or(0);
    let got = [
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    ];
    let wanted = ["input_uncached", "cache_read", "cache_write", "output", "reasoning"].map(figure);
    assert_eq!(got, wanted, "{name}: usage");
}

fn check(fixture: &Fixture, outcome: Outcome) {
    let (name, expected) = (&fixture.name, &fixture.expected);
    match outcome.end {
        Err(error) => {
            assert_eq!(expected["stop_reason"], "error", "{name}: {error}");
            if let Some(retryable) = expected["retryable"].as_bool() {
                assert_eq!(error.is_retryable(), retryable, "{name}: {error}");
            }
            let words = expected["error"]["message"].as_str().unwrap();
            assert!(error.message.contains(words), "{name}: {error}");
            assert_eq!(outcome.text, expected["text"].as_str().unwrap(), "{name}");
            assert_eq!(outcome.thinking, expected["thinking"].as_str().unwrap(), "{name}");
            check_usage(name, error.usage, &expected["usage"]);
        }
        Ok(response) => {
            let blocks: Vec<Value> = response.parts.iter().map(block).collect();
            assert_eq!(blocks, wanted_blocks(expected), "{name}");
            assert_eq!(response.stop.as_str(), expected["stop_reason"].as_str().unwrap(), "{name}");
            assert_eq!(response.stop_raw, expected["stop_reason_raw"].as_str().unwrap(), "{name}");
            assert_eq!(response.model, expected["model"].as_str().unwrap_or_default(), "{name}");
            assert_eq!(response.response_id, expected["response_id"].as_str().unwrap_or_default(), "{name}");
            assert_eq!(outcome.text, expected["text"].as_str().unwrap(), "{name}");
            assert_eq!(outcome.thinking, expected["thinking"].as_str().unwrap(), "{name}");
            check_usage(name, response.usage, &expected["usage"]);
        }
    }
}

#[test]
fn every_recorded_stream_decodes_as_expected() {
    let fixtures = fixtures(&[
        "anth-", "bed-01", "bed-02", "bed-04", "chat-", "gem-01", "gem-03", "gem-05", "gem-09", "resp-", "self-01",
        "self-03",
    ]);
    assert!(fixtures.len() >= 28, "only {} fixtures", fixtures.len());
    for fixture in &fixtures {
        for piece in [1, 7, fixture.bytes.len()] {
            check(fixture, decode(fixture, piece));
        }
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_gives_no_answer() {
    for fixture in fixtures(&["anth-03", "chat-01", "chat-20", "chat-07", "resp-03", "resp-12"]) {
        let whole = fixture.bytes.clone();
        // Before the frame with the reason to stop, nothing may be given out.
        let end = ["\"stop_reason\":\"tool_use\"", "\"finish_reason\":\"tool_calls\"", "\"response.completed\""]
            .iter()
            .find_map(|mark| whole.windows(mark.len()).position(|window| window == mark.as_bytes()))
            .unwrap();
        for cut in (0..end).step_by(11) {
            let cut = Fixture {
                name: fixture.name.clone(),
                bytes: whole[..cut].to_vec(),
                form: "sse",
                expected: fixture.expected.clone(),
            };
            let error = decode(&cut, cut.bytes.len().max(1)).end.unwrap_err();
            assert!(matches!(error.kind, ModelErrorKind::Transport | ModelErrorKind::Protocol), "{error:?}");
        }
    }
}

#[test]
fn any_two_pieces_of_a_recorded_stream_give_the_same_events() {
    for fixture in fixtures(&["self-03", "self-01", "anth-10", "chat-22"]) {
        let events = |pieces: [&[u8]; 2]| {
            let mut sse = SseDecoder::new();
            let mut events = Vec::new();
            let mut give = |event: SseEvent<'_>| {
                events.push((event.name.to_owned(), event.data.to_owned()));
                Ok::<(), crate::sse::SseError>(())
            };
            for piece in pieces {
                sse.feed(piece, &mut give).unwrap();
            }
            sse.finish(&mut give).unwrap();
            events
        };
        let whole = events([&fixture.bytes, &[]]);
        assert!(!whole.is_empty());
        for cut in 0..fixture.bytes.len() {
            assert_eq!(events([&fixture.bytes[..cut], &fixture.bytes[cut..]]), whole, "{} at {cut}", fixture.name);
        }
    }
}

#[test]
fn a_broken_frame_ends_the_stream() {
    let broken = concat!(
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",",
        "\"function\":{\"name\":\"shell\",\"arguments\":\"{\\\"command\\\":\\\"echo SAFE\"}}]}}]}\n\n",
        "data: {\"id\":\"x\",\"obj\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"}\"}}]},",
        "\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"
    );
    let expected = json!({"wire": "chat"});
    let fixture = Fixture { name: "broken".into(), bytes: broken.into(), form: "sse", expected };
    for piece in [1, 7, broken.len()] {
        assert_eq!(decode(&fixture, piece).end.unwrap_err().kind, ModelErrorKind::Protocol);
    }
}

#[test]
fn odd_chunks_do_no_harm() {
    let odd = concat!(
        "data: {\"choices\":[]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":null,\"tool_calls\":null},\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"},\"finish_reason\":\"\"}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":null}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"}}]}\n\n",
        "data: {\"choices\":null}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
        "data: [DONE]\n\n"
    );
    let expected = json!({"wire": "chat"});
    let fixture = Fixture { name: "odd".into(), bytes: odd.into(), form: "sse", expected };
    let response = decode(&fixture, odd.len()).end.unwrap();
    assert_eq!(response.parts, [Part::text("ok")]);
    let usage = response.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (3, 1));
}

#[test]
fn a_second_message_inside_a_message_is_refused() {
    let start = |id: &str| format!("data: {{\"type\":\"message_start\",\"message\":{{\"id\":\"{id}\"}}}}\n\n");
    let bytes = (start("a") + &start("b")).into_bytes();
    let fixture = Fixture { name: "two".into(), bytes, form: "sse", expected: json!({"wire": "anthropic"}) };
    assert_eq!(decode(&fixture, 1_000).end.unwrap_err().kind, ModelErrorKind::Protocol);
}

#[test]
fn recorded_error_bodies_are_classified() {
    use crate::failure::Failure;
    for fixture in fixtures(&["bed-05", "err-", "gem-07", "self-05", "self-06"]) {
        let status = u16::try_from(fixture.expected["http_status"].as_u64().unwrap()).unwrap();
        let body = String::from_utf8(fixture.bytes).unwrap();
        let error = match fixture.name.split('-').next() {
            Some("gem") => gemini::errors::from_response(status, &body, "host"),
            Some("bed") => bedrock::errors::from_response(status, &body, "host"),
            _ => Failure::from_body(Some(status), &body).into_error("host"),
        };
        let kind = match fixture.name.as_str() {
            name if ["err-05", "gem-07", "self-06"].iter().any(|start| name.starts_with(start)) => {
                ModelErrorKind::RateLimited
            }
            name if name.starts_with("self-05") => ModelErrorKind::Quota,
            name if name.starts_with("err-09") || name.starts_with("bed-05") => ModelErrorKind::UnknownModel,
            _ => ModelErrorKind::InvalidRequest,
        };
        assert_eq!(error.kind, kind, "{}: {error}", fixture.name);
        if let Some(retryable) = fixture.expected["retryable"].as_bool() {
            assert_eq!(error.is_retryable(), retryable, "{}", fixture.name);
        }
        if fixture.name.starts_with("err-05") {
            assert!(error.message.contains("temporarily rate-limited upstream"), "{error}");
        }
    }
}

#[test]
fn many_small_deltas_decode_quickly() {
    let mut stream = Vec::new();
    for number in 0..20_000 {
        let frame = format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"w{number} \"}},\"finish_reason\":null}}]}}\n\n"
        );
        stream.extend_from_slice(frame.as_bytes());
    }
    stream.extend_from_slice(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    let fixture = Fixture { name: "many".into(), bytes: stream, form: "sse", expected: json!({"wire": "chat"}) };
    let started = tokio::time::Instant::now();
    let response = decode(&fixture, 16 * 1024).end.unwrap();
    let took = started.elapsed();
    assert!(matches!(&response.parts[0], Part::Text { text, .. } if text.ends_with("w19999 ")));
    // A debug build on a busy machine; a release build takes a twentieth of it.
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}
