//! Providers against a real server on 127.0.0.1.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod faults;
mod logins;
mod server;
mod thinking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mcode_config::{Effective, ProviderEntry};
use mcode_events::message::Part;
use mcode_models::{
    ModelError, ModelErrorKind, ModelRegistry as _, ModelRequest, PromptMessage, ResolvedModel, Response, StreamEvent,
};
use mcode_providers::Registry;
use server::{Act, Server, response, stream};
use tokio_util::sync::CancellationToken;

const OK: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn resolve(base_url: &str, wire: &str, env: &[(&str, &str)], change: impl FnOnce(&mut ProviderEntry)) -> ResolvedModel {
    let mut entry = ProviderEntry {
        wire: Some(wire.to_owned()),
        base_url: Some(base_url.to_owned()),
        api_key: Some("verysecretkey".to_owned()),
        idle_timeout: Some(Duration::from_secs(5)),
        ..ProviderEntry::default()
    };
    change(&mut entry);
    let config = Effective { providers: BTreeMap::from([("mine".to_owned(), entry)]), ..Effective::default() };
    let config = Arc::new(config);
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Registry::new(Arc::new(move || Arc::clone(&config))).resolve("mine/m", &env).unwrap()
}

fn request(model: &ResolvedModel) -> ModelRequest {
    ModelRequest {
        model: "mine/m".parse().unwrap(),
        info: model.info.clone(),
        access: model.access.clone(),
        system: Vec::new(),
        messages: vec![PromptMessage::User(vec![Part::text("hi")])],
        media: BTreeMap::new(),
        tools: Vec::new(),
        thinking: None,
        max_output_tokens: None,
        cache_key: String::new(),
        answer_schema: None,
    }
}

async fn ask(model: &ResolvedModel) -> Result<Response, ModelError> {
    let mut events = model.provider.stream(request(model), CancellationToken::new());
    let mut text = String::new();
    while let Some(event) = events.next().await {
        match event? {
            StreamEvent::TextDelta(more) => text.push_str(&more),
            StreamEvent::Finished(response) => {
                assert!(events.next().await.is_none());
                return Ok(*response);
            }
            _ => {}
        }
    }
    panic!("the stream ended without an end, after '{text}'");
}

fn words(response: &Response) -> String {
    response
        .parts
        .iter()
        .filter_map(|part| if let Part::Text { text, .. } = part { Some(text.as_str()) } else { None })
        .collect()
}

fn chat(server: &Server) -> ResolvedModel {
    resolve(&format!("http://127.0.0.1:{}/v1", server.port), "openai-chat", &[], |_| {})
}

#[tokio::test]
async fn text_arrives_whole_though_bytes_drip() {
    let body = ": ping\r\n\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"héé\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":\r\ndata: {\"content\":\"€😀\"},\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n";
    let server = Server::start(vec![Act::Drip(stream(body))]).await;
    assert_eq!(words(&ask(&chat(&server)).await.unwrap()), "héé€😀");
}

#[tokio::test]
async fn a_broken_frame_or_a_cut_gives_no_answer() {
    let broken = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"id\":\"x\",\"obj\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n";
    let cut = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let server = Server::start(vec![Act::Write(stream(broken)), Act::Write(stream(cut))]).await;
    let model = chat(&server);
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Protocol);
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Transport);
}

