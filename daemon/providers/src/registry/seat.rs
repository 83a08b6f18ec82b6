//! A provider as it stands for one client: how it is spoken to, where it is, with which key.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_config::{Effective, ModelEntry, ProviderEntry};
use mcode_models::{
    Access, Catalogue, KeyPlace, KeySource, ModelError, ModelErrorKind, ModelInfo, ModelRef, Pricing, Secret,
    ThinkingForm, Wire, Withheld,
};

use super::login::{LoginHere, Stored};
use super::{IDLE_TIMEOUT_MS, IDLE_TIMEOUT_THINKING_MS};
use crate::auth::{Auth, Kind, configured};
use crate::google;
use crate::http;
use crate::known::{self, KNOWN, KnownProvider};

/// A key for one client.
pub(super) struct Key {
    /// The key, if one is needed and known already.
    pub(super) value: Option<Secret>,
    /// Gives the key when a request is sent.
    pub(super) giver: Option<KeySource>,
    /// The header for it.
    place: KeyPlace,
    /// Where it is from, for people.
    pub(super) source: String,
    /// The same without whose it is, for what is kept of a run.
    word: String,
}

impl Key {
    /// Whether there is one, or somebody who gives it.
    pub(super) fn is_there(&self) -> bool {
        self.value.is_some() || self.giver.is_some()
    }
}

/// A provider as it stands for one client.
pub(super) struct Seat<'a> {
    name: &'a str,
    known: Option<&'static KnownProvider>,
    pub(super) entry: ProviderEntry,
    pub(super) wire: Wire,
    pub(super) base_url: String,
    named: Named,
    login: LoginHere,
}

/// Who named the address of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// A variable of the client.
    Variable,
    /// The user's file.
    Config,
    /// Nobody: it is the provider's own.
    Nobody,
}

impl<'a> Seat<'a> {
    /// The provider of `name` for `model`, or for any of its models when that is empty.
    ///
    /// # Errors
    /// When there is none, or what is configured of it can not be.
    pub(super) fn find(
        config: &Effective,
        stored: &Stored,
        name: &'a str,
        model: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, ModelError> {
        let known = known::find(name);
        let entry = config.providers.get(name);
        if known.is_none() && entry.is_none() {
            let own = config.providers.keys().map(String::as_str).filter(|name| known::find(name).is_none());
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).chain(own).collect();
            let meant = mcode_config::nearest(name, names.iter().copied());
            let meant = meant.map(|meant| format!("; did you mean '{meant}'?"));
            let message = format!("there is no provider '{name}'{}", meant.unwrap_or_default());
            return Err(ModelError::new(ModelErrorKind::UnknownModel, message).with_hint(format!(
                "There are {}. Others are declared in config.toml under [providers.{name}] with wire and base_url.",
                names.join(", ")
            )));
        }
        let entry = entry.cloned().unwrap_or_default();
        let wire: Option<Wire> = match entry.wire.as_deref() {
            Some(text) => Some(text.parse().map_err(|()| {
                config_error(
                    name,
                    &format!("the wire '{text}' is not one that this version speaks"),
                    "Use anthropic, openai-chat, openai-responses, gemini or bedrock.",
                )
            })?),
            None => None,
        };
        let mut variables = known.into_iter().flat_map(|known| known.base_url_env);
        let from_env = variables.find_map(|variable| Some((*variable, set(env, variable)?)));
        let named = match (&from_env, &entry.base_url) {
            (Some((variable, _)), None) if known::names_own_address(variable) => Named::Nobody,
            (Some(_), _) => Named::Variable,
            (None, Some(_)) => Named::Config,
            (None, None) => Named::Nobody,
        };
        let from_env = from_env.map(|(variable, value)| known::base_url_of(variable, value)).transpose()?;
        let given = from_env.or_else(|| entry.base_url.clone());
        let login = LoginHere::find(config, stored, name, model, named, given.as_deref());
        let base_url = match login.base_url().map(str::to_owned).or(given) {
            Some(given) => Some(given),
            None => known.map(|known| known.base_url_for(model, env)).transpose()?,
        };
        let base_url = base_url
            .filter(|url| !url.is_empty() || known.is_some_and(|known| known.wire == Wire::Scripted))
            .ok_or_else(|| no_address(name, known))?;
        let usual = || known.map_or(Wire::OpenaiChat, |known| known.wire_for(model, &base_url));
        let wire = wire.or_else(|| login.wire()).unwrap_or_else(usual);
        Ok(Self { name, known, entry, wire, base_url, named, login })
    }

