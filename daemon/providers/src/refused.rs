//! What servers were seen to refuse, so that it is left out of the next request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use mcode_models::{ModelErrorKind, ModelRequest};
use serde_json::{Map, Value};

use crate::answer;
use crate::chat::errors;
use crate::exchange::Refusal;
use crate::failure::Failure;

/// The most servers and models whose refused fields are remembered.
const MAX_REMEMBERED: usize = 64;
/// What a server says that does not take the form of an answer, in small letters.
const FORM_WORDS: &[&str] = &[
    "response_format",
    "text.format",
    "json_schema",
    "output_config",
    "outputconfig",
    "output format",
    "response_json_schema",
    "responsejsonschema",
    "response mime type",
    "responsemimetype",
    "structured output",
    "schema",
    "grammar",
];

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

    /// Whether an HTTP error is about the form in which the answer was wanted; from now on that server is not told one.
    pub(crate) fn without_form(&self, request: &ModelRequest, status: u16, body: &str) -> bool {
        if request.answer_schema.is_none() || !matches!(status, 400 | 422) {
            return false;
        }
        let failure = Failure::from_body(Some(status), body);
        let words = body.to_ascii_lowercase();
        let about =
            failure.kind() == ModelErrorKind::InvalidRequest && FORM_WORDS.iter().any(|word| words.contains(word));
        if about && self.add(request, answer::FORM) {
            tracing::info!(
                base_url = request.access.base_url,
                "the server does not take this schema; it is left to words"
            );
            return true;
        }
        false
    }

    /// Judges an HTTP error of OpenAI's wires: once for each field that the server does not take, it is asked again without.
    pub(crate) fn judge(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal {
        if self.without_form(request, status, body) {
            return Refusal::Again;
        }
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

/// Takes fields out of a body; `outer.inner` is one within another.
pub(crate) fn leave_out(body: &mut Map<String, Value>, fields: &[String]) {
    for field in fields {
        match field.split_once('.') {
            None => drop(body.shift_remove(field)),
            Some((outer, inner)) => {
                body.get_mut(outer).and_then(Value::as_object_mut).map(|fields| fields.shift_remove(inner));
            }
        }
    }
}

fn key(request: &ModelRequest) -> (String, String) {
    (request.access.base_url.clone(), request.model.model.clone())
}
