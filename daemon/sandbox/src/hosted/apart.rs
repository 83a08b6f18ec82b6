//! Commands in hosts of their own.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use super::converse::{self, Line, ORDERS_MAX};
use super::folder::{self, Kept, OUTPUT};
use super::output::Output;
use super::progress::{HostedSpec, InputError, Progress, Usage};
use super::tree::Tree;
use super::wire::{Order, Refusal};
use super::{HOSTS_MAX, INPUT_BYTES_MAX};
use crate::confine::Experience;
use crate::marked::TOOL_CALL_VARIABLE;
use crate::process::{ProcessIdentity, SpawnError};

/// How long a host may take to end its command, its grace included. A host that takes longer is killed, and what it
/// leaves is ended by the daemon.
const END_MAX: Duration = Duration::from_secs(8);

/// Starts hosts, and finds those of an earlier daemon. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hosts {
    pub(super) place: Arc<Place>,
}

#[derive(Debug)]
pub(super) struct Place {
    program: PathBuf,
    /// The program as it was at start, whatever an upgrade has put in its place since: it speaks as this daemon does.
    held: Option<File>,
    pub(super) folder: PathBuf,
    slots: Arc<Semaphore>,
}

impl Hosts {
    /// Hosts that run `program` and keep what they know in folders below `folder`.
    #[must_use]
    pub fn new(program: PathBuf, folder: PathBuf) -> Self {
        let held = if cfg!(target_os = "linux") { File::open(&program).ok() } else { None };
        Self { place: Arc::new(Place { program, held, folder, slots: Arc::new(Semaphore::new(HOSTS_MAX)) }) }
    }

    /// Starts a command. It lives on when this program ends.
    ///
    /// # Errors
    /// When the folder or the program is not there, the policy can not be held, the system refuses, or too many run.
    pub async fn start(&self, spec: HostedSpec) -> Result<Hosted, SpawnError> {
        let slot = self.slot().ok_or_else(|| {
            SpawnError::Host(format!("{HOSTS_MAX} commands run already, which is the most; end some first"))
        })?;
        let host = |error: io::Error| SpawnError::Host(error.to_string());
        let folder = self.place.folder.join(&spec.about.process_id);
        let call = spec.about.tool_call_id.clone();
        let (program, cwd) = (spec.command.argv.first().cloned().unwrap_or_default(), spec.command.cwd.clone());
        let experience = match spec.command.policy {
            Some(_) => {
                Some(tokio::task::spawn_blocking(Experience::gather).await.map_err(io::Error::other).map_err(host)?)
            }
            None => None,
        };
        let order = Order::Run(Box::new(HostedSpec { experience, ..spec })).encode().map_err(host)?;
        let line = self.launch(&folder, &call, slot)?;
        match converse::begin(line, &order).await.map_err(host)? {
            Ok(hosted) => Ok(hosted),
            Err(Refusal::NoSuchFolder) => Err(SpawnError::NoSuchFolder(cwd)),
            Err(Refusal::Start(number, text)) => Err(SpawnError::Start { program, cwd, source: error(number, text) }),
            Err(Refusal::Policy(number, text)) => Err(SpawnError::Policy(error(number, text))),
            Err(Refusal::Host(text)) => Err(SpawnError::Host(text)),
        }
    }

    pub(super) fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.place.slots).try_acquire_owned().ok()
    }

    /// Starts the host itself. Of its environment there is only the mark of its call, by which its descendants are known
    /// however they hide: what the command gets comes over the socket, which nobody else can read.
    #[allow(clippy::disallowed_methods, reason = "this crate is the one that starts processes")]
    fn launch(&self, folder: &Path, call: &str, slot: OwnedSemaphorePermit) -> Result<Line, SpawnError> {
        let program = &self.place.program;
        let failed = |error: io::Error| SpawnError::Host(format!("cannot start {}: {error}", program.display()));
        folder::create_private(&self.place.folder).map_err(failed)?;
        let (ours, theirs) = BlockingStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let held = self.place.held.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        let mut command = Command::new(held.as_ref().unwrap_or(program));
        command.arg0(program).arg(folder).env_clear().env(TOOL_CALL_VARIABLE, call).current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        // Nothing is set that would keep the system from starting it without copying this program's memory first.
        let mut command = tokio::process::Command::from(command);
        let child = crate::orphans::started(|| command.spawn(), tokio::process::Child::id).map_err(failed)?;
        // It holds the host's end of the line.
        drop(command);
        let stream = tokio::net::UnixStream::from_std(ours).map_err(failed)?;
        Ok(Line::new(stream, Some(child), Kept::new(folder.to_path_buf()), Some(slot)))
    }
}

