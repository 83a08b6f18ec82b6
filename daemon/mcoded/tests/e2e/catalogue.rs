//! The catalogue on demand, providers, and servers on this machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use mcode_testkit::{Reply, Script};
use serde_json::{Value, json};

use crate::answering::client;
use crate::setup::Stage;

/// A server that answers every path, and what it was asked.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    /// `answer` gives a status, further head lines and a body for a path.
    pub(crate) fn serve(answer: impl Fn(&str) -> (u16, &'static str, Vec<u8>) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { return };
                let head = head(&mut client);
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().unwrap().push(path.clone());
                let (status, lines, body) = answer(&path);
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{lines}connection: close\r\n\r\n",
                    body.len()
                );
                // Whoever has seen enough hangs up.
                client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body)).ok();
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn head(client: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn listed(stage: &Stage, model: &str) -> Option<Value> {
    let list = stage.json(&["models", "list", "--limit", "500"]);
    list["models"].as_array().unwrap().iter().find(|row| row["model"] == model).cloned()
}

fn list_of(models: &Value) -> Vec<u8> {
    json!({"anthropic": {"npm": "@ai-sdk/anthropic", "models": models}}).to_string().into_bytes()
}

#[test]
fn a_newer_catalogue_is_fetched_only_when_asked_for_and_kept() {
    let models = json!({"claude-next": {"name": "Next", "limit": {"context": 777_000, "output": 9000}, "cost": {"input": 7, "output": 70}},
        "claude-opus-5": {"limit": {"context": 5000, "output": 400}, "cost": {"input": 0, "output": 0}},
        "odd": {"limit": {"context": 10, "output": 5}, "cost": {"input": -1, "output": 1}}});
    let web = Web::serve(move |_| (200, "", list_of(&models)));
    let mut stage = Stage::new(Script::new());
    assert_eq!(listed(&stage, "anthropic/claude-next"), None);
    assert!(web.asked().is_empty());
    let from = format!("http://{}/api.json?key=hidden", web.address);
    let refreshed = stage.json(&["models", "refresh", "--from", &from]);
    assert_eq!((&refreshed["added"], &refreshed["left_out"]), (&json!(1), &json!(1)), "{refreshed}");
    let source = format!("http://{}/api.json", web.address);
    assert_eq!(refreshed["catalogue"]["source"], json!(source));
    // What a limit of money rests on is not given away.
    assert_eq!(listed(&stage, "anthropic/claude-opus-5").unwrap()["input_usd_per_mtok"], 5);
    stage.daemon.restart();
    let next = listed(&stage, "anthropic/claude-next").expect("it is kept");
    assert_eq!((&next["context_tokens"], &next["output_usd_per_mtok"]), (&json!(777_000), &json!(70)));
    assert!(stage.mcode(&["models", "list"]).ok().stdout.contains(&source));
    let doctor = stage.mcode(&["doctor", "--output", "json"]).json();
    let check =
        doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "catalogue").unwrap().clone();
    assert!(check["found"].as_str().unwrap().contains(&source), "{check}");
    assert_eq!(web.asked(), ["/api.json?key=hidden"]);
    // A file does as well, and a damaged one is told and not used.
    stage.workspace.write(
        "list.json",
        String::from_utf8(list_of(&json!({"claude-file": {"limit": {"context": 9, "output": 5}}}))).unwrap(),
    );
    stage.mcode(&["models", "refresh", "--from", "list.json"]).ok();
    assert!(listed(&stage, "anthropic/claude-file").is_some() && listed(&stage, "anthropic/claude-next").is_none());
    std::fs::write(stage.daemon.home().join("data/catalogue.json"), "{\"source\": 5").unwrap();
    stage.daemon.restart();
    let list = stage.json(&["models", "list"]);
    assert!(list["catalogue"]["problem"].as_str().unwrap().contains("damaged"), "{}", list["catalogue"]);
    assert!(listed(&stage, "anthropic/claude-file").is_none() && listed(&stage, "anthropic/claude-opus-5").is_some());
    stage.server.finish();
}

/// The proxy of the client who asks is used, not that of the daemon.
#[test]
fn a_catalogue_is_fetched_through_the_clients_proxy() {
    let models = json!({"claude-next": {"limit": {"context": 9, "output": 5}}});
    let proxy = Web::serve(move |_| (200, "", list_of(&models)));
    let mut stage = Stage::new(Script::new());
    stage.daemon.set("HTTP_PROXY", format!("http://{}", proxy.address));
    stage.mcode(&["models", "refresh", "--from", "http://catalogue.invalid/api.json"]).ok();
    assert_eq!(proxy.asked(), ["http://catalogue.invalid/api.json"]);
    assert!(listed(&stage, "anthropic/claude-next").is_some());
    stage.server.finish();
}

