//! Starting a command, watching it, and ending it with everything it started.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::ChildStdin;
use tokio::time::Instant;

use crate::confine::{Confined, Kept};
use crate::os::{self, Force, Kin};
use crate::process::{CommandSpec, ExitState, ProcessIdentity, SpawnError};

/// How long a group has to end by itself after it was asked to.
pub const KILL_GRACE: Duration = Duration::from_secs(2);
/// How long to wait for the kernel to clear a killed group away.
const REAP_WAIT: Duration = Duration::from_secs(2);
/// How often an ending group is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Starts commands on this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalRunner;

impl LocalRunner {
    /// Starts a command in a session of its own. Standard output and error go into one pipe, in order.
    ///
    /// # Errors
    /// When the folder or the program is not there, or the system refuses.
    pub fn spawn(&self, spec: &CommandSpec) -> Result<Child, SpawnError> {
        self.spawn_as(spec, &Start::default())
    }

    /// The same, started in this way.
    ///
    /// # Errors
    /// As [`Self::spawn`].
    pub fn spawn_as(&self, spec: &CommandSpec, how: &Start) -> Result<Child, SpawnError> {
        let (command, keeping) = prepared(spec, how)?;
        start(command, keeping, spec.stdin).map_err(|source| failed(spec, source))
    }
}

/// How a command is started, beside its spec.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Its standard input becomes its controlling terminal, on Unix.
    pub terminal: bool,
    /// Most processes that its user may have, on Unix.
    pub processes_max: Option<u64>,
    /// The program that starts it in its place with fewer rights, on Windows: see [`crate::restricted`].
    #[cfg(windows)]
    pub restricted_by: Option<PathBuf>,
}

/// What goes on outside of a command for it while it runs, such as the way to a proxy; held until it has ended.
#[derive(Debug)]
pub struct Keeping(Option<Kept>);

impl Keeping {
    /// To be called when the command was just started, with its number and who tells the numbers of all that it has
    /// started since. Where a proxy is part of its policy: within a tokio runtime.
    ///
    /// # Errors
    /// When the system refuses; the command must not run then.
    pub fn started(&mut self, command: u32, members: impl Fn() -> Vec<u32> + Send + 'static) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |kept| kept.started(command, members))
    }
}

/// The command of a spec, held to its policy and in a session of its own, for whoever gives it its streams.
///
/// # Errors
/// When the folder or the program is not there, or its policy can not be made ready.
#[allow(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
pub fn prepared(spec: &CommandSpec, how: &Start) -> Result<(Command, Keeping), SpawnError> {
    if !spec.cwd.is_dir() {
        return Err(SpawnError::NoSuchFolder(spec.cwd.clone()));
    }
    let name = spec.argv.first().map_or("", String::as_str);
    let confined = spec.policy.as_deref().map(|policy| Confined::prepare(policy, &spec.cwd)).transpose();
    let (confined, kept) = confined.map_err(SpawnError::Policy)?.unzip();
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no such program on the PATH of this run");
    let program = find_program(name, &spec.cwd, spec.env.get("PATH").map_or("", String::as_str));
    let program = program.ok_or_else(missing).map_err(|source| failed(spec, source))?;
    let mut command = match confined.as_ref().and_then(Confined::runner) {
        None => os::begun(program, how),
        Some((runner, arguments)) => {
            let mut command = Command::new(runner);
            command.args(arguments).arg(program);
            command
        }
    };
    os::arguments(&mut command, spec.argv.get(1..).unwrap_or_default());
    command.current_dir(&spec.cwd).env_clear().envs(&spec.env);
    os::prepare(&mut command, spec.umask, confined, how);
    Ok((command, Keeping(kept)))
}

fn failed(spec: &CommandSpec, source: io::Error) -> SpawnError {
    let program = spec.argv.first().cloned().unwrap_or_default();
    SpawnError::Start { program, cwd: spec.cwd.clone(), source }
}

fn start(mut command: Command, mut keeping: Keeping, stdin: bool) -> io::Result<Child> {
    let (reader, writer) = io::pipe()?;
    command.stdin(if stdin { Stdio::piped() } else { Stdio::null() });
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut command = tokio::process::Command::from(command);
    let mut inner = crate::orphans::started(|| command.spawn(), tokio::process::Child::id)?;
    // The command holds writing ends of the pipe; while it lives the output would never end.
    drop(command);
    let begun = Kin::adopt(&inner).and_then(|kin| {
        let kin = Arc::new(kin);
        let seen = Arc::clone(&kin);
        keeping.started(inner.id().unwrap_or_default(), move || seen.members())?;
        Ok(kin)
    });
    let kin = match begun {
        Ok(kin) => kin,
        Err(error) => {
            inner.start_kill().ok();
            return Err(error);
        }
    };
    let stdin = inner.stdin.take();
    Ok(Child {
        inner,
        group: Group(kin),
        output: Some(OutputPipe(os::Output::new(reader)?)),
        stdin,
        exit: None,
        keeping,
    })
}

