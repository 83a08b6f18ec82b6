//! Classifies errors of the chat wire, and finds the request field that a server does not take.

use mcode_models::{ModelError, ModelErrorKind};

use crate::failure::Failure;

/// Fields of the request that can be left out without changing what is asked, longest first where one holds another.
const OPTIONAL_FIELDS: &[&str] = &[
    // Whoever has not proved who they are gets no summaries, but may set the effort.
    "reasoning.summary",
    "max_completion_tokens",
    "max_output_tokens",
    "parallel_tool_calls",
    "reasoning_effort",
    "prompt_cache_key",
    "enable_thinking",
    "stream_options",
    "reasoning_content",
    "reasoning_details",
    "tool_stream",
    "max_tokens",
    "reasoning",
    "thinking",
    "include",
    "store",
];

/// An error that came inside a stream, or as a body with status 200.
pub(crate) fn from_words(data: &str, host: &str) -> ModelError {
    Failure::from_body(None, data).into_error(host)
}

/// An HTTP error.
pub(crate) fn from_response(status: u16, body: &str, host: &str) -> ModelError {
    Failure::from_body(Some(status), body).into_error(host)
}

/// The optional field at which an HTTP error points, if it points at one.
pub(crate) fn refused_field(status: u16, body: &str) -> Option<&'static str> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    let failure = Failure::from_body(Some(status), body);
    if failure.kind() != ModelErrorKind::InvalidRequest {
        return None;
    }
    if let Some(field) = &failure.field
        && let Some(known) =
            OPTIONAL_FIELDS.iter().find(|known| field == **known || field.split('.').next() == Some(**known))
    {
        return Some(known);
    }
    // FastAPI servers answer with a list of places instead of a message; the whole body names the field then.
    let words = if failure.message.is_empty() { body } else { &failure.message };
    OPTIONAL_FIELDS.iter().copied().find(|field| names(words, field))
}

/// Whether a text names a field. A common word counts only in quotes.
fn names(words: &str, field: &str) -> bool {
    if field.contains(['_', '.']) {
        return words.contains(field);
    }
    ['\'', '"', '`'].iter().any(|quote| words.contains(&format!("{quote}{field}{quote}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refused_field_is_found() {
        for (body, field) in [
            (
                r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#,
                Some("stream_options"),
            ),
            (r#"{"error":{"message":"no","param":"reasoning_effort"}}"#, Some("reasoning_effort")),
            (r#"{"error":{"message":"verify yourself","param":"reasoning.summary"}}"#, Some("reasoning.summary")),
            (r#"{"error":{"message":"no such effort","param":"reasoning.effort"}}"#, Some("reasoning")),
            (r#"{"error":{"message":"Unknown field 'store'"}}"#, Some("store")),
            (r#"{"detail":[{"loc":["body","parallel_tool_calls"],"msg":"extra"}]}"#, Some("parallel_tool_calls")),
            (r#"{"error":{"message":"the store is closed"}}"#, None),
            (r#"{"error":{"message":"max_tokens: maximum context length is 8"}}"#, None),
        ] {
            assert_eq!(refused_field(400, body), field, "{body}");
            assert_eq!(refused_field(500, body), None);
        }
    }

    #[test]
    fn a_refused_tool_call_quotes_what_the_model_wrote() {
        let data = r#"{"error":{"message":"bad call","code":"tool_use_failed","failed_generation":"{\"x\":1}"}}"#;
        let error = from_words(data, "h");
        assert_eq!(error.kind, ModelErrorKind::BadToolCall);
        assert!(error.message.contains("{\"x\":1}"), "{}", error.message);
    }

    #[test]
    fn a_delay_in_words_is_taken() {
        let error = from_words(r#"{"error":{"message":"Rate limit reached. Try again in 4 seconds"}}"#, "h");
        assert_eq!(error.kind, ModelErrorKind::RateLimited);
        assert_eq!(error.retry_after, Some(std::time::Duration::from_secs(4)));
    }
}
