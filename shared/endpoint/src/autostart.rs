//! Starting the daemon when none answers.
//!
//! Probe, take the start lock, probe again, start, wait until the health service says "serving". However many clients
//! do this at once, one of them starts one daemon and the others find it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use mcode_env::Dirs;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::connect::{ConnectError, connect, health};
use crate::error::EndpointError;
use crate::lock::{self, PAUSE_MAX, PAUSE_MIN};
use crate::socket::SocketPath;

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as os;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as os;

/// How long a daemon may take until it serves. It waits itself for one that is about to end.
pub const START_TIMEOUT: Duration = Duration::from_secs(40);
/// Most bytes of the daemon's last words that are shown.
pub const START_LOG_BYTES_MAX: u64 = 2048;
/// File name of the daemon's binary, without the system's suffix.
const DAEMON: &str = "mcoded";
/// File in the state directory that takes what a starting daemon writes.
const START_LOG: &str = "mcoded.start.log";

/// Variables that a daemon is started with. Keys and all else belong to the client that asks, run by run.
const VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "RUST_BACKTRACE",
    "SYSTEMROOT",
    "WINDIR",
    "SYSTEMDRIVE",
    "USERPROFILE",
    "USERNAME",
    "HOMEDRIVE",
    "HOMEPATH",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "TEMP",
    "TMP",
    "COMSPEC",
    "PATHEXT",
];
/// Beginnings of further such variables.
const VARIABLE_PREFIXES: &[&str] = &["XDG_", "MCODE_", "LC_"];
/// `MCODE_` variables that are meant for one run.
const VARIABLES_OF_A_RUN: &[&str] = &["MCODE_MODEL", "MCODE_APPROVE", "MCODE_TOOL_CALL_ID"];

/// The mark of what a tool call has started.
const TOOL_CALL_VARIABLE: &str = "MCODE_TOOL_CALL_ID";

/// How to start.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The binary; by default `mcoded` beside our own executable, then on `PATH`.
    pub program: Option<PathBuf>,
    /// How long it may take until the daemon serves.
    pub timeout: Duration,
    /// The environment that the daemon's own is picked from; by default that of this process.
    pub env: Option<BTreeMap<String, String>>,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self { program: None, timeout: START_TIMEOUT, env: None }
    }
}

/// There is no daemon and none could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The binary was not found.
    #[error("the program '{DAEMON}' is neither beside {} nor on PATH", beside.display())]
    NoProgram {
        /// Where it was looked for first.
        beside: PathBuf,
    },
    /// Whoever asks was started by a tool call: its daemon would end with that call.
    #[error("no daemon runs, and a program that a tool call has started may not start one")]
    ToolCall,
    /// The binary could not be run.
    #[error("cannot start {}", program.display())]
    Spawn {
        /// The binary.
        program: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The daemon ended before it served.
    #[error("the daemon ended while starting ({status}){}", last_words(output))]
    Ended {
        /// How it ended; its code is an exit status of interface.md section 3.
        status: ExitStatus,
        /// The end of what it wrote.
        output: String,
    },
    /// The daemon did not serve in time.
    #[error("the daemon did not become ready within {} s{}", waited.as_secs(), last_words(output))]
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// The end of what it wrote.
        output: String,
    },
    /// There is something at the socket, but it can not be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No place for the socket or its locks.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