#[tokio::test]
async fn the_servers_delay_and_word_are_told_without_the_key() {
    let body = "{\"error\":{\"message\":\"slow down, verysecretkey\"}}";
    let server = Server::start(vec![
        Act::Write(response("429 Too Many Requests", "retry-after: 3\r\n", body)),
        Act::Write(response("429 Too Many Requests", "retry-after: 86400\r\n", body)),
        Act::Write(response("500 Oops", "x-should-retry: false\r\n", "<html>down</html>")),
        Act::Write(stream("event: error\ndata: {\"error\":{\"message\":\"Rate limit. Try again in 4 seconds\"}}\n\n")),
        Act::Write(response("401 No", "", "{\"error\":{\"message\":\"bad key\"}}")),
        Act::Write(response(
            "200 OK",
            "content-type: application/json\r\n",
            "{\"error\":{\"message\":\"overloaded\"}}",
        )),
    ])
    .await;
    let model = chat(&server);
    let first = ask(&model).await.unwrap_err();
    assert_eq!((first.kind, first.retry_after), (ModelErrorKind::RateLimited, Some(Duration::from_secs(3))));
    assert!(!first.message.contains("verysecretkey"), "{}", first.message);
    assert!(ask(&model).await.unwrap_err().message.contains("24 h"));
    let down = ask(&model).await.unwrap_err();
    assert_eq!((down.kind, down.is_retryable()), (ModelErrorKind::Server, false));
    assert_eq!(ask(&model).await.unwrap_err().retry_after, Some(Duration::from_secs(4)));
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Auth);
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Overloaded);
}

#[tokio::test]
async fn paths_are_exact_on_both_wires() {
    let message = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"a\",\"model\":\"m\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    for (base, wire, body, path) in [
        ("/v1", "openai-chat", OK, "/v1/chat/completions"),
        ("/v1/", "openai-chat", OK, "/v1/chat/completions"),
        ("/x/v1//?q=1", "openai-chat", OK, "/x/v1/chat/completions?q=1"),
        ("", "openai-chat", OK, "/v1/chat/completions"),
        ("", "anthropic", message, "/v1/messages"),
        ("/v1/", "anthropic", message, "/v1/messages"),
    ] {
        let server = Server::start(vec![Act::Write(stream(body))]).await;
        ask(&resolve(&format!("http://127.0.0.1:{}{base}", server.port), wire, &[], |_| {})).await.unwrap();
        let seen = server.seen().await;
        assert_eq!(seen[0].path, path);
        let header =
            if wire == "anthropic" { "x-api-key: verysecretkey" } else { "authorization: Bearer verysecretkey" };
        assert!(seen[0].head.contains(header), "{}", seen[0].head);
    }
}

#[tokio::test]
async fn every_other_wire_goes_to_its_own_path_with_its_own_key() {
    let responses = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"ok\"}]}]}}\n\n";
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"ok\"}]},\"finishReason\":\"STOP\"}]}\n\n";
    for (wire, body, path, header) in [
        ("openai-responses", responses, "/v1/responses", "authorization: Bearer verysecretkey"),
        ("gemini", gemini, "/v1beta/models/m:streamGenerateContent?alt=sse", "x-goog-api-key: verysecretkey"),
    ] {
        let server = Server::start(vec![Act::Write(stream(body))]).await;
        let model = resolve(&format!("http://127.0.0.1:{}", server.port), wire, &[], |_| {});
        assert_eq!(words(&ask(&model).await.unwrap()), "ok", "{wire}");
        let seen = server.seen().await;
        assert_eq!(seen[0].path, path);
        assert!(seen[0].head.contains(header), "{}", seen[0].head);
    }
}

/// A recorded answer of Bedrock.
fn converse() -> Vec<u8> {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/bed-01-text-nova.eventstream.bin");
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\nconnection: close\r\n\r\n".to_vec();
    bytes.extend(std::fs::read(fixture).unwrap());
    bytes
}

