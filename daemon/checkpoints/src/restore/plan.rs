//! What bringing back would do, and what stands in its way. Nothing is changed here.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::changes::{ChangeKind, Difference, changes_of};
use crate::depot::Depot;
use crate::diff::without_hunks;
use crate::error::CheckpointError;
use crate::ids::{Kind, ObjectId, SnapshotId};
use crate::node::Node;
use crate::path::TreePath;
use crate::restore::view::View;

/// The mode of a folder that is needed again and of which nothing is known.
const FOLDER_MODE: u32 = 0o755;

/// What an agent did: the snapshots before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Before it.
    pub before: SnapshotId,
    /// After it.
    pub after: SnapshotId,
}

/// What is to be brought back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// These paths; `None` for all that was changed.
    pub picks: Option<Vec<Pick>>,
    /// Also where [`ConflictKind::can_be_forced`].
    pub force: bool,
}

/// One path that is to be brought back. Of what was renamed either path stands for both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// A file, or a folder with all that is in it.
    pub path: TreePath,
    /// The numbers of hunks, when not all of a file; as [`Depot::diff_spans`] counts them.
    pub hunks: Option<Vec<usize>>,
}

/// What would be done, in order, and what would be left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The state that it was made for. What is found to differ from it when it is carried out is left alone.
    pub now: SnapshotId,
    /// What would be done.
    pub actions: Vec<Action>,
    /// What would be left alone, and why.
    pub conflicts: Vec<Conflict>,
    /// Paths that are as they were already.
    pub already: usize,
    /// Snapshots that are needed until it is carried out.
    pub(crate) spans: Vec<Span>,
    /// Contents that are in no snapshot: some hunks of a file brought back and others not.
    pub(crate) made: HashMap<ObjectId, Vec<u8>>,
}

/// One path that would be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Where.
    pub path: TreePath,
    /// What is there now.
    pub from: Option<Node>,
    /// What would be there.
    pub to: Option<Node>,
}

/// A path that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Where.
    pub path: TreePath,
    /// Why.
    pub kind: ConflictKind,
}

/// Why a path is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictKind {
    /// It is no longer as the agent left it.
    ChangedSince {
        /// What is there now.
        now: Option<Node>,
    },
    /// Somebody else changed it between two changes of the agent's.
    ChangedBetween,
    /// It was ignored before, so that it may have been there already.
    WasIgnored,
    /// What is there now is not kept (too large, or unreadable), so that it would be lost.
    WouldBeLost,
    /// What was there is not kept: it was too large, or unreadable.
    NotKept,
    /// A socket, pipe or device, which is neither made nor removed.
    Special,
    /// Something else is where a folder is needed.
    Blocked {
        /// What is in the way.
        by: TreePath,
    },
    /// What was there is damaged in the depot, or missing.
    Damaged {
        /// Its content.
        object: ObjectId,
    },
}

impl ConflictKind {
    /// Whether [`Choice::force`] brings the path back all the same. What is there now is then in the snapshot that the
    /// restore takes before it begins, except where it [`ConflictKind::WouldBeLost`].
    #[must_use]
    pub fn can_be_forced(&self) -> bool {
        matches!(self, Self::ChangedSince { .. } | Self::ChangedBetween | Self::WasIgnored | Self::WouldBeLost)
    }
}

impl std::fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ChangedSince { now: None } => f.write_str("it was deleted since"),
            Self::ChangedSince { .. } => f.write_str("it was changed since"),
            Self::ChangedBetween => f.write_str("somebody else changed it in between"),
            Self::WasIgnored => f.write_str("it was ignored before, and may have been there"),
            Self::WouldBeLost => f.write_str("what is there now is not kept and would be lost"),
            Self::NotKept => f.write_str("what was there is not kept: it was too large or could not be read"),
            Self::Special => f.write_str("it is a socket, a pipe or a device"),
            Self::Blocked { by } => write!(f, "{by} is in the way"),
            Self::Damaged { .. } => f.write_str("what was there is damaged in the store of checkpoints"),
        }
    }
}

