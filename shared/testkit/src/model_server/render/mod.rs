//! Renders a reply for one wire.

mod anthropic;
mod bedrock;
mod chat;
pub(super) mod gemini;
mod responses;

use serde_json::{Value, json};

use super::given::Given;
use super::recorded::{RecordedRequest, Wire};
use super::reply::{Block, End, Reply, SseStyle, Usage};

/// Characters per text delta; small, so that every text of some length comes in several.
const DELTA_CHARS: usize = 12;

/// What stands in for a delta when a bad frame is asked for: JSON cut in the middle.
const BAD_FRAME: &str = r#"{"id":"x","obj"#;

struct Frame {
    event: Option<&'static str>,
    data: String,
    count: usize,
    is_delta: bool,
    is_bad: bool,
}

#[derive(Default)]
struct Frames {
    list: Vec<Frame>,
}

impl Frames {
    fn add(&mut self, event: Option<&'static str>, data: &Value, count: usize, is_delta: bool) {
        self.list.push(Frame { event, data: data.to_string(), count, is_delta, is_bad: false });
    }

    fn push(&mut self, event: Option<&'static str>, data: &Value) {
        self.add(event, data, 1, false);
    }

    fn delta(&mut self, event: Option<&'static str>, data: &Value, count: usize) {
        self.add(event, data, count, true);
    }

    /// A turn's named event.
    fn named(&mut self, event: &'static str, data: &Value) {
        self.push(Some(event), data);
    }

    fn spoil_the_middle(&mut self) {
        let deltas: Vec<usize> =
            self.list.iter().enumerate().filter(|(_, frame)| frame.is_delta).map(|(at, _)| at).collect();
        let at = deltas.get(deltas.len() / 2).copied().unwrap_or(self.list.len() / 2);
        if let Some(frame) = self.list.get_mut(at) {
            frame.data = BAD_FRAME.to_owned();
            frame.count = 1;
            frame.is_bad = true;
        }
    }

    fn bytes(&self, write: impl Fn(&Frame) -> Vec<u8>) -> Vec<u8> {
        let mut body = Vec::new();
        for frame in &self.list {
            let one = write(frame);
            body.reserve(one.len() * frame.count);
            for _ in 0..frame.count {
                body.extend_from_slice(&one);
            }
        }
        body
    }

    /// All frames as one list in JSON, as Gemini gives them when no stream of events is asked for.
    fn json_list(&self) -> Vec<u8> {
        let frames = self.list.iter().flat_map(|frame| std::iter::repeat_n(frame.data.as_str(), frame.count));
        format!("[{}\n]\n", frames.collect::<Vec<_>>().join("\n,\r\n")).into_bytes()
    }
}

fn event_bytes(frame: &Frame, style: SseStyle) -> Vec<u8> {
    let newline = if style.crlf { "\r\n" } else { "\n" };
    let field = if style.no_space { "data:" } else { "data: " };
    let mut text = String::new();
    if style.comments {
        text.push_str(&format!(": ping{newline}{newline}"));
    }
    if let Some(event) = frame.event {
        text.push_str(&format!("event: {event}{newline}"));
    }
    match frame.data.split_at_checked(1) {
        Some((first, rest)) if style.two_lines && first == "{" => {
            text.push_str(&format!("{field}{first}{newline}{field}{rest}{newline}"));
        }
        _ => text.push_str(&format!("{field}{}{newline}", frame.data)),
    }
    text.push_str(newline);
    text.into_bytes()
}

/// The facts of a request that its reply repeats.
pub(super) struct Asked<'a> {
    /// Number of the request, from 1; makes ids unique.
    number: usize,
    model: &'a str,
    wire: Wire,
    /// Chat: whether a usage chunk was asked for.
    include_usage: bool,
    /// Responses: whether encrypted reasoning was asked for.
    include_encrypted: bool,
    /// Gemini: whether the stream is to be a list in JSON.
    as_list: bool,
}

impl<'a> Asked<'a> {
    /// Of this request.
    pub(super) fn by(request: &'a RecordedRequest) -> Self {
        let included = request.body["include"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            number: request.number,
            model: request.model(),
            wire: request.wire,
            include_usage: request.body["stream_options"]["include_usage"] == true,
            include_encrypted: included.iter().any(|one| one == "reasoning.encrypted_content"),
            as_list: request.wants_list(),
        }
    }
}

