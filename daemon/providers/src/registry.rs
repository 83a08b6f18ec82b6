//! Finds models for a client: known and configured providers, keys and base URLs from the client's environment.

mod listing;
mod login;
pub mod renewing;
mod roles;
mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mcode_config::{Effective, ProviderEntry};
use mcode_env::{IdGen, SystemIds};
use mcode_models::{
    Assigned, Catalogue, ListedModel, ModelError, ModelErrorKind, ModelProvider, ModelRef, ModelRegistry,
    ResolvedModel, Role, Secret, Wire, Wishes,
};

use self::login::Stored;
use self::renewing::Renewal;
use self::seat::Seat;
use crate::anthropic::AnthropicProvider;
use crate::auth::Auth;
use crate::bedrock::BedrockProvider;
use crate::chat::ChatProvider;
use crate::gemini::GeminiProvider;
use crate::google::GoogleIdentities;
use crate::http::HttpClients;
use crate::refused::LeftOut;
use crate::responses::ResponsesProvider;
use crate::scripted::ScriptedProvider;

/// Silence that ends a request, in milliseconds, when the configuration names none.
pub const IDLE_TIMEOUT_MS: u64 = 120_000;
/// The same for models that think: some are silent for minutes.
pub const IDLE_TIMEOUT_THINKING_MS: u64 = 300_000;

type ConfigSource = Arc<dyn Fn() -> Arc<Effective> + Send + Sync>;

/// The models of this daemon.
#[derive(Clone)]
pub struct Registry {
    config: ConfigSource,
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    catalogue: Arc<RwLock<Arc<Catalogue>>>,
    google: Arc<GoogleIdentities>,
    auth: Option<Arc<Auth>>,
    bedrock: BedrockProvider,
    chat: ChatProvider,
    responses: ResponsesProvider,
    scripted: Arc<ScriptedProvider>,
    left_out: LeftOut,
    renewal: Arc<Mutex<Renewal>>,
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
        let google = Arc::default();
        Self {
            config,
            clients,
            ids,
            catalogue,
            google,
            auth: None,
            bedrock,
            chat,
            responses,
            scripted,
            left_out: LeftOut::default(),
            renewal: Arc::default(),
        }
    }

    /// The same, which also knows the stored logins.
    #[must_use]
    pub fn with_auth(mut self, auth: Arc<Auth>) -> Self {
        self.auth = Some(auth);
        self
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
            Wire::Anthropic => {
                let (clients, ids, google) =
                    (Arc::clone(&self.clients), Arc::clone(&self.ids), Arc::clone(&self.google));
                Arc::new(AnthropicProvider::new(clients, ids, google, self.left_out.with_configured(omit)))
            }
            // The copy shares what its servers were seen to refuse.
            Wire::OpenaiChat => Arc::new(self.chat.with_omitted(omit)),
            Wire::Gemini => {
                let (clients, ids, google) =
                    (Arc::clone(&self.clients), Arc::clone(&self.ids), Arc::clone(&self.google));
                Arc::new(GeminiProvider::new(clients, ids, google, self.left_out.with_configured(omit)))
            }
            Wire::Bedrock => Arc::new(self.bedrock.with_omitted(omit)),
            Wire::OpenaiResponses => Arc::new(self.responses.with_omitted(omit)),
            Wire::Scripted => Arc::clone(&self.scripted) as Arc<dyn ModelProvider>,
        }
    }
}

impl ModelRegistry for Registry {
    fn resolve(&self, model: &str, env: &BTreeMap<String, String>) -> Result<ResolvedModel, ModelError> {
        let config = (self.config)();
        let model: ModelRef = model.parse().map_err(|()| {
            ModelError::new(ModelErrorKind::UnknownModel, format!("'{model}' is not the name of a model"))
                .with_hint("Write provider/model, such as anthropic/claude-sonnet-5; `mcode models` lists them.")
        })?;
        let stored = Stored::now(self.auth.as_ref());
        let seat = Seat::find(&config, &stored, &model.provider, &model.model, env)?;
        if seat.wire == Wire::Scripted && model.model != crate::scripted::MODEL {
            return Err(ModelError::new(ModelErrorKind::UnknownModel, format!("there is no model '{model}'"))
                .with_hint(format!("The scripted model is demo/{}.", crate::scripted::MODEL)));
        }
        let info = seat.info(&self.catalogue(), &model);
        let access = seat.access(&info, &stored, env)?;
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
        let stored = Stored::now(self.auth.as_ref());
        let mut listed = Vec::with_capacity(names.len());
        for model in names {
            let Ok(seat) = Seat::find(&config, &stored, &model.provider, &model.model, env) else { continue };
            let (usable, key_source) = match seat.key(&stored, env) {
                Ok(key) => (true, key.source),
                Err(error) => (false, error.hint),
            };
            listed.push(ListedModel {
                info: seat.info(&catalogue, &model),
                provider: model.provider.clone(),
                wire: seat.wire.as_str().to_owned(),
                usable,
                key_source,
                base_url: seat.base_url.clone(),
            });
        }
        listed
    }

    fn for_role(
        &self,
        role: Role,
        wishes: &Wishes<'_>,
        env: &BTreeMap<String, String>,
    ) -> Result<Option<Assigned>, ModelError> {
        self.assigned(role, wishes, env)
    }

    fn known_secrets(&self) -> Vec<Secret> {
        self.auth.as_ref().map(|auth| auth.known_secrets()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
