//! Gives the token of a login as it is now, and renews it: once, however many ask.
//!
//! Order matters. A renewal holds a mutex of this process and a lock file that other processes keep to; inside, the
//! vault is read again, since somebody may have renewed meanwhile. The new pair is on the disk before anybody uses it: an
//! issuer that rotates takes the old one back with it. A renewal has a task of its own, so that a run that is cancelled
//! does not lose the pair that is on its way; a daemon that ends waits for it.
//!
//! Issuers are reached as the daemon's own environment says, or that of the terminal that logged in; never as the client
//! says that asks for a model. That may be a tool call with a proxy and an authority of its own, which would read along.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcode_env::{Clock, FileLock};
use mcode_models::{GivenKey, ModelError, ModelErrorKind, Secret};
use reqwest::Client;
use tokio_util::task::TaskTracker;

use super::copilot::{self, Derived};
use super::data::{LoginData, Use};
use super::lock;
use super::secrets::KnownSecrets;
use super::token::{self, ANSWER_WAIT, Grant, Refused};
use super::vault::{About, Kind, Login, Tokens, Vault, VaultError};
use crate::http::HttpClients;

/// A token is renewed so long before it ends, or, if it lives shortly, in the last [`LAST_PART`] of its life.
const BEFORE_END_MS: i64 = 5 * 60 * 1000;
/// Which part of its life is the last one: a quarter.
const LAST_PART: i64 = 4;
/// ChatGPT's tokens are renewed after this time, whatever they say.
const CHATGPT_AGE_MS: i64 = 8 * 24 * 3600 * 1000;
/// After an issuer did not answer, it is left alone for so long: a token that is still good is used as it is, and who
/// has none is told what the last one was told.
const ASK_AGAIN_MS: i64 = 30 * 1000;
/// How long a request waits for a renewal. That goes on without it, as the issuer may have rotated already.
const RENEWAL_WAIT: Duration = Duration::from_secs(10);
/// How long the end of the daemon waits for what is on its way: an answer of an issuer, and its way to the disk.
const SETTLE_MAX: Duration = ANSWER_WAIT.saturating_add(Duration::from_secs(5));
/// How long another process may take to renew the same login.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// Words of issuers that mean: never again with this token.
const REVOKED: &[&str] = &["invalid_grant", "refresh_token_reused", "refresh_token_invalidated"];
/// The one that means that it has become too old.
const EXPIRED: &[&str] = &["refresh_token_expired"];

/// What is known of a login beside the vault.
#[derive(Default)]
struct Seat {
    /// Held while the login is renewed or replaced.
    changing: Arc<tokio::sync::Mutex<()>>,
    /// Why the login with this stamp is at its end.
    dead: Option<(String, ModelErrorKind, String)>,
    /// A pair that the issuer gave and that could not be saved.
    unsaved: Option<Login>,
    /// What was made of the login with this stamp.
    derived: Option<(String, Derived)>,
    /// When the issuer was last found to be out of order, and what was told of it.
    failed: Option<(i64, ModelError)>,
    /// How the terminal that logged in reaches servers.
    network: Option<BTreeMap<String, String>>,
}

/// Keeps tokens fresh.
pub(crate) struct Keeper {
    pub(crate) vault: Vault,
    clients: Arc<HttpClients>,
    clock: Arc<dyn Clock>,
    /// How the daemon itself reaches servers.
    own_network: BTreeMap<String, String>,
    seats: Mutex<BTreeMap<String, Seat>>,
    /// [`RENEWAL_WAIT`].
    wait: Duration,
    /// What must not be cut off.
    pub(crate) tasks: TaskTracker,
    pub(crate) secrets: KnownSecrets,
}

/// What a request needs a key for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The login.
    pub(crate) data: Option<LoginData>,
    /// The provider.
    pub(crate) provider: String,
    /// A key that was not taken.
    pub(crate) refused: Option<Secret>,
}

