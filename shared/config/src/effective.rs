//! The values in force.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A model that the user has declared.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelEntry {
    /// Id within its provider.
    pub id: String,
    /// Context window in tokens.
    pub context: Option<u32>,
    /// Most output tokens.
    pub max_output: Option<u32>,
    /// Whether it takes pictures.
    pub images: Option<bool>,
    /// How thinking is asked for: one of [`crate::THINKING_FORMS`].
    pub thinking: Option<String>,
    /// US dollars per million tokens of uncached input.
    pub input_price: Option<f64>,
    /// US dollars per million tokens of output.
    pub output_price: Option<f64>,
    /// US dollars per million tokens read from the cache.
    pub cache_read_price: Option<f64>,
    /// US dollars per million tokens written to the cache.
    pub cache_write_price: Option<f64>,
}

/// A pack: which model has which role, and how much it thinks there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackEntry {
    /// `provider/model` by role, one of [`crate::ROLES`].
    pub models: BTreeMap<String, String>,
    /// One of [`crate::THINKING_LEVELS`] by role.
    pub thinking: BTreeMap<String, String>,
}

/// A provider that the user has declared, or overrides of a known one.
#[derive(Clone, PartialEq, Default)]
pub struct ProviderEntry {
    /// `anthropic`, `openai-chat`, … as written; checked by whoever speaks the wires.
    pub wire: Option<String>,
    /// Base URL.
    pub base_url: Option<String>,
    /// `env:NAME`, `keyring:NAME`, `command:CMD` or a literal.
    pub api_key: Option<String>,
    /// Declared models.
    pub models: Vec<ModelEntry>,
    /// Ends a request when no byte came for this long.
    pub idle_timeout: Option<Duration>,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// Request fields that this server does not take, such as `stream_options`.
    pub omit_fields: Vec<String>,
}

impl fmt::Debug for ProviderEntry {
    /// Without keys: those of headers are named, but not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api_key = self.api_key.as_deref().map(|key| if crate::check::is_reference(key) { key } else { "***" });
        f.debug_struct("ProviderEntry")
            .field("wire", &self.wire)
            .field("base_url", &self.base_url)
            .field("api_key", &api_key)
            .field("models", &self.models)
            .field("idle_timeout", &self.idle_timeout)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("omit_fields", &self.omit_fields)
            .finish()
    }
}

/// `[login.NAME]`: an OAuth client of the user's own, or what differs from a known one.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LoginEntry {
    /// Where the user agrees, in a browser.
    pub authorize_url: Option<String>,
    /// Where codes and refresh tokens are exchanged.
    pub token_url: Option<String>,
    /// Where a device gets its code (RFC 8628).
    pub device_url: Option<String>,
    /// Where a token is taken back (RFC 7009), for the logout.
    pub revoke_url: Option<String>,
    /// Who asks.
    pub client_id: Option<String>,
    /// For clients that have one, such as those of installed programs at Google.
    pub client_secret: Option<String>,
    /// What is asked for.
    pub scopes: Option<Vec<String>>,
    /// `loopback`, `paste` or `device`.
    pub flow: Option<String>,
    /// Where the browser goes back to, such as `http://localhost:8085/callback`; a free port of this machine if none is
    /// named.
    pub redirect: Option<String>,
    /// More for the query of `authorize_url`.
    pub query: BTreeMap<String, String>,
}

impl fmt::Debug for LoginEntry {
    /// Without the client's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginEntry")
            .field("authorize_url", &self.authorize_url)
            .field("token_url", &self.token_url)
            .field("device_url", &self.device_url)
            .field("revoke_url", &self.revoke_url)
            .field("client_id", &self.client_id)
            .field("client_secret", &self.client_secret.as_ref().map(|_| "***"))
            .field("scopes", &self.scopes)
            .field("flow", &self.flow)
            .field("redirect", &self.redirect)
            .field("query", &self.query)
            .finish()
    }
}

/// Limits in US dollars, tokens and steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Most US dollars in one run.
    pub max_cost_per_run: Option<f64>,
    /// Most US dollars in one day.
    pub max_cost_per_day: Option<f64>,
    /// Most tokens in one run.
    pub max_tokens_per_run: Option<u64>,
    /// Most steps in one run.
    pub max_steps_per_run: Option<u32>,
}