/// The type of a stream's body.
pub(super) fn stream_type(asked: &Asked<'_>) -> &'static str {
    match asked.wire {
        Wire::Bedrock => "application/vnd.amazon.eventstream",
        Wire::Gemini if asked.as_list => "application/json; charset=UTF-8",
        _ => "text/event-stream; charset=utf-8",
    }
}

/// The body of a stream.
pub(super) fn stream(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Vec<u8> {
    let mut frames = Frames::default();
    match asked.wire {
        Wire::Anthropic => anthropic::frames(&mut frames, reply, blocks, asked),
        Wire::Chat => chat::frames(&mut frames, reply, blocks, asked),
        Wire::Responses => responses::frames(&mut frames, reply, blocks, asked),
        Wire::Gemini => gemini::frames(&mut frames, reply, blocks, asked),
        Wire::Bedrock => bedrock::frames(&mut frames, reply, blocks, asked),
    }
    if reply.bad_frame {
        frames.spoil_the_middle();
    }
    if asked.wire == Wire::Bedrock {
        return frames.bytes(bedrock::frame_bytes);
    }
    if asked.as_list {
        return frames.json_list();
    }
    let mut body = frames.bytes(|frame| event_bytes(frame, reply.style));
    if asked.wire == Wire::Chat && reply.end == End::Normal {
        body.extend_from_slice(if reply.style.crlf { b"data: [DONE]\r\n\r\n" } else { b"data: [DONE]\n\n" });
    }
    body
}

/// The body of a reply to a request that did not ask for a stream.
pub(super) fn whole(reply: &Reply, blocks: &[Block], asked: &Asked<'_>) -> Value {
    match asked.wire {
        Wire::Anthropic => anthropic::whole(reply, blocks, asked),
        Wire::Chat => chat::whole(reply, blocks, asked),
        Wire::Responses => responses::whole(reply, blocks, asked),
        Wire::Gemini => gemini::whole(reply, blocks, asked),
        Wire::Bedrock => bedrock::whole(reply, blocks, asked),
    }
}

/// Remembers what of a turn has to come back as it was.
pub(super) fn remember(blocks: &[Block], asked: &Asked<'_>, given: &mut Given) {
    match asked.wire {
        Wire::Anthropic => anthropic::remember(blocks, asked, given),
        // Nothing is signed there.
        Wire::Chat => {}
        Wire::Responses => responses::remember(blocks, asked, given),
        Wire::Gemini => gemini::remember(blocks, asked, given),
        Wire::Bedrock => bedrock::remember(blocks, asked, given),
    }
}

/// What a wire can say of these figures: where writes to the cache have no figure they are part of the input.
pub(super) fn told(usage: Usage, wire: Wire) -> Usage {
    match wire {
        Wire::Anthropic | Wire::Responses => usage,
        Wire::Chat | Wire::Gemini => Usage { input: usage.input + usage.cache_write, cache_write: 0, ..usage },
        Wire::Bedrock => Usage { reasoning: 0, ..usage },
    }
}

/// What a wire has told of these figures by then, when a turn does not come to its end: Anthropic tells of the prompt, and
/// of one token of output, with its first event; Gemini of the prompt with each piece; the others at the end alone.
pub(super) fn told_in_part(sent: &[u8], usage: Usage, wire: Wire) -> Option<Usage> {
    let whole_events = sent.windows(2).any(|two| two == b"\n\n") || sent.windows(4).any(|four| four == b"\r\n\r\n");
    let begun = Usage { output: 0, reasoning: 0, ..usage };
    match wire {
        Wire::Anthropic if whole_events => Some(Usage { output: 1, reasoning: usage.reasoning, ..usage }),
        Wire::Gemini if whole_events => Some(Usage {
            input: usage.input + usage.cache_read + usage.cache_write,
            cache_read: 0,
            cache_write: 0,
            ..begun
        }),
        _ => None,
    }
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(DELTA_CHARS).map(|piece| piece.iter().collect()).collect()
}

fn call_id(asked: &Asked<'_>, id: Option<&String>, at: usize) -> String {
    let prefix = match asked.wire {
        Wire::Anthropic => "toolu",
        Wire::Bedrock => "tooluse",
        Wire::Chat | Wire::Responses | Wire::Gemini => "call",
    };
    id.cloned().unwrap_or_else(|| format!("{prefix}_{:04}_{at}", asked.number))
}

fn stop_reason(reply: &Reply, blocks: &[Block]) -> String {
    reply.stop.clone().unwrap_or_else(|| {
        let calls = blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        if calls { "tool_use" } else { "end_turn" }.to_owned()
    })
}

/// Arguments on a wire that has no text for them.
fn arguments_object(arguments: &str) -> Value {
    serde_json::from_str::<Value>(arguments).unwrap_or_else(|_| json!({}))
}

/// Headers that belong to an error.
pub(super) fn error_headers(wire: Wire, code: u16) -> Option<(&'static str, String)> {
    (wire == Wire::Bedrock).then(|| ("x-amzn-errortype", bedrock::error_type(code).to_owned()))
}

/// An error body in the wire's own shape.
pub(super) fn error(wire: Wire, code: u16, message: &str, number: usize) -> Value {
    match wire {
        Wire::Anthropic => anthropic::error(code, message, number),
        Wire::Chat => chat::error(code, message),
        Wire::Responses => responses::error(code, message),
        Wire::Gemini => gemini::error(code, message),
        Wire::Bedrock => json!({ "message": message }),
    }
}
