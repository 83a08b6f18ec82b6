//! Commands that are tended within the daemon, where no host can take them over: they end with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::memory::View;
use super::output::Output;
use super::progress::{Ended, HostedSpec, InputError, Progress, Usage};
use super::{HOSTS_MAX, INPUT_BYTES_MAX};
use crate::process::{ProcessIdentity, SpawnError};
use crate::runner::{Child, Group, KILL_GRACE, LocalRunner, OutputPipe, Start};
use crate::spool::Spool;

/// How long output is still read after the command has ended, while something else holds the pipe.
const DRAIN: Duration = Duration::from_millis(200);
/// How often it is looked whether what a command left behind still runs.
const LINGER_LOOK: Duration = Duration::from_millis(500);
/// How long to wait for the system to say how a killed command ended.
const REAP_WAIT: Duration = Duration::from_secs(3);
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Starts commands. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hosts {
    slots: Arc<Semaphore>,
    #[cfg_attr(not(windows), allow(dead_code, reason = "here it is only tested"))]
    program: PathBuf,
}

impl Hosts {
    /// Nothing is kept in a folder; the program only starts commands, with fewer rights.
    #[must_use]
    pub fn new(program: PathBuf, _folder: PathBuf) -> Self {
        Self { slots: Arc::new(Semaphore::new(HOSTS_MAX)), program }
    }

    #[cfg(windows)]
    fn how(&self) -> Start {
        Start { restricted_by: Some(self.program.clone()), ..Start::default() }
    }

    #[cfg(not(windows))]
    fn how(&self) -> Start {
        Start::default()
    }

    /// Starts a command.
    ///
    /// # Errors
    /// When the folder or the program is not there, the policy can not be held, the system refuses, or too many run.
    pub async fn start(&self, spec: HostedSpec) -> Result<Hosted, SpawnError> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            SpawnError::Host(format!("{HOSTS_MAX} commands run already, which is the most; end some first"))
        })?;
        let mut child = LocalRunner.spawn_as(&spec.command, &self.how())?;
        let view = View::new(if spec.background { Spool::in_memory() } else { Spool::new() });
        let stdin = child.take_stdin();
        let first = Progress {
            input_open: stdin.is_some(),
            background: spec.background,
            limit: spec.limit,
            ..Progress::default()
        };
        let hosted = Hosted(Arc::new(Inner {
            group: child.group(),
            progress: watch::Sender::new(first),
            output: Output::of(view.clone()),
            stdin: Mutex::new(stdin),
            end: CancellationToken::new(),
            why: std::sync::OnceLock::new(),
            began: Instant::now(),
        }));
        tokio::spawn(tend(child, Arc::clone(&hosted.0), view, spec, slot));
        Ok(hosted)
    }

    /// What an earlier daemon started has ended with it.
    pub async fn survivors(&self) -> Vec<super::Survivor> {
        Vec::new()
    }
}

/// A command. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hosted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    group: Group,
    progress: watch::Sender<Progress>,
    output: Output,
    stdin: Mutex<Option<ChildStdin>>,
    end: CancellationToken,
    why: std::sync::OnceLock<String>,
    began: Instant,
}

impl Hosted {
    /// Number and start time of the command.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.0.group.identity()
    }

    /// Where it stands, and how that changes.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.0.progress.subscribe()
    }

    /// What it has printed.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }

    /// Numbers of its processes that run, as far as the system tells.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        if self.0.progress.borrow().gone { Vec::new() } else { self.0.group.members() }
    }

    /// This system does not tell it.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Gives it input; returns when it has taken all of it.
    ///
    /// # Errors
    /// When it takes no input.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), InputError> {
        if bytes.len() > INPUT_BYTES_MAX {
            return Err(InputError::Full);
        }
        let mut slot = self.0.stdin.lock().await;
        let stdin = slot.as_mut().ok_or(InputError::Closed)?;
        stdin.write_all(bytes).await.map_err(|_| InputError::Closed)?;
        stdin.flush().await.map_err(|_| InputError::Closed)
    }

    /// Closes its input.
    pub async fn close_input(&self) {
        self.0.stdin.lock().await.take();
        self.0.progress.send_modify(|now| now.input_open = false);
    }

    /// Asks for its end, with everything it started.
    pub async fn end(&self, why: &str) {
        self.0.why.get_or_init(|| why.to_owned());
        self.0.end.cancel();
    }

    /// Notes that it outlives its call from now on.
    pub async fn to_background(&self) {
        self.0.progress.send_modify(|now| now.background = true);
    }

    /// Nothing is kept outside of memory.
    pub fn give_up(&self) {}
}