impl Keeper {
    pub(crate) fn new(
        vault: Vault,
        clients: Arc<HttpClients>,
        clock: Arc<dyn Clock>,
        own_network: BTreeMap<String, String>,
    ) -> Self {
        let (tasks, secrets) = (TaskTracker::new(), KnownSecrets::default());
        Self { vault, clients, clock, own_network, seats: Mutex::default(), wait: RENEWAL_WAIT, tasks, secrets }
    }

    /// Lets no renewal begin any more, and waits for those that are on their way.
    pub(crate) async fn settle(&self) {
        self.tasks.close();
        if tokio::time::timeout(SETTLE_MAX, self.tasks.wait()).await.is_err() {
            tracing::error!("a login was still being renewed at the end; it may have to be done again");
        }
    }

    /// How an issuer is reached.
    pub(crate) fn client(&self, provider: &str) -> Result<Client, ModelError> {
        let network = self.seat(provider, |seat| seat.network.clone());
        self.clients.client(network.as_ref().unwrap_or(&self.own_network)).map_err(|error| {
            let message = format!("the login of '{provider}' can not be renewed: {}", error.message);
            ModelError { message, ..error }.with_hint(format!(
                "It is renewed as the daemon's environment says, or that of the terminal that logged in. Correct it and \
                 restart the daemon, or log in again with: mcode login {provider}"
            ))
        })
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now().millis()
    }

    fn seat<T>(&self, provider: &str, look: impl FnOnce(&mut Seat) -> T) -> T {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        look(seats.entry(provider.to_owned()).or_default())
    }

    /// Why a stored login is of no use, as far as that is known without asking anybody.
    pub(crate) fn end(&self, provider: &str, about: &About) -> Option<ModelError> {
        let dead = self.seat(provider, |seat| seat.dead.clone()).filter(|(stamp, ..)| *stamp == about.stamp);
        if let Some((_, kind, words)) = dead {
            return Some(ended(provider, kind, &words));
        }
        let over = about.expires_at_ms.is_some_and(|end| end <= self.now_ms()) && !about.renewable;
        (over && about.kind == Kind::Login).then(|| ended(provider, ModelErrorKind::LoginExpired, "its time is over"))
    }

    /// The key as it is now.
    pub(crate) async fn give(self: &Arc<Self>, wanted: Wanted) -> Result<GivenKey, ModelError> {
        let login = self.load(&wanted.provider).await?;
        if login.about.kind == Kind::Key {
            return Ok(plain(&login));
        }
        if let Some(given) = self.good(&wanted, &login) {
            return Ok(given);
        }
        if let Some(error) = self.failed_lately(&wanted.provider).filter(ModelError::is_retryable) {
            return Err(error);
        }
        // A task of its own: what the issuer gives must be saved, whoever still waits for it.
        let (keeper, renewed) = (Arc::clone(self), wanted.clone());
        let renewing = self.tasks.spawn(async move { keeper.renew(renewed).await });
        match tokio::time::timeout(self.wait, renewing).await {
            Ok(outcome) => outcome.unwrap_or_else(|error| {
                Err(ModelError::new(ModelErrorKind::Server, format!("the login could not be renewed: {error}")))
            }),
            Err(_) => self.late(&wanted, &login),
        }
    }

    /// What is given when a renewal takes too long: the token as it is while it is good, else why there is none. Those
    /// who come next are told at once.
    fn late(&self, wanted: &Wanted, login: &Login) -> Result<GivenKey, ModelError> {
        let host =
            wanted.data.as_ref().map_or_else(|| "its issuer".to_owned(), |data| token::host_of(data.renewed_at()));
        let words = format!("no answer from {host} for {} s", self.wait.as_secs_f64());
        let error = self.failed(&wanted.provider, &Refused::Unreachable(words));
        self.good(wanted, login).ok_or(error)
    }

    async fn load(&self, provider: &str) -> Result<Login, ModelError> {
        if let Some(unsaved) = self.seat(provider, |seat| seat.unsaved.clone()) {
            return Ok(unsaved);
        }
        match self.vault.load(provider).await {
            Ok(Some(login)) => {
                self.note(&login.tokens);
                Ok(login)
            }
            Ok(None) => Err(ModelError::new(ModelErrorKind::Auth, format!("'{provider}' was logged out"))
                .with_hint(format!("Log in again with: mcode login {provider}"))),
            Err(error) => Err(unusable(&error)),
        }
    }

