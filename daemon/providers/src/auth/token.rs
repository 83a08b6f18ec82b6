//! The token endpoint: codes and refresh tokens against access tokens (RFC 6749), read leniently.

use std::time::Duration;

use mcode_models::Secret;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde_json::Value;

use super::configured::KEY_BYTES_MAX;
use super::data::LoginData;
use super::jwt::Claims;
use crate::http;

/// How long an issuer may take for one answer.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Largest answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest span until an end that is believed: a hundred years.
const SPAN_SECONDS_MAX: i64 = 100 * 365 * 24 * 3600;
/// Longest text of an issuer that is told, in characters.
const WORDS_MAX: usize = 300;

/// What an issuer gave.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) access: Secret,
    /// Missing means: the old one stays good.
    pub(crate) refresh: Option<Secret>,
    /// When the access token ends, milliseconds since 1970.
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) claims: Claims,
}

/// Why an issuer gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It says no, in its own word (`invalid_grant`, `slow_down`, …).
    Said {
        /// The word; the status where it has none.
        code: String,
        /// Its words for people, without secrets.
        words: String,
        /// The pause that it asks for, in seconds.
        interval: Option<u64>,
        /// The status.
        status: u16,
    },
    /// It could not be asked; trying again may help.
    Unreachable(String),
}

impl Refused {
    /// In words, for people.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Said { code, words, .. } if words.is_empty() => code.clone(),
            Self::Said { code, words, .. } => format!("{words} ({code})"),
            Self::Unreachable(words) => words.clone(),
        }
    }

    /// Whether the issuer is out of order rather than unwilling.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Said { status, .. } => *status >= 500 || *status == 429 || *status == 408,
        }
    }
}

/// Exchanges a code.
pub(crate) async fn exchange(
    client: &Client,
    data: &LoginData,
    code: &Secret,
    verifier: &Secret,
    redirect_uri: &str,
    now_ms: i64,
) -> Result<Grant, Refused> {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.expose()),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier.expose()),
    ];
    let answer = ask(client, data, &data.token_url, &fields).await?;
    grant(&answer, now_ms)
}

/// Exchanges a refresh token.
pub(crate) async fn refresh(client: &Client, data: &LoginData, token: &Secret, now_ms: i64) -> Result<Grant, Refused> {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token.expose())];
    let answer = ask(client, data, &data.token_url, &fields).await?;
    grant(&answer, now_ms)
}

/// Posts a form with who asks, and gives the answer as JSON.
pub(crate) async fn ask(
    client: &Client,
    data: &LoginData,
    url: &str,
    fields: &[(&str, &str)],
) -> Result<Value, Refused> {
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    let request = client.post(url).header("content-type", kind).body(form(data, fields));
    answer(request, &hidden(data, fields)).await
}

fn form(data: &LoginData, fields: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields).append_pair("client_id", &data.client_id);
    if let Some(secret) = &data.client_secret {
        form.append_pair("client_secret", secret.expose());
    }
    form.finish()
}

/// What must not stand in an error, even when the issuer repeats it.
fn hidden(data: &LoginData, fields: &[(&str, &str)]) -> Vec<String> {
    let secret =
        |name: &str| ["code", "code_verifier", "refresh_token", "device_code", "device_auth_id"].contains(&name);
    let values = fields.iter().filter(|(name, _)| secret(name)).map(|(_, value)| (*value).to_owned());
    values.chain(data.client_secret.as_ref().map(|secret| secret.expose().to_owned())).collect()
}

/// Sends a request and reads its answer, both bounded.
pub(crate) async fn answer(request: RequestBuilder, hidden: &[String]) -> Result<Value, Refused> {
    let asking = async {
        let request = request.header(ACCEPT, HeaderValue::from_static("application/json"));
        let mut response = request.send().await.map_err(|error| {
            let host = error.url().map_or_else(|| "the issuer".to_owned(), http::host);
            Refused::Unreachable(http::transport(&error.without_url(), &host).message)
        })?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES_MAX => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Ok(Some(_)) => return Err(Refused::Unreachable("the issuer's answer is too large".to_owned())),
                Err(_) => return Err(Refused::Unreachable("the issuer broke the connection".to_owned())),
            }
        }
        judged(status, &body, hidden)
    };
    match tokio::time::timeout(ANSWER_WAIT, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Refused::Unreachable(format!("no answer from the issuer for {} s", ANSWER_WAIT.as_secs()))),
    }
}

