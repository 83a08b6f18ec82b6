//! GitHub Copilot: the token of the login is exchanged for a short-lived one, which says where it is good for.

use mcode_models::{GivenKey, ModelRequest, PromptMessage, Secret};
use reqwest::{Client, Url};
use serde_json::Value;

use super::configured::checked;
use super::token::{self, Refused};
use crate::http::is_loopback_name;

/// How we are called in the headers that Copilot wants from editors.
const OURSELVES: &str = concat!("mcode/", env!("CARGO_PKG_VERSION"));
/// What a token without an end is good for, in milliseconds.
const USUAL_LIFE_MS: i64 = 20 * 60 * 1000;

/// A short-lived token.
#[derive(Debug, Clone)]
pub(crate) struct Derived {
    key: Secret,
    /// When it was given, milliseconds since 1970.
    pub(crate) given_at_ms: i64,
    /// When it ends, milliseconds since 1970.
    pub(crate) expires_at_ms: i64,
    base_url: Option<String>,
}

impl Derived {
    /// As it is sent.
    pub(crate) fn given(&self) -> GivenKey {
        GivenKey { key: self.key.clone(), headers: Vec::new(), base_url: self.base_url.clone() }
    }
}

/// Gets a short-lived token.
pub(crate) async fn exchange(client: &Client, url: &str, login: &Secret, now_ms: i64) -> Result<Derived, Refused> {
    let request = client
        .get(url)
        .header("authorization", format!("Bearer {}", login.expose()))
        .header("editor-version", OURSELVES)
        .header("editor-plugin-version", OURSELVES);
    let answer = token::answer(request, &[login.expose().to_owned()]).await?;
    read(&answer, url, now_ms)
}

fn read(answer: &Value, url: &str, now_ms: i64) -> Result<Derived, Refused> {
    let key = answer.get("token").and_then(Value::as_str).unwrap_or_default();
    let key = checked(key)
        .map_err(|why| Refused::Unreachable(format!("the answer of {} holds no token: {why}", token::host_of(url))))?;
    let end = answer.get("expires_at").and_then(token::whole).map(|seconds| seconds.saturating_mul(1000));
    let base_url = api_of(key.expose(), url);
    Ok(Derived { key, given_at_ms: now_ms, expires_at_ms: end.unwrap_or(now_ms + USUAL_LIFE_MS), base_url })
}

/// Where a token is good for: it names a proxy, whose neighbour the API is. A host that is not of the same company as the
/// one that was asked is left out of account.
fn api_of(token: &str, url: &str) -> Option<String> {
    let proxy = token.split(';').find_map(|part| part.trim().strip_prefix("proxy-ep="))?;
    let asked = Url::parse(url).ok()?;
    let asked_host = asked.host_str()?;
    if is_loopback_name(asked_host) && proxy.split(':').next().is_some_and(is_loopback_name) {
        return Some(format!("http://{proxy}"));
    }
    let host = proxy.strip_prefix("proxy.").map(|rest| format!("api.{rest}"))?;
    let company = asked_host.strip_prefix("api.").unwrap_or(asked_host);
    let own = host.ends_with(".githubcopilot.com") || host.ends_with(&format!(".{company}"));
    let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    (own && plain).then(|| format!("https://{host}"))
}

/// What Copilot wants to know of a request: who asks, for whom, and whether there are pictures.
pub(crate) fn headers(request: &ModelRequest) -> Vec<(String, String)> {
    let by_user = matches!(request.messages.last(), Some(PromptMessage::User(_)));
    let mut headers = vec![
        ("editor-version", OURSELVES),
        ("editor-plugin-version", OURSELVES),
        ("copilot-integration-id", "mcode"),
        ("openai-intent", "conversation-edits"),
        ("x-initiator", if by_user { "user" } else { "agent" }),
    ];
    if !request.media.is_empty() {
        headers.push(("copilot-vision-request", "true"));
    }
    headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_says_where_it_is_good_for_and_is_not_believed_everything() {
        let asked = "https://api.github.com/copilot_internal/v2/token";
        let company = "https://api.ghe.example.com/copilot_internal/v2/token";
        let local = "http://127.0.0.1:9/copilot_internal/v2/token";
        for (token, url, api) in [
            (
                "tid=1;proxy-ep=proxy.individual.githubcopilot.com;x=y",
                asked,
                Some("https://api.individual.githubcopilot.com"),
            ),
            ("tid=1;proxy-ep=proxy.ghe.example.com", company, Some("https://api.ghe.example.com")),
            ("tid=1;proxy-ep=127.0.0.1:7", local, Some("http://127.0.0.1:7")),
            ("tid=1;proxy-ep=127.0.0.1:7", asked, None),
            ("tid=1;proxy-ep=proxy.evil.example", asked, None),
            ("tid=1;proxy-ep=proxy.evil.example/x.githubcopilot.com", asked, None),
            ("tid=1", asked, None),
        ] {
            assert_eq!(api_of(token, url).as_deref(), api, "{token}");
        }
        let derived = read(&json!({"token": "t", "expires_at": 7}), asked, 1).unwrap();
        assert_eq!((derived.given_at_ms, derived.expires_at_ms), (1, 7_000));
        assert_eq!(read(&json!({"token": "t"}), asked, 1).unwrap().expires_at_ms, 1 + USUAL_LIFE_MS);
        assert!(read(&json!({}), asked, 0).is_err() && read(&json!({"token": "a\nb"}), asked, 0).is_err());
        assert!(!format!("{derived:?}").contains("\"t\""));
    }

    #[test]
    fn who_began_a_request_is_told() {
        let mut request = crate::testing::request("github-copilot/gpt-5.5");
        let initiator = |request: &ModelRequest| {
            headers(request).into_iter().find(|(name, _)| name == "x-initiator").map(|(_, value)| value)
        };
        assert_eq!(initiator(&request).as_deref(), Some("user"));
        request.messages.push(PromptMessage::Tools(vec![crate::testing::tool_answer(1, "a", "b")]));
        assert_eq!(initiator(&request).as_deref(), Some("agent"));
    }
}
