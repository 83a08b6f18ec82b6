//! Logins that are at work: each is one task with one end, and everybody who waits for it gets that end.
//!
//! The task owns what the login waits with (the listener, the questions to the issuer), so that any number of waiters
//! may come and go. Its end is a value that stays for a while, for those who ask late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mcode_env::{IdGen as _, SystemIds};
use mcode_models::{LoginError, LoginErrorKind, LoginFlow, LoginStarted, Secret, StoredLogin};
use reqwest::{Client, Url};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::codes::{self, Answer, Pkce};
use super::data::LoginData;
use super::desk::{Desk, address_of, network};
use super::device::{self, Ended};
use super::loopback::{self, Loopback};
use super::token::{self, Grant, Refused};
use super::vault::{About, Kind, Login, Tokens};

/// Logins that may be at work at a time.
pub(crate) const AT_WORK_MAX: usize = 8;
/// How long one may take.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(15 * 60);
/// Ended logins that are remembered, for those who wait late.
const ENDED_MAX: usize = 32;
/// Pasted codes on their way to their login.
const CODES_MAX: usize = 4;
/// How long an earlier login of the same provider has to let go of its port.
const LET_GO_WAIT: Duration = Duration::from_secs(2);
/// The longest that one call waits.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(300);

type End = Result<StoredLogin, LoginError>;

/// Who ended a login from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Whoever logs in.
    User,
    /// Somebody who has begun another login of the same provider.
    Newer,
    /// The end of the daemon.
    Daemon,
}

/// Ends a login from outside; the first cause counts.
#[derive(Debug, Clone, Default)]
struct Ending {
    cancel: CancellationToken,
    cause: Arc<OnceLock<Cause>>,
}

impl Ending {
    fn end(&self, cause: Cause) {
        self.cause.get_or_init(|| cause);
        self.cancel.cancel();
    }

    /// Waits until somebody ends it.
    async fn ended(&self) -> Cause {
        self.cancel.cancelled().await;
        self.cause.get().copied().unwrap_or(Cause::User)
    }
}

#[derive(Clone)]
struct One {
    id: String,
    provider: String,
    state: String,
    takes_code: bool,
    ends: watch::Receiver<Option<End>>,
    codes: mpsc::Sender<Answer>,
    ending: Ending,
}

impl One {
    /// Whether it has its end, or will never have one: its task panicked and took the other side of the channel along.
    fn is_over(&self) -> bool {
        self.ends.borrow().is_some() || self.ends.has_changed().is_err()
    }
}

/// All of them, the oldest first.
#[derive(Default)]
pub(super) struct AtWork {
    logins: Mutex<VecDeque<One>>,
    /// The daemon ends: no login begins any more.
    closed: AtomicBool,
}

