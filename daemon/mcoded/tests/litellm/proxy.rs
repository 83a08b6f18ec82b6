//! The proxy: installed once below the target folder, started on a free port, ended whatever happens.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// The version that is installed; another one may well behave otherwise.
const PACKAGE: &str = "litellm[proxy]==1.108.7";
/// What the proxy wants to hear.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef0123456789abcdef";
/// How long the installation may take.
const INSTALL_MAX: Duration = Duration::from_secs(900);
/// How long the proxy may take to listen: it imports half of PyPI.
const START_MAX: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Runs `command` to its end; panics when that takes too long or fails.
fn run(command: &mut Command, most: Duration) {
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn().unwrap();
    let deadline = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{command:?} ended with {status}");
            return;
        }
        if Instant::now() > deadline {
            end(&mut child);
            panic!("{command:?} took more than {most:?}");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Ends a child and all that it started.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).ok();
    }
    child.wait().ok();
}

/// The folder with the programs of LiteLLM.
fn installed() -> PathBuf {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("litellm-venv");
    let mark = venv.join("installed");
    if fs::read_to_string(&mark).is_ok_and(|package| package == PACKAGE) {
        return venv.join("bin");
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv), INSTALL_MAX);
    run(Command::new(venv.join("bin/pip")).args(["install", "-q", PACKAGE]), INSTALL_MAX);
    fs::write(mark, PACKAGE).unwrap();
    venv.join("bin")
}

/// A running proxy; ended when dropped.
pub(crate) struct Proxy {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

impl Proxy {
    /// Starts one with this configuration and waits until it answers.
    pub(crate) fn start(config: &str) -> Self {
        let programs = installed();
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.yaml"), config).unwrap();
        // Free now; that somebody takes it in between is told by the proxy's end.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = File::create(home.path().join("log")).unwrap();
        let child = Command::new(programs.join("litellm"))
            .args(["--config", "config.yaml", "--host", "127.0.0.1", "--port", &port.to_string()])
            .env_clear()
            .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
            .env("HOME", home.path())
            // Prices would be fetched from the network.
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut proxy = Self { child, port, home };
        let deadline = Instant::now() + START_MAX;
        while !proxy.answers() {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "the proxy ended at its start ({ended:?}):\n{}", proxy.log());
            assert!(Instant::now() < deadline, "the proxy does not answer after {START_MAX:?}:\n{}", proxy.log());
            std::thread::sleep(LOOK_AGAIN);
        }
        proxy
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let request = "GET /health/liveliness HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it wrote, for messages of failed tests.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}
