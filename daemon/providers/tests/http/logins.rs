//! Logins against an issuer on 127.0.0.1, and requests with the tokens that come of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mcode_config::{Effective, LoginEntry, ModelEntry, ProviderEntry};
use mcode_env::ManualClock;
use mcode_models::{
    LoginDesk as _, LoginError, LoginErrorKind, LoginFlow, LoginStart, LoginStarted, ModelError, ModelErrorKind,
    ModelRegistry as _, Response, Secret, StoredLogin,
};
use mcode_providers::{Auth, AuthParts, Desk, Registry};
use mcode_testkit::oauth_issuer::{ACCOUNT, ACCOUNT_ID, CLIENT_ID, Device, SECRET_MARK};
use mcode_testkit::{ModelServer, OauthIssuer, Reply, Script, Wire};

use super::server::{Act, Server, response};
use super::{ask, words};

mod keys;
mod renewing;

/// Longer than any test waits for what has to happen.
const LONG: Duration = Duration::from_secs(60);
/// The clock of these tests begins here; the issuer's own clock is the machine's.
const LASTS_MS: i64 = 3_600_000;

struct Rig {
    issuer: Arc<OauthIssuer>,
    server: ModelServer,
    folder: tempfile::TempDir,
    config: Arc<Effective>,
    clock: Arc<ManualClock>,
    auth: Arc<Auth>,
}

impl Rig {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A provider `example` that takes the issuer's tokens and nothing else.
    async fn with(change: impl FnOnce(&mut Effective)) -> Self {
        let issuer = Arc::new(OauthIssuer::start());
        let judge = Arc::clone(&issuer);
        let script = Script::new().without_validation().fallback(move |request| {
            let given = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
            if given.is_some_and(|token| judge.takes(token)) {
                Reply::text("ok")
            } else {
                Reply::status(401).message("that token is not good here")
            }
        });
        let server = ModelServer::start(script).await;
        let mut config = Effective::default();
        let provider = ProviderEntry {
            wire: Some("openai-chat".into()),
            base_url: Some(server.base_url(Wire::Chat)),
            models: vec![ModelEntry { id: "m".into(), ..ModelEntry::default() }],
            ..ProviderEntry::default()
        };
        config.providers.insert("example".into(), provider);
        config.logins.insert("example".into(), section(&issuer));
        change(&mut config);
        let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
        let config = Arc::new(config);
        let auth = auth(&folder, &config, &clock);
        Self { issuer, server, folder, config, clock, auth }
    }

    fn desk(&self) -> Desk {
        Desk::new(Arc::clone(&self.auth))
    }

    /// As another process has it: the same folder, and nothing else in common.
    fn other(&self) -> Arc<Auth> {
        auth(&self.folder, &self.config, &self.clock)
    }

    fn registry(&self, auth: &Arc<Auth>) -> Registry {
        let config = Arc::clone(&self.config);
        Registry::new(Arc::new(move || Arc::clone(&config))).with_auth(Arc::clone(auth))
    }

    async fn start(&self, provider: &str, flow: Option<LoginFlow>) -> Result<LoginStarted, LoginError> {
        let start = LoginStart { provider: provider.into(), flow, key: None, env: BTreeMap::new() };
        self.desk().start(start).await
    }

    async fn end(&self, started: &LoginStarted) -> Result<StoredLogin, LoginError> {
        self.desk().complete(&started.login_id, None, LONG).await.map(|stored| stored.expect("it is over in time"))
    }

    /// Opens an address as the user's browser does.
    async fn browse(&self, url: &str) -> String {
        let (issuer, url) = (Arc::clone(&self.issuer), url.to_owned());
        tokio::task::spawn_blocking(move || issuer.browse(&url)).await.unwrap()
    }

    async fn agree(&self, url: &str) -> String {
        let (issuer, url) = (Arc::clone(&self.issuer), url.to_owned());
        tokio::task::spawn_blocking(move || issuer.agree(&url)).await.unwrap()
    }

    /// Logs in to `example` in the browser.
    async fn logged_in(&self) -> StoredLogin {
        let started = self.start("example", None).await.unwrap();
        self.browse(&started.url).await;
        self.end(&started).await.unwrap()
    }

    async fn ask(&self) -> Result<Response, ModelError> {
        self.ask_by(&self.auth).await
    }

