//! What is known of a provider's login, as data: shipped ones, and the user's own OAuth clients.
//!
//! No client id of another product is shipped but the one that OpenAI has for its open-source command line; Anthropic's
//! subscriptions are for its own programs, so an API key is all that can be logged in with there.

use mcode_config::{Effective, LoginEntry};
use mcode_models::{LoginFlow, Secret, Wire};
use reqwest::Url;

use crate::http::is_loopback_name;
use crate::known::{self, Identity, KNOWN};

/// What is said before a key of Anthropic is asked for.
const ANTHROPIC_NOTE: &str = "Anthropic lets only its own programs use a Claude subscription, so mcode does not log in \
    with one. Give an API key of console.anthropic.com instead (Bedrock and Vertex have their own credentials).";
/// Where the models of a ChatGPT subscription are.
const CHATGPT_API: &str = "https://chatgpt.com/backend-api/codex";
/// Part of the path of that backend, wherever somebody has it behind.
pub(crate) const SUBSCRIPTION_PATH: &str = "/backend-api/codex";
/// Beginnings of models that a ChatGPT subscription does not have.
const NOT_OF_CHATGPT: &[&str] = &["gpt-3", "gpt-4", "o1", "o3", "o4", "chatgpt-", "gpt-oss"];
/// The path that a browser comes back to where none is named.
const CALLBACK: &str = "/callback";

/// How a device gets its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceDialect {
    /// RFC 8628.
    Standard,
    /// The one of ChatGPT: a code of the other flow comes of it.
    ChatGpt,
}

/// What becomes of a token before it is a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is the key.
    Plain,
    /// It is the key of a ChatGPT account, which goes along as a header.
    ChatGpt {
        /// Where the models of the subscription are.
        api_url: String,
    },
    /// It is exchanged for a short-lived one at this address.
    Copilot {
        /// Where.
        exchange_url: String,
    },
}

/// Where the browser goes back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// Host as the browser is told it.
    pub(crate) host: String,
    /// Ports, tried in order; none for a free one.
    pub(crate) ports: Vec<u16>,
    /// Path.
    pub(crate) path: String,
}

/// A provider's login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginData {
    /// The provider that it logs in to.
    pub(crate) provider: String,
    /// Name for people.
    pub(crate) title: String,
    /// Where the user agrees.
    pub(crate) authorize_url: Option<String>,
    /// Where codes and refresh tokens are exchanged.
    pub(crate) token_url: String,
    /// Where a device gets its code.
    pub(crate) device_url: Option<String>,
    /// How.
    pub(crate) device_dialect: DeviceDialect,
    /// Where a token is taken back.
    pub(crate) revoke_url: Option<String>,
    /// Who asks.
    pub(crate) client_id: String,
    /// For clients that have one.
    pub(crate) client_secret: Option<Secret>,
    /// What is asked for.
    pub(crate) scopes: Vec<String>,
    /// The usual way.
    pub(crate) flow: LoginFlow,
    /// More for the query of `authorize_url`.
    pub(crate) query: Vec<(String, String)>,
    /// Where the browser goes back to.
    pub(crate) redirect: Redirect,
    /// What becomes of a token.
    pub(crate) becomes: Use,
}

impl LoginData {
    /// The ways that this login can be done, the usual one first.
    pub(crate) fn flows(&self) -> Vec<LoginFlow> {
        let mut flows = vec![self.flow];
        let browser = self.authorize_url.is_some();
        let more = [(LoginFlow::Loopback, browser), (LoginFlow::Paste, browser)];
        flows.extend(more.into_iter().filter(|(_, can)| *can).map(|(flow, _)| flow));
        flows.extend(self.device_url.as_ref().map(|_| LoginFlow::Device));
        let mut seen = Vec::new();
        flows.retain(|flow| !seen.contains(flow) && (seen.push(*flow), true).1);
        flows
    }

    /// Where it is asked for the next token.
    pub(crate) fn renewed_at(&self) -> &str {
        match &self.becomes {
            Use::Copilot { exchange_url } => exchange_url,
            Use::Plain | Use::ChatGpt { .. } => &self.token_url,
        }
    }

