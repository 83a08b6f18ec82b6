//! Providers: listed, looked for on this machine, declared and removed.

use mcode_models::{FoundServer, ListedProvider, Wire};
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use tonic::{Code, Status};

use super::plain_name;
use crate::ConfigChange;
use crate::services::Services;
use crate::status::{bad_field, refuse};

/// Most models that are declared at once.
const MODELS_MAX: usize = 200;
/// Longest id of a model, address or name of a key, in bytes.
const TEXT_BYTES_MAX: usize = 2048;
/// How a key may be named.
const KEY_FORMS: [&str; 3] = ["env:", "keyring:", "command:"];

impl Services {
    pub(super) fn listed_providers(&self, request: &v1::ListProvidersRequest) -> v1::ListProvidersResponse {
        let providers = self.deps.models.providers(&request.env).into_iter().map(provider_row).collect();
        v1::ListProvidersResponse { providers, next_page_token: String::new() }
    }

    pub(super) async fn scanned(&self, request: v1::ScanProvidersRequest) -> Result<v1::ScanProvidersResponse, Status> {
        let found = self.deps.models.scan(&request.env).await;
        let known = self.deps.models.providers(&request.env);
        let mut changes = Vec::new();
        for server in found.iter().filter(|server| request.add && server.answers && !server.models.is_empty()) {
            let key = format!("providers.{}", server.provider);
            // The usual address needs no line, and another one is in the configuration or the environment already.
            let is_set = known.iter().any(|row| row.name == server.provider && row.base_url == server.base_url);
            if !is_set {
                changes.push(ConfigChange::Set { key: format!("{key}.base_url"), value: server.base_url.clone() });
            }
            let tables = server.models.iter().map(|model| table(&model.id, model.context_tokens.unwrap_or(0), 0));
            changes.push(ConfigChange::AddTables { key: format!("{key}.models"), tables: tables.collect() });
        }
        let file = if changes.is_empty() { String::new() } else { self.change(changes).await? };
        let servers = found.into_iter().map(server_row).collect();
        Ok(v1::ScanProvidersResponse { servers, next_page_token: String::new(), file })
    }

    pub(super) async fn added(&self, request: v1::AddProviderRequest) -> Result<v1::AddProviderResponse, Status> {
        let name = plain_name("provider", &request.provider)?;
        if let Some(why) = self.deps.models.reserved(&name) {
            return Err(bad_field("provider", format!("{why}; choose another name")));
        }
        let listed = self.deps.models.providers(&std::collections::BTreeMap::new());
        let there = listed.into_iter().find(|row| row.name == name);
        if there.as_ref().is_some_and(|row| row.configured) {
            let message = format!("the configuration names the provider '{name}' already");
            return Err(refuse(Code::AlreadyExists, Reason::ProviderExists, message, None));
        }
        let is_known = there.is_some_and(|row| row.known);
        let mut set = Vec::new();
        if !request.wire.is_empty() {
            let wire = request.wire.parse::<Wire>().ok().filter(|wire| *wire != Wire::Scripted);
            let wire = wire.ok_or_else(|| {
                let words = "is none of anthropic, openai-chat, openai-responses, gemini, bedrock";
                bad_field("wire", format!("'{}' {words}", request.wire))
            })?;
            set.push(("wire", wire.as_str().to_owned()));
        } else if !is_known {
            return Err(bad_field("wire", "is needed for a provider that mcode does not know by itself"));
        }
        if !request.base_url.is_empty() {
            set.push(("base_url", base_url(&request.base_url)?));
        } else if !is_known {
            return Err(bad_field("base_url", "is needed for a provider that mcode does not know by itself"));
        }
        if !request.api_key.is_empty() {
            set.push(("api_key", key_name(&request.api_key)?));
        }
        let tables = request.models.iter().map(declared).collect::<Result<Vec<String>, Status>>()?;
        if tables.len() > MODELS_MAX {
            return Err(bad_field("models", format!("are more than {MODELS_MAX}")));
        }
        if set.is_empty() && tables.is_empty() {
            return Err(bad_field("provider", format!("'{name}' is known already; say what is different")));
        }
        let key = |field: &str| format!("providers.{name}.{field}");
        let mut changes: Vec<ConfigChange> =
            set.into_iter().map(|(field, value)| ConfigChange::Set { key: key(field), value }).collect();
        if !tables.is_empty() {
            changes.push(ConfigChange::AddTables { key: key("models"), tables });
        }
        Ok(v1::AddProviderResponse { file: self.change(changes).await? })
    }

