//! The real `mcoded` and `mcode` programs, in a home of their own.
//!
//! ```no_run
//! use mcode_testkit::{ModelServer, Reply, Script, TestDaemon, Workspace};
//! let server = ModelServer::start_blocking(Script::new().reply(Reply::text("hello")));
//! let daemon = TestDaemon::start(&server);
//! let workspace = Workspace::new();
//! let output = daemon.mcode_in(&workspace.path(), &["ask", "hi"]);
//! assert_eq!((output.code, output.stdout.as_str()), (0, "hello\n"));
//! server.finish();
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::model_server::{ModelServer, Wire};

/// How long a daemon may take to listen, and a condition to come true.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long one `mcode` may run before the test fails.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(120);
/// How often conditions outside this process are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What one `mcode` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 + signal when a signal ended it.
    pub code: i32,
    /// Its stdout as text.
    pub stdout: String,
    /// Its stderr as text.
    pub stderr: String,
}

impl Output {
    /// The JSON on stdout; panics with everything there is when it is not JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON ({error}): {self:#?}"))
    }

    /// The JSON objects on stdout, one a line.
    #[must_use]
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}\n{self:#?}"))
        };
        self.stdout.lines().map(parse).collect()
    }

    /// This output, if the status is 0; panics otherwise.
    #[must_use]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "mcode failed: {self:#?}");
        self
    }
}

/// A program under test: `$MCODE_BIN_DIR`, or the folder where cargo put it beside the test.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    program_in(&programs_dir(), name)
}

fn programs_dir() -> PathBuf {
    let given = std::env::var_os("MCODE_BIN_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let dir = test.parent().expect("a file is in a folder");
        // Tests are in `deps`, binaries one level above.
        if dir.ends_with("deps") { dir.parent().expect("deps is in a folder").to_path_buf() } else { dir.to_path_buf() }
    })
}

fn program_in(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    assert!(
        path.is_file(),
        "{} is not there: build it first (cargo build --workspace --bins), or set MCODE_BIN_DIR",
        path.display()
    );
    path
}

/// A running `mcoded` with its own `MCODE_HOME`; killed with everything it started when dropped.
pub struct TestDaemon {
    home: TempDir,
    programs: PathBuf,
    environment: BTreeMap<String, String>,
    child: Option<Child>,
}

impl TestDaemon {
    /// Starts one whose clients talk to `server`, on either wire.
    #[must_use]
    pub fn start(server: &ModelServer) -> Self {
        let mut daemon = Self::prepare();
        daemon.use_server(server);
        daemon.restart();
        daemon
    }

    /// A home without a daemon yet: for configuration that has to be there first, and for autostart.
    #[must_use]
    pub fn prepare() -> Self {
        Self::prepare_with(programs_dir())
    }

    /// [`Self::prepare`] with the programs of another folder: other builds than the test's own.
    #[must_use]
    pub fn prepare_with(programs: PathBuf) -> Self {
        // Short, since the path of a socket is limited to about 100 bytes.
        let home = tempfile::Builder::new().prefix("mc-").tempdir_in("/tmp").expect("a temporary folder can be made");
        for dir in ["user", "m/config", "m/run"] {
            fs::create_dir_all(home.path().join(dir)).expect("folders of the test home can be made");
        }
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let mut environment = BTreeMap::from([
            ("HOME".to_owned(), text(home.path().join("user"))),
            ("MCODE_HOME".to_owned(), text(home.path().join("m"))),
            ("MCODE_SOCKET".to_owned(), text(home.path().join("s"))),
            // A script would have to expect the requests for titles.
            ("MCODE_DISABLE".to_owned(), "keyring,update,titles".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
        ]);
        for name in ["PATH", "TMPDIR", "LLVM_PROFILE_FILE"] {
            if let Ok(value) = std::env::var(name) {
                environment.insert(name.to_owned(), value);
            }
        }
        Self { home, programs, environment, child: None }
    }

    /// Points clients at `server`: base URLs and keys of Anthropic and OpenAI.
    pub fn use_server(&mut self, server: &ModelServer) {
        self.set("ANTHROPIC_BASE_URL", server.base_url(Wire::Anthropic));
        self.set("ANTHROPIC_API_KEY", "test-key-anthropic");
        self.set("OPENAI_BASE_URL", server.base_url(Wire::Chat));
        self.set("OPENAI_API_KEY", "test-key-openai");
    }

    /// Sets a variable of clients, and (providers' keys and URLs excepted) of the daemon from its next start on.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.environment.insert(name.into(), value.into());
    }

