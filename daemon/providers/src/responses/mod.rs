//! The Responses wire of OpenAI, and of servers that speak it.
//!
//! Stateless: nothing is stored at the provider (`store: false`), reasoning comes encrypted and goes back with the
//! items that it led to, so that any conversation can be continued, forked or moved to another wire.

mod frame;
mod item;
pub(crate) mod request;
pub(crate) mod stream;

use std::sync::Arc;

use mcode_env::IdGen;
use mcode_models::{KeyPlace, ModelError, ModelProvider, ModelRequest, ModelStream};
use tokio_util::sync::CancellationToken;

use crate::auth::ORIGINATOR;
use crate::exchange::{self, Call, Refusal, Wiring};
use crate::http::{self, HttpClients};
use crate::media::{MediaShop, PreparedMedia};
use crate::prompt;
use crate::refused::LeftOut;

/// Speaks Responses.
#[derive(Debug, Clone)]
pub struct ResponsesProvider {
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    media: Arc<MediaShop>,
    left_out: LeftOut,
}

impl ResponsesProvider {
    /// A provider that shares `clients`.
    #[must_use]
    pub fn new(clients: Arc<HttpClients>, ids: Arc<dyn IdGen>) -> Self {
        Self { clients, ids, media: Arc::default(), left_out: LeftOut::default() }
    }

    /// The same provider for a server that does not take these fields; shares what was seen of servers.
    #[must_use]
    pub fn with_omitted(&self, omit_fields: Vec<String>) -> Self {
        Self { left_out: self.left_out.with_configured(omit_fields), ..self.clone() }
    }
}

impl ResponsesProvider {
    /// What the backend of ChatGPT subscriptions wants to know beside the account, under our own name.
    fn subscription_headers(&self, request: &ModelRequest) -> Vec<(String, String)> {
        let request_id = self.ids.next().to_string();
        let conversation = if request.cache_key.is_empty() { &request_id } else { &request.cache_key };
        [
            ("originator", ORIGINATOR),
            ("openai-beta", "responses=experimental"),
            ("session_id", conversation),
            ("x-client-request-id", &request_id),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }
}

impl Wiring for ResponsesProvider {
    type Decoder = stream::Decoder;

    fn media(&self) -> &Arc<MediaShop> {
        &self.media
    }

    fn call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError> {
        let access = &request.access;
        let url = http::endpoint(&access.base_url, http::RESPONSES_PATH)?;
        let mut headers: Vec<(String, String)> = http::key_header(access, KeyPlace::Bearer).into_iter().collect();
        if request::is_subscription(request) {
            headers.extend(self.subscription_headers(request));
        }
        Ok(Call { url, headers, body: request::body(request, media, &self.left_out.of(request)) })
    }

    fn decoder(&self, request: &ModelRequest, host: &str) -> stream::Decoder {
        stream::Decoder::new(Arc::clone(&self.ids), prompt::origin(request), host.to_owned())
    }

    fn refusal(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal {
        self.left_out.judge(request, status, body, host)
    }
}

impl ModelProvider for ResponsesProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        exchange::stream(self.clone(), Arc::clone(&self.clients), request, cancel)
    }
}
