//! The token endpoint: codes and refresh tokens against access tokens (RFC 6749), read leniently.

use std::time::Duration;

use mcode_models::Secret;
use reqwest::header::{ACCEPT, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder, Url};
use serde_json::Value;

use super::configured::KEY_BYTES_MAX;
use super::data::{LoginData, Use};
use super::jwt::Claims;
use crate::failure::{plain_text, redact};
use crate::http;

/// How long an issuer may take for one answer.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Largest answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest span until an end that is believed: a hundred years.
const SPAN_SECONDS_MAX: i64 = 100 * 365 * 24 * 3600;
/// Longest text of an issuer that is told, in characters.
const WORDS_MAX: usize = 300;
/// Most of a body that is no JSON is looked at for words, in bytes.
const PAGE_BYTES_MAX: usize = 16 * 1024;

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
        /// Who says so: host and port.
        host: String,
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
    /// In words, for people: who said it, and what.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Said { host, code, words, .. } if words.is_empty() => format!("{host} answers with {code}"),
            Self::Said { host, code, words, status, .. } if *code == bare(*status) => {
                format!("{host} answers with {code}: {words}")
            }
            Self::Said { host, code, words, .. } => format!("{host} says: {words} ({code})"),
            Self::Unreachable(words) => words.clone(),
        }
    }

    /// What to do about it where nothing more is known of the login.
    pub(crate) fn hint(&self, provider: &str) -> String {
        let section = format!("[login.{provider}] of config.toml");
        let again = format!("mcode login {provider}");
        match self {
            Self::Unreachable(words) if words.contains("certificate") => {
                format!("If a private authority signs it, set SSL_CERT_FILE to its certificate, then: {again}")
            }
            Self::Unreachable(_) => format!("Check the network and the proxy (HTTPS_PROXY), then try again: {again}"),
            Self::Said { .. } if self.is_passing() => format!("Wait until the issuer is in order, then: {again}"),
            Self::Said { code, status, .. } => match code.as_str() {
                "invalid_client" | "unauthorized_client" => {
                    format!("Check client_id and client_secret under {section}, then: {again}")
                }
                "invalid_scope" => format!("Check scopes under {section}, then: {again}"),
                "redirect_uri_mismatch" | "invalid_redirect_uri" => {
                    format!("Have the client take the redirect that is under {section}, then: {again}")
                }
                "unsupported_grant_type" | "unsupported_response_type" => {
                    format!("Try another way; what there is says: {again} --help")
                }
                code if code == bare(*status) => {
                    format!("Check that the addresses under {section} are those of the issuer, then: {again}")
                }
                _ => format!("Begin anew with: {again}"),
            },
        }
    }

    /// The status that came with a refusal.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Said { status, .. } => Some(*status),
            Self::Unreachable(_) => None,
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

/// What stands for the word of an issuer that gives none.
fn bare(status: u16) -> String {
    format!("status {status}")
}

/// Host and port of an address, for people.
pub(crate) fn host_of(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "the issuer".to_owned(), |url| http::host(&url))
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
    grant(&answer, &data.token_url, now_ms)
}

/// Exchanges a refresh token.
pub(crate) async fn refresh(client: &Client, data: &LoginData, token: &Secret, now_ms: i64) -> Result<Grant, Refused> {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token.expose())];
    let answer = ask(client, data, &data.token_url, &fields).await?;
    grant(&answer, &data.token_url, now_ms)
}

