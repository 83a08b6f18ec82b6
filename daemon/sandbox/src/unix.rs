//! Sessions, groups and signals.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::confine::Confined;
use crate::process::{ExitState, ProcessIdentity};
use crate::runner::Start;

/// The command that runs a program.
#[allow(clippy::disallowed_methods, reason = "the one place that starts processes comes here")]
pub(crate) fn begun(program: PathBuf, _how: &Start) -> Command {
    Command::new(program)
}

/// Signals that a command hears, though whoever started the daemon does not: a shell has its background jobs ignore the
/// first two, `nohup` the third, and what is ignored is inherited.
const HEARD: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP, libc::SIGCHLD];

/// Puts the command into a session of its own: no terminal to ask passwords on, unless it is given one, and a group
/// that can be ended whole.
#[allow(unsafe_code)]
pub(crate) fn prepare(command: &mut Command, umask: Option<u32>, confined: Option<Confined>, how: &Start) {
    let (terminal, processes_max) = (how.terminal, how.processes_max);
    let umask = umask.and_then(|mask| rustix::fs::RawMode::try_from(mask & 0o777).ok());
    let mut confined = confined;
    // SAFETY: the closure runs between fork and exec and only makes system calls: setsid, umask, signals, limits, and those
    // that enter what was made ready before the fork. It allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            // Until it becomes the command it is not to be taken for the daemon.
            #[cfg(target_os = "linux")]
            rustix::thread::set_name(c"mcode-command")?;
            rustix::process::setsid()?;
            if terminal {
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            if let Some(mask) = umask {
                rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
            }
            for signal in HEARD {
                if libc::signal(signal, libc::SIG_DFL) == libc::SIG_ERR {
                    return Err(io::Error::last_os_error());
                }
            }
            limit(Resource::Core, 0)?;
            #[cfg(target_os = "linux")]
            offer_first();
            if let Some(processes) = processes_max {
                limit(Resource::Nproc, processes)?;
            }
            confined.as_mut().map_or(Ok(()), Confined::enter)
        });
    }
}

/// Where the machine's memory runs out, the kernel ends a command before the daemon and the user's other programs.
/// System calls only.
#[cfg(target_os = "linux")]
fn offer_first() {
    use rustix::fs::{Mode, OFlags};
    let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        // Without /proc there is nothing to ask for.
        return;
    };
    let mut text = [0; 8];
    let read = rustix::io::read(&file, &mut text).unwrap_or(0);
    let now = text.get(..read).and_then(|text| str::from_utf8(text).ok()?.trim_end().parse::<i32>().ok());
    // One that is offered even earlier stays so: to go down again needs a privilege.
    if now.is_none_or(|now| now < OOM_FIRST) {
        rustix::io::pwrite(&file, OOM_FIRST_TEXT, 0).ok();
    }
}

/// How early commands are ended where memory runs out, of -1000 to 1000 (proc(5)).
#[cfg(target_os = "linux")]
const OOM_FIRST: i32 = 500;
#[cfg(target_os = "linux")]
const OOM_FIRST_TEXT: &[u8] = b"500";

/// Lowers a limit; the hard one stays, so that a command that knows what it does can raise it again.
fn limit(resource: Resource, max: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    if now.current.is_none_or(|current| current > max) {
        rustix::process::setrlimit(resource, Rlimit { current: Some(max), maximum: now.maximum })?;
    }
    Ok(())
}

/// Gives the command its arguments, as they are.
pub(crate) fn arguments(command: &mut Command, arguments: &[String]) {
    command.args(arguments);
}

/// The reading end of a command's output.
#[derive(Debug)]
pub(crate) struct Output(pipe::Receiver);

impl Output {
    pub(crate) fn new(reader: io::PipeReader) -> io::Result<Self> {
        Ok(Self(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }

    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }
}

/// A session that one of our commands began.
#[derive(Debug)]
pub(crate) struct Kin {
    identity: ProcessIdentity,
}

/// How hard to end a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    /// May be caught, to tidy up.
    Ask,
    /// Can not be caught.
    Kill,
}

impl Kin {
    pub(crate) fn adopt(child: &tokio::process::Child) -> io::Result<Self> {
        let pid = child.id().ok_or_else(|| io::Error::other("the process ended before it was known"))?;
        Ok(Self { identity: identity_of(pid) })
    }

    pub(crate) fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    pub(crate) fn members(&self) -> Vec<u32> {
        members(self.identity)
    }

    pub(crate) fn signal(&self, force: Force) {
        signal(self.identity, force);
    }
}

pub(crate) fn exit_state(status: ExitStatus) -> ExitState {
    ExitState { code: status.code(), signal: status.signal() }
}

/// Whether the recorded process is still the one that bears its number; `false` when the OS can not tell.
pub(crate) fn still_runs(identity: ProcessIdentity) -> bool {
    identity.started_ticks != 0 && identity_of(identity.pid) == identity
}

/// What recovery needs to end a process that an earlier daemon started.
pub(crate) fn recorded(identity: ProcessIdentity) -> Kin {
    Kin { identity }
}

/// The process that bears this number now.
#[cfg(target_os = "linux")]
pub(crate) fn identity_of(pid: u32) -> ProcessIdentity {
    ProcessIdentity { pid, started_ticks: crate::proc_table::row(pid).map_or(0, |row| row.started_ticks) }
}

/// The process that bears this number now; this OS does not tell since when.
#[cfg(not(target_os = "linux"))]
pub(crate) fn identity_of(pid: u32) -> ProcessIdentity {
    ProcessIdentity { pid, started_ticks: 0 }
}

/// A group that may be signalled: never "every process", never init's, never our own.
fn group_of(identity: ProcessIdentity) -> Option<Pid> {
    let pid = Pid::from_raw(i32::try_from(identity.pid).ok()?)?;
    (identity.pid > 1 && pid != rustix::process::getpgrp() && pid != rustix::process::getpid()).then_some(pid)
}

#[cfg(target_os = "linux")]
fn members(identity: ProcessIdentity) -> Vec<u32> {
    crate::proc_table::session_members(identity).into_iter().map(|row| row.pid).collect()
}

#[cfg(not(target_os = "linux"))]
fn members(identity: ProcessIdentity) -> Vec<u32> {
    let alive = group_of(identity).is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok());
    if alive { vec![identity.pid] } else { Vec::new() }
}

fn signal(identity: ProcessIdentity, force: Force) {
    let Some(group) = group_of(identity) else { return };
    let signal = match force {
        Force::Ask => Signal::TERM,
        Force::Kill => Signal::KILL,
    };
    #[cfg(target_os = "linux")]
    {
        let rows = crate::proc_table::session_members(identity);
        if rows.iter().any(|row| row.group == identity.pid) {
            gone_is_fine(rustix::process::kill_process_group(group, signal));
        }
        // Job control and setsid put children into groups of their own.
        for row in rows.iter().filter(|row| row.group != identity.pid) {
            if let Some(pid) = i32::try_from(row.pid).ok().and_then(Pid::from_raw) {
                gone_is_fine(rustix::process::kill_process(pid, signal));
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    gone_is_fine(rustix::process::kill_process_group(group, signal));
}

fn gone_is_fine(result: Result<(), rustix::io::Errno>) {
    if let Err(error) = result
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(%error, "a process could not be signalled");
    }
}
