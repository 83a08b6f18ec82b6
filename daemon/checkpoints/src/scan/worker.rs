//! One thread of a look, and one folder.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::cache::{DEPTH_MAX, Dir, Flags, Ignored, Item, What};
use crate::error::CheckpointError;
use crate::ground::{self, Folder, Names, Seen, Stamp};
use crate::ids::{Kind, ObjectId};
use crate::path::{self, TreePath, joined};
use crate::rules::{Lists, Rules};
use crate::scan::reading::Thing;
use crate::scan::{Child, Fresh, Items, Outcome, RACY_MS, Scan, Shared, Task, lists};
use crate::store::Bench;

/// Files that kept changing are named up to this number.
const UNSTEADY_MAX: usize = 100;
/// Names between two looks at the clock.
const NAMES_A_CHECK: usize = 1024;

/// A thread, with memory that it uses again for each folder.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    bench: Bench,
    names: Names,
    listing: Vec<u8>,
    content: Vec<u8>,
    /// The folder that is looked at.
    at: Vec<u8>,
    /// Files changed after this moment, in nanoseconds, are read again the next time.
    racy_ns: i64,
    draft: Draft,
    found: Vec<(usize, Outcome)>,
}

/// What is found of one folder.
#[derive(Default)]
struct Draft {
    names: Vec<u8>,
    items: Vec<Item>,
    ignored: Vec<u8>,
    children: Vec<Child>,
    tasks: Vec<Task>,
    /// Whether anything in the folder is tracked, once that is known.
    tracks: Option<bool>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>) -> Result<Self, CheckpointError> {
        let bench = Bench::new().map_err(CheckpointError::io("compress for", shared.scan.root))?;
        Ok(Self {
            shared,
            bench,
            names: Names::default(),
            listing: Vec::new(),
            content: Vec::new(),
            at: Vec::new(),
            racy_ns: 0,
            draft: Draft::default(),
            found: Vec::new(),
        })
    }

    /// Takes folders until there are none.
    pub(super) fn run(mut self) -> Result<Vec<(usize, Outcome)>, CheckpointError> {
        while let Some((task, mut turn)) = self.shared.pile.take() {
            let number = task.number;
            match self.folder(task) {
                Ok(outcome) => {
                    self.found.push((number, outcome));
                    turn.tasks = std::mem::take(&mut self.draft.tasks);
                    turn.fault = None;
                }
                Err(fault) => turn.fault = Some(fault),
            }
        }
        Ok(self.found)
    }

    pub(super) fn scan(&self) -> &'a Scan<'a> {
        self.shared.scan
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.at
    }

    pub(super) fn is_racy(&self, stamp: &Stamp) -> bool {
        stamp.modified_ns.max(stamp.changed_ns) >= self.racy_ns
    }

    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.content)
    }

    pub(super) fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.content = buffer;
    }

    pub(super) fn count_read(&self) {
        self.shared.read.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_unsteady(&self, path: TreePath) {
        let mut unsteady = self.shared.unsteady.lock().unwrap_or_else(PoisonError::into_inner);
        if unsteady.len() < UNSTEADY_MAX {
            unsteady.push(path);
        }
    }

    pub(super) fn put(&mut self, kind: Kind, id: ObjectId, body: &[u8]) -> Result<(), CheckpointError> {
        self.shared.scan.writer.put(&mut self.bench, kind, id, body)
    }

    fn folder(&mut self, task: Task) -> Result<Outcome, CheckpointError> {
        let scan = self.scan();
        scan.budget.check()?;
        self.racy_ns = scan.clock.now().millis().saturating_sub(RACY_MS).saturating_mul(1_000_000);
        self.at.clone_from(&task.path);
        let opened = scan.ground.folder(&task.path).and_then(|folder| {
            let meta = folder.own_meta()?;
            let complete = folder.names(&mut self.names, &mut self.listing)?;
            Ok((folder, meta, complete))
        });
        let (folder, meta, complete) = match opened {
            Ok(opened) => opened,
            Err(error) if !task.path.is_empty() && ground::is_gone(&error) => return Ok(Outcome::Gone),
            Err(error) if !task.path.is_empty() && ground::is_closed(&error) => return Ok(Outcome::Closed(None)),
            Err(error) => return Err(CheckpointError::io("read", scan.root)(error)),
        };
        if !complete {
            return Err(CheckpointError::TooManyFiles { limit: scan.limits.entries });
        }
        if task.path.iter().filter(|byte| **byte == b'/').count() + 2 > DEPTH_MAX {
            return Ok(Outcome::Closed(Some(meta)));
        }
        self.names.sort();
        let rules = self.rules(&task, &folder);
        let draft = std::mem::take(&mut self.draft);
        self.draft = draft.emptied();
        self.entries(&folder, &task, &rules)?;
        Ok(Outcome::Found(self.fresh(meta.mode(), rules, task.old)))
    }

    /// The rules in a folder, whose names are known.
    fn rules(&self, task: &Task, folder: &Folder) -> Arc<Rules> {
        // Lists in a folder that is ignored take nothing out of it.
        if task.rules.ignores_all() {
            return task.rules.clone();
        }
        let lists = lists::of_folder(self.scan(), &task.path, folder, &self.names, self.shared.own.as_deref());
        if lists.repository {
            let mut within = self.shared.within.lock().unwrap_or_else(PoisonError::into_inner);
            within.push((task.path.clone(), Lists { plain: None, git: None, tracked: None, ..lists.clone() }));
        }
        task.rules.within(&task.path, lists)
    }

    /// Looks at each name.
    fn entries(&mut self, folder: &Folder, task: &Task, rules: &Arc<Rules>) -> Result<(), CheckpointError> {
        let names = std::mem::take(&mut self.names);
        let old = task.old.as_deref();
        let mut before = Before::new(old, rules);
        let whole = task.whole || old.is_none_or(|old| old.rules != rules.print());
        let mut outcome = Ok(());
        for (number, (name, seen)) in names.iter().enumerate() {
            if number % NAMES_A_CHECK == NAMES_A_CHECK - 1 {
                outcome = self.scan().budget.check();
            }
            if outcome.is_err() {
                break;
            }
            let known = before.find(name);
            outcome = self.entry(folder, name, seen, known, rules, whole);
        }
        self.names = names;
        outcome
    }

    fn entry(
        &mut self,
        folder: &Folder,
        name: &[u8],
        mut seen: Seen,
        known: Known<'_>,
        rules: &Arc<Rules>,
        whole: bool,
    ) -> Result<(), CheckpointError> {
        let scan = self.scan();
        if !path::is_name(name) || scan.leftover.is_some_and(|leftover| name.starts_with(leftover)) {
            return Ok(());
        }
        if !scan.skip.is_empty() && scan.skip.contains(&joined(&self.at, name)) {
            return Ok(());
        }
        if seen == Seen::Unknown {
            match folder.meta(name) {
                Ok(meta) => seen = meta.seen,
                Err(_) => return Ok(()),
            }
        }
        let is_folder = seen == Seen::Folder;
        let ignored = self.is_ignored(name, is_folder, &known, rules);
        if ignored && !self.is_tracked(name, is_folder, rules) {
            Ignored::push(&mut self.draft.ignored, name, is_folder);
            return Ok(());
        }
        // It is there only because it is tracked, or something in it is.
        let tracked = ignored;
        if self.shared.entries.fetch_add(1, Ordering::Relaxed) >= scan.limits.entries {
            return Err(CheckpointError::TooManyFiles { limit: scan.limits.entries });
        }
        let thing = if seen == Seen::Folder { Thing::Folder } else { self.thing(folder, name, known.item)? };
        match thing {
            Thing::Gone => {}
            Thing::Folder if tracked => self.child(name, known.item, &rules.all_ignored(), whole, true),
            Thing::Folder => self.child(name, known.item, rules, whole, false),
            Thing::Node { node, stamp, racy } => {
                self.draft.push(name, Flags { racy, tracked }, stamp, What::Node(node))
            }
        }
        Ok(())
    }

    fn is_ignored(&self, name: &[u8], is_folder: bool, known: &Known<'_>, rules: &Rules) -> bool {
        if known.judged {
            let same = |item: &Item| !item.flags.tracked && matches!(item.what, What::Folder(_)) == is_folder;
            if known.item.is_some_and(|(_, item)| same(item)) {
                return false;
            }
            if known.ignored == Some(is_folder) {
                return true;
            }
        }
        rules.ignores(&joined(&self.at, name), is_folder)
    }

    /// Whether something that the lists ignore is tracked. Most folders in which much is ignored have nothing of it.
    fn is_tracked(&mut self, name: &[u8], is_folder: bool, rules: &Rules) -> bool {
        let at = &self.at;
        *self.draft.tracks.get_or_insert_with(|| rules.tracks(at, true)) && rules.tracks(&joined(at, name), is_folder)
    }

    /// A folder within: to be looked at, unless nothing in it can have changed.
    fn child(&mut self, name: &[u8], known: Option<(&Dir, &Item)>, rules: &Arc<Rules>, whole: bool, tracked: bool) {
        let old = match known.map(|(_, item)| &item.what) {
            Some(What::Folder(dir)) => Some(dir.clone()),
            _ => None,
        };
        let path = joined(&self.at, name);
        self.draft.push(name, Flags { racy: false, tracked }, Stamp::default(), What::Open);
        let mut whole = whole || old.is_none();
        if let Some(touched) = &self.shared.touched {
            whole |= touched.paths.contains(&path);
            if let Some(old) = old.as_ref().filter(|_| !whole && !touched.ways.contains(&path)) {
                self.draft.children.push(Child::Known(old.clone()));
                return;
            }
        }
        let number = self.shared.pile.numbers(1);
        self.draft.children.push(Child::Task(number));
        self.draft.tasks.push(Task { number, path, rules: rules.clone(), old, whole });
    }

    /// What was found, sharing what is as it was.
    fn fresh(&mut self, mode: u32, rules: Arc<Rules>, old: Option<Arc<Dir>>) -> Fresh {
        let draft = &mut self.draft;
        let same = old.as_ref().is_some_and(|old| {
            *old.names == *draft.names
                && old.items.len() == draft.items.len()
                && old.items.iter().zip(&draft.items).all(|(old, new)| match (&old.what, &new.what) {
                    (What::Folder(_), What::Open) => old.name == new.name && old.flags == new.flags,
                    _ => old == new,
                })
        });
        let new = (!same).then(|| Items { names: draft.names.as_slice().into(), items: draft.items.as_slice().into() });
        let same_ignored = old.as_ref().is_some_and(|old| *old.ignored == *draft.ignored);
        let ignored = (!same_ignored).then(|| draft.ignored.as_slice().into());
        Fresh { mode, rules, new, ignored, old, children: std::mem::take(&mut draft.children) }
    }
}

