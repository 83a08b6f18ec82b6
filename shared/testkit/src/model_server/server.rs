//! The server itself: accepts, records, validates, answers from the script.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::connection::{Connection, Head, Sent};
use super::recorded::{RecordedRequest, Wire};
use super::render::{self, Asked};
use super::reply::{Block, Content, Reply};
use super::script::Script;
use super::validate::{self, Signatures};

/// How long a test waits for something that has to happen.
const WAIT_MAX: Duration = Duration::from_secs(30);

struct State {
    script: Script,
    requests: Vec<RecordedRequest>,
    signatures: Signatures,
    open: usize,
    problems: Vec<String>,
    log: Option<File>,
    /// Paths that no wire has.
    strays: Vec<String>,
}

struct Shared {
    state: Mutex<State>,
    started: Instant,
    /// Counts changes, for waiters on a runtime …
    changed: watch::Sender<u64>,
    /// … and for those without one.
    changes: Mutex<u64>,
    woken: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.woken.notify_all();
        self.changed.send_modify(|count| *count += 1);
    }
}

/// A running server; it stops when dropped.
///
/// It runs on a thread and a runtime of its own: a test may block, or pause its own clock, and still be served.
pub struct ModelServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl ModelServer {
    /// Starts on a free port of 127.0.0.1.
    #[allow(clippy::unused_async, reason = "callers await it; it may come to need that")]
    pub async fn start(script: Script) -> Self {
        Self::start_blocking(script)
    }

    /// Starts on a free port of 127.0.0.1, from a test without a runtime.
    #[must_use]
    pub fn start_blocking(script: Script) -> Self {
        Self::start_on(0, script, None).expect("a port of 127.0.0.1 can be bound")
    }

    /// Starts on this port (0 = any free one); every request is also appended to `log` as a line of JSON.
    pub fn start_on(port: u16, script: Script, log: Option<&Path>) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let log = log.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        let mut signatures = Signatures::new();
        for (signature, model) in &script.signatures {
            signatures.entry(signature.clone()).or_default().insert(model.clone());
        }
        let state =
            State { script, requests: Vec::new(), signatures, open: 0, problems: Vec::new(), log, strays: Vec::new() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            started: Instant::now(),
            changed: watch::channel(0).0,
            changes: Mutex::new(0),
            woken: Condvar::new(),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = {
            let shared = Arc::clone(&shared);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            std::thread::Builder::new().name("model-server".to_owned()).spawn(move || {
                runtime.block_on(async {
                    let Ok(listener) = TcpListener::from_std(listener) else { return };
                    tokio::select! {
                        () = accept(listener, shared) => {}
                        _ = stopped => {}
                    }
                });
            })?
        };
        Ok(Self { shared, address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL in the form that the wire's users configure: with `/v1` for Chat, without for Anthropic.
    #[must_use]
    pub fn base_url(&self, wire: Wire) -> String {
        match wire {
            Wire::Anthropic => format!("http://{}", self.address),
            Wire::Chat => format!("http://{}/v1", self.address),
        }
    }

    /// All model requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Request number `n`, from 1.
    #[must_use]
    pub fn request(&self, n: usize) -> RecordedRequest {
        let requests = self.requests();
        let count = requests.len();
        requests.into_iter().nth(n - 1).unwrap_or_else(|| panic!("request {n} was never made: there were {count}"))
    }

    /// Waits until `n` model requests have arrived, and gives them.
    pub async fn wait_for_requests(&self, n: usize) -> Vec<RecordedRequest> {
        self.wait_until(&format!("{n} model requests"), |server| server.requests().len() >= n).await;
        self.requests()
    }

    /// Waits until `holds`, looking again whenever something changed at the server. Panics after 30 s.
    pub async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            while !holds(self) {
                if changed.changed().await.is_err() {
                    break;
                }
            }
        };
        if tokio::time::timeout(WAIT_MAX, waiting).await.is_err() {
            let seen = self.requests().len();
            panic!("waited {} s for {what}; the server has seen {seen} requests", WAIT_MAX.as_secs());
        }
    }

    /// [`Self::wait_until`] for a test without a runtime.
    pub fn wait_until_blocking(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let seen = *self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
            if holds(self) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited {} s for {what}", WAIT_MAX.as_secs());
            let changes = self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.shared.woken.wait_timeout_while(changes, left, |now| *now == seen));
        }
    }

    /// [`Self::wait_for_requests`] for a test without a runtime.
    pub fn wait_for_requests_blocking(&self, n: usize) -> Vec<RecordedRequest> {
        self.wait_until_blocking(&format!("{n} model requests"), |server| server.requests().len() >= n);
        self.requests()
    }

    /// TCP connections that are open now, idle ones included.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open
    }

    /// Adds a reply to a running script.
    pub fn push(&self, reply: Reply) {
        self.shared.lock().script.replies.push_back(reply);
    }

    /// Replies not yet asked for.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.shared.lock().script.replies.len()
    }

    /// Paths of requests that belong to no wire, as sent (query included).
    #[must_use]
    pub fn strays(&self) -> Vec<String> {
        self.shared.lock().strays.clone()
    }

    /// Everything that went against the script: refused requests, requests without a reply, replies without a request.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let state = self.shared.lock();
        let mut problems = state.problems.clone();
        if !state.script.allow_unused && !state.script.replies.is_empty() {
            problems.push(format!(
                "{} of the script's replies were never asked for, the first: {:?}",
                state.script.replies.len(),
                state.script.replies.front()
            ));
        }
        problems
    }

    /// Ends the server; panics when anything went against the script.
    pub fn finish(self) {
        let problems = self.problems();
        assert!(problems.is_empty(), "the model server's script did not hold:\n- {}", problems.join("\n- "));
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Owns the connections: they end with the server.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                shared.lock().open += 1;
                shared.touch();
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    if let Ok(connection) = Connection::new(stream) {
                        serve(connection, &shared).await;
                    }
                    shared.lock().open -= 1;
                    shared.touch();
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: Connection, shared: &Shared) {
    while let Ok(Some(head)) = connection.request().await {
        if !answer(&mut connection, head, shared).await {
            return;
        }
    }
}

