//! Which model has which role for a client: settings, packs, and what can be reached.

use std::collections::BTreeMap;

use mcode_config::{Effective, PackEntry};
use mcode_events::run::ThinkingLevel;
use mcode_models::packs::{self, Assigned, Role, Settings, Wishes};
use mcode_models::{Catalogue, ModelError, ModelErrorKind, ModelInfo, ModelRef, Pack};

use super::Registry;
use super::login::Stored;
use super::seat::Seat;
use crate::known::{self, KNOWN};

type Env = BTreeMap<String, String>;

impl Registry {
    pub(super) fn assigned(&self, role: Role, wishes: &Wishes<'_>, env: &Env) -> Result<Option<Assigned>, ModelError> {
        let config = (self.config)();
        let pack = match config.pack.as_deref() {
            Some(name) => self.pack(&config, name, env).map(Ok).or_else(|| Some(Err(no_pack(name)))).transpose(),
            None => Ok(None),
        };
        // A pack that is not there is told of only where it would count.
        let settings = Settings {
            own: own_setting(&config, role),
            model: config.model.as_deref(),
            pack: pack.as_ref().ok().and_then(Option::as_ref),
        };
        let reachable = self.reachable_for(role, wishes.last, &config, env);
        let all = packs::wished(role, wishes, &settings, reachable.as_deref());
        let by_hand = |assigned: &Assigned| !matches!(assigned.reason, packs::Reason::Last | packs::Reason::Reachable);
        let stored = Stored::now(self.auth.as_ref());
        let found = match role.speaks() {
            true => all.into_iter().next(),
            false => all.into_iter().find(|assigned| is_usable(&config, &stored, &assigned.model, env)),
        };
        match (found, pack) {
            (Some(found), Ok(_)) => Ok(Some(found)),
            (Some(found), Err(_)) if by_hand(&found) => Ok(Some(found)),
            (_, Err(error)) => Err(error),
            (None, Ok(_)) => Ok(None),
        }
    }

    /// The packs of what this client can reach, and the user's own over them, by name.
    pub(super) fn all_packs(&self, env: &Env) -> Vec<Pack> {
        let config = (self.config)();
        let names = KNOWN.iter().map(|known| known.name);
        let own = config.providers.keys().map(String::as_str).filter(|name| known::find(name).is_none());
        let built_in = names.chain(own).filter(|name| !config.packs.contains_key(*name));
        let mut all: Vec<Pack> = built_in.filter_map(|name| self.built_in_pack(&config, name, env)).collect();
        all.extend(config.packs.iter().map(|(name, entry)| own_pack(name, entry)));
        all
    }

    fn pack(&self, config: &Effective, name: &str, env: &Env) -> Option<Pack> {
        match config.packs.get(name) {
            Some(entry) => Some(own_pack(name, entry)),
            None => self.built_in_pack(config, name, env),
        }
    }

    /// What a provider has, if this client can reach it for certain: by a key, or as a server that the user has named.
    fn built_in_pack(&self, config: &Effective, name: &str, env: &Env) -> Option<Pack> {
        let stored = Stored::now(self.auth.as_ref());
        let seat = Seat::find(config, &stored, name, "", env).ok()?;
        let declared = config.providers.get(name).is_some_and(|entry| !entry.models.is_empty());
        seat.key(&stored, env).ok().filter(|key| key.is_there() || declared)?;
        let catalogue = self.catalogue();
        let models = models_of(config, &catalogue, &seat, name);
        let known = known::find(name).map(|known| known.default_model).filter(|model| !model.is_empty());
        let preferred = match (known, config.providers.get(name).and_then(|entry| entry.models.first())) {
            (Some(model), _) => Some(format!("{name}/{model}")),
            (None, Some(first)) => Some(format!("{name}/{}", first.id)),
            (None, None) => None,
        };
        Pack::of_provider(name, preferred.as_deref(), &models)
    }

    /// What can be reached for a role: where nothing is said, of the provider of the conversation.
    fn reachable_for(&self, role: Role, last: Option<&str>, config: &Effective, env: &Env) -> Option<String> {
        let reachable = || self.reachable(config, env);
        if role.speaks() {
            return reachable();
        }
        let beside = last.map(str::to_owned).or_else(reachable)?;
        let provider = beside.parse::<ModelRef>().ok()?.provider;
        let pack = self.built_in_pack(config, &provider, env);
        pack.and_then(|pack| pack.model(role).map(str::to_owned)).or(Some(beside))
    }

