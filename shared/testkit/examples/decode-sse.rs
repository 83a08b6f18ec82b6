//! How fast answers are decoded: 100 MB of a stream of small deltas, over the wires that send server-sent events, from a
//! socket to the complete answer. The frames are as real servers were recorded to send them, each with a few words.
//! Prints the processor time of the one thread that does it, in seconds, such as
//! `{"anthropic": …, "openai-chat": …}`; `cargo xtask bench` runs it.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program, not part of the product")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Context, bail};
use futures::StreamExt;
use mcode_config::{Effective, ProviderEntry};
use mcode_events::message::Part;
use mcode_models::{ModelRegistry, ModelRequest, PromptMessage, StreamEvent};
use mcode_providers::Registry;
use tokio_util::sync::CancellationToken;

/// Bytes of each stream, about.
const STREAM_BYTES: usize = 100_000_000;
/// What one delta says: a few words, as real ones do. No two of the same follow each other.
const WORDS: [&str; 3] = [" the quick", " brown fox's \\\"jump\\\"", " über\\n"];

/// A wire, and how it tells an answer: what comes first, one delta around its words, what comes last.
struct Wire {
    name: &'static str,
    first: &'static str,
    delta: [&'static str; 2],
    last: &'static str,
}

const WIRES: &[Wire] = &[
    Wire {
        name: "anthropic",
        first: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\
                \"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":3,\
                \"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
                \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        delta: [
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\
             \"text_delta\",\"text\":\"",
            "\"}}\n\n",
        ],
        last: "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\n\
               data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\
               \n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    },
    Wire {
        name: "openai-chat",
        first: "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\
                \"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
        delta: [
            "data: {\"id\":\"chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012\",\"object\":\"chat.completion.chunk\",\"created\":\
             1750000000,\"model\":\"gpt-4o-2024-08-06\",\"service_tier\":\"default\",\"system_fingerprint\":\
             \"fp_0123456789\",\"usage\":null,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
            "\"},\"logprobs\":null,\"finish_reason\":null}],\"obfuscation\":\"AbCdEf0\"}\n\n",
        ],
        last: "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\
               \"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    },
    Wire {
        name: "openai-responses",
        first: "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\
                \"r\",\"object\":\"response\",\"model\":\"m\",\"status\":\"in_progress\",\"output\":[]}}\n\nevent: \
                response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\
                \"output_index\":0,\"item\":{\"id\":\"i\",\"type\":\"message\",\"status\":\"in_progress\",\"role\":\
                \"assistant\",\"content\":[]}}\n\n",
        delta: [
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\
             \"item_id\":\"msg_0123456789abcdef\",\"output_index\":0,\"content_index\":0,\"delta\":\"",
            "\",\"logprobs\":[]}\n\n",
        ],
        last: "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\
               \"id\":\"r\",\"object\":\"response\",\"model\":\"m\",\"status\":\"completed\",\"output\":[],\"usage\":{\
               \"input_tokens\":3,\"output_tokens\":9}}}\n\n",
    },
    Wire {
        name: "gemini",
        first: "",
        delta: [
            "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"",
            "\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 54,\"candidatesTokenCount\": \
             16,\"totalTokenCount\": 116,\"promptTokensDetails\": [{\"modality\": \"TEXT\",\"tokenCount\": 54}],\
             \"thoughtsTokenCount\": 62},\"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \
             \"AbCdEfGhIjKlMnOpQrStUvWx\"}\n\n",
        ],
        last: "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}],\"role\":\"model\"},\"finishReason\":\
               \"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":9},\
               \"modelVersion\":\"m\",\"responseId\":\"r\"}\n\n",
    },
];

impl Wire {
    /// The whole stream, and how many deltas are in it.
    fn stream(&self) -> (String, usize) {
        let mut text = String::with_capacity(STREAM_BYTES + 1_000);
        text.push_str(self.first);
        let mut deltas = 0;
        while text.len() < STREAM_BYTES {
            text.push_str(self.delta[0]);
            text.push_str(WORDS[deltas % WORDS.len()]);
            text.push_str(self.delta[1]);
            deltas += 1;
        }
        text.push_str(self.last);
        (text, deltas)
    }
}

/// Reads one request to its end and answers it.
fn answer(stream: TcpStream, body: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let mut stream = stream;
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    stream.write_all(body.as_bytes())
}

/// Processor time of this thread in seconds.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    #[allow(clippy::cast_precision_loss, reason = "seconds and nanoseconds of a short program")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

/// Decodes one stream; seconds of processor time for [`STREAM_BYTES`].
fn measure(wire: &Wire) -> anyhow::Result<f64> {
    let (body, deltas) = wire.stream();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let base_url = format!("http://{}/v1", listener.local_addr()?);
    let server = std::thread::spawn(move || answer(listener.accept()?.0, &body));
    let entry =
        ProviderEntry { wire: Some(wire.name.to_owned()), base_url: Some(base_url), ..ProviderEntry::default() };
    let config = Arc::new(Effective { providers: BTreeMap::from([("p".to_owned(), entry)]), ..Effective::default() });
    let registry = Registry::new(Arc::new(move || Arc::clone(&config)));
    let resolved = registry.resolve("p/m", &BTreeMap::new()).map_err(anyhow::Error::msg)?;
    let request = ModelRequest {
        model: "p/m".parse().map_err(|()| anyhow::anyhow!("no name of a model"))?,
        info: resolved.info,
        access: resolved.access,
        system: Vec::new(),
        messages: vec![PromptMessage::User(vec![Part::text("go".to_owned())])],
        media: BTreeMap::new(),
        tools: Vec::new(),
        thinking: None,
        max_output_tokens: None,
        cache_key: "k".to_owned(),
        answer_schema: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = thread_seconds();
    let response = runtime.block_on(async {
        let mut events = resolved.provider.stream(request, CancellationToken::new());
        while let Some(event) = events.next().await {
            if let StreamEvent::Finished(response) = event? {
                return anyhow::Ok(response);
            }
        }
        bail!("the stream has no end")
    })?;
    let seconds = thread_seconds() - before;
    match server.join() {
        Ok(served) => served.context("the server could not send")?,
        Err(_) => bail!("the server ended before its time"),
    }
    let text: usize =
        response.parts.iter().map(|part| if let Part::Text { text, .. } = part { text.len() } else { 0 }).sum();
    let wanted: usize = (0..deltas).map(|at| WORDS[at % WORDS.len()].replace('\\', "").len()).sum();
    if text != wanted {
        bail!("{}: {text} bytes of text were decoded where {wanted} were sent", wire.name);
    }
    Ok(seconds)
}

fn main() -> anyhow::Result<()> {
    mcode_providers::install_crypto();
    let mut times = serde_json::Map::new();
    for wire in WIRES {
        times.insert(wire.name.to_owned(), measure(wire)?.into());
    }
    println!("{}", serde_json::Value::Object(times));
    Ok(())
}