/// Who made a rule. It decides what the rule may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RuleSource {
    /// mcode's own, about its own folders; like those of the machine.
    BuiltIn,
    /// The machine's own file: nobody loosens what it says, not even `--approve all`.
    Managed,
    /// The user's file.
    #[default]
    User,
    /// The project's own file, once it is trusted: it may only tighten.
    Project,
    /// Given with an answer, for a while or for a place.
    Grant,
}

impl RuleSource {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Managed => "managed",
            Self::User => "user",
            Self::Project => "project",
            Self::Grant => "grant",
        }
    }
}

/// A permission rule as written, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WrittenRule {
    /// Such as `shell(cargo test *)`.
    pub text: String,
    /// The file.
    pub file: String,
    /// Its line, from 1; 0 when it is not from a file.
    pub line: usize,
    /// Who made it.
    pub source: RuleSource,
}

/// Rules as written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermissionRules {
    /// Allowed without asking.
    pub allow: Vec<WrittenRule>,
    /// Always asked.
    pub ask: Vec<WrittenRule>,
    /// Never allowed.
    pub deny: Vec<WrittenRule>,
}

impl PermissionRules {
    /// These rules, and after them those of `other`.
    pub fn extend(&mut self, other: Self) {
        self.allow.extend(other.allow);
        self.ask.extend(other.ask);
        self.deny.extend(other.deny);
    }

    /// Says of every rule who made it.
    #[must_use]
    pub fn from_source(mut self, source: RuleSource) -> Self {
        let Self { allow, ask, deny } = &mut self;
        allow.iter_mut().chain(ask).chain(deny).for_each(|rule| rule.source = source);
        self
    }
}

/// A call with what the rules are expected to say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermissionTest {
    /// Such as `shell(git push origin)`.
    pub call: String,
    /// `allow`, `ask` or `deny`.
    pub expect: String,
    /// `build`, `plan` or `explore`, if one is named.
    pub mode: Option<String>,
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
}

/// Whether commands in the sandbox may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxNetwork {
    /// Never.
    Deny,
    /// When a person says so for a command, or the run allows everything.
    #[default]
    Ask,
    /// Always.
    Allow,
}

/// `[sandbox]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    /// `None`: wherever the system can hold one. `true`: no command runs where it can not.
    pub enabled: Option<bool>,
    /// The network.
    pub network: SandboxNetwork,
    /// Hosts that may be reached without asking, such as `*.example.org`.
    pub hosts: Vec<String>,
    /// Folders that may be written beside the project: absolute, below `~`, or from the project.
    pub write: Vec<String>,
}

/// `[threads]`: how long threads are kept. `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keeping {
    /// Days that an idle thread is kept after it was used last; from 1.
    pub keep_days: Option<u32>,
    /// Bytes that the threads of one project may take; from 1.
    pub max_bytes_per_project: Option<u64>,
    /// Bytes that all stored bodies may take; from 1.
    pub max_body_bytes: Option<u64>,
}

/// The values in force.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effective {
    /// `provider/model` of new threads.
    pub model: Option<String>,
    /// For titles and summaries.
    pub small_model: Option<String>,
    /// Tried in order when the model can not be had.
    pub fallback: Vec<String>,
    /// Model by mode.
    pub mode_models: BTreeMap<String, String>,
    /// The pack in use.
    pub pack: Option<String>,
    /// Packs of the user's own by name.
    pub packs: BTreeMap<String, PackEntry>,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderEntry>,
    /// OAuth clients by the provider that they log in to.
    pub logins: BTreeMap<String, LoginEntry>,
    /// Limits.
    pub limits: Limits,
    /// Permission rules.
    pub permissions: PermissionRules,
    /// Variables that commands get though they look like secrets: names, or beginnings followed by `*`.
    pub passed_env: Vec<String>,
    /// Examples of what the rules decide.
    pub permission_tests: Vec<PermissionTest>,
    /// `ask`, `deny` or `all`, for runs that do not say.
    pub approve: Option<String>,
    /// The loosest of them that the machine's own file leaves to runs.
    pub approve_at_most: Option<String>,
    /// What commands are held to.
    pub sandbox: Sandbox,
    /// `[background] wake`: whether the end of a command in the background begins a run of its idle thread. `None` is yes.
    pub wake: Option<bool>,
    /// `[threads] titles`: whether the small model gives new threads their titles. `None` is yes, if there is one.
    pub titles: Option<bool>,
    /// `[threads]`: how long threads are kept.
    pub keeping: Keeping,
    /// The documented sections `memory` and `goals` as written, checked for types, for those who will use them.
    pub sections: BTreeMap<String, toml::Table>,
}
