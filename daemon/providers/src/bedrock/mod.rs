//! The Converse wire of Amazon Bedrock.
//!
//! Requests are signed with the credentials of the standard AWS chain, found with the variables of the client that
//! asks; a bearer token goes before them. Answers come as binary event streams.

pub(crate) mod errors;
mod identity;
pub(crate) mod request;
pub(crate) mod stream;

use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_env::{IdGen, SystemClock};
use mcode_models::{KeyPlace, ModelError, ModelProvider, ModelRequest, ModelStream};
use tokio_util::sync::CancellationToken;

use self::identity::Identities;
use crate::exchange::{self, Call, Refusal, Wiring};
use crate::http::{self, HttpClients};
use crate::media::{MediaShop, PreparedMedia};
use crate::prompt;
use crate::refused::LeftOut;

/// Speaks Converse.
#[derive(Debug, Clone)]
pub struct BedrockProvider {
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    media: Arc<MediaShop>,
    identities: Arc<Identities>,
    left_out: LeftOut,
}

impl BedrockProvider {
    /// A provider that shares `clients`.
    #[must_use]
    pub fn new(clients: Arc<HttpClients>, ids: Arc<dyn IdGen>) -> Self {
        let identities = Arc::new(Identities::new(Arc::clone(&clients), Arc::new(SystemClock)));
        Self { clients, ids, media: Arc::default(), identities, left_out: LeftOut::default() }
    }

    /// The same provider for a server that does not take these fields; shares what was found out about credentials
    /// and servers.
    #[must_use]
    pub fn with_omitted(&self, omit_fields: Vec<String>) -> Self {
        Self { left_out: self.left_out.with_configured(omit_fields), ..self.clone() }
    }
}

impl Wiring for BedrockProvider {
    type Decoder = stream::Decoder;

    fn media(&self) -> &Arc<MediaShop> {
        &self.media
    }

    fn call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError> {
        let access = &request.access;
        let mut url = http::base(&access.base_url, "")?;
        let folder = url.path().trim_end_matches('/').to_owned();
        let model: String = url::form_urlencoded::byte_serialize(request.model.model.as_bytes()).collect();
        url.set_path(&format!("{folder}/model/{model}/converse-stream"));
        let mut headers = vec![("accept".to_owned(), "application/vnd.amazon.eventstream".to_owned())];
        headers.extend(http::key_header(access, KeyPlace::Bearer));
        Ok(Call { url, headers, body: request::body(request, media, &self.left_out.of(request)) })
    }

    /// Fills in the region, and signs where there is no token.
    fn finish<'a>(
        &'a self,
        request: &'a ModelRequest,
        call: Call,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<Call, ModelError>> {
        Box::pin(async move { self.identities.sign(request, call, body).await })
    }

    fn decoder(&self, request: &ModelRequest, host: &str) -> stream::Decoder {
        stream::Decoder::new(Arc::clone(&self.ids), prompt::origin(request), host.to_owned())
    }

    fn refusal(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal {
        if self.left_out.without_form(request, status, body) {
            return Refusal::Again;
        }
        Refusal::Error(errors::from_response(status, body, host))
    }
}

impl ModelProvider for BedrockProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        exchange::stream(self.clone(), Arc::clone(&self.clients), request, cancel)
    }
}
