//! The file as written, and its way into the effective values.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::duration::parse_duration;
use crate::effective::{
    Effective, Keeping, Limits, LoginEntry, ModelEntry, PackEntry, PermissionRules, PermissionTest, ProviderEntry,
    RuleSource, Sandbox, SandboxNetwork, WrittenRule,
};

/// One file, after it was checked. Keys that are not known were named as warnings already.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LowConfig {
    model: Option<String>,
    small_model: Option<String>,
    fallback: Vec<String>,
    approve: Option<String>,
    modes: BTreeMap<String, LowMode>,
    pack: Option<String>,
    packs: BTreeMap<String, LowPack>,
    providers: BTreeMap<String, LowProvider>,
    limits: LowLimits,
    permissions: LowPermissions,
    memory: Option<toml::Table>,
    sandbox: LowSandbox,
    background: LowBackground,
    threads: LowThreads,
    goals: Option<toml::Table>,
    login: BTreeMap<String, LowLogin>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowMode {
    model: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowPack {
    thinking: BTreeMap<String, String>,
    /// The rest are roles; what is none was named as a warning already.
    #[serde(flatten)]
    models: BTreeMap<String, toml::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowProvider {
    wire: Option<String>,
    base_url: Option<String>,
    api_key: Option<String>,
    models: Vec<LowModel>,
    idle_timeout: Option<String>,
    headers: BTreeMap<String, String>,
    omit_fields: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowLogin {
    authorize_url: Option<String>,
    token_url: Option<String>,
    device_url: Option<String>,
    revoke_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    scopes: Option<Vec<String>>,
    flow: Option<String>,
    redirect: Option<String>,
    query: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct LowModel {
    id: String,
    context: Option<u32>,
    max_output: Option<u32>,
    images: Option<bool>,
    thinking: Option<String>,
    input_price: Option<f64>,
    output_price: Option<f64>,
    cache_read_price: Option<f64>,
    cache_write_price: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowLimits {
    max_cost_per_run: Option<f64>,
    max_cost_per_day: Option<f64>,
    max_tokens_per_run: Option<u64>,
    max_steps_per_run: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowSandbox {
    enabled: Option<bool>,
    network: Option<String>,
    hosts: Vec<String>,
    write: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowBackground {
    wake: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowThreads {
    titles: Option<bool>,
    keep_days: Option<u32>,
    max_bytes_per_project: Option<u64>,
    max_body_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LowPermissions {
    allow: Vec<Spanned<String>>,
    ask: Vec<Spanned<String>>,
    deny: Vec<Spanned<String>>,
    env: Vec<String>,
    test: Vec<LowTest>,
}

#[derive(Debug, Deserialize)]
struct LowTest {
    call: Spanned<String>,
    expect: String,
    mode: Option<String>,
}

impl LowConfig {
    /// The values of this file, which holds `text`, over the defaults.
    pub(crate) fn into_effective(self, file: &Path, text: &str) -> Effective {
        let origin = file.display().to_string();
        let lines = Lines::new(text);
        let rule = |rule: Spanned<String>| {
            let line = lines.at(rule.span().start);
            WrittenRule { text: rule.into_inner(), file: origin.clone(), line, source: RuleSource::User }
        };
        let rules = |list: Vec<Spanned<String>>| list.into_iter().map(rule).collect();
        let test = |test: LowTest| PermissionTest {
            line: lines.at(test.call.span().start),
            call: test.call.into_inner(),
            expect: test.expect,
            mode: test.mode,
            file: origin.clone(),
        };
        let sections = [("memory", self.memory), ("goals", self.goals)];
        Effective {
            model: self.model,
            small_model: self.small_model,
            fallback: self.fallback,
            mode_models: self.modes.into_iter().filter_map(|(name, mode)| Some((name, mode.model?))).collect(),
            pack: self.pack,
            packs: self.packs.into_iter().map(|(name, low)| (name, low.into_entry())).collect(),
            providers: self.providers.into_iter().map(|(name, low)| (name, low.into_entry())).collect(),
            logins: self.login.into_iter().map(|(name, low)| (name, low.into_entry())).collect(),
            limits: Limits {
                max_cost_per_run: self.limits.max_cost_per_run,
                max_cost_per_day: self.limits.max_cost_per_day,
                max_tokens_per_run: self.limits.max_tokens_per_run,
                max_steps_per_run: self.limits.max_steps_per_run,
            },
            permissions: PermissionRules {
                allow: rules(self.permissions.allow),
                ask: rules(self.permissions.ask),
                deny: rules(self.permissions.deny),
            },
            passed_env: self.permissions.env,
            permission_tests: self.permissions.test.into_iter().map(test).collect(),
            approve: self.approve,
            approve_at_most: None,
            sandbox: self.sandbox.into_effective(),
            wake: self.background.wake,
            titles: self.threads.titles,
            keeping: self.threads.into_keeping(),
            sections: sections.into_iter().filter_map(|(name, table)| Some((name.to_owned(), table?))).collect(),
        }
    }
}

impl LowThreads {
    /// Nothing, like 0, is no bound: a slip of the keys must not let everything go.
    fn into_keeping(self) -> Keeping {
        Keeping {
            keep_days: self.keep_days.filter(|days| *days > 0),
            max_bytes_per_project: self.max_bytes_per_project.filter(|bytes| *bytes > 0),
            max_body_bytes: self.max_body_bytes.filter(|bytes| *bytes > 0),
        }
    }
}

impl LowSandbox {
    fn into_effective(self) -> Sandbox {
        // The check has refused every other word.
        let network = match self.network.as_deref() {
            Some("deny") => SandboxNetwork::Deny,
            Some("allow") => SandboxNetwork::Allow,
            _ => SandboxNetwork::Ask,
        };
        Sandbox { enabled: self.enabled, network, hosts: self.hosts, write: self.write }
    }
}

/// Where the lines of a text begin, in bytes.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line, from 1, of a place in the text.
    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|&end| end < offset) + 1
    }
}

impl LowPack {
    fn into_entry(self) -> PackEntry {
        let role = |name: &str| crate::schema::ROLES.contains(&name);
        let models = self.models.into_iter().filter(|(name, _)| role(name));
        PackEntry {
            models: models.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect(),
            thinking: self.thinking.into_iter().filter(|(name, _)| role(name)).collect(),
        }
    }
}

impl LowProvider {
    fn into_entry(self) -> ProviderEntry {
        ProviderEntry {
            wire: self.wire,
            base_url: self.base_url,
            api_key: self.api_key,
            models: self.models.into_iter().map(LowModel::into_entry).collect(),
            // The check has refused what is not a span of time.
            idle_timeout: self.idle_timeout.and_then(|text| parse_duration(&text).ok()),
            headers: self.headers,
            omit_fields: self.omit_fields,
        }
    }
}

impl LowLogin {
    fn into_entry(self) -> LoginEntry {
        LoginEntry {
            authorize_url: self.authorize_url,
            token_url: self.token_url,
            device_url: self.device_url,
            revoke_url: self.revoke_url,
            client_id: self.client_id,
            client_secret: self.client_secret,
            scopes: self.scopes,
            flow: self.flow,
            redirect: self.redirect,
            query: self.query,
        }
    }
}

impl LowModel {
    fn into_entry(self) -> ModelEntry {
        ModelEntry {
            id: self.id,
            context: self.context,
            max_output: self.max_output,
            images: self.images,
            thinking: self.thinking,
            input_price: self.input_price,
            output_price: self.output_price,
            cache_read_price: self.cache_read_price,
            cache_write_price: self.cache_write_price,
        }
    }
}
