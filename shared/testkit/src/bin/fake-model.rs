//! `fake-model --script FILE [--port N] [--log FILE]`: the scripted model server as a program.
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

Serves scripted answers of a model on 127.0.0.1, over both wires, and prints its address once it listens.

  --script FILE  what to answer (JSON; the format is documented in shared/testkit/src/model_server/script_file.rs)
  --port N       the port; without it, a free one
  --log FILE     append every request and every end of a reply to this file, one line of JSON each
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
