//! From the first order to a command that runs.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use mcode_sandbox::hosted::folder::{self, CONTROL, OUTPUT, Status, write_status};
use mcode_sandbox::hosted::output::OutputWriter;
use mcode_sandbox::hosted::tree::{Tree, identify};
use mcode_sandbox::hosted::wire::{Order, Refusal, Report};
use mcode_sandbox::hosted::{HEAD_BYTES, HEAD_BYTES_BACKGROUND, HostedSpec, Progress, Terminal};
use mcode_sandbox::{CommandSpec, Keeping, Network, SpawnError, Start, prepared};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use tokio::runtime::Runtime;

use crate::bounds;
use crate::input::Input;
use crate::line::Line;
use crate::reaper::reap;
use crate::tend::{Host, Sources};

/// The host's ends of what the command reads and writes.
struct Streams {
    input: Option<OwnedFd>,
    output: OwnedFd,
}

/// What goes on beside the command while it runs.
#[derive(Debug)]
pub(crate) struct Beside {
    #[allow(dead_code, reason = "held for its drop, before the runtime's")]
    keeping: Keeping,
    #[allow(dead_code, reason = "held for its drop")]
    carrier: Option<Runtime>,
}

/// Takes the first order, starts the command and says so. `None` when it was not started; whoever asked was told.
///
/// # Errors
/// When nobody is there to give orders.
pub(crate) fn begin(folder: &Path) -> io::Result<Option<Host>> {
    let mut line = Line::new(detach()?);
    let Order::Run(spec) = line.first()? else { return Err(io::ErrorKind::InvalidInput.into()) };
    match start(folder, *spec, line) {
        Ok(host) => Ok(Some(host)),
        Err((refusal, mut line)) => {
            folder::remove(folder);
            line.send(&Report::Refused(refusal)).ok();
            line.finish();
            Ok(None)
        }
    }
}

/// What lists of processes call this one; it may have been started by a descriptor, which has no name.
pub(crate) fn name() {
    #[cfg(target_os = "linux")]
    rustix::thread::set_name(c"mcode-toolhost").ok();
}

/// Moves the line to the daemon where no child inherits it.
fn detach() -> io::Result<UnixStream> {
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let stream = UnixStream::from(line);
    stream.peer_addr()?;
    Ok(stream)
}

fn start(folder: &Path, spec: HostedSpec, line: Line) -> Result<Host, (Refusal, Line)> {
    let HostedSpec { command, about, limit, background, experience, terminal } = spec;
    if let Some(experience) = experience {
        experience.share();
    }
    let started = (|| {
        let own = |error: io::Error| Refusal::Host(error.to_string());
        folder::create_private(folder).map_err(own)?;
        let head_bytes = if background { HEAD_BYTES_BACKGROUND } else { HEAD_BYTES };
        let writer = OutputWriter::create(&folder.join(OUTPUT), head_bytes).map_err(own)?;
        inherit_orphans();
        let start = Start { terminal: terminal.is_some(), processes_max: bounds::processes_max() };
        let (mut ready, mut keeping) = prepared(&command, &start).map_err(|error| refusal(&error))?;
        let streams = connect(&mut ready, command.stdin, terminal).map_err(own)?;
        let carrier = carrier(&command).map_err(own)?;
        let mut child = ready.spawn().map_err(|error| Refusal::Start(error.raw_os_error(), error.to_string()))?;
        // It holds the command's ends of the streams.
        drop(ready);
        let tree = Tree { host: identify(std::process::id()), command: identify(child.id()) };
        let entered = carrier.as_ref().map(Runtime::enter);
        let begun = keeping.started(child.id(), move || tree.members()).and_then(|()| reap(child.id()));
        drop(entered);
        let reaper = begun.inspect_err(|_| {
            tree.kill();
            child.wait().ok();
        });
        Ok((writer, streams, tree, reaper.map_err(own)?, Beside { keeping, carrier }))
    })();
    let (writer, streams, tree, reaper, beside): (OutputWriter, Streams, Tree, PipeReader, Beside) = match started {
        Ok(started) => started,
        Err(refusal) => return Err((refusal, line)),
    };
    let input = Input::new(streams.input, terminal.is_some());
    let progress = Progress { background, limit, input_open: input.is_open(), ..Progress::default() };
    let sources = Sources { reaper: Some(reaper), output: Some(streams.output), listener: None };
    let status = Status { about, tree, progress };
    let mut host = Host::new(folder.to_path_buf(), status, writer, input, sources, beside);
    host.greet(line);
    // Nobody waits any more: this takes the kernel some milliseconds on a busy machine. It fails for who leads a session
    // already, which is as good.
    rustix::process::setsid().ok();
    // From here on the next daemon can find it; this one waits for nothing more. In this order: who reaches the socket
    // finds a status.
    write_status(folder, &host.status).ok();
    host.sources.listener = listen(folder).ok();
    Ok(host)
}

/// What carries a command's connections to the proxy, when its policy leaves it no other way out.
fn carrier(command: &CommandSpec) -> io::Result<Option<Runtime>> {
    let by_proxy = command.policy.as_ref().is_some_and(|policy| matches!(policy.network, Network::Proxy(_)));
    by_proxy.then(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()).transpose()
}

/// Whatever the command starts, however it leaves its parent, comes to this process in the end.
#[cfg(target_os = "linux")]
fn inherit_orphans() {
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).ok();
}

/// This OS gives orphans to its own first process.
#[cfg(not(target_os = "linux"))]
fn inherit_orphans() {}

fn refusal(error: &SpawnError) -> Refusal {
    match error {
        SpawnError::Start { source, .. } => Refusal::Start(source.raw_os_error(), source.to_string()),
        SpawnError::Policy(source) => Refusal::Policy(source.raw_os_error(), source.to_string()),
        SpawnError::NoSuchFolder(_) => Refusal::NoSuchFolder,
        SpawnError::Host(text) => Refusal::Host(text.clone()),
    }
}

/// Gives the command its streams, and keeps the other ends; those do not block.
fn connect(command: &mut Command, stdin: bool, terminal: Option<Terminal>) -> io::Result<Streams> {
    let streams = match terminal {
        Some(size) => connect_terminal(command, size)?,
        None => connect_pipes(command, stdin)?,
    };
    for fd in std::iter::once(&streams.output).chain(&streams.input) {
        rustix::fs::fcntl_setfl(fd, rustix::fs::fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
    }
    Ok(streams)
}

fn connect_pipes(command: &mut Command, stdin: bool) -> io::Result<Streams> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let input = if stdin {
        let (theirs, ours) = io::pipe()?;
        command.stdin(theirs);
        Some(OwnedFd::from(ours))
    } else {
        command.stdin(Stdio::null());
        None
    };
    Ok(Streams { input, output: reader.into() })
}

fn connect_terminal(command: &mut Command, size: Terminal) -> io::Result<Streams> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    // Not by a flag, which not every Unix has; nothing is started in between.
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    let size = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(theirs.as_fd(), size)?;
    command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    Ok(Streams { input: Some(ours.try_clone()?), output: ours })
}

/// Listens in the folder, by a name from there: the length of a socket's path is limited.
fn listen(folder: &Path) -> io::Result<UnixListener> {
    std::env::set_current_dir(folder)?;
    let listener = UnixListener::bind(CONTROL)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