    /// Whether the login gives access to this model.
    pub(crate) fn serves(&self, model: &str) -> bool {
        !matches!(self.becomes, Use::ChatGpt { .. }) || !NOT_OF_CHATGPT.iter().any(|start| model.starts_with(start))
    }
}

/// The name of the provider that is meant by a word of the user.
pub(crate) fn provider_of(word: &str) -> &str {
    match word {
        "chatgpt" | "codex" => "openai",
        "claude" => "anthropic",
        "copilot" => "github-copilot",
        "gemini" => "google",
        other => other,
    }
}

/// What to know before logging in.
pub(crate) fn note(provider: &str) -> &'static str {
    match provider {
        "anthropic" => ANTHROPIC_NOTE,
        "github-copilot" => {
            "GitHub Copilot is logged in to with an OAuth client of your own: set [login.github-copilot] client_id in \
             config.toml."
        }
        _ => "",
    }
}

/// Whether an API key can be stored for it.
pub(crate) fn takes_key(provider: &str, config: &Effective) -> bool {
    match known::find(provider) {
        Some(known) if known.wire == Wire::Scripted || known.identity == Identity::Google => false,
        Some(_) => provider != "github-copilot",
        None => config.providers.contains_key(provider),
    }
}

/// All providers that can be logged in to somehow, known ones first.
pub(crate) fn providers(config: &Effective) -> Vec<String> {
    let known = KNOWN.iter().map(|known| known.name.to_owned());
    let own = config.providers.keys().chain(config.logins.keys()).cloned();
    let mut seen = std::collections::BTreeSet::new();
    known.chain(own).filter(|name| seen.insert(name.clone())).collect()
}

/// The login of a provider: what is shipped, with what the user's file says instead.
///
/// # Errors
/// What is wrong with `[login.NAME]`, by its key.
pub(crate) fn find(provider: &str, config: &Effective) -> Result<Option<LoginData>, String> {
    let Some(entry) = config.logins.get(provider) else { return Ok(shipped(provider).filter(is_usable)) };
    let mut data = shipped(provider).unwrap_or_else(|| blank(provider));
    fill(&mut data, entry)?;
    if data.client_id.is_empty() {
        return Err(wrong(provider, "client_id is missing"));
    }
    if data.token_url.is_empty() {
        return Err(wrong(provider, "token_url is missing"));
    }
    match data.flow {
        LoginFlow::Device if data.device_url.is_none() => {
            Err(wrong(provider, "flow is device, but device_url is missing"))
        }
        LoginFlow::Loopback | LoginFlow::Paste if data.authorize_url.is_none() => {
            Err(wrong(provider, "authorize_url is missing"))
        }
        _ => Ok(Some(data)),
    }
}

fn is_usable(data: &LoginData) -> bool {
    !data.client_id.is_empty()
}

fn wrong(provider: &str, fault: &str) -> String {
    format!("[login.{provider}] of config.toml: {fault}")
}

fn fill(data: &mut LoginData, entry: &LoginEntry) -> Result<(), String> {
    let provider = data.provider.clone();
    let address = |key: &str, given: &Option<String>| -> Result<Option<String>, String> {
        given
            .as_deref()
            .map(|text| checked_url(text).map_err(|why| wrong(&provider, &format!("{key}: {why}"))))
            .transpose()
    };
    if let Some(url) = address("authorize_url", &entry.authorize_url)? {
        data.authorize_url = Some(url);
    }
    if let Some(url) = address("token_url", &entry.token_url)? {
        if let Use::Copilot { exchange_url } = &mut data.becomes {
            *exchange_url = copilot_exchange(&url).unwrap_or_default();
        }
        data.token_url = url;
        // What is known of it is of the issuer that is known; another one's tokens are not sent there.
        data.revoke_url = None;
    }
    if let Some(url) = address("device_url", &entry.device_url)? {
        data.device_url = Some(url);
    }
    if let Some(url) = address("revoke_url", &entry.revoke_url)? {
        data.revoke_url = Some(url);
    }
    if let Some(id) = &entry.client_id {
        data.client_id.clone_from(id);
    }
    if let Some(secret) = &entry.client_secret {
        data.client_secret = Some(Secret::new(secret));
    }
    if let Some(scopes) = &entry.scopes {
        data.scopes.clone_from(scopes);
    }
    if let Some(flow) = entry.flow.as_deref().and_then(LoginFlow::parse) {
        data.flow = flow;
    } else if data.authorize_url.is_none() && data.device_url.is_some() {
        data.flow = LoginFlow::Device;
    }
    if let Some(redirect) = &entry.redirect {
        data.redirect = own_redirect(redirect).map_err(|why| wrong(&provider, &format!("redirect: {why}")))?;
    }
    data.query.extend(entry.query.iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(())
}

/// An address that tokens may be sent to: over TLS, or on this machine.
pub(crate) fn checked_url(text: &str) -> Result<String, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("'{text}' is no address: {error}"))?;
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" if !host.is_empty() => Ok(url.into()),
        "http" if is_loopback_name(host) => Ok(url.into()),
        _ => Err(format!("'{text}' is not an https address")),
    }
}