    pub(super) async fn removed(
        &self,
        request: v1::RemoveProviderRequest,
    ) -> Result<v1::RemoveProviderResponse, Status> {
        let name = plain_name("provider", &request.provider)?;
        let listed = self.deps.models.providers(&std::collections::BTreeMap::new());
        if !listed.iter().any(|row| row.name == name && row.configured) {
            let message = format!("the configuration names no provider '{name}'");
            return Err(refuse(Code::NotFound, Reason::ProviderNotFound, message, None));
        }
        let file = self.change(vec![ConfigChange::Unset { key: format!("providers.{name}") }]).await?;
        Ok(v1::RemoveProviderResponse { file })
    }
}

/// A model as a table of the configuration.
fn declared(model: &v1::ProviderModel) -> Result<String, Status> {
    let fits = |c: char| !c.is_control() && !c.is_whitespace();
    if model.id.is_empty() || model.id.len() > TEXT_BYTES_MAX || !model.id.chars().all(fits) {
        return Err(bad_field("models", "have to have ids without spaces"));
    }
    Ok(table(&model.id, model.context_tokens, model.max_output_tokens))
}

fn table(id: &str, context: u32, max_output: u32) -> String {
    // A text of JSON without control characters is one of TOML.
    let mut table = format!("{{ id = {}", serde_json::Value::from(id));
    for (key, tokens) in [("context", context), ("max_output", max_output)] {
        if tokens > 0 {
            table.push_str(&format!(", {key} = {tokens}"));
        }
    }
    table.push_str(" }");
    table
}

fn base_url(text: &str) -> Result<String, Status> {
    let text = text.trim();
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let fits = text.len() <= TEXT_BYTES_MAX && text.chars().all(|c| c.is_ascii_graphic());
    match authority {
        Some(authority) if fits && authority.contains('@') => {
            Err(bad_field("base_url", "holds a name or password; name the key with api_key instead"))
        }
        Some(authority) if fits && !authority.is_empty() => Ok(text.to_owned()),
        _ => Err(bad_field("base_url", "has to be an address such as http://127.0.0.1:8080/v1")),
    }
}

fn key_name(text: &str) -> Result<String, Status> {
    let named = KEY_FORMS.iter().any(|form| text.strip_prefix(form).is_some_and(|name| !name.trim().is_empty()));
    if named && text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    // What was given may be the key itself: it is not repeated.
    Err(bad_field("api_key", "has to say where the key is, such as env:MY_KEY; a key itself does not belong in a file"))
}

fn provider_row(row: ListedProvider) -> v1::Provider {
    v1::Provider {
        provider: row.name,
        wire: row.wire,
        base_url: row.base_url,
        usable: row.usable,
        key_source: row.key_source,
        configured: row.configured,
        known: row.known,
        models: u32::try_from(row.models).unwrap_or(u32::MAX),
    }
}

fn server_row(server: FoundServer) -> v1::LocalServer {
    let models = server.models.into_iter().map(|model| v1::ProviderModel {
        id: model.id,
        context_tokens: model.context_tokens.unwrap_or(0),
        max_output_tokens: 0,
    });
    v1::LocalServer {
        provider: server.provider,
        base_url: server.base_url,
        answers: server.answers,
        problem: server.problem,
        models: models.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_toml_and_holds_no_secret() {
        assert_eq!(table("a/b:\"c\"\\", 0, 0), r#"{ id = "a/b:\"c\"\\" }"#);
        assert_eq!(table("m", 4096, 512), r#"{ id = "m", context = 4096, max_output = 512 }"#);
        assert!(base_url("http://127.0.0.1:8080/v1").is_ok());
        for bad in ["", "ftp://h", "http://", "http://user:pw@h/v1", "http://h/\n[x]", "127.0.0.1:8080"] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
        assert!(key_name("env:KEY").is_ok());
        for bad in ["sk-secret", "env:", "env:\nX"] {
            let status = key_name(bad).unwrap_err();
            assert!(!status.message().contains("secret"), "{status:?}");
        }
    }
}
