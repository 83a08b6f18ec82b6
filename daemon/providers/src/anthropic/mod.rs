//! The Anthropic Messages wire.

pub(crate) mod errors;
pub(crate) mod request;
pub(crate) mod stream;
mod usage;

use std::sync::Arc;

use mcode_env::IdGen;
use mcode_models::{ModelProvider, ModelRequest, ModelStream};
use tokio_util::sync::CancellationToken;

use crate::exchange::{self, Call, Wiring};
use crate::http::{self, HttpClients};
use crate::media::MediaShop;
use crate::prompt;

/// The version of the wire that we speak.
const VERSION: &str = "2023-06-01";
/// Thinking between tool calls for the models with budgets.
pub(crate) const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// Speaks to Anthropic and to servers that are like it.
#[derive(Debug, Clone)]
pub struct AnthropicProvider {
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    media: Arc<MediaShop>,
    omit_fields: Arc<[String]>,
}

impl AnthropicProvider {
    /// A provider that shares `clients`; `omit_fields` are request fields that this server does not take.
    #[must_use]
    pub fn new(clients: Arc<HttpClients>, ids: Arc<dyn IdGen>, omit_fields: Vec<String>) -> Self {
        Self { clients, ids, media: Arc::default(), omit_fields: omit_fields.into() }
    }
}

impl Wiring for AnthropicProvider {
    type Decoder = stream::Decoder;

    fn media(&self) -> &Arc<MediaShop> {
        &self.media
    }

    fn call(
        &self,
        request: &ModelRequest,
        media: &crate::media::PreparedMedia,
    ) -> Result<Call, mcode_models::ModelError> {
        let access = &request.access;
        let url = http::endpoint(&access.base_url, http::MESSAGES_PATH)?;
        let mut headers = vec![("anthropic-version".to_owned(), VERSION.to_owned())];
        if let Some(key) = &access.key {
            let (name, value) = if access.bearer {
                ("authorization", format!("Bearer {}", key.expose()))
            } else {
                ("x-api-key", key.expose().to_owned())
            };
            headers.push((name.to_owned(), value));
        }
        let at_home = url.host_str().is_some_and(|host| host.ends_with("anthropic.com"));
        if at_home && request::wants_interleaving(request) {
            headers.push(("anthropic-beta".to_owned(), INTERLEAVED.to_owned()));
        }
        Ok(Call { url, headers, body: request::body(request, media, &self.omit_fields) })
    }

    fn decoder(&self, request: &ModelRequest, host: &str) -> stream::Decoder {
        stream::Decoder::new(Arc::clone(&self.ids), prompt::origin(request), host.to_owned())
    }

    fn refusal(&self, _: &ModelRequest, status: u16, body: &str, host: &str) -> exchange::Refusal {
        exchange::Refusal::Error(errors::from_response(status, body, host))
    }
}

impl ModelProvider for AnthropicProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        exchange::stream(self.clone(), Arc::clone(&self.clients), request, cancel)
    }
}
