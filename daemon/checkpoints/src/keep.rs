//! Looking after what is kept: dropping snapshots, giving back their space, finding damage.
//!
//! Nothing is removed before what takes its place is on the disk, so a crash leaves at most something twice.

use std::collections::HashSet;
use std::path::PathBuf;

use mcode_env::Timestamp;

use crate::depot::Depot;
use crate::error::CheckpointError;
use crate::ids::{ObjectId, SnapshotId};
use crate::looking::{Listed, Root};
use crate::node::Node;
use crate::restore::journal::Journal;
use crate::store::pack::{self, Spot};

/// A pack of which more than this part, in percent, is no longer needed is written anew.
const WASTE_PERCENT: u64 = 25;
/// With more packs than that, small ones are put together.
const PACKS_MAX: usize = 64;
/// What a small pack is.
const SMALL_BYTES: u64 = 1024 * 1024;
/// Bytes that are written anew before what they replace is removed.
const BATCH_BYTES: u64 = 128 * 1024 * 1024;
/// What [`Depot::make_room`] leaves of what a depot may take, in percent.
const ROOM_PERCENT: u64 = 60;

/// What was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retained {
    /// Snapshots that are no longer there.
    pub dropped: Vec<SnapshotId>,
    /// Bytes that were given back.
    pub freed_bytes: u64,
    /// Bytes that the depot takes now.
    pub used_bytes: u64,
    /// Objects of kept snapshots that are damaged or missing; see [`Depot::verify`].
    pub damaged: Vec<ObjectId>,
}

/// What a depot takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all packs on the disk.
    pub bytes: u64,
    /// Bytes that it may take.
    pub cap_bytes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Objects: contents of files and folders, each once.
    pub objects: u64,
    /// Files that hold them.
    pub packs: u64,
}

/// Objects that snapshots need.
#[derive(Default)]
pub(crate) struct Live {
    ids: HashSet<ObjectId>,
    damaged: Vec<ObjectId>,
}

impl Depot {
    /// Drops all snapshots that were taken before a moment, except these, and gives back the space of what none needs.
    /// A snapshot that somebody may still be about to write down should lie after the moment.
    ///
    /// # Errors
    /// When the depot can not be read or written. What was to be kept is there.
    pub fn retain(&self, keep: &HashSet<SnapshotId>, taken_before: Timestamp) -> Result<Retained, CheckpointError> {
        let _locked = self.lock()?;
        let (kept, dropped): (Vec<Listed>, Vec<Listed>) =
            self.snapshots()?.into_iter().partition(|it| it.taken >= taken_before || keep.contains(&it.id));
        self.keep_only(&kept, dropped)
    }

    /// Drops the oldest snapshots but these, until the depot takes three fifths of what it may. The newest one stays.
    ///
    /// # Errors
    /// As [`Depot::retain`].
    pub fn make_room(&self, pinned: &HashSet<SnapshotId>) -> Result<Retained, CheckpointError> {
        let _locked = self.lock()?;
        let mut listed = self.snapshots()?;
        listed.reverse();
        let newest = listed.first().map(|it| it.id);
        let (mut kept, others): (Vec<Listed>, Vec<Listed>) =
            listed.into_iter().partition(|it| pinned.contains(&it.id) || Some(it.id) == newest);
        let goal = self.settings.limits.depot_bytes / 100 * ROOM_PERCENT;
        let mut live = Live::default();
        let mut bytes: u64 =
            kept.iter().map(|it| self.mark(&it.id, &mut live)).collect::<Result<Vec<_>, _>>()?.iter().sum();
        let mut dropped = Vec::new();
        for listed in others {
            if dropped.is_empty() {
                bytes += self.mark(&listed.id, &mut live)?;
            }
            if dropped.is_empty() && bytes <= goal { kept.push(listed) } else { dropped.push(listed) }
        }
        self.keep_only(&kept, dropped)
    }

    /// What the depot takes.
    ///
    /// # Errors
    /// When it can not be listed.
    pub fn usage(&self) -> Result<Usage, CheckpointError> {
        self.objects.refresh()?;
        Ok(Usage {
            bytes: self.objects.bytes(),
            cap_bytes: self.settings.limits.depot_bytes,
            snapshots: self.snapshots()?.len() as u64,
            objects: self.objects.count(),
            packs: self.objects.packs().len() as u64,
        })
    }

    /// Forgets the names first, then removes what they alone needed.
    fn keep_only(&self, kept: &[Listed], dropped: Vec<Listed>) -> Result<Retained, CheckpointError> {
        let before = self.objects.bytes();
        let folder = self.folder.join("snapshots");
        let mut live = Live::default();
        let mut needed: HashSet<SnapshotId> = kept.iter().map(|it| it.id).collect();
        if let Some(journal) = Journal::read(&self.folder)? {
            needed.extend(journal.needs.iter().chain([&journal.undo]));
            for action in &journal.actions {
                if let Some(Node::File { content, .. }) = &action.to {
                    live.ids.insert(*content);
                }
            }
        }
        let dropped: Vec<SnapshotId> = dropped.into_iter().map(|it| it.id).filter(|id| !needed.contains(id)).collect();
        for id in &dropped {
            let path = folder.join(id.to_string());
            self.disk.remove(&path).map_err(CheckpointError::io("remove", &path))?;
        }
        if !dropped.is_empty() {
            self.disk.sync_folder(&folder).map_err(CheckpointError::io("write", &folder))?;
        }
        for id in &needed {
            self.mark(id, &mut live)?;
        }
        self.sweep(&live.ids)?;
        let used_bytes = self.objects.bytes();
        Ok(Retained { dropped, freed_bytes: before.saturating_sub(used_bytes), used_bytes, damaged: live.damaged })
    }