    async fn ask_by(&self, auth: &Arc<Auth>) -> Result<Response, ModelError> {
        let model = self.registry(auth).resolve("example/m", &BTreeMap::new())?;
        assert!(model.access.key.is_none() && !format!("{model:?}").contains(SECRET_MARK));
        ask(&model).await
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("auth.json")).unwrap()
    }
}

fn auth(folder: &tempfile::TempDir, config: &Arc<Effective>, clock: &Arc<ManualClock>) -> Arc<Auth> {
    auth_with(folder, config, clock, BTreeMap::new())
}

/// Logins of a daemon with this environment.
fn auth_with(
    folder: &tempfile::TempDir,
    config: &Arc<Effective>,
    clock: &Arc<ManualClock>,
    own_env: BTreeMap<String, String>,
) -> Arc<Auth> {
    let config = Arc::clone(config);
    let mut parts = AuthParts::in_folder(folder.path().to_path_buf(), Arc::new(move || Arc::clone(&config)));
    parts.clock = Arc::clone(clock) as Arc<dyn mcode_env::Clock>;
    parts.own_env = own_env;
    Auth::new(parts)
}

fn section(issuer: &OauthIssuer) -> LoginEntry {
    let url = issuer.url();
    LoginEntry {
        authorize_url: Some(format!("{url}/authorize")),
        token_url: Some(format!("{url}/token")),
        device_url: Some(format!("{url}/device")),
        client_id: Some(CLIENT_ID.into()),
        scopes: Some(vec!["one".into(), "two".into()]),
        ..LoginEntry::default()
    }
}

