//! What the tests of this binary share: a server, a daemon, a repository, and words for what they do.

use std::path::Path;
use std::process::Command;

use mcode_client::{Client, ConnectOptions};
use mcode_testkit::{ModelServer, Output, Script, TestDaemon, Wire, Workspace};
use serde_json::Value;

/// A model of the Anthropic wire.
pub(crate) const MESSAGES: &str = "anthropic/claude-sonnet-5";
/// A model of the Chat wire.
pub(crate) const CHAT: &str = "openai/gpt-5.5";

/// The model of [`Stage::reached_by_itself`].
pub(crate) const OWN: &str = "mine/one";

/// A picture of one pixel.
pub(crate) const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0, 0, 1, 8,
    6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0,
    0xf0, 0x1f, 0, 5, 0, 1, 0xff, 0x89, 0x99, 0x3d, 0x1d, 0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// A server with a script, a daemon whose clients talk to it, and a repository.
pub(crate) struct Stage {
    pub(crate) server: ModelServer,
    pub(crate) daemon: TestDaemon,
    pub(crate) workspace: Workspace,
}

/// A run that goes on without its client.
pub(crate) struct Detached {
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
}

impl Stage {
    pub(crate) fn new(script: Script) -> Self {
        Self::configured(script, "")
    }

    /// With this `config.toml`.
    pub(crate) fn configured(script: Script, config: &str) -> Self {
        let server = ModelServer::start_blocking(script);
        let mut daemon = TestDaemon::prepare();
        daemon.use_server(&server);
        daemon.write_config(config);
        daemon.restart();
        Self { server, daemon, workspace: Workspace::with_files([("f.txt", "one\ntwo\n")]) }
    }

    /// With a server that the daemon's own configuration names, as [`OWN`]: no client has to bring anything.
    pub(crate) fn reached_by_itself(script: Script) -> Self {
        let mut stage = Self::new(script);
        let url = stage.server.base_url(Wire::Chat);
        stage.daemon.write_config(&format!(
            "[providers.mine]\nwire = \"openai-chat\"\nbase_url = \"{url}\"\napi_key = \"test-key-own\"\n\
             models = [{{ id = \"one\", context = 100000, max_output = 1000 }}]\n"
        ));
        stage.daemon.restart();
        stage
    }

    /// `mcode ask` in the repository; the Anthropic wire unless the words say otherwise.
    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        self.mcode(&ask_words(words))
    }

    pub(crate) fn mcode(&self, words: &[&str]) -> Output {
        self.daemon.mcode_in(&self.workspace.path(), words)
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--output", "json"]).collect();
        self.mcode(&words).ok().json()
    }

    pub(crate) fn detach(&self, words: &[&str]) -> Detached {
        let words: Vec<&str> = words.iter().copied().chain(["--detach", "--output", "json"]).collect();
        let value = self.ask(&words).ok().json();
        Detached { thread_id: text(&value["thread_id"]), run_id: text(&value["run_id"]) }
    }

    /// All events of the thread, as soon as it is idle.
    pub(crate) fn events(&self, thread_id: &str) -> Vec<Value> {
        self.mcode(&["watch", thread_id, "--after", "0", "--until-idle", "--output", "jsonl"]).ok().json_lines()
    }

    pub(crate) fn run(&self, run_id: &str) -> Value {
        self.json(&["runs", "show", run_id])["run"].clone()
    }

    /// The first thing that waits in a list of what waits.
    pub(crate) fn waiting(&self, list: &str) -> Value {
        let mut first = Value::Null;
        self.daemon.wait_until("something waits for the user", || {
            first = self.json(&["approvals", "list"])[list][0].clone();
            !first.is_null()
        });
        first
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.workspace.join(path).exists()
    }

    /// Ends a command that waits for the file `go`.
    pub(crate) fn go(&self) {
        self.workspace.write("go", "");
    }

    /// A typed client on a runtime of its own.
    pub(crate) fn client(&self) -> (tokio::runtime::Runtime, Client) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = ConnectOptions {
            socket: Some(self.daemon.socket()),
            autostart: false,
            dirs: mcode_env::Dirs::under(&self.daemon.home()),
            start: mcode_endpoint::StartOptions::default(),
        };
        let client = runtime.block_on(Client::connect(options)).unwrap();
        (runtime, client)
    }
}

pub(crate) fn ask_words<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let named = words.iter().any(|word| matches!(*word, "-m" | "-t" | "-c"));
    let model: &[&str] = if named { &[] } else { &["-m", MESSAGES] };
    ["ask"].iter().chain(model).chain(words).copied().collect()
}

/// A command that says it has begun and waits for the file `go`.
pub(crate) const WAIT_FOR_GO: &str = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo went";

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

pub(crate) fn types(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["type"].as_str()).collect()
}

pub(crate) fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The text of an item as its deltas give it; they have to fit together.
pub(crate) fn joined(lines: &[Value], kind: &str, item_id: &Value) -> String {
    let mut whole = String::new();
    for delta in of_type(lines, kind).into_iter().filter(|line| line["item_id"] == *item_id) {
        let offset = delta["offset"].as_u64().unwrap_or_else(|| delta["offset"].as_str().unwrap().parse().unwrap());
        assert_eq!(offset, whole.len() as u64, "{delta}");
        whole.push_str(delta["text"].as_str().unwrap());
    }
    whole
}

pub(crate) fn process_is_there(pid: &str) -> bool {
    let state = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// Runs a shell script of the test itself.
pub(crate) fn script(dir: &Path, text: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(text).current_dir(dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