/// Where GitHub's tokens are exchanged, by where they are from: its public host, a company's domain, this machine.
fn copilot_exchange(token_url: &str) -> Option<String> {
    let mut url = Url::parse(token_url).ok()?;
    let host = url.host_str()?.to_owned();
    if !is_loopback_name(&host) {
        url.set_host(Some(&format!("api.{host}"))).ok()?;
    }
    url.set_path("/copilot_internal/v2/token");
    url.set_query(None);
    Some(url.into())
}

fn own_redirect(text: &str) -> Result<Redirect, String> {
    let url = Url::parse(text).map_err(|error| format!("'{text}' is no address: {error}"))?;
    let host = url.host_str().unwrap_or_default();
    if url.scheme() != "http" || !is_loopback_name(host) {
        return Err(format!("'{text}' is not an http address of this machine, such as http://localhost:8085/callback"));
    }
    let ports = url.port().filter(|port| *port != 0).into_iter().collect();
    Ok(Redirect { host: host.to_owned(), ports, path: url.path().to_owned() })
}

fn blank(provider: &str) -> LoginData {
    LoginData {
        provider: provider.to_owned(),
        title: provider.to_owned(),
        authorize_url: None,
        token_url: String::new(),
        device_url: None,
        device_dialect: DeviceDialect::Standard,
        revoke_url: None,
        client_id: String::new(),
        client_secret: None,
        scopes: Vec::new(),
        flow: LoginFlow::Loopback,
        query: Vec::new(),
        redirect: Redirect { host: "127.0.0.1".to_owned(), ports: Vec::new(), path: CALLBACK.to_owned() },
        becomes: Use::Plain,
    }
}