    /// Notes everything that a snapshot needs; gives the bytes of what was not noted before. What lies below a damaged
    /// folder is not known any more, and of no use without its names.
    fn mark(&self, id: &SnapshotId, live: &mut Live) -> Result<u64, CheckpointError> {
        let mut bytes = 0;
        if !live.ids.insert(id.0) {
            return Ok(0);
        }
        bytes += self.objects.bytes_of(&id.0);
        let Some(Root { tree, outside, .. }) = live.sound(self.root_of(*id), id.0)? else { return Ok(bytes) };
        let mut trees = vec![tree];
        if live.ids.insert(outside) {
            bytes += self.objects.bytes_of(&outside);
        }
        while let Some(tree) = trees.pop() {
            if !live.ids.insert(tree) {
                continue;
            }
            bytes += self.objects.bytes_of(&tree);
            let Some(entries) = live.sound(self.tree(&tree), tree)? else { continue };
            for entry in entries {
                trees.extend(entry.tree);
                if let Node::File { content, .. } = entry.node
                    && live.ids.insert(content)
                {
                    bytes += self.objects.bytes_of(&content);
                    if !self.objects.holds(&content) {
                        live.damaged.push(content);
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// Removes packs of which nothing is needed, and writes anew those of which little is.
    fn sweep(&self, live: &HashSet<ObjectId>) -> Result<(), CheckpointError> {
        let mut dead = Vec::new();
        let mut wasteful = Vec::new();
        let packs = self.objects.packs();
        let many = packs.len() > PACKS_MAX;
        for (pack, mut objects) in packs {
            objects.retain(|(id, _)| live.contains(id));
            let used: u64 = objects.iter().map(|(_, spot)| u64::from(spot.bytes) + pack::LINE_BYTES as u64).sum();
            let waste = pack.bytes.saturating_sub(used);
            if pack.unread {
                continue;
            }
            if objects.is_empty() {
                dead.push(pack.path);
            } else if pack.damaged || waste * 100 > pack.bytes * WASTE_PERCENT || (many && pack.bytes < SMALL_BYTES) {
                wasteful.push((pack.path, objects, used));
            }
        }
        self.remove_packs(&dead)?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (path, objects, used) in wasteful {
            bytes += used;
            batch.push((path, objects));
            if bytes >= BATCH_BYTES {
                self.rewrite(std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        self.rewrite(batch)
    }

    /// Copies what is needed of some packs into a new one, and removes them.
    fn rewrite(&self, packs: Vec<(PathBuf, Vec<(ObjectId, Spot)>)>) -> Result<(), CheckpointError> {
        let writer = self.writer(u64::MAX);
        for (path, objects) in &packs {
            for (id, spot) in objects {
                // Damage is not carried on: what is missing is kept again when its content is seen again.
                match self.objects.record(path, spot.place, id) {
                    Ok((header, stored)) if pack::is_sound(&header, &stored) => {
                        writer.put_record(&header, &stored)?;
                    }
                    Ok(_) | Err(CheckpointError::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let new = writer.finish(self.objects.folder())?;
        if let Some(new) = &new {
            self.objects.add(new.clone())?;
        }
        let old: Vec<PathBuf> =
            packs.into_iter().map(|(path, _)| path).filter(|path| Some(path) != new.as_ref()).collect();
        self.remove_packs(&old)
    }

    fn remove_packs(&self, paths: &[PathBuf]) -> Result<(), CheckpointError> {
        if paths.is_empty() {
            return Ok(());
        }
        self.objects.forget(paths);
        for path in paths {
            // Windows removes no file that somebody reads; the next time, then.
            if let Err(error) = self.disk.remove(path)
                && !cfg!(windows)
            {
                return Err(CheckpointError::io("remove", path)(error));
            }
        }
        let folder = self.objects.folder();
        self.disk.sync_folder(folder).map_err(CheckpointError::io("write", folder))
    }
}

impl Live {
    /// What was read, unless it is damaged or missing, which is noted.
    pub(crate) fn sound<T>(
        &mut self,
        read: Result<T, CheckpointError>,
        id: ObjectId,
    ) -> Result<Option<T>, CheckpointError> {
        match read {
            Ok(found) => Ok(Some(found)),
            Err(
                CheckpointError::Damaged { .. } | CheckpointError::Missing { .. } | CheckpointError::Unknown { .. },
            ) => {
                self.damaged.push(id);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
