//! How logins are renewed: through whose network, how often, and until when.

use super::*;

/// A proxy that nothing listens at.
fn dead_proxy() -> BTreeMap<String, String> {
    BTreeMap::from([("HTTP_PROXY".to_owned(), "http://127.0.0.1:1".to_owned())])
}

/// The key of a request whose client has this environment.
async fn key(rig: &Rig, auth: &Arc<Auth>, env: &BTreeMap<String, String>) -> Result<Secret, ModelError> {
    let access = rig.registry(auth).resolve("example/m", env)?.access;
    let given = access.key_source.unwrap().give(None, &access.network_env).await?;
    Ok(given.key)
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
async fn those_who_wait_for_an_issuer_that_is_out_of_order_are_told_so_at_once() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.issuer.behave(|behaviour| behaviour.refuse = Some((503, "temporarily_unavailable".into())));
    rig.clock.advance_millis(LASTS_MS);
    let before = rig.issuer.asked("/token").len();
    let none = BTreeMap::new();
    for asked in futures::future::join_all((0..20).map(|_| key(&rig, &rig.auth, &none))).await {
        let error = asked.unwrap_err();
        assert!(error.is_retryable() && error.message.contains("temporarily_unavailable"), "{error:?}");
    }
    assert_eq!(rig.issuer.asked("/token").len() - before, 1);
    // The pause after which it is worth asking again is told.
    let error = key(&rig, &rig.auth, &none).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
    rig.clock.advance_millis(30_000);
    key(&rig, &rig.auth, &none).await.unwrap_err();
    assert_eq!(rig.issuer.asked("/token").len() - before, 2);
    // A new login starts afresh.
    rig.issuer.behave(|behaviour| behaviour.refuse = None);
    rig.logged_in().await;
    rig.clock.advance_millis(LASTS_MS);
    key(&rig, &rig.auth, &none).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_daemon_waits_for_a_pair_that_is_on_its_way() {
    let rig = Rig::new().await;
    rig.logged_in().await;
    rig.clock.advance_millis(LASTS_MS);
    rig.issuer.behave(|behaviour| behaviour.holds = true);
    let model = rig.registry(&rig.auth).resolve("example/m", &BTreeMap::new()).unwrap();
    let asking = tokio::spawn(async move { ask(&model).await });
    let issuer = Arc::clone(&rig.issuer);
    tokio::task::spawn_blocking(move || issuer.wait_for_renewals(1)).await.unwrap();
    asking.abort();
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