    /// The best model of a provider whose key is there, else the first that the user has declared and that can be asked;
    /// last, what the pack of a provider has of which no best one is known.
    pub(super) fn reachable(&self, config: &Effective, env: &Env) -> Option<String> {
        let stored = Stored::now(self.auth.as_ref());
        let with_key = KNOWN.iter().filter(|known| !known.default_model.is_empty()).find(|known| {
            let key = Seat::find(config, &stored, known.name, "", env).and_then(|seat| seat.key(&stored, env));
            key.is_ok_and(|key| key.is_there())
        });
        if let Some(known) = with_key {
            return Some(format!("{}/{}", known.name, known.default_model));
        }
        let declared = config.providers.iter().find_map(|(provider, entry)| {
            let model = entry.models.first()?;
            Seat::find(config, &stored, provider, &model.id, env).and_then(|seat| seat.key(&stored, env)).ok()?;
            Some(format!("{provider}/{}", model.id))
        });
        let packed = || {
            let pack = KNOWN.iter().find_map(|known| self.built_in_pack(config, known.name, env))?;
            pack.model(Role::Build).map(str::to_owned)
        };
        declared.or_else(packed)
    }
}

/// Whether there is a way to a model for this client; it is not tried.
pub(super) fn is_usable(config: &Effective, stored: &Stored<'_>, model: &str, env: &Env) -> bool {
    let Ok(model) = model.parse::<ModelRef>() else { return false };
    Seat::find(config, stored, &model.provider, &model.model, env).and_then(|seat| seat.key(stored, env)).is_ok()
}

fn models_of(config: &Effective, catalogue: &Catalogue, seat: &Seat<'_>, name: &str) -> Vec<ModelInfo> {
    let named = |model: &ModelRef| seat.info(catalogue, model);
    let listed = catalogue.models().iter().filter_map(|info| info.id.parse::<ModelRef>().ok());
    let listed = listed.filter(|model| model.provider == name);
    let declared = config.providers.get(name).into_iter().flat_map(|entry| &entry.models);
    let declared = declared.map(|model| ModelRef { provider: name.to_owned(), model: model.id.clone() });
    let mut models: Vec<ModelInfo> = Vec::new();
    for model in declared.chain(listed) {
        if !models.iter().any(|known| known.id == model.to_string()) {
            models.push(named(&model));
        }
    }
    models
}

fn own_pack(name: &str, entry: &PackEntry) -> Pack {
    let role = |(name, value): (&String, &String)| Some((Role::named(name)?, value.clone()));
    let level = |(name, value): (&String, &String)| Some((Role::named(name)?, ThinkingLevel::named(value)?));
    Pack {
        name: name.to_owned(),
        built_in: false,
        models: entry.models.iter().filter_map(role).collect(),
        thinking: entry.thinking.iter().filter_map(level).collect(),
    }
}

fn own_setting(config: &Effective, role: Role) -> Option<(&'static str, &str)> {
    let section = |section: &str, key: &str| config.sections.get(section)?.get(key)?.as_str();
    let (key, model) = match role {
        Role::Build => ("modes.build.model", config.mode_models.get("build").map(String::as_str)),
        Role::Plan => ("modes.plan.model", config.mode_models.get("plan").map(String::as_str)),
        Role::Explore => ("modes.explore.model", config.mode_models.get("explore").map(String::as_str)),
        Role::Small => ("small_model", config.small_model.as_deref()),
        Role::Judge => ("goals.judge_model", section("goals", "judge_model")),
        Role::Observer => ("memory.observer_model", section("memory", "observer_model")),
        Role::Reflector => ("memory.reflector_model", section("memory", "reflector_model")),
    };
    Some((key, model?))
}

fn no_pack(name: &str) -> ModelError {
    ModelError::new(
        ModelErrorKind::InvalidRequest,
        format!("there is no pack '{name}', which pack in config.toml names"),
    )
    .with_hint("List the packs with: mcode packs list; choose one with: mcode packs use NAME")
}
