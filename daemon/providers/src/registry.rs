//! Finds models for a client: known and configured providers, keys and base URLs from the client's environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use mcode_config::{Effective, ProviderEntry};
use mcode_env::{IdGen, SystemIds};
use mcode_models::{
    Access, Catalogue, ListedModel, ModelError, ModelErrorKind, ModelInfo, ModelProvider, ModelRef, ModelRegistry,
    ResolvedModel, Secret, ThinkingForm, Wire,
};

use crate::anthropic::AnthropicProvider;
use crate::bedrock::BedrockProvider;
use crate::chat::ChatProvider;
use crate::gemini::GeminiProvider;
use crate::http::{self, HttpClients};
use crate::known::{self, KNOWN, KnownProvider};
use crate::responses::ResponsesProvider;
use crate::scripted::ScriptedProvider;

/// Silence that ends a request, in milliseconds, when the configuration names none.
pub const IDLE_TIMEOUT_MS: u64 = 120_000;
/// The same for models that think: some are silent for minutes.
pub const IDLE_TIMEOUT_THINKING_MS: u64 = 300_000;
/// Variables of the client that decide how servers are reached.
const NETWORK_VARIABLES: &[&str] = &["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE"];

type ConfigSource = Arc<dyn Fn() -> Arc<Effective> + Send + Sync>;

/// The models of this daemon.
#[derive(Clone)]
pub struct Registry {
    config: ConfigSource,
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    catalogue: Arc<RwLock<Arc<Catalogue>>>,
    bedrock: BedrockProvider,
    chat: ChatProvider,
    responses: ResponsesProvider,
    scripted: Arc<ScriptedProvider>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// A registry that asks `config` for the values in force at every look-up.
    #[must_use]
    pub fn new(config: ConfigSource) -> Self {
        Self::with_ids(config, Arc::new(SystemIds))
    }

    /// The same with a given maker of tool-call ids.
    #[must_use]
    pub fn with_ids(config: ConfigSource, ids: Arc<dyn IdGen>) -> Self {
        let clients = Arc::new(HttpClients::new());
        let chat = ChatProvider::new(Arc::clone(&clients), Arc::clone(&ids));
        let bedrock = BedrockProvider::new(Arc::clone(&clients), Arc::clone(&ids));
        let responses = ResponsesProvider::new(Arc::clone(&clients), Arc::clone(&ids));
        let scripted = Arc::new(ScriptedProvider::new(Arc::clone(&ids)));
        let catalogue = Arc::new(RwLock::new(Arc::new(Catalogue::bundled().clone())));
        Self { config, clients, ids, catalogue, bedrock, chat, responses, scripted }
    }

    /// What is known of models now.
    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a newer catalogue over the bundled one, for every look-up from now on.
    pub fn refresh(&self, newer: &Catalogue) {
        let merged = Arc::new(Catalogue::bundled().refreshed(newer));
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = merged;
    }

    fn provider(&self, wire: Wire, entry: &ProviderEntry) -> Arc<dyn ModelProvider> {
        let omit = entry.omit_fields.clone();
        match wire {
            Wire::Anthropic => Arc::new(AnthropicProvider::new(Arc::clone(&self.clients), Arc::clone(&self.ids), omit)),
            // The copy shares what its servers were seen to refuse.
            Wire::OpenaiChat => Arc::new(self.chat.with_omitted(omit)),
            Wire::Gemini => Arc::new(GeminiProvider::new(Arc::clone(&self.clients), Arc::clone(&self.ids), omit)),
            Wire::Bedrock => Arc::new(self.bedrock.with_omitted(omit)),
            Wire::OpenaiResponses => Arc::new(self.responses.with_omitted(omit)),
            Wire::Scripted => Arc::clone(&self.scripted) as Arc<dyn ModelProvider>,
        }
    }
}

/// A provider as it stands for one client.
struct Seat<'a> {
    name: &'a str,
    known: Option<&'static KnownProvider>,
    entry: ProviderEntry,
    wire: Wire,
    base_url: String,
}

