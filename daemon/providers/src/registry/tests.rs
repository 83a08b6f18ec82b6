//! Which model, key and address a client gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mcode_config::{Effective, ModelEntry, PackEntry, ProviderEntry};
use mcode_models::{KeyPlace, ModelDirectory, ModelErrorKind, ModelRegistry, Role, Wire, Wishes};

use super::Registry;

fn registry(config: Effective) -> Registry {
    let config = Arc::new(config);
    Registry::new(Arc::new(move || Arc::clone(&config)))
}

/// What is used when nobody wishes anything.
fn default_model(registry: &Registry, mode: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let found = registry.for_role(Role::of_mode(mode), &Wishes::default(), env).unwrap();
    found.map(|assigned| assigned.model)
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with_provider(name: &str, entry: ProviderEntry) -> Registry {
    registry(Effective { providers: BTreeMap::from([(name.to_owned(), entry)]), ..Effective::default() })
}

#[test]
fn the_clients_environment_gives_key_address_and_network() {
    let env = env(&[
        ("ANTHROPIC_API_KEY", "k1"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:7"),
        ("https_proxy", "http://p:1"),
        ("NO_PROXY", "localhost"),
        ("PATH", "/bin"),
    ]);
    let found = registry(Effective::default()).resolve("anthropic/claude-sonnet-4-5", &env).unwrap();
    assert_eq!(found.access.key.as_ref().unwrap().expose(), "k1");
    assert_eq!(found.access.key_place, KeyPlace::Usual);
    assert_eq!(found.access.base_url, "http://127.0.0.1:7");
    let network: Vec<(&str, &str)> =
        found.access.network_env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(network, [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "localhost")]);
    assert!(!format!("{found:?}").contains("k1"), "keys do not show");
    let token = self::env(&[("ANTHROPIC_AUTH_TOKEN", "t")]);
    let found = registry(Effective::default()).resolve("anthropic/claude-sonnet-4-5", &token).unwrap();
    assert_eq!(found.access.key_place, KeyPlace::Bearer);
}

#[test]
fn a_missing_key_says_what_to_set() {
    let error = registry(Effective::default()).resolve("openai/gpt-5", &env(&[])).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Auth);
    assert_eq!(error.hint, "Set OPENAI_API_KEY, or: mcode login openai");
    let named = ProviderEntry { api_key: Some("env:MY_KEY".into()), ..ProviderEntry::default() };
    let error = with_provider("openai", named.clone()).resolve("openai/gpt-5", &env(&[])).unwrap_err();
    assert!(error.message.contains("MY_KEY"), "{}", error.message);
    let found = with_provider("openai", named).resolve("openai/gpt-5", &env(&[("MY_KEY", "k")])).unwrap();
    assert_eq!(found.access.key.unwrap().expose(), "k");
}

#[test]
fn a_configured_key_goes_to_no_address_that_only_the_environment_names() {
    let literal = ProviderEntry { api_key: Some("sk-of-the-file".into()), ..ProviderEntry::default() };
    let found = |entry: &ProviderEntry, pairs: &[(&str, &str)]| {
        let registry = with_provider("openai", entry.clone());
        let shown = registry.list(&env(pairs)).into_iter().find(|model| model.info.id == "openai/gpt-5").unwrap();
        let found = registry.resolve("openai/gpt-5", &env(pairs));
        assert_eq!(shown.usable, found.is_ok());
        found
    };
    for place in ["http://evil.example/v1", "http://127.0.0.1:9", "https://u:pw-of-it@api.openai.com/v1?key=hidden"] {
        for words in ["sk-of-the-file", "command:pass show x", "keyring:x"] {
            let entry = ProviderEntry { api_key: Some(words.into()), ..ProviderEntry::default() };
            let error = found(&entry, &[("OPENAI_BASE_URL", place)]).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Auth);
            assert!(error.message.contains("its own address only"), "{error:?}");
            assert!(error.hint.contains("[providers.openai] base_url"), "{error:?}");
            let text = format!("{error:?}");
            assert!(!["pw-of-it", "hidden", "sk-of", "pass show"].iter().any(|secret| text.contains(secret)), "{text}");
        }
    }
    // The provider's own, written another way; the one of the file; one that the file names where the variable differs.
    for base in ["https://api.openai.com", "https://api.openai.com/v1/"] {
        found(&literal, &[("OPENAI_BASE_URL", base)]).unwrap();
    }
    let proxied = ProviderEntry { base_url: Some("http://127.0.0.1:4000/v1".into()), ..literal.clone() };
    for pairs in [&[][..], &[("OPENAI_BASE_URL", "http://127.0.0.1:4000")]] {
        let access = found(&proxied, pairs).unwrap().access;
        assert_eq!(access.key.unwrap().expose(), "sk-of-the-file");
    }
    found(&proxied, &[("OPENAI_BASE_URL", "https://api.openai.com/v1")]).unwrap_err();
    // What the client brings itself goes where it says.
    let own = ProviderEntry { api_key: Some("env:MY_KEY".into()), ..ProviderEntry::default() };
    let pairs = [("OPENAI_BASE_URL", "http://127.0.0.1:9"), ("MY_KEY", "k")];
    assert_eq!(found(&own, &pairs).unwrap().access.key.unwrap().expose(), "k");
    let pairs = [("OPENAI_BASE_URL", "http://127.0.0.1:9"), ("OPENAI_API_KEY", "k")];
    assert_eq!(found(&literal, &pairs).unwrap().access.key.unwrap().expose(), "k");
    assert!(with_provider("openai", literal).known_secrets().is_empty());
}

