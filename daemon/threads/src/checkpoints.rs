//! Checkpoints of the projects in which threads work: one depot for each root, shown and undone by thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mcode_agent::TakeSnapshot;
use mcode_checkpoints::{
    ChangeKind, CheckpointError, Choice, Depot, DiffBody, FileDiff, Hint, Limits, Lookout, Pick, Settings, Span,
    TreePath,
};
use mcode_env::Clock;
use mcode_events::checkpoint::{ChangedFile, Changes, CheckpointMark, FILES_NAMED_MAX};
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::state::ThreadState;
use mcode_ids::{CheckpointId, ThreadId};

use crate::command::Command;
use crate::error::ThreadError;
use crate::held::Held;
use crate::lookouts::ProjectSnapshots;
use crate::registry::Threads;

/// Most bytes of text of one answer about differences.
const DIFF_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Depots that stay open: each remembers what its project looks like.
const OPEN_MAX: usize = 8;

/// A project of which nothing can be kept is tried again after this long, in milliseconds: what is ignored may be another.
const OFF_MS: i64 = 10 * 60 * 1000;

/// The depots of all projects.
pub struct Depots {
    data: PathBuf,
    clock: Arc<dyn Clock>,
    /// The user's own list of what git ignores.
    excludes: Option<PathBuf>,
    /// Roots of which nothing is kept: a home folder is no project.
    never: Vec<PathBuf>,
    /// The one that was used last at the end.
    open: Mutex<Vec<(PathBuf, Arc<Depot>)>>,
    /// Those that runs look out from. They end with the last run of a project.
    lookouts: Mutex<Vec<(PathBuf, Weak<Lookout>)>>,
    /// Why, and until when it is not tried again, in milliseconds since 1970 UTC.
    off: Mutex<BTreeMap<PathBuf, (String, i64)>>,
    /// What runs know last, and what may go.
    pub(crate) held: Held,
    pub(crate) limits: Limits,
}

impl std::fmt::Debug for Depots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Depots").field("data", &self.data).finish_non_exhaustive()
    }
}

impl Depots {
    /// Depots below `data`, mcode's own folder; `home` is the user's, `config` what `XDG_CONFIG_HOME` names. Blocking.
    #[must_use]
    pub fn new(data: PathBuf, home: Option<PathBuf>, config: Option<&Path>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let excludes = home.as_deref().map(|home| mcode_checkpoints::global_excludes(home, config));
        let home = home.and_then(|home| std::fs::canonicalize(home).ok());
        let never = home.into_iter().chain([PathBuf::from("/")]).collect();
        Arc::new(Self {
            data,
            clock,
            excludes,
            never,
            open: Mutex::default(),
            lookouts: Mutex::default(),
            off: Mutex::default(),
            held: Held::default(),
            limits: Limits::default(),
        })
    }

    /// Why nothing is kept of a project; `None` when it is.
    #[must_use]
    pub fn off(&self, root: &Path) -> Option<String> {
        if self.never.iter().any(|never| never == root) {
            return Some("a home folder is no project: begin in a folder of its own".to_owned());
        }
        let mut off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().millis();
        off.retain(|_, (_, until)| *until > now);
        off.get(root).map(|(why, _)| why.clone())
    }

    /// Whether anything was ever kept of a root.
    pub(crate) fn has(&self, root: &Path) -> bool {
        Depot::folder(&self.data, root).is_dir()
    }

    /// Whoever takes snapshots of this project for a run; `last` is the latest that its thread knows.
    #[must_use]
    pub fn snapshots_of(self: &Arc<Self>, root: &Path, last: Option<&str>) -> Option<Arc<dyn TakeSnapshot>> {
        if self.off(root).is_some() {
            return None;
        }
        Some(Arc::new(ProjectSnapshots::new(Arc::clone(self), root.to_path_buf(), last)))
    }

