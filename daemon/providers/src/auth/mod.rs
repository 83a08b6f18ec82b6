//! Logins: OAuth in a browser, by pasted code or by device, and API keys; kept, renewed and given to requests.
//!
//! Reading order: [`data`] (what is known of a provider's login), `vault` (where it is kept), `keeper` (the token as it is
//! now), `logins` (people who log in). No secret leaves these modules but inside a [`mcode_models::Secret`].

pub(crate) mod codes;
pub mod configured;
pub(crate) mod copilot;
pub(crate) mod data;
pub mod desk;
pub(crate) mod device;
mod jwt;
pub(crate) mod keeper;
mod lock;
mod logins;
mod loopback;
mod secrets;
mod token;
mod vault;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_config::Effective;
use mcode_env::{Clock, SystemClock};
use mcode_models::{
    GiveKey, GivenKey, KeySource, LoggedOut, LoginError, LoginErrorKind, ModelError, Secret, StoredLogin,
};

use self::configured::Remembered;
pub use self::configured::RunKeyCommand;
use self::data::LoginData;
use self::keeper::{Keeper, Wanted};
use self::logins::AtWork;
pub(crate) use self::vault::{About, Kind, VaultError};
use self::vault::{Login, Vault};
use crate::http::{self, HttpClients};

/// How we are called where a name of the client is wanted.
pub(crate) const ORIGINATOR: &str = "mcode";

/// How long a logout waits for the issuer to take the login back.
const REVOKE_WAIT: Duration = Duration::from_secs(5);

/// The logins of this daemon's user.
pub struct Auth {
    keeper: Arc<Keeper>,
    clients: Arc<HttpClients>,
    config: Arc<dyn Fn() -> Arc<Effective> + Send + Sync>,
    run_command: RunKeyCommand,
    remembered: Remembered,
    at_work: AtWork,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("vault", &self.keeper.vault).finish_non_exhaustive()
    }
}

/// What logins work with.
pub struct AuthParts {
    /// The configuration in force.
    pub config: Arc<dyn Fn() -> Arc<Effective> + Send + Sync>,
    /// The folder of `auth.json`.
    pub folder: PathBuf,
    /// Whether the system's keyring may be used.
    pub keyring: bool,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Runs the commands of `api_key = "command:…"`.
    pub run_command: RunKeyCommand,
    /// The environment of the daemon itself: its proxy and authorities lead to issuers.
    pub own_env: BTreeMap<String, String>,
}

impl fmt::Debug for AuthParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthParts").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl AuthParts {
    /// Logins in this folder, with the machine's clock, without keyring and commands.
    #[must_use]
    pub fn in_folder(folder: PathBuf, config: Arc<dyn Fn() -> Arc<Effective> + Send + Sync>) -> Self {
        let run_command: RunKeyCommand =
            Arc::new(|_| Box::pin(std::future::ready(Err("commands are not run here".to_owned()))));
        let clock = Arc::new(SystemClock);
        Self { config, folder, keyring: false, clock, run_command, own_env: BTreeMap::new() }
    }
}

impl Auth {
    /// The logins of these parts.
    #[must_use]
    pub fn new(parts: AuthParts) -> Arc<Self> {
        let clients = Arc::new(HttpClients::new());
        let vault = Vault::new(parts.folder, parts.keyring);
        let own_network = http::network_env(&parts.own_env);
        Arc::new(Self {
            keeper: Arc::new(Keeper::new(vault, Arc::clone(&clients), parts.clock, own_network)),
            clients,
            config: parts.config,
            run_command: parts.run_command,
            remembered: Remembered::default(),
            at_work: AtWork::default(),
        })
    }

    /// Ends the logins that are at work, and tells those who wait for them that the daemon ends.
    pub fn end_logins(&self) {
        self.at_work.close();
    }

    /// Waits, for a bounded time, until what issuers gave is on the disk; renews nothing any more. For the end of the
    /// daemon: a pair that is lost with it can not be asked for again.
    pub async fn settle(&self) {
        self.keeper.settle().await;
    }

    /// The secrets that were loaded or given, the last ones.
    pub(crate) fn known_secrets(&self) -> Vec<Secret> {
        self.keeper.secrets.all()
    }

    /// All stored logins, without their secrets.
    pub(crate) fn stored(&self) -> Result<BTreeMap<String, About>, VaultError> {
        self.keeper.vault.all()
    }

    /// Why a stored login is of no use, as far as that is known.
    pub(crate) fn end(&self, provider: &str, about: &About) -> Option<ModelError> {
        self.keeper.end(provider, about)
    }

    /// In words, where a login is kept and whose it is.
    pub(crate) fn told(&self, about: &About) -> String {
        let what = about.kind.told();
        let place = if about.in_keyring { "keyring" } else { vault::FILE };
        if about.account.is_empty() {
            format!("{what} ({place})")
        } else {
            format!("{what} of {} ({place})", about.account)
        }
    }

