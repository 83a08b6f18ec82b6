//! Which model, key and address a client gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mcode_config::{Effective, ModelEntry, ProviderEntry};
use mcode_models::{KeyPlace, ModelErrorKind, ModelRegistry, Wire};

use super::Registry;

fn registry(config: Effective) -> Registry {
    let config = Arc::new(config);
    Registry::new(Arc::new(move || Arc::clone(&config)))
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
    assert!(
        error.hint.contains("OPENAI_API_KEY") && error.hint.contains("[providers.openai] api_key"),
        "{}",
        error.hint
    );
    let named = ProviderEntry { api_key: Some("env:MY_KEY".into()), ..ProviderEntry::default() };
    let error = with_provider("openai", named.clone()).resolve("openai/gpt-5", &env(&[])).unwrap_err();
    assert!(error.message.contains("MY_KEY"), "{}", error.message);
    let found = with_provider("openai", named).resolve("openai/gpt-5", &env(&[("MY_KEY", "k")])).unwrap();
    assert_eq!(found.access.key.unwrap().expose(), "k");
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
        }],
        idle_timeout: Some(Duration::from_secs(5)),
        ..ProviderEntry::default()
    };
    let registry = with_provider("local", entry);
    let found = registry.resolve("local/a/b", &env(&[])).unwrap();
    assert_eq!(found.access.wire, Wire::OpenaiChat);
    assert_eq!((found.info.context_tokens, found.info.max_output_tokens, found.info.images), (32_768, 2_048, false));
    assert_eq!(found.access.idle_timeout_ms, 5_000);
    assert_eq!(registry.default_model("build", &env(&[])).as_deref(), Some("local/a/b"));
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
    assert_eq!(bare.default_model("build", &env(&[])), None);
    assert_eq!(bare.default_model("build", &env(&[("OPENAI_API_KEY", "k")])).as_deref(), Some("openai/gpt-5.5"));
    let set = registry(Effective {
        model: Some("x/one".into()),
        mode_models: BTreeMap::from([("plan".to_owned(), "x/two".to_owned())]),
        ..Effective::default()
    });
    assert_eq!(set.default_model("build", &env(&[])).as_deref(), Some("x/one"));
    assert_eq!(set.default_model("plan", &env(&[])).as_deref(), Some("x/two"));
}

#[test]
fn the_scripted_model_needs_nothing() {
    let found = registry(Effective::default()).resolve("demo/scripted", &env(&[])).unwrap();
    assert_eq!(found.access.wire, Wire::Scripted);
    assert!(found.access.key.is_none());
}