    /// Takes a variable away from clients, and from the daemon from its next start on.
    pub fn unset(&mut self, name: &str) {
        self.environment.remove(name);
    }

    /// Writes the user's `config.toml`.
    pub fn write_config(&self, text: &str) {
        fs::write(self.home().join("config/config.toml"), text).expect("the configuration can be written");
    }

    /// The folder given as `MCODE_HOME`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.home.path().join("m")
    }

    /// The folder given as `HOME`.
    #[must_use]
    pub fn user_home(&self) -> PathBuf {
        self.home.path().join("user")
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        PathBuf::from(&self.environment["MCODE_SOCKET"])
    }

    /// What the daemon wrote to stderr.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("mcoded.stderr")
    }

    /// The process id of the running daemon.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon was started").id()
    }

    /// Starts the daemon; a running one is stopped first. Returns when it listens.
    pub fn restart(&mut self) {
        self.stop();
        let log = File::options().create(true).append(true).open(self.log_path()).expect("the log can be opened");
        let child = Command::new(program_in(&self.programs, "mcoded"))
            .arg("--foreground")
            .env_clear()
            // Keys and servers come from the client with each run; a daemon that needs them in its own environment
            // is broken, and must not be helped here.
            .envs(self.environment.iter().filter(|(name, _)| !belongs_to_the_client(name)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log can be shared"))
            .stderr(log)
            .spawn()
            .expect("mcoded can be started");
        self.child = Some(child);
        let deadline = Instant::now() + WAIT_MAX;
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "mcoded ended at its start ({ended:?}):\n{}", self.log());
            assert!(Instant::now() < deadline, "mcoded does not listen after {WAIT_MAX:?}:\n{}", self.log());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Asks the daemon to stop (SIGTERM) and waits until it has.
    pub fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Kills the daemon, and nothing else: what it started lives on, as after a crash.
    pub fn kill9(&mut self) {
        self.end(Signal::KILL);
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
        let deadline = Instant::now() + WAIT_MAX;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                child.kill().ok();
                child.wait().ok();
                panic!("mcoded did not stop within {WAIT_MAX:?} of {signal:?}:\n{}", self.log());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Runs `mcode` in the test user's home to its end.
    #[must_use]
    pub fn mcode(&self, arguments: &[&str]) -> Output {
        self.mcode_in(&self.user_home(), arguments)
    }

    /// Runs `mcode` in `dir` to its end.
    #[must_use]
    pub fn mcode_in(&self, dir: &Path, arguments: &[&str]) -> Output {
        self.mcode_with(dir, arguments, b"")
    }

    /// Runs `mcode` in `dir` with `input` on its stdin. Panics when it takes longer than two minutes.
    #[must_use]
    pub fn mcode_with(&self, dir: &Path, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(dir, arguments);
        // Nothing to say is not the same as an empty pipe: `ask` reads a pipe.
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut running = Running::new(command.spawn().expect("mcode can be started"));
        if let Some(mut stdin) = running.child.stdin.take() {
            stdin.write_all(input).ok();
        }
        running.output()
    }

    /// Starts `mcode` in `dir` and leaves it running.
    #[must_use]
    pub fn spawn_mcode(&self, dir: &Path, arguments: &[&str]) -> Running {
        let mut command = self.command(dir, arguments);
        command.stdin(Stdio::null());
        Running::new(command.spawn().expect("mcode can be started"))
    }

    /// A command for `mcode` with the test environment, stdout and stderr piped: for what the other methods cannot do.
    #[must_use]
    pub fn command(&self, dir: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program_in(&self.programs, "mcode"));
        command.args(arguments).env_clear().envs(&self.environment).current_dir(dir);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Resident memory of the daemon in KiB.
    #[must_use]
    pub fn rss_kb(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
    }

    /// Waits until `holds`, which looks at something outside this process; panics after 30 s with the daemon's log.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !holds() {
            assert!(
                Instant::now() < deadline,
                "waited {WAIT_MAX:?} for {what}; processes: {:?}; the daemon's log:\n{}",
                self.processes().iter().map(|pid| described(*pid)).collect::<Vec<_>>(),
                self.log()
            );
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The hosts of commands that were started by daemons of this home.
    #[must_use]
    pub fn hosts(&self) -> Vec<u32> {
        let folder = self.home().join("state/toolhosts").to_string_lossy().into_owned();
        let is_host = |pid: &u32| {
            let words = command_line(*pid);
            matches!(words.as_slice(), [program, given, ..] if program.ends_with("mcode-toolhost") && given.starts_with(&folder))
        };
        process_table().into_keys().filter(is_host).collect()
    }

    /// Processes that carry this home in their environment, hosts of its commands, and all that descend from those or
    /// from the daemon; the daemon itself left out.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let own = self.child.as_ref().map(Child::id);
        let hosts = self.hosts();
        let mark = format!("MCODE_HOME={}\0", self.home().display());
        let table = process_table();
        let mut found: Vec<u32> = Vec::new();
        for (pid, parent) in &table {
            if Some(*pid) == own || *pid == std::process::id() {
                continue;
            }
            let marked = fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.windows(mark.len()).any(|window| window == mark.as_bytes()));
            let roots = own.iter().chain(&hosts);
            if marked || hosts.contains(pid) || roots.into_iter().any(|root| descends(&table, *parent, *root)) {
                found.push(*pid);
            }
        }
        found
    }
}

