//! Snapshots of a project's files around what changes them.
//!
//! A look is taken when a turn begins, right before a call that may change something, and after it. The last runs beside the
//! next request to the model, so that a turn waits for little of it. What was changed between two looks while no call ran
//! was somebody else, or a command of the agent's that goes on in the background: the model is told about what it has seen
//! of that. Between the steps of a turn it is told so where that is known without a look at everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_events::checkpoint::{Changes, Checkpoint};
use mcode_events::event::EventBody;
use mcode_events::state::ThreadState;
use mcode_ids::{CheckpointId, ToolCallId, TurnId};
use mcode_permissions::Access;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::drive::{Driver, RunServices, Stop};

/// A look that is not older than this counts as one that was taken right now.
const FRESH: Duration = Duration::from_millis(50);

/// How long the end of a turn waits for its last look.
const LAST_LOOK_MAX: Duration = Duration::from_secs(10);

/// How long the end of a cancelled one does.
const CANCELLED_LOOK_MAX: Duration = Duration::from_secs(1);

/// How long the first request of a turn waits to be able to tell of changes since the last one.
const NEWS_WAIT_MAX: Duration = Duration::from_millis(150);

/// Files that the model is told about; the others are counted.
const TOLD_MAX: usize = 20;

/// Commands in the background that it is told about.
const COMMANDS_TOLD_MAX: usize = 3;

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSnapshot {
    /// Its name.
    pub snapshot: String,
    /// What differs from the one that was named.
    pub changes: Changes,
}

/// Takes snapshots of the files of one project.
pub trait TakeSnapshot: Send + Sync + std::fmt::Debug {
    /// Takes one of the files as they are now, and says how it differs from `since`. `None` where none is taken; whoever
    /// looks into it is told why.
    fn take(&self, since: Option<String>, care: Care) -> BoxFuture<'static, Option<TakenSnapshot>>;

    /// The same where it is known which files were touched since the last one; `None` where it is not.
    fn glance(&self, since: Option<String>) -> BoxFuture<'static, Option<TakenSnapshot>>;
}

/// How sure a snapshot has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Every file is looked at.
    All,
    /// The system's word counts for what was not touched.
    Trusting,
}

/// What was seen of a project's files during a run.
#[derive(Debug)]
pub struct RunSnapshots {
    taker: Option<Arc<dyn TakeSnapshot>>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The root that it is of; empty for the thread's own.
    root: String,
    /// The last snapshot that is on record.
    last: Option<String>,
    /// When it was taken.
    at: Option<Instant>,
    /// A look that is being taken, and the call that it is about.
    looking: Option<(Option<ToolCallId>, JoinHandle<Option<TakenSnapshot>>)>,
    /// None is taken of this project.
    off: bool,
    /// What somebody else has changed and the model was not told.
    news: Vec<Changes>,
}

impl RunSnapshots {
    /// Those of a run that goes on from the thread's last one of this root, which is empty for the thread's own.
    #[must_use]
    pub fn new(taker: Option<Arc<dyn TakeSnapshot>>, root: String, last: Option<String>) -> Self {
        let off = taker.is_none();
        Self { taker, seen: Mutex::new(Seen { root, last, off, ..Seen::default() }) }
    }

    /// Begins to look, beside whatever comes next.
    async fn look(&self, call: Option<ToolCallId>, care: Care) {
        let mut seen = self.seen.lock().await;
        let Some(taker) = self.taker.as_ref().filter(|_| !seen.off && seen.looking.is_none()) else { return };
        seen.looking = Some((call, tokio::spawn(taker.take(seen.last.clone(), care))));
    }

    /// Takes up the look that was begun last, if any; what is to be recorded of it.
    async fn taken(&self, seen: &mut MutexGuard<'_, Seen>, services: &RunServices) -> Option<EventBody> {
        let (call, looking) = seen.looking.as_mut()?;
        let (call, taken) = (*call, looking.await.ok().flatten());
        seen.looking = None;
        let Some(taken) = taken else {
            // Where none can be taken once, it is not tried at each call again.
            seen.off = true;
            return None;
        };
        Self::taken_up(seen, call, taken, services)
    }

    /// What is to be recorded of a snapshot.
    fn taken_up(
        seen: &mut Seen,
        call: Option<ToolCallId>,
        taken: TakenSnapshot,
        services: &RunServices,
    ) -> Option<EventBody> {
        seen.at = Some(Instant::now());
        if seen.last.as_ref() == Some(&taken.snapshot) {
            return None;
        }
        let before = seen.last.replace(taken.snapshot.clone());
        if before.is_some() && call.is_none() {
            seen.news.push(taken.changes.clone());
        }
        let checkpoint = Checkpoint {
            checkpoint_id: CheckpointId::from_uuid(services.ids.next()),
            root: seen.root.clone(),
            before,
            snapshot: taken.snapshot,
            tool_call_id: call,
            changes: taken.changes,
        };
        Some(EventBody::CheckpointTaken { checkpoint })
    }