    /// Gives the key of a stored login at the moment of sending. Its name changes with the account, or with the key, and
    /// not when a token is renewed: what was learned of an account's limits goes by it.
    pub(crate) fn source(self: &Arc<Self>, provider: &str, about: &About) -> KeySource {
        let giver = Stored { auth: Arc::clone(self), provider: provider.to_owned() };
        let whose = match about.kind {
            Kind::Login => &about.account,
            Kind::Key => &about.stamp,
        };
        KeySource::new(format!("stored {} of {provider} ({whose})", about.kind.as_str()), Arc::new(giver))
    }

    /// What is known of a provider's login now.
    fn data(&self, provider: &str) -> Result<Option<LoginData>, String> {
        let data = data::find(provider, &(self.config)())?;
        data.iter().filter_map(|data| data.client_secret.as_ref()).for_each(|secret| self.keeper.secrets.note(secret));
        Ok(data)
    }

    /// Stores a login in the place of what there was. `network` is how the client that logs in reaches servers.
    async fn keep(
        &self,
        provider: &str,
        login: Login,
        network: BTreeMap<String, String>,
    ) -> Result<StoredLogin, LoginError> {
        let _counted = self.keeper.tasks.token();
        self.keeper.note(&login.tokens);
        let _changing = self.keeper.changing(provider).lock_owned().await;
        let held = self.keeper.hold(provider).await;
        let _held = held.map_err(|error| LoginError::new(LoginErrorKind::Storage, error.message))?;
        let about = self.keeper.vault.save(provider, &login).await.map_err(|error| unusable(&error))?;
        self.keeper.forget(provider, Some(network));
        tracing::info!(provider, kind = about.kind.as_str(), keyring = about.in_keyring, "a login was stored");
        Ok(self.row(provider, &about))
    }

    /// Forgets a login here, then has its issuer take it back, which may fail and takes a bounded time.
    async fn drop_login(&self, provider: &str) -> Result<LoggedOut, LoginError> {
        let _counted = self.keeper.tasks.token();
        let changing = self.keeper.changing(provider).lock_owned().await;
        let held = self.keeper.hold(provider).await;
        let held = held.map_err(|error| LoginError::new(LoginErrorKind::Storage, error.message))?;
        // What can not be read is forgotten all the same.
        let login = self.keeper.vault.load(provider).await.ok().flatten();
        let data = self.data(provider).ok().flatten();
        let client = self.keeper.client(provider);
        let removed = self.keeper.vault.remove(provider).await.map_err(|error| unusable(&error))?;
        self.keeper.forget(provider, None);
        drop((changing, held));
        let (Some(login), Some(data)) = (login.filter(|login| login.about.kind == Kind::Login), data) else {
            return Ok(LoggedOut { removed, note: String::new() });
        };
        let Some(url) = data.revoke_url.clone() else { return Ok(LoggedOut { removed, note: String::new() }) };
        let (token, hint) = match &login.tokens.refresh {
            Some(refresh) => (refresh, "refresh_token"),
            None => (&login.tokens.access, "access_token"),
        };
        let taken_back = async {
            let client = client.map_err(|error| error.message)?;
            let token = Secret::new(token.clone());
            let revoked = token::revoke(&client, &data, &url, &token, hint);
            let late = |_| Err(token::Refused::Unreachable(format!("no answer from {}", token::host_of(&url))));
            let revoked = tokio::time::timeout(REVOKE_WAIT, revoked).await.unwrap_or_else(late);
            revoked.map_err(|refused| refused.told())
        };
        let note = match taken_back.await {
            Ok(()) => format!("{} has taken the login back", token::host_of(&url)),
            Err(why) => {
                tracing::warn!(provider, why, "an issuer did not take a login back");
                format!("the issuer did not take the login back ({why}); it may be good there until its time is over")
            }
        };
        Ok(LoggedOut { removed, note })
    }

    fn row(&self, provider: &str, about: &About) -> StoredLogin {
        StoredLogin {
            provider: provider.to_owned(),
            account: about.account.clone(),
            kind: about.kind.as_str(),
            kept_in: self.keeper.vault.place(about),
            expires_at_ms: about.expires_at_ms,
            renewable: about.renewable,
            problem: self.end(provider, about).map(|error| error.message).unwrap_or_default(),
        }
    }
}

/// A stored login of a provider.
struct Stored {
    auth: Arc<Auth>,
    provider: String,
}

impl GiveKey for Stored {
    fn give<'a>(&'a self, refused: Option<&'a Secret>) -> BoxFuture<'a, Result<GivenKey, ModelError>> {
        Box::pin(async move {
            // A section that is broken now hinders no token that is good.
            let data = self.auth.data(&self.provider).ok().flatten();
            let wanted = Wanted { data, provider: self.provider.clone(), refused: refused.cloned() };
            self.auth.keeper.give(wanted).await
        })
    }
}

fn unusable(error: &VaultError) -> LoginError {
    LoginError::new(LoginErrorKind::Storage, error.to_string()).with_hint(error.hint())
}