    /// Remembers secrets, so that others can take them out of what is written down.
    pub(crate) fn note(&self, tokens: &Tokens) {
        let all = [Some(&tokens.access), tokens.refresh.as_ref()];
        all.into_iter().flatten().for_each(|secret| self.secrets.note(&Secret::new(secret.clone())));
    }

    /// The key of a login that needs no renewal.
    fn good(&self, wanted: &Wanted, login: &Login) -> Option<GivenKey> {
        if self.seat(&wanted.provider, |seat| seat.unsaved.is_some()) {
            return None;
        }
        let taken = |key: &Secret| wanted.refused.as_ref() != Some(key);
        if matches!(wanted.data.as_ref().map(|data| &data.becomes), Some(Use::Copilot { .. })) {
            let derived = self.seat(&wanted.provider, |seat| seat.derived.clone())?;
            let (begins, ends) = (derived.1.given_at_ms, derived.1.expires_at_ms);
            let left = ends - self.now_ms();
            let fresh = left > before_end_ms(ends - begins);
            let usable = fresh || (left > 0 && self.failed_lately(&wanted.provider).is_some());
            let own = derived.0 == login.about.stamp;
            return Some(derived.1.given()).filter(|given| own && usable && taken(&given.key));
        }
        let given = plain(login);
        let usable = self.is_fresh(wanted, &login.about) || self.may_wait(&wanted.provider, &login.about);
        (usable && taken(&given.key)).then_some(given)
    }

    /// Whether a token that is good for some minutes more is used as it is, since its issuer did not answer just now.
    fn may_wait(&self, provider: &str, about: &About) -> bool {
        self.failed_lately(provider).is_some() && about.expires_at_ms.is_none_or(|end| end > self.now_ms())
    }

    /// What was told when the issuer was out of order just now.
    fn failed_lately(&self, provider: &str) -> Option<ModelError> {
        let (at_ms, error) = self.seat(provider, |seat| seat.failed.clone())?;
        // A clock that was put back must not hold up anybody.
        let passed = u64::try_from(self.now_ms() - at_ms).ok()?;
        let left = ASK_AGAIN_MS.unsigned_abs().checked_sub(passed).filter(|left| *left > 0)?;
        Some(ModelError { retry_after: Some(Duration::from_millis(left)), ..error })
    }

    /// The issuer gave nothing and may do so later.
    fn failed(&self, provider: &str, refused: &Refused) -> ModelError {
        let (now, error) = (self.now_ms(), not_renewed(provider, refused));
        self.seat(provider, |seat| seat.failed = Some((now, error.clone())));
        error
    }

    fn is_fresh(&self, wanted: &Wanted, about: &About) -> bool {
        let now = self.now_ms();
        let chatgpt = matches!(wanted.data.as_ref().map(|data| &data.becomes), Some(Use::ChatGpt { .. }));
        if chatgpt && about.renewable && now - about.saved_at_ms > CHATGPT_AGE_MS {
            return false;
        }
        about.expires_at_ms.is_none_or(|end| end - now > before_end_ms(end - about.saved_at_ms))
    }

    /// Renews a login under its locks.
    async fn renew(&self, wanted: Wanted) -> Result<GivenKey, ModelError> {
        let provider = wanted.provider.clone();
        let changing = self.seat(&provider, |seat| Arc::clone(&seat.changing));
        let _changing = changing.lock_owned().await;
        let _held = self.hold(&provider).await?;
        self.save_unsaved(&provider).await?;
        let login = self.load(&provider).await?;
        if let Some(given) = self.good(&wanted, &login) {
            return Ok(given);
        }
        if let Some(error) = self.end(&provider, &login.about) {
            return Err(error);
        }
        // Those who waited for the one that asked are told the same; they would wait as long one after the other.
        if let Some(error) = self.failed_lately(&provider).filter(ModelError::is_retryable) {
            return Err(error);
        }
        if self.tasks.is_closed() {
            let message = format!("the login of '{provider}' is not renewed now: the daemon ends");
            return Err(ModelError::new(ModelErrorKind::Server, message).with_hint("Try again."));
        }
        match wanted.data.as_ref().map(|data| &data.becomes) {
            Some(Use::Copilot { exchange_url }) => self.derive(&wanted, exchange_url, &login).await,
            _ => self.refresh(&wanted, login).await,
        }
    }

