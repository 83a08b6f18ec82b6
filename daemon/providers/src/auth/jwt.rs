//! What a token says of its account. Nothing is decided by it: the issuer's server checks its own tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// Longest token that is looked into, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// Longest name of an account, in characters.
const NAME_MAX: usize = 120;
/// The claim under which OpenAI puts what is about ChatGPT.
const OPENAI: &str = "https://api.openai.com/auth";

/// What is read of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    /// An address or name, for people.
    pub(crate) account: Option<String>,
    /// The ChatGPT account.
    pub(crate) chatgpt_account_id: Option<String>,
    /// When it ends, seconds since 1970.
    pub(crate) expires_at: Option<i64>,
}

impl Claims {
    /// The claims of a JWT; none of what is not one.
    pub(crate) fn of(token: &str) -> Self {
        let Some(payload) = payload(token) else { return Self::default() };
        let text = |value: Option<&Value>| {
            let text: String = value?.as_str()?.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect();
            Some(text).filter(|text| !text.is_empty())
        };
        Self {
            account: text(payload.get("email")).or_else(|| text(payload.get("preferred_username"))),
            chatgpt_account_id: text(payload.get(OPENAI).and_then(|claim| claim.get("chatgpt_account_id"))),
            expires_at: payload.get("exp").and_then(Value::as_i64),
        }
    }

    /// These, and what they lack from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            account: self.account.or(other.account),
            chatgpt_account_id: self.chatgpt_account_id.or(other.chatgpt_account_id),
            expires_at: self.expires_at.or(other.expires_at),
        }
    }
}

fn payload(token: &str) -> Option<Value> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_and_nonsense_has_none() {
        let payload = r#"{"email":"a@b.c","exp":99,"https://api.openai.com/auth":{"chatgpt_account_id":"acc"}}"#;
        let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(payload));
        let claims = Claims::of(&token);
        assert_eq!(claims.account.as_deref(), Some("a@b.c"));
        assert_eq!((claims.chatgpt_account_id.as_deref(), claims.expires_at), (Some("acc"), Some(99)));
        for text in ["", "opaque", "a.b.c", "a.!!.c"] {
            assert_eq!(Claims::of(text), Claims::default());
        }
        assert_eq!(Claims::default().or(claims.clone()), claims);
    }
}
