//! The durable memory of the daemon: the event log, its projections, idempotency keys, projects and blobs.
//!
//! SQLite in WAL mode with `synchronous=FULL`: an append that was acknowledged survives `kill -9` and power loss.
//! One thread owns the writing connection and commits everything that waits in one transaction; readers use
//! connections of their own. Each row carries a checksum, so that damage is found and named, never taken for news.
//! Beside the logs it keeps the record of permissions (a hash chain), grants, and which projects are trusted.
//! Only this crate writes SQL. Absent on purpose: stored snapshots. Folding 10,000 events takes a few tens of
//! milliseconds, less than it would to keep a second copy of every history true.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod audit;
mod blobs;
mod care;
mod error;
mod forget;
mod gone;
mod grants;
mod importing;
mod lineage;
mod log;
mod named;
mod plans;
mod presence;
mod projection;
mod projects;
mod read;
mod row;
mod schema;
mod search;
mod snippet;
mod titles;
mod tree;
mod usage;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use mcode_env::Clock;
use mcode_events::blob::Blobs;
use mcode_events::event::NewEvent;
use mcode_events::state::ThreadState;
use mcode_events::usage::NanoUsd;
use mcode_ids::{ApprovalId, GoalId, ProjectId, QuestionId, RequestId, RunId, Seq, ThreadId, ToolCallId};

pub use crate::audit::{AUDIT_CUT, AUDIT_RECORDS_MAX, AuditCheck, AuditRow};
pub use crate::care::backup::{ARCHIVE_ENTRIES_MAX, ARCHIVE_ENTRY_BYTES_MAX, ArchiveError, Copied, Restored, restore};
pub use crate::care::check::{Check, FAULTS_TOLD_MAX, Fault, FaultKind};
pub use crate::care::mend::{Mended, ORPHAN_AGE_MS};
pub use crate::care::retention::{Due, GRACE_MS, IDLE_MS, KEEP_TAG, LEAVING_MAX, Leaving, Policy, Why};
pub use crate::care::space::{Space, SpaceRow};
pub use crate::error::{AppendError, Damage, ReadError, StoreError};
pub use crate::grants::{GRANTS_MAX, GrantRow, TrustRow};
pub use crate::importing::{ImportKey, ImportRow, STAGED_BYTES_MAX, STAGED_EVENTS_MAX, Staging};
pub use crate::plans::{PlanFilter, PlanRow};
pub use crate::projection::{Page, Place, ProjectRow, RunRow, ThreadFilter, ThreadRow};
pub use crate::search::{Found, SEARCHED_TEXT_MAX, Said, SearchFilter};
pub use crate::snippet::Snippet;
pub use crate::titles::{TITLE_HITS_MAX, TITLES_MAX};
pub use crate::tree::{TREE_THREADS_MAX, TreeFilter, TreeRow};
pub use crate::usage::{UsageFilter, UsageGroup, UsageReport, UsageRow, UsageSums};

/// The largest event payload that is kept in the log itself, in bytes; larger ones go to a blob.
pub const INLINE_PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// How long the answer to a request id is kept, in milliseconds (24 h).
pub const REQUEST_ID_KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// The answer that was given to a mutation, for when it is asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// Hash of the request, so that the same id with another body is told apart.
    pub fingerprint: String,
    /// The response, as its owner encoded it.
    pub response: String,
}

/// What is appended in one transaction.
#[derive(Debug, Clone)]
pub struct Append {
    /// The thread.
    pub thread_id: ThreadId,
    /// Its last seq before this append.
    pub expected: Seq,
    /// The events.
    pub events: Vec<NewEvent>,
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// The thread as it stands after the events. One that is forked and new shares the events up to `expected`.
    pub row: ThreadRow,
    /// Runs that the events changed.
    pub runs: Vec<RunRow>,
    /// The mutation that caused it.
    pub request: Option<(RequestId, StoredResponse)>,
}

/// What was read of a thread's log.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The fold of everything readable, also behind what is damaged.
    pub state: ThreadState,
    /// The first event that could not be read, if there is one. The thread must then not be written to.
    pub damage: Option<Damage>,
}

/// The store. Cheap to clone; the writer thread ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Store {
    writer: write::Writer,
    readers: Arc<read::Readers>,
    blobs: Arc<blobs::BlobFiles>,
    clock: Arc<dyn Clock>,
    looker: gone::Looker,
    /// Held while what deleted threads have left is removed.
    forgetting: Arc<tokio::sync::Mutex<()>>,
}

