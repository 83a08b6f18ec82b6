//! The Anthropic Messages wire.

pub(crate) mod errors;
pub(crate) mod request;
pub(crate) mod stream;
mod usage;

use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_env::IdGen;
use mcode_models::{KeyPlace, ModelError, ModelProvider, ModelRequest, ModelStream};
use tokio_util::sync::CancellationToken;

use crate::exchange::{self, Call, Wiring};
use crate::google::GoogleIdentities;
use crate::http::{self, HttpClients};
use crate::media::{MediaShop, PreparedMedia};
use crate::prompt;
use crate::refused::LeftOut;

/// The version of the wire that we speak.
const VERSION: &str = "2023-06-01";
/// In the base URL of Claude on Vertex.
const VERTEX_PATH: &str = "/publishers/anthropic";
/// The version of the wire there.
const VERTEX_VERSION: &str = "vertex-2023-10-16";
/// Thinking between tool calls for the models with budgets.
pub(crate) const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// Speaks to Anthropic and to servers that are like it.
#[derive(Debug, Clone)]
pub struct AnthropicProvider {
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    media: Arc<MediaShop>,
    identities: Arc<GoogleIdentities>,
    left_out: LeftOut,
}

impl AnthropicProvider {
    /// A provider that shares `clients` and `identities`; `left_out` are request fields that servers do not take.
    pub(crate) fn new(
        clients: Arc<HttpClients>,
        ids: Arc<dyn IdGen>,
        identities: Arc<GoogleIdentities>,
        left_out: LeftOut,
    ) -> Self {
        Self { clients, ids, media: Arc::default(), identities, left_out }
    }
}

impl AnthropicProvider {
    /// On Vertex the model is part of the address, and the body says the version of the wire.
    fn vertex_call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError> {
        let mut url = http::base(&request.access.base_url, "")?;
        let path = format!("{}/models/{}:streamRawPredict", url.path().trim_end_matches('/'), request.model.model);
        url.set_path(&path);
        let mut body = request::body(request, media, &self.left_out.of(request));
        if let Some(fields) = body.as_object_mut() {
            fields.shift_remove("model");
            fields.insert("anthropic_version".into(), VERTEX_VERSION.into());
        }
        let headers = http::key_header(&request.access, KeyPlace::Header("x-goog-api-key")).into_iter().collect();
        Ok(Call { url, headers, body })
    }
}

impl Wiring for AnthropicProvider {
    type Decoder = stream::Decoder;

    fn media(&self) -> &Arc<MediaShop> {
        &self.media
    }

    fn call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError> {
        let access = &request.access;
        if access.base_url.contains(VERTEX_PATH) {
            return self.vertex_call(request, media);
        }
        let url = http::endpoint(&access.base_url, http::MESSAGES_PATH)?;
        let mut headers = vec![("anthropic-version".to_owned(), VERSION.to_owned())];
        headers.extend(http::key_header(access, KeyPlace::Header("x-api-key")));
        let at_home = url.host_str().is_some_and(|host| host.ends_with("anthropic.com"));
        if at_home && request::wants_interleaving(request) {
            headers.push(("anthropic-beta".to_owned(), INTERLEAVED.to_owned()));
        }
        Ok(Call { url, headers, body: request::body(request, media, &self.left_out.of(request)) })
    }

    /// Vertex takes a token where there is no key.
    fn finish<'a>(
        &'a self,
        request: &'a ModelRequest,
        mut call: Call,
        _body: &'a [u8],
    ) -> BoxFuture<'a, Result<Call, ModelError>> {
        Box::pin(async move {
            call.headers.extend(self.identities.header(request).await?);
            Ok(call)
        })
    }

    fn decoder(&self, request: &ModelRequest, host: &str) -> stream::Decoder {
        stream::Decoder::new(Arc::clone(&self.ids), prompt::origin(request), host.to_owned())
    }

    fn refusal(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> exchange::Refusal {
        if self.left_out.without_form(request, status, body) {
            return exchange::Refusal::Again;
        }
        exchange::Refusal::Error(errors::from_response(status, body, host))
    }
}

impl ModelProvider for AnthropicProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        exchange::stream(self.clone(), Arc::clone(&self.clients), request, cancel)
    }
}