/// Has a token taken back (RFC 7009), and what was made of it: the refresh token where there is one.
pub(crate) async fn revoke(
    client: &Client,
    data: &LoginData,
    url: &str,
    token: &Secret,
    hint: &str,
) -> Result<(), Refused> {
    let fields = [("token", token.expose()), ("token_type_hint", hint)];
    let answered = match data.becomes {
        Use::ChatGpt { .. } => {
            let body =
                serde_json::json!({"token": token.expose(), "token_type_hint": hint, "client_id": data.client_id});
            answer(client.post(url).json(&body), &hidden(data, &fields)).await
        }
        Use::Plain | Use::Copilot { .. } => ask(client, data, url, &fields).await,
    };
    match answered {
        // The answer has no content that means anything.
        Err(Refused::Said { status: status @ 200..=299, code, .. }) if code == bare(status) => Ok(()),
        answered => answered.map(drop),
    }
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
    let secret = |name: &str| {
        ["code", "code_verifier", "refresh_token", "token", "device_code", "device_auth_id"].contains(&name)
    };
    let values = fields.iter().filter(|(name, _)| secret(name)).map(|(_, value)| (*value).to_owned());
    values.chain(data.client_secret.as_ref().map(|secret| secret.expose().to_owned())).collect()
}

/// Sends a request and reads its answer, both bounded.
pub(crate) async fn answer(request: RequestBuilder, hidden: &[String]) -> Result<Value, Refused> {
    let (client, request) = request.header(ACCEPT, HeaderValue::from_static("application/json")).build_split();
    let request = request.map_err(|error| {
        Refused::Unreachable(format!("the issuer can not be asked: {}", mcode_text::chain(&error.without_url())))
    })?;
    let host = http::host(request.url());
    let asking = async {
        let sending = client.execute(request).await;
        let mut response =
            sending.map_err(|error| Refused::Unreachable(http::transport(&error.without_url(), &host).message))?;
        let status = response.status().as_u16();
        let leads_to = response.headers().get(LOCATION).filter(|_| response.status().is_redirection());
        let leads_to = leads_to.and_then(|to| to.to_str().ok()).map(http::without_secrets);
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES_MAX => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Ok(Some(_)) => return Err(Refused::Unreachable(format!("the answer of {host} is too large"))),
                Err(_) => return Err(Refused::Unreachable(format!("{host} broke the connection"))),
            }
        }
        judged(&host, status, &body, hidden).map_err(|refused| match (refused, leads_to) {
            (Refused::Said { host, code, interval, status, .. }, Some(to)) => {
                let words = cleaned(&format!("it leads to {to}, where no login is sent"), hidden);
                Refused::Said { host, code, words, interval, status }
            }
            (refused, _) => refused,
        })
    };
    match tokio::time::timeout(ANSWER_WAIT, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Refused::Unreachable(format!("no answer from {host} for {} s", ANSWER_WAIT.as_secs()))),
    }
}

/// Errors come with status 200 too; what is not JSON is told by its status and its first words.
fn judged(host: &str, status: u16, body: &[u8], hidden: &[String]) -> Result<Value, Refused> {
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
    let words = words.or_else(|| value.is_none().then(|| page_words(body)));
    let interval = value.as_ref().and_then(|value| whole(value.get("interval")?));
    Err(Refused::Said {
        host: host.to_owned(),
        code: cleaned(&code.unwrap_or_else(|| bare(status)), hidden),
        words: cleaned(&words.unwrap_or_default(), hidden),
        interval: interval.and_then(|seconds| u64::try_from(seconds).ok()),
        status,
    })
}

/// What a body says that is no JSON: the title of a page, else its first words.
fn page_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(PAGE_BYTES_MAX)]);
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|start| {
        let from = start + lower[start..].find('>')? + 1;
        let to = from + lower[from..].find("</title")?;
        Some(text[from..to].to_owned())
    });
    title.filter(|title| !title.trim().is_empty()).unwrap_or_else(|| plain_text(&text))
}

