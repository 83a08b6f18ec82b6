//! `Debug` of the messages that carry secrets or bulk: names and sizes, never values.

use std::fmt;

use crate::v1::{
    AddProviderRequest, ClientContext, ListModelsRequest, ListPacksRequest, ListProvidersRequest, Media,
    RefreshCatalogueRequest, ScanProvidersRequest, UsePackRequest,
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
    RefreshCatalogueRequest { from }
    ScanProvidersRequest { add }
    UsePackRequest { name }
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
    use crate::v1::{AddProviderRequest, ClientContext, ListModelsRequest, Media, StartRunRequest, UsePackRequest};

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
        for text in
            [format!("{start:?}"), format!("{list:?}"), format!("{media:?}"), format!("{pack:?}"), format!("{add:?}")]
        {
            assert!(!text.contains("sk-hidden") && !text.contains("115, 107"), "{text}");
        }
        assert!(format!("{start:?}").contains("<1 variables>"));
    }
}
