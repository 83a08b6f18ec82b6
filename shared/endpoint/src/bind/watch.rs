//! Tells when something changes in the folder of the socket, without looking at it now and then.

use std::path::Path;
use std::task::{Context, Poll};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// A folder that is watched.
#[derive(Debug)]
pub(super) struct FolderWatch {
    changes: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl FolderWatch {
    /// Watches a folder, itself included. Without a watcher (the system may have run out of them) the daemon works, but
    /// a socket that somebody removes stays away until it is restarted.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        // One waiting mark is enough: whoever reads it looks at the folder as it then is.
        let (mark, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                let _ = mark.try_send(()).is_ok();
            }
        });
        let watching = watcher.and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watching {
            Ok(watcher) => Some(Self { changes, _watcher: watcher }),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "the folder of the socket cannot be watched");
                None
            }
        }
    }

    /// Whether something changed since the last call.
    pub(super) fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.changes.poll_recv(context) {
            Poll::Ready(Some(())) => Poll::Ready(()),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