impl AtWork {
    /// Ends all of them, since the daemon ends; those who wait are told so.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.iter().for_each(|one| one.ending.end(Cause::Daemon));
    }

    fn find(&self, id: &str) -> Option<One> {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.iter().find(|one| one.id == id).cloned()
    }

    /// Takes one in; those that ended long ago make room.
    fn add(&self, one: One) -> Result<(), LoginError> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked behind the lock, so that none begins after `close` has looked who there is.
        if self.closed.load(Ordering::SeqCst) {
            return Err(cut(&one.provider));
        }
        if logins.iter().filter(|one| !one.is_over()).count() >= AT_WORK_MAX {
            return Err(too_many());
        }
        while logins.iter().filter(|one| one.is_over()).count() >= ENDED_MAX {
            let oldest = logins.iter().position(One::is_over);
            oldest.and_then(|at| logins.remove(at));
        }
        logins.push_back(one);
        Ok(())
    }

    /// Whether another one may begin.
    fn check(&self) -> Result<(), LoginError> {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let open = logins.iter().filter(|one| !one.is_over()).count();
        if open >= AT_WORK_MAX { Err(too_many()) } else { Ok(()) }
    }

    /// Ends earlier logins of a provider, which may hold the only port that its issuer knows.
    async fn replace(&self, provider: &str) {
        let earlier: Vec<One> = {
            let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
            logins.iter().filter(|one| one.provider == provider && !one.is_over()).cloned().collect()
        };
        for mut one in earlier {
            one.ending.end(Cause::Newer);
            // One that does not let go in time keeps its port; the next one is tried then.
            let _late = tokio::time::timeout(LET_GO_WAIT, one.ends.wait_for(Option::is_some)).await;
        }
    }

    /// Ends one; false when none of this id is at work.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let Some(one) = self.find(id).filter(|one| !one.is_over()) else { return false };
        one.ending.end(Cause::User);
        true
    }

    pub(super) async fn complete(
        &self,
        id: &str,
        code: Option<Secret>,
        wait: Duration,
    ) -> Result<Option<StoredLogin>, LoginError> {
        let not_found = || {
            LoginError::new(LoginErrorKind::NotFound, format!("no login '{id}' is at work"))
                .with_hint("Begin anew with: mcode login PROVIDER")
        };
        let mut one = self.find(id).ok_or_else(not_found)?;
        if let Some(code) = code.filter(|_| !one.is_over()) {
            hand_in(&one, code.expose())?;
        }
        match tokio::time::timeout(wait.min(WAIT_MAX), one.ends.wait_for(Option::is_some)).await {
            Err(_) => Ok(None),
            Ok(Ok(end)) => end.clone().transpose(),
            // The task ended without a word: it panicked.
            Ok(Err(_)) => Err(LoginError::new(LoginErrorKind::Provider, "the login broke off by a fault of mcode")),
        }
    }
}

/// The end of a login that ends with the daemon.
fn cut(provider: &str) -> LoginError {
    LoginError::new(LoginErrorKind::Cut, format!("the login to '{provider}' was cut: the daemon ends"))
        .with_hint(format!("Begin anew with: mcode login {provider}"))
}

/// A pasted code on its way to its login.
fn hand_in(one: &One, text: &str) -> Result<(), LoginError> {
    let invalid = |message: &str| LoginError::new(LoginErrorKind::Invalid, message.to_owned());
    if !one.takes_code {
        return Err(invalid("this login takes no code: type the one that is shown into the page that was named"));
    }
    let answer = Answer::of_pasted(text).ok_or_else(|| {
        invalid("that is not a code")
            .with_hint("Paste the whole address that the browser shows at the end, or the code.")
    })?;
    // A bare code has none: whoever pastes it has it from the page that they opened.
    if answer.state().is_some_and(|state| state != one.state) {
        return Err(LoginError::new(LoginErrorKind::WrongState, "the code belongs to another login")
            .with_hint("Open the address that was shown last, and paste what it leads to."));
    }
    one.codes.try_send(answer).map_err(|_| invalid("a code was given already"))
}

fn too_many() -> LoginError {
    LoginError::new(LoginErrorKind::TooMany, format!("{AT_WORK_MAX} logins are at work already"))
        .with_hint("Finish or cancel one of them; each ends by itself within 15 minutes.")
}

fn fault(what: &str, error: &dyn std::fmt::Display) -> LoginError {
    LoginError::new(LoginErrorKind::Provider, format!("{what}: {error}"))
}

/// How a login goes on after it was begun.
enum Way {
    Browser { listener: Option<Loopback>, redirect_uri: String, pkce: Pkce },
    Device(device::Begun),
}

/// A login as its task has it.
struct Task {
    desk: Desk,
    client: Client,
    data: LoginData,
    state: String,
    address: Option<String>,
    /// How the client reaches servers.
    network: BTreeMap<String, String>,
}

