//! Classifies errors of the Messages wire, from HTTP bodies and from inside streams.

use mcode_models::{ModelError, ModelErrorKind};

use crate::failure::Failure;

/// An error that came inside a stream, or as a body with status 200.
pub(crate) fn from_words(data: &str, host: &str) -> ModelError {
    Failure::from_body(None, data).into_error(host)
}

/// An HTTP error.
pub(crate) fn from_response(status: u16, body: &str, host: &str) -> ModelError {
    let failure = Failure::from_body(Some(status), body);
    // A spend limit that the user has set comes as an invalid request.
    let spend_limit = status == 400 && failure.message.contains("usage limits");
    let mut error = failure.into_error(host);
    if spend_limit {
        error.kind = ModelErrorKind::Quota;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_stream_errors_are_classified() {
        let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert_eq!(from_words(overloaded, "h").kind, ModelErrorKind::Overloaded);
        let limited = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Try again in 4 seconds"}}"#;
        let error = from_words(limited, "h");
        assert_eq!(error.kind, ModelErrorKind::RateLimited);
        assert_eq!(error.retry_after, Some(std::time::Duration::from_secs(4)));
        assert!(error.message.contains("Try again in 4 seconds") && error.message.contains('h'));
    }

    #[test]
    fn a_spend_limit_is_a_quota() {
        let body = r#"{"type":"error","error":{"type":"invalid_request_error",
            "message":"You have reached your specified API usage limits."}}"#;
        assert_eq!(from_response(400, body, "h").kind, ModelErrorKind::Quota);
    }
}
