//! One attempt at a request: media, body, connection, frames, events. The same for all wires.
//!
//! The stream does its work when it is polled; dropping it, or cancelling, drops the connection with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_models::{ModelError, ModelErrorKind, ModelRequest, ModelStream, Secret, StreamEvent, Wire};
use reqwest::{Response, Url};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::auth::copilot;
use crate::decode::{MAX_RESPONSE_BYTES, WireDecoder, protocol};
use crate::failure::redact;
use crate::frames::{self, FrameDecoder};
use crate::http::{self, HttpClients};
use crate::known;
use crate::media::{MediaShop, PreparedMedia};
use crate::sse::SseDecoder;

/// The most request fields that are left out one after the other because a server refuses them.
pub(crate) const MAX_DOWNGRADES: usize = 6;
/// How long we wait for more when the answer is complete but the server keeps the stream open.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// How long the rest of a finished response is read so that its connection can be used again.
const DRAIN: Duration = Duration::from_millis(500);
/// The largest body that is taken when a server answers with JSON instead of a stream, in bytes.
const MAX_JSON_BYTES: usize = 32 * 1024 * 1024;

/// The provider that wants to know who begins a request.
const COPILOT: &str = "github-copilot";

/// A request in the words of its wire.
#[derive(Debug)]
pub(crate) struct Call {
    /// Where it goes.
    pub(crate) url: Url,
    /// Headers of the wire; those of the configuration come on top.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Value,
}

/// What to do about an HTTP error.
pub(crate) enum Refusal {
    /// Ask [`Wiring::call`] again: it will leave out what the server does not take.
    Again,
    /// It is final.
    Error(ModelError),
}

/// A wire.
pub(crate) trait Wiring: Clone + Send + Sync + 'static {
    /// Decodes its responses.
    type Decoder: WireDecoder + 'static;
    /// Prepares media.
    fn media(&self) -> &Arc<MediaShop>;
    /// Writes a request.
    fn call(&self, request: &ModelRequest, media: &PreparedMedia) -> Result<Call, ModelError>;
    /// What takes time before a call is sent: where it goes, tokens, signatures. `body` is what will be sent.
    fn finish<'a>(
        &'a self,
        _request: &'a ModelRequest,
        call: Call,
        _body: &'a [u8],
    ) -> BoxFuture<'a, Result<Call, ModelError>> {
        Box::pin(std::future::ready(Ok(call)))
    }
    /// A decoder for the response of `host`.
    fn decoder(&self, request: &ModelRequest, host: &str) -> Self::Decoder;
    /// Judges an HTTP error.
    fn refusal(&self, request: &ModelRequest, status: u16, body: &str, host: &str) -> Refusal;
}

/// The stream of one attempt.
pub(crate) fn stream<W: Wiring>(
    wiring: W,
    clients: Arc<HttpClients>,
    request: ModelRequest,
    cancel: CancellationToken,
) -> ModelStream {
    let driver = Driver { wiring, clients, request, cancel, phase: Phase::Start, queue: VecDeque::new() };
    Box::pin(futures::stream::unfold(Box::new(driver), |mut driver| async move {
        let item = driver.next().await?;
        Some((item, driver))
    }))
}

enum Phase<D> {
    Start,
    Reading(Box<Reading<D>>),
    Over,
}

struct Driver<W: Wiring> {
    wiring: W,
    clients: Arc<HttpClients>,
    request: ModelRequest,
    cancel: CancellationToken,
    phase: Phase<W::Decoder>,
    queue: VecDeque<Result<StreamEvent, ModelError>>,
}

impl<W: Wiring> Driver<W> {
    async fn next(&mut self) -> Option<Result<StreamEvent, ModelError>> {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(item.map_err(|error| self.cleaned(error)));
            }
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Start => {
                    let opened = tokio::select! {
                        biased;
                        () = self.cancel.cancelled() => Err(cancelled()),
                        opened = Box::pin(open(&self.wiring, &self.clients, &mut self.request)) => opened,
                    };
                    match opened {
                        Ok(reading) => self.phase = Phase::Reading(Box::new(reading)),
                        Err(error) => self.queue.push_back(Err(error)),
                    }
                }
                Phase::Reading(mut reading) => {
                    let mut out = Vec::new();
                    let step = tokio::select! {
                        biased;
                        () = self.cancel.cancelled() => Err(cancelled()),
                        step = reading.step(&mut out) => step,
                    };
                    self.queue.extend(out.into_iter().map(Ok));
                    match step {
                        Ok(Step::More) => self.phase = Phase::Reading(reading),
                        Ok(Step::Finished) => reading.drain(),
                        Err(mut error) => {
                            error.usage = error.usage.or_else(|| reading.decoder.usage());
                            self.queue.push_back(Err(error));
                        }
                    }
                }
            }
        }
    }

    fn cleaned(&self, mut error: ModelError) -> ModelError {
        let key = self.request.access.key.as_ref().map(|key| key.expose());
        error.message = redact(&error.message, key);
        for value in self.request.access.headers.values().filter(|value| value.len() >= 8) {
            error.message = error.message.replace(value.as_str(), "***");
        }
        error
    }
}

