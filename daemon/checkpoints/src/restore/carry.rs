//! Carrying out a plan.

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::depot::{Depot, Hint, Locked};
use crate::error::CheckpointError;
use crate::ground::{self, Ground};
use crate::ids::{Kind, ObjectId, SnapshotId};
use crate::node::Node;
use crate::path::TreePath;
use crate::restore::journal::{Interrupted, Journal};
use crate::restore::place::{Place, Trouble, is_as};
use crate::restore::plan::{Action, Conflict, ConflictKind, Plan};
use crate::store::Bench;

/// Up to so many paths each file is synced; for more the whole file system is, once.
const SYNCED_EACH: usize = 32;
/// What a folder needs while something is made in it.
const OPEN_MODE: u32 = 0o700;

/// What a restore did.
#[derive(Debug)]
pub struct Restored {
    /// The state before it. What it did is undone by a plan of the span from here to `after`.
    pub undo: SnapshotId,
    /// The state after it; `None` when that could not be kept.
    pub after: Option<SnapshotId>,
    /// Paths that are as they were before the agent.
    pub done: Vec<TreePath>,
    /// Paths that were left alone, of the plan and since.
    pub conflicts: Vec<Conflict>,
    /// Folders of the agent's that stay, since something else is in them.
    pub kept_folders: Vec<TreePath>,
    /// Paths where the system refused.
    pub failed: Vec<Failure>,
}

/// A path that could not be brought back.
#[derive(Debug)]
pub struct Failure {
    /// Where.
    pub path: TreePath,
    /// Why.
    pub error: CheckpointError,
}

impl Depot {
    /// Carries out a plan. The present state is kept first, so that it can be undone; each path is looked at again before
    /// it is changed, and left alone if it is no longer as the plan found it. When this returns, it is on the disk.
    ///
    /// # Errors
    /// When the present state can not be kept, or an earlier restore was cut off. Nothing is changed then. What goes wrong
    /// with single paths is in [`Restored`].
    pub fn restore(&self, plan: &Plan) -> Result<Restored, CheckpointError> {
        let mut locked = self.lock()?;
        if Journal::read(&self.folder)?.is_some() {
            return Err(CheckpointError::Interrupted);
        }
        // A full depot must not stand in the way of this.
        let undo = self.take(&mut locked, Hint::None, u64::MAX)?.id;
        self.keep_made(&plan.made)?;
        let needs = plan.spans.iter().flat_map(|span| [span.before, span.after]).chain([undo, plan.now]).collect();
        let journal = Journal::new(undo, needs, plan.actions.clone())?;
        let mut carry = Carry::new(self, &journal, plan.conflicts.clone())?;
        if !journal.actions.is_empty() {
            journal.write(self)?;
            carry.all()?;
            Journal::remove(self)?;
        }
        Ok(self.restored(&mut locked, carry, undo))
    }

    /// The restore that was cut off, if there is one.
    ///
    /// # Errors
    /// When its journal can not be read.
    pub fn interrupted(&self) -> Result<Option<Interrupted>, CheckpointError> {
        // While it is being carried out, it is not cut off.
        let _locked = self.lock()?;
        let journal = Journal::read(&self.folder)?;
        Ok(journal.map(|journal| Interrupted { undo: journal.undo, actions: journal.actions.len() }))
    }

    /// Goes on with the restore that was cut off. What somebody changed since is left alone.
    ///
    /// # Errors
    /// `NothingInterrupted`, or when its journal can not be read.
    pub fn resume(&self) -> Result<Restored, CheckpointError> {
        let mut locked = self.lock()?;
        let journal = Journal::read(&self.folder)?.ok_or(CheckpointError::NothingInterrupted)?;
        let mut carry = Carry::new(self, &journal, Vec::new())?;
        carry.clear_up();
        carry.all()?;
        Journal::remove(self)?;
        Ok(self.restored(&mut locked, carry, journal.undo))
    }

    /// Gives up the restore that was cut off, and leaves what it has done. Gives the state before it.
    ///
    /// # Errors
    /// `NothingInterrupted`, or when its journal can not be removed.
    pub fn abandon(&self) -> Result<SnapshotId, CheckpointError> {
        let _locked = self.lock()?;
        let journal = Journal::read(&self.folder)?.ok_or(CheckpointError::NothingInterrupted)?;
        Carry::new(self, &journal, Vec::new())?.clear_up();
        Journal::remove(self)?;
        Ok(journal.undo)
    }