#[tokio::test]
async fn bedrock_is_signed_by_the_clients_own_credentials() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let profile = "[work]\naws_access_key_id = AKIDFROMFILE\naws_secret_access_key = s\n";
    std::fs::write(home.path().join(".aws/credentials"), profile).unwrap();
    std::fs::write(home.path().join(".aws/config"), "[profile work]\nregion = eu-west-3\n").unwrap();
    let home = home.path().to_str().unwrap();
    let keys = [("AWS_ACCESS_KEY_ID", "AKIDFROMENV"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "tok")];
    let env = [keys.as_slice(), &[("AWS_REGION", "us-west-2")]].concat();
    let profile = [("AWS_PROFILE", "work"), ("HOME", home)];
    let from_env = "Credential=AKIDFROMENV/";
    for (env, credential, scope, token) in [
        (env.as_slice(), from_env, "/us-west-2/bedrock/aws4_request", true),
        (profile.as_slice(), "Credential=AKIDFROMFILE/", "/eu-west-3/bedrock/aws4_request", false),
    ] {
        let server = Server::start(vec![Act::Write(converse()), Act::Write(converse())]).await;
        let model = resolve(&format!("http://127.0.0.1:{}", server.port), "bedrock", env, |entry| entry.api_key = None);
        let answer = ask(&model).await.unwrap();
        assert!(words(&answer).starts_with("The capital of France is Paris."), "{}", words(&answer));
        assert_eq!(answer.usage.unwrap().output_tokens, 82);
        let seen = server.seen().await;
        assert_eq!(seen[0].path, "/model/m/converse-stream");
        let head = &seen[0].head;
        for part in ["AWS4-HMAC-SHA256 ", credential, scope, "SignedHeaders=content-type;host;x-amz-date"] {
            assert!(head.contains(part), "{part}: {head}");
        }
        assert_eq!(head.contains("x-amz-security-token: tok"), token, "{head}");
    }
}

#[tokio::test]
async fn bedrock_takes_a_token_and_says_what_is_missing() {
    let server = Server::start(vec![Act::Write(converse())]).await;
    let model = resolve(&format!("http://127.0.0.1:{}", server.port), "bedrock", &[], |_| {});
    ask(&model).await.unwrap();
    assert!(server.seen().await[0].head.contains("authorization: Bearer verysecretkey"));
    let nowhere = [("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", "/nonexistent"), ("AWS_REGION", "us-east-1")];
    let model =
        resolve(&format!("http://127.0.0.1:{}", server.port), "bedrock", &nowhere, |entry| entry.api_key = None);
    let error = ask(&model).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Auth);
    assert!(error.hint.contains("AWS_PROFILE"), "{error:?}");
}

#[tokio::test]
async fn refused_fields_are_left_out_or_named() {
    let refuse = |field: &str| {
        Act::Write(response(
            "400 Bad Request",
            "",
            &format!("{{\"error\":{{\"message\":\"Unknown field: {field}\"}}}}"),
        ))
    };
    let server = Server::start(vec![refuse("stream_options"), Act::Write(stream(OK))]).await;
    let model = chat(&server);
    assert_eq!(words(&ask(&model).await.unwrap()), "ok");
    assert_eq!(words(&ask(&model).await.unwrap()), "ok");
    let seen = server.seen().await;
    let sent: Vec<bool> = seen.iter().map(|seen| seen.body.contains("stream_options")).collect();
    assert_eq!(sent, [true, false, false], "learnt once");

    let server = Server::start(vec![refuse("stream_options")]).await;
    let error = ask(&chat(&server)).await.unwrap_err();
    assert!(error.message.contains("'stream_options'") && error.hint.contains("omit_fields"), "{error:?}");
    assert_eq!(server.seen().await.len(), 2);

    let server = Server::start(vec![Act::Write(stream(OK))]).await;
    let base = format!("http://127.0.0.1:{}/v1", server.port);
    let model = resolve(&base, "openai-chat", &[], |entry| entry.omit_fields = vec!["stream_options".into()]);
    ask(&model).await.unwrap();
    assert!(!server.seen().await[0].body.contains("stream_options"));
}

