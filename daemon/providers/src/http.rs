//! The HTTP below all wires: clients by network environment, one request, and its failures; `address` has where it goes.
//!
//! Proxies and certificates come from the environment of the client that started the run, never from the daemon's:
//! a daemon outlives the shell that started it.

mod address;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mcode_env::{Clock as _, SystemClock};
use mcode_models::retry::CONNECTION_REFUSED;
use mcode_models::{Access, KeyPlace, ModelError, ModelErrorKind};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, NoProxy, Proxy, Response, Url};

pub(crate) use self::address::{
    CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH, base, endpoint, host, is_loopback_name, without_secrets,
};
use crate::exchange::Call;
use crate::registry::{IDLE_TIMEOUT_MS, IDLE_TIMEOUT_THINKING_MS};

/// Ends an attempt to connect, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Ends the wait for the head of a response.
pub const HEADERS_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for servers on this machine, which may first have to load a model.
pub const HEADERS_TIMEOUT_LOOPBACK: Duration = Duration::from_secs(300);
/// Connections that rest longer are not used again: after a sleep of the machine they are dead.
pub const POOL_IDLE: Duration = Duration::from_secs(60);
/// Interval of TCP keepalive.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The most of an error body that is read, in bytes.
pub const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// The most clients (network environments) that are kept.
pub const MAX_CLIENTS: usize = 8;
/// Largest file of certificates, in bytes; those of systems have some 300 kB.
const CERTIFICATES_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// A server's delay above this is told in the error, since nobody waits for it.
const LONG_DELAY: Duration = Duration::from_secs(300);

/// Variables of the client that decide how servers are reached.
const NETWORK_VARIABLES: &[&str] = &["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE"];

/// Installs the crypto of TLS for the whole process. May be called often; an already installed one is kept.
pub fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Losing a race against another thread that installs one is fine.
        let _installed_by_other = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The HTTP clients, one for each distinct network environment; the least recently used goes first.
#[derive(Debug, Default)]
pub struct HttpClients {
    clients: Mutex<VecDeque<(BTreeMap<String, String>, Client)>>,
}

impl HttpClients {
    /// No clients yet. Also installs the crypto that they need.
    #[must_use]
    pub fn new() -> Self {
        install_crypto();
        Self::default()
    }

    /// The client for this network environment. Reads the certificate file on first use.
    pub(crate) fn client(&self, env: &BTreeMap<String, String>) -> Result<Client, ModelError> {
        if let Some(client) = self.find(env) {
            return Ok(client);
        }
        let client = build(env)?;
        let mut clients = self.lock();
        if clients.len() >= MAX_CLIENTS {
            clients.pop_front();
        }
        clients.push_back((env.clone(), client.clone()));
        Ok(client)
    }

