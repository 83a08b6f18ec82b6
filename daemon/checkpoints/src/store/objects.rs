//! Which object is in which pack, and reading them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::CheckpointError;
use crate::ids::{Kind, ObjectId};
use crate::store::pack::{self, Header, Spot};

/// Packs that are held open for the next read.
const OPEN_MAX: usize = 16;

/// All objects of a depot.
#[derive(Debug)]
pub(crate) struct Objects {
    folder: PathBuf,
    index: RwLock<Index>,
    open: Mutex<Vec<(PathBuf, std::sync::Arc<File>)>>,
}

#[derive(Debug, Default)]
struct Index {
    /// Pack number and place.
    spots: HashMap<ObjectId, (u32, Spot)>,
    /// By number; a number is never used again.
    packs: BTreeMap<u32, Pack>,
    next: u32,
    /// Changes when something is no longer there.
    lost: u64,
}

/// A pack that is known.
#[derive(Debug, Clone)]
pub(crate) struct Pack {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Something in it was found to be damaged.
    pub(crate) damaged: bool,
    /// The system does not let it be read: what is in it is not known, and may be there again later.
    pub(crate) unread: bool,
}

impl Objects {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, index: RwLock::default(), open: Mutex::default() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Vec<(PathBuf, std::sync::Arc<File>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns which packs are there now.
    pub(crate) fn refresh(&self) -> Result<(), CheckpointError> {
        let fault = || CheckpointError::io("read", &self.folder);
        let mut there = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(fault())? {
            let path = entry.map_err(fault())?.path();
            if path.extension().is_some_and(|extension| extension == "pack") {
                there.push(path);
            }
        }
        there.sort();
        let mut index = self.index_mut();
        let gone: Vec<u32> = index
            .packs
            .iter()
            .filter(|(_, pack)| there.binary_search(&pack.path).is_err())
            .map(|(number, _)| *number)
            .collect();
        let known: HashSet<&Path> = index.packs.values().map(|pack| pack.path.as_path()).collect();
        let new: Vec<PathBuf> = there.into_iter().filter(|path| !known.contains(path.as_path())).collect();
        if !gone.is_empty() {
            index.forget(&gone);
        }
        for path in new {
            match pack::list(&path) {
                Ok(listing) => index.add(path, &listing, false),
                Err(CheckpointError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                // The others are not worse for it.
                Err(_) => index.add(path, &pack::Listing::default(), true),
            }
        }
        if !gone.is_empty() {
            self.open().clear();
        }
        Ok(())
    }

    /// Takes up a pack that was just written.
    pub(crate) fn add(&self, path: PathBuf) -> Result<(), CheckpointError> {
        let listing = pack::list(&path)?;
        // The same pack may have been there, damaged.
        self.forget(std::slice::from_ref(&path));
        self.index_mut().add(path, &listing, false);
        Ok(())
    }

    /// Forgets packs that were removed.
    pub(crate) fn forget(&self, paths: &[PathBuf]) {
        let mut index = self.index_mut();
        let gone: Vec<u32> =
            index.packs.iter().filter(|(_, pack)| paths.contains(&pack.path)).map(|(number, _)| *number).collect();
        index.forget(&gone);
        self.open().clear();
    }

    /// Takes a damaged object for missing, so that it is kept again when its content is seen again.
    pub(crate) fn distrust(&self, ids: &[ObjectId]) {
        let mut index = self.index_mut();
        for id in ids {
            if let Some((number, _)) = index.spots.remove(id)
                && let Some(pack) = index.packs.get_mut(&number)
            {
                pack.damaged = true;
            }
        }
        index.lost += 1;
    }

    /// Looks for sound copies of damaged objects: one that was kept again is in another pack. Gives those without.
    pub(crate) fn mend(&self, damaged: Vec<ObjectId>) -> Vec<ObjectId> {
        let mut left: HashSet<ObjectId> = damaged.into_iter().collect();
        let packs: Vec<(u32, PathBuf)> =
            self.index().packs.iter().map(|(number, pack)| (*number, pack.path.clone())).collect();
        for (number, path) in packs {
            if left.is_empty() {
                break;
            }
            let Ok(listing) = pack::list(&path) else { continue };
            for (id, spot) in listing.spots {
                if left.contains(&id)
                    && let Ok((header, stored)) = self.record(&path, spot.place, &id)
                    && pack::is_sound(&header, &stored)
                {
                    left.remove(&id);
                    self.index_mut().point(id, number, spot);
                }
            }
        }
        left.into_iter().collect()
    }

    /// Changes whenever an object may have gone.
    pub(crate) fn lost(&self) -> u64 {
        self.index().lost
    }

    /// Bytes that an object takes; 0 when it is not there.
    pub(crate) fn bytes_of(&self, id: &ObjectId) -> u64 {
        self.index().spots.get(id).map_or(0, |(_, spot)| u64::from(spot.bytes))
    }

    pub(crate) fn holds(&self, id: &ObjectId) -> bool {
        self.index().spots.contains_key(id)
    }

    /// Bytes of all packs.
    pub(crate) fn bytes(&self) -> u64 {
        self.index().packs.values().map(|pack| pack.bytes).sum()
    }

    /// How many objects there are.
    pub(crate) fn count(&self) -> u64 {
        self.index().spots.len() as u64
    }

    /// All packs with what is used of each: objects that another pack answers for are not among them.
    pub(crate) fn packs(&self) -> Vec<(Pack, Vec<(ObjectId, Spot)>)> {
        let index = self.index();
        let mut packs: BTreeMap<u32, (Pack, Vec<(ObjectId, Spot)>)> =
            index.packs.iter().map(|(number, pack)| (*number, (pack.clone(), Vec::new()))).collect();
        for (id, (number, spot)) in &index.spots {
            if let Some((_, objects)) = packs.get_mut(number) {
                objects.push((*id, *spot));
            }
        }
        let in_order = |(pack, mut objects): (Pack, Vec<(ObjectId, Spot)>)| {
            objects.sort_by_key(|(_, spot)| spot.place);
            (pack, objects)
        };
        packs.into_values().map(in_order).collect()
    }

    /// The body of an object, checked.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, or what the system says.
    pub(crate) fn get(&self, kind: Kind, id: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        match self.try_get(kind, id) {
            // Another process may have swept: the same object may be in a new pack.
            Err(CheckpointError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(CheckpointError::Missing { .. }) => {}
            Err(CheckpointError::Damaged { .. }) if self.mend(vec![*id]).is_empty() => {}
            other => return other,
        }
        self.refresh()?;
        self.try_get(kind, id)
    }

    fn try_get(&self, kind: Kind, id: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        let (path, place) = self.place(id).ok_or(CheckpointError::Missing { object: *id })?;
        let (header, stored) = self.record(&path, place, id)?;
        let damaged = || CheckpointError::Damaged { object: *id, path: path.clone() };
        if header.kind != kind {
            return Err(damaged());
        }
        pack::body_of(&header, stored).ok_or_else(damaged)
    }

    fn place(&self, id: &ObjectId) -> Option<(PathBuf, u64)> {
        let index = self.index();
        let (number, spot) = index.spots.get(id)?;
        index.packs.get(number).map(|pack| (pack.path.clone(), spot.place))
    }

    /// A record as it stands in its pack; its body is not checked.
    pub(crate) fn record(&self, path: &Path, place: u64, id: &ObjectId) -> Result<(Header, Vec<u8>), CheckpointError> {
        let damaged = || CheckpointError::Damaged { object: *id, path: path.to_path_buf() };
        let file = self.file(path)?;
        match pack::read_record(&file, place) {
            Ok(Some((header, stored))) if header.id == *id => Ok((header, stored)),
            Ok(_) => Err(damaged()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged()),
            Err(error) => Err(CheckpointError::io("read", path)(error)),
        }
    }

    fn file(&self, path: &Path) -> Result<std::sync::Arc<File>, CheckpointError> {
        let mut open = self.open();
        if let Some((_, file)) = open.iter().find(|(at, _)| at == path) {
            return Ok(file.clone());
        }
        let file = std::sync::Arc::new(File::open(path).map_err(CheckpointError::io("read", path))?);
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push((path.to_path_buf(), file.clone()));
        Ok(file)
    }
}

impl Index {
    fn add(&mut self, path: PathBuf, listing: &pack::Listing, unread: bool) {
        let number = self.next;
        self.next += 1;
        self.spots.reserve(listing.spots.len());
        self.spots.extend(listing.spots.iter().map(|(id, spot)| (*id, (number, *spot))));
        let damaged = listing.searched || unread;
        self.packs.insert(number, Pack { path, bytes: listing.bytes, damaged, unread });
    }

    /// Has an object be read from another pack than the one in which it is damaged.
    fn point(&mut self, id: ObjectId, number: u32, spot: Spot) {
        if let Some((before, _)) = self.spots.insert(id, (number, spot))
            && let Some(pack) = self.packs.get_mut(&before)
        {
            pack.damaged = true;
        }
    }

    fn forget(&mut self, gone: &[u32]) {
        if gone.is_empty() {
            return;
        }
        self.packs.retain(|number, _| !gone.contains(number));
        self.spots.retain(|_, (number, _)| !gone.contains(number));
        self.lost += 1;
    }
}