fn error(number: Option<i32>, text: String) -> io::Error {
    number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error)
}

/// A command and its host. Cheap to clone; when the last is dropped, the host goes on alone.
#[derive(Debug, Clone)]
pub struct Hosted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tree: Tree,
    progress: watch::Receiver<Progress>,
    orders: mpsc::Sender<Order>,
    /// Bytes of input given so far; one writer at a time.
    given: Mutex<u64>,
    output: Output,
    kept: Arc<Kept>,
}

impl Hosted {
    pub(super) fn new(
        tree: Tree,
        progress: watch::Receiver<Progress>,
        kept: Arc<Kept>,
    ) -> (Self, mpsc::Receiver<Order>) {
        let (orders, received) = mpsc::channel(ORDERS_MAX);
        let given = { progress.borrow().input_taken + progress.borrow().input_waiting };
        let output = Output::at(kept.path.join(OUTPUT));
        (Self(Arc::new(Inner { tree, progress, orders, given: Mutex::new(given), output, kept })), received)
    }

    /// Number and start time of the command.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.0.tree.command
    }

    /// Where it stands, and how that changes. Changes end when the host has ended.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.0.progress.clone()
    }

    /// What it has printed.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }

    /// Numbers of its processes that run.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        if self.0.progress.borrow().gone { Vec::new() } else { self.0.tree.members() }
    }

    /// What its processes use.
    #[must_use]
    pub fn usage(&self) -> Usage {
        if self.0.progress.borrow().gone { Usage::default() } else { self.0.tree.usage() }
    }

    /// Gives it input; returns when it has taken all of it. Dropped halfway, what was given stays given.
    ///
    /// # Errors
    /// When it takes no input, or has not read what it was given before.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), InputError> {
        let mut progress = self.progress();
        let target = {
            let mut given = self.0.given.lock().await;
            let now = progress.borrow_and_update().clone();
            if !now.input_open {
                return Err(InputError::Closed);
            }
            if given.saturating_sub(now.input_taken) + bytes.len() as u64 > INPUT_BYTES_MAX as u64 {
                return Err(InputError::Full);
            }
            self.0.orders.send(Order::Input(bytes.to_vec())).await.map_err(|_| InputError::Closed)?;
            *given += bytes.len() as u64;
            *given
        };
        let done = |now: &Progress| now.input_taken >= target || !now.input_open;
        let taken = progress.wait_for(done).await.map_err(|_| InputError::Closed)?.input_taken;
        if taken >= target { Ok(()) } else { Err(InputError::Closed) }
    }

    /// Closes its input once it has taken what it was given.
    pub async fn close_input(&self) {
        self.0.orders.send(Order::InputEnd).await.ok();
    }

    /// Asks for its end, with everything it started. [`Self::progress`] tells when that is done.
    pub async fn end(&self, why: &str) {
        let (mut progress, tree) = (self.progress(), self.0.tree);
        // Beside the order, which a host that was stopped may never read.
        drop(tokio::spawn(async move {
            if timeout(END_MAX, progress.wait_for(|now| now.gone)).await.is_err() {
                tracing::warn!(pid = tree.host.pid, "a command's host did not end it in time and is killed");
                tree.kill_host();
            }
        }));
        // A host that has ended has ended its command before.
        self.0.orders.send(Order::End(why.to_owned())).await.ok();
    }

    /// Notes that it outlives its call from now on.
    pub async fn to_background(&self) {
        self.0.orders.send(Order::Background).await.ok();
    }

    /// Its end is recorded: what is kept of it goes as soon as nobody holds it any more.
    pub fn give_up(&self) {
        self.0.kept.give_up();
    }
}