impl Desk {
    /// Begins a login that somebody has to go on with.
    pub(super) async fn start_flow(
        &self,
        data: LoginData,
        flow: LoginFlow,
        env: &BTreeMap<String, String>,
    ) -> Result<LoginStarted, LoginError> {
        let at_work = &self.0.at_work;
        at_work.replace(&data.provider).await;
        at_work.check()?;
        let network = network(env);
        let client = self.0.clients.client(&network);
        let client =
            client.map_err(|error| LoginError::new(LoginErrorKind::Provider, error.message).with_hint(error.hint))?;
        let state = codes::state().map_err(|error| fault("no random number could be had", &error))?;
        let address = address_of(&data.provider, env);
        let task = Task { desk: self.clone(), client, address, data, state, network };
        let (way, url, user_code, lasts) = task.begin(flow).await?;
        let lasts = lasts.unwrap_or(AGE_MAX).min(AGE_MAX);
        let instructions = instructions(flow, &way, &url);
        let (end, ends) = watch::channel(None);
        let (codes, given) = mpsc::channel(CODES_MAX);
        let one = One {
            id: format!("login_{}", SystemIds.next().simple()),
            provider: task.data.provider.clone(),
            state: task.state.clone(),
            takes_code: matches!(way, Way::Browser { .. }),
            ends,
            codes,
            ending: Ending::default(),
        };
        let (login_id, ending) = (one.id.clone(), one.ending.clone());
        at_work.add(one)?;
        let expires_at_ms = self.keeper().now_ms() + i64::try_from(lasts.as_millis()).unwrap_or_default();
        tokio::spawn(async move {
            let outcome = task.work(way, given, ending, lasts).await;
            // Nobody may be waiting.
            end.send_replace(Some(outcome));
        });
        Ok(LoginStarted { login_id, flow, url, user_code, expires_at_ms, instructions, done: None })
    }
}

fn instructions(flow: LoginFlow, way: &Way, url: &str) -> String {
    match (flow, way) {
        (LoginFlow::Device, Way::Device(begun)) => {
            format!("Open {url} on any device and type in the code {}.", begun.user_code)
        }
        (LoginFlow::Paste, _) => {
            "Open the address in a browser and agree; then paste the address that it ends at, or the code that it shows."
                .to_owned()
        }
        _ => "Open the address in a browser on this machine and agree. If the browser is elsewhere, paste the address \
              that it ends at."
            .to_owned(),
    }
}

impl Task {
    async fn begin(&self, flow: LoginFlow) -> Result<(Way, String, String, Option<Duration>), LoginError> {
        if flow == LoginFlow::Device {
            let begun = device::begin(&self.client, &self.data).await.map_err(|refused| self.refused(&refused))?;
            let (url, code, lasts) = (begun.url.clone(), begun.user_code.clone(), begun.lasts);
            return Ok((Way::Device(begun), url, code, lasts));
        }
        let redirect = &self.data.redirect;
        let listener = match flow {
            LoginFlow::Loopback => Some(Loopback::bind(redirect).await.map_err(|error| {
                fault("the browser could not be waited for", &error)
                    .with_hint(format!("Log in with a pasted code: mcode login {} --paste", self.data.provider))
            })?),
            _ => None,
        };
        let port = redirect.ports.first().copied().unwrap_or(0);
        let redirect_uri =
            listener.as_ref().map_or_else(|| loopback::uri(redirect, port), |listener| listener.redirect_uri.clone());
        let pkce = Pkce::new().map_err(|error| fault("no random number could be had", &error))?;
        let url = self.address(&redirect_uri, &pkce)?;
        Ok((Way::Browser { listener, redirect_uri, pkce }, url, String::new(), None))
    }