/// Looks a program up: a name with a separator is a path from `cwd`, any other is searched in the folders of `path`.
#[must_use]
pub fn find_program(name: &str, cwd: &Path, path: &str) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') || (cfg!(windows) && name.contains('\\')) {
        return candidates(&cwd.join(name)).into_iter().find(|file| is_program(file));
    }
    std::env::split_paths(path)
        .flat_map(|folder| candidates(&cwd.join(folder).join(name)))
        .find(|file| is_program(file))
}

#[cfg(not(windows))]
fn candidates(file: &Path) -> Vec<PathBuf> {
    vec![file.to_path_buf()]
}

#[cfg(windows)]
fn candidates(file: &Path) -> Vec<PathBuf> {
    let with = |ending: &str| PathBuf::from(format!("{}.{ending}", file.display()));
    vec![file.to_path_buf(), with("exe"), with("cmd"), with("bat")]
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}

/// A command that was started. Dropped while it runs, it is killed with its group.
#[derive(Debug)]
pub struct Child {
    inner: tokio::process::Child,
    group: Group,
    output: Option<OutputPipe>,
    stdin: Option<ChildStdin>,
    exit: Option<ExitState>,
    /// What goes on outside for it while it runs.
    #[allow(dead_code, reason = "held for its drop")]
    keeping: Keeping,
}

impl Child {
    /// Number and start time.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.group.identity()
    }

    /// The command and all it started.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group.clone()
    }

    /// The output; can be taken once.
    pub fn take_output(&mut self) -> Option<OutputPipe> {
        self.output.take()
    }

    /// Standard input, if it was asked for; can be taken once, and ends when dropped.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Waits until the command itself has ended; what it started may live on. May be called again and dropped halfway.
    ///
    /// # Errors
    /// When the system can not tell.
    pub async fn wait(&mut self) -> io::Result<ExitState> {
        if let Some(state) = self.exit {
            return Ok(state);
        }
        let state = os::exit_state(self.inner.wait().await?);
        self.exit = Some(state);
        Ok(state)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.group.0.signal(Force::Kill);
        }
    }
}

/// A command's output: standard output and error in the order they were written.
#[derive(Debug)]
pub struct OutputPipe(os::Output);

impl OutputPipe {
    /// Reads what is there, or waits for more; 0 bytes when every writer is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }
}

/// A command and all it started.
#[derive(Debug, Clone)]
pub struct Group(Arc<Kin>);

impl Group {
    /// Number and start time of the command that leads it.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.0.identity()
    }

    /// Numbers of the processes that still run; where the OS only tells that some do, the leader's number.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        self.0.members()
    }

    /// Asks the group to end, waits up to `grace`, then kills it. Returns when nothing of it runs any more (`true`),
    /// or when the kernel has not cleared it away within two seconds (`false`). The leader must be waited for at the
    /// same time or later.
    pub async fn kill(&self, grace: Duration) -> bool {
        self.0.signal(Force::Ask);
        if cfg!(unix) && self.ended_within(grace).await {
            return true;
        }
        let deadline = Instant::now() + REAP_WAIT;
        while Instant::now() < deadline {
            // Again each time: a member may have forked between the look and the signal.
            self.0.signal(Force::Kill);
            if self.ended_within(LOOK_EVERY).await {
                return true;
            }
        }
        false
    }

    async fn ended_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            if self.members().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Ends a process that an earlier daemon started, with its group, if the number and start time are still the same.
/// Returns whether there was something to end. Where the OS does not tell start times, nothing is ever ended.
pub async fn kill_orphan(identity: ProcessIdentity) -> bool {
    if !os::still_runs(identity) {
        return false;
    }
    Group(Arc::new(os::recorded(identity))).kill(KILL_GRACE).await
}

/// Ends what is left of a command whose host is gone: its session, as far as its number still names it.
#[cfg(unix)]
pub(crate) async fn end_command(identity: ProcessIdentity) -> bool {
    let group = Group(Arc::new(os::recorded(identity)));
    // Without a start time nothing tells whether the number was given out again.
    if identity.started_ticks == 0 || group.members().is_empty() {
        return false;
    }
    group.kill(KILL_GRACE).await
}

/// Ends a session whose members are known to be ours, whether or not the process that began it still runs.
#[cfg(target_os = "linux")]
pub(crate) async fn end_session(leader: ProcessIdentity) -> bool {
    Group(Arc::new(os::recorded(leader))).kill(KILL_GRACE).await
}
