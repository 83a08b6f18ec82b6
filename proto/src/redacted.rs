//! `Debug` of the messages that carry secrets or bulk: names and sizes, never values.

use std::fmt;

use crate::v1::{
    AddProviderRequest, ClientContext, CompleteLoginRequest, ExportThreadResponse, ListModelsRequest, ListPacksRequest,
    ListProvidersRequest, Media, RefreshCatalogueRequest, ScanProvidersRequest, StartLoginRequest, UsePackRequest,
};

/// Messages whose only secrets are in the client's environment.
macro_rules! with_env {
    ($($message:ident { $($field:ident),* })*) => {
        $(impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message))
                    $(.field(stringify!($field), &self.$field))*
                    .field("env", &format_args!("<{} variables>", self.env.len()))
                    .finish()
            }
        })*
    };
}

with_env! {
    ListModelsRequest { page_size, page_token, provider }
    ListPacksRequest {}
    ListProvidersRequest {}
    ScanProvidersRequest { add }
    UsePackRequest { name }
}

/// The address may hold a password or a key.
impl fmt::Debug for RefreshCatalogueRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefreshCatalogueRequest")
            .field("from", &format_args!("<{} bytes>", self.from.len()))
            .field("env", &format_args!("<{} variables>", self.env.len()))
            .finish()
    }
}

/// A piece of a whole thread.
impl fmt::Debug for ExportThreadResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportThreadResponse").field("chunk", &format_args!("<{} bytes>", self.chunk.len())).finish()
    }
}

impl fmt::Debug for AddProviderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddProviderRequest")
            .field("provider", &self.provider)
            .field("wire", &self.wire)
            .field("base_url", &self.base_url)
            .field("api_key", &format_args!("<{} bytes>", self.api_key.len()))
            .field("models", &self.models)
            .finish()
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext")
            .field("cwd", &self.cwd)
            .field("env", &format_args!("<{} variables>", self.env.len()))
            .field("umask", &self.umask)
            .field("interactive", &self.interactive)
            .field("client", &self.client)
            .field("detached", &self.detached)
            .finish()
    }
}

/// Whether there is a secret, and nothing of it.
fn given(secret: &str) -> &'static str {
    if secret.is_empty() { "none" } else { "given" }
}

impl fmt::Debug for StartLoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartLoginRequest")
            .field("provider", &self.provider)
            .field("flow", &self.flow)
            .field("api_key", &given(&self.api_key))
            .field("env", &format_args!("<{} variables>", self.env.len()))
            .finish()
    }
}

impl fmt::Debug for CompleteLoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompleteLoginRequest")
            .field("login_id", &self.login_id)
            .field("code", &given(&self.code))
            .field("wait", &self.wait)
            .finish()
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media")
            .field("media_type", &self.media_type)
            .field("data", &format_args!("<{} bytes>", self.data.len()))
            .field("name", &self.name)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::v1::{
        AddProviderRequest, ClientContext, CompleteLoginRequest, ListModelsRequest, Media, RefreshCatalogueRequest,
        StartLoginRequest, StartRunRequest, UsePackRequest,
    };

    #[test]
    fn secrets_are_not_shown() {
        let env = std::collections::BTreeMap::from([("OPENAI_API_KEY".to_owned(), "sk-hidden".to_owned())]);
        let start = StartRunRequest {
            context: Some(ClientContext { cwd: "/w".to_owned(), env: env.clone(), ..Default::default() }),
            ..Default::default()
        };
        let list = ListModelsRequest { env: env.clone(), ..Default::default() };
        let pack = UsePackRequest { env, ..Default::default() };
        let add = AddProviderRequest { api_key: "sk-hidden".to_owned(), ..Default::default() };
        let media = Media { data: b"sk-hidden".to_vec(), ..Default::default() };
        let login = StartLoginRequest { api_key: "sk-hidden".to_owned(), ..Default::default() };
        let code = CompleteLoginRequest { code: "sk-hidden".to_owned(), ..Default::default() };
        let from = "https://me:sk-hidden@host/list?key=sk-hidden".to_owned();
        let refresh = RefreshCatalogueRequest { from, ..Default::default() };
        let shown = [
            format!("{refresh:?}"),
            format!("{start:?}"),
            format!("{list:?}"),
            format!("{media:?}"),
            format!("{pack:?}"),
            format!("{add:?}"),
            format!("{login:?}"),
            format!("{code:?}"),
        ];
        for text in shown {
            assert!(!text.contains("sk-hidden") && !text.contains("115, 107"), "{text}");
        }
        assert!(format!("{start:?}").contains("<1 variables>"));
    }
}
