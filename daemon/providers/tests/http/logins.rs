//! Logins against an issuer on 127.0.0.1, and requests with the tokens that come of them.

use std::collections::{BTreeMap, BTreeSet};
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

use super::{ask, words};

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
    assert!(rig.desk().logout("example").await.unwrap() && !rig.desk().logout("example").await.unwrap());
    assert!(!rig.file().contains(SECRET_MARK));
    let error = rig.ask().await.unwrap_err();
    assert_eq!((error.kind, error.hint.as_str()), (ModelErrorKind::Auth, "Log in with: mcode login example"));
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
    assert!(error.kind == LoginErrorKind::Provider && told(&error).contains("invalid_grant"));
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
    assert_eq!(waiter.await.unwrap().unwrap_err().kind, LoginErrorKind::Cancelled, "a newer one takes its place");
    assert!(rig.desk().cancel(&third.login_id));
    let error = rig.desk().complete("login_nothing", None, LONG).await.unwrap_err();
    assert_eq!(error.kind, LoginErrorKind::NotFound);
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

#[tokio::test(flavor = "multi_thread")]
async fn twenty_that_renew_at_once_make_one_request() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    // Five minutes before its end it is renewed, by two processes of ten threads each.
    rig.clock.advance_millis(LASTS_MS - 299_000);
    let (here, there) = (Arc::clone(&rig.auth), rig.other());
    let asking = (0..20).map(|number| {
        let auth = if number % 2 == 0 { &here } else { &there };
        let model = rig.registry(auth).resolve("example/m", &BTreeMap::new()).unwrap();
        tokio::spawn(async move { ask(&model).await })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(words(&asked.await.unwrap().unwrap()), "ok");
    }
    assert_eq!(rig.issuer.renewals(), 1);
    let tokens: BTreeSet<String> =
        rig.server.requests().iter().map(|request| request.headers["authorization"].clone()).collect();
    assert_eq!(tokens.len(), 1, "nobody used the old one");
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_pairs_are_kept_and_old_ones_where_none_comes() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    for round in 1..=3 {
        rig.clock.advance_millis(LASTS_MS);
        assert_eq!(words(&rig.ask().await.unwrap()), "ok");
        assert_eq!(rig.issuer.renewals(), round);
    }
    rig.issuer.behave(|behaviour| behaviour.rotates = false);
    for round in 4..=5 {
        rig.clock.advance_millis(LASTS_MS);
        assert_eq!(words(&rig.ask().await.unwrap()), "ok");
        assert_eq!(rig.issuer.renewals(), round);
    }
    assert_eq!(words(&rig.ask_by(&rig.other()).await.unwrap()), "ok", "the next daemon goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_is_renewed_once() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.issuer.end_access();
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    assert_eq!((rig.issuer.renewals(), rig.server.requests().len()), (1, 2));
    // Another process has renewed meanwhile: its token is taken, and the issuer is not asked.
    let other = rig.other();
    assert_eq!(words(&rig.ask_by(&other).await.unwrap()), "ok");
    rig.issuer.end_access();
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    assert_eq!(words(&rig.ask_by(&other).await.unwrap()), "ok");
    assert_eq!(rig.issuer.renewals(), 2);
    // A resource that takes no token at all is asked twice, and no more.
    let before = rig.server.requests().len();
    rig.issuer.behave(|behaviour| behaviour.lasts = Some(0));
    let error = rig.ask().await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Auth && error.hint.contains("mcode login example"), "{error:?}");
    assert_eq!(rig.server.requests().len() - before, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_at_its_end_says_so_and_asks_nobody_again() {
    for (code, status, kind) in [
        ("invalid_grant", 400, ModelErrorKind::LoginRevoked),
        ("refresh_token_reused", 401, ModelErrorKind::LoginRevoked),
        ("refresh_token_expired", 401, ModelErrorKind::LoginExpired),
    ] {
        let rig = Rig::new().await;
        rig.logged_in().await;
        rig.issuer.behave(|behaviour| behaviour.refuse = Some((status, code.into())));
        rig.clock.advance_millis(LASTS_MS);
        let before = rig.issuer.asked("/token").len();
        for _ in 0..3 {
            let error = rig.ask().await.unwrap_err();
            assert_eq!(error.kind, kind, "{error:?}");
            assert!(error.message.contains(code) && error.hint.contains("mcode login example"), "{error:?}");
            assert!(!format!("{error:?}").contains(SECRET_MARK));
        }
        assert_eq!(rig.issuer.asked("/token").len() - before, 1, "it is not asked again");
        let listed = rig.desk().list();
        assert!(listed.stored[0].problem.contains("example"), "{listed:?}");
        // A new login makes it good.
        rig.issuer.behave(|behaviour| behaviour.refuse = None);
        rig.logged_in().await;
        assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_refresh_token_a_login_ends_with_its_time() {
    let rig = Rig::new().await;
    rig.issuer.behave(|behaviour| behaviour.refreshable = false);
    assert!(!rig.logged_in().await.renewable);
    rig.clock.advance_millis(LASTS_MS - 60_000);
    assert_eq!(words(&rig.ask().await.unwrap()), "ok", "its last minutes are used");
    rig.clock.advance_millis(60_000);
    assert_eq!(rig.ask().await.unwrap_err().kind, ModelErrorKind::LoginExpired);
    assert_eq!(rig.issuer.renewals(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_out_of_order_hinders_no_token_that_is_good() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.issuer.behave(|behaviour| behaviour.refuse = Some((503, "temporarily_unavailable".into())));
    rig.clock.advance_millis(LASTS_MS - 60_000);
    let before = rig.issuer.asked("/token").len();
    for _ in 0..3 {
        assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    }
    assert_eq!(rig.issuer.asked("/token").len() - before, 1, "it is left alone for a while");
    rig.clock.advance_millis(60_000);
    let error = rig.ask().await.unwrap_err();
    assert!(error.is_retryable() && error.kind == ModelErrorKind::Server, "{error:?}");
    rig.issuer.behave(|behaviour| behaviour.refuse = None);
    rig.clock.advance_millis(30_000);
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_whose_asker_leaves_is_saved_all_the_same() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.clock.advance_millis(LASTS_MS);
    rig.issuer.behave(|behaviour| behaviour.holds = true);
    let model = rig.registry(&rig.auth).resolve("example/m", &BTreeMap::new()).unwrap();
    let asking = tokio::spawn(async move { ask(&model).await });
    let issuer = Arc::clone(&rig.issuer);
    tokio::task::spawn_blocking(move || issuer.wait_for_renewals(1)).await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    rig.issuer.release();
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    assert_eq!(rig.issuer.renewals(), 1);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_can_not_be_saved_is_not_lost() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.clock.advance_millis(LASTS_MS);
    rig.issuer.behave(|behaviour| behaviour.holds = true);
    let model = rig.registry(&rig.auth).resolve("example/m", &BTreeMap::new()).unwrap();
    let asking = tokio::spawn(async move { ask(&model).await });
    let issuer = Arc::clone(&rig.issuer);
    tokio::task::spawn_blocking(move || issuer.wait_for_renewals(1)).await.unwrap();
    // A file that is damaged meanwhile is not written over, by nobody.
    let good = rig.file();
    std::fs::write(rig.folder.path().join("auth.json"), "{\"damaged").unwrap();
    rig.issuer.release();
    let error = asking.await.unwrap().unwrap_err();
    assert!(error.message.contains("auth.json") && !format!("{error:?}").contains(SECRET_MARK), "{error:?}");
    assert_eq!(rig.file(), "{\"damaged");
    std::fs::write(rig.folder.path().join("auth.json"), good).unwrap();
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    assert_eq!(rig.issuer.renewals(), 1, "the pair that was given is used, and no other asked for");
    assert_eq!(words(&rig.ask_by(&rig.other()).await.unwrap()), "ok");
}

/// ChatGPT's own way: its account goes along, and its backend is spoken to in its own way.
#[tokio::test(flavor = "multi_thread")]
async fn a_chatgpt_login_leads_to_its_own_backend() {
    let seen: Arc<std::sync::Mutex<Vec<mcode_testkit::RecordedRequest>>> = Arc::default();
    let log = Arc::clone(&seen);
    let script = Script::new().without_validation().fallback(move |request| {
        log.lock().unwrap().push(request.clone());
        Reply::text("ok")
    });
    let server = ModelServer::start(script).await;
    let backend = format!("http://{}/backend-api/codex", server.address());
    let rig = Rig::with(|config| {
        config
            .providers
            .insert("openai".into(), ProviderEntry { base_url: Some(backend.clone()), ..ProviderEntry::default() });
        let issuer = config.logins["example"].clone();
        let device = issuer.device_url.as_ref().map(|url| url.replace("/device", "/api/accounts/deviceauth/usercode"));
        // A free port, since the usual one may be taken on the machine of a test.
        let redirect = Some("http://localhost/auth/callback".into());
        config.logins.insert("openai".into(), LoginEntry { device_url: device, redirect, ..issuer });
    })
    .await;
    rig.issuer.behave(|behaviour| behaviour.device = vec![Device::Pending, Device::Agreed]);
    let by_device = rig.start("codex", Some(LoginFlow::Device)).await.unwrap();
    assert_eq!(by_device.url, format!("{}/codex/device", rig.issuer.url()));
    assert_eq!(rig.end(&by_device).await.unwrap().provider, "openai");
    let in_browser = rig.start("chatgpt", None).await.unwrap();
    rig.browse(&in_browser.url).await;
    assert_eq!(rig.end(&in_browser).await.unwrap().account, ACCOUNT);
    let asked = rig.issuer.asked("/authorize").remove(0);
    assert_eq!(
        (asked.fields["originator"].as_str(), asked.fields["codex_cli_simplified_flow"].as_str()),
        ("mcode", "true")
    );
    // It comes before a key of the environment.
    let env = BTreeMap::from([("OPENAI_API_KEY".to_owned(), "sk-of-the-environment".to_owned())]);
    let model = rig.registry(&rig.auth).resolve("openai/gpt-5.5", &env).unwrap();
    assert_eq!(
        (model.access.wire, model.access.base_url.as_str()),
        (mcode_models::Wire::OpenaiResponses, backend.as_str())
    );
    assert_eq!(words(&ask(&model).await.unwrap()), "ok");
    let request = seen.lock().unwrap().pop().unwrap();
    assert_eq!(request.path, "/backend-api/codex/responses");
    assert_eq!(request.headers["authorization"], format!("Bearer {}", rig.issuer.access_token()));
    assert_eq!(
        (request.headers["chatgpt-account-id"].as_str(), request.headers["originator"].as_str()),
        (ACCOUNT_ID, "mcode")
    );
    assert_eq!((&request.body["store"], request.body.get("max_output_tokens")), (&serde_json::json!(false), None));
    // What the subscription does not have needs the key; what is not for this address is not sent there.
    let other = rig.registry(&rig.auth).resolve("openai/gpt-4.1", &env).unwrap().access;
    assert_eq!(other.key.unwrap().expose(), "sk-of-the-environment");
    let error = rig.registry(&rig.auth).resolve("openai/gpt-4.1", &BTreeMap::new()).unwrap_err();
    assert!(error.message.contains("does not have this model"), "{error:?}");
    let elsewhere =
        BTreeMap::from([("OPENAI_BASE_URL".to_owned(), "https://evil.example/backend-api/codex".to_owned())]);
    let error = rig.registry(&rig.auth).resolve("openai/gpt-5.5", &elsewhere).unwrap_err();
    assert!(error.message.contains("its own address only"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copilot_login_is_exchanged_for_short_lived_keys() {
    let rig = Rig::with(|config| {
        let issuer = config.logins["example"].clone();
        let flow = Some("device".into());
        config.logins.insert("github-copilot".into(), LoginEntry { authorize_url: None, flow, ..issuer });
        let base_url = config.providers["example"].base_url.clone();
        config.providers.insert("github-copilot".into(), ProviderEntry { base_url, ..ProviderEntry::default() });
    })
    .await;
    rig.issuer.behave(|behaviour| {
        behaviour.lasts = None;
        behaviour.refreshable = false;
        behaviour.device = vec![Device::Agreed];
    });
    let started = rig.start("copilot", None).await.unwrap();
    assert_eq!(rig.end(&started).await.unwrap().provider, "github-copilot");
    let model = rig.registry(&rig.auth).resolve("github-copilot/gpt-4.1", &BTreeMap::new()).unwrap();
    // The server takes the issuer's own tokens only, so the exchanged one is refused, exchanged once more, and refused.
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Auth);
    let requests = rig.server.requests();
    let keys: Vec<&str> = requests.iter().map(|request| request.headers["authorization"].as_str()).collect();
    assert!(keys.len() == 2 && keys[0].contains("copilot-1") && keys[1].contains("copilot-2"), "{keys:?}");
    assert_eq!(
        (requests[0].headers["x-initiator"].as_str(), requests[0].headers["copilot-integration-id"].as_str()),
        ("user", "mcode")
    );
    rig.issuer.revoke();
    let error = ask(&model).await.unwrap_err();
    assert!(
        error.kind == ModelErrorKind::LoginRevoked && error.hint.contains("mcode login github-copilot"),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_the_configuration_gives_a_key_and_is_asked_again_when_it_is_refused() {
    let issuer = Arc::new(OauthIssuer::start());
    let script = Script::new().without_validation().fallback(|request| {
        let good = request.headers.get("authorization").is_some_and(|key| key == "Bearer key-3");
        if good { Reply::text("ok") } else { Reply::status(401).message("wrong key") }
    });
    let server = ModelServer::start(script).await;
    let entry = ProviderEntry {
        base_url: Some(server.base_url(Wire::Chat)),
        api_key: Some("command:give me SECRET-WORDS".into()),
        ..ProviderEntry::default()
    };
    let config = Effective { providers: BTreeMap::from([("mine".to_owned(), entry)]), ..Effective::default() };
    let config = Arc::new(config);
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let folder = tempfile::tempdir().unwrap();
    let source: Arc<dyn Fn() -> Arc<Effective> + Send + Sync> = Arc::new({
        let config = Arc::clone(&config);
        move || Arc::clone(&config)
    });
    let mut parts = AuthParts::in_folder(folder.path().to_path_buf(), Arc::clone(&source));
    let runs = Arc::clone(&count);
    parts.run_command = Arc::new(move |command| {
        assert_eq!(command, "give me SECRET-WORDS");
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        let given =
            if run == 4 { Err("the command ended with status 1".to_owned()) } else { Ok(format!("key-{run}\n")) };
        Box::pin(std::future::ready(given))
    });
    let registry = Registry::new(source).with_auth(Auth::new(parts));
    let model = registry.resolve("mine/m", &BTreeMap::new()).unwrap();
    assert!(!format!("{model:?}").contains("SECRET-WORDS"));
    // key-1 is refused, key-2 as well; the next request has key-3, which stays.
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Auth);
    for _ in 0..3 {
        assert_eq!(words(&ask(&model).await.unwrap()), "ok");
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3);
    drop(issuer);
}