impl Store {
    /// Opens or makes the database at `database` and the folder of blobs. Blocking.
    pub fn open(database: PathBuf, blobs: PathBuf, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        if let Some(dir) = database.parent() {
            mcode_env::files::create_private_dir(dir)
                .map_err(|source| StoreError::Io { path: dir.to_path_buf(), source })?;
        }
        care::backup::finish(&database, &blobs)?;
        let blobs = Arc::new(blobs::BlobFiles::open(blobs)?);
        let connection = schema::open(&database, &blobs)?;
        let writer = write::Writer::start(
            connection,
            presence::Presence::of(&database),
            Arc::clone(&blobs),
            Arc::clone(&clock),
        )?;
        let readers = Arc::new(read::Readers::new(database, Arc::clone(&blobs)));
        Ok(Self { writer, readers, blobs, clock, looker: gone::Looker::default(), forgetting: Arc::default() })
    }

    /// Large bodies.
    #[must_use]
    pub fn blobs(&self) -> Arc<dyn Blobs> {
        Arc::clone(&self.blobs) as Arc<dyn Blobs>
    }

    /// Appends events; returns when they are on the disk.
    pub async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        self.writer.append(append).await
    }

    /// The project of a place; made when it is new.
    pub async fn resolve_project(&self, place: Place) -> Result<ProjectRow, StoreError> {
        let asked = place.clone();
        let former = self.readers.run(move |reader| Ok(projects::former_roots(reader.connection, &asked)?)).await?;
        let gone = self.looker.gone(former).await;
        self.writer.change(move |transaction, _now| projects::resolve(transaction, &place, &gone)).await
    }

    /// The project that the user calls so, wherever that is; made when it is new.
    pub async fn named_project(&self, name: String, project_id: ProjectId) -> Result<ProjectRow, StoreError> {
        self.writer.change(move |transaction, now| projects::named(transaction, &name, project_id, now)).await
    }

    /// Has the threads of a known root belong to what the user calls so; an empty name takes that back. Resolve the place
    /// again afterwards.
    pub async fn set_resource(&self, root: String, resource: String) -> Result<(), StoreError> {
        self.writer.change(move |transaction, _now| projects::set_resource(transaction, &root, &resource)).await
    }

    /// Looks through some of what was said and is not found yet; whether anything is left. Appends wait for some
    /// milliseconds at most.
    pub async fn index_some(&self) -> Result<bool, StoreError> {
        let blobs = Arc::clone(&self.blobs);
        self.writer.change(move |transaction, _now| search::index(transaction, &blobs)).await
    }

    /// Where something was said, best first.
    pub async fn search(&self, filter: SearchFilter) -> Result<Found, ReadError> {
        self.readers.run(move |reader| reader.search(&filter)).await
    }

    /// At most `max` events after `after`, at most about `max_bytes` of payload (but at least one event). One that cannot
    /// be read has an [`EventBody::damaged`](mcode_events::EventBody::damaged) in its place.
    pub async fn read(
        &self,
        thread_id: ThreadId,
        after: Seq,
        max: u32,
        max_bytes: usize,
    ) -> Result<Vec<mcode_events::Event>, ReadError> {
        self.readers.run(move |reader| reader.events(thread_id, after, max, max_bytes)).await
    }

    /// The fold of a thread's log; `None` when there is no such thread.
    pub async fn load(&self, thread_id: ThreadId) -> Result<Option<Loaded>, ReadError> {
        self.load_to(thread_id, None).await
    }

    /// The fold of a thread's log up to and with an event; to its end without one.
    pub async fn load_to(&self, thread_id: ThreadId, upto: Option<Seq>) -> Result<Option<Loaded>, ReadError> {
        self.readers.run(move |reader| reader.load(thread_id, upto)).await
    }

    /// A thread's row.
    pub async fn thread(&self, thread_id: ThreadId) -> Result<Option<ThreadRow>, ReadError> {
        self.readers.run(move |reader| reader.thread(thread_id)).await
    }

    /// Threads, newest activity first.
    pub async fn threads(&self, filter: ThreadFilter) -> Result<Page<ThreadRow>, ReadError> {
        self.readers.run(move |reader| reader.threads(&filter)).await
    }

    /// Threads with their forks.
    pub async fn tree(&self, filter: TreeFilter) -> Result<Page<TreeRow>, ReadError> {
        self.readers.run(move |reader| reader.tree(&filter)).await
    }

    /// Plans, newest first.
    pub async fn plans(&self, filter: PlanFilter) -> Result<Page<PlanRow>, ReadError> {
        self.readers.run(move |reader| reader.plans(&filter)).await
    }

    /// The plan that a call has submitted.
    pub async fn plan(&self, tool_call_id: ToolCallId) -> Result<Option<PlanRow>, ReadError> {
        self.readers.run(move |reader| reader.plan(tool_call_id)).await
    }

    /// Threads with something unfinished: what recovery looks at.
    pub async fn unfinished_threads(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.readers.run(|reader| reader.unfinished_threads()).await
    }

    /// Threads that go when their run ends.
    pub async fn ephemeral_threads(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.readers.run(|reader| reader.ephemeral_threads()).await
    }

    /// A run's row.
    pub async fn run(&self, run_id: RunId) -> Result<Option<RunRow>, ReadError> {
        self.readers.run(move |reader| reader.run(run_id)).await
    }

    /// Runs, newest first.
    pub async fn runs(
        &self,
        thread_id: Option<ThreadId>,
        active_only: bool,
        page_size: u32,
        page_token: Option<String>,
    ) -> Result<Page<RunRow>, ReadError> {
        self.readers.run(move |reader| reader.runs(thread_id, active_only, page_size, page_token.as_deref())).await
    }

    /// The thread that an approval belongs to.
    pub async fn thread_of_approval(&self, approval_id: ApprovalId) -> Result<Option<ThreadId>, ReadError> {
        self.readers.run(move |reader| reader.thread_of(&approval_id.to_string())).await
    }

    /// The thread that a question belongs to.
    pub async fn thread_of_question(&self, question_id: QuestionId) -> Result<Option<ThreadId>, ReadError> {
        self.readers.run(move |reader| reader.thread_of(&question_id.to_string())).await
    }

    /// The thread of a tool call, if it is one of this store.
    pub async fn thread_of_call(&self, tool_call_id: ToolCallId) -> Result<Option<ThreadId>, ReadError> {
        self.readers.run(move |reader| reader.thread_of_call(&tool_call_id.to_string())).await
    }

    /// Threads that wait for the user.
    pub async fn waiting_threads(&self) -> Result<Vec<ThreadId>, ReadError> {
        self.readers.run(|reader| reader.waiting_threads()).await
    }

    /// The answer that was given to this request id, within the last 24 h.
    pub async fn response_to(&self, request_id: RequestId) -> Result<Option<StoredResponse>, ReadError> {
        let since = self.clock.now().millis() - REQUEST_ID_KEPT_MS;
        self.readers.run(move |reader| reader.response_to(&request_id, since)).await
    }

    /// Known projects, newest first.
    pub async fn projects(&self, page_size: u32, page_token: Option<String>) -> Result<Page<ProjectRow>, ReadError> {
        self.readers.run(move |reader| reader.projects(page_size, page_token.as_deref())).await
    }

    /// A project by its id.
    pub async fn project(&self, project_id: ProjectId) -> Result<Option<ProjectRow>, ReadError> {
        self.readers.run(move |reader| reader.project(project_id)).await
    }

    /// The project that a root belongs to now.
    pub async fn project_of_root(&self, root: String) -> Result<Option<ProjectId>, ReadError> {
        self.readers.run(move |reader| Ok(projects::of_root(reader.connection, &root)?)).await
    }

    /// Money spent since a moment (milliseconds since 1970 UTC), over all threads, also those that were deleted.
    pub async fn spent_since(&self, at_ms: i64) -> Result<NanoUsd, ReadError> {
        self.readers.run(move |reader| reader.spent_since(at_ms)).await
    }

    /// Money spent for a goal.
    pub async fn spent_for(&self, goal_id: GoalId) -> Result<NanoUsd, ReadError> {
        self.readers.run(move |reader| reader.spent_for(goal_id)).await
    }

    /// Tokens and money, summed.
    pub async fn usage(&self, filter: UsageFilter) -> Result<UsageReport, ReadError> {
        self.readers.run(move |reader| reader.usage(&filter)).await
    }

    /// Makes what is kept of requests' costs anew from the log; that of deleted threads stays.
    pub async fn rebuild_usage(&self) -> Result<(), StoreError> {
        self.writer.change(|transaction, _now| usage::rebuild(transaction)).await
    }
}
