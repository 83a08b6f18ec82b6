//! Looking at what is kept: which snapshots there are, and what is in one.

use std::fs;
use std::time::UNIX_EPOCH;

use mcode_env::Timestamp;

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::{Kind, ObjectId, SnapshotId};
use crate::node::{self, Entry, Node, Reader};
use crate::path::TreePath;
use crate::rules::Outside;

/// A snapshot in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub id: SnapshotId,
    /// When this state was found last.
    pub taken: Timestamp,
}

/// What a snapshot is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) tree: ObjectId,
    /// Lists of what is ignored that are no files of it.
    pub(crate) outside: ObjectId,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Root {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.tree.0[..], &self.outside.0, &self.files.to_le_bytes(), &self.bytes.to_le_bytes()].concat()
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        Some(Self { tree: reader.id()?, outside: reader.id()?, files: reader.u64()?, bytes: reader.u64()? })
    }
}

impl Depot {
    /// All snapshots, the one taken longest ago first.
    ///
    /// # Errors
    /// When they can not be listed.
    pub fn snapshots(&self) -> Result<Vec<Listed>, CheckpointError> {
        let folder = self.folder.join("snapshots");
        let fault = || CheckpointError::io("read", &folder);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(fault())? {
            let entry = entry.map_err(fault())?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let taken = entry.metadata().and_then(|found| found.modified()).ok();
            let since = taken.and_then(|taken| taken.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            let taken = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
            found.push(Listed { id, taken });
        }
        found.sort_by_key(|listed| (listed.taken, listed.id));
        Ok(found)
    }

    /// Whether a snapshot is there.
    #[must_use]
    pub fn holds(&self, id: SnapshotId) -> bool {
        self.folder.join("snapshots").join(id.to_string()).exists()
    }

    pub(crate) fn root_of(&self, id: SnapshotId) -> Result<Root, CheckpointError> {
        match self.objects.get(Kind::Root, &id.0) {
            Err(CheckpointError::Missing { .. }) => Err(CheckpointError::Unknown { snapshot: id }),
            other => Root::decode(&other?).ok_or_else(|| self.odd(&id.0)),
        }
    }

    pub(crate) fn tree(&self, id: &ObjectId) -> Result<Vec<Entry>, CheckpointError> {
        node::decode(&self.objects.get(Kind::Tree, id)?).ok_or_else(|| self.odd(id))
    }

    pub(crate) fn outside(&self, root: &Root) -> Result<Outside, CheckpointError> {
        let body = self.objects.get(Kind::Content, &root.outside)?;
        Outside::decode(&body).ok_or_else(|| self.odd(&root.outside))
    }

    /// An object that is what its name says and is not understood all the same.
    fn odd(&self, id: &ObjectId) -> CheckpointError {
        CheckpointError::Damaged { object: *id, path: self.objects.folder().to_path_buf() }
    }

    /// What is at a path in a snapshot.
    ///
    /// # Errors
    /// When there is no such snapshot, or it is damaged on the way to the path.
    pub fn node(&self, id: SnapshotId, path: &TreePath) -> Result<Option<Node>, CheckpointError> {
        let mut tree = Some(self.root_of(id)?.tree);
        let mut node = None;
        for name in path.as_bytes().split(|byte| *byte == b'/') {
            let Some(at) = tree else { return Ok(None) };
            let mut entries = self.tree(&at)?;
            let Ok(found) = entries.binary_search_by(|entry| (*entry.name).cmp(name)) else { return Ok(None) };
            let entry = entries.swap_remove(found);
            tree = entry.tree;
            node = Some(entry.node);
        }
        Ok(node)
    }

    /// Everything in a snapshot: a folder, then what is in it, in the order of names.
    ///
    /// # Errors
    /// When there is no such snapshot, or it is damaged.
    pub fn manifest(&self, id: SnapshotId) -> Result<Vec<(TreePath, Node)>, CheckpointError> {
        let mut found = Vec::new();
        let mut open = vec![(Vec::new(), self.tree(&self.root_of(id)?.tree)?.into_iter())];
        while let Some((folder, entries)) = open.last_mut() {
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            let path = TreePath::join(folder, &entry.name);
            if let Some(tree) = entry.tree {
                open.push((path.as_bytes().to_vec(), self.tree(&tree)?.into_iter()));
            }
            found.push((path, entry.node));
        }
        Ok(found)
    }

    /// The content of a file, by the hash that its [`Node::File`] names; at most [`crate::FILE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn content(&self, content: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        self.objects.get(Kind::Content, content)
    }
}
