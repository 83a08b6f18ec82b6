//! From what a server said to what can be done about it.

use std::time::Duration;

use mcode_env::{Clock, SystemClock};
use mcode_models::{ModelError, ModelErrorKind};
use serde_json::Value;

/// The most characters of a server's own words in an error.
pub const MAX_WORDS: usize = 2_000;

/// What a server said of a failure, in whichever wire.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Failure {
    /// HTTP status, from the response or from a numeric code in the body.
    pub(crate) status: Option<u16>,
    /// `type` and `code`, as far as given.
    pub(crate) codes: Vec<String>,
    /// The words.
    pub(crate) message: String,
    /// The generation that the provider refused (Groq).
    pub(crate) failed_generation: Option<String>,
    /// When a used-up plan starts again, seconds since 1970 UTC.
    pub(crate) resets_at: Option<i64>,
    /// The same in seconds from now.
    pub(crate) resets_in: Option<f64>,
    /// The request field that is at fault.
    pub(crate) field: Option<String>,
}

impl Failure {
    /// Reads an error body: `{"error": {…}}`, `{"error": "…"}`, `[{"error": …}]`, `{"message": …}` or plain text.
    pub(crate) fn from_body(status: Option<u16>, body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => Self::from_value(status, &value),
            Err(_) => Self { status, message: shorten(&plain_text(body)), ..Self::default() },
        }
    }

    /// As [`Failure::from_body`] for parsed JSON.
    pub(crate) fn from_value(status: Option<u16>, value: &Value) -> Self {
        let value = value.get(0).filter(|_| value.is_array()).unwrap_or(value);
        let error = match value.get("error") {
            Some(error) if !error.is_null() => error,
            _ => value,
        };
        let mut failure = Self { status, ..Self::default() };
        if let Some(text) = error.as_str() {
            failure.message = shorten(text);
            return failure;
        }
        for key in ["type", "code", "status"] {
            match error.get(key) {
                Some(Value::String(code)) => failure.codes.push(code.clone()),
                Some(Value::Number(code)) => {
                    let code = code.as_u64().and_then(|code| u16::try_from(code).ok());
                    failure.status = failure.status.or(code.filter(|code| (400..600).contains(code)));
                }
                _ => {}
            }
        }
        let words = ["message", "detail", "error_description"].iter().find_map(|key| error.get(*key));
        failure.message = match words {
            Some(Value::String(text)) => shorten(text),
            Some(other) => shorten(&other.to_string()),
            None => String::new(),
        };
        // OpenRouter hides the upstream's words one level below.
        if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
            let name = error.pointer("/metadata/provider_name").and_then(Value::as_str).unwrap_or("upstream");
            failure.message = shorten(&format!("{} ({name}: {raw})", failure.message));
        }
        failure.failed_generation = error.get("failed_generation").and_then(Value::as_str).map(shorten);
        failure.resets_at = error.get("resets_at").and_then(Value::as_i64);
        failure.resets_in = error.get("resets_in_seconds").and_then(Value::as_f64);
        failure.field = error.get("param").and_then(Value::as_str).map(str::to_owned);
        failure
    }

    /// What kind of failure it is.
    pub(crate) fn kind(&self) -> ModelErrorKind {
        let words = self.message.to_ascii_lowercase();
        if self.has_code(&["tool_use_failed"]) {
            return ModelErrorKind::BadToolCall;
        }
        if self.has_code(QUOTA_CODES) || QUOTA_WORDS.iter().any(|text| words.contains(text)) {
            return ModelErrorKind::Quota;
        }
        if self.has_code(&["context_length_exceeded", "request_too_large", "model_context_window_exceeded"])
            || is_overflow(&words)
        {
            return ModelErrorKind::Overflow;
        }
        if self.has_code(&["overloaded_error", "server_is_overloaded", "slow_down", "overloaded"]) {
            return ModelErrorKind::Overloaded;
        }
        if self.has_code(&["model_not_found", "not_found_error"]) && (words.contains("model") || words.is_empty()) {
            return ModelErrorKind::UnknownModel;
        }
        // Google has no status of its own for it.
        if words.contains("api key not valid") {
            return ModelErrorKind::Auth;
        }
        let kind = self.status.and_then(|status| kind_of_status(status, &words));
        match kind.unwrap_or_else(|| self.kind_of_words(&words)) {
            ModelErrorKind::InvalidRequest if is_about_media(&words) => ModelErrorKind::RefusedMedia,
            kind => kind,
        }
    }

    fn kind_of_words(&self, words: &str) -> ModelErrorKind {
        if self.has_code(&["rate_limit_error", "rate_limit_exceeded", "too_many_requests", "RESOURCE_EXHAUSTED"])
            || words.contains("rate limit")
            || words.contains("try again in")
        {
            return ModelErrorKind::RateLimited;
        }
        if words.contains("overloaded") || words.contains("no capacity") {
            return ModelErrorKind::Overloaded;
        }
        if self.has_code(&["authentication_error", "permission_error", "invalid_api_key"]) {
            return ModelErrorKind::Auth;
        }
        if self.has_code(&["invalid_request_error", "invalid_value", "invalid_prompt", "not_found_error"]) {
            return ModelErrorKind::InvalidRequest;
        }
        ModelErrorKind::Server
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|code| codes.contains(&code.as_str()))
    }

    /// How long it is until a used-up plan starts again.
    fn until_reset(&self) -> Option<Duration> {
        let now = SystemClock.now().millis() / 1000;
        #[allow(clippy::cast_precision_loss, reason = "seconds of a wait are far below 2^52")]
        let from_moment = self.resets_at.map(|moment| moment.saturating_sub(now) as f64);
        let seconds = from_moment.or(self.resets_in).filter(|seconds| *seconds > 0.0)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// The error for the agent. `host` is who said it.
    pub(crate) fn into_error(self, host: &str) -> ModelError {
        let kind = self.kind();
        let mut message = match (self.status, self.message.is_empty()) {
            (Some(status), true) => format!("{host} answered with status {status} and no words"),
            (Some(status), false) => format!("{host} answered with status {status}: {}", self.message),
            (None, true) => format!("{host} reported an error without words"),
            (None, false) => format!("{host} reported: {}", self.message),
        };
        if let Some(generation) = &self.failed_generation {
            message.push_str("\nThe model had written: ");
            message.push_str(generation);
        }
        if let Some(moment) = self.resets_at.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
            message.push_str(&format!(" (starts again at {moment})"));
        }
        let mut error = ModelError::new(kind, message);
        error.status = self.status;
        if kind.is_retryable() {
            error.retry_after = delay_in_words(&self.message);
        }
        if error.is_limit() {
            error.retry_after = self.until_reset().or(error.retry_after);
        }
        error.hint = hint(kind).to_owned();
        error
    }
}