    /// The depot of a root. Blocking.
    pub(crate) fn depot(&self, root: &Path) -> Result<Arc<Depot>, CheckpointError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(of, _)| of == root) {
            let used = open.remove(at);
            let depot = Arc::clone(&used.1);
            open.push(used);
            return Ok(depot);
        }
        let settings = Settings {
            clock: Arc::clone(&self.clock),
            excludes: self.excludes.clone(),
            skip: vec![self.data.clone()],
            limits: self.limits,
        };
        let depot = Arc::new(Depot::open(&Depot::folder(&self.data, root), root, settings)?);
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push((root.to_path_buf(), Arc::clone(&depot)));
        Ok(depot)
    }

    /// Where runs look out from over a project. Blocking.
    pub(crate) fn lookout(&self, root: &Path) -> Result<Arc<Lookout>, CheckpointError> {
        let depot = self.depot(root)?;
        let mut lookouts = self.lookouts.lock().unwrap_or_else(PoisonError::into_inner);
        lookouts.retain(|(_, lookout)| lookout.strong_count() > 0);
        if let Some(lookout) = lookouts.iter().find(|(of, _)| of == root).and_then(|(_, lookout)| lookout.upgrade()) {
            return Ok(lookout);
        }
        let lookout = Arc::new(Lookout::new(depot));
        lookouts.push((root.to_path_buf(), Arc::downgrade(&lookout)));
        Ok(lookout)
    }

    /// What could not be kept, and for how long it is not tried again.
    pub(crate) fn note_failure(&self, root: &Path, error: &CheckpointError) {
        tracing::warn!(root = %root.display(), %error, "the state of a project could not be kept");
        // What may be over soon is tried again by the next turn.
        if error.turns_off() {
            let until = self.clock.now().millis().saturating_add(OFF_MS);
            let mut off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
            off.insert(root.to_path_buf(), (format!("{error}; {}", error.hint()), until));
        }
    }
}

pub(crate) fn summed(changes: &[mcode_checkpoints::Change]) -> Changes {
    let mut sum = Changes::default();
    for change in changes {
        let (count, word) = match &change.kind {
            ChangeKind::Added => (&mut sum.added, "added"),
            ChangeKind::Deleted => (&mut sum.deleted, "deleted"),
            ChangeKind::Modified => (&mut sum.modified, "modified"),
            ChangeKind::ModeChanged => (&mut sum.modified, "mode"),
            ChangeKind::TypeChanged => (&mut sum.modified, "type"),
            ChangeKind::Renamed { .. } => (&mut sum.modified, "renamed"),
        };
        *count += 1;
        if sum.files.len() < FILES_NAMED_MAX {
            sum.files.push(ChangedFile { path: change.path.text().into_owned(), change: word.to_owned() });
        }
    }
    sum
}

/// One path that is to be brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePick {
    /// Within the project.
    pub path: String,
    /// Only these hunks; empty for all.
    pub hunks: Vec<usize>,
}

/// What is to be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restore {
    /// To which state; `None` for that before the last turn that changed anything.
    pub checkpoint_id: Option<CheckpointId>,
    /// Which paths; empty for all.
    pub picks: Vec<RestorePick>,
    /// Also what somebody else has changed since.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What was, or would be, brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// To which state.
    pub checkpoint_id: CheckpointId,
    /// Paths, and `created`, `changed` or `removed`.
    pub files: Vec<(String, &'static str)>,
    /// Paths that were left alone, why, and whether force would bring them back.
    pub conflicts: Vec<(String, String, bool)>,
    /// Paths that were as they had been already.
    pub already: usize,
}

/// How files differ since a state.
#[derive(Debug, Clone, PartialEq)]
pub struct Differences {
    /// Since which.
    pub checkpoint_id: CheckpointId,
    /// File by file.
    pub files: Vec<FileDiff>,
    /// Files that are left out.
    pub left_out: usize,
}

impl Threads {
    /// The states that were kept in a thread, oldest first, and why none are kept now.
    pub async fn checkpoints(
        &self,
        thread_id: ThreadId,
    ) -> Result<(Vec<Arc<CheckpointMark>>, Option<String>), ThreadError> {
        let state = self.state(thread_id).await?;
        let off = self.deps().depots.off(&root_of(&state));
        Ok((state.checkpoints.clone(), off))
    }

    /// What the agent has changed since a state.
    pub async fn checkpoint_diff(
        &self,
        thread_id: ThreadId,
        checkpoint_id: Option<CheckpointId>,
        paths: Vec<String>,
    ) -> Result<Differences, ThreadError> {
        let state = self.state(thread_id).await?;
        let (checkpoint_id, root, spans) = spans_since(&state, checkpoint_id)?;
        let depots = Arc::clone(&self.deps().depots);
        blocking(move || {
            let depot = depots.depot(&root).map_err(refused)?;
            let mut wanted = BTreeSet::new();
            for path in paths {
                wanted.insert(tree_path(&path)?);
            }
            if wanted.is_empty() {
                for span in &spans {
                    let changes = depot.changes(span.before, span.after).map_err(refused)?;
                    wanted.extend(changes.into_iter().map(|change| change.path));
                }
            }
            let (mut files, mut bytes, count) = (Vec::new(), 0, wanted.len());
            for path in wanted {
                let diff = depot.diff_spans(&spans, &path).map_err(refused)?;
                bytes += match &diff.body {
                    DiffBody::Hunks(hunks) => hunks.iter().map(|hunk| hunk.text.len()).sum(),
                    _ => 0,
                };
                if bytes > DIFF_ANSWER_BYTES_MAX {
                    break;
                }
                files.push(diff);
            }
            let left_out = count - files.len();
            Ok(Differences { checkpoint_id, files, left_out })
        })
        .await
    }

