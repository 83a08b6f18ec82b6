//! A place to break out of, and how harm is seen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::Instant;

use mcode_sandbox::{CommandSpec, Denied, LocalRunner, Network, Policy, Quotas, Watch};

/// What no sandboxed command may print.
pub(crate) const SECRET: &str = "s3cr3t-of-the-user";
/// Settings of a repository that name things in the project, one of which is not there.
const NAMING: &str = "[core]\n\tbare = false\n\thooksPath = own\n[include]\n\tpath = ../later\n\
                      [filter \"f\"]\n\tclean = sh ./tool.sh %f\n";
/// What a command prints when it did what it must not.
const BROKEN: &str = "BROKEN";
/// How long a signal may take to end a process.
const SIGNAL_TIME: Duration = Duration::from_millis(500);
const TIME_MAX: Duration = Duration::from_secs(30);

/// What holds a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Landlock and seccomp, whether or not there are namespaces.
    Always,
    /// Only namespaces.
    WithNamespaces,
    /// Only a mount namespace; without one it is told afterwards.
    WithNamespacesElseTold,
    /// A control group, or a user namespace of somebody other than root.
    WithProcessLimit,
    /// A control group.
    WithMemoryLimit,
}

/// One way out.
#[derive(Debug)]
pub(crate) struct Try {
    pub(crate) name: &'static str,
    pub(crate) held: Held,
    /// With the network denied.
    pub(crate) offline: bool,
    /// Does harm only as root; nobody else is tempted.
    pub(crate) root: bool,
    pub(crate) shell: Script,
}

#[derive(Debug)]
pub(crate) enum Script {
    Shell(&'static str),
    Python(&'static str),
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) harmed: bool,
    /// What the watch told of it.
    pub(crate) told: Vec<PathBuf>,
    pub(crate) output: String,
}

/// The interpreter itself, past any wrapper of a version manager.
static PYTHON: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(output.expect("python3 is needed").stdout).unwrap().trim().to_owned()
});

/// `w` is writable, `out` is not, `hid` can not be read; sockets and a process are there to be reached.
pub(crate) struct Stage {
    _kept: tempfile::TempDir,
    root: PathBuf,
    outsider: Child,
    tcp: TcpListener,
    udp: UdpSocket,
    sockets: Vec<UnixListener>,
    abstract_name: String,
    shared: PathBuf,
    /// With deny rules on files in `w`.
    pub(crate) rules: bool,
}

