//! Packs: listed, made, changed, removed, chosen.

use std::collections::{BTreeMap, BTreeSet};

use mcode_events::run::ThinkingLevel;
use mcode_models::{Pack, Role, Wishes};
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use tonic::{Code, Status};

use super::{model_name, plain_name};
use crate::ConfigChange;
use crate::services::Services;
use crate::status::{bad_field, refuse};

type Env = BTreeMap<String, String>;

impl Services {
    pub(super) fn listed_packs(&self, request: &v1::ListPacksRequest) -> v1::ListPacksResponse {
        let chosen = (self.deps.threads.deps().config)().pack.clone();
        let packs = self.deps.models.packs(&request.env);
        let packs = packs.iter().map(|pack| self.pack_row(pack, chosen.as_deref(), &request.env)).collect();
        let roles = Role::ALL.into_iter().map(|role| self.role_row(role, &request.env)).collect();
        v1::ListPacksResponse { packs, next_page_token: String::new(), roles }
    }

    fn pack_row(&self, pack: &Pack, chosen: Option<&str>, env: &Env) -> v1::Pack {
        let named = Role::ALL.into_iter().filter_map(|role| Some((role, pack.models.get(&role)?)));
        let roles = named.map(|(role, model)| v1::PackRole {
            role: role.to_string(),
            model: model.clone(),
            thinking: level(pack.thinking.get(&role).copied()),
            usable: self.deps.models.is_usable(model, env),
        });
        v1::Pack {
            name: pack.name.clone(),
            built_in: pack.built_in,
            in_use: chosen == Some(pack.name.as_str()),
            roles: roles.collect(),
        }
    }

    fn role_row(&self, role: Role, env: &Env) -> v1::RoleModel {
        let models = &self.deps.threads.deps().models;
        // What works beside a conversation is looked for where that one's model is.
        let build = models.for_role(Role::Build, &Wishes::default(), env).ok().flatten();
        let last = build.as_ref().map(|build| build.model.as_str()).filter(|_| !role.speaks());
        let (assigned, why) = match models.for_role(role, &Wishes { last, ..Wishes::default() }, env) {
            Ok(Some(assigned)) => (Some(assigned), String::new()),
            Ok(None) => (None, "no model can be reached".to_owned()),
            Err(error) => (None, error.message),
        };
        let Some(assigned) = assigned else {
            return v1::RoleModel { role: role.to_string(), reason: why, ..v1::RoleModel::default() };
        };
        v1::RoleModel {
            role: role.to_string(),
            usable: self.deps.models.is_usable(&assigned.model, env),
            model: assigned.model,
            thinking: level(assigned.thinking),
            reason: assigned.reason.to_string(),
        }
    }

    /// Writes a pack into the configuration; `new` says whether there may be none of its name yet.
    pub(super) async fn written_pack(&self, pack: v1::Pack, new: bool) -> Result<String, Status> {
        let name = plain_name("pack.name", &pack.name)?;
        let is_there = (self.deps.threads.deps().config)().packs.contains_key(&name);
        match (new, is_there) {
            (true, true) => {
                let message = format!("there is a pack '{name}' already");
                return Err(refuse(Code::AlreadyExists, Reason::PackExists, message, None));
            }
            (false, false) => return Err(no_pack(&name)),
            _ => {}
        }
        if pack.roles.is_empty() {
            return Err(bad_field(
                "pack.roles",
                "say which model has which role, such as build=anthropic/claude-sonnet-5",
            ));
        }
        let mut changes = Vec::new();
        let mut seen = BTreeSet::new();
        for given in &pack.roles {
            if !seen.insert(given.role.as_str()) {
                return Err(bad_field("pack.roles", format!("{} is given twice", given.role)));
            }
            let role = Role::named(&given.role).ok_or_else(|| {
                let names = Role::ALL.map(Role::as_str).join(", ");
                bad_field("pack.roles", format!("'{}' is none of {names}", given.role))
            })?;
            let (key, thinking) = (format!("packs.{name}.{role}"), format!("packs.{name}.thinking.{role}"));
            if given.model.is_empty() {
                if new {
                    return Err(bad_field("pack.roles", format!("{role} has no model")));
                }
                changes.extend([ConfigChange::Unset { key }, ConfigChange::Unset { key: thinking }]);
                continue;
            }
            changes.push(ConfigChange::Set { key, value: model_name("pack.roles", &given.model)? });
            changes.push(match given.thinking.as_str() {
                "" => ConfigChange::Unset { key: thinking },
                word => {
                    let level = ThinkingLevel::named(word).ok_or_else(|| {
                        bad_field("pack.roles", format!("'{word}' is none of off, low, medium, high, xhigh"))
                    })?;
                    ConfigChange::Set { key: thinking, value: level.as_str().to_owned() }
                }
            });
        }
        self.change(changes).await
    }

    pub(super) async fn deleted_pack(&self, name: &str) -> Result<String, Status> {
        let name = plain_name("name", name)?;
        let config = (self.deps.threads.deps().config)();
        if !config.packs.contains_key(&name) {
            return Err(no_pack(&name));
        }
        let mut changes = vec![ConfigChange::Unset { key: format!("packs.{name}") }];
        // What is gone can not be in use.
        if config.pack.as_deref() == Some(name.as_str()) {
            changes.push(ConfigChange::Unset { key: "pack".to_owned() });
        }
        self.change(changes).await
    }

    pub(super) async fn used_pack(&self, request: v1::UsePackRequest) -> Result<v1::UsePackResponse, Status> {
        let config = (self.deps.threads.deps().config)();
        if request.name.is_empty() {
            let file = self.change(vec![ConfigChange::Unset { key: "pack".to_owned() }]).await?;
            return Ok(v1::UsePackResponse { file, before: Vec::new() });
        }
        let name = plain_name("name", &request.name)?;
        if !self.deps.models.packs(&request.env).iter().any(|pack| pack.name == name) {
            return Err(no_pack(&name));
        }
        let file = self.change(vec![ConfigChange::Set { key: "pack".to_owned(), value: name }]).await?;
        let mut before: Vec<String> = config.model.iter().map(|_| "model".to_owned()).collect();
        before.extend(config.mode_models.keys().map(|mode| format!("modes.{mode}.model")));
        before.extend(config.small_model.iter().map(|_| "small_model".to_owned()));
        Ok(v1::UsePackResponse { file, before })
    }
}

fn no_pack(name: &str) -> Status {
    refuse(Code::NotFound, Reason::PackNotFound, format!("there is no pack '{name}'"), None)
}

fn level(level: Option<ThinkingLevel>) -> String {
    level.map(|level| level.as_str().to_owned()).unwrap_or_default()
}