    /// Keeps other processes away from a login.
    pub(crate) async fn hold(&self, provider: &str) -> Result<FileLock, ModelError> {
        let path = self.vault.lock_file(provider);
        lock::take(&path, LOCK_WAIT).await.map_err(|error| {
            ModelError::new(ModelErrorKind::Server, format!("the login of '{provider}' can not be renewed: {error}"))
        })
    }

    /// A mutex of this process for whoever replaces a login.
    pub(crate) fn changing(&self, provider: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.seat(provider, |seat| Arc::clone(&seat.changing))
    }

    /// A new login begins with nothing known of the old one but how its issuer is reached.
    pub(crate) fn forget(&self, provider: &str, network: Option<BTreeMap<String, String>>) {
        self.seat(provider, |seat| {
            *seat = Seat { changing: Arc::clone(&seat.changing), network, ..Seat::default() };
        });
    }

    /// Saves what an earlier renewal could not: the pair before it is used up.
    async fn save_unsaved(&self, provider: &str) -> Result<(), ModelError> {
        let Some(login) = self.seat(provider, |seat| seat.unsaved.clone()) else { return Ok(()) };
        // Logged in or out since.
        let stored = self.vault.about(provider).map_err(|error| unusable(&error))?;
        if stored.is_some_and(|stored| stored.stamp == login.about.stamp) {
            self.vault.save(provider, &login).await.map_err(|error| unusable(&error))?;
        }
        self.seat(provider, |seat| seat.unsaved = None);
        Ok(())
    }

    async fn refresh(&self, wanted: &Wanted, login: Login) -> Result<GivenKey, ModelError> {
        let provider = wanted.provider.as_str();
        let over = login.about.expires_at_ms.is_some_and(|end| end <= self.now_ms());
        let was_refused = wanted.refused.as_ref().is_some_and(|refused| refused.expose() == login.tokens.access);
        let Some(refresh) = login.tokens.refresh.as_deref() else {
            let kind = if over { ModelErrorKind::LoginExpired } else { ModelErrorKind::LoginRevoked };
            // It has some minutes left.
            return if was_refused || over {
                Err(self.bury(provider, &login, kind, "it can not be renewed"))
            } else {
                Ok(plain(&login))
            };
        };
        let Some(data) = &wanted.data else {
            return if was_refused || over { Err(no_client(provider)) } else { Ok(plain(&login)) };
        };
        let client = self.client(provider)?;
        match token::refresh(&client, data, &Secret::new(refresh), self.now_ms()).await {
            Ok(grant) => self.renewed(provider, login, grant).await,
            Err(refused) => match kind_of_end(&refused) {
                Some(kind) => Err(self.bury(provider, &login, kind, &refused.told())),
                // The issuer is not well, and the token is still good.
                None => {
                    let error = self.failed(provider, &refused);
                    if over || was_refused { Err(error) } else { Ok(plain(&login)) }
                }
            },
        }
    }

    /// Saves what a renewal gave, and only then gives it.
    async fn renewed(&self, provider: &str, old: Login, grant: Grant) -> Result<GivenKey, ModelError> {
        let tokens = Tokens {
            access: grant.access.expose().to_owned(),
            refresh: grant.refresh.map(|token| token.expose().to_owned()).or(old.tokens.refresh),
        };
        let about = About {
            account: grant.claims.account.unwrap_or(old.about.account),
            account_id: grant.claims.chatgpt_account_id.or(old.about.account_id),
            expires_at_ms: grant.expires_at_ms,
            saved_at_ms: self.now_ms(),
            ..old.about
        };
        let login = Login { about, tokens };
        self.note(&login.tokens);
        self.seat(provider, |seat| seat.failed = None);
        if let Err(error) = self.vault.save(provider, &login).await {
            tracing::error!(provider, %error, "a renewed login could not be saved; it is tried again at the next request");
            self.seat(provider, |seat| seat.unsaved = Some(login));
            return Err(unusable(&error));
        }
        tracing::info!(provider, "a login was renewed");
        Ok(plain(&login))
    }

