//! How logins are renewed: through whose network, how often, and until when.

use std::collections::BTreeSet;

use super::*;

/// A proxy that nothing listens at.
fn dead_proxy() -> BTreeMap<String, String> {
    BTreeMap::from([("HTTP_PROXY".to_owned(), "http://127.0.0.1:1".to_owned())])
}

/// The key of a request whose client has this environment.
async fn key(rig: &Rig, auth: &Arc<Auth>, env: &BTreeMap<String, String>) -> Result<Secret, ModelError> {
    let access = rig.registry(auth).resolve("example/m", env)?.access;
    let given = access.key_source.unwrap().give(None).await?;
    Ok(given.key)
}

/// A rig whose login is being renewed for somebody who asks: the issuer has the request, and holds its answer back.
async fn renewing() -> (Rig, tokio::task::JoinHandle<Result<Response, ModelError>>) {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.clock.advance_millis(LASTS_MS);
    rig.issuer.behave(|behaviour| behaviour.holds = true);
    let model = rig.registry(&rig.auth).resolve("example/m", &BTreeMap::new()).unwrap();
    let asking = tokio::spawn(async move { ask(&model).await });
    let issuer = Arc::clone(&rig.issuer);
    tokio::task::spawn_blocking(move || issuer.wait_for_renewals(1)).await.unwrap();
    (rig, asking)
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_renewed_through_the_network_of_whoever_logged_in_and_never_of_whoever_asks() {
    let mut rig = Rig::new().await;
    rig.auth = auth_with(&rig.folder, &rig.config, &rig.clock, dead_proxy());
    rig.logged_in().await;
    for (round, env) in [dead_proxy(), BTreeMap::new()].iter().enumerate() {
        rig.clock.advance_millis(LASTS_MS);
        let given = key(&rig, &rig.auth, env).await.unwrap();
        assert_eq!(given.expose(), rig.issuer.access_token());
        assert_eq!(rig.issuer.renewals() as usize, round + 1);
    }
    // The next daemon knows of no terminal that logged in and goes by its own environment, whatever the client's says.
    rig.clock.advance_millis(LASTS_MS);
    let next = auth_with(&rig.folder, &rig.config, &rig.clock, dead_proxy());
    let error = key(&rig, &next, &BTreeMap::new()).await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Transport && error.message.contains("'example'"), "{error:?}");
    key(&rig, &rig.other(), &dead_proxy()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_lives_shortly_is_not_renewed_before_every_request() {
    let rig = Rig::new().await;
    rig.issuer.behave(|behaviour| behaviour.lasts = Some(240));
    rig.logged_in().await;
    for (later_ms, renewals) in [(0, 0), (179_000, 0), (2_000, 1), (1_000, 1)] {
        rig.clock.advance_millis(later_ms);
        assert_eq!(words(&rig.ask().await.unwrap()), "ok");
        assert_eq!(rig.issuer.renewals(), renewals, "{later_ms}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_out_of_order_hinders_no_token_that_is_good_and_is_left_alone_for_a_while() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.issuer.behave(|behaviour| behaviour.refuse = Some((503, "temporarily_unavailable".into())));
    rig.clock.advance_millis(LASTS_MS - 60_000);
    let before = rig.issuer.asked("/token").len();
    for _ in 0..3 {
        assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    }
    assert_eq!(rig.issuer.asked("/token").len() - before, 1);
    // Its time is over: all who wait are told so by one question.
    rig.clock.advance_millis(60_000);
    let none = BTreeMap::new();
    for asked in futures::future::join_all((0..20).map(|_| key(&rig, &rig.auth, &none))).await {
        let error = asked.unwrap_err();
        assert!(error.is_retryable() && error.kind == ModelErrorKind::Server, "{error:?}");
        assert!(error.message.contains("temporarily_unavailable"), "{error:?}");
    }
    assert_eq!(rig.issuer.asked("/token").len() - before, 2);
    // The pause after which it is worth asking again is told.
    let error = key(&rig, &rig.auth, &none).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
    rig.clock.advance_millis(30_000);
    key(&rig, &rig.auth, &none).await.unwrap_err();
    assert_eq!(rig.issuer.asked("/token").len() - before, 3);
    rig.issuer.behave(|behaviour| behaviour.refuse = None);
    rig.clock.advance_millis(30_000);
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    // A new login starts afresh.
    rig.issuer.behave(|behaviour| behaviour.refuse = Some((503, "temporarily_unavailable".into())));
    rig.clock.advance_millis(LASTS_MS);
    key(&rig, &rig.auth, &none).await.unwrap_err();
    rig.issuer.behave(|behaviour| behaviour.refuse = None);
    rig.logged_in().await;
    rig.clock.advance_millis(LASTS_MS);
    key(&rig, &rig.auth, &none).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_daemon_waits_for_a_pair_that_is_on_its_way() {
    let (rig, asking) = renewing().await;
    // Who asked has left.
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    let mut settling = Box::pin(rig.auth.settle());
    assert!(futures::poll!(&mut settling).is_pending());
    assert!(!rig.file().contains(&rig.issuer.access_token()));
    rig.issuer.release();
    settling.await;
    assert!(rig.file().contains(&rig.issuer.access_token()), "it is on the disk");
    // What is good is given; nothing is renewed any more.
    assert_eq!(words(&rig.ask().await.unwrap()), "ok");
    rig.clock.advance_millis(LASTS_MS);
    let error = rig.ask().await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Server && error.message.contains("the daemon ends"), "{error:?}");
    assert_eq!(rig.issuer.renewals(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secrets_of_logins_are_known_to_those_who_take_them_out() {
    let rig = Rig::with(|config| {
        config.logins.get_mut("example").unwrap().client_secret = Some("secret-of-the-client".into());
    })
    .await;
    let registry = rig.registry(&rig.auth);
    assert!(registry.known_secrets().is_empty());
    rig.logged_in().await;
    let first = rig.issuer.access_token();
    rig.clock.advance_millis(LASTS_MS);
    rig.ask().await.unwrap();
    let file: serde_json::Value = serde_json::from_str(&rig.file()).unwrap();
    let refresh = file["logins"]["example"]["tokens"]["refresh"].as_str().unwrap().to_owned();
    let known = registry.known_secrets();
    for secret in [first, rig.issuer.access_token(), refresh, "secret-of-the-client".to_owned()] {
        assert!(known.contains(&Secret::new(secret.clone())), "{secret}");
    }
    assert!(!format!("{known:?}").contains(SECRET_MARK));
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

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_can_not_be_saved_is_not_lost() {
    let (rig, asking) = renewing().await;
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
