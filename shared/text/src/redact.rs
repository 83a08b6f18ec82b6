//! Taking secrets out of text that goes to a log, an error message or the database.
//!
//! Two ways to know a secret: its shape (the prefixes that providers give their keys, private keys, tokens in headers),
//! and its value, for the keys that a run was given. A shape can be missed and a value can be written otherwise, so this
//! is the last net and no reason to be careless before it.

use std::borrow::Cow;

/// Shortest value that is taken for a secret of its own; shorter ones stand in too much other text.
pub const VALUE_BYTES_MIN: usize = 8;

/// Kinds of characters of a token.
#[derive(Clone, Copy)]
enum Of {
    /// Letters and digits.
    Plain,
    /// Also `-` and `_`.
    Url,
    /// Also `.`, `/`, `+` and `=`.
    Any,
    /// Capitals and digits.
    Upper,
}

impl Of {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Plain => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Self::Any => byte.is_ascii_alphanumeric() || b"-_./+=~".contains(&byte),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        }
    }
}

/// What a token begins with, what follows, how many of that at least, and what it is called.
const SHAPES: &[(&str, Of, usize, &str)] = &[
    ("sk-ant-", Of::Url, 12, "Anthropic key"),
    ("sk-or-", Of::Url, 16, "OpenRouter key"),
    ("sk-", Of::Url, 20, "OpenAI key"),
    ("github_pat_", Of::Url, 20, "GitHub token"),
    ("ghp_", Of::Plain, 20, "GitHub token"),
    ("gho_", Of::Plain, 20, "GitHub token"),
    ("ghu_", Of::Plain, 20, "GitHub token"),
    ("ghs_", Of::Plain, 20, "GitHub token"),
    ("ghr_", Of::Plain, 20, "GitHub token"),
    ("glpat-", Of::Url, 16, "GitLab token"),
    ("AKIA", Of::Upper, 16, "AWS key id"),
    ("ASIA", Of::Upper, 16, "AWS key id"),
    ("AIza", Of::Url, 30, "Google key"),
    ("ya29.", Of::Any, 20, "Google token"),
    ("GOCSPX-", Of::Url, 16, "Google secret"),
    ("xoxb-", Of::Url, 10, "Slack token"),
    ("xoxp-", Of::Url, 10, "Slack token"),
    ("xoxa-", Of::Url, 10, "Slack token"),
    ("xoxr-", Of::Url, 10, "Slack token"),
    ("xoxs-", Of::Url, 10, "Slack token"),
    ("xapp-", Of::Url, 10, "Slack token"),
    ("gsk_", Of::Plain, 20, "Groq key"),
    ("xai-", Of::Url, 20, "xAI key"),
    ("hf_", Of::Plain, 20, "Hugging Face token"),
    ("npm_", Of::Plain, 30, "npm token"),
    ("sk_live_", Of::Plain, 16, "Stripe key"),
    ("rk_live_", Of::Plain, 16, "Stripe key"),
];

/// Names after which a value is a secret, in headers (`x-api-key: …`), assignments and JSON. Lower case.
const NAMES: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "api_key",
    "apikey",
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "aws_secret_access_key",
    "secretaccesskey",
    "aws_session_token",
    "password",
];

/// Shortest value after one of the names, in bytes.
const NAMED_BYTES_MIN: usize = 8;

/// Takes out secrets by their shapes, and the values that it was given.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("values", &self.values.len()).finish()
    }
}

impl Redactor {
    /// One that also takes out these values, wherever they stand.
    #[must_use]
    pub fn knowing<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut values: Vec<String> = values
            .into_iter()
            .map(str::trim)
            .filter(|value| value.len() >= VALUE_BYTES_MIN)
            .map(str::to_owned)
            .collect();
        // A value may begin another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values }
    }

    /// The text without the known values; what only looks like a secret stays.
    #[must_use]
    pub fn values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for value in &self.values {
            if out.contains(value.as_str()) {
                out = Cow::Owned(out.replace(value.as_str(), "[redacted]"));
            }
        }
        out
    }

    /// The text without known values and without what looks like a secret.
    #[must_use]
    pub fn all<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.values(text) {
            Cow::Borrowed(text) => redact(text),
            Cow::Owned(text) => Cow::Owned(redact(&text).into_owned()),
        }
    }
}