    fn restored(&self, locked: &mut Locked<'_>, carry: Carry<'_>, undo: SnapshotId) -> Restored {
        let Carry { done, conflicts, kept_folders, failed, .. } = carry;
        let after = self.take(locked, Hint::None, u64::MAX).ok().map(|snapshot| snapshot.id);
        Restored { undo, after, done, conflicts, kept_folders, failed }
    }

    /// Keeps contents that are in no snapshot, for a restore that is cut off.
    fn keep_made(&self, made: &HashMap<ObjectId, Vec<u8>>) -> Result<(), CheckpointError> {
        let mut bench = Bench::new().map_err(CheckpointError::io("compress for", &self.folder))?;
        let writer = self.writer(u64::MAX);
        for (id, content) in made.iter().filter(|(id, _)| !self.objects.holds(id)) {
            writer.put(&mut bench, Kind::Content, *id, content)?;
        }
        self.finish(writer).map(drop)
    }
}

/// A restore that is being carried out.
struct Carry<'d> {
    depot: &'d Depot,
    journal: &'d Journal,
    ground: Ground,
    /// Sync each file; else everything at the end.
    each: bool,
    /// Folders whose names changed.
    changed: BTreeSet<Vec<u8>>,
    /// Modes that folders get at the end, when nothing more is made in them.
    modes: Vec<(TreePath, u32)>,
    done: Vec<TreePath>,
    conflicts: Vec<Conflict>,
    kept_folders: Vec<TreePath>,
    failed: Vec<Failure>,
}

impl<'d> Carry<'d> {
    fn new(depot: &'d Depot, journal: &'d Journal, conflicts: Vec<Conflict>) -> Result<Self, CheckpointError> {
        let ground = Ground::open(&depot.root).map_err(CheckpointError::io("read", &depot.root))?;
        Ok(Self {
            depot,
            journal,
            ground,
            each: journal.actions.len() <= SYNCED_EACH || !cfg!(target_os = "linux"),
            changed: BTreeSet::new(),
            modes: Vec::new(),
            done: Vec::new(),
            conflicts,
            kept_folders: Vec::new(),
            failed: Vec::new(),
        })
    }

    /// Does everything, and has it on the disk.
    fn all(&mut self) -> Result<(), CheckpointError> {
        for (number, action) in self.journal.actions.iter().enumerate() {
            match self.act(number, action) {
                Ok(()) => self.done.push(action.path.clone()),
                Err(trouble) => self.note(action, trouble),
            }
        }
        self.set_modes();
        self.sync()
    }

    fn note(&mut self, action: &Action, trouble: Trouble) {
        let path = action.path.clone();
        match trouble {
            Trouble::Changed(now) => {
                self.conflicts.push(Conflict { path, kind: ConflictKind::ChangedSince { now } });
            }
            Trouble::Blocked => {
                let by = path.above().next().unwrap_or_else(|| path.clone());
                self.conflicts.push(Conflict { path, kind: ConflictKind::Blocked { by } });
            }
            Trouble::NotEmpty if action.to.is_none() => self.kept_folders.push(path),
            Trouble::NotEmpty => self.fail(path, io::ErrorKind::DirectoryNotEmpty.into()),
            Trouble::Failed(error) => self.failed.push(Failure { path, error }),
            Trouble::System(error) => self.fail(path, error),
        }
    }

    fn fail(&mut self, path: TreePath, error: io::Error) {
        let full = crate::path::as_os(path.as_bytes()).map(|below| self.depot.root.join(below)).unwrap_or_default();
        self.failed.push(Failure { path, error: CheckpointError::io("restore", &full)(error) });
    }