fn kind_of_status(status: u16, words: &str) -> Option<ModelErrorKind> {
    Some(match status {
        401 | 403 => ModelErrorKind::Auth,
        402 => ModelErrorKind::Quota,
        404 if words.contains("model") => ModelErrorKind::UnknownModel,
        408 | 409 | 425 => ModelErrorKind::Server,
        413 => ModelErrorKind::Overflow,
        // Cerebras answers a prompt that is too long without a word.
        400 if words.is_empty() => ModelErrorKind::Overflow,
        429 => ModelErrorKind::RateLimited,
        503 | 529 => ModelErrorKind::Overloaded,
        500..=599 => ModelErrorKind::Server,
        300..=499 => ModelErrorKind::InvalidRequest,
        _ => return None,
    })
}

fn hint(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::Auth => "Check the key of this provider and what it is allowed to do.",
        ModelErrorKind::Quota => {
            "Add credit or wait for the plan to start again, or choose another model: mcode models list"
        }
        ModelErrorKind::UnknownModel => "Check the model's name; `mcode models list` lists the known ones.",
        ModelErrorKind::Overflow => "Say less at once, or choose a model with a larger window: mcode models list",
        ModelErrorKind::RefusedMedia => {
            "Ask again: the pictures of this thread are left out from now on. Or choose a model that takes them."
        }
        ModelErrorKind::InvalidRequest => {
            "Read what the provider says about it, or choose another model: mcode models list"
        }
        ModelErrorKind::RateLimited | ModelErrorKind::Overloaded => {
            "Try again later, or choose another model: mcode models list"
        }
        ModelErrorKind::Server | ModelErrorKind::Transport | ModelErrorKind::Protocol => {
            "Try again, or see where and with what it is asked: mcode providers list"
        }
        _ => "",
    }
}

const QUOTA_CODES: &[&str] = &[
    "insufficient_quota",
    "billing_error",
    "credit_balance_exhausted",
    "usage_limit_reached",
    "usage_not_included",
    "insufficient_balance",
];

const QUOTA_WORDS: &[&str] =
    &["credit balance is too low", "insufficient balance", "insufficient credits", "exceeded your current quota"];

/// Texts by which the many servers say that the prompt is too long; lower case.
const OVERFLOW_WORDS: &[&str] = &[
    "prompt is too long",
    "input is too long for requested model",
    "input length and `max_tokens` exceed context limit",
    "input length and max_tokens exceed context limit",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "maximum prompt length is",
    "reduce the length of the messages",
    "maximum context length is",
    "exceeds the available context size",
    "greater than the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "maximum context length",
    "model_context_window_exceeded",
    "prompt too long; exceeded",
    "context_length_exceeded",
    "too many tokens",
    "token limit exceeded",
];

fn is_overflow(words: &str) -> bool {
    let about_rate = words.contains("rate limit") || words.contains("too many requests");
    if about_rate || words.starts_with("throttling") {
        return false;
    }
    OVERFLOW_WORDS.iter().any(|text| words.contains(text))
        || (words.contains("input token count") && words.contains("exceeds the maximum"))
}

/// Words by which servers speak of a picture or a document that they do not take; lower case.
const MEDIA_WORDS: &[&str] = &[
    "image",
    "images",
    "image_url",
    "input_image",
    "media_type",
    "picture",
    "pictures",
    "pdf",
    "inline_data",
    "inlinedata",
    "multimodal",
    "vision",
];

