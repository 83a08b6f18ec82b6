//! The daemon's end of the line to a host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::folder::{Kept, read_status};
use super::hosts::Hosted;
use super::progress::{Ended, Progress};
use super::survivors::end_orphan;
use super::tree::Tree;
use super::wire::{Incoming, Order, Refusal, Report};
use crate::os::still_runs;
use crate::runner::{KILL_GRACE, end_command};

/// Orders that may wait for a host.
pub(super) const ORDERS_MAX: usize = 64;
/// How long a host may take to say that its command runs.
const START_WAIT: Duration = Duration::from_secs(20);
/// How long a host may take to end once it has said its last.
const END_WAIT: Duration = Duration::from_secs(5);
/// Bytes read at once.
const READ_BYTES: usize = 16 * 1024;
/// How much later than a command's time limit its host may have ended it. One that takes longer was stopped, or is stuck:
/// it is killed, and the daemon keeps the limit in its place.
const LATE_MAX: Duration = Duration::from_secs(KILL_GRACE.as_secs() + 3);
/// Said of a command whose host is not there any more.
pub(super) const HOST_GONE: &str = "the program that tended it was killed";

/// A connected host.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    incoming: Incoming,
    buffer: Vec<u8>,
    /// When this program started it.
    child: Option<Child>,
    kept: Arc<Kept>,
    #[allow(dead_code, reason = "held until the host has ended")]
    slot: Option<OwnedSemaphorePermit>,
}

impl Line {
    pub(super) fn new(
        stream: UnixStream,
        child: Option<Child>,
        kept: Kept,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let (incoming, buffer) = (Incoming::default(), vec![0; READ_BYTES]);
        Self { stream, incoming, buffer, child, kept: Arc::new(kept), slot }
    }

    /// The next report; `None` when the host has closed the line. May be dropped halfway.
    async fn report(&mut self) -> io::Result<Option<Report>> {
        loop {
            if let Some(report) = self.incoming.report()? {
                return Ok(Some(report));
            }
            match self.stream.read(&mut self.buffer).await? {
                0 => return Ok(None),
                count => self.incoming.push(&self.buffer[..count]),
            }
        }
    }

    /// What every host says first.
    async fn introduction(&mut self) -> io::Result<Result<(Tree, Progress), Refusal>> {
        let mut tree = None;
        loop {
            match (self.report().await?, tree) {
                (Some(Report::Refused(refusal)), _) => return Ok(Err(refusal)),
                (Some(Report::Tree(told)), _) => tree = Some(told),
                (Some(Report::Progress(progress)), Some(tree)) => return Ok(Ok((tree, progress))),
                (Some(Report::Progress(_)), None) => return Err(io::Error::other("it did not say what it runs")),
                (None, _) => return Err(io::Error::other("the program that was to tend it ended at once")),
            }
        }
    }
}

/// Gives a new host its first order and waits until its command runs.
pub(super) async fn begin(mut line: Line, order: &[u8]) -> io::Result<Result<Hosted, Refusal>> {
    let beginning = async {
        line.stream.write_all(order).await?;
        line.introduction().await
    };
    match timeout(START_WAIT, beginning).await {
        Ok(Ok(Ok((tree, progress)))) => Ok(Ok(go_on(line, tree, progress))),
        Ok(Ok(Err(refusal))) => Ok(Err(refusal)),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            if let Some(child) = &mut line.child {
                child.start_kill().ok();
            }
            Err(io::Error::new(io::ErrorKind::TimedOut, "the program that was to tend it did not answer"))
        }
    }
}

/// Takes up the line to a host that an earlier daemon started.
pub(super) async fn resume(mut line: Line, wait: Duration) -> io::Result<Hosted> {
    let introduction = timeout(wait, line.introduction()).await.map_err(io::Error::other)??;
    let (tree, progress) = introduction.map_err(|_| io::Error::other("it runs nothing"))?;
    Ok(go_on(line, tree, progress))
}

fn go_on(line: Line, tree: Tree, progress: Progress) -> Hosted {
    let (tell, told) = watch::channel(progress);
    let (hosted, orders) = Hosted::new(tree, told, Arc::clone(&line.kept));
    tokio::spawn(converse(line, tree, orders, tell));
    hosted
}

/// Passes orders and reports until the host ends, or nobody is left who would order.
async fn converse(mut line: Line, tree: Tree, mut orders: mpsc::Receiver<Order>, tell: watch::Sender<Progress>) {
    // Told by the host with each progress; counted here from the first.
    let limit = tell.borrow().limit;
    let age = Duration::from_millis(tell.borrow().age_ms);
    let late = limit.and_then(|limit| Instant::now().checked_add(limit.saturating_sub(age) + LATE_MAX));
    let mut overdue = None;
    loop {
        tokio::select! {
            () = passed(late), if overdue.is_none() && is_limited(&tell.borrow()) => {
                tracing::warn!(pid = tree.host.pid, "a command's host did not keep its time limit and is killed");
                overdue = limit.map(Ended::TimedOut);
                tree.kill_host();
            }
            report = line.report() => match report {
                Ok(Some(Report::Progress(progress))) => {
                    tell.send_replace(progress);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "a command's host can not be understood");
                    break;
                }
            },
            order = orders.recv() => match order {
                // A host that does not read has ended, and reading tells so.
                Some(order) => match order.encode() {
                    Ok(bytes) => drop(line.stream.write_all(&bytes).await),
                    Err(error) => tracing::warn!(%error, "a command's host could not be told"),
                },
                None => return,
            },
        }
    }
    if let Some(child) = &mut line.child {
        timeout(END_WAIT, child.wait()).await.ok();
    }
    // A host that lives has closed the line because the next daemon has taken it up.
    if !tell.borrow().gone && !still_runs(tree.host) {
        let mut last = last_words(&line.kept, tree).await;
        last.ended = overdue.filter(|_| tell.borrow().ended.is_none()).or(last.ended);
        tell.send_replace(last);
    }
}

/// Whether the time limit still holds: a foreground command has met it by ending; what it left behind lives on.
fn is_limited(progress: &Progress) -> bool {
    !progress.gone && (progress.ended.is_none() || progress.background)
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Where a command stands whose host has left without a word.
async fn last_words(kept: &Kept, tree: Tree) -> Progress {
    let status = read_status(&kept.path).ok().flatten();
    let known = status.as_ref().map(|status| status.progress.clone()).unwrap_or_default();
    if known.gone {
        return known;
    }
    tracing::warn!(pid = tree.command.pid, "the host of a command has gone; what the command started is ended");
    match &status {
        Some(status) => end_orphan(status).await,
        None => drop(end_command(tree.command).await),
    }
    tokio::task::spawn_blocking(crate::orphans::end_orphans).await.ok();
    lost(known)
}

/// The end of a command whose host is not there any more.
pub(super) fn lost(known: Progress) -> Progress {
    let ended = known.ended.or_else(|| Some(Ended::Lost(HOST_GONE.to_owned())));
    Progress { ended, gone: true, input_open: false, ..known }
}