    /// The key, and where it is from: a login, the client's environment, a stored key, the configuration. No key is an
    /// error where one is needed.
    pub(super) fn key(&self, stored: &Stored, env: &BTreeMap<String, String>) -> Result<Key, ModelError> {
        if let Some(key) = self.stored_key(stored, Kind::Login)? {
            return Ok(key);
        }
        for variable in self.known.into_iter().flat_map(|known| known.key_env) {
            if let Some(key) = set(env, variable) {
                let usual = self.known.map_or(KeyPlace::Usual, |known| known.key_place);
                let place = if variable.ends_with("AUTH_TOKEN") { KeyPlace::Bearer } else { usual };
                let (value, source) = (Some(Secret::new(key)), (*variable).to_owned());
                return Ok(Key { value, giver: None, place, source, word: of_environment(variable) });
            }
        }
        if let Some(key) = self.stored_key(stored, Kind::Key)? {
            return Ok(key);
        }
        match self.entry.api_key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) => self.configured_key(key, stored.auth(), env),
            None if self.needs_key() => Err(self.no_key(stored)),
            None => {
                let (source, word) = self.without_key();
                let (source, word) = (source.to_owned(), word.to_owned());
                Ok(Key { value: None, giver: None, place: KeyPlace::Usual, source, word })
            }
        }
    }

    /// What is stored for the provider, if it is of this kind and good here.
    fn stored_key(&self, stored: &Stored, kind: Kind) -> Result<Option<Key>, ModelError> {
        let (Some(auth), Some(about)) = (stored.auth(), self.login.about(kind)) else { return Ok(None) };
        if let Some(ended) = auth.end(self.name, about) {
            return Err(ended);
        }
        let place = match kind {
            Kind::Login => KeyPlace::Bearer,
            Kind::Key => self.known.map_or(KeyPlace::Usual, |known| known.key_place),
        };
        let (giver, word) = (Some(auth.source(self.name, about)), kind.told().to_owned());
        Ok(Some(Key { value: None, giver, place, source: auth.told(about), word }))
    }

    /// What is said of a provider that works without a key, in a list and of a run.
    fn without_key(&self) -> (&'static str, &'static str) {
        match self.known.map(|known| known.identity) {
            Some(known::Identity::Aws) => ("AWS credentials", "AWS credentials"),
            Some(known::Identity::Google) => ("Google Cloud credentials", "Google Cloud credentials"),
            _ => ("no key needed", "none"),
        }
    }

    fn configured_key(
        &self,
        key: &str,
        auth: Option<&Arc<Auth>>,
        env: &BTreeMap<String, String>,
    ) -> Result<Key, ModelError> {
        let place = self.known.map_or(KeyPlace::Usual, |known| known.key_place);
        let found = |key: &str, source: &str, word: String| {
            let value = Some(Secret::new(key));
            Key { value, giver: None, place, source: source.to_owned(), word }
        };
        if let Some(variable) = key.strip_prefix("env:") {
            return match set(env, variable) {
                Some(key) => Ok(found(key, variable, of_environment(variable))),
                None => Err(ModelError::new(
                    ModelErrorKind::Auth,
                    format!("there is no key for '{}': {variable} is not set in your environment", self.name),
                )
                .with_hint(format!("Set {variable}, which [providers.{}] api_key names.", self.name))),
            };
        }
        if self.is_elsewhere() {
            return Err(self.for_its_own_address("api_key of config.toml", ""));
        }
        if let Some(giver) = auth.and_then(|auth| configured::source(auth, self.name, key)) {
            let form = key.split(':').next().unwrap_or_default();
            let source = format!("{form}: of config.toml");
            return Ok(Key { value: None, giver: Some(giver), place, word: source.clone(), source });
        }
        if let Some(form) = configured::FORMS.iter().find(|form| key.starts_with(**form)) {
            let fault = format!("api_key = \"{form}…\" can not be used here");
            return Err(config_error(self.name, &fault, "Use env:NAME with a variable of your environment."));
        }
        Ok(found(key, "config.toml", "config.toml".to_owned()))
    }

    /// A declared server without a word about keys, and every server on this machine, may do without.
    fn needs_key(&self) -> bool {
        let loopback = http::endpoint(&self.base_url, http::CHAT_PATH)
            .is_ok_and(|url| url.host_str().is_some_and(http::is_loopback_name));
        self.login.is_wanted() || self.known.is_some_and(|known| known.needs_key) && !loopback
    }

    fn no_key(&self, stored: &Stored) -> ModelError {
        let name = self.name;
        if let Some(problem) = stored.problem() {
            let message = format!("there is no key for '{name}' in your environment, and {problem}");
            return ModelError::new(ModelErrorKind::Auth, message).with_hint(problem.hint());
        }
        if self.login.is_elsewhere() {
            let again = format!(", or log in again where it is set: mcode login {name}");
            return self.for_its_own_address("what is stored", &again);
        }
        if self.login.is_unserved() {
            let message = format!("the stored login of '{name}' does not have this model, and there is no API key");
            let variable = self.known.and_then(|known| known.key_env.first()).copied().unwrap_or("the key");
            return ModelError::new(ModelErrorKind::Auth, message)
                .with_hint(format!("Set {variable} in your environment, or choose a model of the subscription."));
        }
        ModelError::new(ModelErrorKind::Auth, format!("there is no key for '{name}'")).with_hint(self.how_to())
    }

    /// Whether a variable of the environment names another address than the user's file or the provider itself. Anybody
    /// who starts a client may set one, a tool call too, and this machine is as good a place to read keys as any other.
    fn is_elsewhere(&self) -> bool {
        let own = self.entry.base_url.as_deref().or(self.known.map(|known| known.base_url)).unwrap_or_default();
        let is_own = match (http::base(own, "v1"), http::base(&self.base_url, "v1")) {
            (Ok(own), Ok(here)) => own == here,
            _ => own == self.base_url,
        };
        self.named == Named::Variable && !is_own
    }

    /// A key is there, but not for the address that a variable names. `or` is what else can be done.
    fn for_its_own_address(&self, what: &str, or: &str) -> ModelError {
        let (name, place) = (self.name, http::without_secrets(&self.base_url));
        let message = format!("there is no key for '{name}' at {place}: {what} is good for its own address only");
        ModelError::new(ModelErrorKind::Auth, message).with_hint(format!("{}{or}.", self.make_it_its_own()))
    }

    /// How an address that a variable names becomes the provider's own.
    fn make_it_its_own(&self) -> String {
        let name = self.name;
        format!("Unset the variable that names that address, or put it into [providers.{name}] base_url of config.toml")
    }

    /// What there is for the provider and is not sent to the address that a variable names.
    fn withheld(&self) -> Option<Withheld> {
        let stored = self.login.is_elsewhere().then_some("what is stored for it");
        let headers = (self.is_elsewhere() && !self.entry.headers.is_empty()).then_some("its headers of config.toml");
        let what = [stored, headers].into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let (name, place) = (self.name, http::without_secrets(&self.base_url));
        let again =
            if stored.is_some() { format!(", or log in where it is set: mcode login {name}") } else { String::new() };
        (!what.is_empty()).then(|| Withheld {
            what: format!("{what} was not sent to {place}, which is not an address of '{name}' itself"),
            hint: format!("{}{again}.", self.make_it_its_own()),
        })
    }

    fn how_to(&self) -> String {
        let name = self.name;
        match self.known.and_then(|known| known.key_env.first()) {
            _ if self.login.is_wanted() => format!("Log in with: mcode login {name}"),
            Some(variable) => format!("Set {variable}, or: mcode login {name}"),
            None => format!("Log in or give a key with: mcode login {name}"),
        }
    }

    /// What is known of a model here: the user's figures over the catalogue's.
    pub(super) fn info(&self, catalogue: &Catalogue, model: &ModelRef) -> ModelInfo {
        let mut info = catalogue.info(model);
        if let Some(declared) = self.entry.models.iter().find(|declared| declared.id == model.model) {
            info.known |= declared.max_output.is_some();
            info.context_tokens = declared.context.unwrap_or(info.context_tokens);
            info.max_output_tokens = declared.max_output.unwrap_or(info.max_output_tokens);
            info.images = declared.images.unwrap_or(info.images);
            info.thinking = declared.thinking.as_deref().and_then(ThinkingForm::named).unwrap_or(info.thinking);
            info.pricing = priced(declared, info.pricing);
        }
        info
    }

    /// The variables that lead to an identity at the provider's cloud, and where the home with its files is.
    fn identity_env(&self, env: &BTreeMap<String, String>) -> BTreeMap<String, Secret> {
        let homes = ["HOME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"];
        let aws = self.wire == Wire::Bedrock || self.known.is_some_and(|known| known.identity == known::Identity::Aws);
        let google = self.known.is_some_and(|known| known.identity == known::Identity::Google);
        let leads = |name: &str| {
            aws && (name.starts_with("AWS_") || homes.contains(&name)) || google && google::VARIABLES.contains(&name)
        };
        let found = env.iter().filter(|(name, _)| leads(name));
        found.map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect()
    }

    pub(super) fn access(
        &self,
        info: &ModelInfo,
        stored: &Stored,
        env: &BTreeMap<String, String>,
    ) -> Result<Access, ModelError> {
        let key = self.key(stored, env)?;
        // They may hold secrets and go where keys go.
        let mut headers = if self.is_elsewhere() { BTreeMap::new() } else { self.entry.headers.clone() };
        if self.name == "anthropic" {
            headers.extend(custom_headers(env));
        }
        let default_idle = if info.thinking == ThinkingForm::None { IDLE_TIMEOUT_MS } else { IDLE_TIMEOUT_THINKING_MS };
        let idle = self.entry.idle_timeout.and_then(|idle| u64::try_from(idle.as_millis()).ok());
        Ok(Access {
            provider: self.name.to_owned(),
            wire: self.wire,
            base_url: self.base_url.clone(),
            key: key.value,
            key_source: key.giver,
            key_place: key.place,
            key_word: key.word,
            withheld: self.withheld(),
            headers,
            network_env: http::network_env(env),
            identity_env: self.identity_env(env),
            idle_timeout_ms: idle.filter(|idle| *idle > 0).unwrap_or(default_idle),
        })
    }
}

