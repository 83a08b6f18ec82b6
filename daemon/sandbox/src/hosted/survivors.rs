//! Finding what an earlier daemon left running, or ended after it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::converse::{self, Line, lost};
use super::folder::{self, CONTROL, Kept, Status};
use super::hosts::{Hosted, Hosts};
use super::progress::Survivor;
use crate::marked::kill_marked;
use crate::os::still_runs;
use crate::runner::{end_command, kill_orphan};

/// How long a host that was just starting may take until it can be reached.
const REACH_WAIT: Duration = Duration::from_millis(500);
/// How often it is tried.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// How long a host that was reached may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

impl Hosts {
    /// What earlier daemons started and nobody has given up yet: commands that still run, and commands that have ended
    /// since, with their output and end. What can not be made sense of is ended and removed. Call once, at start.
    pub async fn survivors(&self) -> Vec<Survivor> {
        let folders = match std::fs::read_dir(&self.place.folder) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect::<Vec<PathBuf>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                tracing::error!(%error, folder = %self.place.folder.display(), "running commands can not be found");
                return Vec::new();
            }
        };
        let mut looking = JoinSet::new();
        for path in folders {
            let hosts = self.clone();
            looking.spawn(async move { hosts.found(path).await });
        }
        let mut survivors: Vec<Survivor> = looking.join_all().await.into_iter().flatten().collect();
        survivors.sort_by(|a, b| a.about.process_id.cmp(&b.about.process_id));
        survivors
    }

    async fn found(&self, path: PathBuf) -> Option<Survivor> {
        let deadline = Instant::now() + REACH_WAIT;
        loop {
            let reached = self.reach(&path).await;
            // After the attempt, so that a host that ended meanwhile has written its last.
            let status = folder::read_status(&path).ok().flatten();
            match (reached, status) {
                (Ok(hosted), Some(status)) => return Some(Survivor { about: status.about, hosted }),
                (Err(_), Some(status)) if status.progress.gone => return Some(ended(path, status)),
                (Err(_), Some(status)) if !still_runs(status.tree.host) => {
                    end_orphan(&status).await;
                    let last = folder::read_status(&path).ok().flatten().unwrap_or(status);
                    return Some(ended(path, last));
                }
                (_, Some(status)) if Instant::now() >= deadline => {
                    tracing::warn!(command = %status.about.command, "a command's host does not answer and is ended");
                    kill_orphan(status.tree.host).await;
                    end_orphan(&status).await;
                    return Some(ended(path, status));
                }
                (_, None) if Instant::now() >= deadline => {
                    folder::remove(&path);
                    return None;
                }
                _ => sleep(TRY_EVERY).await,
            }
        }
    }

    async fn reach(&self, path: &Path) -> io::Result<Hosted> {
        let stream = connect(path).await?;
        let line = Line::new(stream, None, Kept::new(path.to_path_buf()), self.slot());
        converse::resume(line, ANSWER_WAIT).await
    }
}

/// Ends what is left of a command whose host is gone: its session, and what left that but still bears its call's mark.
pub(super) async fn end_orphan(status: &Status) {
    end_command(status.tree.command).await;
    kill_marked(vec![status.about.tool_call_id.clone()]).await;
}

/// A command that needs no host any more.
fn ended(path: PathBuf, status: Status) -> Survivor {
    let (_, progress) = watch::channel(lost(status.progress));
    let hosted = Hosted::new(status.tree, progress, std::sync::Arc::new(Kept::new(path))).0;
    Survivor { about: status.about, hosted }
}

/// Through the folder's descriptor: the path of a socket is limited to about 100 bytes.
#[cfg(target_os = "linux")]
async fn connect(path: &Path) -> io::Result<UnixStream> {
    use std::os::fd::AsRawFd;

    let folder = std::fs::File::open(path)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{CONTROL}", folder.as_raw_fd())).await
}

#[cfg(not(target_os = "linux"))]
async fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path.join(CONTROL)).await
}