#[test]
fn what_is_no_catalogue_changes_nothing() {
    let stage = Stage::new(Script::new());
    let before = stage.json(&["models", "list"]);
    let large = || vec![b' '; 33 * 1024 * 1024];
    let cases: Vec<(u16, &'static str, Vec<u8>, &str)> = vec![
        (200, "", b"<html>down</html>".to_vec(), "no list of models"),
        (200, "", b"{\"p\": {\"models\": {\"m\": {\"cost\": {\"input\": NaN}}}}}".to_vec(), "no list of models"),
        (200, "", b"{}".to_vec(), "no model in this list"),
        (200, "", vec![0xff, 0xfe], "no text"),
        (302, "location: http://127.0.0.1:1/x\r\n", Vec::new(), "status 302"),
        (500, "", b"x".to_vec(), "status 500"),
        (200, "", large(), "larger than 32 MB"),
    ];
    for (status, lines, body, words) in cases {
        let web = Web::serve(move |_| (status, lines, body.clone()));
        let output = stage.mcode(&["models", "refresh", "--from", &format!("http://{}/", web.address)]);
        assert_eq!((output.code, output.stdout.as_str()), (5, ""), "{output:#?}");
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
    // A pipe that nobody writes into holds up nobody.
    crate::setup::script(&stage.workspace.path(), "mkfifo pipe");
    let wrong = [
        ("missing.json", "can not be read"),
        ("ftp://h/x", "http or https"),
        (".", "it is a folder"),
        ("pipe", "no regular file"),
        ("/dev/zero", "no regular file"),
    ];
    for (from, words) in wrong {
        let output = stage.mcode(&["models", "refresh", "--from", from]);
        assert!(output.code == 5 && output.stderr.contains(words), "{output:#?}");
    }
    assert_eq!(stage.json(&["models", "list"]), before);
    assert!(!stage.daemon.home().join("data/catalogue.json").exists());
    stage.server.finish();
}

/// Programs of tool calls choose no models, fetch nothing and add no providers.
#[test]
fn changes_are_for_people() {
    let verbs = [
        "models refresh --from list.json",
        "models use a/b",
        "providers add x --wire openai-chat --base-url http://127.0.0.1:1/v1",
        "providers remove x",
        "providers scan",
        "packs create x build=a/b",
        "packs set x build=a/b",
        "packs delete x",
        "packs use --none",
        "config set limits.max_cost_per_day 99999",
        "config unset sandbox.enabled",
    ];
    // Without the sandbox, which keeps commands from the socket altogether.
    let stage = Stage::configured(Script::new(), "[sandbox]\nenabled = false\n");
    stage.workspace.write("list.json", "{}");
    let config = || std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    let before = config();
    let mcode = client(&stage);
    let calls = verbs.iter().map(|verb| ("shell", json!({"command": format!("{mcode} {verb}")})));
    stage.server.push(Reply::tool_calls(calls));
    stage.server.push(Reply::text("they do not let me"));
    stage.ask(&["--yolo", "go"]).ok();
    let told = stage.server.request(2).tool_results();
    assert_eq!(told.len(), verbs.len());
    for (verb, (_, told, _)) in verbs.iter().zip(&told) {
        assert!(told.contains("is for people"), "{verb}: {told}");
    }
    assert_eq!(config(), before);
    stage.server.finish();
}

#[test]
fn providers_are_declared_used_and_removed_with_their_files_comments() {
    let stage = Stage::configured(Script::new().reply(Reply::text("hello")), "# mine\nfallback = [] # none\n");
    let url = stage.server.base_url(mcode_testkit::Wire::Chat);
    let add = ["providers", "add", "mine", "--wire", "openai-chat", "--base-url", &url, "--api-key", "env:MINE_KEY"];
    stage.mcode(&[&add[..], &["--model", "m:1", "--context", "9000"]].concat()).ok();
    let text = std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    assert!(text.starts_with("# mine\nfallback = [] # none\n") && text.contains("[providers.mine]"), "{text}");
    let providers = stage.json(&["providers", "list"]);
    let row = providers["providers"].as_array().unwrap().iter().find(|row| row["provider"] == "mine").unwrap().clone();
    assert_eq!((&row["configured"], &row["usable"], &row["models"]), (&json!(true), &json!(false), &json!(1)));
    assert!(row["key_source"].as_str().unwrap().contains("MINE_KEY"), "{row}");
    assert_eq!(listed(&stage, "mine/m:1").unwrap()["context_tokens"], 9000);
    let mut keyed = stage;
    keyed.daemon.set("MINE_KEY", "test-key-mine");
    assert_eq!(keyed.ask(&["-m", "mine/m:1", "hi"]).ok().stdout, "hello\n");
    let again = keyed.mcode(&add);
    assert!(again.code == 2 && again.stderr.contains("already"), "{again:#?}");
    for (words, said) in [
        (&["providers", "add", "Bad Name", "--wire", "gemini", "--base-url", "http://h"][..], "small letters"),
        (&["providers", "add", "x", "--base-url", "http://h"], "wire"),
        (&["providers", "add", "x", "--wire", "gemini", "--base-url", "http://u:p@h"], "password"),
        (
            &["providers", "add", "x", "--wire", "gemini", "--base-url", "http://h", "--api-key", "sk-12345"],
            "env:MY_KEY",
        ),
        (&["providers", "remove", "groq"], "names no provider"),
    ] {
        let output = keyed.mcode(words);
        assert!(output.code == 2 && output.stderr.contains(said), "{words:?}: {output:#?}");
        assert!(!output.stderr.contains("sk-12345"));
    }
    keyed.mcode(&["providers", "remove", "mine"]).ok();
    let text = std::fs::read_to_string(keyed.daemon.home().join("config/config.toml")).unwrap();
    assert!(text.starts_with("# mine\nfallback = [] # none\n") && !text.contains("providers"), "{text}");
    keyed.server.finish();
}

/// Servers are looked for only when asked; what they say is bounded and made harmless.
#[test]
fn servers_on_this_machine_are_found() {
    let ollama = Web::serve(|path| {
        let body = match path {
            "/api/tags" => {
                json!({"models": [{"name": "qwen3:8b"}, {"name": "evil\u{1b}[31m"}, {"name": "$(touch x)"}]})
            }
            _ => json!({"parameters": "num_ctx 8192\nstop x"}),
        };
        (200, "", body.to_string().into_bytes())
    });
    let llama = Web::serve(|path| {
        let body = match path {
            "/v1/models" => json!({"data": [{"id": "gpt-oss"}]}),
            _ => json!({"default_generation_settings": {"n_ctx": 4096}}),
        };
        (200, "", body.to_string().into_bytes())
    });
    let huge = Web::serve(|_| (200, "", vec![b'['; 2 * 1024 * 1024]));
    // Something that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stage = Stage::new(Script::new());
    let v1 = |address: SocketAddr| format!("http://{address}/v1");
    stage.daemon.set("OLLAMA_HOST", ollama.address.to_string());
    stage.daemon.set("LLAMACPP_BASE_URL", v1(llama.address));
    stage.daemon.set("LMSTUDIO_BASE_URL", v1(huge.address));
    stage.daemon.set("VLLM_BASE_URL", v1(silent.local_addr().unwrap()));
    stage.mcode(&["models", "list"]).ok();
    stage.mcode(&["providers", "list"]).ok();
    assert!(ollama.asked().is_empty() && llama.asked().is_empty());
    let found = stage.json(&["providers", "scan"]);
    let server = |name: &str| found["servers"].as_array().unwrap().iter().find(|row| row["provider"] == name).unwrap();
    assert_eq!(server("ollama")["models"], json!([{"id": "qwen3:8b", "context_tokens": 8192, "max_output_tokens": 0}]));
    assert_eq!(server("llamacpp")["models"][0]["context_tokens"], 4096);
    assert!(server("lmstudio")["problem"].as_str().unwrap().contains("more than"), "{}", server("lmstudio"));
    assert!(server("vllm")["problem"].as_str().unwrap().contains("within"), "{}", server("vllm"));
    let shown = stage.mcode(&["providers", "scan", "--add"]).ok().stdout;
    assert!(shown.contains("mcode ask -m ollama/qwen3:8b") && !shown.contains('\u{1b}'), "{shown}");
    assert_eq!(listed(&stage, "ollama/qwen3:8b").unwrap()["context_tokens"], 8192);
    assert_eq!(listed(&stage, "llamacpp/gpt-oss").unwrap()["context_tokens"], 4096);
    // What is there already is not written again.
    let text = || std::fs::read_to_string(stage.daemon.home().join("config/config.toml")).unwrap();
    let once = text();
    stage.mcode(&["providers", "scan", "--add"]).ok();
    assert_eq!(text(), once);
    stage.server.finish();
}