/// The text without what looks like a secret.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut out, mut kept, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        match found(bytes, at) {
            Some((from, to, what)) => {
                out.push_str(&text[kept..from]);
                out.push_str("[redacted");
                if !what.is_empty() {
                    out.push(' ');
                    out.push_str(what);
                }
                out.push(']');
                (kept, at) = (to, to);
            }
            None => at += 1,
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

/// Whether a text, taken whole, is a key of a known shape.
#[must_use]
pub fn looks_like_a_key(text: &str) -> bool {
    let text = text.trim();
    found(text.as_bytes(), 0).is_some_and(|(from, to, _)| from == 0 && to == text.len())
}

/// A secret that begins at `at`: what of it goes, and what it is. All borders are between ASCII characters.
fn found(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    let begins = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if begins {
        let rest = &bytes[at..];
        match rest.first()? {
            b'-' => return private_key(bytes, at),
            b'e' if rest.starts_with(b"eyJ") => return web_token(bytes, at),
            byte if byte.is_ascii_alphabetic() => {}
            _ => return None,
        }
        for (prefix, of, least, what) in SHAPES {
            if rest.starts_with(prefix.as_bytes()) {
                let length = run(&rest[prefix.len()..], *of);
                if length >= *least {
                    return Some((at, at + prefix.len() + length, what));
                }
            }
        }
        return bearer(bytes, at).or_else(|| named(bytes, at));
    }
    // `https://user:password@host`
    if bytes[at] == b':' && bytes[at..].starts_with(b"://") { password_of_url(bytes, at + 3) } else { None }
}

fn run(bytes: &[u8], of: Of) -> usize {
    bytes.iter().take_while(|byte| of.has(**byte)).count()
}

