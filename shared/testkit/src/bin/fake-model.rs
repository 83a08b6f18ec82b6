//! `fake-model --script FILE [--port N] [--log FILE]`: the scripted model server as a program, for all five wires.
//!
//! `--help` says how clients are pointed at it.
//!
//! Prints `http://127.0.0.1:PORT` on stdout once it listens, then serves until it is stopped. The format of the script
//! is documented at `mcode_testkit::model_server::ScriptFile`'s module; every request is appended to the log as one
//! line of JSON (`"event":"request"`), and so is the end of every reply (`"event":"replied"`, same `number`, `at_us`
//! in microseconds since the start).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for tests talks on its streams")]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use mcode_testkit::ModelServer;
use mcode_testkit::model_server::ScriptFile;

const USAGE: &str = "fake-model --script FILE [--port N] [--log FILE]

Serves scripted answers of a model on 127.0.0.1, over every wire, and prints its address once it listens.

  --script FILE  what to answer (JSON; the format is documented in shared/testkit/src/model_server/script_file.rs)
  --port N       the port; without it, a free one
  --log FILE     append every request and every end of a reply to this file, one line of JSON each

The path of a request says which wire it speaks. With URL for the printed address, clients are pointed at it by
  Anthropic Messages   ANTHROPIC_BASE_URL=URL, and any ANTHROPIC_API_KEY
  Chat Completions     OPENAI_BASE_URL=URL/v1, and any OPENAI_API_KEY
  OpenAI Responses     base_url = \"URL/v1\", wire = \"openai-responses\"
  Gemini               GEMINI_BASE_URL=URL/v1beta, and any GEMINI_API_KEY
  Bedrock Converse     AWS_ENDPOINT_URL_BEDROCK_RUNTIME=URL, any AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and
                       AWS_REGION
or, for mcode, by a provider of its own in config.toml; any model will do:
  [providers.fake]
  wire = \"gemini\"            # anthropic, openai-chat, openai-responses, gemini or bedrock
  base_url = \"URL/v1beta\"
  api_key = \"any\"
Requests that the real provider would refuse get its 400, unless the script says \"validate\": false.
";

struct Arguments {
    script: PathBuf,
    port: u16,
    log: Option<PathBuf>,
}

fn arguments() -> anyhow::Result<Arguments> {
    let mut given = std::env::args().skip(1);
    let (mut script, mut port, mut log) = (None, 0, None);
    while let Some(name) = given.next() {
        let value = given.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--script" => script = Some(PathBuf::from(value)),
            "--port" => port = value.parse().with_context(|| format!("'{value}' is not a port"))?,
            "--log" => log = Some(PathBuf::from(value)),
            _ => bail!("unknown argument {name}; known are --script FILE, --port N, --log FILE"),
        }
    }
    Ok(Arguments { script: script.context("--script FILE is needed")?, port, log })
}

fn run() -> anyhow::Result<std::convert::Infallible> {
    let arguments = arguments()?;
    let script = ScriptFile::read(&arguments.script)
        .with_context(|| format!("the script {}", arguments.script.display()))?
        .script();
    let server = ModelServer::start_on(arguments.port, script, arguments.log.as_deref())
        .with_context(|| format!("cannot listen on port {} of 127.0.0.1", arguments.port))?;
    println!("http://{}", server.address());
    loop {
        std::thread::park();
    }
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help" || word == "-h") {
        return match std::io::stdout().write_all(USAGE.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("fake-model: {error:#}");
            ExitCode::FAILURE
        }
    }
}