#[test]
fn configured_headers_go_where_configured_keys_go() {
    let headers = BTreeMap::from([("x-gateway-key".to_owned(), "secret-of-the-file".to_owned())]);
    let entry = ProviderEntry { headers: headers.clone(), ..ProviderEntry::default() };
    let access = |entry: &ProviderEntry, pairs: &[(&str, &str)]| {
        let pairs = [&[("OPENAI_API_KEY", "k"), ("OLLAMA_API_KEY", "k")], pairs].concat();
        with_provider("openai", entry.clone()).resolve("openai/gpt-5", &env(&pairs)).unwrap().access
    };
    for pairs in [&[][..], &[("OPENAI_BASE_URL", "https://api.openai.com/v1")]] {
        let own = access(&entry, pairs);
        assert_eq!((own.headers, own.withheld), (headers.clone(), None));
    }
    for place in ["http://evil.example/v1", "http://127.0.0.1:9"] {
        let elsewhere = access(&entry, &[("OPENAI_BASE_URL", place)]);
        assert!(elsewhere.headers.is_empty() && !format!("{elsewhere:?}").contains("secret-of-the-file"));
        let withheld = elsewhere.withheld.unwrap();
        assert!(withheld.what.contains("headers of config.toml") && withheld.what.contains(place), "{withheld:?}");
        assert!(withheld.hint.contains("[providers.openai] base_url"), "{withheld:?}");
    }
    let proxied = ProviderEntry { base_url: Some("http://127.0.0.1:9/v1".into()), ..entry };
    assert_eq!(access(&proxied, &[("OPENAI_BASE_URL", "http://127.0.0.1:9")]).headers, headers);
    // What the client itself says goes where it says.
    let pairs =
        [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_CUSTOM_HEADERS", "X-A: b"), ("ANTHROPIC_BASE_URL", "http://h:1")];
    let own = registry(Effective::default()).resolve("anthropic/claude-sonnet-5", &env(&pairs)).unwrap().access;
    assert_eq!(own.headers, BTreeMap::from([("X-A".to_owned(), "b".to_owned())]));
}

#[test]
fn the_name_of_a_resource_leads_to_the_providers_own_address_and_nowhere_else() {
    let entry = ProviderEntry { api_key: Some("key-of-the-file".into()), ..ProviderEntry::default() };
    let access = |entry: &ProviderEntry, name: &str| {
        let pairs = env(&[("AZURE_RESOURCE_NAME", name)]);
        with_provider("azure", entry.clone()).resolve("azure/gpt-5.5", &pairs).map(|found| found.access)
    };
    let own = access(&entry, "my-resource-1").unwrap();
    assert_eq!(own.base_url, "https://my-resource-1.openai.azure.com/openai/v1");
    assert_eq!((own.key.unwrap().expose(), own.key_word.as_str()), ("key-of-the-file", "config.toml"));
    for name in ["evil.example/", "evil.example#", "a@evil.example:1/", "a b", "-a", &"x".repeat(64)] {
        let error = access(&entry, name).unwrap_err();
        assert!(error.message.contains("AZURE_RESOURCE_NAME") && !error.message.contains(name), "{error:?}");
    }
    // A key that is for a gateway stays there.
    let gateway = ProviderEntry { base_url: Some("https://gateway.example/v1".into()), ..entry };
    assert!(access(&gateway, "my-resource-1").unwrap_err().message.contains("its own address only"));
}

#[test]
fn some_names_are_taken() {
    let registry = registry(Effective::default());
    for (name, words) in [("demo", "scripted model"), ("gemini", "google"), ("chatgpt", "openai")] {
        assert!(registry.reserved(name).unwrap().contains(words), "{name}");
    }
    for name in ["mine", "openai", "google", "ollama"] {
        assert_eq!(registry.reserved(name), None, "{name}");
    }
}

#[test]
fn a_declared_server_needs_only_its_address() {
    let entry = ProviderEntry {
        base_url: Some("http://127.0.0.1:8080/v1".into()),
        models: vec![ModelEntry {
            id: "a/b".into(),
            context: Some(32_768),
            max_output: Some(2_048),
            images: Some(false),
            ..ModelEntry::default()
        }],
        idle_timeout: Some(Duration::from_secs(5)),
        ..ProviderEntry::default()
    };
    let registry = with_provider("local", entry);
    let found = registry.resolve("local/a/b", &env(&[])).unwrap();
    assert_eq!(found.access.wire, Wire::OpenaiChat);
    assert_eq!((found.info.context_tokens, found.info.max_output_tokens, found.info.images), (32_768, 2_048, false));
    assert_eq!(found.access.idle_timeout_ms, 5_000);
    assert_eq!(default_model(&registry, "build", &env(&[])).as_deref(), Some("local/a/b"));
    let listed = registry.list(&env(&[]));
    assert!(listed.iter().any(|model| model.info.id == "local/a/b" && model.usable));
    assert!(listed.iter().any(|model| model.info.id == "openai/gpt-5" && !model.usable));
}

#[test]
fn what_can_not_be_is_named() {
    let registry = registry(Effective::default());
    for model in ["gpt", "nobody/x", "demo/other", ""] {
        let error = registry.resolve(model, &env(&[])).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::UnknownModel, "{model}");
        assert!(!error.hint.is_empty(), "{model}");
    }
    for (entry, words) in [
        (ProviderEntry { wire: Some("morse".into()), ..ProviderEntry::default() }, "morse"),
        (
            ProviderEntry {
                api_key: Some("command:pass show x".into()),
                base_url: Some("http://h".into()),
                ..ProviderEntry::default()
            },
            "command:",
        ),
        (ProviderEntry::default(), "base_url"),
    ] {
        let error = with_provider("mine", entry).resolve("mine/x", &env(&[])).unwrap_err();
        assert!(error.message.contains(words) && error.message.contains("[providers.mine]"), "{}", error.message);
        assert!(!error.message.contains("pass show"), "what follows may be a secret");
    }
}