fn starts_with_ignoring_case(bytes: &[u8], word: &str) -> bool {
    bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// `-----BEGIN … PRIVATE KEY-----` and all of it; without an end, everything that follows.
fn private_key(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    const NAME_BYTES_MAX: usize = 40;
    let rest = bytes[at..].strip_prefix(b"-----BEGIN ")?;
    let name = find(&rest[..rest.len().min(NAME_BYTES_MAX)], b"PRIVATE KEY-----")?;
    let end = find(&rest[name..], b"-----END ").map(|end| name + end);
    let after = end.and_then(|end| find(&rest[end..], b"KEY-----").map(|close| end + close + b"KEY-----".len()));
    let to = after.map_or(bytes.len(), |after| at + b"-----BEGIN ".len() + after);
    Some((at, to, "private key"))
}

/// `header.payload.signature`, each in base64.
fn web_token(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    let mut to = at;
    for part in 0..3 {
        if part > 0 {
            if bytes.get(to) != Some(&b'.') {
                return None;
            }
            to += 1;
        }
        let length = run(&bytes[to..], Of::Url);
        if length < 4 && part < 2 {
            return None;
        }
        to += length;
    }
    Some((at, to, "token"))
}

fn bearer(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    let word = ["bearer ", "basic "].into_iter().find(|word| starts_with_ignoring_case(&bytes[at..], word))?;
    let from = at + word.len();
    let length = run(&bytes[from..], Of::Any);
    // "basic understanding" is no header.
    let digits = bytes[from..from + length].iter().any(|byte| byte.is_ascii_digit() || *byte == b'=');
    (length >= NAMED_BYTES_MIN && digits).then_some((from, from + length, ""))
}

/// `x-api-key: value`, `"api_key":"value"`, `password=value`.
fn named(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    let name = NAMES.iter().find(|name| starts_with_ignoring_case(&bytes[at..], name))?;
    let mut from = at + name.len();
    let mut separated = false;
    while let Some(byte) = bytes.get(from) {
        match byte {
            b':' | b'=' if !separated => separated = true,
            b'"' | b'\'' | b' ' | b'\\' => {}
            _ => break,
        }
        from += 1;
    }
    let length = run(&bytes[from..], Of::Any);
    if !separated || length < NAMED_BYTES_MIN {
        // `authorization: Bearer …`: the second word is the secret, and is found by itself.
        return None;
    }
    Some((from, from + length, ""))
}

fn password_of_url(bytes: &[u8], from: usize) -> Option<(usize, usize, &'static str)> {
    let end = bytes[from..].iter().position(|byte| b"/ \n\"'<>?#".contains(byte)).unwrap_or(bytes.len() - from);
    let authority = &bytes[from..from + end];
    let at_sign = authority.iter().rposition(|byte| *byte == b'@')?;
    let colon = authority[..at_sign].iter().position(|byte| *byte == b':')?;
    let (start, stop) = (from + colon + 1, from + at_sign);
    (stop > start && !bytes[start..stop].starts_with(b"[redacted")).then_some((start, stop, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here, so that no scanner takes this file for a leak.
    fn key(prefix: &str, rest: &str) -> String {
        format!("{prefix}{rest}")
    }

    #[test]
    fn keys_of_known_shapes_go() {
        let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
        for (secret, what) in [
            (key("sk-ant-", "api03-Abc_def-123456789012"), "Anthropic key"),
            (key("sk-proj-", long), "OpenAI key"),
            (key("sk-", long), "OpenAI key"),
            (key("sk-or-v1-", long), "OpenRouter key"),
            (key("ghp_", long), "GitHub token"),
            (key("github_pat_", "11ABCDEFG0abcdefghijkl_mnop"), "GitHub token"),
            (key("AKIA", "IOSFODNN7EXAMPLE"), "AWS key id"),
            (key("AIza", "SyA1234567890abcdefghijklmnopqrstuv"), "Google key"),
            (key("ya29.", long), "Google token"),
            (key("xoxb-", "1234567890-abcdefghij"), "Slack token"),
            (key("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_123"), "token"),
            (key("-----BEGIN RSA PRIVATE", " KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"), "private key"),
            (key("-----BEGIN PRIVATE", " KEY-----\nMIIE and no end"), "private key"),
        ] {
            let text = format!("before {secret}\n");
            let shown = redact(&text);
            assert!(shown.starts_with(&format!("before [redacted {what}]")), "{shown}");
            assert!(!shown.contains(&secret[secret.len() - 6..]) || what == "private key", "{shown}");
        }
    }

    #[test]
    fn values_behind_their_names_go() {
        for (text, wanted) in [
            ("x-api-key: abcdef123456", "x-api-key: [redacted]"),
            ("Authorization: Bearer abc.DEF-123456", "Authorization: Bearer [redacted]"),
            ("{\"api_key\":\"abcdef123456\"}", "{\"api_key\":\"[redacted]\"}"),
            ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted]"),
            ("see https://me:hunter22@host/x", "see https://me:[redacted]@host/x"),
            ("curl -u x 'password=correcthorse'", "curl -u x 'password=[redacted]'"),
            ("é password: très-1234567", "é password: très-1234567"),
        ] {
            assert_eq!(redact(text), wanted);
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in [
            "",
            "a task-force of sk-learn users, 100 % fine",
            "the token is missing; set ANTHROPIC_API_KEY",
            "basic understanding of authorization: see the manual",
            "desk-ant-1234567890123456789",
            "https://example.org:8080/path@x",
            "eyJ is how they begin",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}: {}", redact(text));
        }
    }

    #[test]
    fn the_values_of_a_run_go_wherever_they_stand() {
        let redactor = Redactor::knowing(["hunter2-and-more", "hunter2-and-more-still", "short", ""]);
        assert_eq!(redactor.values("x=hunter2-and-more-still;hunter2-and-more"), "x=[redacted];[redacted]");
        assert_eq!(redactor.values("short"), "short");
        assert!(!format!("{redactor:?}").contains("hunter2"));
        assert!(looks_like_a_key(&key("sk-ant-", "api03-Abc_def-123456789012")));
        assert!(!looks_like_a_key("see sk-learn"));
    }
}