fn cancelled() -> ModelError {
    ModelError::new(ModelErrorKind::Cancelled, "the request was cancelled")
}

async fn open<W: Wiring>(
    wiring: &W,
    clients: &Arc<HttpClients>,
    request: &mut ModelRequest,
) -> Result<Reading<W::Decoder>, ModelError> {
    let shop = Arc::clone(wiring.media());
    let raw = if request.info.images { request.media.clone() } else { BTreeMap::new() };
    let (shared, env) = (Arc::clone(clients), request.access.network_env.clone());
    // Pictures and certificate files are work that would hold up the other streams of this thread.
    let prepared = tokio::task::spawn_blocking(move || (shop.prepare(&raw), shared.client(&env))).await;
    let (media, client) = prepared.map_err(|error| {
        ModelError::new(ModelErrorKind::InvalidRequest, format!("the pictures could not be prepared: {error}"))
    })?;
    let client = client?;
    let idle = idle_limit(request);
    let mut keys = Keys::default();
    keys.fetch(request, None).await?;
    let mut downgrades = 0;
    while downgrades <= MAX_DOWNGRADES {
        let mut call = wiring.call(request, &media)?;
        call.headers.extend(keys.headers.iter().cloned());
        if request.access.provider == COPILOT {
            call.headers.extend(copilot::headers(request));
        }
        let body = serde_json::to_vec(&call.body).map_err(|error| {
            ModelError::new(ModelErrorKind::InvalidRequest, format!("the request could not be written: {error}"))
        })?;
        let call = wiring.finish(request, call, &body).await?;
        let host = http::host(&call.url);
        let mut response = http::send(&client, &call, body, &request.access).await?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            let decoder = wiring.decoder(request, &host);
            return Ok(Reading { decoder, host, idle, form: Form::of(&response_type(&response)), bytes: 0, response });
        }
        let body = http::error_body(&mut response, idle).await;
        if status == 401 && keys.renew(request).await? {
            continue;
        }
        match wiring.refusal(request, status, &body, &host) {
            Refusal::Again => downgrades += 1,
            Refusal::Error(mut error) => {
                http::read_retry_headers(&mut error, response.headers());
                return Err(keys.told(request, error));
            }
        }
    }
    Err(ModelError::new(
        ModelErrorKind::RefusedField,
        format!("{} refuses one request field after the other", request.access.base_url),
    )
    .with_hint(format!("Name them in `[providers.{}] omit_fields`.", request.access.provider)))
}

/// The key of a request whose access names who gives it.
#[derive(Default)]
struct Keys {
    /// What goes along with the key.
    headers: Vec<(String, String)>,
    /// Whether a key that was not taken was replaced: that is done once.
    renewed: bool,
    /// Whether nobody named another address than the provider's own, so that the key's issuer may.
    own_address: Option<bool>,
}

impl Keys {
    /// Puts the key into the request; false when it is the one that was refused.
    async fn fetch(&mut self, request: &mut ModelRequest, refused: Option<&Secret>) -> Result<bool, ModelError> {
        let Some(source) = &request.access.key_source else { return Ok(false) };
        let given = source.give(refused).await?;
        if Some(&given.key) == refused {
            return Ok(false);
        }
        self.headers = given.headers;
        let access = &mut request.access;
        let own = self.own_address.get_or_insert_with(|| {
            known::find(&access.provider).is_some_and(|known| known.base_url == access.base_url)
        });
        if let Some(base_url) = given.base_url.filter(|_| *own) {
            access.base_url = base_url;
        }
        request.access.key = Some(given.key);
        Ok(true)
    }

    /// Has a key that was not taken replaced, once; false when there is no other.
    async fn renew(&mut self, request: &mut ModelRequest) -> Result<bool, ModelError> {
        let refused = request.access.key.clone();
        if self.renewed || refused.is_none() {
            return Ok(false);
        }
        self.renewed = true;
        self.fetch(request, refused.as_ref()).await
    }

