//! What differs between two snapshots.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::{ObjectId, SnapshotId};
use crate::node::{Entry, Node};
use crate::path::TreePath;

/// One difference between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where it is now, or was before it was deleted.
    pub path: TreePath,
    /// What happened.
    pub kind: ChangeKind,
    /// What was there before; of what was renamed, at its old path.
    pub before: Option<Node>,
    /// What is there after.
    pub after: Option<Node>,
}

/// What happened to a path. Folders are told of when they are empty or their mode changed; else their files tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It is no longer there.
    Deleted,
    /// Its content changed, or where a link points; perhaps its mode too.
    Modified,
    /// Only its mode changed.
    ModeChanged,
    /// It became something else, such as a link in place of a file.
    TypeChanged,
    /// The same content was at another path.
    Renamed {
        /// The old path.
        from: TreePath,
    },
}

/// One path at which two snapshots differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) path: TreePath,
    pub(crate) before: Option<Node>,
    pub(crate) after: Option<Node>,
    /// It is a folder on one side only, and empty there.
    pub(crate) empty: bool,
}

impl Depot {
    /// What differs from snapshot `before` to snapshot `after`, in the order of paths.
    ///
    /// # Errors
    /// When one of them is not there, or is damaged where they differ.
    pub fn changes(&self, before: SnapshotId, after: SnapshotId) -> Result<Vec<Change>, CheckpointError> {
        Ok(changes_of(self.differences(before, after)?))
    }

    /// Every path that differs, folders too.
    pub(crate) fn differences(
        &self,
        before: SnapshotId,
        after: SnapshotId,
    ) -> Result<Vec<Difference>, CheckpointError> {
        let (before, after) = (self.root_of(before)?.tree, self.root_of(after)?.tree);
        let mut found = Vec::new();
        let mut open: Vec<(Vec<u8>, Option<ObjectId>, Option<ObjectId>)> =
            vec![(Vec::new(), Some(before), Some(after))];
        while let Some((folder, before, after)) = open.pop() {
            if before == after {
                continue;
            }
            let side = |tree: Option<ObjectId>| tree.map_or_else(|| Ok(Vec::new()), |tree| self.tree(&tree));
            let (before, after) = (side(before)?, side(after)?);
            for (before, after) in Pairs::of(before, after) {
                let name = before.as_ref().or(after.as_ref()).map(|entry| entry.name.clone()).unwrap_or_default();
                let path = TreePath::join(&folder, &name);
                let tree = |entry: &Option<Entry>| entry.as_ref().and_then(|entry| entry.tree);
                let trees = (tree(&before), tree(&after));
                let mut empty = false;
                if trees.0 != trees.1 {
                    let one_sided = trees.0.xor(trees.1);
                    empty = one_sided.is_some_and(|tree| tree == crate::ids::Kind::Tree.id(&[]));
                    open.push((path.as_bytes().to_vec(), trees.0, trees.1));
                }
                let (before, after) = (before.map(|entry| entry.node), after.map(|entry| entry.node));
                if before != after {
                    found.push(Difference { path, before, after, empty });
                }
            }
        }
        Ok(found)
    }
}

/// Differences as people are told of them, in the order of paths.
pub(crate) fn changes_of(differences: Vec<Difference>) -> Vec<Change> {
    let mut changes: Vec<Change> = differences.into_iter().filter_map(change).collect();
    pair_renames(&mut changes);
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// Entries of two folders by name.
struct Pairs {
    before: std::iter::Peekable<std::vec::IntoIter<Entry>>,
    after: std::iter::Peekable<std::vec::IntoIter<Entry>>,
}

impl Pairs {
    fn of(before: Vec<Entry>, after: Vec<Entry>) -> Self {
        Self { before: before.into_iter().peekable(), after: after.into_iter().peekable() }
    }
}

impl Iterator for Pairs {
    type Item = (Option<Entry>, Option<Entry>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.before.peek(), self.after.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(after)) => before.name.cmp(&after.name),
        };
        Some(match order {
            Ordering::Less => (self.before.next(), None),
            Ordering::Greater => (None, self.after.next()),
            Ordering::Equal => (self.before.next(), self.after.next()),
        })
    }
}

/// What a difference is to people; `None` for folders whose files tell.
fn change(difference: Difference) -> Option<Change> {
    let Difference { path, before, after, empty } = difference;
    let kind = match (&before, &after) {
        (None, None) => return None,
        (Some(Node::Folder { .. }), None) | (None, Some(Node::Folder { .. })) if !empty => return None,
        (None, Some(_)) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Deleted,
        (Some(before), Some(after)) => kind_of(before, after),
    };
    Some(Change { path, kind, before, after })
}

fn kind_of(before: &Node, after: &Node) -> ChangeKind {
    match (before, after) {
        (Node::File { content: one, .. }, Node::File { content: other, .. }) if one == other => ChangeKind::ModeChanged,
        (Node::Folder { .. }, Node::Folder { .. }) => ChangeKind::ModeChanged,
        (Node::Link { .. }, Node::Link { .. }) => ChangeKind::Modified,
        // A file that grew, or may no longer be read, is the same kind of thing.
        (
            Node::File { .. } | Node::Large { .. } | Node::Unreadable { folder: false, .. },
            Node::File { .. } | Node::Large { .. } | Node::Unreadable { folder: false, .. },
        ) => ChangeKind::Modified,
        (
            Node::Folder { .. } | Node::Unreadable { folder: true, .. },
            Node::Folder { .. } | Node::Unreadable { folder: true, .. },
        ) => ChangeKind::ModeChanged,
        _ => ChangeKind::TypeChanged,
    }
}

/// What makes two things the same after a rename. Empty files are all the same and say nothing.
fn identity(node: &Node) -> Option<(ObjectId, Vec<u8>)> {
    match node {
        Node::File { content, size_bytes, .. } if *size_bytes > 0 => Some((*content, Vec::new())),
        Node::Link { target } => Some((ObjectId([0; 32]), target.to_vec())),
        _ => None,
    }
}

/// Makes one rename of what was deleted here and added there; names that stayed the same are matched first.
fn pair_renames(changes: &mut Vec<Change>) {
    let mut gone = vec![false; changes.len()];
    for same_name in [true, false] {
        let key = |path: &TreePath, node: &Node| {
            let name = if same_name { path.name().to_vec() } else { Vec::new() };
            identity(node).map(|identity| (identity, name))
        };
        let mut deleted: HashMap<_, Vec<usize>> = HashMap::new();
        // From the last, so that the first is taken first.
        for (number, change) in changes.iter().enumerate().rev() {
            if let (ChangeKind::Deleted, Some(before), false) = (&change.kind, &change.before, gone[number])
                && let Some(key) = key(&change.path, before)
            {
                deleted.entry(key).or_default().push(number);
            }
        }
        for number in 0..changes.len() {
            let change = &changes[number];
            let (ChangeKind::Added, Some(after)) = (&change.kind, &change.after) else { continue };
            let Some(from) = key(&change.path, after).and_then(|key| deleted.get_mut(&key)?.pop()) else { continue };
            gone[from] = true;
            changes[number].before = changes[from].before.clone();
            changes[number].kind = ChangeKind::Renamed { from: changes[from].path.clone() };
        }
    }
    let mut gone = gone.into_iter();
    changes.retain(|_| !gone.next().unwrap_or(false));
}