impl<'a> Seat<'a> {
    fn find(config: &Effective, name: &'a str, env: &BTreeMap<String, String>) -> Result<Self, ModelError> {
        let known = known::find(name);
        let entry = config.providers.get(name);
        if known.is_none() && entry.is_none() {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            return Err(ModelError::new(ModelErrorKind::UnknownModel, format!("there is no provider '{name}'"))
                .with_hint(format!(
                    "Known are {}. Others are declared in config.toml under [providers.{name}] with wire and base_url.",
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
        let from_env = known
            .into_iter()
            .flat_map(|known| known.base_url_env)
            .find_map(|variable| set(env, variable).map(|value| known::base_url_of(variable, value)));
        let base_url = from_env
            .or_else(|| entry.base_url.clone())
            .or_else(|| known.map(|known| known.base_url.to_owned()))
            .filter(|url| !url.is_empty() || known.is_some_and(|known| known.wire == Wire::Scripted))
            .ok_or_else(|| config_error(name, "it has no base_url", "Add base_url = \"http://host/v1\"."))?;
        let wire = wire.unwrap_or_else(|| known.map_or(Wire::OpenaiChat, |known| known.wire_at(&base_url)));
        Ok(Self { name, known, entry, wire, base_url })
    }

    /// The key, whether it goes as a bearer token, and where it is from. No key is an error where one is needed.
    fn key(&self, env: &BTreeMap<String, String>) -> Result<(Option<Secret>, bool, String), ModelError> {
        for variable in self.known.into_iter().flat_map(|known| known.key_env) {
            if let Some(key) = set(env, variable) {
                return Ok((Some(Secret::new(key)), variable.ends_with("AUTH_TOKEN"), (*variable).to_owned()));
            }
        }
        match self.entry.api_key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) => self.configured_key(key, env),
            None if self.needs_key() => Err(self.no_key()),
            None => Ok((None, false, "no key needed".to_owned())),
        }
    }

    fn configured_key(
        &self,
        key: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<(Option<Secret>, bool, String), ModelError> {
        if let Some(variable) = key.strip_prefix("env:") {
            return match set(env, variable) {
                Some(key) => Ok((Some(Secret::new(key)), false, variable.to_owned())),
                None => Err(ModelError::new(
                    ModelErrorKind::Auth,
                    format!("there is no key for '{}': {variable} is not set in your environment", self.name),
                )
                .with_hint(format!("Set {variable}, which [providers.{}] api_key names.", self.name))),
            };
        }
        for form in ["command:", "keyring:"] {
            if key.starts_with(form) {
                return Err(config_error(
                    self.name,
                    &format!("api_key = \"{form}…\" is not supported"),
                    "Use env:NAME with a variable of your environment.",
                ));
            }
        }
        Ok((Some(Secret::new(key)), false, "config.toml".to_owned()))
    }

    /// A declared server without a word about keys, and every server on this machine, may do without.
    fn needs_key(&self) -> bool {
        let loopback = http::endpoint(&self.base_url, http::CHAT_PATH)
            .is_ok_and(|url| url.host_str().is_some_and(http::is_loopback_name));
        self.known.is_some_and(|known| known.needs_key) && !loopback
    }

    fn no_key(&self) -> ModelError {
        ModelError::new(ModelErrorKind::Auth, format!("there is no key for '{}'", self.name)).with_hint(self.how_to())
    }

    fn how_to(&self) -> String {
        match self.known.and_then(|known| known.key_env.first()) {
            Some(variable) => {
                format!("Set {variable} in your environment, or [providers.{}] api_key in config.toml.", self.name)
            }
            None => format!("Set [providers.{}] api_key in config.toml.", self.name),
        }
    }

    /// What is known of a model here: the user's figures over the catalogue's.
    fn info(&self, catalogue: &Catalogue, model: &ModelRef) -> ModelInfo {
        let mut info = catalogue.info(model);
        if let Some(declared) = self.entry.models.iter().find(|declared| declared.id == model.model) {
            info.known |= declared.max_output.is_some();
            info.context_tokens = declared.context.unwrap_or(info.context_tokens);
            info.max_output_tokens = declared.max_output.unwrap_or(info.max_output_tokens);
            info.images = declared.images.unwrap_or(info.images);
        }
        info
    }

    fn access(&self, info: &ModelInfo, env: &BTreeMap<String, String>) -> Result<Access, ModelError> {
        let (key, bearer, _) = self.key(env)?;
        let mut headers = self.entry.headers.clone();
        if self.name == "anthropic" {
            headers.extend(custom_headers(env));
        }
        let default_idle = if info.thinking == ThinkingForm::None { IDLE_TIMEOUT_MS } else { IDLE_TIMEOUT_THINKING_MS };
        let idle = self.entry.idle_timeout.and_then(|idle| u64::try_from(idle.as_millis()).ok());
        Ok(Access {
            provider: self.name.to_owned(),
            wire: self.wire,
            base_url: self.base_url.clone(),
            key,
            bearer,
            headers,
            network_env: network_env(env),
            identity_env: if self.wire == Wire::Bedrock { identity_env(env) } else { BTreeMap::new() },
            idle_timeout_ms: idle.filter(|idle| *idle > 0).unwrap_or(default_idle),
        })
    }
}

fn config_error(provider: &str, fault: &str, hint: &str) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, format!("[providers.{provider}] of the configuration: {fault}"))
        .with_hint(hint)
}

fn set<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// The variables that lead to an identity at AWS: its own, and where the home with its files is.
fn identity_env(env: &BTreeMap<String, String>) -> BTreeMap<String, Secret> {
    let leads =
        |name: &str| name.starts_with("AWS_") || matches!(name, "HOME" | "USERPROFILE" | "HOMEDRIVE" | "HOMEPATH");
    env.iter().filter(|(name, _)| leads(name)).map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect()
}

/// `Name: value` per line.
fn custom_headers(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let lines = set(env, "ANTHROPIC_CUSTOM_HEADERS").unwrap_or_default().lines();
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// The variables for the network under their names in capitals; the small form counts where the other is missing.
fn network_env(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let found = NETWORK_VARIABLES.iter().filter_map(|name| {
        let value = set(env, name).or_else(|| set(env, &name.to_ascii_lowercase()))?;
        Some(((*name).to_owned(), value.to_owned()))
    });
    found.collect()
}

impl ModelRegistry for Registry {
    fn resolve(&self, model: &str, env: &BTreeMap<String, String>) -> Result<ResolvedModel, ModelError> {
        let config = (self.config)();
        let model: ModelRef = model.parse().map_err(|()| {
            ModelError::new(ModelErrorKind::UnknownModel, format!("'{model}' is not the name of a model"))
                .with_hint("Write provider/model, such as anthropic/claude-sonnet-5; `mcode models` lists them.")
        })?;
        let seat = Seat::find(&config, &model.provider, env)?;
        if seat.wire == Wire::Scripted && model.model != crate::scripted::MODEL {
            return Err(ModelError::new(ModelErrorKind::UnknownModel, format!("there is no model '{model}'"))
                .with_hint(format!("The scripted model is demo/{}.", crate::scripted::MODEL)));
        }
        let info = seat.info(&self.catalogue(), &model);
        let access = seat.access(&info, env)?;
        Ok(ResolvedModel { info, access, provider: self.provider(seat.wire, &seat.entry) })
    }

    fn list(&self, env: &BTreeMap<String, String>) -> Vec<ListedModel> {
        let config = (self.config)();
        let catalogue = self.catalogue();
        let mut names: BTreeSet<ModelRef> = catalogue.models().iter().filter_map(|info| info.id.parse().ok()).collect();
        for (provider, entry) in &config.providers {
            names.extend(
                entry.models.iter().map(|model| ModelRef { provider: provider.clone(), model: model.id.clone() }),
            );
        }
        let mut listed = Vec::with_capacity(names.len());
        for model in names {
            let Ok(seat) = Seat::find(&config, &model.provider, env) else { continue };
            let (usable, key_source) = match seat.key(env) {
                Ok((_, _, source)) => (true, source),
                Err(error) => (false, error.hint),
            };
            listed.push(ListedModel {
                info: seat.info(&catalogue, &model),
                provider: model.provider.clone(),
                wire: seat.wire.as_str().to_owned(),
                usable,
                key_source,
            });
        }
        listed
    }

    fn default_model(&self, mode: &str, env: &BTreeMap<String, String>) -> Option<String> {
        let config = (self.config)();
        if let Some(model) = config.mode_models.get(mode).or(config.model.as_ref()) {
            return Some(model.clone());
        }
        let with_key = KNOWN.iter().filter(|known| !known.default_model.is_empty()).find(|known| {
            Seat::find(&config, known.name, env).and_then(|seat| seat.key(env)).is_ok_and(|(key, _, _)| key.is_some())
        });
        if let Some(known) = with_key {
            return Some(format!("{}/{}", known.name, known.default_model));
        }
        // Else the first model that the user has declared and that can be asked.
        config.providers.iter().find_map(|(provider, entry)| {
            let model = entry.models.first()?;
            Seat::find(&config, provider, env).and_then(|seat| seat.key(env)).ok()?;
            Some(format!("{provider}/{}", model.id))
        })
    }
}

#[cfg(test)]
mod tests;
