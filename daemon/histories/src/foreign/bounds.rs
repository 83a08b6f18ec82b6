//! How much of a text is taken, and what is done with the rest.

use mcode_events::message::Part;
use mcode_events::{BlobError, EventBody};
use mcode_text::truncate_bytes;
use serde_json::Value;

use super::Reading;

/// The longest text of a message, in bytes; of longer ones the beginning and the end are taken.
pub(crate) const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The longest result that stands in the thread, in bytes; what is longer is kept as a body beside it.
pub(crate) const RESULT_BYTES_MAX: usize = 50 * 1024;

/// Whether a part says nothing.
pub(crate) fn is_empty(part: &Part) -> bool {
    match part {
        Part::Text { text, .. } | Part::Thinking { text, opaque: None } => text.trim().is_empty(),
        _ => false,
    }
}

/// About how many bytes of text an event has.
pub(crate) fn weight(body: &EventBody) -> u64 {
    let of_value = |value: &Value| value.to_string().len();
    let bytes = match body {
        EventBody::MessageFinished { message } => message
            .parts
            .iter()
            .map(|part| match part {
                Part::Text { text, .. } | Part::Thinking { text, .. } => text.len(),
                Part::RedactedThinking { opaque } | Part::Provider { opaque } => of_value(&opaque.0),
                Part::ToolCall { arguments, .. } => of_value(arguments),
                Part::Media { .. } => 0,
            })
            .sum(),
        EventBody::ToolCallStarted { call, .. } => of_value(&call.arguments),
        EventBody::ToolCallFinished { result, .. } => result.joined_text().len(),
        EventBody::Notice { text, .. } => text.len(),
        _ => 0,
    };
    bytes as u64
}

/// The text itself, or its beginning and end with a note of where all of it is.
pub(crate) fn bounded_result(text: &str, reading: Reading<'_>) -> Result<String, BlobError> {
    if text.len() <= RESULT_BYTES_MAX {
        return Ok(text.to_owned());
    }
    let whole = reading.blobs.put(text.as_bytes(), "text/plain; charset=utf-8")?;
    let head = truncate_bytes(text, RESULT_BYTES_MAX / 2);
    let mut from = text.len() - RESULT_BYTES_MAX / 2;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let left_out = from - head.len();
    let total = text.len();
    let note = format!(
        "[{left_out} bytes left out here; full output: {total} bytes, view it with path \"blob:{}\"]",
        whole.hash
    );
    Ok(format!("{head}\n{note}\n{}", &text[from..]))
}