    async fn derive(&self, wanted: &Wanted, url: &str, login: &Login) -> Result<GivenKey, ModelError> {
        let client = self.client(&wanted.provider)?;
        match copilot::exchange(&client, url, &Secret::new(login.tokens.access.clone()), self.now_ms()).await {
            Ok(derived) => {
                let given = derived.given();
                self.secrets.note(&given.key);
                self.seat(&wanted.provider, |seat| {
                    (seat.derived, seat.failed) = (Some((login.about.stamp.clone(), derived)), None);
                });
                Ok(given)
            }
            Err(refused) if refused.status() == Some(401) => {
                Err(self.bury(&wanted.provider, login, ModelErrorKind::LoginRevoked, &refused.told()))
            }
            Err(refused) => Err(self.failed(&wanted.provider, &refused)),
        }
    }

    /// Remembers that a login is at its end, so that nobody asks the issuer again.
    fn bury(&self, provider: &str, login: &Login, kind: ModelErrorKind, words: &str) -> ModelError {
        tracing::warn!(provider, words, "a login is at its end");
        self.seat(provider, |seat| seat.dead = Some((login.about.stamp.clone(), kind, words.to_owned())));
        ended(provider, kind, words)
    }
}

/// How long before its end a token is renewed that lives so long.
fn before_end_ms(lives_ms: i64) -> i64 {
    (lives_ms / LAST_PART).clamp(0, BEFORE_END_MS)
}

/// A token as it is sent.
fn plain(login: &Login) -> GivenKey {
    let account = login.about.account_id.iter().map(|id| ("chatgpt-account-id".to_owned(), id.clone()));
    GivenKey { key: Secret::new(login.tokens.access.clone()), headers: account.collect(), base_url: None }
}

fn kind_of_end(refused: &Refused) -> Option<ModelErrorKind> {
    let Refused::Said { code, status, .. } = refused else { return None };
    if EXPIRED.contains(&code.as_str()) {
        return Some(ModelErrorKind::LoginExpired);
    }
    let no_client = ["invalid_client", "unauthorized_client"].contains(&code.as_str());
    (REVOKED.contains(&code.as_str()) || (*status == 401 && !no_client)).then_some(ModelErrorKind::LoginRevoked)
}

fn ended(provider: &str, kind: ModelErrorKind, words: &str) -> ModelError {
    let what = if kind == ModelErrorKind::LoginExpired { "has expired" } else { "is not taken any more" };
    ModelError::new(kind, format!("the login of '{provider}' {what}: {words}"))
        .with_hint(format!("Log in again with: mcode login {provider}"))
}

fn not_renewed(provider: &str, refused: &Refused) -> ModelError {
    let kind = match refused {
        Refused::Unreachable(_) => ModelErrorKind::Transport,
        Refused::Said { .. } if refused.is_passing() => ModelErrorKind::Server,
        Refused::Said { .. } => ModelErrorKind::Auth,
    };
    let error = ModelError::new(kind, format!("the login of '{provider}' could not be renewed: {}", refused.told()));
    match kind {
        ModelErrorKind::Auth => error.with_hint(refused.hint(provider)),
        _ => error.with_hint(format!("Try again later, or log in again with: mcode login {provider}")),
    }
}

fn no_client(provider: &str) -> ModelError {
    ModelError::new(
        ModelErrorKind::Auth,
        format!("the login of '{provider}' can not be renewed: its OAuth client is not known"),
    )
    .with_hint(format!("Put [login.{provider}] back into config.toml, or log in again."))
}

/// The place where logins are kept does not work.
pub(crate) fn unusable(error: &VaultError) -> ModelError {
    ModelError::new(ModelErrorKind::Auth, error.to_string()).with_hint(error.hint())
}

#[cfg(test)]
mod tests;