impl Drop for Stage {
    fn drop(&mut self) {
        std::fs::remove_file(&self.shared).ok();
        self.outsider.kill().ok();
        self.outsider.wait().ok();
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let kept = tempfile::Builder::new().prefix("mcode-escape-").tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        for folder in [
            "w/.git/hooks",
            "w/.git/objects",
            "w/.git/refs/heads",
            "w/.mcode",
            "w/vendor/sub/.git/hooks",
            "w/vendor/sub/.git/objects",
            "w/vendor/sub/.git/refs",
            "w/vendor/sub/own",
            "w/tmp",
            "w/conf/deep",
            "w/kept",
            "out/dir",
            "hid",
            "run",
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (name, content) in [
            ("w/mine", "mine"),
            ("w/.git/HEAD", "ref: refs/heads/main\n"),
            ("w/.git/config", "[core]\n\tbare = false\n"),
            ("w/.git/hooks/pre-commit", "#!/bin/sh\n"),
            ("w/.mcode/config.toml", "model = \"a/b\"\n"),
            ("w/vendor/sub/.git/HEAD", "ref: refs/heads/main\n"),
            ("w/vendor/sub/.git/config", NAMING),
            ("w/vendor/sub/own/post-merge", "true\n"),
            ("w/vendor/sub/tool.sh", "cat\n"),
            ("out/file", "of the user\n"),
            ("out/dir/below", "of the user\n"),
            ("hid/secret", SECRET),
            ("w/.env", SECRET),
            ("w/conf/deep/.env", SECRET),
            ("w/conf/key.pem", SECRET),
            ("w/read.sh", "cat .env conf/key.pem"),
            ("w/write.sh", "echo x >> kept/file"),
            ("w/Makefile", "read:\n\t@cat .env\nwrite:\n\t@echo x >> kept/file\n"),
            ("w/kept/file", "of the user\n"),
            ("w/lock", "of the user\n"),
        ] {
            std::fs::write(root.join(name), content).unwrap();
        }
        std::os::unix::fs::symlink(root.join("hid/secret"), root.join("out/link")).unwrap();
        std::fs::hard_link(root.join("w/conf/key.pem"), root.join("w/another")).unwrap();
        std::fs::hard_link(root.join("w/lock"), root.join("w/lock-too")).unwrap();
        std::os::unix::fs::symlink("conf/key.pem", root.join("w/link")).unwrap();
        let outsider = Command::new("sleep").arg("600").env("OUTSIDER", SECRET).stdin(Stdio::null()).spawn().unwrap();
        let abstract_name = format!("mcode-escape-{}", outsider.id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let sockets =
            vec![UnixListener::bind(root.join("run/d.sock")).unwrap(), UnixListener::bind_addr(&address).unwrap()];
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let shared = Path::new("/dev/shm").join(&abstract_name);
        std::fs::write(&shared, SECRET).unwrap();
        Self { _kept: kept, root, outsider, tcp, udp, sockets, abstract_name, shared, rules: false }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn policy(&self) -> Policy {
        let policy = Policy {
            write: vec![self.path("w")],
            hidden: vec![self.path("hid")],
            shown: Vec::new(),
            fixed: ["w/.git/hooks", "w/.git/config", "w/.mcode"].map(|name| self.path(name)).to_vec(),
            projects: vec![self.path("w")],
            pinned: Vec::new(),
            absent: Vec::new(),
            sockets: vec![self.path("run/d.sock")],
            network: Network::Allow,
            temp: self.path("w/tmp"),
            quotas: Quotas { processes: 64, file_bytes: 16 << 20, memory_bytes: 256 << 20 },
            without_namespaces: false,
        };
        let policy = policy.with_repositories();
        if self.rules { policy.with_denied(&self.denied()) } else { policy }
    }

    /// `view(**/.env)`, `view(conf/*.pem)`, `edit(kept/**)` and `edit(lock)`.
    pub(crate) fn denied(&self) -> Denied {
        let glob = |name: &str| self.path(name).display().to_string();
        let view = ["/**/.env".to_owned(), glob("w/conf/*.pem")];
        Denied::of(&view, &[glob("w/kept/**"), glob("w/lock")], &[self.path("w")], false)
    }

    pub(crate) fn spec(&self, argv: Vec<String>, policy: Option<Policy>) -> CommandSpec {
        let path = |name: &str| self.path(name).display().to_string();
        let env = BTreeMap::from([
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned()),
            ("W", path("w")),
            ("OUT", path("out")),
            ("HID", path("hid")),
            ("SOCK", path("run/d.sock")),
            ("TMPDIR", path("w/tmp")),
            ("ABSTRACT", self.abstract_name.clone()),
            ("SHARED", self.shared.display().to_string()),
            ("OUTSIDER", self.outsider.id().to_string()),
            ("DAEMON", std::process::id().to_string()),
            ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
            ("UDP", self.udp.local_addr().unwrap().port().to_string()),
            ("PYTHON", PYTHON.clone()),
        ]);
        CommandSpec {
            argv,
            cwd: self.path("w"),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            stdin: false,
            umask: Some(0o022),
            policy: policy.map(Arc::new),
        }
    }

    /// Runs a command to its end.
    pub(crate) async fn output(&self, argv: Vec<String>, policy: Option<Policy>) -> (String, Option<i32>) {
        let mut child = LocalRunner.spawn(&self.spec(argv, policy)).unwrap_or_else(|error| panic!("{error:?}"));
        let mut output = child.take_output().unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
        let read = async {
            loop {
                match output.read(&mut buffer).await.unwrap() {
                    0 => break child.wait().await.unwrap().code,
                    count => bytes.extend_from_slice(&buffer[..count]),
                }
            }
        };
        let code = tokio::time::timeout(TIME_MAX, read).await.expect("the command did not end");
        (String::from_utf8_lossy(&bytes).into_owned(), code)
    }

    pub(crate) async fn shell(&self, script: &str, policy: Option<Policy>) -> (String, Option<i32>) {
        self.output(["/bin/sh", "-c", script].map(str::to_owned).to_vec(), policy).await
    }

    /// Tries it, and looks for harm: outside, in what is fixed, in the process that is not ours, or in what it says.
    pub(crate) async fn attempt(mut self, attempt: &Try, policy: Option<Policy>) -> Outcome {
        // That what may not be read stays in its place is tried by others than that it can not be read.
        let whole = attempt.held != Held::Always;
        let (before, bare) = (self.seen(whole), policy.is_none());
        let watch = Watch::begin(&self.policy());
        let argv = match attempt.shell {
            Script::Shell(script) => vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
            Script::Python(script) => {
                vec![PYTHON.clone(), "-Bc".to_owned(), format!("{PRELUDE}{script}")]
            }
        };
        let (mut output, code) = self.output(argv, policy).await;
        let told = watch.changes().found.into_iter().map(|change| change.path).collect();
        if !bare {
            // What was planted is moved aside when a command ends.
            let settled = watch.settle(&self.path("aside"), &[]).settled;
            writeln!(output, "\nsettled: {settled:?}").unwrap();
        }
        let after = self.seen(whole);
        if before != after {
            write!(output, "\nCHANGED\n{before}\nTO\n{after}").unwrap();
        }
        write!(output, "\n(exit {code:?})").unwrap();
        let mut ended = self.outsider.try_wait().unwrap().is_some();
        let deadline = Instant::now() + SIGNAL_TIME;
        // A killed process may take a while to go; without a sandbox some of them must.
        while bare
            && !ended
            && before == after
            && !output.contains(BROKEN)
            && !output.contains(SECRET)
            && Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
            ended = self.outsider.try_wait().unwrap().is_some();
        }
        let heard = self.udp.recv(&mut [0; 64]).is_ok();
        let said = output.contains(SECRET) || output.contains(BROKEN);
        assert_eq!(self.sockets.len(), 2);
        Outcome { harmed: before != after || ended || heard || said, told, output }
    }

    /// Everything that must stay as it is.
    fn seen(&self, whole: bool) -> String {
        let mut seen = String::new();
        for name in [
            "out",
            "hid",
            "w/.git/hooks",
            "w/.git/config",
            "w/.mcode",
            "w/vendor/sub/.git/hooks",
            "w/vendor/sub/.git/config",
            "w/kept",
            "w/lock",
            "w/vendor/sub/own",
            "w/vendor/sub/tool.sh",
            "w/vendor/sub/later",
            "w/.git/commondir",
            "w/vendor/sub/.git/commondir",
            "w/new/.git/hooks/pre-push",
            "w/other/.git/config",
        ] {
            look(&self.path(name), &mut seen);
        }
        // What may not be read has its content looked at alone: a further name does no harm by itself.
        for name in ["w/.env", "w/conf/key.pem"].into_iter().filter(|_| whole) {
            let whole = std::fs::read_to_string(self.path(name)).is_ok_and(|text| text == SECRET);
            writeln!(seen, "{name} is whole: {whole}").unwrap();
        }
        seen
    }
}

fn look(path: &Path, seen: &mut String) {
    let Ok(found) = path.symlink_metadata() else {
        writeln!(seen, "{} is gone", path.display()).unwrap();
        return;
    };
    let content = if found.is_file() { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    let content = content.replace(SECRET, "(the secret)");
    let links = if found.is_file() { found.nlink() } else { 0 };
    let (mode, owner, time) = (found.mode(), (found.uid(), found.gid()), found.mtime());
    let time = if found.is_file() { time } else { 0 };
    writeln!(seen, "{} {mode:o} {owner:?} {links} {time} {content:?}", path.display()).unwrap();
    if found.is_dir() {
        let mut names: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names.iter().for_each(|path| look(path, seen));
    }
}

/// What the Python tries begin with. A failed call ends a try as an error of the shell would.
const PRELUDE: &str = "
import os, sys, ctypes, socket, signal
W, OUT, HID, SOCK = (os.environ[n] for n in ('W', 'OUT', 'HID', 'SOCK'))
OUTSIDER, DAEMON = int(os.environ['OUTSIDER']), int(os.environ['DAEMON'])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ptrace.restype = ctypes.c_long
";