    /// What the user opens.
    fn address(&self, redirect_uri: &str, pkce: &Pkce) -> Result<String, LoginError> {
        let authorize = self.data.authorize_url.as_deref().unwrap_or_default();
        let mut url = Url::parse(authorize).map_err(|error| fault("authorize_url is no address", &error))?;
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("response_type", "code");
            query.append_pair("client_id", &self.data.client_id);
            query.append_pair("redirect_uri", redirect_uri);
            if !self.data.scopes.is_empty() {
                query.append_pair("scope", &self.data.scopes.join(" "));
            }
            query.append_pair("code_challenge", &pkce.challenge);
            query.append_pair("code_challenge_method", "S256");
            query.append_pair("state", &self.state);
            for (name, value) in &self.data.query {
                query.append_pair(name, value);
            }
        }
        Ok(url.into())
    }

    /// Waits for what the user does, and stores what comes of it.
    async fn work(&self, way: Way, codes: mpsc::Receiver<Answer>, ending: Ending, lasts: Duration) -> End {
        let provider = &self.data.provider;
        let granted = tokio::select! {
            biased;
            cause = ending.ended() => Err(self.called_off(cause)),
            granted = self.granted(way, codes) => granted,
            () = tokio::time::sleep(lasts) => Err(self.expired()),
        };
        // From here on nothing calls it off: the issuer has given its tokens.
        let grant = granted.inspect_err(|error| tracing::info!(provider, %error, "a login did not come to be"))?;
        let about = About {
            account: grant.claims.account.unwrap_or_default(),
            account_id: grant.claims.chatgpt_account_id,
            expires_at_ms: grant.expires_at_ms,
            renewable: grant.refresh.is_some(),
            address: self.address.clone(),
            ..self.desk.fresh(Kind::Login)
        };
        let refresh = grant.refresh.map(|token| token.expose().to_owned());
        let tokens = Tokens { access: grant.access.expose().to_owned(), refresh };
        self.desk.0.keep(provider, Login { about, tokens }, self.network.clone()).await
    }

    async fn granted(&self, way: Way, mut codes: mpsc::Receiver<Answer>) -> Result<Grant, LoginError> {
        let keeper = self.desk.keeper();
        match way {
            Way::Device(begun) => {
                // Nobody gives a code, and the channel stays open for as long as the login is known.
                let waited = device::wait(&self.client, &self.data, &begun, || keeper.now_ms()).await;
                waited.map_err(|ended| match ended {
                    Ended::Expired => self.expired(),
                    Ended::Denied => self.denied(),
                    Ended::Refused(refused) => self.refused(&refused),
                })
            }
            Way::Browser { listener, redirect_uri, pkce } => {
                let came_back = async {
                    match &listener {
                        Some(listener) => listener.answer(&self.state).await,
                        None => std::future::pending().await,
                    }
                };
                let answer = tokio::select! {
                    answer = came_back => answer,
                    Some(answer) = codes.recv() => answer,
                };
                drop(listener);
                match answer {
                    Answer::Refused { error, .. } if error == "access_denied" => Err(self.denied()),
                    Answer::Refused { error, description, .. } => {
                        let host = token::host_of(self.data.authorize_url.as_deref().unwrap_or_default());
                        let (code, words) = (token::cleaned(&error, &[]), token::cleaned(&description, &[]));
                        Err(self.refused(&Refused::Said { host, code, words, interval: None, status: 400 }))
                    }
                    Answer::Code { code, .. } => {
                        let now = keeper.now_ms();
                        token::exchange(&self.client, &self.data, &code, &pkce.verifier, &redirect_uri, now)
                            .await
                            .map_err(|refused| self.refused(&refused))
                    }
                }
            }
        }
    }

    fn called_off(&self, cause: Cause) -> LoginError {
        let provider = &self.data.provider;
        let cancelled = |message: String| LoginError::new(LoginErrorKind::Cancelled, message);
        match cause {
            Cause::User => cancelled(format!("the login to '{provider}' was cancelled")),
            Cause::Newer => cancelled(format!("another login to '{provider}' was begun, which ended this one"))
                .with_hint("Go on where that one was begun: of each provider one login is at work at a time."),
            Cause::Daemon => cut(provider),
        }
    }

    fn again(&self) -> String {
        format!("Begin anew with: mcode login {}", self.data.provider)
    }

    fn expired(&self) -> LoginError {
        let message = format!("the time for the login to '{}' ran out", self.data.provider);
        LoginError::new(LoginErrorKind::Expired, message).with_hint(self.again())
    }

    fn denied(&self) -> LoginError {
        let message = format!("the login to '{}' was refused in the browser", self.data.provider);
        LoginError::new(LoginErrorKind::Denied, message).with_hint(self.again())
    }

    fn refused(&self, refused: &Refused) -> LoginError {
        let provider = &self.data.provider;
        fault(&format!("the issuer of '{provider}' gives no login"), &refused.told()).with_hint(refused.hint(provider))
    }
}

#[cfg(test)]
mod tests;