/// A process in words: number, arguments, and what the kernel says that it does.
fn described(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = read("status");
    let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
    format!("{pid} {} {state} in {}", read("cmdline").replace('\0', " "), read("wchan"))
}

/// The words of a process's command line.
fn command_line(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).split('\0').map(str::to_owned).collect()
}

fn belongs_to_the_client(name: &str) -> bool {
    ["ANTHROPIC_", "OPENAI_", "GEMINI_", "AWS_", "SSL_CERT_"].iter().any(|prefix| name.starts_with(prefix))
}

/// `(pid, parent)` of every process; empty where there is no `/proc`.
fn process_table() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}

fn descends(table: &BTreeMap<u32, u32>, mut pid: u32, ancestor: u32) -> bool {
    // A chain of parents is never longer than the table.
    for _ in 0..table.len() {
        if pid == ancestor {
            return true;
        }
        match table.get(&pid) {
            Some(parent) => pid = *parent,
            None => return false,
        }
    }
    false
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        let others = self.processes();
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
        for pid in others {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        if std::thread::panicking() {
            eprintln_log(&self.log());
        }
    }
}

#[allow(clippy::print_stderr, reason = "the log of the daemon of a failed test belongs into the test's output")]
fn eprintln_log(log: &str) {
    eprintln!("--- the daemon's log ---\n{log}--- end of the daemon's log ---");
}

/// A running `mcode`; killed when dropped.
pub struct Running {
    child: Child,
    stdout: Option<std::thread::JoinHandle<Vec<u8>>>,
    stderr: Option<std::thread::JoinHandle<Vec<u8>>>,
}

impl Running {
    fn new(mut child: Child) -> Self {
        let stdout = child.stdout.take().map(read_all);
        let stderr = child.stderr.take().map(read_all);
        Self { child, stdout, stderr }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, signal).ok();
        }
    }

    /// Sends SIGINT, as Ctrl+C does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Kills it.
    pub fn kill9(&mut self) {
        self.child.kill().ok();
    }

    /// Waits for its end. Panics after two minutes.
    #[must_use]
    pub fn output(mut self) -> Output {
        use std::os::unix::process::ExitStatusExt;
        let deadline = Instant::now() + CLIENT_TIME_MAX;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().ok();
                self.child.wait().ok();
                panic!("mcode still ran after {CLIENT_TIME_MAX:?}; stderr: {}", text(self.stderr.take()));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        Output { code, stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok();
        bytes
    })
}

fn text(reader: Option<std::thread::JoinHandle<Vec<u8>>>) -> String {
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
