//! Whether what is stored for a provider is good for a client's request: for this model, at this address.
//!
//! A stored token or key goes to the provider's own address or to one that the user's file names. An address of the
//! environment may come from anybody who starts a client, a tool call too; it gets what was stored with it set.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_config::Effective;
use mcode_models::Wire;

use super::seat::Named;
use crate::auth::data::{self, LoginData, SUBSCRIPTION_PATH, Use};
use crate::auth::{About, Auth, Kind, VaultError};

/// What is stored now.
pub(super) struct Stored<'a> {
    auth: Option<&'a Arc<Auth>>,
    all: Result<BTreeMap<String, About>, VaultError>,
}

impl<'a> Stored<'a> {
    /// Looks.
    pub(super) fn now(auth: Option<&'a Arc<Auth>>) -> Self {
        Self { auth, all: auth.map_or_else(|| Ok(BTreeMap::new()), |auth| auth.stored()) }
    }

    /// Who gives the secrets of it.
    pub(super) fn auth(&self) -> Option<&'a Arc<Auth>> {
        self.auth
    }

    /// What is wrong with the place where it is kept.
    pub(super) fn problem(&self) -> Option<&VaultError> {
        self.all.as_ref().err()
    }
}

/// What is stored for a provider, as far as it is good here.
#[derive(Debug, Default)]
pub(super) struct LoginHere {
    /// What is stored, if it is good for this request.
    about: Option<About>,
    /// Where the login leads, when that is another place than the provider's own.
    base_url: Option<String>,
    wire: Option<Wire>,
    /// Something is stored, but for another address.
    elsewhere: bool,
    /// Something is stored, but the model is not part of it.
    unserved: bool,
    /// The user has named an OAuth client for this provider and no key.
    wanted: bool,
}

impl LoginHere {
    /// Looks what is stored for `name`, for `model` at the `given` address.
    pub(super) fn find(
        config: &Effective,
        stored: &Stored<'_>,
        name: &str,
        model: &str,
        named: Named,
        given: Option<&str>,
    ) -> Self {
        let own_client = config.logins.contains_key(name) && stored.auth.is_some();
        let has_key = config.providers.get(name).is_some_and(|entry| entry.api_key.is_some());
        let here = Self { wanted: own_client && !has_key, ..Self::default() };
        let Some(about) = stored.all.as_ref().ok().and_then(|all| all.get(name)) else { return here };
        let data = if about.kind == Kind::Login { data::find(name, config).ok().flatten() } else { None };
        if data.as_ref().is_some_and(|data| !data.serves(model)) {
            return Self { unserved: true, ..here };
        }
        let chatgpt = data.as_ref().and_then(chatgpt);
        let fits = match (named, given) {
            (Named::Nobody, _) | (_, None) => true,
            (Named::Variable, Some(given)) if about.address.as_deref() != Some(given) => false,
            (Named::Variable | Named::Config, Some(given)) => chatgpt.is_none() || given.contains(SUBSCRIPTION_PATH),
        };
        if !fits {
            return Self { elsewhere: true, ..here };
        }
        let base_url = if named == Named::Nobody { chatgpt.map(str::to_owned) } else { None };
        Self { about: Some(about.clone()), base_url, wire: chatgpt.map(|_| Wire::OpenaiResponses), ..here }
    }

    /// What is stored, if it is of this kind.
    pub(super) fn about(&self, kind: Kind) -> Option<&About> {
        self.about.as_ref().filter(|about| about.kind == kind)
    }

    /// Where the login leads.
    pub(super) fn base_url(&self) -> Option<&str> {
        self.base_url.as_deref()
    }

    /// How the place is spoken to where the login leads.
    pub(super) fn wire(&self) -> Option<Wire> {
        self.wire
    }

    /// Whether something is stored that is for another address.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Whether something is stored that the model is not part of.
    pub(super) fn is_unserved(&self) -> bool {
        self.unserved
    }

    /// Whether the provider is meant to be logged in to.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }
}

fn chatgpt(data: &LoginData) -> Option<&str> {
    match &data.becomes {
        Use::ChatGpt { api_url } => Some(api_url),
        Use::Plain | Use::Copilot { .. } => None,
    }
}
