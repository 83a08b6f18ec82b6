//! One file: what is at a name, read so that it is the content of one moment.

use std::io;

use crate::cache::{Dir, Item, What};
use crate::error::CheckpointError;
use crate::ground::{self, Folder, Meta, Seen, Stamp};
use crate::ids::Kind;
use crate::node::Node;
use crate::path::{TreePath, as_os, joined};
use crate::scan::worker::Worker;

/// A file that changes while it is read is read so often.
const READS_MAX: usize = 3;

/// What is at a name that is no folder.
pub(super) enum Thing {
    Gone,
    /// It has become a folder.
    Folder,
    Node {
        node: Node,
        stamp: Stamp,
        racy: bool,
    },
}

enum Read {
    Gone,
    Steady(Node, Stamp),
    Unsteady(Node, Stamp),
}

impl Worker<'_> {
    /// Looks at a name; a file that is as it was in `old` is not read.
    pub(super) fn thing(
        &mut self,
        folder: &Folder,
        name: &[u8],
        old: Option<(&Dir, &Item)>,
    ) -> Result<Thing, CheckpointError> {
        let mut last = Thing::Gone;
        for _ in 0..READS_MAX {
            let meta = match folder.meta(name) {
                Ok(meta) => meta,
                Err(error) if ground::is_gone(&error) => return Ok(Thing::Gone),
                Err(error) if ground::is_closed(&error) => return Ok(closed(None)),
                Err(error) => return Err(self.fault(name, error)),
            };
            let known =
                old.filter(|(_, item)| !item.flags.racy && item.stamp == meta.stamp).map(|(_, item)| &item.what);
            if let Some(What::Node(node)) = known
                && self.is_kept(node)
            {
                return Ok(Thing::Node { node: node.clone(), stamp: meta.stamp, racy: false });
            }
            let read = match meta.seen {
                Seen::Folder => return Ok(Thing::Folder),
                Seen::Special(special) => Read::Steady(Node::Special { special }, meta.stamp),
                Seen::Link => Self::read_link(folder, name, &meta).map_err(|error| self.fault(name, error))?,
                Seen::File | Seen::Unknown => self.read_file(folder, name, &meta)?,
            };
            match read {
                // Something else may have taken its place.
                Read::Gone => {}
                Read::Steady(node, stamp) => return Ok(Thing::Node { node, stamp, racy: self.is_racy(&stamp) }),
                Read::Unsteady(node, stamp) => last = Thing::Node { node, stamp, racy: true },
            }
        }
        if matches!(last, Thing::Node { .. }) {
            let path = TreePath::join(self.path(), name);
            self.note_unsteady(path);
        }
        Ok(last)
    }

    fn is_kept(&self, node: &Node) -> bool {
        match node {
            Node::File { content, .. } => self.scan().keeps(content),
            _ => true,
        }
    }

    fn fault(&self, name: &[u8], error: io::Error) -> CheckpointError {
        let path = joined(self.path(), name);
        let path = as_os(&path).map_or_else(|| self.scan().root.to_path_buf(), |path| self.scan().root.join(path));
        CheckpointError::io("read", &path)(error)
    }

    fn read_link(folder: &Folder, name: &[u8], meta: &Meta) -> io::Result<Read> {
        match folder.link_target(name) {
            Ok(target) => Ok(Read::Steady(Node::Link { target: target.into() }, meta.stamp)),
            Err(error) if ground::is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => Ok(Read::Gone),
            Err(error) if ground::is_closed(&error) => Ok(Read::Steady(meta.unreadable(), meta.stamp)),
            Err(error) => Err(error),
        }
    }

    fn read_file(&mut self, folder: &Folder, name: &[u8], meta: &Meta) -> Result<Read, CheckpointError> {
        let limit = self.scan().limits.file_bytes;
        if meta.stamp.size > limit {
            return Ok(Read::Steady(meta.large(), meta.stamp));
        }
        self.scan().budget.check()?;
        let (mut file, before) = match folder.open(name) {
            Ok(opened) => opened,
            Err(error) if ground::is_gone(&error) => return Ok(Read::Gone),
            Err(error) if ground::is_closed(&error) => return Ok(Read::Steady(meta.unreadable(), meta.stamp)),
            Err(error) => return Err(self.fault(name, error)),
        };
        if before.seen != Seen::File {
            return Ok(Read::Gone);
        }
        let mut content = self.take_buffer();
        let read = ground::read_within(&mut file, limit, before.stamp.size, &mut content);
        let after = Folder::meta_of(&file).map_err(|error| self.fault(name, error))?;
        let outcome = match read {
            Err(error) if ground::is_closed(&error) => Ok(Read::Steady(after.unreadable(), after.stamp)),
            Err(error) => Err(self.fault(name, error)),
            Ok(()) if content.len() as u64 > limit => Ok(Read::Steady(after.large(), after.stamp)),
            Ok(()) => self.keep(&content, &after).map(|node| {
                let steady = before.stamp == after.stamp && content.len() as u64 == after.stamp.size;
                if steady { Read::Steady(node, after.stamp) } else { Read::Unsteady(node, after.stamp) }
            }),
        };
        self.give_buffer(content);
        outcome
    }

    /// Has the content kept.
    fn keep(&mut self, content: &[u8], meta: &Meta) -> Result<Node, CheckpointError> {
        let id = Kind::Content.id(content);
        self.count_read();
        if !self.scan().objects.holds(&id) {
            self.put(Kind::Content, id, content)?;
        }
        Ok(Node::File { mode: meta.mode(), size_bytes: content.len() as u64, content: id })
    }
}

fn closed(meta: Option<Meta>) -> Thing {
    let node = meta
        .map_or(Node::Unreadable { folder: false, mode: 0, size_bytes: 0, modified_ns: 0 }, |meta| meta.unreadable());
    Thing::Node { node, stamp: meta.map(|meta| meta.stamp).unwrap_or_default(), racy: true }
}
