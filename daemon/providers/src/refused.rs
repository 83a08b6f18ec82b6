//! What servers were seen to refuse, so that it is left out of the next request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use mcode_models::{ModelErrorKind, ModelRequest};

use crate::chat::errors;
use crate::exchange::Refusal;

/// The most servers and models whose refused fields are remembered.
const MAX_REMEMBERED: usize = 64;

/// By base URL and model; the oldest is forgotten first.
type Refused = VecDeque<((String, String), Vec<String>)>;

/// Request fields that a server does not take: those of the configuration and those that were seen. Copies share what
/// was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftOut {
    configured: Arc<[String]>,
    seen: Arc<Mutex<Refused>>,
}

impl LeftOut {
    /// The same for a server that, by the configuration, does not take these fields.
    pub(crate) fn with_configured(&self, fields: Vec<String>) -> Self {
        Self { configured: fields.into(), seen: Arc::clone(&self.seen) }
    }

    /// What is left out of this request.
    pub(crate) fn of(&self, request: &ModelRequest) -> Vec<String> {
        let mut fields = self.configured.to_vec();
        let key = key(request);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, more)) = seen.iter().find(|(known, _)| *known == key) {
            fields.extend(more.iter().cloned());
        }
        fields
    }

    /// Judges an HTTP error of OpenAI's wires: once for each field that the server does not take, it is asked again without.
    pub(crate) fn judge(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal {
        let field = errors::refused_field(status, body);
        if let Some(field) = field
            && self.add(request, field)
        {
            tracing::info!(host, field, "the server does not take a request field; it is left out from now on");
            return Refusal::Again;
        }
        let mut error = errors::from_response(status, body, host);
        if let Some(field) = field {
            error.message = format!("{} (about the request field '{field}')", error.message);
            error.kind = ModelErrorKind::RefusedField;
            error.hint = format!("Add it to `omit_fields` of `[providers.{}]`.", request.access.provider);
        }
        Refusal::Error(error)
    }

    /// Remembers a refused field; false when it is left out already.
    fn add(&self, request: &ModelRequest, field: &str) -> bool {
        if self.of(request).iter().any(|known| known == field) {
            return false;
        }
        let key = key(request);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fields)) = seen.iter_mut().find(|(known, _)| *known == key) {
            fields.push(field.to_owned());
            return true;
        }
        if seen.len() >= MAX_REMEMBERED {
            seen.pop_front();
        }
        seen.push_back((key, vec![field.to_owned()]));
        true
    }
}

fn key(request: &ModelRequest) -> (String, String) {
    (request.access.base_url.clone(), request.model.model.clone())
}