    fn find(&self, env: &BTreeMap<String, String>) -> Option<Client> {
        let mut clients = self.lock();
        let at = clients.iter().position(|(known, _)| known == env)?;
        let found = clients.remove(at)?;
        let client = found.1.clone();
        clients.push_back(found);
        Some(client)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(BTreeMap<String, String>, Client)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(env: &BTreeMap<String, String>) -> Result<Client, ModelError> {
    install_crypto();
    let value = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let wrong = |name: &str, reason: &dyn std::fmt::Display| {
        ModelError::new(ModelErrorKind::InvalidRequest, format!("{name} of your environment can not be used: {reason}"))
            .with_hint(format!("Correct or unset {name} and start the client again."))
    };
    let mut builder = Client::builder()
        .no_proxy()
        .gzip(false)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("mcode/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE)
        .tcp_keepalive(TCP_KEEPALIVE)
        .http2_keep_alive_interval(TCP_KEEPALIVE)
        .tcp_nodelay(true);
    let no_proxy = value("NO_PROXY").and_then(NoProxy::from_string);
    if let Some(url) = value("HTTPS_PROXY") {
        let proxy = Proxy::https(url).map_err(|error| wrong("HTTPS_PROXY", &error.without_url()))?;
        builder = builder.proxy(proxy.no_proxy(no_proxy.clone()));
    }
    if let Some(url) = value("HTTP_PROXY") {
        let proxy = Proxy::http(url).map_err(|error| wrong("HTTP_PROXY", &error.without_url()))?;
        builder = builder.proxy(proxy.no_proxy(no_proxy));
    }
    if let Some(path) = value("SSL_CERT_FILE") {
        let pem = mcode_env::files::read_bounded(Path::new(path), CERTIFICATES_BYTES_MAX)
            .map_err(|error| wrong("SSL_CERT_FILE", &format!("{path}: {error}")))?;
        let certs =
            Certificate::from_pem_bundle(&pem).map_err(|error| wrong("SSL_CERT_FILE", &format!("{path}: {error}")))?;
        if certs.is_empty() {
            return Err(wrong("SSL_CERT_FILE", &format!("{path} holds no certificate")));
        }
        builder = builder.tls_certs_only(certs);
    }
    builder.build().map_err(|error| {
        ModelError::new(ModelErrorKind::Transport, format!("no HTTP client could be made: {}", causes(&error)))
    })
}

/// How long the head of a response may take: a configured idle time holds for it too, since a kept connection that died
/// unseen swallows the request and never brings a head.
fn head_limit(idle_timeout_ms: u64, loopback: bool) -> Duration {
    match idle_timeout_ms {
        IDLE_TIMEOUT_MS | IDLE_TIMEOUT_THINKING_MS if loopback => HEADERS_TIMEOUT_LOOPBACK,
        IDLE_TIMEOUT_MS | IDLE_TIMEOUT_THINKING_MS => HEADERS_TIMEOUT,
        configured => Duration::from_millis(configured.max(1)),
    }
}

/// Sends a call and waits for the head of the response.
pub(crate) async fn send(client: &Client, call: &Call, body: Vec<u8>, access: &Access) -> Result<Response, ModelError> {
    let host = host(&call.url);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
    let own = call.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let configured = access.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in own.chain(configured) {
        add_header(&mut headers, name, value)?;
    }
    let limit = head_limit(access.idle_timeout_ms, call.url.host_str().is_some_and(is_loopback_name));
    let sending = client.post(call.url.clone()).headers(headers).body(body).send();
    match tokio::time::timeout(limit, Box::pin(sending)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(through_proxy(transport(&error, &host), &error, &call.url, access)),
        Err(_) => Err(ModelError::new(
            ModelErrorKind::Transport,
            format!("no answer from {host} for {} s", limit.as_secs_f64()),
        )),
    }
}

/// The variables for the network under their names in capitals; the small form counts where the other is missing.
pub(crate) fn network_env(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let set = |name: &str| env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let found = NETWORK_VARIABLES.iter().filter_map(|name| {
        let value = set(name).or_else(|| set(&name.to_ascii_lowercase()))?;
        Some(((*name).to_owned(), value.to_owned()))
    });
    found.collect()
}

/// The header with the key of a provider; `own` is the wire's.
pub(crate) fn key_header(access: &Access, own: KeyPlace) -> Option<(String, String)> {
    let key = access.key.as_ref()?.expose();
    Some(match if access.key_place == KeyPlace::Usual { own } else { access.key_place } {
        KeyPlace::Usual | KeyPlace::Bearer => ("authorization".to_owned(), format!("Bearer {key}")),
        KeyPlace::Header(name) => (name.to_owned(), key.to_owned()),
    })
}

fn add_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), ModelError> {
    let wrong = || {
        ModelError::new(ModelErrorKind::InvalidRequest, format!("the header '{name}' can not be sent as it is written"))
            .with_hint("Check the key and the headers of the provider for line breaks and odd characters.")
    };
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    value.set_sensitive(true);
    headers.insert(header, value);
    Ok(())
}

/// A failure of the connection, in plain words.
pub(crate) fn transport(error: &reqwest::Error, host: &str) -> ModelError {
    let words = causes(error);
    let lower = words.to_ascii_lowercase();
    if lower.contains("certificate") || lower.contains("unknownissuer") {
        let mut error = ModelError::new(
            ModelErrorKind::Transport,
            format!("the TLS certificate of {host} was not accepted: {words}"),
        )
        .with_hint("If a private authority signs it, start the client with SSL_CERT_FILE set to its certificate.");
        error.should_retry = Some(false);
        return error;
    }
    if is_refused(error) {
        return ModelError::new(ModelErrorKind::Transport, format!("nothing answers at {host}: {CONNECTION_REFUSED}"))
            .with_hint("Check that the server runs and that base_url names its address.");
    }
    let what = if error.is_connect() { "could not be reached" } else { "broke the connection" };
    ModelError::new(ModelErrorKind::Transport, format!("{host} {what}: {words}"))
}

/// Where a proxy may have been in the way of a connection, it is named: the host then is not to blame.
fn through_proxy(mut failure: ModelError, error: &reqwest::Error, url: &Url, access: &Access) -> ModelError {
    let variable = if url.scheme() == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let proxy = access.network_env.get(variable).filter(|value| !value.is_empty());
    let Some(proxy) = proxy.filter(|_| error.is_connect()) else { return failure };
    let address = Url::parse(proxy).ok().as_ref().map_or_else(|| "as set".to_owned(), host);
    failure.message = format!("no connection to {} through the proxy {address}: {}", host(url), failure.message);
    failure.with_hint(format!(
        "{variable} of your environment names that proxy: check that it runs, or name the host in NO_PROXY."
    ))
}

fn is_refused(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        let io = cause.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The causes of an error, without its URL (which may hold a key).
fn causes(error: &reqwest::Error) -> String {
    let unknown = || if error.is_timeout() { "timed out".to_owned() } else { "the connection failed".to_owned() };
    error.source().map_or_else(unknown, mcode_text::chain)
}

/// Reads an error body up to [`MAX_ERROR_BODY_BYTES`]; what can not be read is left out.
pub(crate) async fn error_body(response: &mut Response, idle: Duration) -> String {
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BODY_BYTES {
        match tokio::time::timeout(idle, response.chunk()).await {
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY_BYTES - body.len())]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// Takes what the headers say about retrying into an error.
pub(crate) fn read_retry_headers(error: &mut ModelError, headers: &HeaderMap) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let millis = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()).map(|millis| millis / 1_000.0);
    let seconds = millis.or_else(|| text("retry-after").and_then(seconds_until));
    let resets =
        || if error.is_limit() { error.retry_after.is_none().then(|| until_reset(headers)).flatten() } else { None };
    let seconds = seconds.or_else(resets);
    if let Some(delay) = seconds.filter(|delay| *delay > 0.0).and_then(|delay| Duration::try_from_secs_f64(delay).ok())
    {
        error.retry_after = Some(delay);
    }
    error.should_retry = match text("x-should-retry") {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => error.should_retry,
    };
    if let Some(delay) = error.retry_after.filter(|delay| *delay > LONG_DELAY) {
        error.message.push_str(&format!(" (the server asks to wait {})", span(delay)));
    }
}

/// Seconds until the limit that is used up starts again, by the headers with which Anthropic and OpenAI tell of each of
/// their limits; the latest one when several are.
fn until_reset(headers: &HeaderMap) -> Option<f64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let used_up = |name: &str| text(name).and_then(|left| left.parse::<f64>().ok()).is_some_and(|left| left <= 0.0);
    let mut seconds: Vec<f64> = Vec::new();
    for limit in ["requests", "tokens", "input-tokens", "output-tokens"] {
        if used_up(&format!("anthropic-ratelimit-{limit}-remaining")) {
            let moment = text(&format!("anthropic-ratelimit-{limit}-reset"));
            seconds.extend(moment.and_then(|moment| moment.parse::<jiff::Timestamp>().ok()).map(seconds_from_now));
        }
        if used_up(&format!("x-ratelimit-remaining-{limit}")) {
            let span = text(&format!("x-ratelimit-reset-{limit}"));
            seconds.extend(span.and_then(crate::failure::parse_span).map(|span| span.as_secs_f64()));
        }
    }
    if text("anthropic-ratelimit-unified-status") == Some("rejected") {
        let moment = text("anthropic-ratelimit-unified-reset").and_then(|moment| moment.parse::<i64>().ok());
        seconds.extend(moment.and_then(|moment| jiff::Timestamp::from_second(moment).ok()).map(seconds_from_now));
    }
    seconds.into_iter().reduce(f64::max)
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of a wait are far below 2^52")]
fn seconds_from_now(moment: jiff::Timestamp) -> f64 {
    moment.as_millisecond().saturating_sub(SystemClock.now().millis()) as f64 / 1_000.0
}

/// Seconds, or an HTTP date.
fn seconds_until(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Some(seconds);
    }
    let moment = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()?;
    let wait = moment.as_millisecond().saturating_sub(SystemClock.now().millis());
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of a wait are far below 2^52")]
    Some(wait as f64 / 1_000.0)
}

/// A span for people: `24 h`, `6 min`, `40 s`.
fn span(delay: Duration) -> String {
    let seconds = delay.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_idle_time_holds_for_the_head_too() {
        for (idle_ms, loopback, limit) in [
            (2_000, true, Duration::from_secs(2)),
            (600_000, false, Duration::from_secs(600)),
            (IDLE_TIMEOUT_MS, false, HEADERS_TIMEOUT),
            (IDLE_TIMEOUT_THINKING_MS, true, HEADERS_TIMEOUT_LOOPBACK),
        ] {
            assert_eq!(head_limit(idle_ms, loopback), limit, "{idle_ms} {loopback}");
        }
    }

    #[test]
    fn retry_headers_are_read() {
        let read = |pairs: &[(&str, String)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let mut error = ModelError::new(ModelErrorKind::RateLimited, "limited");
            read_retry_headers(&mut error, &headers);
            error
        };
        assert_eq!(read(&[("retry-after", "7".into())]).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(
            read(&[("retry-after", "7".into()), ("retry-after-ms", "1500".into())]).retry_after,
            Some(Duration::from_millis(1_500))
        );
        let later = jiff::Timestamp::from_millisecond(SystemClock.now().millis() + 60_000).unwrap();
        let date = later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let delay = read(&[("retry-after", date)]).retry_after.unwrap();
        assert!(delay > Duration::from_secs(50) && delay <= Duration::from_secs(60), "{delay:?}");
        assert_eq!(read(&[("retry-after", "soon".into())]).retry_after, None);
        // Of the limits with a header of their own only those that are used up count.
        let soon = jiff::Timestamp::from_millisecond(SystemClock.now().millis() + 90_000).unwrap();
        let limits = |left: &str| {
            read(&[
                ("anthropic-ratelimit-requests-remaining", "7".into()),
                ("anthropic-ratelimit-requests-reset", "2999-01-01T00:00:00Z".into()),
                ("anthropic-ratelimit-input-tokens-remaining", left.into()),
                ("anthropic-ratelimit-input-tokens-reset", soon.to_string()),
            ])
        };
        let delay = limits("0").retry_after.unwrap();
        assert!(delay > Duration::from_secs(80) && delay <= Duration::from_secs(90), "{delay:?}");
        assert_eq!(limits("1").retry_after, None);
        let openai = [("x-ratelimit-remaining-tokens", "0".into()), ("x-ratelimit-reset-tokens", "6m0s".into())];
        assert_eq!(read(&openai).retry_after, Some(Duration::from_secs(360)));
        assert_eq!(
            read(&[openai[0].clone(), openai[1].clone(), ("retry-after", "2".into())]).retry_after,
            Some(Duration::from_secs(2))
        );
        assert_eq!(read(&[("retry-after", "-3".into())]).retry_after, None);
        assert_eq!(read(&[("x-should-retry", "false".into())]).should_retry, Some(false));
        assert!(read(&[("retry-after", "86400".into())]).message.contains("wait 24 h"));
    }

    #[test]
    fn clients_are_shared_by_environment_and_bounded() {
        let clients = HttpClients::new();
        let env = |number: usize| BTreeMap::from([("NO_PROXY".to_owned(), format!("h{number}"))]);
        for number in 0..MAX_CLIENTS + 3 {
            clients.client(&env(number)).unwrap();
            clients.client(&env(0)).unwrap();
        }
        assert_eq!(clients.lock().len(), MAX_CLIENTS);
        assert!(clients.find(&env(0)).is_some(), "the one in use stays");
        assert!(clients.find(&env(1)).is_none());
    }

    #[test]
    fn a_broken_network_environment_is_named() {
        for (name, value) in [("SSL_CERT_FILE", "/nonexistent/ca.pem"), ("HTTPS_PROXY", "http://[::bad")] {
            let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let error = HttpClients::new().client(&env).unwrap_err();
            assert!(error.message.contains(name), "{}", error.message);
            assert!(!error.is_retryable());
        }
    }
}