/// An issuer's words: short, in one line, without what is secret or moves a terminal.
pub(crate) fn cleaned(text: &str, hidden: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in hidden.iter().filter(|secret| secret.len() >= 4) {
        text = text.replace(secret.as_str(), "***");
    }
    let text: String = redact(&text, None).chars().take(WORDS_MAX).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    mcode_text::sanitize_line(&text).into_owned()
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

/// Reads the answer of the token endpoint at `url`.
pub(crate) fn grant(answer: &Value, url: &str, now_ms: i64) -> Result<Grant, Refused> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let access = text("access_token")
        .filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or_else(|| Refused::Unreachable(format!("the answer of {} holds no access token", host_of(url))))?;
    let refresh = text("refresh_token");
    if access.len().max(refresh.map_or(0, str::len)) > KEY_BYTES_MAX {
        let message = format!("a token of {} is longer than {KEY_BYTES_MAX} bytes", host_of(url));
        return Err(Refused::Unreachable(message));
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

    const URL: &str = "https://id.example.org/token?x=y";

    #[test]
    fn lenient_answers_are_read() {
        let read = |answer: Value| grant(&answer, URL, 1_000).unwrap();
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
            let refused = grant(&answer, URL, 0).unwrap_err();
            assert!(matches!(&refused, Refused::Unreachable(words) if words.contains("id.example.org")), "{answer}");
        }
    }

    #[test]
    fn refusals_are_read_in_every_form_and_hold_no_secret() {
        let hidden = vec!["the-refresh-token".to_owned()];
        let said = |status: u16, body: &str| judged("h:1", status, body.as_bytes(), &hidden).unwrap_err().told();
        for (status, body, told) in [
            (
                400,
                r#"{"error":"invalid_grant","error_description":"the-refresh-token is\n\u001b[2Jold"}"#,
                "h:1 says: *** is \\x1b[2Jold (invalid_grant)",
            ),
            (200, r#"{"error":"authorization_pending"}"#, "h:1 answers with authorization_pending"),
            (
                401,
                r#"{"error":{"code":"refresh_token_reused","message":"used"}}"#,
                "h:1 says: used (refresh_token_reused)",
            ),
            (
                502,
                "<html><head><style>a{}</style><TITLE lang=x>Bad\n Gateway</TITLE></head><body>nginx</body></html>",
                "h:1 answers with status 502: Bad Gateway",
            ),
            (503, "<p>the-refresh-token is <b>lost</b></p>", "h:1 answers with status 503: *** is lost"),
            (404, "", "h:1 answers with status 404"),
            (200, "not json", "h:1 answers with status 200: not json"),
            (500, &"x".repeat(2 * WORDS_MAX), &format!("h:1 answers with status 500: {}", "x".repeat(WORDS_MAX))),
        ] {
            assert_eq!(said(status, body), told, "{body}");
        }
        assert!(judged("h", 200, br#"{"access_token":"a"}"#, &hidden).is_ok());
        let slow = judged("h", 400, br#"{"error":"slow_down","interval":"9"}"#, &hidden);
        assert!(matches!(slow, Err(Refused::Said { interval: Some(9), .. })), "{slow:?}");
        assert!(Refused::Unreachable(String::new()).is_passing());
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let hint = |status: u16, body: &str| judged("h", status, body.as_bytes(), &[]).unwrap_err().hint("example");
        for (status, body, words) in [
            (401, r#"{"error":"invalid_client"}"#, "client_id and client_secret under [login.example]"),
            (400, r#"{"error":"invalid_scope"}"#, "scopes under [login.example]"),
            (404, "<html>not here</html>", "addresses under [login.example]"),
            (503, r#"{"error":"temporarily_unavailable"}"#, "Wait"),
            (400, r#"{"error":"invalid_grant"}"#, "Begin anew"),
        ] {
            let hint = hint(status, body);
            assert!(hint.contains(words) && hint.contains("mcode login example"), "{body}: {hint}");
        }
        for (words, hint) in [("h could not be reached", "HTTPS_PROXY"), ("the TLS certificate of h", "SSL_CERT_FILE")]
        {
            assert!(Refused::Unreachable(words.to_owned()).hint("example").contains(hint));
        }
    }
}