    /// An error with the next command, where it is about the key.
    fn told(&self, request: &ModelRequest, mut error: ModelError) -> ModelError {
        let access = &request.access;
        let has_identity = access.key.is_none() && !access.identity_env.is_empty();
        if error.kind == ModelErrorKind::Auth && access.wire != Wire::Bedrock && !has_identity {
            let provider = &access.provider;
            error.hint = format!(
                "Check the key of this provider and what it is allowed to do; give another with: mcode login {provider}"
            );
        }
        if let Some(withheld) = access.withheld.as_ref().filter(|_| error.kind == ModelErrorKind::Auth) {
            error.message = format!("{}; {}", error.message, withheld.what);
            error.hint.clone_from(&withheld.hint);
        }
        error
    }
}

fn idle_limit(request: &ModelRequest) -> Duration {
    Duration::from_millis(request.access.idle_timeout_ms.max(1))
}

/// What the body turned out to be.
enum Form {
    Unknown,
    Events(SseDecoder),
    Frames(FrameDecoder),
    Json(Vec<u8>),
}

impl Form {
    /// Most servers say little by their type; the first byte tells then.
    fn of(media_type: &str) -> Self {
        if media_type.starts_with(frames::MEDIA_TYPE) { Self::Frames(FrameDecoder::default()) } else { Self::Unknown }
    }
}

fn response_type(response: &Response) -> String {
    let value = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

enum Step {
    More,
    Finished,
}

struct Reading<D> {
    response: Response,
    decoder: D,
    host: String,
    idle: Duration,
    form: Form,
    bytes: u64,
}

impl<D: WireDecoder> Reading<D> {
    /// Waits for the next piece of the body and decodes all of it.
    async fn step(&mut self, out: &mut Vec<StreamEvent>) -> Result<Step, ModelError> {
        let idle = if self.decoder.is_complete() { self.idle.min(LINGER) } else { self.idle };
        let failure = match tokio::time::timeout(idle, self.response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                self.take(&chunk, out)?;
                if !self.decoder.is_done() {
                    return Ok(Step::More);
                }
                None
            }
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(http::transport(&error, &self.host)),
            Err(_) => Some(ModelError::new(
                ModelErrorKind::Transport,
                format!("no data from {} for {} s", self.host, seconds(idle)),
            )),
        };
        let ended = self.end(out);
        // A complete answer counts, however the connection ends after it.
        match (ended, failure) {
            (Ok(()), _) => Ok(Step::Finished),
            // Half a frame is what a line that fell silent or was cut leaves behind: the line is the reason.
            (Err(error), Some(failure))
                if matches!(error.kind, ModelErrorKind::Transport | ModelErrorKind::Protocol) =>
            {
                Err(failure)
            }
            (Err(error), _) => Err(error),
        }
    }

    fn take(&mut self, chunk: &[u8], out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        self.bytes += chunk.len() as u64;
        if self.bytes > MAX_RESPONSE_BYTES {
            return Err(protocol(format!("the response of {} is larger than {MAX_RESPONSE_BYTES} bytes", self.host)));
        }
        if matches!(self.form, Form::Unknown) {
            self.form = match chunk.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[') => Form::Json(Vec::new()),
                Some(b'<') => {
                    return Err(protocol(format!("{} answered with a web page instead of an answer", self.host)));
                }
                Some(_) => Form::Events(SseDecoder::new()),
            };
        }
        match &mut self.form {
            Form::Json(body) => {
                if body.len() + chunk.len() > MAX_JSON_BYTES {
                    return Err(protocol(format!("the answer of {} is larger than {MAX_JSON_BYTES} bytes", self.host)));
                }
                body.extend_from_slice(chunk);
                Ok(())
            }
            Form::Frames(frames) => {
                let decoder = &mut self.decoder;
                frames.feed(chunk, &mut |event| decoder.frame(event, out))
            }
            Form::Events(sse) => {
                let decoder = &mut self.decoder;
                sse.feed(chunk, &mut |event| decoder.frame(event, out))
            }
            Form::Unknown => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), ModelError> {
        let decoder = &mut self.decoder;
        match &mut self.form {
            Form::Json(body) => decoder.body(body, out)?,
            Form::Events(sse) => sse.finish(&mut |event| decoder.frame(event, out))?,
            Form::Frames(_) | Form::Unknown => {}
        }
        self.decoder.end(out)
    }

    /// Reads the last bytes of a finished response in the background, so that its connection can be used again.
    fn drain(self) {
        let mut response = self.response;
        tokio::spawn(async move {
            let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
            // A server that keeps the stream open loses its connection.
            let _timed_out = tokio::time::timeout(DRAIN, rest).await;
        });
    }
}

/// Seconds for people: `5`, `0.3`.
fn seconds(span: Duration) -> String {
    if span.subsec_millis() == 0 { span.as_secs().to_string() } else { format!("{:.1}", span.as_secs_f64()) }
}
