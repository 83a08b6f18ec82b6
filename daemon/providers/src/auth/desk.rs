//! Where people log in and out: which way, with what, and what is told of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_config::Effective;
use mcode_models::{
    LoggedOut, LoginDesk, LoginError, LoginErrorKind, LoginFlow, LoginOffer, LoginStart, LoginStarted, Logins, Secret,
    StoredLogin,
};

use super::configured;
use super::data::{self, LoginData};
use super::vault::{About, Kind, Login, Tokens, is_open_to_others};
use super::{Auth, Keeper};
use crate::http;
use crate::known;

/// A handle that can begin tasks of its own.
#[derive(Debug, Clone)]
pub struct Desk(pub(super) Arc<Auth>);

impl Desk {
    /// The desk of these logins.
    #[must_use]
    pub fn new(auth: Arc<Auth>) -> Self {
        Self(auth)
    }

    fn config(&self) -> Arc<Effective> {
        (self.0.config)()
    }

    async fn begin(&self, start: LoginStart) -> Result<LoginStarted, LoginError> {
        let config = self.config();
        let provider = data::provider_of(start.provider.trim()).to_owned();
        let all = data::providers(&config);
        if !all.contains(&provider) {
            return Err(unknown(&provider, &all));
        }
        let found = self.0.data(&provider).map_err(|fault| {
            LoginError::new(LoginErrorKind::Unsupported, fault).with_hint("Mend it, then try again.")
        })?;
        let flow = match (start.flow, &start.key, &found) {
            (Some(flow), ..) => flow,
            (None, Some(_), _) | (None, None, None) => LoginFlow::Key,
            (None, None, Some(data)) => data.flow,
        };
        if flow == LoginFlow::Key {
            return self.store_key(&provider, start, &config).await;
        }
        let data = found.ok_or_else(|| no_login(&provider, data::takes_key(&provider, &config)))?;
        if !data.flows().contains(&flow) {
            let can: Vec<&str> = data.flows().into_iter().map(LoginFlow::as_str).collect();
            let message = format!("'{provider}' can not be logged in to by {}", flow.as_str());
            return Err(LoginError::new(LoginErrorKind::Unsupported, message)
                .with_hint(format!("It can be done by {}.", can.join(", "))));
        }
        self.start_flow(data, flow, &start.env).await
    }

    async fn store_key(
        &self,
        provider: &str,
        start: LoginStart,
        config: &Effective,
    ) -> Result<LoginStarted, LoginError> {
        if !data::takes_key(provider, config) {
            let note = data::note(provider);
            let message = if note.is_empty() { format!("'{provider}' takes no API key") } else { note.to_owned() };
            return Err(LoginError::new(LoginErrorKind::Unsupported, message).with_hint("See: mcode login"));
        }
        let Some(key) = start.key else {
            let note = data::note(provider);
            let message =
                if note.is_empty() { format!("'{provider}' is logged in to with an API key") } else { note.to_owned() };
            return Err(LoginError::new(LoginErrorKind::Invalid, message)
                .with_hint(format!("Give one with: mcode login {provider} --key")));
        };
        let key = configured::checked(key.expose())
            .map_err(|reason| LoginError::new(LoginErrorKind::Invalid, format!("the key can not be used: {reason}")))?;
        let about = About { address: address_of(provider, &start.env), ..self.fresh(Kind::Key) };
        let tokens = Tokens { access: key.expose().to_owned(), refresh: None };
        let stored = self.0.keep(provider, Login { about, tokens }, network(&start.env)).await?;
        Ok(LoginStarted {
            login_id: String::new(),
            flow: LoginFlow::Key,
            url: String::new(),
            user_code: String::new(),
            expires_at_ms: 0,
            instructions: before(provider, &start.env),
            done: Some(stored),
        })
    }

    pub(super) fn fresh(&self, kind: Kind) -> About {
        About {
            kind,
            account: String::new(),
            account_id: None,
            expires_at_ms: None,
            saved_at_ms: self.keeper().now_ms(),
            renewable: false,
            address: None,
            stamp: String::new(),
            in_keyring: false,
        }
    }

    pub(super) fn keeper(&self) -> &Arc<Keeper> {
        &self.0.keeper
    }
}

