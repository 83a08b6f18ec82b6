//! The depot of one project: taking snapshots and looking at them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use mcode_env::Clock;

use crate::cache::{self, Dir, What};
use crate::disk::Disk;
use crate::error::CheckpointError;
use crate::ground::Ground;
use crate::ids::{Kind, SnapshotId};
use crate::limits::Limits;
use crate::lock::{self, Held};
use crate::looking::Root;
use crate::node::Node;
use crate::path::{TreePath, as_os, from_os};
use crate::restore::journal;
use crate::scan::{Budget, Found, Indexes, Scan};
use crate::store::{Bench, Objects, Writer};

/// The form of depots that this version makes and reads.
const VERSION: &str = "mcode depot 1";
/// Most bytes of the file that names the project of a depot.
const PROJECT_BYTES_MAX: u64 = 64 * 1024;
/// Files that are named as too large or unreadable.
pub const NOTED_MAX: usize = 20;
/// So many files are read anew before the cache is saved again.
const SAVE_AFTER: u64 = 200;

/// What a depot needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// The user's own list of what git ignores; see [`crate::global_excludes`].
    pub excludes: Option<PathBuf>,
    /// Folders that are left out should they lie in the project: where mcode keeps its own data.
    pub skip: Vec<PathBuf>,
    /// What bounds it.
    pub limits: Limits,
}

/// What is known of changes since the last snapshot.
#[derive(Debug, Clone, Copy)]
pub enum Hint<'a> {
    /// Nothing: every file is looked at (and only those are read whose size or dates have changed).
    None,
    /// Nothing but these paths and what is in them can have changed since the last snapshot of this depot. Whatever else
    /// was changed is found by the next snapshot without a hint, and counts as changed then.
    Only(&'a [TreePath]),
}

/// The state of a project at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: SnapshotId,
    /// Whether no snapshot of this state was there before.
    pub is_new: bool,
    /// Files whose content is kept.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Files that were read for it; the others were known to be as they were.
    pub read: u64,
    /// Bytes that it added to the depot.
    pub added_bytes: u64,
    /// Files that are too large to be kept, and can not be brought back.
    pub large: u64,
    /// What may not be read, and can not be brought back.
    pub unreadable: u64,
    /// The first [`NOTED_MAX`] of both.
    pub noted: Vec<(TreePath, Node)>,
    /// Files that kept changing while they were read: kept as they were read last. At most 100.
    pub unsteady: Vec<TreePath>,
    /// Bytes that the depot takes now.
    pub used_bytes: u64,
    /// Bytes that it may take.
    pub cap_bytes: u64,
}

impl Snapshot {
    /// Whether four fifths of what the depot may take are taken: time for [`Depot::make_room`].
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.used_bytes >= self.cap_bytes / 5 * 4
    }
}

/// The snapshots of one project, in a folder of their own. Everything blocks: call it where blocking is allowed.
///
/// Threads and processes may share it: changes wait for each other at a lock, reading needs none.
#[derive(Debug)]
pub struct Depot {
    pub(crate) folder: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) disk: Disk,
    pub(crate) objects: Objects,
    skip: HashSet<Vec<u8>>,
    indexes: Indexes,
    state: Mutex<State>,
    stop: AtomicBool,
}

/// What is remembered between snapshots.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The last look.
    cache: Option<Arc<Dir>>,
    loaded: bool,
    /// What [`Objects::lost`] was when all that the cache refers to was there.
    checked: Option<u64>,
    /// Files read since the cache was saved.
    unsaved: u64,
}

/// The depot while this thread may change it.
pub(crate) struct Locked<'d> {
    pub(crate) state: MutexGuard<'d, State>,
    _held: Held,
}

impl Depot {
    /// Where the depot of a project is, below mcode's data. `root` has to be the resolved path of the project.
    #[must_use]
    pub fn folder(data: &Path, root: &Path) -> PathBuf {
        let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        data.join("checkpoints").join(&hash[..32])
    }

    /// Opens the depot in `folder`, making it if need be. `root` has to be the resolved path of the project.
    ///
    /// # Errors
    /// When the folder can not be used, or a newer version made it.
    pub fn open(folder: &Path, root: &Path, settings: Settings) -> Result<Self, CheckpointError> {
        Self::open_with(folder, root, settings, Disk::default())
    }