/// Errors come with status 200 too; what is not JSON is told by its status.
fn judged(status: u16, body: &[u8], hidden: &[String]) -> Result<Value, Refused> {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let error = value.as_ref().and_then(|value| value.get("error"));
    let code = error.and_then(|error| match error {
        Value::String(code) => Some(code.clone()),
        Value::Object(inner) => ["code", "type"].iter().find_map(|key| inner.get(*key)?.as_str()).map(str::to_owned),
        _ => None,
    });
    if code.is_none()
        && (200..300).contains(&status)
        && let Some(value) = value
    {
        return Ok(value);
    }
    let words = value.as_ref().and_then(|value| {
        let inner = error.and_then(|error| error.get("message"));
        value.get("error_description").or(inner).or_else(|| value.get("message"))?.as_str().map(str::to_owned)
    });
    let interval = value.as_ref().and_then(|value| whole(value.get("interval")?));
    Err(Refused::Said {
        code: cleaned(&code.unwrap_or_else(|| format!("status {status}")), hidden),
        words: cleaned(&words.unwrap_or_default(), hidden),
        interval: interval.and_then(|seconds| u64::try_from(seconds).ok()),
        status,
    })
}

/// An issuer's words: short, in one line, without what is secret.
pub(crate) fn cleaned(text: &str, hidden: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in hidden.iter().filter(|secret| secret.len() >= 4) {
        text = text.replace(secret.as_str(), "***");
    }
    let text: String = crate::failure::redact(&text, None).chars().take(WORDS_MAX).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A number, or a number in quotes.
pub(crate) fn whole(value: &Value) -> Option<i64> {
    match value {
        #[allow(clippy::cast_possible_truncation, reason = "fractions of a second are of no use")]
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Reads the answer of a token endpoint.
pub(crate) fn grant(answer: &Value, now_ms: i64) -> Result<Grant, Refused> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let access = text("access_token")
        .filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or_else(|| Refused::Unreachable("the issuer's answer holds no access token".to_owned()))?;
    let refresh = text("refresh_token");
    if access.len().max(refresh.map_or(0, str::len)) > KEY_BYTES_MAX {
        return Err(Refused::Unreachable(format!("a token of the issuer is longer than {KEY_BYTES_MAX} bytes")));
    }
    let claims = Claims::of(text("id_token").unwrap_or_default()).or(Claims::of(access));
    let span = answer.get("expires_in").and_then(whole).filter(|seconds| (1..SPAN_SECONDS_MAX).contains(seconds));
    let told = span.map(|seconds| now_ms.saturating_add(seconds * 1000));
    // The end of the id token says nothing about the access token.
    let own = Claims::of(access).expires_at.map(|seconds| seconds.saturating_mul(1000));
    Ok(Grant { access: Secret::new(access), refresh: refresh.map(Secret::new), expires_at_ms: told.or(own), claims })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lenient_answers_are_read() {
        let read = |answer: Value| grant(&answer, 1_000).unwrap();
        let bare = read(json!({"access_token": "a"}));
        assert_eq!((bare.access.expose(), bare.refresh, bare.expires_at_ms), ("a", None, None));
        for span in [json!(60), json!("60"), json!(60.5)] {
            assert_eq!(read(json!({"access_token": "a", "expires_in": span})).expires_at_ms, Some(61_000));
        }
        for span in [json!(0), json!(-5), json!(i64::MAX), json!("soon"), json!(null)] {
            assert_eq!(read(json!({"access_token": "a", "expires_in": span})).expires_at_ms, None);
        }
        let (longest, longer) = ("x".repeat(KEY_BYTES_MAX), "x".repeat(KEY_BYTES_MAX + 1));
        read(json!({"access_token": longest, "refresh_token": longest}));
        for answer in [
            json!({}),
            json!({"access_token": ""}),
            json!({"access_token": "a\nb"}),
            json!("x"),
            json!({"access_token": longer}),
            json!({"access_token": "a", "refresh_token": longer}),
        ] {
            assert!(matches!(grant(&answer, 0), Err(Refused::Unreachable(_))), "{answer}");
        }
    }

    #[test]
    fn refusals_are_read_in_every_form_and_hold_no_secret() {
        let hidden = vec!["the-refresh-token".to_owned()];
        let said = |status: u16, body: &str| match judged(status, body.as_bytes(), &hidden) {
            Err(Refused::Said { code, words, .. }) => (code, words),
            other => panic!("{other:?}"),
        };
        for (status, body, code, words) in [
            (
                400,
                r#"{"error":"invalid_grant","error_description":"the-refresh-token is old"}"#,
                "invalid_grant",
                "*** is old",
            ),
            (200, r#"{"error":"authorization_pending"}"#, "authorization_pending", ""),
            (401, r#"{"error":{"code":"refresh_token_reused","message":"used"}}"#, "refresh_token_reused", "used"),
            (502, "<html>bad</html>", "status 502", ""),
            (200, "not json", "status 200", ""),
        ] {
            assert_eq!(said(status, body), (code.to_owned(), words.to_owned()), "{body}");
        }
        assert!(judged(200, br#"{"access_token":"a"}"#, &hidden).is_ok());
        let slow = judged(400, br#"{"error":"slow_down","interval":"9"}"#, &hidden);
        assert!(matches!(slow, Err(Refused::Said { interval: Some(9), .. })), "{slow:?}");
        assert!(Refused::Unreachable(String::new()).is_passing());
    }
}