    fn act(&mut self, number: usize, action: &Action) -> Result<(), Trouble> {
        let (parent, name) = action.path.split();
        let folder = match self.ground.place(parent) {
            // With its folder it is gone.
            Err(error) if action.to.is_none() && ground::is_gone(&error) => return Ok(()),
            // A link or a file took the place of its folder.
            Err(error) if error.kind() != io::ErrorKind::NotFound && ground::is_gone(&error) => {
                return Err(Trouble::Blocked);
            }
            other => other?,
        };
        let aside = self.journal.name(number);
        let place = Place {
            disk: &self.depot.disk,
            folder: &folder,
            name,
            aside: &aside,
            limit: self.depot.settings.limits.file_bytes,
        };
        let there = place.look(name)?;
        let (from, to) = (action.from.as_ref(), action.to.as_ref());
        if is_as(to, there.as_ref()) {
            return Ok(());
        }
        if !is_as(from, there.as_ref()) && !begun(from, to, there.as_ref()) {
            return Err(Trouble::Changed(there));
        }
        let there = there.as_ref();
        match (there, to) {
            (_, Some(Node::Folder { mode })) => {
                self.modes.push((action.path.clone(), *mode));
                make_folder(&place, there, *mode)?;
            }
            (Some(Node::Folder { .. }), None) => place.remove_folder()?,
            (_, None) => place.take_away(from)?,
            (_, Some(to)) => place.put(self.depot, there, to, self.each)?,
        }
        self.changed.insert(parent.to_vec());
        Ok(())
    }

    /// Gives folders the modes that they are to have, the deepest first.
    fn set_modes(&mut self) {
        let mut modes = std::mem::take(&mut self.modes);
        modes.sort_by_key(|(path, _)| std::cmp::Reverse(path.depth()));
        for (path, mode) in modes {
            let (parent, name) = path.split();
            let set = self.depot.disk.step("set mode").and_then(|()| self.ground.place(parent)?.set_mode(name, mode));
            if let Err(error) = set {
                self.fail(path, error);
            }
        }
    }

    fn sync(&self) -> Result<(), CheckpointError> {
        let fault = || CheckpointError::io("write", &self.depot.root);
        self.depot.disk.step("sync project").map_err(fault())?;
        if !self.each && self.ground.sync_all().map_err(fault())? {
            return Ok(());
        }
        for path in &self.changed {
            // A folder that went has nothing to sync.
            if let Ok(folder) = self.ground.folder(path) {
                folder.sync().map_err(fault())?;
            }
        }
        Ok(())
    }

    /// Clears up what was left aside when it was cut off.
    fn clear_up(&mut self) {
        for (number, action) in self.journal.actions.iter().enumerate() {
            let (parent, name) = action.path.split();
            let Ok(folder) = self.ground.place(parent) else { continue };
            let aside = self.journal.name(number);
            let limit = self.depot.settings.limits.file_bytes;
            let place = Place { disk: &self.depot.disk, folder: &folder, name, aside: &aside, limit };
            match place.clear_up(action.from.as_ref(), action.to.as_ref()) {
                Ok(true) => {}
                Ok(false) => self.fail(TreePath::join(parent, &aside), io::ErrorKind::AlreadyExists.into()),
                Err(error) => self.fail(action.path.clone(), error),
            }
        }
    }
}

/// Whether this is what a restore that was cut off leaves: a folder that has not its mode yet, or that is gone already
/// where a file is to come.
fn begun(from: Option<&Node>, to: Option<&Node>, there: Option<&Node>) -> bool {
    let was_folder = matches!(from, Some(Node::Folder { .. } | Node::Unreadable { folder: true, .. }));
    match (to, there) {
        (Some(Node::Folder { mode }), Some(Node::Folder { mode: open })) => {
            *open == mode | OPEN_MODE || *open == OPEN_MODE
        }
        (Some(Node::Folder { .. }), None) => from.is_some(),
        (Some(Node::File { .. } | Node::Link { .. }), None) => was_folder,
        _ => false,
    }
}

/// Makes a folder that its owner may write in, whatever it is to be in the end.
fn make_folder(place: &Place<'_>, there: Option<&Node>, mode: u32) -> Result<(), Trouble> {
    match there {
        Some(Node::Folder { .. }) => {
            place.disk.step("set mode")?;
            return Ok(place.folder.set_mode(place.name, mode | OPEN_MODE)?);
        }
        Some(_) => place.take_away(there)?,
        None => {}
    }
    place.disk.step("make folder")?;
    Ok(place.folder.make_folder(place.name)?)
}
