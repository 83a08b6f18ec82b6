//! PKCE, states, and the codes that people paste.
//!
//! The `oauth2` crate was looked at: it refuses answers without `token_type`, intervals in quotes, and errors with status
//! 200, all of which the servers here send; what would be left of it is this file.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mcode_models::Secret;
use sha2::{Digest as _, Sha256};

use crate::http::is_loopback_name;

/// Longest text that is taken as a code, in bytes.
pub(crate) const PASTED_BYTES_MAX: usize = 16 * 1024;

/// What proves that whoever exchanges a code is who asked for it (RFC 7636).
#[derive(Debug, Clone)]
pub(crate) struct Pkce {
    /// Sent with the code.
    pub(crate) verifier: Secret,
    /// Sent to the browser.
    pub(crate) challenge: String,
}

impl Pkce {
    /// A fresh one.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self::of(URL_SAFE_NO_PAD.encode(mcode_env::random_bytes::<32>()?)))
    }

    fn of(verifier: String) -> Self {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        Self { verifier: Secret::new(verifier), challenge }
    }
}

/// A name of a login that nobody can guess.
pub(crate) fn state() -> std::io::Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(mcode_env::random_bytes::<24>()?))
}

/// What came back from the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The user agreed.
    Code {
        /// The code.
        code: Secret,
        /// The state that came with it; a bare code has none.
        state: Option<String>,
    },
    /// The issuer says no.
    Refused {
        /// Its word, such as `access_denied`.
        error: String,
        /// Its words for people.
        description: String,
        /// The state that came with it.
        state: Option<String>,
    },
}

impl Answer {
    /// The answer in a query; `None` when it holds neither a code nor an error.
    pub(crate) fn of_query(query: &str) -> Option<Self> {
        let (mut code, mut state, mut error, mut description) = (None, None, None, String::new());
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "code" => code = Some(value.into_owned()),
                "state" => state = Some(value.into_owned()),
                "error" => error = Some(value.into_owned()),
                "error_description" => description = value.into_owned(),
                _ => {}
            }
        }
        if let Some(error) = error.filter(|error| !error.is_empty()) {
            return Some(Self::Refused { error, description, state });
        }
        let code = Secret::new(code.filter(|code| !code.is_empty())?);
        Some(Self::Code { code, state })
    }

    /// What somebody pasted: the whole address, also without its scheme, `code#state`, `code=…&state=…` or the code alone.
    pub(crate) fn of_pasted(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > PASTED_BYTES_MAX {
            return None;
        }
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (address, query) = whole.split_once('?').unwrap_or((whole, ""));
        let found = [query, whole, fragment].into_iter().find_map(Self::of_query);
        if found.is_some() || text.contains("://") || is_of_this_machine(address) {
            return found;
        }
        let plain = !whole.is_empty() && !whole.contains(char::is_whitespace);
        let state = text.contains('#').then(|| fragment.to_owned());
        plain.then(|| Self::Code { code: Secret::new(whole), state })
    }

    /// The state that came with it.
    pub(crate) fn state(&self) -> Option<&str> {
        match self {
            Self::Code { state, .. } | Self::Refused { state, .. } => state.as_deref(),
        }
    }
}

/// Whether a text begins as an address of this machine does that lost its scheme.
fn is_of_this_machine(text: &str) -> bool {
    let authority = text.split('/').next().unwrap_or_default();
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = authority.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(authority, |(host, _)| host);
    is_loopback_name(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let pkce = Pkce::of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        assert_eq!(pkce.challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let fresh = Pkce::new().unwrap();
        assert_eq!(fresh.verifier.expose().len(), 43);
        assert_ne!(fresh.challenge, Pkce::new().unwrap().challenge);
        assert_ne!(state().unwrap(), state().unwrap());
    }

    #[test]
    fn codes_are_taken_in_every_form_that_people_paste() {
        let code = |state: Option<&str>| Answer::Code { code: Secret::new("c/1"), state: state.map(str::to_owned) };
        for (text, expected) in [
            ("http://localhost:1455/auth/callback?code=c%2F1&state=s", Some(code(Some("s")))),
            ("https://h/cb#code=c%2F1&state=s", Some(code(Some("s")))),
            ("localhost:1455/auth/callback?code=c%2F1&state=s", Some(code(Some("s")))),
            ("127.0.0.1:1455/cb?scope=a+b&state=s&code=c%2F1", Some(code(Some("s")))),
            ("[::1]:1455/cb#code=c%2F1&state=s", Some(code(Some("s")))),
            ("id.example.org/cb?state=s&code=c%2F1#_=_", Some(code(Some("s")))),
            ("scope=a&code=c%2F1&state=s", Some(code(Some("s")))),
            ("?code=c%2F1&state=s", Some(code(Some("s")))),
            ("c/1#s", Some(code(Some("s")))),
            ("code=c%2F1&state=s", Some(code(Some("s")))),
            (" c/1\n", Some(code(None))),
            ("", None),
            ("two words", None),
            ("http://localhost:1455/auth/callback", None),
            ("localhost:1455/auth/callback", None),
            ("localhost:1455/auth/callback?session=1", None),
            ("[::1]/cb#x", None),
        ] {
            assert_eq!(Answer::of_pasted(text), expected, "{text}");
        }
        assert_eq!(Answer::of_pasted(&"x".repeat(PASTED_BYTES_MAX + 1)), None);
        for refused in
            ["http://h/cb?error=access_denied&error_description=no&state=s", "h/cb?error=access_denied&state=s"]
        {
            let refused = Answer::of_pasted(refused).unwrap();
            assert!(matches!(&refused, Answer::Refused { error, .. } if error == "access_denied"));
            assert_eq!(refused.state(), Some("s"));
        }
        assert!(!format!("{:?}", code(None)).contains("c/1"));
    }
}
