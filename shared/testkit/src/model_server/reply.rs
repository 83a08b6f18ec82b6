//! What the server answers, free of any wire: blocks, an ending, usage, and how the bytes are delivered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::recorded::RecordedRequest;

/// One block of an assistant turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Visible text, sent in several deltas.
    Text(String),
    /// The same small text delta many times over, for load: rendered once, then repeated.
    Deltas {
        /// Text of one delta.
        piece: String,
        /// How many of them.
        count: usize,
    },
    /// Reasoning. On the Chat wire it is sent as `reasoning_content`, which has no signature; on the Responses wire the
    /// signature is the encrypted content, on Gemini it comes with the part that follows.
    Thinking {
        /// The reasoning text.
        text: String,
        /// The opaque mark that has to come back with it, to the same model only.
        signature: String,
    },
    /// Reasoning that only the provider can read; left out on the Chat wire, on Gemini the signature of what follows.
    RedactedThinking(String),
    /// A call of a tool.
    ToolCall {
        /// The id; made up by the server when `None`.
        id: Option<String>,
        /// Name of the tool.
        name: String,
        /// The arguments as sent, byte for byte. Usually JSON; broken JSON is a case worth testing.
        arguments: String,
    },
}

/// Token figures of one reply, in the normal form (input without what the cache gave or took).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to the cache.
    pub input: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache; part of the input on the Chat and Gemini wires, which have no figure for it.
    pub cache_write: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Reasoning tokens among the output; not told on Bedrock.
    pub reasoning: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 10, cache_read: 0, cache_write: 0, output: 5, reasoning: 0 }
    }
}

/// How event-stream lines are written: everything the standard allows and some servers do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SseStyle {
    /// Lines end in `\r\n`.
    pub crlf: bool,
    /// No blank after `data:`.
    pub no_space: bool,
    /// A comment line before every event.
    pub comments: bool,
    /// The data of every event is spread over two `data:` lines.
    pub two_lines: bool,
}

/// How the bytes reach the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Bytes per write; `None` = the whole body at once.
    pub split: Option<usize>,
    /// Pause between two writes (with `split`).
    pub delay: Duration,
    /// Pause before the response head.
    pub delay_before: Duration,
    /// Send this many bytes of the body, then keep the line open and silent until the client leaves.
    pub stall_after: Option<usize>,
    /// Send this many bytes of the body, then close the line.
    pub cut_after: Option<usize>,
    /// Close the line after the request was read, without any response.
    pub hang_up: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// The stream ends as the provider ends it.
    Normal,
    /// An error event in the stream, and nothing after it.
    Error { kind: String, message: String },
    /// The body ends after the last block without the provider's own closing events.
    Missing,
}

type Make = Arc<dyn Fn(&RecordedRequest) -> Reply + Send + Sync>;

#[derive(Clone)]
pub(super) enum Content {
    Turn(Vec<Block>),
    Status { code: u16, headers: BTreeMap<String, String>, body: Option<Value>, message: String },
    Raw(Vec<u8>),
    From(Make),
}

/// One answer of the server.
#[derive(Clone)]
pub struct Reply {
    pub(super) content: Content,
    pub(super) end: End,
    pub(super) usage: Usage,
    pub(super) stop: Option<String>,
    pub(super) delivery: Delivery,
    pub(super) style: SseStyle,
    pub(super) bad_frame: bool,
    pub(super) without_index: bool,
    pub(super) headers: BTreeMap<String, String>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Turn(blocks) => f.debug_tuple("Reply").field(blocks).finish(),
            Content::Status { code, .. } => write!(f, "Reply(status {code})"),
            Content::Raw(bytes) => write!(f, "Reply(raw, {} bytes)", bytes.len()),
            Content::From(_) => f.write_str("Reply(from the request)"),
        }
    }
}

impl Reply {
    fn new(content: Content) -> Self {
        Self {
            content,
            end: End::Normal,
            usage: Usage::default(),
            stop: None,
            delivery: Delivery::default(),
            style: SseStyle::default(),
            bad_frame: false,
            without_index: false,
            headers: BTreeMap::new(),
        }
    }

    /// A turn of these blocks, in order.
    #[must_use]
    pub fn blocks(blocks: impl IntoIterator<Item = Block>) -> Self {
        Self::new(Content::Turn(blocks.into_iter().collect()))
    }