fn told(error: &LoginError) -> String {
    let text = format!("{error:?} {error}");
    assert!(!text.contains(SECRET_MARK), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_comes_back_and_everybody_who_waits_is_told() {
    let rig = Rig::new().await;
    let started = rig.start("example", None).await.unwrap();
    assert_eq!((started.flow, started.done.is_none()), (LoginFlow::Loopback, true));
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let (desk, id) = (rig.desk(), started.login_id.clone());
            tokio::spawn(async move { desk.complete(&id, None, LONG).await })
        })
        .collect();
    assert!(rig.browse(&started.url).await.contains("close this page"));
    for waiter in waiters {
        let stored = waiter.await.unwrap().unwrap().unwrap();
        assert_eq!((stored.account.as_str(), stored.kind, stored.renewable), (ACCOUNT, "login", true));
    }
    // Whoever asks late is told the same.
    assert_eq!(rig.end(&started).await.unwrap().provider, "example");
    let asked = rig.issuer.asked("/authorize").remove(0);
    assert_eq!(asked.fields["scope"], "one two");
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    assert_eq!(rig.issuer.problems(), Vec::<String>::new());
    let listed = rig.registry(&rig.auth).list(&BTreeMap::new());
    let row = listed.iter().find(|model| model.info.id == "example/m").unwrap();
    assert!(row.usable && row.key_source == format!("login of {ACCOUNT} (auth.json)"), "{}", row.key_source);
    let (first, again) = (rig.desk().logout("example").await.unwrap(), rig.desk().logout("example").await.unwrap());
    assert_eq!((first.removed, first.note.as_str(), again.removed), (true, "", false));
    assert!(!rig.file().contains(SECRET_MARK));
    let error = rig.ask().await.unwrap_err();
    assert_eq!((error.kind, error.hint.as_str()), (ModelErrorKind::Auth, "Log in with: mcode login example"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_has_the_login_taken_back_and_happens_whatever_the_issuer_says() {
    let silent = Server::start(vec![Act::Hang(Vec::new())]).await;
    let at = |place: Option<String>| {
        Rig::with(move |config| {
            let entry = config.logins.get_mut("example").unwrap();
            entry.revoke_url = place.or_else(|| Some(entry.token_url.as_ref().unwrap().replace("/token", "/revoke")));
        })
    };
    let rig = at(None).await;
    rig.logged_in().await;
    let (token, host) = (rig.issuer.access_token(), rig.issuer.url().replace("http://", ""));
    let out = rig.desk().logout("example").await.unwrap();
    assert_eq!((out.removed, out.note), (true, format!("{host} has taken the login back")));
    let asked = rig.issuer.asked("/revoke").remove(0).fields;
    assert_eq!((asked["token_type_hint"].as_str(), asked["client_id"].as_str()), ("refresh_token", CLIENT_ID));
    assert!(!rig.issuer.takes(&token) && !rig.file().contains(SECRET_MARK));
    // One that refuses, is gone or says nothing.
    let places = [(None, "503"), (Some("http://127.0.0.1:1/revoke".to_owned()), "127.0.0.1:1")];
    for (place, words) in places.into_iter().chain([(Some(format!("http://127.0.0.1:{}/", silent.port)), "no answer")])
    {
        let rig = at(place).await;
        rig.issuer.behave(|behaviour| behaviour.refuse = Some((503, "status 503".into())));
        rig.logged_in().await;
        let begun = tokio::time::Instant::now();
        let out = rig.desk().logout("example").await.unwrap();
        assert!(out.removed && out.note.contains("did not take the login back"), "{out:?}");
        assert!(out.note.contains(words) && !out.note.contains(SECRET_MARK), "{out:?}");
        assert!(begun.elapsed() < Duration::from_secs(20) && !rig.file().contains(SECRET_MARK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pasted_codes_are_taken_in_every_form_and_wrong_ones_end_nothing() {
    let rig = Rig::new().await;
    for form in 0..4 {
        let started = rig.start("example", Some(LoginFlow::Paste)).await.unwrap();
        let complete = |code: String| {
            let (desk, id) = (rig.desk(), started.login_id.clone());
            async move { desk.complete(&id, Some(Secret::new(code)), LONG).await }
        };
        let address = rig.agree(&started.url).await;
        let query = address.split_once('?').unwrap().1;
        let code = query.split_once("code=").unwrap().1.split('&').next().unwrap();
        let state = query.split_once("state=").unwrap().1;
        for (wrong, kind) in [
            (format!("{code}#other"), LoginErrorKind::WrongState),
            (format!("code={code}&state="), LoginErrorKind::WrongState),
            (format!("{address}x"), LoginErrorKind::WrongState),
            ("two words".to_owned(), LoginErrorKind::Invalid),
        ] {
            let error = complete(wrong).await.unwrap_err();
            assert_eq!(error.kind, kind);
            told(&error);
        }
        let pasted = [address.clone(), format!("{code}#{state}"), query.to_owned(), code.to_owned()][form].clone();
        assert_eq!(complete(pasted).await.unwrap().unwrap().account, ACCOUNT);
    }
    assert_eq!(rig.issuer.problems(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_waits_as_it_is_told() {
    let rig = Rig::new().await;
    rig.issuer.behave(|behaviour| {
        behaviour.interval = serde_json::json!("1");
        behaviour.device = vec![Device::Pending, Device::SlowDown(Some(2)), Device::Agreed];
    });
    let started = rig.start("example", Some(LoginFlow::Device)).await.unwrap();
    assert_eq!(started.user_code, "ABCD-EFGH");
    assert_eq!(started.url, format!("{}/activate", rig.issuer.url()));
    let error = rig.desk().complete(&started.login_id, Some(Secret::new("ABCD-EFGH")), LONG).await.unwrap_err();
    assert_eq!(error.kind, LoginErrorKind::Invalid, "it takes no code");
    assert_eq!(rig.end(&started).await.unwrap().account, ACCOUNT);
    let polls = rig.issuer.asked("/token");
    assert_eq!(polls.len(), 3);
    assert!(polls[2].at - polls[1].at >= Duration::from_secs(2), "it asks less often when told so");
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_end_of_a_login_has_its_own_kind() {
    let rig = Rig::new().await;
    for (device, kind) in [(Device::Expired, LoginErrorKind::Expired), (Device::Denied, LoginErrorKind::Denied)] {
        rig.issuer.behave(|behaviour| behaviour.device = vec![device]);
        let started = rig.start("example", Some(LoginFlow::Device)).await.unwrap();
        let error = rig.end(&started).await.unwrap_err();
        assert!(error.kind == kind && error.hint.contains("mcode login example"), "{}", told(&error));
    }
    rig.issuer.behave(|behaviour| behaviour.device_lasts = 1);
    let started = rig.start("example", Some(LoginFlow::Device)).await.unwrap();
    assert_eq!(rig.end(&started).await.unwrap_err().kind, LoginErrorKind::Expired, "by our own clock");
    for (word, kind) in [("access_denied", LoginErrorKind::Denied), ("server_error", LoginErrorKind::Provider)] {
        rig.issuer.behave(|behaviour| behaviour.denies = Some(word.into()));
        let started = rig.start("example", None).await.unwrap();
        assert!(rig.browse(&started.url).await.contains("refused"));
        assert_eq!(rig.end(&started).await.unwrap_err().kind, kind);
    }
    rig.issuer.behave(|behaviour| behaviour.denies = None);
    // A code that is not the issuer's.
    let started = rig.start("example", Some(LoginFlow::Paste)).await.unwrap();
    let forged = Some(Secret::new(format!("{SECRET_MARK}-forged")));
    let error = rig.desk().complete(&started.login_id, forged, LONG).await.unwrap_err();
    let host = rig.issuer.url().replace("http://", "");
    assert!(error.kind == LoginErrorKind::Provider && told(&error).contains("invalid_grant"));
    assert!(error.message.contains(&format!("{host} says: the code is not known")), "{error:?}");
    // A page that is none of an issuer.
    let server =
        Server::start(vec![Act::Write(response("502 Bad Gateway", "", "<title>Bad\u{1b}[2J Gateway</title>"))]).await;
    let rig = Rig::with(|config| {
        let token_url = Some(format!("http://127.0.0.1:{}/token", server.port));
        config.logins.get_mut("example").unwrap().token_url = token_url;
    })
    .await;
    let started = rig.start("example", None).await.unwrap();
    rig.browse(&started.url).await;
    let error = rig.end(&started).await.unwrap_err();
    let said = format!("127.0.0.1:{} answers with status 502: Bad", server.port);
    assert!(error.message.contains(&said) && !error.message.contains('\u{1b}'), "{error:?}");
    assert!(rig.desk().list().stored.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_another_state_is_sent_away() {
    let rig = Rig::new().await;
    let started = rig.start("example", None).await.unwrap();
    rig.issuer.behave(|behaviour| behaviour.wrong_state = Some("of-another".into()));
    assert!(rig.browse(&started.url).await.contains("another login"));
    assert_eq!(rig.desk().complete(&started.login_id, None, Duration::ZERO).await.unwrap(), None, "it goes on");
    rig.issuer.behave(|behaviour| behaviour.wrong_state = None);
    rig.browse(&started.url).await;
    assert_eq!(rig.end(&started).await.unwrap().account, ACCOUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_and_replacing_end_all_who_wait() {
    let rig = Rig::new().await;
    let begin = || rig.start("example", None);
    let wait = |started: &LoginStarted| {
        let (desk, id) = (rig.desk(), started.login_id.clone());
        tokio::spawn(async move { desk.complete(&id, None, LONG).await })
    };
    let first = begin().await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| wait(&first)).collect();
    assert!(rig.desk().cancel(&first.login_id));
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap_err().kind, LoginErrorKind::Cancelled);
    }
    assert!(!rig.desk().cancel(&first.login_id) && !rig.desk().cancel("login_nothing"));
    let second = begin().await.unwrap();
    let waiter = wait(&second);
    let third = begin().await.unwrap();
    let replaced = waiter.await.unwrap().unwrap_err();
    assert_eq!(replaced.kind, LoginErrorKind::Cancelled, "a newer one takes its place");
    assert!(replaced.message.contains("another login to 'example' was begun"), "{replaced:?}");
    assert!(rig.desk().cancel(&third.login_id));
    let error = rig.desk().complete("login_nothing", None, LONG).await.unwrap_err();
    assert_eq!(error.kind, LoginErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_daemon_ends_logins_and_says_so() {
    let rig = Rig::new().await;
    let started = rig.start("example", None).await.unwrap();
    let (desk, id) = (rig.desk(), started.login_id.clone());
    let waiter = tokio::spawn(async move { desk.complete(&id, None, LONG).await });
    rig.auth.end_logins();
    for error in [waiter.await.unwrap().unwrap_err(), rig.start("example", None).await.unwrap_err()] {
        assert_eq!(error.kind, LoginErrorKind::Cut);
        assert!(error.message.contains("the daemon ends") && error.hint.contains("mcode login example"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_are_bounded_in_number() {
    let rig = Rig::with(|config| {
        let entry = config.logins["example"].clone();
        config.logins.extend((0..9).map(|number| (format!("p{number}"), entry.clone())));
    })
    .await;
    let mut open = Vec::new();
    let refused = loop {
        match rig.start(&format!("p{}", open.len()), None).await {
            Ok(started) => open.push(started),
            Err(error) => break error,
        }
    };
    assert_eq!((open.len(), refused.kind), (8, LoginErrorKind::TooMany));
    rig.desk().cancel(&open[0].login_id);
    assert_eq!(rig.end(&open[0]).await.unwrap_err().kind, LoginErrorKind::Cancelled);
    assert!(rig.start("p8", None).await.is_ok());
}