fn last_words(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

/// A channel to a daemon that serves, which is started if need be.
///
/// # Errors
/// See [`StartError`].
pub async fn connect_or_start(socket: &SocketPath, dirs: &Dirs, options: &StartOptions) -> Result<Channel, StartError> {
    if let Some(channel) = probe(socket).await? {
        return Ok(channel);
    }
    if os::is_of_a_tool_call(TOOL_CALL_VARIABLE) {
        return Err(StartError::ToolCall);
    }
    let deadline = Instant::now() + options.timeout;
    socket.create_directory()?;
    let _start_lock = lock::lock_within(socket.start_lock_file(), options.timeout).await?;
    if let Some(channel) = probe(socket).await? {
        return Ok(channel);
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => find_program()?,
    };
    let mut log = StartLog::create(&dirs.state);
    let child = spawn(&program, socket, options.env.clone().unwrap_or_else(mcode_env::process::vars), &log)?;
    wait_until_ready(socket, child, deadline, options.timeout, &mut log).await
}

/// A ready channel; `None` when there is no daemon, or one that is on its way up or down.
async fn probe(socket: &SocketPath) -> Result<Option<Channel>, ConnectError> {
    match connect(socket).await {
        Ok(channel) => match health(&channel).await {
            Ok(true) => Ok(Some(channel)),
            Ok(false) => Ok(None),
            Err(status) => match status.code() {
                // The connection broke: a daemon that ends.
                tonic::Code::Unavailable | tonic::Code::Cancelled => Ok(None),
                _ if crate::connect::broke_off(&status) => Ok(None),
                tonic::Code::DeadlineExceeded => Err(ConnectError::Timeout {
                    path: socket.address().to_path_buf(),
                    waited: crate::connect::HEALTH_TIMEOUT,
                }),
                _ => Err(ConnectError::Refused { path: socket.address().to_path_buf(), source: status.into() }),
            },
        },
        Err(ConnectError::NotRunning(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn wait_until_ready(
    socket: &SocketPath,
    mut child: Child,
    deadline: Instant,
    timeout: Duration,
    log: &mut StartLog,
) -> Result<Channel, StartError> {
    let mut pause = PAUSE_MIN;
    loop {
        // Asked before the probe: a daemon that gave way to another one leaves that other one to be found.
        let ended = child.try_wait().ok().flatten();
        if let Some(channel) = probe(socket).await? {
            return Ok(channel);
        }
        if let Some(status) = ended {
            return Err(StartError::Ended { status, output: log.tail() });
        }
        if Instant::now() >= deadline {
            return Err(StartError::Timeout { waited: timeout, output: log.tail() });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// `mcoded` beside our own executable, else on `PATH`.
///
/// # Errors
/// [`StartError::NoProgram`] naming the first place.
pub fn find_program() -> Result<PathBuf, StartError> {
    let name = format!("{DAEMON}{}", std::env::consts::EXE_SUFFIX);
    let own = mcode_env::process::current_exe().unwrap_or_default();
    let own = own.canonicalize().unwrap_or(own);
    let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
    let path = mcode_env::process::var("PATH").unwrap_or_default();
    std::iter::once(beside.clone())
        .chain(std::env::split_paths(&path))
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(&name))
        .find(|candidate| os::is_program(candidate))
        .ok_or(StartError::NoProgram { beside })
}

#[allow(clippy::disallowed_methods, reason = "the client starts the daemon itself; there is no sandbox to ask yet")]
fn spawn(
    program: &Path,
    socket: &SocketPath,
    env: BTreeMap<String, String>,
    log: &StartLog,
) -> Result<Child, StartError> {
    let mut command = Command::new(program);
    command
        .arg("--socket")
        .arg(socket.address())
        .env_clear()
        .envs(environment(env))
        .current_dir(os::ROOT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.stdio());
    os::detach(&mut command);
    command.spawn().map_err(|source| StartError::Spawn { program: program.to_path_buf(), source })
}

fn environment(all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let wanted = |name: &str| {
        let name = if cfg!(windows) { name.to_ascii_uppercase() } else { name.to_owned() };
        VARIABLES.contains(&name.as_str())
            || (VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                && !VARIABLES_OF_A_RUN.contains(&name.as_str()))
    };
    all.into_iter().filter(|(name, _)| wanted(name)).collect()
}

/// What the starting daemon writes to its standard error; absent when there is no place for it.
#[derive(Debug)]
struct StartLog(Option<File>);

impl StartLog {
    fn create(state: &Path) -> Self {
        let open = || {
            mcode_env::files::create_private_dir(state)?;
            File::options().create(true).truncate(true).read(true).write(true).open(state.join(START_LOG))
        };
        Self(open().ok())
    }

    fn stdio(&self) -> Stdio {
        self.0.as_ref().and_then(|file| file.try_clone().ok()).map_or_else(Stdio::null, Stdio::from)
    }

    /// The last [`START_LOG_BYTES_MAX`] bytes.
    fn tail(&mut self) -> String {
        let Some(file) = &mut self.0 else { return String::new() };
        let mut bytes = Vec::new();
        let length = file.metadata().map_or(0, |meta| meta.len());
        let from = SeekFrom::Start(length.saturating_sub(START_LOG_BYTES_MAX));
        match file.seek(from).and_then(|_| file.take(START_LOG_BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn keys_stay_with_the_client() {
        let names = ["HOME", "PATH", "XDG_RUNTIME_DIR", "MCODE_HOME", "LC_ALL", "MCODE_LOG"];
        let kept_back =
            ["ANTHROPIC_API_KEY", "HTTPS_PROXY", "MCODE_MODEL", "MCODE_APPROVE", "LD_PRELOAD", "SSH_AUTH_SOCK"];
        let all = names.iter().chain(&kept_back).map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        let mut kept: Vec<String> = environment(all).into_keys().collect();
        kept.sort_unstable();
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort_unstable();
        assert_eq!(kept, names);
    }

    #[test]
    fn only_the_end_of_long_last_words_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = StartLog::create(dir.path());
        let text = format!("{}END\n", "x".repeat(10_000));
        log.0.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        let tail = log.tail();
        assert!(tail.ends_with("END") && tail.len() < START_LOG_BYTES_MAX as usize, "{}", tail.len());
    }
}