/// An environment's own address of a provider, which a key that is given there is good for too.
pub(super) fn address_of(provider: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let known = known::find(provider)?;
    known.base_url_env.iter().find_map(|variable| {
        let value = env.get(*variable).map(|value| value.trim()).filter(|value| !value.is_empty())?;
        known::base_url_of(variable, value).ok()
    })
}

/// What of the client's environment comes before a stored key.
fn before(provider: &str, env: &BTreeMap<String, String>) -> String {
    let set = |variable: &&&str| env.get(**variable).is_some_and(|value| !value.trim().is_empty());
    let variable = known::find(provider).and_then(|known| known.key_env.iter().find(set));
    variable
        .map(|variable| format!("{variable} of your environment comes before it where it is set."))
        .unwrap_or_default()
}

fn unknown(provider: &str, all: &[String]) -> LoginError {
    let meant = mcode_config::nearest(provider, all.iter().map(String::as_str));
    let meant = meant.map(|meant| format!("; did you mean '{meant}'?")).unwrap_or_default();
    LoginError::new(LoginErrorKind::UnknownProvider, format!("there is no provider '{provider}'{meant}"))
        .with_hint("List them with: mcode login")
}

fn no_login(provider: &str, takes_key: bool) -> LoginError {
    let note = data::note(provider);
    let message = if note.is_empty() { format!("no login of '{provider}' is known") } else { note.to_owned() };
    let error = LoginError::new(LoginErrorKind::Unsupported, message);
    if takes_key {
        error.with_hint(format!("Store an API key with: mcode login {provider} --key"))
    } else {
        error.with_hint(format!("Name an OAuth client of your own under [login.{provider}] in config.toml."))
    }
}

fn offer(provider: &str, config: &Effective) -> Option<LoginOffer> {
    let found: Option<LoginData> = data::find(provider, config).ok().flatten();
    let mut flows = found.as_ref().map(LoginData::flows).unwrap_or_default();
    if data::takes_key(provider, config) {
        flows.push(LoginFlow::Key);
    }
    let note = if found.is_some() { "" } else { data::note(provider) };
    if flows.is_empty() && note.is_empty() {
        return None;
    }
    let title = found.map_or_else(|| provider.to_owned(), |data| data.title);
    Some(LoginOffer { provider: provider.to_owned(), title, flows, note: note.to_owned() })
}

impl LoginDesk for Desk {
    fn start(&self, start: LoginStart) -> BoxFuture<'_, Result<LoginStarted, LoginError>> {
        Box::pin(self.begin(start))
    }

    fn complete<'a>(
        &'a self,
        login_id: &'a str,
        code: Option<Secret>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Option<StoredLogin>, LoginError>> {
        Box::pin(self.0.at_work.complete(login_id, code, wait))
    }

    fn cancel(&self, login_id: &str) -> bool {
        self.0.at_work.cancel(login_id)
    }

    fn logout<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<LoggedOut, LoginError>> {
        Box::pin(async move {
            let provider = data::provider_of(provider.trim());
            // A task of its own: whoever asks may leave meanwhile.
            let (auth, of) = (Arc::clone(&self.0), provider.to_owned());
            let dropped = tokio::spawn(async move { auth.drop_login(&of).await }).await;
            let done = dropped.map_err(|error| LoginError::new(LoginErrorKind::Provider, error.to_string()))??;
            let all = data::providers(&self.config());
            if !done.removed && !all.iter().any(|name| name == provider) {
                return Err(unknown(provider, &all));
            }
            Ok(done)
        })
    }

    fn list(&self) -> Logins {
        let config = self.config();
        let (stored, mut problem) = match self.0.stored() {
            Ok(stored) => (stored, String::new()),
            Err(error) => (BTreeMap::new(), error.to_string()),
        };
        let file = self.keeper().vault.file();
        if problem.is_empty() && is_open_to_others(&file) {
            problem = format!("{} can be read by others; make it your own with: chmod 600", file.display());
        }
        Logins {
            stored: stored.iter().map(|(provider, about)| self.0.row(provider, about)).collect(),
            offers: data::providers(&config).iter().filter_map(|provider| offer(provider, &config)).collect(),
            problem,
        }
    }
}

/// How servers are reached from a client.
pub(super) fn network(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    http::network_env(env)
}
