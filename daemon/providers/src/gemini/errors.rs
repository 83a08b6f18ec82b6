//! Classifies errors of the Gemini wire.

use std::time::Duration;

use mcode_models::{ModelError, ModelErrorKind};
use serde_json::Value;

use crate::failure::Failure;

/// A longer delay than this, in seconds, is a quota's: nobody waits for it in a run.
const DELAY_MAX_S: f64 = 60.0;

/// An error that came inside a stream, or as a body with status 200.
pub(crate) fn from_words(data: &str, host: &str) -> ModelError {
    classified(None, data, host)
}

/// An HTTP error.
pub(crate) fn from_response(status: u16, body: &str, host: &str) -> ModelError {
    classified(Some(status), body, host)
}

fn classified(status: Option<u16>, body: &str, host: &str) -> ModelError {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let first = value.get(0).filter(|_| value.is_array()).unwrap_or(&value);
    let details = first.pointer("/error/details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut error = Failure::from_body(status, body).into_error(host);
    let limited =
        error.status == Some(429) || matches!(error.kind, ModelErrorKind::RateLimited | ModelErrorKind::Quota);
    if limited {
        let delay = details.iter().find_map(|detail| seconds(detail.get("retryDelay")?.as_str()?));
        // The same status and words for a minute's limit and for a day's: the name of the limit tells.
        let used_up = details.iter().any(names_a_days_limit) || delay.is_some_and(|delay| delay > DELAY_MAX_S);
        error.of_model = used_up && is_of_model(details);
        error.kind = if used_up { ModelErrorKind::Quota } else { ModelErrorKind::RateLimited };
        // For a day's limit Google names the pause of the minute's: nothing that could be waited for.
        let misleading = used_up && !delay.is_some_and(|delay| delay > DELAY_MAX_S);
        error.retry_after = delay.map(Duration::from_secs_f64).or(error.retry_after).filter(|_| !misleading);
    }
    error
}

fn names_a_days_limit(detail: &Value) -> bool {
    names(detail).any(|id| id.contains("PerDay"))
}

/// Whether all limits that are used up are the model's own; those of a day, if there is one.
fn is_of_model(details: &[Value]) -> bool {
    let days = details.iter().any(names_a_days_limit);
    let mut used_up = details.iter().flat_map(names).filter(|id| !days || id.contains("PerDay")).peekable();
    used_up.peek().is_some() && used_up.all(|id| id.contains("PerModel"))
}

/// The limits that a detail names.
fn names(detail: &Value) -> impl Iterator<Item = &str> {
    let violations = detail.get("violations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    violations.iter().filter_map(|violation| violation.get("quotaId")?.as_str())
}

/// A duration as Google writes it: `34.07s`.
fn seconds(text: &str) -> Option<f64> {
    text.strip_suffix('s')?.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(quota: &str, delay: &str) -> ModelError {
        let body = serde_json::json!({"error": {"code": 429, "message": "You exceeded your current quota",
            "status": "RESOURCE_EXHAUSTED", "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]}});
        from_response(429, &body.to_string(), "h")
    }

    #[test]
    fn a_minutes_limit_is_waited_for_and_a_days_is_not() {
        let minute = limited("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "34.4s");
        assert_eq!(minute.kind, ModelErrorKind::RateLimited);
        assert_eq!(minute.retry_after, Some(Duration::from_millis(34_400)));
        assert_eq!(limited("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "34s").kind, ModelErrorKind::Quota);
        assert_eq!(limited("Other", "3600s").kind, ModelErrorKind::Quota);
        // Another model has a day's limit of its own, but not an account's.
        assert!(limited("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "34s").of_model);
        assert!(limited("GenerateRequestsPerDayPerProjectPerModel", "3600s").of_model);
        assert!(!limited("GenerateRequestsPerDayPerProject", "34s").of_model);
        assert!(!limited("Other", "3600s").of_model);
    }

    #[test]
    fn lists_and_other_statuses_are_read() {
        let body = r#"[{"error":{"code":404,"message":"models/x is not found","status":"NOT_FOUND"}}]"#;
        assert_eq!(from_response(404, body, "h").kind, ModelErrorKind::UnknownModel);
        let body = r#"{"error":{"code":503,"message":"The model is overloaded","status":"UNAVAILABLE"}}"#;
        assert_eq!(from_words(body, "h").kind, ModelErrorKind::Overloaded);
        let body = r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.",
            "status":"INVALID_ARGUMENT"}}"#;
        assert_eq!(from_response(400, body, "h").kind, ModelErrorKind::Auth);
    }
}
