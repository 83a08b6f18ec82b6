//! What is sent in the place of a key: by a login, by what is stored, by a command.

use super::*;

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

/// What is stored for the provider's own address stays there, and the refusal that comes of it says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_want_of_a_key_that_was_not_sent_says_so() {
    let rig = Rig::with(|config| {
        let headers = BTreeMap::from([("x-gateway-key".to_owned(), format!("{SECRET_MARK}-header"))]);
        config.providers.insert("openai".into(), ProviderEntry { headers, ..ProviderEntry::default() });
    })
    .await;
    let key = Some(Secret::new("sk-stored-0123456789"));
    let start = LoginStart { provider: "openai".into(), flow: Some(LoginFlow::Key), key, env: BTreeMap::new() };
    rig.desk().start(start).await.unwrap();
    let registry = rig.registry(&rig.auth);
    let own = registry.resolve("openai/gpt-4.1", &BTreeMap::new()).unwrap().access;
    assert_eq!((own.key_word.as_str(), own.withheld), ("stored key", None));
    let url = rig.server.base_url(Wire::Chat);
    let env = BTreeMap::from([("OPENAI_BASE_URL".to_owned(), url.clone())]);
    let model = registry.resolve("openai/gpt-4.1", &env).unwrap();
    assert_eq!((model.access.key_word.as_str(), model.access.key_source.is_none()), ("none", true));
    let error = ask(&model).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Auth, Some(401)));
    assert!(
        error.message.contains("what is stored for it and its headers of config.toml was not sent to"),
        "{error:?}"
    );
    assert!(error.message.contains(&url) && error.hint.contains("mcode login openai"), "{error:?}");
    let request = rig.server.requests().remove(0);
    assert!(!request.headers.contains_key("authorization") && !request.headers.contains_key("x-gateway-key"));
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