fn is_about_media(words: &str) -> bool {
    words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| MEDIA_WORDS.contains(&word))
}

/// The delay in texts such as `Try again in 4 seconds`, `retry after 6m0s`, `Please retry in 17.5s`.
pub(crate) fn delay_in_words(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    ["try again in", "retry in", "retry after", "reset after"].iter().find_map(|start| {
        let from = lower.find(start)? + start.len();
        parse_span(lower[from..].trim_start_matches([' ', ':']))
    })
}

/// `4 seconds`, `4s`, `250ms`, `6m0s`, `1h2m`, `7` (seconds).
pub(crate) fn parse_span(mut text: &str) -> Option<Duration> {
    let mut total = 0f64;
    let mut found = false;
    loop {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let Ok(number) = text[..digits].trim_end_matches('.').parse::<f64>() else { break };
        let after = text[digits..].trim_start_matches(' ');
        let unit_length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let factor = match &after[..unit_length] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "" if !found => 1.0,
            _ => break,
        };
        total += number * factor;
        found = true;
        if unit_length == 0 {
            break;
        }
        text = &after[unit_length..];
    }
    if !found {
        return None;
    }
    Duration::try_from_secs_f64(total).ok()
}

/// Cuts a server's words to [`MAX_WORDS`].
fn shorten(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The words of an HTML error page, or the text as it is.
pub(crate) fn plain_text(body: &str) -> String {
    if !body.trim_start().starts_with('<') {
        return body.to_owned();
    }
    let mut words = String::new();
    let mut inside = false;
    for c in body.chars() {
        match c {
            '<' => inside = true,
            '>' => {
                inside = false;
                words.push(' ');
            }
            _ if !inside => words.push(c),
            _ => {}
        }
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Takes a key out of a text, and whatever looks like a key of the known shapes.
pub(crate) fn redact(text: &str, key: Option<&str>) -> String {
    let mut text = match key {
        Some(key) if key.len() >= 4 => text.replace(key, "***"),
        _ => text.to_owned(),
    };
    for prefix in ["sk-", "gsk_", "xai-", "Bearer "] {
        let mut from = 0;
        while let Some(found) = text[from..].find(prefix) {
            let start = from + found + prefix.len();
            let length = text[start..]
                .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.'))
                .unwrap_or(text.len() - start);
            if length >= 8 {
                text.replace_range(start..start + length, "***");
            }
            from = start;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, body: &str) -> ModelErrorKind {
        Failure::from_body(Some(status), body).kind()
    }

    #[test]
    fn statuses_codes_and_words_are_told_apart() {
        use ModelErrorKind as K;
        for (status, body, expected) in [
            (401, r#"{"error":{"message":"bad key"}}"#, K::Auth),
            (402, "", K::Quota),
            (429, r#"{"error":{"code":"insufficient_quota","message":"m"}}"#, K::Quota),
            (429, r#"{"error":{"message":"Rate limited"}}"#, K::RateLimited),
            (429, "Too many tokens, rate limit", K::RateLimited),
            (400, "", K::Overflow),
            (400, r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#, K::Overflow),
            (400, r#"{"error":{"message":"bad field"}}"#, K::InvalidRequest),
            (
                400,
                r#"{"error":{"message":"image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"}}"#,
                K::RefusedMedia,
            ),
            (400, r#"{"error":{"message":"provisioned throughput is required"}}"#, K::InvalidRequest),
            (404, r#"{"error":{"message":"No endpoints found that support image input"}}"#, K::RefusedMedia),
            (404, r#"{"error":{"type":"not_found_error","message":"model: x"}}"#, K::UnknownModel),
            (404, "<html><body>Not Found</body></html>", K::InvalidRequest),
            (413, r#"{"error":{"type":"request_too_large","message":"m"}}"#, K::Overflow),
            (500, "oops", K::Server),
            (502, "<h1>Bad gateway</h1>", K::Server),
            (529, r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, K::Overloaded),
            (400, r#"{"error":{"code":"tool_use_failed","message":"m"}}"#, K::BadToolCall),
        ] {
            assert_eq!(kind(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn delays_are_read_from_words() {
        for (text, millis) in [
            ("Rate limit reached. Try again in 4 seconds.", Some(4_000)),
            ("try again in 250ms", Some(250)),
            ("Please retry in 34.07s.", Some(34_070)),
            ("retry after 6m0s", Some(360_000)),
            ("retry after 7", Some(7_000)),
            ("try again in a while", None),
            ("try later", None),
        ] {
            assert_eq!(delay_in_words(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn keys_do_not_get_into_errors() {
        let text = redact("key verysecret or sk-proj-abcdefgh123 of Bearer abcdefghij.k is wrong", Some("verysecret"));
        assert_eq!(text, "key *** or sk-*** of Bearer *** is wrong");
    }

    #[test]
    fn words_are_bounded() {
        let failure = Failure::from_body(Some(500), &"é".repeat(MAX_WORDS * 3));
        assert_eq!(failure.message.chars().count(), MAX_WORDS + 1);
    }
}