    /// Brings back what the agent has changed since a state.
    pub async fn restore(&self, thread_id: ThreadId, restore: Restore) -> Result<RestoreOutcome, ThreadError> {
        let state = self.state(thread_id).await?;
        if let Some(run_id) = state.open.run {
            return Err(ThreadError::RunActive { thread_id, run_id });
        }
        let (checkpoint_id, root, spans) = spans_since(&state, restore.checkpoint_id)?;
        let depots = Arc::clone(&self.deps().depots);
        let dry_run = restore.dry_run;
        let (outcome, undo) = blocking(move || {
            let depot = depots.depot(&root).map_err(refused)?;
            carry_out(&depot, &spans, &restore, checkpoint_id).map_err(refused_or(checkpoint_id))
        })
        .await?;
        if !dry_run && !outcome.files.is_empty() {
            let files = outcome.files.iter().map(|(path, _)| path.clone()).take(FILES_NAMED_MAX).collect();
            let left = u32::try_from(outcome.conflicts.len()).unwrap_or(u32::MAX);
            let events = vec![NewEvent::of_thread(EventBody::FilesRestored { before: undo, files, left })];
            self.ask(thread_id, |reply| Command::Record { events: events.clone(), reply }).await?;
        }
        Ok(outcome)
    }
}

/// What can go wrong while files are brought back.
enum Wrong {
    Checkpoint(CheckpointError),
    Thread(ThreadError),
}