#[test]
fn clouds_are_found_by_what_their_users_set() {
    let registry = registry(Effective::default());
    let found = |model: &str, pairs: &[(&str, &str)]| registry.resolve(model, &env(pairs)).unwrap();
    let project = [("GOOGLE_CLOUD_PROJECT", "p"), ("HOME", "/h"), ("SHELL", "sh")];
    let gemini = found("vertex/gemini-3-pro", &project).access;
    assert_eq!(gemini.wire, Wire::Gemini);
    assert!(gemini.base_url.ends_with("/projects/p/locations/global/publishers/google"), "{}", gemini.base_url);
    assert_eq!(gemini.identity_env.keys().collect::<Vec<_>>(), ["HOME"]);
    let claude = found("vertex/claude-sonnet-5", &project).access;
    assert!(claude.wire == Wire::Anthropic && claude.base_url.ends_with("/publishers/anthropic"));
    let azure = found("azure/gpt-5.5", &[("AZURE_API_KEY", "k"), ("AZURE_RESOURCE_NAME", "res")]).access;
    assert_eq!(azure.base_url, "https://res.openai.azure.com/openai/v1");
    assert_eq!((azure.wire, azure.key_place), (Wire::OpenaiResponses, KeyPlace::Header("api-key")));
    let aws = [("AWS_PROFILE", "work"), ("HOME", "/h"), ("SHELL", "sh")];
    let bedrock = found("bedrock/us.anthropic.claude-sonnet-5-v1:0", &aws);
    assert_eq!(bedrock.access.identity_env.keys().collect::<Vec<_>>(), ["AWS_PROFILE", "HOME"]);
    assert_eq!(bedrock.info.context_tokens, 1_000_000);
    assert_eq!(azure.key_word, "environment AZURE_API_KEY");
    let nameless = registry.resolve("azure/gpt-5.5", &env(&[("AZURE_API_KEY", "k")])).unwrap_err();
    assert!(nameless.hint.contains("AZURE"), "{}", nameless.hint);
}

