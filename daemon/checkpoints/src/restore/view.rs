//! A snapshot that is asked for many paths.

use std::collections::HashMap;
use std::sync::Arc;

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::{ObjectId, SnapshotId};
use crate::node::{Entry, Node};
use crate::path::TreePath;
use crate::rules::{LIST_BYTES_MAX, Lists, Outside, Rules};

/// One snapshot; folders that were read are remembered.
pub(super) struct View<'d> {
    depot: &'d Depot,
    root: ObjectId,
    outside: Outside,
    folders: HashMap<ObjectId, Arc<Vec<Entry>>>,
    rules: HashMap<Vec<u8>, Arc<Rules>>,
}

impl<'d> View<'d> {
    pub(super) fn new(depot: &'d Depot, id: SnapshotId) -> Result<Self, CheckpointError> {
        let root = depot.root_of(id)?;
        let outside = depot.outside(&root)?;
        Ok(Self { depot, root: root.tree, outside, folders: HashMap::new(), rules: HashMap::new() })
    }

    fn folder(&mut self, tree: &ObjectId) -> Result<Arc<Vec<Entry>>, CheckpointError> {
        if let Some(entries) = self.folders.get(tree) {
            return Ok(entries.clone());
        }
        let entries = Arc::new(self.depot.tree(tree)?);
        self.folders.insert(*tree, entries.clone());
        Ok(entries)
    }

    /// The entries of a folder by its path; `None` when there is no such folder.
    fn at(&mut self, path: &[u8]) -> Result<Option<Arc<Vec<Entry>>>, CheckpointError> {
        let root = self.root;
        let mut entries = self.folder(&root)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            match find(&entries, name).and_then(|entry| entry.tree) {
                Some(tree) => entries = self.folder(&tree)?,
                None => return Ok(None),
            }
        }
        Ok(Some(entries))
    }

    /// What is at a path.
    pub(super) fn node(&mut self, path: &TreePath) -> Result<Option<Node>, CheckpointError> {
        let (folder, name) = path.split();
        Ok(self.at(folder)?.and_then(|entries| find(&entries, name).map(|entry| entry.node.clone())))
    }

    /// Whether what is at a path now was ignored then, so that it may have been there without being in the snapshot.
    pub(super) fn ignored(&mut self, path: &TreePath, is_folder: bool) -> Result<bool, CheckpointError> {
        let above: Vec<TreePath> = path.above().collect();
        for folder in above.iter().rev() {
            if self.rules(folder.split().0)?.ignores(folder.as_bytes(), true) {
                return Ok(true);
            }
        }
        Ok(self.rules(path.split().0)?.ignores(path.as_bytes(), is_folder))
    }

    /// The rules in a folder; those of the nearest one that was there, when it was not.
    fn rules(&mut self, folder: &[u8]) -> Result<Arc<Rules>, CheckpointError> {
        if let Some(rules) = self.rules.get(folder) {
            return Ok(rules.clone());
        }
        let above = if folder.is_empty() {
            self.outside.rules()
        } else {
            let end = folder.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            self.rules(&folder[..end])?
        };
        let mut lists = Lists::default();
        if let Some(entries) = self.at(folder)? {
            if let Some((_, outside)) = self.outside.within.iter().find(|(path, _)| path == folder) {
                lists = outside.clone();
            }
            lists.plain = self.list(&entries, b".ignore")?;
            lists.git = self.list(&entries, b".gitignore")?;
        }
        let rules = above.within(folder, lists);
        self.rules.insert(folder.to_vec(), rules.clone());
        Ok(rules)
    }

    fn list(&self, entries: &[Entry], name: &[u8]) -> Result<Option<Vec<u8>>, CheckpointError> {
        match find(entries, name).map(|entry| &entry.node) {
            Some(Node::File { content, .. }) => {
                let mut text = self.depot.content(content)?;
                text.truncate(usize::try_from(LIST_BYTES_MAX).unwrap_or(usize::MAX));
                Ok(Some(text))
            }
            _ => Ok(None),
        }
    }
}

fn find<'e>(entries: &'e [Entry], name: &[u8]) -> Option<&'e Entry> {
    entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok().and_then(|at| entries.get(at))
}