/// Sees a command through.
async fn tend(mut child: Child, inner: Arc<Inner>, view: View, spec: HostedSpec, slot: OwnedSemaphorePermit) {
    let deadline = spec.limit.map(|limit| inner.began + limit);
    let pump = tokio::spawn(pump(child.take_output(), view, Arc::clone(&inner)));
    let ended = tokio::select! {
        exit = child.wait() => match exit {
            Ok(state) => Ended::Exited(state),
            Err(error) => Ended::Lost(error.to_string()),
        },
        () = passed(deadline) => Ended::TimedOut(spec.limit.unwrap_or_default()),
        () = inner.end.cancelled() => killed(&inner),
    };
    if !matches!(ended, Ended::Exited(_)) {
        tokio::join!(inner.group.kill(KILL_GRACE), timeout(REAP_WAIT, child.wait())).1.ok();
    }
    let abort = pump.abort_handle();
    timeout(DRAIN, pump).await.ok();
    told(&inner, Some(ended), inner.group.members().is_empty());
    // A foreground command has met its limit by ending; what it left behind lives as long as its thread.
    let background = inner.progress.borrow().background;
    let deadline = deadline.filter(|_| background);
    while !inner.progress.borrow().gone {
        let ended = tokio::select! {
            () = sleep(LINGER_LOOK) => None,
            () = passed(deadline) => Some(Ended::TimedOut(spec.limit.unwrap_or_default())),
            () = inner.end.cancelled() => Some(killed(&inner)),
        };
        if ended.is_some() {
            inner.group.kill(KILL_GRACE).await;
            told(&inner, ended, true);
        } else if inner.group.members().is_empty() {
            told(&inner, None, true);
        }
    }
    abort.abort();
    inner.stdin.lock().await.take();
    drop(slot);
}

fn killed(inner: &Inner) -> Ended {
    Ended::Killed(inner.why.get().cloned().unwrap_or_default())
}

fn told(inner: &Inner, ended: Option<Ended>, gone: bool) {
    let age_ms = u64::try_from(inner.began.elapsed().as_millis()).unwrap_or(u64::MAX);
    inner.progress.send_modify(|now| {
        if now.ended.is_none() {
            now.took_ms = age_ms;
        }
        now.age_ms = age_ms;
        now.ended = ended.or_else(|| now.ended.take());
        now.gone = gone;
        now.input_open &= !gone;
    });
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn pump(output: Option<OutputPipe>, view: View, inner: Arc<Inner>) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        view.push(&buffer[..count]);
        inner.progress.send_modify(|now| now.output_bytes += count as u64);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::hosted::About;
    use crate::process::{CommandSpec, ExitState};

    async fn start(command: &str, limit: Option<Duration>) -> Hosted {
        let command = CommandSpec {
            argv: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
            cwd: "/".into(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            stdin: true,
            umask: None,
            policy: None,
        };
        let spec =
            HostedSpec { command, about: About::default(), limit, background: true, experience: None, terminal: None };
        Hosts::new(PathBuf::new(), PathBuf::new()).start(spec).await.unwrap()
    }

    async fn gone(hosted: &Hosted) -> Progress {
        let mut progress = hosted.progress();
        let reached = timeout(Duration::from_secs(10), progress.wait_for(|now| now.gone)).await;
        reached.unwrap().unwrap().clone()
    }

    #[tokio::test]
    async fn a_command_is_fed_read_and_ends() {
        let hosted = start("read x; echo got $x; exit 3", None).await;
        hosted.write(b"it\n").await.unwrap();
        let end = gone(&hosted).await;
        assert_eq!(end.ended, Some(Ended::Exited(ExitState { code: Some(3), signal: None })));
        assert_eq!((hosted.output().head(99), end.output_bytes), (b"got it\n".to_vec(), 7));
        assert_eq!(hosted.write(b"x").await, Err(InputError::Closed));
    }

    #[tokio::test]
    async fn limits_and_requests_end_all_of_it() {
        let hosted = start("sleep 300 & sleep 300", Some(Duration::from_millis(200))).await;
        assert_eq!(gone(&hosted).await.ended, Some(Ended::TimedOut(Duration::from_millis(200))));
        let hosted = start("sleep 300 & exit 0", None).await;
        hosted.progress().wait_for(|now| now.ended.is_some()).await.unwrap();
        hosted.end("so").await;
        assert_eq!(gone(&hosted).await.ended, Some(Ended::Killed("so".into())));
        assert_eq!(hosted.members(), Vec::<u32>::new());
    }
}
