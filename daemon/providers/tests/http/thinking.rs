//! Every level of thinking, for every model of the catalogue, against a server that refuses what the real ones refuse.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use mcode_config::{Effective, ProviderEntry};
use mcode_events::run::ThinkingLevel;
use mcode_models::{Catalogue, ModelRegistry as _, ModelRequest, Wire};
use mcode_providers::Registry;
use mcode_testkit::{ModelServer, Reply, Script};
use tokio_util::sync::CancellationToken;

fn registry(provider: &str, wire: Option<&str>, base_url: &str) -> Registry {
    let entry = ProviderEntry {
        wire: wire.map(str::to_owned),
        base_url: Some(base_url.to_owned()),
        api_key: (provider != "bedrock").then(|| "test-key".to_owned()),
        ..ProviderEntry::default()
    };
    let config = Effective { providers: BTreeMap::from([(provider.to_owned(), entry)]), ..Effective::default() };
    let config = Arc::new(config);
    Registry::new(Arc::new(move || Arc::clone(&config)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_level_of_thinking_is_refused_by_any_model() {
    let server = ModelServer::start(Script::new().fallback(|_| Reply::text("ok"))).await;
    let pairs =
        [("AWS_ACCESS_KEY_ID", "AKIDTEST"), ("AWS_SECRET_ACCESS_KEY", "test-secret"), ("AWS_REGION", "eu-west-1")];
    let env: BTreeMap<String, String> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let known = Catalogue::bundled().models().iter().map(|info| info.id.clone());
    let mut models: Vec<String> = known.filter(|id| !id.starts_with("demo/")).collect();
    // Claude where Amazon sells it, and names that no list has yet.
    let claudes = models.iter().filter_map(|id| id.strip_prefix("anthropic/"));
    let on_bedrock: Vec<String> = claudes.map(|name| format!("bedrock/us.anthropic.{name}-v1:0")).collect();
    models.extend(on_bedrock);
    models.extend(["anthropic/claude-opus-9", "openai/gpt-5.4-nano", "google/gemini-3.9-pro"].map(str::to_owned));
    let levels: Vec<Option<ThinkingLevel>> = std::iter::once(None).chain(ThinkingLevel::ALL.map(Some)).collect();
    for id in models {
        let provider = id.split('/').next().unwrap();
        // Only at its own address OpenAI is taken to speak Responses.
        let wire = (provider == "openai").then_some("openai-responses");
        let spoken = registry(provider, wire, "http://127.0.0.1:9/v1").resolve(&id, &env).unwrap().access.wire;
        let base_url = server.base_url(match spoken {
            Wire::Anthropic => mcode_testkit::Wire::Anthropic,
            Wire::OpenaiChat => mcode_testkit::Wire::Chat,
            Wire::OpenaiResponses => mcode_testkit::Wire::Responses,
            Wire::Gemini => mcode_testkit::Wire::Gemini,
            Wire::Bedrock => mcode_testkit::Wire::Bedrock,
            Wire::Scripted => panic!("{id}"),
        });
        let model = registry(provider, wire, &base_url).resolve(&id, &env).unwrap();
        for level in &levels {
            let request = ModelRequest { model: id.parse().unwrap(), thinking: *level, ..super::request(&model) };
            let mut events = model.provider.stream(request, CancellationToken::new());
            while let Some(event) = events.next().await {
                event.unwrap_or_else(|error| panic!("{id} at {level:?}: {error}"));
            }
        }
    }
    let refused: Vec<_> = server.requests().into_iter().filter_map(|request| request.refused).collect();
    assert!(refused.is_empty(), "{refused:?}");
}
