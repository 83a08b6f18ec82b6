//! What outlives its host: processes that lose every parent come to the daemon, and are ended.
//!
//! A host gets what its command leaves behind, in whatever session and with whatever environment. A command that kills
//! its own host would be rid of all kin; so the daemon asks the kernel for what its hosts leave behind. A child of the
//! daemon that the daemon has not started is such a leftover, and also shows whose it is when it comes to the socket
//! ([`crate::origin`]). This holds for hosts that this daemon has started: those of an earlier one are init's children.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

use crate::proc_table::{Row, all, descendants, row};
use crate::process::ProcessIdentity;

/// How long after a child's end those that nobody waits for are cleared away.
const REAP_AFTER: Duration = Duration::from_secs(1);
/// How often leftovers are looked for until none turns up: what forks meanwhile is found the next time.
const PASSES_MAX: u32 = 50;
/// Children that are known before those that have gone are forgotten.
const KNOWN_MAX: usize = 4096;

/// Whether what loses its parent comes to this process.
static ADOPTING: AtomicBool = AtomicBool::new(false);
/// What this process has started itself: number and start time.
static KNOWN: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<u32, u64>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child of this process's own. Nobody looks for leftovers before it is known.
pub(crate) fn started<T>(
    start: impl FnOnce() -> io::Result<T>,
    number: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<T> {
    let mut known = known();
    let child = start()?;
    if let Some(row) = number(&child).and_then(row) {
        if known.len() >= KNOWN_MAX {
            known.retain(|pid, ticks| self::row(*pid).is_some_and(|row| row.started_ticks == *ticks));
        }
        known.insert(row.pid, row.started_ticks);
    }
    Ok(child)
}

/// Takes in what loses its parents, from now on.
///
/// # Errors
/// When the system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Pid::from_raw(1))?;
    ADOPTING.store(true, Ordering::SeqCst);
    Ok(())
}

/// Clears away adopted processes as they end; runs until it is dropped.
pub async fn tend_orphans() {
    let Ok(mut ends) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child()) else { return };
    while ends.recv().await.is_some() {
        tokio::time::sleep(REAP_AFTER).await;
        // Beside the runtime: it looks at all processes of the machine.
        tokio::task::spawn_blocking(reap).await.ok();
    }
}

/// Children that this process has not started.
fn adopted() -> Vec<Row> {
    let own = std::process::id();
    let children: Vec<Row> = all().into_iter().filter(|row| row.parent == own).collect();
    // Last: one that is being started is waited for, and nobody who starts one waits while all of them are read.
    let known = known();
    children.into_iter().filter(|row| known.get(&row.pid) != Some(&row.started_ticks)).collect()
}

fn reap() {
    for pid in adopted().iter().filter(|row| row.ended).filter_map(|row| pid_of(row.pid)) {
        rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok();
    }
}

/// Ends what a host that is gone has left. Blocking.
pub(crate) fn end_orphans() {
    if !ADOPTING.load(Ordering::SeqCst) {
        return;
    }
    for _ in 0..PASSES_MAX {
        let living: Vec<Row> = adopted().into_iter().filter(|row| !row.ended).collect();
        if living.is_empty() {
            break;
        }
        for row in living {
            let identity = ProcessIdentity { pid: row.pid, started_ticks: row.started_ticks };
            tracing::warn!(pid = row.pid, "what a command has left behind without its host is ended");
            let below = descendants(identity);
            for pid in below.iter().map(|row| row.pid).chain([row.pid]).filter_map(pid_of) {
                rustix::process::kill_process(pid, Signal::KILL).ok();
            }
        }
    }
    reap();
}

fn pid_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 1)?)
}
