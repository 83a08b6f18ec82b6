//! From what was found of each folder to the bodies of folders, from the deepest up.

use std::sync::Arc;

use crate::cache::{Dir, Item, Totals, What, name_in};
use crate::error::CheckpointError;
use crate::ground::Stamp;
use crate::ids::Kind;
use crate::node::{self, Node};
use crate::scan::{Child, Fresh, Outcome, Scan};
use crate::store::Bench;

pub(super) struct Finish<'a> {
    scan: &'a Scan<'a>,
    outcomes: Vec<Option<Outcome>>,
    bench: Bench,
    body: Vec<u8>,
}

/// A folder among the items of another.
enum Done {
    Gone,
    Closed(Node),
    Dir(Arc<Dir>),
}

impl<'a> Finish<'a> {
    pub(super) fn new(scan: &'a Scan<'a>, outcomes: Vec<Option<Outcome>>) -> Result<Self, CheckpointError> {
        let bench = Bench::new().map_err(CheckpointError::io("compress for", scan.root))?;
        Ok(Self { scan, outcomes, bench, body: Vec::new() })
    }

    /// The project's root.
    pub(super) fn root(mut self) -> Result<Arc<Dir>, CheckpointError> {
        match self.task(0)? {
            Done::Dir(root) => Ok(root),
            Done::Gone | Done::Closed(_) => Err(CheckpointError::Io {
                doing: "read",
                path: self.scan.root.to_path_buf(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        }
    }

    fn task(&mut self, number: usize) -> Result<Done, CheckpointError> {
        match self.outcomes.get_mut(number).and_then(Option::take) {
            None | Some(Outcome::Gone) => Ok(Done::Gone),
            Some(Outcome::Closed(meta)) => {
                let closed = Node::Unreadable { folder: true, mode: 0, size_bytes: 0, modified_ns: 0 };
                Ok(Done::Closed(meta.map_or(closed, |meta| meta.unreadable())))
            }
            Some(Outcome::Found(fresh)) => self.dir(fresh).map(Done::Dir),
        }
    }

    fn dir(&mut self, fresh: Fresh) -> Result<Arc<Dir>, CheckpointError> {
        let mut children = Vec::with_capacity(fresh.children.len());
        for child in fresh.children {
            children.push(match child {
                Child::Known(dir) => Done::Dir(dir),
                Child::Task(number) => self.task(number)?,
            });
        }
        let rules = fresh.rules.print();
        if let Some(old) = &fresh.old
            && fresh.new.is_none()
            && fresh.ignored.is_none()
            && old.mode == fresh.mode
            && old.rules == rules
            && same_children(old, &children)
            && self.scan.keeps(&old.tree)
        {
            return Ok(old.clone());
        }
        let (names, items) = match (fresh.new, &fresh.old) {
            (Some(new), _) => (new.names, new.items),
            (None, Some(old)) => (old.names.clone(), old.items.clone()),
            (None, None) => (Box::default(), Box::default()),
        };
        let ignored = fresh.ignored.or_else(|| fresh.old.as_ref().map(|old| old.ignored.clone())).unwrap_or_default();
        let items = with_children(items, children);
        let (tree, totals) = self.keep(&names, &items)?;
        Ok(Arc::new(Dir { mode: fresh.mode, tree, rules, names, items, ignored, totals }))
    }

    /// Has the body of a folder kept.
    fn keep(&mut self, names: &[u8], items: &[Item]) -> Result<(crate::ids::ObjectId, Totals), CheckpointError> {
        self.body.clear();
        let mut totals = Totals::default();
        for item in items {
            let name = name_in(names, item);
            match &item.what {
                What::Node(node) => {
                    totals.count(node);
                    node::encode(&mut self.body, name, node, None);
                }
                What::Folder(dir) => {
                    totals.add(dir.totals);
                    node::encode(&mut self.body, name, &Node::Folder { mode: dir.mode }, Some(&dir.tree));
                }
                What::Open => {}
            }
        }
        let tree = Kind::Tree.id(&self.body);
        if !self.scan.objects.holds(&tree) {
            self.scan.writer.put(&mut self.bench, Kind::Tree, tree, &self.body)?;
        }
        Ok((tree, totals))
    }
}

fn same_children(old: &Dir, children: &[Done]) -> bool {
    let folders = old.items.iter().filter_map(|item| match &item.what {
        What::Folder(dir) => Some(dir),
        _ => None,
    });
    folders.zip(children).all(|(old, new)| matches!(new, Done::Dir(new) if Arc::ptr_eq(old, new)))
}

/// Puts the folders in their places; those that are gone are left out.
fn with_children(items: Box<[Item]>, children: Vec<Done>) -> Box<[Item]> {
    let mut children = children.into_iter();
    let place = |mut item: Item| {
        if matches!(item.what, What::Node(_)) {
            return Some(item);
        }
        item.what = match children.next()? {
            Done::Gone => return None,
            Done::Closed(node) => What::Node(node),
            Done::Dir(dir) => What::Folder(dir),
        };
        item.stamp = Stamp::default();
        Some(item)
    };
    items.into_vec().into_iter().filter_map(place).collect()
}