#[test]
fn the_real_openai_is_asked_over_responses_and_its_stand_ins_over_chat() {
    let registry = registry(Effective::default());
    let wire = |base: &[(&str, &str)]| {
        let env = env(&[&[("OPENAI_API_KEY", "k")], base].concat());
        registry.resolve("openai/gpt-5.5", &env).unwrap().access.wire
    };
    assert_eq!(wire(&[]), Wire::OpenaiResponses);
    assert_eq!(wire(&[("OPENAI_BASE_URL", "https://api.openai.com/v1/")]), Wire::OpenaiResponses);
    assert_eq!(wire(&[("OPENAI_BASE_URL", "http://127.0.0.1:4000")]), Wire::OpenaiChat);
}

#[test]
fn the_default_model_is_the_configured_one_else_one_with_a_key() {
    let bare = registry(Effective::default());
    assert_eq!(default_model(&bare, "build", &env(&[])), None);
    assert_eq!(default_model(&bare, "build", &env(&[("OPENAI_API_KEY", "k")])).as_deref(), Some("openai/gpt-5.5"));
    let set = registry(Effective {
        model: Some("x/one".into()),
        mode_models: BTreeMap::from([("plan".to_owned(), "x/two".to_owned())]),
        ..Effective::default()
    });
    assert_eq!(default_model(&set, "build", &env(&[])).as_deref(), Some("x/one"));
    assert_eq!(default_model(&set, "plan", &env(&[])).as_deref(), Some("x/two"));
}

#[test]
fn the_scripted_model_needs_nothing() {
    let found = registry(Effective::default()).resolve("demo/scripted", &env(&[])).unwrap();
    assert_eq!(found.access.wire, Wire::Scripted);
    assert!(found.access.key.is_none());
}

#[test]
fn the_users_figures_come_before_the_catalogues() {
    let models = vec![
        ModelEntry { id: "claude-sonnet-5".into(), input_price: Some(9.0), ..ModelEntry::default() },
        ModelEntry {
            id: "new".into(),
            input_price: Some(2.0),
            output_price: Some(4.0),
            cache_read_price: Some(0.5),
            thinking: Some("adaptive".into()),
            ..ModelEntry::default()
        },
    ];
    let found = with_provider("anthropic", ProviderEntry { models, ..ProviderEntry::default() });
    let env = env(&[("ANTHROPIC_API_KEY", "k")]);
    let known = found.resolve("anthropic/claude-sonnet-5", &env).unwrap().info.pricing.unwrap();
    assert_eq!((known.input, known.output, known.cache_read), (9.0, 10.0, 0.2));
    let new = found.resolve("anthropic/new", &env).unwrap().info;
    let price = new.pricing.unwrap();
    assert_eq!((price.input, price.output, price.cache_read, price.cache_write), (2.0, 4.0, 0.5, 2.0));
    assert_eq!(new.thinking, mcode_models::ThinkingForm::Adaptive);
    // Every word that the configuration takes is one of the catalogue.
    for word in mcode_config::THINKING_FORMS {
        assert!(mcode_models::ThinkingForm::named(word).is_some(), "{word}");
    }
    assert_eq!(mcode_config::ROLES, Role::ALL.map(Role::as_str));
    let levels = mcode_events::run::ThinkingLevel::ALL.map(mcode_events::run::ThinkingLevel::as_str);
    assert_eq!(mcode_config::THINKING_LEVELS, levels);
}

fn pack(models: &[(&str, &str)]) -> PackEntry {
    let models = models.iter().map(|(role, model)| ((*role).to_owned(), (*model).to_owned()));
    PackEntry { models: models.collect(), thinking: BTreeMap::from([("plan".to_owned(), "high".to_owned())]) }
}

