//! Issuers that take their time, and tokens that live shortly.

use mcode_config::{Effective, LoginEntry};
use mcode_env::ManualClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::*;

const HOUR_MS: i64 = 3_600_000;

/// An issuer that answers each request with new tokens, once it is let.
struct SlowIssuer {
    url: String,
    host: String,
    asked: Arc<Mutex<u32>>,
    may_answer: Arc<Semaphore>,
}

impl SlowIssuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (asked, may_answer) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(0)));
        let (count, gate) = (Arc::clone(&asked), Arc::clone(&may_answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let gate = Arc::clone(&gate);
                tokio::spawn(async move {
                    let mut piece = [0u8; 4096];
                    let _read = stream.read(&mut piece).await;
                    gate.acquire().await.unwrap().forget();
                    let body = r#"{"access_token":"new","refresh_token":"R2","expires_in":3600}"#;
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                    let _gone = stream.write_all(format!("{head}{body}").as_bytes()).await;
                });
            }
        });
        Self { url: format!("http://{host}"), host, asked, may_answer }
    }

    fn asked(&self) -> u32 {
        *self.asked.lock().unwrap()
    }
}

struct Rig {
    _folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    issuer: SlowIssuer,
    keeper: Arc<Keeper>,
}

impl Rig {
    /// A login of one hour that ends `left_ms` from now, and requests that wait shortly.
    async fn new(left_ms: i64) -> Self {
        let (folder, clock, issuer) =
            (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()), SlowIssuer::start().await);
        let vault = Vault::new(folder.path().to_path_buf(), false);
        let mut keeper =
            Keeper::new(vault, Arc::new(HttpClients::new()), Arc::clone(&clock) as Arc<dyn Clock>, BTreeMap::new());
        keeper.wait = Duration::from_millis(200);
        let ends = keeper.now_ms() + left_ms;
        let about = About {
            kind: Kind::Login,
            account: String::new(),
            account_id: None,
            expires_at_ms: Some(ends),
            saved_at_ms: ends - HOUR_MS,
            renewable: true,
            address: None,
            stamp: String::new(),
            in_keyring: false,
        };
        let tokens = Tokens { access: "old".into(), refresh: Some("R1".into()) };
        keeper.vault.save("example", &Login { about, tokens }).await.unwrap();
        Self { _folder: folder, clock, issuer, keeper: Arc::new(keeper) }
    }

    fn wanted(&self) -> Wanted {
        let entry = LoginEntry {
            authorize_url: Some(format!("{}/authorize", self.issuer.url)),
            token_url: Some(format!("{}/token", self.issuer.url)),
            client_id: Some("me".into()),
            ..LoginEntry::default()
        };
        let config = Effective { logins: BTreeMap::from([("example".to_owned(), entry)]), ..Effective::default() };
        let data = crate::auth::data::find("example", &config).unwrap();
        Wanted { data, provider: "example".into(), refused: None }
    }

    async fn give(&self) -> Result<String, ModelError> {
        self.keeper.give(self.wanted()).await.map(|given| given.key.expose().to_owned())
    }
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_holds_up_all_together_once_and_for_a_bounded_time() {
    let rig = Rig::new(0).await;
    for outcome in futures::future::join_all((0..20).map(|_| rig.give())).await {
        let error = outcome.unwrap_err();
        assert!(error.is_retryable() && error.message.contains(&rig.issuer.host), "{error:?}");
    }
    assert_eq!(rig.issuer.asked(), 1);
    // Whoever comes now does not wait at all, and is told when it is worth asking again.
    let error = futures::FutureExt::now_or_never(Box::pin(async { rig.give().await })).unwrap().unwrap_err();
    assert!(error.is_retryable() && error.retry_after.is_some(), "{error:?}");
    // What it gives in the end is kept: it has taken the old pair back.
    rig.issuer.may_answer.add_permits(1);
    rig.keeper.settle().await;
    assert_eq!(rig.give().await.unwrap(), "new");
    assert_eq!(rig.issuer.asked(), 1);
}

#[tokio::test]
async fn a_token_that_is_still_good_is_used_while_its_issuer_does_not_answer() {
    let rig = Rig::new(60_000).await;
    assert_eq!(rig.give().await.unwrap(), "old");
    let at_once = futures::FutureExt::now_or_never(Box::pin(async { rig.give().await }));
    assert_eq!(at_once.unwrap().unwrap(), "old");
    assert_eq!(rig.issuer.asked(), 1);
    rig.clock.advance_millis(60_000);
    rig.issuer.may_answer.add_permits(1);
    rig.keeper.settle().await;
    assert_eq!(rig.give().await.unwrap(), "new");
}

#[test]
fn a_token_is_renewed_some_minutes_before_its_end_or_in_the_last_quarter_of_a_short_life() {
    for (lives_ms, before_ms) in [(HOUR_MS, BEFORE_END_MS), (20 * 60_000, BEFORE_END_MS), (240_000, 60_000), (-1, 0)] {
        assert_eq!(before_end_ms(lives_ms), before_ms, "{lives_ms}");
    }
}