fn json_headers() -> BTreeMap<String, String> {
    BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())])
}

fn wire_of(path: &str) -> Option<Wire> {
    if path.contains("//") || path.contains("/v1/v1/") {
        return None;
    }
    if path.ends_with("/v1/messages") {
        return Some(Wire::Anthropic);
    }
    path.ends_with("/chat/completions").then_some(Wire::Chat)
}

/// Answers one request. `false` = the connection is done.
async fn answer(connection: &mut Connection, head: Head, shared: &Shared) -> bool {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let Some(wire) = wire_of(path).filter(|_| head.method == "POST") else {
        return answer_aside(connection, &head, path, shared).await;
    };
    let request = RecordedRequest {
        number: 0,
        wire,
        path: path.to_owned(),
        query: query.to_owned(),
        headers: head.headers.clone(),
        body: serde_json::from_slice(&head.body).unwrap_or(Value::Null),
        body_bytes: head.body.len(),
        at: shared.started.elapsed(),
        replied_at: None,
        client_left: false,
        refused: None,
    };
    let (request, reply) = decide(request, shared);
    shared.touch();
    let sent = deliver(connection, &request, &reply).await;
    {
        let mut state = shared.lock();
        let at = shared.started.elapsed();
        if let Some(recorded) = state.requests.get_mut(request.number - 1) {
            recorded.replied_at = Some(at);
            recorded.client_left = sent == Sent::ClientLeft;
        }
        log(
            &mut state,
            &json!({"event": "replied", "number": request.number, "at_us": at.as_micros() as u64,
            "client_left": sent == Sent::ClientLeft}),
        );
    }
    shared.touch();
    sent == Sent::Whole
}

/// Requests that are not for a model's turn: the model list, token counting, and mistakes.
async fn answer_aside(connection: &mut Connection, head: &Head, path: &str, shared: &Shared) -> bool {
    let (code, body) = match (head.method.as_str(), path) {
        ("GET", _) if path.ends_with("/models") => (
            200,
            json!({"object": "list", "has_more": false, "data": [
                {"id": "fake-model", "object": "model", "type": "model", "display_name": "Fake model"}]}),
        ),
        ("POST", _) if path.ends_with("/v1/messages/count_tokens") => {
            (200, json!({"input_tokens": head.body.len() / 4}))
        }
        _ => {
            shared.lock().strays.push(head.target.clone());
            (404, render::error(Wire::Anthropic, 404, &format!("no such path: {} {}", head.method, head.target), 0))
        }
    };
    connection.send_whole(code, &json_headers(), body.to_string().as_bytes()).await.is_ok()
}

