//! The Gemini wire, of Google's API for developers and of Vertex AI.

pub(crate) mod errors;
pub(crate) mod request;
pub(crate) mod stream;

use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_env::IdGen;
use mcode_models::{KeyPlace, ModelError, ModelProvider, ModelRequest, ModelStream};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use crate::exchange::{self, Call, Refusal, Wiring};
use crate::google::GoogleIdentities;
use crate::http::{self, HttpClients};
use crate::media::{MediaShop, PreparedMedia};
use crate::prompt;
use crate::refused::LeftOut;

/// Speaks Gemini.
#[derive(Debug, Clone)]
pub struct GeminiProvider {
    clients: Arc<HttpClients>,
    ids: Arc<dyn IdGen>,
    media: Arc<MediaShop>,
    identities: Arc<GoogleIdentities>,
    left_out: LeftOut,
}

impl GeminiProvider {
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

/// The model is part of the address here.
fn address(base: &str, model: &str) -> Result<Url, ModelError> {
    let mut url = http::base(base, "v1beta")?;
    let folder = if model.contains('/') { "" } else { "models/" };
    let path = format!("{}/{folder}{model}:streamGenerateContent", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.query_pairs_mut().append_pair("alt", "sse");
    Ok(url)
}

impl Wiring for GeminiProvider {
    type Decoder = stream::Decoder;

    fn media(&self) -> &Arc<MediaShop> {
        &self.media
    }

    fn call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError> {
        let access = &request.access;
        let url = address(&access.base_url, &request.model.model)?;
        let headers = http::key_header(access, KeyPlace::Header("x-goog-api-key")).into_iter().collect();
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

    fn refusal(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal {
        if self.left_out.without_form(request, status, body) {
            return Refusal::Again;
        }
        Refusal::Error(errors::from_response(status, body, host))
    }
}

impl ModelProvider for GeminiProvider {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        exchange::stream(self.clone(), Arc::clone(&self.clients), request, cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_stands_in_the_address() {
        for (base, model, url) in [
            (
                "https://generativelanguage.googleapis.com/v1beta",
                "gemini-3-pro",
                "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
            ),
            ("http://127.0.0.1:9", "m", "http://127.0.0.1:9/v1beta/models/m:streamGenerateContent?alt=sse"),
            (
                "https://eu-aiplatform.googleapis.com/v1/projects/p/locations/eu/publishers/google/",
                "m",
                "https://eu-aiplatform.googleapis.com/v1/projects/p/locations/eu/publishers/google/models/m:streamGenerateContent?alt=sse",
            ),
            ("http://h:1/v1", "tunedModels/x", "http://h:1/v1/tunedModels/x:streamGenerateContent?alt=sse"),
        ] {
            assert_eq!(address(base, model).unwrap().as_str(), url);
        }
    }
}