    pub(crate) fn open_with(
        folder: &Path,
        root: &Path,
        settings: Settings,
        disk: Disk,
    ) -> Result<Self, CheckpointError> {
        let mut skip = HashSet::new();
        for kept in settings.skip.iter().map(PathBuf::as_path).chain([folder]) {
            // What is not there yet has no resolved path, and nothing in it.
            let kept = kept.canonicalize().unwrap_or_else(|_| kept.to_path_buf());
            skip.extend(kept.strip_prefix(root).ok().and_then(from_os).filter(|path| !path.is_empty()));
        }
        for name in ["", "packs", "snapshots", "new"] {
            let path = folder.join(name);
            disk.step("make folder")
                .and_then(|()| mcode_env::files::create_private_dir(&path))
                .map_err(CheckpointError::io("make", &path))?;
        }
        let mut settings = settings;
        settings.limits.file_bytes = settings.limits.file_bytes.min(crate::limits::FILE_BYTES_MAX);
        let depot = Self {
            objects: Objects::new(folder.join("packs")),
            folder: folder.to_path_buf(),
            root: root.to_path_buf(),
            settings,
            disk,
            skip,
            indexes: Indexes::default(),
            state: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        depot.identify()?;
        depot.objects.refresh()?;
        Ok(depot)
    }

    /// Writes what made this folder and for which project, or reads it.
    fn identify(&self) -> Result<(), CheckpointError> {
        let path = self.folder.join("project");
        match fs::read(&path) {
            Ok(text) if text.starts_with(VERSION.as_bytes()) => Ok(()),
            // A power cut may leave it empty; then nothing was kept here yet.
            Ok(text) if !text.is_empty() => Err(CheckpointError::TooNew { path: self.folder.clone() }),
            _ => {
                let text = format!("{VERSION}\n{}\n", self.root.display());
                self.disk.replace(&path, text.as_bytes()).map_err(CheckpointError::io("write", &path))
            }
        }
    }

    /// The project of a folder that some version of this crate has made, as text; `None` when it is no depot.
    #[must_use]
    pub fn root_of_folder(folder: &Path) -> Option<String> {
        let text = mcode_env::files::read_text_bounded(&folder.join("project"), PROJECT_BYTES_MAX).ok()?;
        text.lines().nth(1).map(str::to_owned)
    }

    /// The project's root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file in the project, from a full path of the system's; `None` when it lies elsewhere. Links are not
    /// resolved.
    #[must_use]
    pub fn tree_path(&self, path: &Path) -> Option<TreePath> {
        let below = path.strip_prefix(&self.root).ok()?;
        TreePath::from_bytes(&from_os(below)?).ok()
    }

    /// Has snapshots that are being taken end with [`CheckpointError::Stopped`], and no more be taken.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until nobody else changes the depot.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, CheckpointError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.folder.join("lock");
        let held = lock::take(&path, &*self.settings.clock, self.settings.limits.lock_ms)?;
        // Who wrote there is gone, or it would hold the lock.
        if let Ok(left) = fs::read_dir(self.folder.join("new")) {
            left.flatten().for_each(|entry| drop(fs::remove_file(entry.path())));
        }
        self.objects.refresh()?;
        Ok(Locked { state, _held: held })
    }

    /// A pack for new objects of at most so many bytes.
    pub(crate) fn writer(&self, limit: u64) -> Writer {
        Writer::new(self.disk.clone(), self.folder.join("new/pack"), limit)
    }

    /// Ends a pack and takes it up; gives the bytes that it takes.
    pub(crate) fn finish(&self, writer: Writer) -> Result<u64, CheckpointError> {
        let before = self.objects.bytes();
        if let Some(path) = writer.finish(self.objects.folder())? {
            self.objects.add(path)?;
        }
        Ok(self.objects.bytes().saturating_sub(before))
    }

    /// Keeps the state of the project as it is now. When this returns, it survives a power cut.
    ///
    /// # Errors
    /// [`CheckpointError::turns_off`] tells when trying again is of no use; `Full` asks for [`Depot::make_room`]. Nothing
    /// half done is left, and earlier snapshots are as they were.
    pub fn snapshot(&self, hint: Hint<'_>) -> Result<Snapshot, CheckpointError> {
        let mut locked = self.lock()?;
        let used_bytes = self.objects.bytes();
        let cap_bytes = self.settings.limits.depot_bytes;
        match self.take(&mut locked, hint, cap_bytes.saturating_sub(used_bytes)) {
            Err(CheckpointError::TooLarge { .. }) if used_bytes > 0 => {
                Err(CheckpointError::Full { used_bytes, cap_bytes })
            }
            Err(CheckpointError::TooLarge { .. }) => Err(CheckpointError::TooLarge { cap_bytes }),
            other => other,
        }
    }

    /// The same under the lock, with room for so many bytes.
    pub(crate) fn take(&self, locked: &mut Locked<'_>, hint: Hint<'_>, room: u64) -> Result<Snapshot, CheckpointError> {
        let state = &mut *locked.state;
        if !state.loaded {
            state.cache = cache::load(&self.cache_path(), self.settings.limits.file_bytes);
            state.loaded = true;
        }
        let writer = self.writer(room);
        let lost = self.objects.lost();
        let only = match hint {
            Hint::None => None,
            Hint::Only(paths) => Some(paths),
        };
        let found = self.look(state.cache.clone(), state.checked != Some(lost), only, &writer)?;
        let (id, root) = self.seal(&found, &writer)?;
        let added_bytes = self.finish(writer)?;
        let is_new = self.record(id)?;
        state.cache = Some(found.root.clone());
        state.checked = Some(lost);
        state.unsaved += found.read;
        if state.unsaved >= SAVE_AFTER {
            self.save(state);
        }
        let totals = found.root.totals;
        let mut noted = Vec::new();
        note(&found.root, &mut Vec::new(), &mut noted);
        Ok(Snapshot {
            id,
            is_new,
            files: root.files,
            bytes: root.bytes,
            read: found.read,
            added_bytes,
            large: totals.large,
            unreadable: totals.unreadable,
            noted,
            unsteady: found.unsteady,
            used_bytes: self.objects.bytes(),
            cap_bytes: self.settings.limits.depot_bytes,
        })
    }