#[tokio::test]
async fn silence_ends_a_request_and_leaving_closes_the_connection() {
    let started = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let server = Server::start(vec![Act::Hang(stream(started))]).await;
    let base = format!("http://127.0.0.1:{}/v1", server.port);
    let short = resolve(&base, "openai-chat", &[], |entry| entry.idle_timeout = Some(Duration::from_secs(1)));
    let error = ask(&short).await.unwrap_err();
    assert_eq!(error.message, format!("no data from 127.0.0.1:{} for 1 s", server.port));
    assert!(error.is_retryable());
    server.until_closed().await;

    let model = chat(&server);
    for _ in 0..20 {
        let mut events = model.provider.stream(request(&model), CancellationToken::new());
        assert_eq!(events.next().await.unwrap().unwrap(), StreamEvent::Started);
    }
    server.until_closed().await;

    let cancel = CancellationToken::new();
    let mut events = model.provider.stream(request(&model), cancel.clone());
    assert_eq!(events.next().await.unwrap().unwrap(), StreamEvent::Started);
    assert_eq!(events.next().await.unwrap().unwrap(), StreamEvent::TextDelta("a".into()));
    cancel.cancel();
    assert_eq!(events.next().await.unwrap().unwrap_err().kind, ModelErrorKind::Cancelled);
    assert!(events.next().await.is_none());
    server.until_closed().await;
}

#[tokio::test]
async fn nobody_listening_is_said_plainly() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let model = resolve(&format!("http://127.0.0.1:{port}/v1"), "openai-chat", &[], |_| {});
    let error = ask(&model).await.unwrap_err();
    assert!(error.message.contains(mcode_models::retry::CONNECTION_REFUSED), "{error}");
}

#[tokio::test]
async fn plain_json_is_taken_for_a_stream() {
    let body = "{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}";
    let server = Server::start(vec![
        Act::Write(response("200 OK", "content-type: application/json\r\n", body)),
        Act::Write(response("200 OK", "content-type: text/html\r\n", "<html>login</html>")),
    ])
    .await;
    let model = chat(&server);
    assert_eq!(words(&ask(&model).await.unwrap()), "ok");
    assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Protocol);
}

fn acceptor() -> tokio_rustls::TlsAcceptor {
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    mcode_providers::install_crypto();
    let chain = CertificateDer::pem_slice_iter(include_bytes!("../tls/server.pem")).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/server.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn a_private_authority_comes_from_the_clients_environment() {
    let server = Server::start_with(vec![Act::Write(stream(OK))], Some(acceptor())).await;
    let base = format!("https://localhost:{}/v1", server.port);
    let ca = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/ca.pem");
    let trusted = resolve(&base, "openai-chat", &[("SSL_CERT_FILE", ca)], |_| {});
    assert_eq!(words(&ask(&trusted).await.unwrap()), "ok");
    let error = ask(&resolve(&base, "openai-chat", &[], |_| {})).await.unwrap_err();
    assert!(error.message.contains("certificate") && error.message.contains("localhost"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn the_proxy_gets_what_no_proxy_does_not_name() {
    let proxy = Server::start(vec![Act::Write(stream(OK))]).await;
    let direct = Server::start(vec![Act::Write(stream(OK))]).await;
    let proxy_url = format!("http://127.0.0.1:{}", proxy.port);
    let env = [("HTTP_PROXY", proxy_url.as_str()), ("HTTPS_PROXY", proxy_url.as_str()), ("NO_PROXY", "localhost")];
    ask(&resolve(&format!("http://localhost:{}/v1", direct.port), "openai-chat", &env, |_| {})).await.unwrap();
    assert_eq!((proxy.seen().await.len(), direct.seen().await.len()), (0, 1));
    ask(&resolve("http://model.invalid/v1", "openai-chat", &env, |_| {})).await.unwrap();
    assert_eq!(proxy.seen().await[0].path, "http://model.invalid/v1/chat/completions");
    // An encrypted one asks for a tunnel, which this proxy does not give.
    let error = ask(&resolve("https://model.invalid/v1", "openai-chat", &env, |_| {})).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Transport);
    assert_eq!(proxy.seen().await[1].path, "model.invalid:443");
    // Port 9 of this machine answers nobody: the proxy is to blame, and named.
    let env = [("HTTPS_PROXY", "http://user:pass@127.0.0.1:9")];
    let error = ask(&resolve("https://model.invalid/v1", "openai-chat", &env, |_| {})).await.unwrap_err();
    let said = format!("{} {}", error.message, error.hint);
    assert!(said.contains("127.0.0.1:9") && said.contains("HTTPS_PROXY") && !said.contains("pass"), "{said}");
}