impl From<CheckpointError> for Wrong {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

fn refused_or(_: CheckpointId) -> impl Fn(Wrong) -> ThreadError {
    |wrong| match wrong {
        Wrong::Checkpoint(error) => refused(error),
        Wrong::Thread(error) => error,
    }
}

fn carry_out(
    depot: &Depot,
    spans: &[Span],
    restore: &Restore,
    checkpoint_id: CheckpointId,
) -> Result<(RestoreOutcome, String), Wrong> {
    // One that was cut off is ended first: what it had begun is known.
    if !restore.dry_run && depot.interrupted()?.is_some() {
        depot.resume()?;
    }
    let mut picks = Vec::new();
    for pick in &restore.picks {
        let path = tree_path(&pick.path).map_err(Wrong::Thread)?;
        picks.push(Pick { path, hunks: (!pick.hunks.is_empty()).then(|| pick.hunks.clone()) });
    }
    let choice = Choice { picks: (!picks.is_empty()).then_some(picks), force: restore.force };
    let now = depot.snapshot(Hint::None)?.id;
    let plan = depot.plan(spans, &choice, now)?;
    let told = |action: &mcode_checkpoints::Action| {
        let what = match (&action.from, &action.to) {
            (None, _) => "created",
            (_, None) => "removed",
            _ => "changed",
        };
        (action.path.text().into_owned(), what)
    };
    let planned: Vec<(String, &'static str)> = plan.actions.iter().map(told).collect();
    let left = |conflict: &mcode_checkpoints::Conflict| {
        (conflict.path.text().into_owned(), conflict.kind.to_string(), conflict.kind.can_be_forced())
    };
    let already = plan.already;
    if restore.dry_run {
        let conflicts = plan.conflicts.iter().map(left).collect();
        return Ok((RestoreOutcome { checkpoint_id, files: planned, conflicts, already }, String::new()));
    }
    let done = depot.restore(&plan)?;
    let paths: BTreeSet<String> = done.done.iter().map(|path| path.text().into_owned()).collect();
    let files = planned.into_iter().filter(|(path, _)| paths.contains(path)).collect();
    let mut conflicts: Vec<(String, String, bool)> = done.conflicts.iter().map(left).collect();
    conflicts.extend(done.failed.iter().map(|it| (it.path.text().into_owned(), it.error.to_string(), false)));
    Ok((RestoreOutcome { checkpoint_id, files, conflicts, already }, done.undo.to_string()))
}

/// The root of the project that a thread's files are of.
pub(crate) fn root_of(state: &ThreadState) -> PathBuf {
    PathBuf::from(if state.root.is_empty() { &state.cwd } else { &state.root })
}

/// What the agent did after a state in the work tree that it is of, the earliest first.
fn spans_since(
    state: &ThreadState,
    checkpoint_id: Option<CheckpointId>,
) -> Result<(CheckpointId, PathBuf, Vec<Span>), ThreadError> {
    let marks = &state.checkpoints;
    let at = match checkpoint_id {
        Some(id) => marks.iter().position(|mark| mark.checkpoint.checkpoint_id == id),
        None => before_last_turn(marks),
    };
    let Some((at, mark)) = at.and_then(|at| Some((at, marks.get(at)?))) else {
        return Err(match checkpoint_id {
            Some(id) => ThreadError::NotFound { what: "checkpoint", id: id.to_string() },
            None => ThreadError::InvalidArgument {
                field: "checkpoint_id",
                message: format!("no tool call of {} has changed a file", state.thread_id),
            },
        });
    };
    let root = &mark.checkpoint.root;
    let after = marks.iter().skip(at + 1).map(|mark| &mark.checkpoint);
    let after = after.filter(|it| it.tool_call_id.is_some() && it.root == *root);
    let span = |it: &mcode_events::Checkpoint| {
        Some(Span { before: it.before.as_ref()?.parse().ok()?, after: it.snapshot.parse().ok()? })
    };
    let spans = after.filter_map(span).collect();
    let root = if root.is_empty() { root_of(state) } else { PathBuf::from(root) };
    Ok((mark.checkpoint.checkpoint_id, root, spans))
}

/// The state before the last turn in which a call changed anything.
fn before_last_turn(marks: &[Arc<CheckpointMark>]) -> Option<usize> {
    let by_call = |mark: &Arc<CheckpointMark>| mark.checkpoint.tool_call_id.is_some();
    let turn = marks.iter().rev().find(|mark| by_call(mark))?.turn_id;
    let first = marks.iter().position(|mark| by_call(mark) && mark.turn_id == turn)?;
    let root = &marks.get(first)?.checkpoint.root;
    marks.iter().take(first).rposition(|mark| mark.checkpoint.root == *root)
}

fn tree_path(text: &str) -> Result<TreePath, ThreadError> {
    text.parse().map_err(|error| ThreadError::InvalidArgument { field: "path", message: format!("'{text}': {error}") })
}

fn refused(error: CheckpointError) -> ThreadError {
    match error {
        CheckpointError::NoSpace { .. } => ThreadError::DiskFull,
        error => ThreadError::InvalidArgument { field: "checkpoint", message: format!("{error}; {}", error.hint()) },
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ThreadError> + Send + 'static,
) -> Result<T, ThreadError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ThreadError::Store(Box::new(error)))?
}

#[cfg(all(test, target_os = "linux"))]
mod cutting;

#[cfg(test)]
mod tests {
    use mcode_env::ManualClock;

    use super::*;

    #[test]
    fn only_so_many_depots_stay_open_and_those_that_are_used_do() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        let depots = Depots::new(base.join("data"), None, None, Arc::new(ManualClock::default()));
        let root = |at: usize| base.join(format!("project{at}"));
        for at in 0..OPEN_MAX + 3 {
            std::fs::create_dir(root(at)).unwrap();
            depots.depot(&root(at)).unwrap();
            depots.depot(&root(0)).unwrap();
        }
        let open: Vec<PathBuf> = depots.open.lock().unwrap().iter().map(|(root, _)| root.clone()).collect();
        assert_eq!(open.len(), OPEN_MAX);
        assert!(open.contains(&root(0)) && !open.contains(&root(1)), "{open:?}");
    }

    #[test]
    fn a_project_that_could_not_be_kept_is_tried_again_later() {
        let clock = Arc::new(ManualClock::default());
        let depots = Depots::new(PathBuf::from("/data"), None, None, Arc::clone(&clock) as Arc<dyn Clock>);
        let (root, until) = (Path::new("/project"), clock.now().millis() + OFF_MS);
        depots.off.lock().unwrap().insert(root.to_path_buf(), ("too many files".to_owned(), until));
        assert!(depots.off(root).is_some() && depots.snapshots_of(root, None).is_none());
        clock.advance_millis(OFF_MS);
        assert!(depots.off(root).is_none() && depots.snapshots_of(root, None).is_some());
        assert!(depots.off(Path::new("/")).is_some(), "that is no project at any time");
    }
}
