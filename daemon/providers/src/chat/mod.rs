//! The Chat Completions wire of OpenAI and the many servers that speak dialects of it.

mod calls;
pub(crate) mod dialect;
pub(crate) mod errors;
mod frame;
pub(crate) mod request;
pub(crate) mod stream;
mod think;
mod usage;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use mcode_env::IdGen;
use mcode_models::{ModelError, ModelProvider, ModelRequest, ModelStream};
use tokio_util::sync::CancellationToken;

use crate::exchange::{self, Call, Refusal, Wiring};
use crate::http::{self, HttpClients};
use crate::media::{MediaShop, PreparedMedia};
use crate::prompt;

/// The most servers and models whose refused fields are remembered.
pub const MAX_REMEMBERED: usize = 64;

/// What servers refused, by base URL and model; the oldest is forgotten first.
type Refused = VecDeque<((String, String), Vec<String>)>;

/// Speaks Chat Completions.
#[derive(Debug, Clone)]
pub struct ChatProvider {
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    media: Arc<MediaShop>,
    omit_fields: Arc<[String]>,
    refused: Arc<Mutex<Refused>>,
}

impl ChatProvider {
    /// A provider that shares `clients`; `omit_fields` are request fields that this server does not take.
    #[must_use]
    pub fn new(clients: Arc<HttpClients>, ids: Arc<dyn IdGen>, omit_fields: Vec<String>) -> Self {
        Self { clients, ids, media: Arc::default(), omit_fields: omit_fields.into(), refused: Arc::default() }
    }

    /// The same provider for a server that does not take these fields; shares what was seen of servers.
    #[must_use]
    pub fn with_omitted(&self, omit_fields: Vec<String>) -> Self {
        Self { omit_fields: omit_fields.into(), ..self.clone() }
    }

    fn left_out(&self, request: &ModelRequest) -> Vec<String> {
        let mut fields = self.omit_fields.to_vec();
        let key = (request.access.base_url.clone(), request.model.model.clone());
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, more)) = refused.iter().find(|(known, _)| *known == key) {
            fields.extend(more.iter().cloned());
        }
        fields
    }

    /// Remembers a refused field; false when it is left out already.
    fn leave_out(&self, request: &ModelRequest, field: &str) -> bool {
        if self.left_out(request).iter().any(|known| known == field) {
            return false;
        }
        let key = (request.access.base_url.clone(), request.model.model.clone());
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fields)) = refused.iter_mut().find(|(known, _)| *known == key) {
            fields.push(field.to_owned());
            return true;
        }
        if refused.len() >= MAX_REMEMBERED {
            refused.pop_front();
        }
        refused.push_back((key, vec![field.to_owned()]));
        true
    }
}

impl Wiring for ChatProvider {
    type Decoder = stream::Decoder;

    fn media(&self) -> &Arc<MediaShop> {
        &self.media
    }

    fn call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError> {
        let access = &request.access;
        let url = http::endpoint(&access.base_url, http::CHAT_PATH)?;
        let mut headers = Vec::new();
        if let Some(key) = &access.key {
            headers.push(("authorization".to_owned(), format!("Bearer {}", key.expose())));
        }
        let dialect = dialect::of(&access.provider, &http::host(&url));
        let body = request::body(request, media, dialect, &self.left_out(request));
        Ok(Call { url, headers, body })
    }

    fn decoder(&self, request: &ModelRequest, host: &str) -> stream::Decoder {
        let dialect = dialect::of(&request.access.provider, host);
        stream::Decoder::new(Arc::clone(&self.ids), prompt::origin(request), host.to_owned(), dialect)
    }

    fn refusal(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal {
        let field = errors::refused_field(status, body);
        if let Some(field) = field
            && self.leave_out(request, field)
        {
            tracing::info!(host, field, "the server does not take a request field; it is left out from now on");
            return Refusal::Again;
        }
        let mut error = errors::from_response(status, body, host);
        if let Some(field) = field {
            error.message = format!("{} (about the request field '{field}')", error.message);
            error.hint = format!("Add it to `omit_fields` of `[providers.{}]`.", request.access.provider);
        }
        Refusal::Error(error)
    }
}

impl ModelProvider for ChatProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        exchange::stream(self.clone(), Arc::clone(&self.clients), request, cancel)
    }
}