    /// Makes sure that a snapshot from right before a call is on record.
    pub(crate) async fn before(&self, services: &RunServices, turn_id: TurnId) -> Result<(), Stop> {
        let mut seen = self.seen.lock().await;
        let mut bodies: Vec<EventBody> = self.taken(&mut seen, services).await.into_iter().collect();
        let fresh = seen.at.is_some_and(|at| at.elapsed() <= FRESH);
        if let Some(taker) = self.taker.as_ref().filter(|_| !seen.off && !fresh) {
            seen.looking = Some((None, tokio::spawn(taker.take(seen.last.clone(), Care::Trusting))));
            bodies.extend(self.taken(&mut seen, services).await);
        }
        drop(seen);
        record(services, turn_id, bodies).await
    }

    /// Looks at what a call has changed, beside what comes next.
    pub(crate) async fn after(&self, call: ToolCallId) {
        self.look(Some(call), Care::Trusting).await;
    }

    /// Takes up what is known without waiting: the look that was begun last, if it has ended, and what the system says was
    /// touched since.
    async fn glance(&self, services: &RunServices, turn_id: TurnId) -> Result<(), Stop> {
        let mut seen = self.seen.lock().await;
        let mut bodies = Vec::new();
        if seen.looking.as_ref().is_some_and(|(_, looking)| looking.is_finished()) {
            bodies.extend(self.taken(&mut seen, services).await);
        }
        let taker = self.taker.as_ref().filter(|_| !seen.off && seen.looking.is_none() && seen.last.is_some());
        if let Some(taker) = taker
            && let Some(taken) = taker.glance(seen.last.clone()).await
        {
            bodies.extend(Self::taken_up(&mut seen, None, taken, services));
        }
        drop(seen);
        record(services, turn_id, bodies).await
    }

    /// Puts on record what was looked at last, if that is known soon enough.
    async fn settle(&self, services: &RunServices, turn_id: TurnId, at_most: Duration) -> Result<(), Stop> {
        let body = {
            let mut seen = self.seen.lock().await;
            tokio::time::timeout(at_most, self.taken(&mut seen, services)).await.ok().flatten()
        };
        record(services, turn_id, body.into_iter().collect()).await
    }

    /// What the model is told of changes to what it has seen that no call made; `background` are its commands that go on.
    async fn news(&self, has_seen: impl Fn(&str) -> bool, background: &[&str]) -> Option<String> {
        let news = std::mem::take(&mut self.seen.lock().await.news);
        let files = news.iter().flat_map(|changes| &changes.files).filter(|file| has_seen(&file.path));
        let files: BTreeSet<&str> = files.map(|file| file.path.as_str()).collect();
        if files.is_empty() {
            return None;
        }
        let named: Vec<&str> = files.iter().copied().take(TOLD_MAX).collect();
        let more = files.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let who = match background {
            [] => "Somebody else has changed".to_owned(),
            commands => {
                format!("Somebody else, or your command in the background ({}), has changed", commands.join("; "))
            }
        };
        Some(format!(
            "{who} files that you have seen: {}{more}. Look at them again before you rely on them.",
            named.join(", ")
        ))
    }
}

async fn record(services: &RunServices, turn_id: TurnId, bodies: Vec<EventBody>) -> Result<(), Stop> {
    if !bodies.is_empty() {
        services.port.record(turn_id, bodies).await?;
    }
    Ok(())
}

/// Whether a call may change files.
pub(crate) fn may_change(access: &[Access]) -> bool {
    access.iter().any(|access| {
        matches!(
            access,
            Access::EditPath(_)
                | Access::Command { .. }
                | Access::Unconfined(_)
                | Access::Mentioned { changes: true, .. }
        )
    })
}

impl Driver {
    /// The files as a turn finds them. Who has seen none of them yet asks the model meanwhile.
    pub(crate) async fn look_at_files(&self, turn_id: TurnId) -> Result<(), Stop> {
        self.services.snapshots.look(None, Care::All).await;
        if self.services.ledger.is_empty() {
            return Ok(());
        }
        self.services.snapshots.settle(&self.services, turn_id, NEWS_WAIT_MAX).await
    }

    /// The files as a turn leaves them.
    pub(crate) async fn settle_files(&self, turn_id: TurnId) -> Result<(), Stop> {
        let at_most = if self.context.cancel.is_cancelled() { CANCELLED_LOOK_MAX } else { LAST_LOOK_MAX };
        self.services.snapshots.settle(&self.services, turn_id, at_most).await
    }

    /// Tells the model what was changed of what it has seen, by nothing that it waited for.
    pub(crate) async fn tell_of_changes(&self, turn_id: TurnId, state: &ThreadState) -> Result<(), Stop> {
        let (root, ledger) = (&self.context.project_root, &self.services.ledger);
        self.services.snapshots.glance(&self.services, turn_id).await?;
        let processes = state.open.processes.values().filter(|process| process.background);
        let background: Vec<&str> = processes.map(|process| process.command.as_str()).take(COMMANDS_TOLD_MAX).collect();
        let has_seen = |path: &str| ledger.seen(&root.join(Path::new(path))).is_some();
        match self.services.snapshots.news(has_seen, &background).await {
            Some(text) => self.tell_model(turn_id, &text).await,
            None => Ok(()),
        }
    }
}