/// A path that the agent changed.
#[derive(Debug)]
struct Touched {
    /// Before the agent changed it first.
    first: Option<Node>,
    /// After the agent changed it last.
    last: Option<Node>,
    /// Somebody else changed it in between.
    between: bool,
    /// The snapshot before it was changed first.
    before: SnapshotId,
    /// See [`Difference`].
    empty: bool,
}

impl Depot {
    /// Says what bringing back would do. `spans` are the agent's doings, the earliest first; what changed between two of
    /// them was somebody else. `now` is a snapshot of the present state.
    ///
    /// # Errors
    /// When a pick is none of the changes or has no such hunks, or when a snapshot is missing or damaged.
    pub fn plan(&self, spans: &[Span], choice: &Choice, now: SnapshotId) -> Result<Plan, CheckpointError> {
        let touched = self.touched(spans)?;
        let chosen = chosen(&touched, choice)?;
        let mut planner = Planner {
            depot: self,
            touched: &touched,
            force: choice.force,
            now: View::new(self, now)?,
            before: HashMap::new(),
            actions: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            already: 0,
            made: HashMap::new(),
        };
        for (path, hunks) in chosen {
            planner.consider(&path, hunks.as_deref())?;
        }
        planner.ways()?;
        let Planner { actions, conflicts, already, made, .. } = planner;
        let mut actions: Vec<Action> = actions.into_values().collect();
        actions.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.path.cmp(&b.path)));
        let conflicts = conflicts.into_iter().map(|(path, kind)| Conflict { path, kind }).collect();
        Ok(Plan { now, actions, conflicts, already, spans: spans.to_vec(), made })
    }

    /// What differs at a path from before the agent changed it first to after it changed it last.
    ///
    /// # Errors
    /// As [`Depot::diff`].
    pub fn diff_spans(&self, spans: &[Span], path: &TreePath) -> Result<crate::FileDiff, CheckpointError> {
        let mut touched = self.touched(spans)?;
        let touched = touched.remove(path).ok_or_else(|| CheckpointError::NoChange { path: path.clone() })?;
        self.diff_nodes(path, touched.first, touched.last)
    }

    fn touched(&self, spans: &[Span]) -> Result<BTreeMap<TreePath, Touched>, CheckpointError> {
        let mut touched: BTreeMap<TreePath, Touched> = BTreeMap::new();
        for span in spans {
            for Difference { path, before, after, empty } in self.differences(span.before, span.after)? {
                match touched.get_mut(&path) {
                    Some(known) => {
                        known.between |= known.last != before;
                        known.last = after;
                        known.empty = empty;
                    }
                    None => {
                        let new = Touched { first: before, last: after, between: false, before: span.before, empty };
                        touched.insert(path, new);
                    }
                }
            }
        }
        touched.retain(|_, touched| touched.first != touched.last);
        Ok(touched)
    }
}

/// When an action is done: what has to go first, then folders, then what lies in them.
fn order(action: &Action) -> (u8, i64) {
    let depth = i64::try_from(action.path.depth()).unwrap_or(i64::MAX);
    let is_folder =
        |node: &Option<Node>| matches!(node, Some(Node::Folder { .. } | Node::Unreadable { folder: true, .. }));
    match (is_folder(&action.from), action.to.as_ref()) {
        (true, Some(Node::Folder { .. })) => (0, depth),
        (false, None) => (1, -depth),
        (true, None) => (2, -depth),
        (false, Some(Node::Folder { .. })) => (3, depth),
        (_, Some(_)) => (4, depth),
    }
}

