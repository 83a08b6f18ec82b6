//! Logins: who gives the key of a request at the moment it is sent, and how people log in and out.
//!
//! The types here carry no secret but [`Secret`] itself. What keeps and renews tokens is in `mcode-providers`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::ModelError;
use crate::request::Secret;

/// A key as it is now, with what goes along with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenKey {
    /// The key or token.
    pub key: Secret,
    /// Headers that belong to it, such as the account.
    pub headers: Vec<(String, String)>,
    /// Where it is good for, when its issuer says so.
    pub base_url: Option<String>,
}

/// Gives a key when a request is about to be sent.
pub trait GiveKey: Send + Sync {
    /// The key. `refused` is one that the server did not take a moment ago: a fresh one is given in its place, or the
    /// same again when there is none. It is not fetched as the client that asks reaches servers: that may be a tool call.
    ///
    /// # Errors
    /// [`crate::ModelErrorKind::LoginExpired`], [`crate::ModelErrorKind::LoginRevoked`] or
    /// [`crate::ModelErrorKind::Auth`] when there is no key to be had; `Transport` or `Server` when trying again may help.
    fn give<'a>(&'a self, refused: Option<&'a Secret>) -> BoxFuture<'a, Result<GivenKey, ModelError>>;
}

/// Where the key of a request comes from when it is sent. Two are equal when they stand for the same.
#[derive(Clone)]
pub struct KeySource {
    name: Arc<str>,
    giver: Arc<dyn GiveKey>,
}

impl KeySource {
    /// A source known by `name`, which holds no secret.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, giver: Arc<dyn GiveKey>) -> Self {
        Self { name: name.into(), giver }
    }

    /// What it is known by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`GiveKey::give`].
    ///
    /// # Errors
    /// As [`GiveKey::give`].
    pub async fn give(&self, refused: Option<&Secret>) -> Result<GivenKey, ModelError> {
        self.giver.give(refused).await
    }
}

impl PartialEq for KeySource {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for KeySource {}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySource({})", self.name)
    }
}

/// How somebody logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoginFlow {
    /// A browser on this machine, which comes back to a listener of ours.
    Loopback,
    /// A browser anywhere; its code is pasted.
    Paste,
    /// A code that is typed in on another device.
    Device,
    /// An API key.
    Key,
}

impl LoginFlow {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Paste => "paste",
            Self::Device => "device",
            Self::Key => "key",
        }
    }

    /// The flow of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Loopback, Self::Paste, Self::Device, Self::Key].into_iter().find(|flow| flow.as_str() == word)
    }
}

/// What somebody who logs in gives.
#[derive(Debug, Clone)]
pub struct LoginStart {
    /// Provider name.
    pub provider: String,
    /// How; `None` is the provider's usual way.
    pub flow: Option<LoginFlow>,
    /// The API key, for [`LoginFlow::Key`].
    pub key: Option<Secret>,
    /// The client's environment: how it reaches servers, and where the provider is for it.
    pub env: BTreeMap<String, String>,
}

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginStarted {
    /// By what it is completed or cancelled; empty when it is done already.
    pub login_id: String,
    /// How.
    pub flow: LoginFlow,
    /// What to open in a browser.
    pub url: String,
    /// What to type in there, for [`LoginFlow::Device`].
    pub user_code: String,
    /// When it ends by itself, milliseconds since 1970; 0 when it is done.
    pub expires_at_ms: i64,
    /// What to do, for people.
    pub instructions: String,
    /// What is stored now, when nothing is left to do.
    pub done: Option<StoredLogin>,
}

/// A stored login or key, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLogin {
    /// Provider name.
    pub provider: String,
    /// Whose it is, as far as the issuer says; may be empty.
    pub account: String,
    /// `login` or `key`.
    pub kind: &'static str,
    /// `keyring`, or the path of the file.
    pub kept_in: String,
    /// When the access token ends, milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// Whether it is renewed without its user.
    pub renewable: bool,
    /// What is in the way of using it; empty for nothing.
    pub problem: String,
}

/// What a logout did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoggedOut {
    /// Whether anything was stored.
    pub removed: bool,
    /// Whether the issuer has taken it back, in words; empty where there is no way to ask.
    pub note: String,
}

/// What a provider takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOffer {
    /// Provider name.
    pub provider: String,
    /// Name for people.
    pub title: String,
    /// How one can log in, the usual way first.
    pub flows: Vec<LoginFlow>,
    /// What to know before; may be empty.
    pub note: String,
}

/// All that is stored, and all that could be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logins {
    /// What is stored.
    pub stored: Vec<StoredLogin>,
    /// What providers take.
    pub offers: Vec<LoginOffer>,
    /// What is wrong with the place where logins are kept; empty for nothing.
    pub problem: String,
}

/// Why a login did not come to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginErrorKind {
    /// No provider has this name.
    UnknownProvider,
    /// The provider can not be logged in to this way.
    Unsupported,
    /// What was given makes no sense.
    Invalid,
    /// There is no login with this id at work.
    NotFound,
    /// As many logins as may be are at work.
    TooMany,
    /// Its time ran out.
    Expired,
    /// The user or the provider said no.
    Denied,
    /// Somebody cancelled it, or began another one in its place.
    Cancelled,
    /// The daemon ends, and the login with it.
    Cut,
    /// The answer belongs to another login.
    WrongState,
    /// The provider failed, or refused the exchange.
    Provider,
    /// The place where logins are kept does not work.
    Storage,
}

/// A login did not come to be; the texts hold no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginError {
    /// Why.
    pub kind: LoginErrorKind,
    /// What failed, on what.
    pub message: String,
    /// What to do next; empty for what is usual for the kind.
    pub hint: String,
}

impl LoginError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: LoginErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: String::new() }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LoginError {}

/// Logs people in and out. What it is asked is for people only; whoever calls it has seen to that.
pub trait LoginDesk: Send + Sync + fmt::Debug {
    /// Begins a login, or stores a key.
    fn start(&self, start: LoginStart) -> BoxFuture<'_, Result<LoginStarted, LoginError>>;
    /// Waits for the end of a login for at most `wait`, with a code if one was pasted; `None` when it is not over yet.
    /// Everybody who waits for the same login gets the same end.
    fn complete<'a>(
        &'a self,
        login_id: &'a str,
        code: Option<Secret>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Option<StoredLogin>, LoginError>>;
    /// Ends a login that is at work; false when there is none of this id.
    fn cancel(&self, login_id: &str) -> bool;
    /// Forgets what is stored for a provider, and has its issuer take it back where there is a way.
    fn logout<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<LoggedOut, LoginError>>;
    /// What is stored and what could be, by the configuration in force.
    fn list(&self) -> Logins;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_have_one_word_each() {
        for flow in [LoginFlow::Loopback, LoginFlow::Paste, LoginFlow::Device, LoginFlow::Key] {
            assert_eq!(LoginFlow::parse(flow.as_str()), Some(flow));
        }
        assert_eq!(LoginFlow::parse("telepathy"), None);
    }
}