    /// The folders that the last look found, by their full paths, the root among them.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let cache = self.state.lock().unwrap_or_else(PoisonError::into_inner).cache.clone();
        let mut folders = Vec::new();
        let mut waiting: Vec<(PathBuf, Arc<Dir>)> = cache.into_iter().map(|root| (self.root.clone(), root)).collect();
        while let Some((at, dir)) = waiting.pop() {
            waiting.extend(dir.items.iter().filter_map(|item| match &item.what {
                What::Folder(below) => Some((at.join(as_os(dir.name(item))?), Arc::clone(below))),
                _ => None,
            }));
            folders.push(at);
        }
        folders
    }

    fn look(
        &self,
        old: Option<Arc<Dir>>,
        check: bool,
        only: Option<&[TreePath]>,
        writer: &Writer,
    ) -> Result<Found, CheckpointError> {
        let ground = Ground::open(&self.root).map_err(CheckpointError::io("read", &self.root))?;
        let clock = &*self.settings.clock;
        let budget = Budget::new(clock, &self.stop, self.settings.limits.snapshot_ms);
        let leftover = journal::leftover(&self.folder);
        let scan = Scan {
            ground: &ground,
            root: &self.root,
            objects: &self.objects,
            writer,
            clock,
            limits: &self.settings.limits,
            budget: &budget,
            excludes: self.settings.excludes.as_deref(),
            indexes: &self.indexes,
            skip: &self.skip,
            leftover: leftover.as_deref(),
            check,
            only,
        };
        scan.run(old)
    }

    /// Adds what names a snapshot.
    fn seal(&self, found: &Found, writer: &Writer) -> Result<(SnapshotId, Root), CheckpointError> {
        let mut bench = Bench::new().map_err(CheckpointError::io("compress for", &self.folder))?;
        let mut put = |kind: Kind, body: &[u8]| {
            let id = kind.id(body);
            if !self.objects.holds(&id) {
                writer.put(&mut bench, kind, id, body)?;
            }
            Ok::<_, CheckpointError>(id)
        };
        let outside = put(Kind::Content, &found.outside.encode())?;
        let totals = found.root.totals;
        let root = Root { tree: found.root.tree, outside, files: totals.files, bytes: totals.bytes };
        Ok((SnapshotId(put(Kind::Root, &root.encode())?), root))
    }

    /// Notes that a snapshot is there; `true` when it was not.
    fn record(&self, id: SnapshotId) -> Result<bool, CheckpointError> {
        let folder = self.folder.join("snapshots");
        let path = folder.join(id.to_string());
        let fault = || CheckpointError::io("write", &path);
        let (file, is_new) = match self.disk.create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                (fs::OpenOptions::new().write(true).open(&path).map_err(fault())?, false)
            }
            other => (other.map_err(fault())?, true),
        };
        // Its date says when it was taken last. Only the order in which snapshots are dropped depends on it.
        let since = u64::try_from(self.settings.clock.now().millis()).unwrap_or_default();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(since)).map_err(fault())?;
        if is_new {
            self.disk.sync_folder(&folder).map_err(CheckpointError::io("write", &folder))?;
        }
        Ok(is_new)
    }

    /// Keeps a snapshot that is there as if it had been taken now; `false` when it was dropped meanwhile.
    pub(crate) fn renew(&self, id: SnapshotId) -> Result<bool, CheckpointError> {
        let _locked = self.lock()?;
        if !self.folder.join("snapshots").join(id.to_string()).exists() {
            return Ok(false);
        }
        self.record(id).map(|_| true)
    }

    fn cache_path(&self) -> PathBuf {
        self.folder.join("cache")
    }

    fn save(&self, state: &mut State) {
        if let Some(root) = &state.cache {
            // It only saves time.
            cache::save(&self.disk, &self.cache_path(), root, self.settings.limits.file_bytes).ok();
        }
        state.unsaved = 0;
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut state = state;
        if state.unsaved > 0 {
            self.save(&mut state);
        }
    }
}

/// Finds what is too large or unreadable.
fn note(dir: &Dir, folder: &mut Vec<u8>, noted: &mut Vec<(TreePath, Node)>) {
    for item in &dir.items {
        if noted.len() >= NOTED_MAX {
            return;
        }
        match &item.what {
            What::Node(node @ (Node::Large { .. } | Node::Unreadable { .. })) => {
                noted.push((TreePath::join(folder, dir.name(item)), node.clone()));
            }
            What::Folder(below) if below.totals.large + below.totals.unreadable > 0 => {
                let length = folder.len();
                *folder = crate::path::joined(folder, dir.name(item));
                note(below, folder, noted);
                folder.truncate(length);
            }
            _ => {}
        }
    }
}