/// The paths that are asked for, with the hunks of each.
fn chosen(
    touched: &BTreeMap<TreePath, Touched>,
    choice: &Choice,
) -> Result<BTreeMap<TreePath, Option<Vec<usize>>>, CheckpointError> {
    let Some(picks) = &choice.picks else { return Ok(touched.keys().map(|path| (path.clone(), None)).collect()) };
    let partners = partners(touched);
    let mut chosen = BTreeMap::new();
    for pick in picks {
        let within: Vec<&TreePath> = touched.keys().filter(|path| path.is_within(&pick.path)).collect();
        if within.is_empty() {
            return Err(CheckpointError::NoChange { path: pick.path.clone() });
        }
        if pick.hunks.is_some() {
            let exact = within.iter().any(|path| **path == pick.path);
            if !exact {
                return Err(CheckpointError::NotText { path: pick.path.clone(), reason: "it is a folder" });
            }
            chosen.insert(pick.path.clone(), pick.hunks.clone());
            continue;
        }
        for path in within {
            chosen.insert(path.clone(), None);
            if let Some(partner) = partners.get(path) {
                chosen.insert(partner.clone(), None);
            }
        }
    }
    Ok(chosen)
}

/// The other path of each rename.
fn partners(touched: &BTreeMap<TreePath, Touched>) -> HashMap<TreePath, TreePath> {
    let difference = |(path, touched): (&TreePath, &Touched)| Difference {
        path: path.clone(),
        before: touched.first.clone(),
        after: touched.last.clone(),
        empty: touched.empty,
    };
    let mut partners = HashMap::new();
    for change in changes_of(touched.iter().map(difference).collect()) {
        if let ChangeKind::Renamed { from } = change.kind {
            partners.insert(from.clone(), change.path.clone());
            partners.insert(change.path, from);
        }
    }
    partners
}

struct Planner<'d, 't> {
    depot: &'d Depot,
    touched: &'t BTreeMap<TreePath, Touched>,
    force: bool,
    now: View<'d>,
    before: HashMap<SnapshotId, View<'d>>,
    actions: BTreeMap<TreePath, Action>,
    conflicts: BTreeMap<TreePath, ConflictKind>,
    already: usize,
    made: HashMap<ObjectId, Vec<u8>>,
}

impl Planner<'_, '_> {
    /// Decides on one path.
    fn consider(&mut self, path: &TreePath, hunks: Option<&[usize]>) -> Result<(), CheckpointError> {
        if self.actions.contains_key(path) || self.conflicts.contains_key(path) {
            return Ok(());
        }
        let Some(touched) = self.touched.get(path) else { return Ok(()) };
        let now = self.now.node(path)?;
        if now == touched.first {
            self.already += 1;
            return Ok(());
        }
        let conflict = self.conflict(path, touched, now.as_ref())?;
        // Hunks are those of what the agent left: where that changed, there is nothing to take them from.
        let held = |kind: &ConflictKind| {
            let hunks_moved = hunks.is_some() && matches!(kind, ConflictKind::ChangedSince { .. });
            !self.force || !kind.can_be_forced() || hunks_moved
        };
        if let Some(kind) = conflict.filter(held) {
            self.conflicts.insert(path.clone(), kind);
            return Ok(());
        }
        let to = match hunks {
            Some(numbers) => self.hunks(path, touched, numbers)?,
            None => touched.first.clone(),
        };
        self.actions.insert(path.clone(), Action { path: path.clone(), from: now, to });
        Ok(())
    }

