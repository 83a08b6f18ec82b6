//! Taking secrets out of text that goes to a log, an error message or the database.
//!
//! Two ways to know a secret: its shape (the prefixes that providers give their keys, private keys, tokens in headers),
//! and its value, for the keys that a run was given. A shape can be missed and a value can be written otherwise, so this
//! is the last net and no reason to be careless before it.

use std::borrow::Cow;

mod shapes;
#[cfg(test)]
mod tests;

use shapes::{LINES, NAMES, Of, SHAPES};

/// Shortest value that is taken for a secret of its own; shorter ones stand in too much other text.
pub const VALUE_BYTES_MIN: usize = 8;

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

/// Whether a text is or holds what looks like a secret: a key of a known shape, an address with a password, a header.
#[must_use]
pub fn looks_like_a_key(text: &str) -> bool {
    matches!(redact(text), Cow::Owned(_))
}

/// A secret that begins at `at`: what of it goes, and what it is. All borders are between ASCII characters.
fn found(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    let begins = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if begins {
        let rest = &bytes[at..];
        match rest.first()? {
            b'-' => return private_key(bytes, at),
            b'e' if rest.starts_with(b"eyJ") => return web_token(bytes, at),
            byte if byte.is_ascii_digit() => return telegram(bytes, at),
            byte if byte.is_ascii_alphabetic() => {}
            _ => return None,
        }
        for (prefix, of, least, what) in SHAPES {
            if rest.starts_with(prefix.as_bytes()) {
                let length = run(&rest[prefix.len()..], *of);
                // Digits in a longer word are no key.
                let ends =
                    !matches!(of, Of::Hex) || !rest.get(prefix.len() + length).is_some_and(u8::is_ascii_alphanumeric);
                if length >= *least && ends {
                    return Some((at, at + prefix.len() + length, what));
                }
            }
        }
        return bearer(bytes, at).or_else(|| named(bytes, at)).or_else(|| line(bytes, at));
    }
    // `DB_PASSWORD=…`
    if bytes[at - 1] == b'_' && bytes[at].is_ascii_alphabetic() {
        return named(bytes, at);
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
    let mut length = run(&bytes[from..], Of::Any);
    // `authorization: token …`: the second word is the secret.
    let second = from + length + 1;
    if separated && name.ends_with("authorization") && bytes.get(second - 1) == Some(&b' ') {
        (from, length) = (second, run(&bytes[second..], Of::Any));
    }
    (separated && length >= NAMED_BYTES_MIN && !bytes[from..].starts_with(b"[redacted")).then_some((
        from,
        from + length,
        "",
    ))
}

/// `Cookie: a=b; c=d`, to the end of the line or of the text that it stands in.
fn line(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    let name = LINES.iter().find(|name| starts_with_ignoring_case(&bytes[at..], name))?;
    let colon = at + name.len();
    let from = colon + 1 + bytes.get(colon + 1..)?.iter().take_while(|byte| **byte == b' ').count();
    let length = bytes[from..].iter().take_while(|byte| !b"\r\n\"'".contains(byte)).count();
    let value = &bytes[from..from + length];
    (bytes[colon] == b':' && length >= NAMED_BYTES_MIN && value.contains(&b'=')).then_some((from, from + length, ""))
}

/// `123456789:AA…`, the token of a bot.
fn telegram(bytes: &[u8], at: usize) -> Option<(usize, usize, &'static str)> {
    const TOKEN_BYTES: usize = 35;
    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = bytes[at + digits..].strip_prefix(b":AA")?;
    let to = at + digits + 1 + TOKEN_BYTES;
    ((8..=10).contains(&digits) && run(rest, Of::Url) + 2 == TOKEN_BYTES).then_some((at, to, "Telegram token"))
}

fn password_of_url(bytes: &[u8], from: usize) -> Option<(usize, usize, &'static str)> {
    let end = bytes[from..].iter().position(|byte| b"/ \n\"'<>?#".contains(byte)).unwrap_or(bytes.len() - from);
    let authority = &bytes[from..from + end];
    let at_sign = authority.iter().rposition(|byte| *byte == b'@')?;
    let colon = authority[..at_sign].iter().position(|byte| *byte == b':')?;
    let (start, stop) = (from + colon + 1, from + at_sign);
    (stop > start && !bytes[start..stop].starts_with(b"[redacted")).then_some((start, stop, ""))
}
