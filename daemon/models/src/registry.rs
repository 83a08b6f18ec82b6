//! Finding a model by its name for a client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::catalog::ModelInfo;
use crate::error::ModelError;
use crate::packs::{Assigned, Role, Wishes};
use crate::request::{Access, Secret};
use crate::stream::ModelProvider;

/// A model that can be asked.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// What is known of it.
    pub info: ModelInfo,
    /// How it is reached.
    pub access: Access,
    /// Who speaks to it.
    pub provider: Arc<dyn ModelProvider>,
}

/// A row of the list of models.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedModel {
    /// What is known of it.
    pub info: ModelInfo,
    /// Provider name.
    pub provider: String,
    /// Wire name.
    pub wire: String,
    /// Whether a key was found, or none is needed.
    pub usable: bool,
    /// Where the key comes from, or what to set.
    pub key_source: String,
    /// Where it is asked; empty for one within the daemon.
    pub base_url: String,
}

/// Knows the configured providers and the catalogue. `env` is the client's environment.
pub trait ModelRegistry: Send + Sync + fmt::Debug {
    /// The model with this full name, ready to be asked. Errors are `UnknownModel`, `Auth` (no key: the hint names the
    /// variable and the command that mend it) or `InvalidRequest`.
    fn resolve(&self, model: &str, env: &BTreeMap<String, String>) -> Result<ResolvedModel, ModelError>;
    /// All known models, by provider and name.
    fn list(&self, env: &BTreeMap<String, String>) -> Vec<ListedModel>;
    /// The model for a role, by what the run and its thread wish, the settings, the pack in use, and what this client can
    /// reach; `None` when there is none at all. A role that speaks gets what is wished first, whether it can be reached or
    /// not; the others get the first that can. An error names a pack that is not there.
    fn for_role(
        &self,
        role: Role,
        wishes: &Wishes<'_>,
        env: &BTreeMap<String, String>,
    ) -> Result<Option<Assigned>, ModelError>;
    /// The secrets that were loaded or given of late, for whoever has to take them out of what is written down: tokens,
    /// what renews them, keys that `keyring:` and `command:` gave, secrets of OAuth clients. Bounded in number, the one
    /// that was used last at the end; they grow while requests are sent, so ask when they are needed. Keys that stand in
    /// the configuration or in a client's environment are not among them.
    fn known_secrets(&self) -> Vec<Secret> {
        Vec::new()
    }
}