/// The user's prices over those that are known; a price of its own for long requests goes with the price that it is of.
fn priced(declared: &ModelEntry, known: Option<Pricing>) -> Option<Pricing> {
    let (input, output) = (declared.input_price, declared.output_price);
    let cache = (declared.cache_read_price, declared.cache_write_price);
    if input.or(output).or(cache.0).or(cache.1).is_none() {
        return known;
    }
    // The cache costs what other input does, unless something else is said of it.
    let of_cache = input.unwrap_or_default();
    let base = known.unwrap_or(Pricing { cache_read: of_cache, cache_write: of_cache, ..Pricing::default() });
    Some(Pricing {
        input: input.unwrap_or(base.input),
        output: output.unwrap_or(base.output),
        cache_read: cache.0.unwrap_or(base.cache_read),
        cache_write: cache.1.unwrap_or(base.cache_write),
        long: base.long.filter(|_| input.or(output).is_none()),
    })
}

fn no_address(name: &str, known: Option<&KnownProvider>) -> ModelError {
    let hint = match known.map(|known| known.base_url_env) {
        Some([first, .., last]) => format!("Set {first} or {last} in your environment, or base_url there."),
        _ => "Add base_url = \"http://host/v1\".".to_owned(),
    };
    config_error(name, "it has no base_url", &hint)
}

fn config_error(provider: &str, fault: &str, hint: &str) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, format!("[providers.{provider}] of the configuration: {fault}"))
        .with_hint(hint)
}

/// What is said of a key of the client's environment.
fn of_environment(variable: &str) -> String {
    format!("environment {variable}")
}

fn set<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// `Name: value` per line.
fn custom_headers(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let lines = set(env, "ANTHROPIC_CUSTOM_HEADERS").unwrap_or_default().lines();
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}
