//! Addresses as users give them: with or without scheme, version and slashes.

use mcode_models::{ModelError, ModelErrorKind};
use reqwest::Url;

/// Path of the Messages wire below the version.
pub(crate) const MESSAGES_PATH: &[&str] = &["messages"];
/// Path of the Responses wire below the version.
pub(crate) const RESPONSES_PATH: &[&str] = &["responses"];
/// Path of the Chat Completions wire below the version.
pub(crate) const CHAT_PATH: &[&str] = &["chat", "completions"];

/// The address of an endpoint from a base URL as the user gave it: with or without scheme, `/v1` and slashes; a query
/// is kept. A base that already names the endpoint is taken as it is.
pub(crate) fn endpoint(base: &str, tail: &[&str]) -> Result<Url, ModelError> {
    let mut url = parsed(base)?;
    let mut segments = segments(&url);
    let names_endpoint = segments.len() >= tail.len() && segments[segments.len() - tail.len()..].iter().eq(tail.iter());
    if !names_endpoint {
        let versioned = segments.last().is_some_and(|last| last == "v1");
        let wants_version = segments.is_empty() || tail == MESSAGES_PATH;
        if wants_version && !versioned {
            segments.push("v1".to_owned());
        }
        segments.extend(tail.iter().map(|segment| (*segment).to_owned()));
    }
    url.set_path(&segments.join("/"));
    Ok(url)
}

/// A base URL as the user gave it; with the version where it names nothing but a host.
pub(crate) fn base(base: &str, version: &str) -> Result<Url, ModelError> {
    let mut url = parsed(base)?;
    let segments = segments(&url);
    url.set_path(&if segments.is_empty() { version.to_owned() } else { segments.join("/") });
    Ok(url)
}

fn segments(url: &Url) -> Vec<String> {
    url.path().split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

fn parsed(base: &str) -> Result<Url, ModelError> {
    let wrong = |reason: &str| {
        ModelError::new(
            ModelErrorKind::InvalidRequest,
            format!("the base URL '{}' can not be used: {reason}", without_secrets(base)),
        )
        .with_hint("Set base_url of the provider to something like https://host/v1.")
    };
    let trimmed = base.trim();
    let with_scheme = if trimmed.contains("://") {
        trimmed.to_owned()
    } else if is_loopback_name(trimmed.split(['/', ':', '?']).next().unwrap_or_default()) {
        format!("http://{trimmed}")
    } else {
        format!("https://{trimmed}")
    };
    let mut url = Url::parse(&with_scheme).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("it is not an http or https address"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// An address without user, password and query.
pub(crate) fn without_secrets(base: &str) -> String {
    let base = base.split(['?', '#']).next().unwrap_or_default();
    match base.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => base.to_owned(),
    }
}

/// Host and port for people.
pub(crate) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or("?");
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// Whether a host name or address is this machine.
pub(crate) fn is_loopback_name(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_joined_without_doubling() {
        for (base, tail, expected) in [
            ("http://h:1/v1", CHAT_PATH, "http://h:1/v1/chat/completions"),
            ("http://h:1/v1/", CHAT_PATH, "http://h:1/v1/chat/completions"),
            ("http://h:1/x/v1//", CHAT_PATH, "http://h:1/x/v1/chat/completions"),
            ("http://h:1", CHAT_PATH, "http://h:1/v1/chat/completions"),
            ("http://h:1/v1/chat/completions", CHAT_PATH, "http://h:1/v1/chat/completions"),
            ("https://api.z.ai/api/paas/v4", CHAT_PATH, "https://api.z.ai/api/paas/v4/chat/completions"),
            ("http://h:1/v1?k=v&a=b", CHAT_PATH, "http://h:1/v1/chat/completions?k=v&a=b"),
            ("localhost:8080/v1", CHAT_PATH, "http://localhost:8080/v1/chat/completions"),
            ("api.example.com", CHAT_PATH, "https://api.example.com/v1/chat/completions"),
            ("http://h:1", MESSAGES_PATH, "http://h:1/v1/messages"),
            ("http://h:1/", MESSAGES_PATH, "http://h:1/v1/messages"),
            ("http://h:1/v1/", MESSAGES_PATH, "http://h:1/v1/messages"),
            ("https://api.minimax.io/anthropic/v1", MESSAGES_PATH, "https://api.minimax.io/anthropic/v1/messages"),
            ("https://api.kimi.com/coding/", MESSAGES_PATH, "https://api.kimi.com/coding/v1/messages"),
        ] {
            assert_eq!(endpoint(base, tail).unwrap().as_str(), expected, "{base}");
        }
        for bad in ["", "ftp://h/v1", "http://", "http://user:secret@:0:0"] {
            let error = endpoint(bad, CHAT_PATH).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::InvalidRequest, "{bad}");
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }
}
