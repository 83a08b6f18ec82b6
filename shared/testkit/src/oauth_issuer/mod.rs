//! An OAuth issuer on 127.0.0.1: it shows the page where a user agrees, hands out codes, and exchanges and rotates
//! tokens as strictly as real ones do. Tests decide how it behaves, look at what it was asked, and stand in for the
//! user's browser.
//!
//! ```no_run
//! use mcode_testkit::OauthIssuer;
//! let issuer = OauthIssuer::start();
//! let page = issuer.browse("http://127.0.0.1:1/authorize?client_id=me&…");
//! assert!(page.contains("close this page"));
//! ```

mod answers;
mod http;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use self::http::get;

/// How long a test waits for something that has to happen.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The only client that it knows.
pub const CLIENT_ID: &str = "client-of-the-test";
/// Whose account it is.
pub const ACCOUNT: &str = "someone@example.org";
/// The id of that account at ChatGPT.
pub const ACCOUNT_ID: &str = "acc-0123";
/// What begins each of its tokens and codes, so that a test can look for them anywhere.
pub const SECRET_MARK: &str = "s3cr3t";

/// One answer to a device that asks whether somebody has typed in its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// Nobody has yet.
    Pending,
    /// It asks too often; the pause that it is told, in seconds.
    SlowDown(Option<u64>),
    /// The code is too old.
    Expired,
    /// Somebody said no.
    Denied,
    /// Somebody said yes.
    Agreed,
}

/// How it behaves.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Seconds that an access token is good for; none is told when missing.
    pub lasts: Option<u64>,
    /// Whether the first answer holds a refresh token.
    pub refreshable: bool,
    /// Whether a renewal gives a new refresh token, and takes the old one back.
    pub rotates: bool,
    /// Whether the refresh token before the last one is still taken, as long as the last one was not used.
    pub lenient: bool,
    /// What every renewal is refused with: status and code.
    pub refuse: Option<(u16, String)>,
    /// What the user does on the page: `None` agrees, else the word that goes back.
    pub denies: Option<String>,
    /// The state that goes back instead of the right one.
    pub wrong_state: Option<String>,
    /// What devices that ask are told, in order; then that nobody has yet.
    pub device: Vec<Device>,
    /// The interval that devices are told, as it stands in JSON.
    pub interval: serde_json::Value,
    /// Seconds that a device's code is good for.
    pub device_lasts: u64,
    /// Renewals are carried out, and their answers held back until [`OauthIssuer::release`].
    pub holds: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            lasts: Some(3600),
            refreshable: true,
            rotates: true,
            lenient: false,
            refuse: None,
            denies: None,
            wrong_state: None,
            device: Vec::new(),
            interval: serde_json::json!(1),
            device_lasts: 600,
            holds: false,
        }
    }
}

/// A request to it, as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The path.
    pub path: String,
    /// The fields of the query, the form or the JSON body.
    pub fields: BTreeMap<String, String>,
    /// Headers; names in lower case.
    pub headers: BTreeMap<String, String>,
    /// When.
    pub at: Instant,
}

/// What stands behind a code.
#[derive(Debug, Clone)]
struct Given {
    challenge: String,
    redirect_uri: String,
}

#[derive(Default)]
struct State {
    behaviour: Behaviour,
    asked: Vec<Asked>,
    codes: BTreeMap<String, Given>,
    /// The access token that is good now, and when it was made.
    access: Option<(String, Instant)>,
    refresh: Option<String>,
    refresh_before: Option<String>,
    count: u64,
    renewals: u32,
    problems: Vec<String>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    address: SocketAddr,
    over: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running issuer; it stops when dropped.
pub struct OauthIssuer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for OauthIssuer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        // Wakes the accepting thread.
        drop(std::net::TcpStream::connect(self.shared.address));
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl OauthIssuer {
    /// Starts on a free port of 127.0.0.1.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of 127.0.0.1 can be bound");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, changed: Condvar::new(), address, over: AtomicBool::new(false) });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if shared.over.load(Ordering::SeqCst) {
                        return;
                    }
                    let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { continue };
                    std::thread::spawn(move || answers::serve(stream, &shared));
                }
            })
        };
        Self { shared, thread: Some(thread) }
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// `[login.NAME]` of a `config.toml` that logs in here.
    #[must_use]
    pub fn section(&self, name: &str) -> String {
        let url = self.url();
        format!(
            "[login.{name}]\nauthorize_url = \"{url}/authorize\"\ntoken_url = \"{url}/token\"\n\
             device_url = \"{url}/device\"\nclient_id = \"{CLIENT_ID}\"\nscopes = [\"all\"]\n"
        )
    }

    /// Changes how it behaves.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.lock().behaviour);
        self.shared.changed.notify_all();
    }

    /// Lets the held answers go.
    pub fn release(&self) {
        self.behave(|behaviour| behaviour.holds = false);
    }

    /// What it was asked on this path.
    #[must_use]
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        self.shared.lock().asked.iter().filter(|asked| asked.path == path).cloned().collect()
    }

    /// How many renewals were carried out.
    #[must_use]
    pub fn renewals(&self) -> u32 {
        self.shared.lock().renewals
    }

    /// Waits until that many renewals were carried out, whether or not they were answered.
    pub fn wait_for_renewals(&self, count: u32) {
        let deadline = Instant::now() + WAIT_MAX;
        let mut state = self.shared.lock();
        while state.renewals < count {
            let left = deadline.checked_duration_since(Instant::now()).expect("a renewal is asked for in time");
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a resource would take this token now.
    #[must_use]
    pub fn takes(&self, token: &str) -> bool {
        let state = self.shared.lock();
        let lasts = state.behaviour.lasts.map(Duration::from_secs);
        state
            .access
            .as_ref()
            .is_some_and(|(good, made)| good == token && lasts.is_none_or(|lasts| made.elapsed() < lasts))
    }

    /// The access token that is good now.
    #[must_use]
    pub fn access_token(&self) -> String {
        self.shared.lock().access.clone().map(|(token, _)| token).unwrap_or_default()
    }

    /// Takes the access token back before its time; it can be renewed.
    pub fn end_access(&self) {
        self.shared.lock().access = None;
    }

    /// Takes everything back, as when the user throws a client out.
    pub fn revoke(&self) {
        let mut state = self.shared.lock();
        state.access = None;
        state.refresh = None;
        state.refresh_before = None;
    }

    /// What was wrong with what it was asked; a good client leaves nothing here.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.shared.lock().problems.clone()
    }

    /// Stands in for the browser: opens the address, agrees (or not), and follows to where that leads. Gives the page
    /// that is shown at the end.
    #[must_use]
    pub fn browse(&self, url: &str) -> String {
        get(&self.agree(url)).1
    }

    /// The same without the last step: gives the address that the browser would go to.
    #[must_use]
    pub fn agree(&self, url: &str) -> String {
        let (head, body) = get(url);
        let location = head.lines().find_map(|line| line.strip_prefix("location: "));
        location.unwrap_or_else(|| panic!("the page leads nowhere: {head}\n{body}")).to_owned()
    }
}