/// What is known of logins without the user's file.
fn shipped(provider: &str) -> Option<LoginData> {
    let text = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    match provider {
        "openai" => Some(LoginData {
            title: "ChatGPT (Plus, Pro, Business)".to_owned(),
            authorize_url: Some("https://auth.openai.com/oauth/authorize".to_owned()),
            token_url: "https://auth.openai.com/oauth/token".to_owned(),
            device_url: Some("https://auth.openai.com/api/accounts/deviceauth/usercode".to_owned()),
            device_dialect: DeviceDialect::ChatGpt,
            revoke_url: Some("https://auth.openai.com/oauth/revoke".to_owned()),
            client_id: "app_EMoamEEZ73f0CkXaXp7hrann".to_owned(),
            scopes: text(&["openid", "profile", "email", "offline_access"]),
            query: [
                ("id_token_add_organizations", "true"),
                ("codex_cli_simplified_flow", "true"),
                ("originator", crate::auth::ORIGINATOR),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
            redirect: Redirect {
                host: "localhost".to_owned(),
                ports: vec![1455, 1457],
                path: "/auth/callback".to_owned(),
            },
            becomes: Use::ChatGpt { api_url: CHATGPT_API.to_owned() },
            ..blank(provider)
        }),
        "github-copilot" => Some(LoginData {
            title: "GitHub Copilot".to_owned(),
            token_url: "https://github.com/login/oauth/access_token".to_owned(),
            device_url: Some("https://github.com/login/device/code".to_owned()),
            scopes: text(&["read:user"]),
            flow: LoginFlow::Device,
            becomes: Use::Copilot { exchange_url: "https://api.github.com/copilot_internal/v2/token".to_owned() },
            ..blank(provider)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(provider: &str, entry: LoginEntry) -> Effective {
        Effective { logins: BTreeMap::from([(provider.to_owned(), entry)]), ..Effective::default() }
    }

    fn example() -> LoginEntry {
        LoginEntry {
            authorize_url: Some("https://id.example.org/authorize".into()),
            token_url: Some("https://id.example.org/token".into()),
            client_id: Some("me".into()),
            ..LoginEntry::default()
        }
    }

    #[test]
    fn a_client_of_ones_own_is_all_data() {
        let entry = LoginEntry {
            scopes: Some(vec!["a".into(), "b".into()]),
            flow: Some("paste".into()),
            redirect: Some("http://localhost:8085/oauth2callback".into()),
            client_secret: Some("s3cret-value".into()),
            ..example()
        };
        let data = find("example", &config("example", entry)).unwrap().unwrap();
        assert_eq!((data.flow, data.redirect.ports.as_slice()), (LoginFlow::Paste, &[8085][..]));
        assert_eq!(data.redirect.path, "/oauth2callback");
        assert_eq!(data.flows(), [LoginFlow::Paste, LoginFlow::Loopback]);
        assert!(!format!("{data:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_missing_or_unsafe_is_named_by_its_key() {
        for (entry, words) in [
            (LoginEntry { client_id: None, ..example() }, "client_id"),
            (LoginEntry { token_url: None, ..example() }, "token_url"),
            (LoginEntry { authorize_url: None, ..example() }, "authorize_url"),
            (LoginEntry { flow: Some("device".into()), ..example() }, "device_url"),
            (LoginEntry { token_url: Some("http://id.example.org/token".into()), ..example() }, "https"),
            (LoginEntry { redirect: Some("https://evil.example/cb".into()), ..example() }, "redirect"),
            (LoginEntry { authorize_url: Some("javascript:alert(1)".into()), ..example() }, "authorize_url"),
        ] {
            let error = find("example", &config("example", entry)).unwrap_err();
            assert!(error.contains(words) && error.contains("[login.example]"), "{error}");
        }
    }

    #[test]
    fn copilot_works_with_a_client_id_and_not_without() {
        assert_eq!(find("github-copilot", &Effective::default()), Ok(None));
        let entry = LoginEntry { client_id: Some("Iv1.mine".into()), ..LoginEntry::default() };
        let data = find("github-copilot", &config("github-copilot", entry)).unwrap().unwrap();
        assert_eq!((data.flow, data.client_id.as_str()), (LoginFlow::Device, "Iv1.mine"));
        assert_eq!(data.flows(), [LoginFlow::Device]);
    }

    #[test]
    fn tokens_are_taken_back_at_their_own_issuer_alone() {
        let of = |entry: LoginEntry| find("openai", &config("openai", entry)).unwrap().unwrap().revoke_url;
        assert_eq!(of(LoginEntry::default()).as_deref(), Some("https://auth.openai.com/oauth/revoke"));
        assert_eq!(of(example()), None, "another issuer");
        let own = Some("https://id.example.org/revoke".to_owned());
        assert_eq!(of(LoginEntry { revoke_url: own.clone(), ..example() }), own);
        let unsafe_one = LoginEntry { revoke_url: Some("http://id.example.org/revoke".into()), ..example() };
        assert!(find("example", &config("example", unsafe_one)).unwrap_err().contains("revoke_url"));
    }

    #[test]
    fn chatgpt_is_shipped_whole_and_knows_what_it_does_not_serve() {
        let data = find("openai", &Effective::default()).unwrap().unwrap();
        assert_eq!(data.redirect.ports, [1455, 1457]);
        assert_eq!(data.flows(), [LoginFlow::Loopback, LoginFlow::Paste, LoginFlow::Device]);
        assert!(
            data.serves("gpt-5.5") && data.serves("gpt-5.2-codex") && !data.serves("gpt-4.1") && !data.serves("o3")
        );
        for provider in ["anthropic", "google", "nobody"] {
            assert_eq!(find(provider, &Effective::default()), Ok(None));
        }
    }
}
