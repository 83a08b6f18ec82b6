//! Finding files by name and by content: bounded in time and in what is given, never out of the tree by a link.

pub mod glob;
pub mod grep;
mod hits;

pub use glob::GlobTool;
pub use grep::GrepTool;

use std::path::Path;
use std::time::Duration;

use ignore::WalkBuilder;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When a search has to end.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    deadline: Instant,
    cancel: CancellationToken,
}

impl Stop {
    /// After `limit`, or when cancelled.
    pub(crate) fn after(limit: Duration, cancel: CancellationToken) -> Self {
        Self { deadline: Instant::now() + limit, cancel }
    }

    /// Whether it has to end now.
    pub(crate) fn now(&self) -> bool {
        self.cancelled() || Instant::now() >= self.deadline
    }

    /// Whether it has to end because the call was cancelled.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

/// A walk of the tree at `root`: hidden files too, `.git` not, links not followed, and (when `respect_ignores`) without
/// what `.gitignore` and `.ignore` name, in a git repository or not.
pub(crate) fn walker(root: &Path, respect_ignores: bool) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    builder
        .standard_filters(respect_ignores)
        .hidden(false)
        .require_git(false)
        // The user's own list is found through the environment, which here is the daemon's.
        .git_global(false)
        .follow_links(false)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    builder
}