    /// A turn that says `text` and ends.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::blocks([Block::Text(text.into())])
    }

    /// A turn that streams `piece` as `count` deltas of one text block. The body is prepared in one piece, so the
    /// server's own cost stays small.
    #[must_use]
    pub fn deltas(piece: impl Into<String>, count: usize) -> Self {
        Self::blocks([Block::Deltas { piece: piece.into(), count }])
    }

    /// A turn that asks for these tool calls, all at once when there are several.
    #[must_use]
    pub fn tool_calls<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Self {
        Self::blocks([]).then_tool_calls(calls)
    }

    /// A turn with one tool call whose arguments are sent as these bytes, JSON or not.
    #[must_use]
    pub fn raw_tool_call(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::blocks([Block::ToolCall { id: None, name: name.into(), arguments: arguments.into() }])
    }

    /// A turn that begins with signed reasoning; add what follows with `then_…`.
    #[must_use]
    pub fn thinking(text: impl Into<String>, signature: impl Into<String>) -> Self {
        Self::blocks([Block::Thinking { text: text.into(), signature: signature.into() }])
    }

    /// An HTTP status other than 200, with the provider's usual error body unless [`Reply::json`] gives another.
    #[must_use]
    pub fn status(code: u16) -> Self {
        let message = format!("scripted status {code}");
        Self::new(Content::Status { code, headers: BTreeMap::new(), body: None, message })
    }

    /// Text, then an overload error inside the stream (HTTP status 200).
    #[must_use]
    pub fn overloaded_midstream(text: impl Into<String>) -> Self {
        Self::error_midstream(text, "overloaded_error", "Overloaded")
    }

    /// Text, then an error of this kind inside the stream (HTTP status 200). Kinds are in Anthropic's words
    /// (`rate_limit_error`, `invalid_request_error`, …); translated for the other wires.
    #[must_use]
    pub fn error_midstream(text: impl Into<String>, kind: impl Into<String>, message: impl Into<String>) -> Self {
        let mut reply = Self::text(text);
        reply.end = End::Error { kind: kind.into(), message: message.into() };
        reply
    }

    /// These bytes as the body of a 200 with `content-type: text/event-stream`.
    #[must_use]
    pub fn raw_sse(body: impl Into<Vec<u8>>) -> Self {
        Self::new(Content::Raw(body.into()))
    }

    /// Whatever the closure makes of the request, decided when it arrives.
    #[must_use]
    pub fn from(make: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::new(Content::From(Arc::new(make)))
    }

    /// Adds a block.
    #[must_use]
    pub fn then(mut self, block: Block) -> Self {
        if let Content::Turn(blocks) = &mut self.content {
            blocks.push(block);
        }
        self
    }

    /// Adds text.
    #[must_use]
    pub fn then_text(self, text: impl Into<String>) -> Self {
        self.then(Block::Text(text.into()))
    }

    /// Adds tool calls.
    #[must_use]
    pub fn then_tool_calls<N: Into<String>>(mut self, calls: impl IntoIterator<Item = (N, Value)>) -> Self {
        for (name, arguments) in calls {
            self = self.then(Block::ToolCall { id: None, name: name.into(), arguments: arguments.to_string() });
        }
        self
    }

    /// Adds a tool call with an id of the test's choice.
    #[must_use]
    pub fn then_tool_call_as(self, id: impl Into<String>, name: impl Into<String>, arguments: &Value) -> Self {
        self.then(Block::ToolCall { id: Some(id.into()), name: name.into(), arguments: arguments.to_string() })
    }

    /// Adds a response header; with a status reply or a stream.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        match &mut self.content {
            Content::Status { headers, .. } => headers.insert(name, value),
            _ => self.headers.insert(name, value),
        };
        self
    }

    /// The JSON body of a status reply.
    #[must_use]
    pub fn json(mut self, value: Value) -> Self {
        if let Content::Status { body, .. } = &mut self.content {
            *body = Some(value);
        }
        self
    }

    /// The error message of a status reply, put into the provider's usual error body.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        if let Content::Status { message, .. } = &mut self.content {
            *message = text.into();
        }
        self
    }

    /// The token figures of this turn.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// The stop reason, in Anthropic's words (`max_tokens`, `refusal`, …); translated for the other wires.
    #[must_use]
    pub fn stop_reason(mut self, reason: impl Into<String>) -> Self {
        self.stop = Some(reason.into());
        self
    }

    /// Bytes per write. `split(1)` puts every byte on the line by itself.
    #[must_use]
    pub fn split(mut self, bytes: usize) -> Self {
        self.delivery.split = Some(bytes.max(1));
        self
    }

    /// Milliseconds between two writes; without [`Reply::split`], also splits the body into 64-byte writes.
    #[must_use]
    pub fn delay(mut self, ms: u64) -> Self {
        self.delivery.delay = Duration::from_millis(ms);
        self.delivery.split.get_or_insert(64);
        self
    }

    /// Milliseconds before the response head is sent.
    #[must_use]
    pub fn delay_before(mut self, ms: u64) -> Self {
        self.delivery.delay_before = Duration::from_millis(ms);
        self
    }

    /// After this many bytes of the body nothing more comes, and the line stays open until the client leaves.
    #[must_use]
    pub fn stall_after(mut self, bytes: usize) -> Self {
        self.delivery.stall_after = Some(bytes);
        self
    }

    /// After this many bytes of the body the line is cut.
    #[must_use]
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.delivery.cut_after = Some(bytes);
        self
    }

    /// The line is closed without a response.
    #[must_use]
    pub fn hang_up(mut self) -> Self {
        self.delivery.hang_up = true;
        self
    }

    /// The body ends cleanly after the last block, but the provider's closing events never come.
    #[must_use]
    pub fn without_end(mut self) -> Self {
        self.end = End::Missing;
        self
    }

    /// An event that is not JSON comes in the middle of the stream, in the place of the delta that belongs there; on
    /// Bedrock its checksum is wrong too.
    #[must_use]
    pub fn bad_frame(mut self) -> Self {
        self.bad_frame = true;
        self
    }

    /// Tool calls of the Chat wire lack their `index`, as some servers do it.
    #[must_use]
    pub fn without_index(mut self) -> Self {
        self.without_index = true;
        self
    }

    /// How the lines of the event stream are written.
    #[must_use]
    pub fn sse_style(mut self, style: SseStyle) -> Self {
        self.style = style;
        self
    }
}