#[test]
fn roles_are_given_by_settings_packs_and_what_can_be_reached() {
    let with_pack = Effective {
        pack: Some("mine".into()),
        packs: BTreeMap::from([("mine".to_owned(), pack(&[("build", "openai/gpt-5.5"), ("plan", "anthropic/x")]))]),
        ..Effective::default()
    };
    let model = |registry: &Registry, role: Role, last: Option<&str>, env: &BTreeMap<String, String>| {
        let wishes = Wishes { last, ..Wishes::default() };
        registry.for_role(role, &wishes, env).map(|found| found.map(|found| found.model))
    };
    let both = env(&[("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]);
    let chosen = registry(with_pack.clone());
    for (role, expected) in
        [(Role::Build, "openai/gpt-5.5"), (Role::Plan, "anthropic/x"), (Role::Judge, "openai/gpt-5.5")]
    {
        assert_eq!(model(&chosen, role, None, &both).unwrap().as_deref(), Some(expected), "{role}");
    }
    let plan = chosen.for_role(Role::Plan, &Wishes::default(), &both).unwrap().unwrap();
    assert_eq!(plan.thinking, Some(mcode_events::run::ThinkingLevel::High));
    // What speaks is told that its key is missing; what works beside it does with what there is.
    let one = env(&[("ANTHROPIC_API_KEY", "k")]);
    assert_eq!(model(&chosen, Role::Build, None, &one).unwrap().as_deref(), Some("openai/gpt-5.5"));
    let judge = model(&chosen, Role::Judge, Some("anthropic/claude-opus-5"), &one).unwrap().unwrap();
    assert!(judge.starts_with("anthropic/"), "{judge}");
    // Beside a conversation, its own provider's cheap model.
    let bare = registry(Effective::default());
    let small = model(&bare, Role::Small, Some("openai/gpt-5.5"), &both).unwrap().unwrap();
    assert!(small.starts_with("openai/") && small != "openai/gpt-5.5", "{small}");
    assert_eq!(model(&bare, Role::Small, None, &env(&[])).unwrap(), None);
    // A pack that is not there is named, where it would count.
    let lost = registry(Effective { pack: Some("gone".into()), ..Effective::default() });
    let error = model(&lost, Role::Build, None, &both).unwrap_err();
    assert!(error.message.contains("'gone'") && error.hint.contains("packs use"), "{error:?}");
    let set = registry(Effective { pack: Some("gone".into()), model: Some("a/b".into()), ..Effective::default() });
    assert_eq!(model(&set, Role::Build, None, &both).unwrap().as_deref(), Some("a/b"));
    // The packs of what can be reached, and the user's own.
    let names = |env| chosen.packs(env).into_iter().map(|pack| pack.name).collect::<Vec<_>>();
    assert_eq!(names(&one), ["anthropic", "mine"]);
    assert_eq!(names(&both), ["anthropic", "openai", "mine"]);
}

#[test]
fn a_key_alone_is_enough_for_a_provider_without_a_best_model() {
    let env = env(&[("GEMINI_API_KEY", "k")]);
    let found = default_model(&registry(Effective::default()), "build", &env).unwrap();
    assert!(found.starts_with("google/"), "{found}");
}

#[test]
fn every_provider_is_listed_with_what_it_needs() {
    let entry = ProviderEntry { base_url: Some("http://127.0.0.1:9/v1".into()), ..ProviderEntry::default() };
    let env = env(&[
        ("AZURE_RESOURCE_NAME", "mine"),
        ("GOOGLE_CLOUD_PROJECT", "p"),
        ("GOOGLE_CLOUD_LOCATION", "global"),
        ("OPENAI_API_KEY", "k"),
    ]);
    let listed = with_provider("own", entry).providers(&env);
    let named = |name: &str| listed.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"));
    for name in [
        "anthropic",
        "openai",
        "google",
        "vertex",
        "bedrock",
        "azure",
        "deepseek",
        "xai",
        "mistral",
        "groq",
        "cerebras",
        "openrouter",
        "together",
        "fireworks",
        "moonshot",
        "kimi-for-coding",
        "zai",
        "minimax",
        "dashscope",
        "github-copilot",
        "ollama",
        "lmstudio",
        "llamacpp",
        "vllm",
    ] {
        let row = named(name);
        assert!(row.known && row.base_url.starts_with("http") && !row.wire.is_empty(), "{row:?}");
        assert!(!row.key_source.is_empty(), "{row:?}");
    }
    assert!(named("openai").usable && named("openai").key_source == "OPENAI_API_KEY");
    assert!(!named("groq").usable && named("groq").key_source.contains("GROQ_API_KEY"));
    assert!(named("own").configured && !named("own").known && named("own").usable);
    // A name that nobody knows is no model; an id that nobody knows is one with safe figures.
    let bare = registry(Effective::default());
    assert_eq!(bare.resolve("nobody/x", &env).unwrap_err().kind, ModelErrorKind::UnknownModel);
    let info = bare.resolve("openai/some-new-model", &env).unwrap().info;
    assert!(!info.known && info.pricing.is_none() && info.max_output_tokens <= 8_192);
}
