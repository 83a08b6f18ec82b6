//! Classifies errors of the Converse wire.

use mcode_models::{ModelError, ModelErrorKind};
use serde_json::{Value, json};

use crate::failure::Failure;

/// An exception that came inside a stream; `name` as its frame says it.
pub(crate) fn from_exception(name: &str, payload: &str, host: &str) -> ModelError {
    let status = match name {
        "throttlingException" => 429,
        "serviceUnavailableException" => 503,
        "validationException" => 400,
        "modelTimeoutException" => 408,
        // Of the model and of the service.
        _ => 500,
    };
    let words = words(payload);
    let mut error = from_response(status, &json!({ "message": words }).to_string(), host);
    error.status = None;
    error.message = format!("{host} reported {name}: {words}");
    error
}

/// An HTTP error.
pub(crate) fn from_response(status: u16, body: &str, host: &str) -> ModelError {
    let words = words(body).to_ascii_lowercase();
    let mut error = Failure::from_body(Some(status), body).into_error(host);
    // By its words this is about the prompt, by its status about the rate.
    if words.contains("too many tokens, please wait") {
        error.kind = ModelErrorKind::RateLimited;
    }
    // So is this, but it is over only when the day is.
    if words.contains("too many tokens per day") {
        error.kind = ModelErrorKind::Quota;
        error.retry_after = None;
    }
    if words.contains("model identifier is invalid") || words.contains("on-demand throughput isn") {
        error.kind = ModelErrorKind::UnknownModel;
        "Name the model by its inference profile, such as us.anthropic.claude-…; the AWS console lists them."
            .clone_into(&mut error.hint);
    }
    if matches!(status, 424) {
        error.kind = ModelErrorKind::Server;
    }
    if error.kind == ModelErrorKind::Auth {
        "Check the AWS credentials (`aws sts get-caller-identity`), the region, and whether the account has access to the model."
            .clone_into(&mut error.hint);
    }
    error
}

fn words(payload: &str) -> String {
    let value: Value = serde_json::from_str(payload).unwrap_or_default();
    let words = ["message", "Message", "originalMessage"].iter().find_map(|key| value.get(*key)?.as_str());
    words.map_or_else(|| payload.chars().take(200).collect(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_and_statuses_are_classified() {
        for (name, kind) in [
            ("throttlingException", ModelErrorKind::RateLimited),
            ("serviceUnavailableException", ModelErrorKind::Overloaded),
            ("internalServerException", ModelErrorKind::Server),
            ("modelStreamErrorException", ModelErrorKind::Server),
            ("validationException", ModelErrorKind::InvalidRequest),
        ] {
            let error = from_exception(name, r#"{"message":"words"}"#, "h");
            assert_eq!(error.kind, kind, "{name}");
            assert!(error.message.contains(name) && error.message.contains("words"), "{error}");
        }
        let full = from_response(400, r#"{"message":"Input is too long for requested model."}"#, "h");
        assert_eq!(full.kind, ModelErrorKind::Overflow);
        let wait = from_response(429, r#"{"message":"Too many tokens, please wait before trying again."}"#, "h");
        assert_eq!(wait.kind, ModelErrorKind::RateLimited);
        let gone = from_response(400, r#"{"message":"The provided model identifier is invalid."}"#, "h");
        assert_eq!(gone.kind, ModelErrorKind::UnknownModel);
        assert_eq!(from_response(403, r#"{"message":"expired"}"#, "h").kind, ModelErrorKind::Auth);
    }
}
