//! The server itself: accepts, records, validates, answers from the script.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::answering::accept;
use super::given::Given;
use super::recorded::{RecordedRequest, Wire};
use super::reply::{Reply, Usage};
use super::script::Script;

/// How long a test waits for something that has to happen.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct State {
    pub(super) script: Script,
    pub(super) requests: Vec<RecordedRequest>,
    pub(super) given: Given,
    pub(super) open: usize,
    pub(super) problems: Vec<String>,
    pub(super) log: Option<File>,
    /// Paths that no wire has.
    pub(super) strays: Vec<String>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) started: Instant,
    /// Counts changes, for waiters on a runtime …
    changed: watch::Sender<u64>,
    /// … and for those without one.
    changes: Mutex<u64>,
    woken: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn touch(&self) {
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
        let mut given = Given::default();
        for (signature, model) in &script.signatures {
            given.trust(signature, model);
        }
        let state =
            State { script, requests: Vec::new(), given, open: 0, problems: Vec::new(), log, strays: Vec::new() };
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

    /// The base URL in the form that the wire's users configure: with `/v1` for OpenAI's wires, with `/v1beta` for
    /// Gemini, without a path for the others.
    #[must_use]
    pub fn base_url(&self, wire: Wire) -> String {
        format!("http://{}{}", self.address, wire.base_path())
    }

    /// The sum of the tokens that the replies told of, also those that were cut or failed.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let told = self.requests().into_iter().filter_map(|request| request.usage);
        told.fold(Usage { input: 0, output: 0, ..Usage::default() }, |sum, more| Usage {
            input: sum.input + more.input,
            cache_read: sum.cache_read + more.cache_read,
            cache_write: sum.cache_write + more.cache_write,
            output: sum.output + more.output,
            reasoning: sum.reasoning + more.reasoning,
        })
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
