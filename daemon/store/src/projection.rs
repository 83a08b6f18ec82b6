//! Rows that are folds of the log, kept in the same transaction, for lists and look-ups.

use mcode_events::ForkPoint;
use mcode_events::run::RunRecord;
use mcode_events::state::ThreadState;
use mcode_events::usage::Usage;
use mcode_ids::{ProjectId, RunId, Seq, ThreadId};

/// A thread as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadRow {
    /// The thread.
    pub thread_id: ThreadId,
    /// Its project.
    pub project_id: ProjectId,
    /// Where it works.
    pub cwd: String,
    /// The root of the work tree that it was made in; empty where that is not known.
    pub root: String,
    /// What it is called.
    pub title: String,
    /// `provider/model`.
    pub model: String,
    /// `build`, `plan` or `explore`.
    pub mode: String,
    /// `idle`, `running` or `waiting`.
    pub activity: String,
    /// The run at work.
    pub active_run: Option<RunId>,
    /// Whether it is put away.
    pub archived: bool,
    /// Whether it is kept at the top.
    pub pinned: bool,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The beginning of what the user said last.
    pub preview: String,
    /// The thread that it was forked from.
    pub forked: Option<ForkPoint>,
    /// Whether it goes when its run ends.
    pub ephemeral: bool,
    /// Whether anything was started and has not ended.
    pub unfinished: bool,
    /// When it was made, milliseconds since 1970 UTC.
    pub created_at_ms: i64,
    /// When its last event was appended.
    pub updated_at_ms: i64,
    /// Its last event.
    pub last_seq: Seq,
    /// What it cost.
    pub usage: Usage,
}

impl ThreadRow {
    /// The row of a state; `None` before the thread was created.
    #[must_use]
    pub fn of(state: &ThreadState) -> Option<Self> {
        Some(Self {
            thread_id: state.thread_id,
            project_id: state.project_id?,
            cwd: state.cwd.clone(),
            root: state.root.clone(),
            title: state.title.clone(),
            model: state.model.clone(),
            mode: state.mode.clone(),
            activity: state.activity().to_owned(),
            active_run: state.open.run,
            archived: state.archived,
            pinned: state.pinned,
            tags: state.tags.clone(),
            preview: state.preview.clone(),
            forked: state.forked,
            ephemeral: state.ephemeral,
            unfinished: !state.open.is_empty(),
            created_at_ms: state.created_at_ms,
            updated_at_ms: state.updated_at_ms,
            last_seq: state.last_seq,
            usage: state.usage,
        })
    }
}

/// A run as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Its thread.
    pub thread_id: ThreadId,
    /// The run.
    pub record: RunRecord,
}

/// A folder as its project is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The id of the project if it is new.
    pub project_id: ProjectId,
    /// The root of the work tree, absolute and resolved.
    pub root: String,
    /// What the project is known by: `git:host/path` of a remote, `path:/root` of the main work tree.
    pub identity: String,
    /// The folder's name.
    pub name: String,
    /// Which folder it is, wherever it is moved to; empty where that is not known.
    pub folder: String,
    /// Now, in milliseconds since 1970 UTC.
    pub now_ms: i64,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// Its id.
    pub project_id: ProjectId,
    /// The root folder that it was seen in first, absolute and resolved.
    pub root: String,
    /// The folder's name.
    pub name: String,
    /// When it was first seen, milliseconds since 1970 UTC.
    pub created_at_ms: i64,
    /// What it is known by, at most some: `git:host/path`, `path:/root`, `resource:name`.
    pub identities: Vec<String>,
}

/// Which threads to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadFilter {
    /// Only of this project.
    pub project_id: Option<ProjectId>,
    /// Only of the work tree with this root.
    pub root: Option<String>,
    /// Only with this tag.
    pub tag: Option<String>,
    /// Only forked from this one.
    pub parent: Option<ThreadId>,
    /// Archived ones too.
    pub include_archived: bool,
    /// Only those that are called about so, best first; empty for all.
    pub query: String,
    /// Newest activity first, whether pinned or not.
    pub by_activity: bool,
    /// How many at most.
    pub page_size: u32,
    /// Where to go on.
    pub page_token: Option<String>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}