    fn conflict(
        &mut self,
        path: &TreePath,
        touched: &Touched,
        now: Option<&Node>,
    ) -> Result<Option<ConflictKind>, CheckpointError> {
        match &touched.first {
            Some(Node::Large { .. } | Node::Unreadable { .. }) => return Ok(Some(ConflictKind::NotKept)),
            Some(Node::Special { .. }) => return Ok(Some(ConflictKind::Special)),
            None if matches!(now, Some(Node::Special { .. })) => return Ok(Some(ConflictKind::Special)),
            Some(Node::File { content, .. }) => match self.depot.content(content) {
                Err(CheckpointError::Damaged { object, .. } | CheckpointError::Missing { object }) => {
                    return Ok(Some(ConflictKind::Damaged { object }));
                }
                other => drop(other?),
            },
            None | Some(Node::Link { .. } | Node::Folder { .. }) => {}
        }
        let to_folder = touched.first.as_ref().is_some_and(Node::is_folder);
        Ok(match now {
            Some(Node::Large { .. } | Node::Unreadable { folder: false, .. }) => Some(ConflictKind::WouldBeLost),
            Some(Node::Unreadable { folder: true, .. }) if !to_folder => Some(ConflictKind::WouldBeLost),
            _ if now != touched.last.as_ref() => Some(ConflictKind::ChangedSince { now: now.cloned() }),
            _ if touched.between => Some(ConflictKind::ChangedBetween),
            Some(Node::File { .. } | Node::Link { .. })
                if touched.first.is_none() && self.was_ignored(path, touched.before)? =>
            {
                Some(ConflictKind::WasIgnored)
            }
            _ => None,
        })
    }

    fn was_ignored(&mut self, path: &TreePath, before: SnapshotId) -> Result<bool, CheckpointError> {
        if !self.before.contains_key(&before) {
            self.before.insert(before, View::new(self.depot, before)?);
        }
        self.before.get_mut(&before).map_or(Ok(false), |view| view.ignored(path, false))
    }

    /// The file with only some hunks as they were before.
    fn hunks(
        &mut self,
        path: &TreePath,
        touched: &Touched,
        numbers: &[usize],
    ) -> Result<Option<Node>, CheckpointError> {
        let (Some(Node::File { content: old, .. }), Some(Node::File { content: new, mode, .. })) =
            (&touched.first, &touched.last)
        else {
            let reason = "it was no file before, or is none after";
            return Err(CheckpointError::NotText { path: path.clone(), reason });
        };
        let (old, new) = (self.depot.content(old)?, self.depot.content(new)?);
        let content = without_hunks(path, &old, &new, numbers)?;
        let id = Kind::Content.id(&content);
        let node = Node::File { mode: *mode, size_bytes: content.len() as u64, content: id };
        self.made.insert(id, content);
        Ok(Some(node))
    }

    /// Sees that each path that is brought back has its folders.
    fn ways(&mut self) -> Result<(), CheckpointError> {
        let needed: BTreeSet<TreePath> =
            self.actions.values().filter(|action| action.to.is_some()).map(|action| action.path.clone()).collect();
        for path in needed {
            let mut above: Vec<TreePath> = path.above().collect();
            above.reverse();
            for folder in above {
                if let Some(by) = self.way(&folder)? {
                    self.actions.remove(&path);
                    self.conflicts.insert(path.clone(), ConflictKind::Blocked { by });
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sees that a folder will be there; gives what is in its way.
    fn way(&mut self, folder: &TreePath) -> Result<Option<TreePath>, CheckpointError> {
        if let Some(action) = self.actions.get(folder) {
            let there = action.to.as_ref().is_some_and(Node::is_folder);
            return Ok((!there).then(|| folder.clone()));
        }
        let now = self.now.node(folder)?;
        if now.as_ref().is_some_and(Node::is_folder) {
            return Ok(None);
        }
        let was_folder =
            self.touched.get(folder).is_some_and(|touched| touched.first.as_ref().is_some_and(Node::is_folder));
        if was_folder {
            self.consider(folder, None)?;
            if self.actions.contains_key(folder) {
                return Ok(None);
            }
        }
        if now.is_some() {
            return Ok(Some(folder.clone()));
        }
        // Somebody removed it since, or it was there only for what was in it.
        self.conflicts.remove(folder);
        let to = Some(Node::Folder { mode: FOLDER_MODE });
        self.actions.insert(folder.clone(), Action { path: folder.clone(), from: None, to });
        Ok(None)
    }
}