/// Records the request and takes the reply that is due.
fn decide(mut request: RecordedRequest, shared: &Shared) -> (RecordedRequest, Reply) {
    let mut state = shared.lock();
    request.number = state.requests.len() + 1;
    let refused = refusal(&state, &request);
    if let Some(reason) = &refused {
        let note = format!("request {} was refused: {reason}", request.number);
        state.problems.push(note);
    }
    request.refused = refused.clone();
    state.requests.push(request.clone());
    log_request(&mut state, &request);
    let reply = match refused {
        Some(reason) => Reply::status(400).message(reason),
        None => take_reply(&mut state, &request),
    };
    drop(state);
    // A closure of the test may look at the server: it must not run under the lock.
    let reply = resolve(reply, &request);
    remember_signatures(&reply, &request, shared);
    (request, reply)
}

fn refusal(state: &State, request: &RecordedRequest) -> Option<String> {
    if request.body.is_null() {
        return Some("We could not parse the JSON body of your request.".to_owned());
    }
    let refused = state.script.refused_fields.iter().find(|field| request.body.get(field.as_str()).is_some());
    if let Some(field) = refused {
        return Some(format!("Unrecognized request argument supplied: {field}"));
    }
    state.script.validate.then(|| validate::refusal(request.wire, &request.body, &state.signatures)).flatten()
}

fn take_reply(state: &mut State, request: &RecordedRequest) -> Reply {
    if let Some((_, reply)) = state.script.rules.iter().find(|(matches, _)| matches(request)) {
        return reply.clone();
    }
    if let Some(reply) = state.script.replies.pop_front() {
        return reply;
    }
    state.script.fallback.clone().unwrap_or_else(|| {
        let note = format!("request {} came when the script was used up", request.number);
        state.problems.push(note.clone());
        Reply::status(400).message(note)
    })
}

fn resolve(mut reply: Reply, request: &RecordedRequest) -> Reply {
    while let Content::From(make) = &reply.content {
        reply = make(request);
    }
    reply
}

fn remember_signatures(reply: &Reply, request: &RecordedRequest, shared: &Shared) {
    let Content::Turn(blocks) = &reply.content else { return };
    for block in blocks {
        if let Block::Thinking { signature, .. } = block {
            let mut state = shared.lock();
            state.signatures.entry(signature.clone()).or_default().insert(request.model().to_owned());
        }
    }
}

async fn deliver(connection: &mut Connection, request: &RecordedRequest, reply: &Reply) -> Sent {
    if !connection.pause(reply.delivery.delay_before).await {
        return Sent::ClientLeft;
    }
    if reply.delivery.hang_up {
        return Sent::Cut;
    }
    let asked = Asked {
        number: request.number,
        model: request.model(),
        wire: request.wire,
        include_usage: request.body["stream_options"]["include_usage"] == true,
    };
    let streaming = request.body.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let whole = |sent: std::io::Result<()>| if sent.is_ok() { Sent::Whole } else { Sent::ClientLeft };
    match &reply.content {
        Content::Turn(blocks) if streaming => {
            let body = render::stream(reply, blocks, &asked);
            connection.send_stream(&reply.headers, &body, &reply.delivery).await
        }
        Content::Turn(blocks) => {
            let mut headers = json_headers();
            headers.extend(reply.headers.clone());
            let body = render::whole(reply, blocks, &asked).to_string();
            whole(connection.send_whole(200, &headers, body.as_bytes()).await)
        }
        Content::Raw(body) => connection.send_stream(&reply.headers, body, &reply.delivery).await,
        Content::Status { code, headers, body, message } => {
            let mut all = json_headers();
            all.extend(headers.clone());
            let body = body.clone().unwrap_or_else(|| render::error(request.wire, *code, message, request.number));
            whole(connection.send_whole(*code, &all, body.to_string().as_bytes()).await)
        }
        Content::From(_) => unreachable!("resolved before delivery"),
    }
}

fn log_request(state: &mut State, request: &RecordedRequest) {
    if state.log.is_none() {
        return;
    }
    let line = json!({
        "event": "request",
        "number": request.number,
        "at_us": request.at.as_micros() as u64,
        "wire": match request.wire { Wire::Anthropic => "anthropic", Wire::Chat => "chat" },
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
        "body_bytes": request.body_bytes,
        "refused": request.refused,
        "body": request.body,
    });
    log(state, &line);
}

fn log(state: &mut State, line: &Value) {
    if let Some(file) = &mut state.log {
        // A full disk must not change what the client sees; the reader of the log notices the missing line.
        writeln!(file, "{line}").ok();
    }
}