impl Draft {
    /// The same memory, with nothing in it.
    fn emptied(mut self) -> Self {
        self.names.clear();
        self.items.clear();
        self.ignored.clear();
        self.children.clear();
        self.tasks.clear();
        self.tracks = None;
        self
    }

    fn push(&mut self, name: &[u8], flags: Flags, stamp: Stamp, what: What) {
        // `Names` takes no more than fits.
        let place =
            (u32::try_from(self.names.len()).unwrap_or(u32::MAX), u16::try_from(name.len()).unwrap_or(u16::MAX));
        self.names.extend_from_slice(name);
        self.items.push(Item { name: place, flags, stamp, what });
    }
}

/// What the last look found of a folder, walked in the order of names.
struct Before<'d> {
    old: Option<&'d Dir>,
    judged: bool,
    at: usize,
    ignored: std::iter::Peekable<Ignored<'d>>,
}

/// What the last look found at a name.
struct Known<'d> {
    item: Option<(&'d Dir, &'d Item)>,
    /// The rules are still the same.
    judged: bool,
    /// It was ignored: whether it was a folder.
    ignored: Option<bool>,
}

impl<'d> Before<'d> {
    fn new(old: Option<&'d Dir>, rules: &Rules) -> Self {
        let judged = old.is_some_and(|old| old.rules == rules.print());
        Self { old, judged, at: 0, ignored: Ignored(old.map_or(&[], |old| &old.ignored)).peekable() }
    }

    /// Names have to be asked for in order.
    fn find(&mut self, name: &[u8]) -> Known<'d> {
        let mut item = None;
        if let Some(old) = self.old {
            while old.items.get(self.at).is_some_and(|item| old.name(item) < name) {
                self.at += 1;
            }
            item = old.items.get(self.at).filter(|item| old.name(item) == name).map(|item| (old, item));
        }
        while self.ignored.next_if(|(ignored, _)| *ignored < name).is_some() {}
        let ignored = self.ignored.next_if(|(ignored, _)| *ignored == name).map(|(_, is_folder)| is_folder);
        Known { item, judged: self.judged, ignored }
    }
}
