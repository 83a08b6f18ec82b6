//! mcode over a LiteLLM proxy, installed from PyPI: its OpenAI and its Anthropic side.
//!
//! Ignored unless asked for, since it needs PyPI (about 750 MB): `cargo test -p mcoded --test litellm -- --ignored`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod proxy;

use mcode_testkit::{ModelServer, Reply, Script, TestDaemon, Wire, Workspace};
use proxy::Proxy;
use serde_json::json;

const SAID: &str = "It is mocked: é€😀.";

/// A daemon with the proxy's two sides, and Responses, as providers.
fn daemon(proxy: &Proxy) -> TestDaemon {
    let mut daemon = TestDaemon::prepare();
    let provider = |name: &str, wire: &str, path: &str| {
        let key = proxy::KEY;
        format!("[providers.{name}]\nwire = \"{wire}\"\nbase_url = \"{}{path}\"\napi_key = \"{key}\"\n", proxy.url())
    };
    let config = [
        provider("chat", "openai-chat", "/v1"),
        provider("messages", "anthropic", ""),
        provider("responses", "openai-responses", "/v1"),
    ];
    daemon.write_config(&config.concat());
    daemon.restart();
    daemon
}

#[test]
#[ignore = "installs litellm from PyPI"]
fn mcode_works_over_a_litellm_proxy() {
    let server = ModelServer::start_blocking(Script::new().allow_unused());
    let proxy = Proxy::start(&config(&server));
    let daemon = daemon(&proxy);
    says_what_is_mocked(&daemon, &proxy);
    for model in ["chat/upstream", "messages/upstream", "messages/claude-upstream", "responses/upstream"] {
        works_with_tools(&daemon, &server, &proxy, model);
    }
    server.finish();
}

/// Mocked answers, and models that the scripted server answers for, by either of its wires.
fn config(server: &ModelServer) -> String {
    let model = |name: &str, more: &str| {
        format!("  - model_name: {name}\n    litellm_params:\n      api_key: none\n      {more}\n")
    };
    let models = [
        model("says", &format!("model: openai/says\n      mock_response: \"{SAID}\"")),
        model("claude-says", &format!("model: anthropic/claude-says\n      mock_response: \"{SAID}\"")),
        model("upstream", &format!("model: openai/upstream\n      api_base: {}", server.base_url(Wire::Chat))),
        model(
            "claude-upstream",
            &format!("model: anthropic/claude-upstream\n      api_base: {}", server.base_url(Wire::Anthropic)),
        ),
    ];
    format!("model_list:\n{}general_settings:\n  master_key: {}\n", models.concat(), proxy::KEY)
}

fn says_what_is_mocked(daemon: &TestDaemon, proxy: &Proxy) {
    let workspace = Workspace::with_files([("f.txt", "one\n")]);
    for model in ["chat/says", "chat/claude-says", "messages/says", "messages/claude-says"] {
        let output = daemon.mcode_in(&workspace.path(), &["ask", "-m", model, "hi"]);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (0, format!("{SAID}\n").as_str()),
            "{model}: {output:#?}\n{}",
            proxy.log()
        );
    }
    // An error of the proxy is told as what it is.
    let output = daemon.mcode_in(&workspace.path(), &["ask", "-m", "chat/nothing-of-this-name", "hi"]);
    assert_eq!(output.code, 5, "{output:#?}");
    assert!(output.stderr.contains("nothing-of-this-name"), "{}", output.stderr);
}

/// A file is looked at, changed, and the answer printed, with the proxy between us and the model.
fn works_with_tools(daemon: &TestDaemon, server: &ModelServer, proxy: &Proxy, model: &str) {
    let workspace = Workspace::with_files([("f.txt", "one\ntwo\n")]);
    server.push(Reply::tool_calls([("view", json!({"path": "f.txt"})), ("glob", json!({"pattern": "*.txt"}))]));
    server.push(Reply::tool_calls([("edit", json!({"path": "f.txt", "old_string": "two", "new_string": "2"}))]));
    server.push(Reply::text(format!("done over {model} é€😀")));
    let output = daemon.mcode_in(&workspace.path(), &["ask", "-m", model, "--yolo", "change it"]);
    let wanted = format!("done over {model} é€😀\n");
    assert_eq!((output.code, output.stdout.as_str()), (0, wanted.as_str()), "{output:#?}\n{}", proxy.log());
    assert_eq!(workspace.read("f.txt"), "one\n2\n", "{model}");
}
