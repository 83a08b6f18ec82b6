//! Reads binary event streams (`application/vnd.amazon.eventstream`), whose frames carry the name of their event.

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use bytes::BytesMut;
use mcode_models::ModelError;

use crate::decode::protocol;
use crate::sse::{MAX_EVENT_BYTES, SseEvent};

/// By it such a stream is known.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";

/// Decodes a stream that is fed piece by piece.
#[derive(Debug, Default)]
pub(crate) struct FrameDecoder {
    frames: MessageFrameDecoder,
    waiting: BytesMut,
}

impl FrameDecoder {
    /// Takes the next bytes and calls `give` for each frame that is complete with them. An error of `give` ends the feed
    /// at once.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        give: &mut impl FnMut(SseEvent<'_>) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        self.waiting.extend_from_slice(bytes);
        loop {
            let frame = self.frames.decode_frame(&mut self.waiting);
            match frame.map_err(|error| protocol(format!("the stream holds a frame that can not be read: {error}")))? {
                DecodedFrame::Complete(message) => {
                    let data = String::from_utf8_lossy(message.payload());
                    give(SseEvent { name: name(&message), data: &data })?;
                }
                DecodedFrame::Incomplete if self.waiting.len() > MAX_EVENT_BYTES => {
                    return Err(protocol(format!("the stream holds a frame larger than {MAX_EVENT_BYTES} bytes")));
                }
                DecodedFrame::Incomplete => return Ok(()),
            }
        }
    }
}

/// The event's or the exception's name; `error` for what has none.
fn name(message: &Message) -> &str {
    let header = |name: &str| {
        let found = message.headers().iter().find(|header| header.name().as_str() == name)?;
        found.value().as_string().ok().map(aws_smithy_types::str_bytes::StrBytes::as_str)
    };
    match header(":message-type") {
        Some("event") | None => header(":event-type").unwrap_or_default(),
        Some("exception") => header(":exception-type").unwrap_or("error"),
        Some(_) => "error",
    }
}
