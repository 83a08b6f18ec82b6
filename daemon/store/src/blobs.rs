//! Blobs as files named by their hash: `blobs/ab/abcdef…`.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mcode_events::blob::{BlobError, BlobRef, Blobs};

use crate::error::StoreError;

/// Bodies that are remembered as kept of late.
const RECENT_MAX: usize = 1024;

/// What the name of a file begins with that is being written.
const BEGUN: &str = ".new-";
/// Where damaged bodies are put, beside the folder.
const BESIDE: &str = "damaged-blobs";

/// A file in the folder, while nobody is known to name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Orphan {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Milliseconds since 1970 UTC.
    pub(crate) changed_at_ms: i64,
}

/// A folder of blobs.
#[derive(Debug)]
pub(crate) struct BlobFiles {
    root: PathBuf,
    /// The last bodies that were kept, oldest first: the events that name them may not be in the log yet.
    recent: Mutex<VecDeque<String>>,
}

impl BlobFiles {
    pub(crate) fn open(root: PathBuf) -> Result<Self, StoreError> {
        mcode_env::files::create_private_dir(&root).map_err(|source| StoreError::Io { path: root.clone(), source })?;
        Ok(Self { root, recent: Mutex::default() })
    }

    /// Removes a body that no event names any more. `named` is how often the events that went did: one that was kept more
    /// often of late is about to be named by others, and stays.
    pub(crate) fn remove(&self, hash: &str, named: u32) -> Result<(), StoreError> {
        let mut recent = self.recent();
        let kept = recent.iter().filter(|it| it.as_str() == hash).count();
        if !is_hash(hash) || kept > named as usize {
            return Ok(());
        }
        recent.retain(|it| it != hash);
        let path = self.path(hash);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(StoreError::Io { path, source }),
            _ => Ok(()),
        }
    }

    /// Where all of them are.
    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.root
    }

    /// Whether there is a file for a body, whole or not. One that may not be looked at is there.
    pub(crate) fn is_there(&self, hash: &str) -> bool {
        is_hash(hash) && self.path(hash).try_exists().unwrap_or(true)
    }

    /// The folders that bodies are in; one that cannot be listed has none.
    pub(crate) fn shelves(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
    }

    /// The bodies in a folder, and what was begun and not finished there.
    pub(crate) fn files(&self, shelf: &std::path::Path) -> Vec<Orphan> {
        let entries = std::fs::read_dir(shelf).into_iter().flatten().flatten();
        let file = |entry: std::fs::DirEntry| {
            let (name, meta) = (entry.file_name().into_string().ok()?, entry.metadata().ok()?);
            let since = meta.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
            let known = meta.is_file() && (is_hash(&name) || name.starts_with(BEGUN));
            let changed_at_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            known.then(|| Orphan { path: entry.path(), name, bytes: meta.len(), changed_at_ms })
        };
        entries.filter_map(file).collect()
    }

    /// Removes a file that nobody names; not one that was kept of late and is about to be named.
    pub(crate) fn remove_orphan(&self, file: &Orphan) -> Result<bool, StoreError> {
        let recent = self.recent();
        if recent.contains(&file.name) {
            return Ok(false);
        }
        let removed = std::fs::remove_file(&file.path);
        drop(recent);
        match removed {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StoreError::Io { path: file.path.clone(), source }),
            Ok(()) => Ok(true),
        }
    }

    /// Puts a damaged body into a folder beside, so that the place is free for a whole one.
    pub(crate) fn put_beside(&self, hash: &str) -> Result<(), StoreError> {
        let beside = self.root.with_file_name(BESIDE);
        let at = |source| StoreError::Io { path: beside.clone(), source };
        mcode_env::files::create_private_dir(&beside).map_err(at)?;
        match std::fs::rename(self.path(hash), beside.join(hash)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(at(source)),
            _ => Ok(()),
        }
    }

    /// The size of a body; 0 when it is not there.
    pub(crate) fn size(&self, hash: &str) -> u64 {
        if is_hash(hash) { std::fs::metadata(self.path(hash)).map_or(0, |meta| meta.len()) } else { 0 }
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a body is kept, and tells whether it was there. Not between the two looks of [`Self::remove`].
    fn note(&self, hash: &str) -> bool {
        let mut recent = self.recent();
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(hash.to_owned());
        self.path(hash).exists()
    }

    fn path(&self, hash: &str) -> PathBuf {
        let shelf = hash.get(..2).unwrap_or("__");
        self.root.join(shelf).join(hash)
    }

    fn write(&self, hash: &str, content: &[u8]) -> std::io::Result<()> {
        let path = self.path(hash);
        let Some(shelf) = path.parent() else { return Ok(()) };
        #[cfg(unix)]
        let new_shelf = !shelf.exists();
        std::fs::create_dir_all(shelf)?;
        let (temporary, mut file) = tempfile_in(shelf)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        drop(file);
        if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, &path)) {
            // What there is of it would only take up the space that was missing.
            std::fs::remove_file(&temporary).ok();
            return Err(error);
        }
        // The name has to survive a power loss as the content does.
        #[cfg(unix)]
        {
            std::fs::File::open(shelf)?.sync_all()?;
            if new_shelf {
                std::fs::File::open(&self.root)?.sync_all()?;
            }
        }
        Ok(())
    }
}

fn tempfile_in(dir: &std::path::Path) -> std::io::Result<(PathBuf, std::fs::File)> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(format!("{BEGUN}{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let file = std::fs::File::create(&path)?;
    Ok((path, file))
}

/// A hash is 64 hex digits; anything else could name a path.
pub(crate) fn is_hash(hash: &str) -> bool {
    hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Blobs for BlobFiles {
    fn put(&self, content: &[u8], media_type: &str) -> Result<BlobRef, BlobError> {
        let hash = blake3::hash(content).to_hex().to_string();
        if !self.note(&hash) {
            self.write(&hash, content).map_err(|source| BlobError::Io { hash: hash.clone(), source })?;
        }
        Ok(BlobRef { hash, size_bytes: content.len() as u64, media_type: media_type.to_owned() })
    }

    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
        if !is_hash(hash) {
            return Err(BlobError::Missing(hash.chars().take(80).collect()));
        }
        let content = match std::fs::read(self.path(hash)) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BlobError::Missing(hash.to_owned()));
            }
            Err(source) => return Err(BlobError::Io { hash: hash.to_owned(), source }),
        };
        if blake3::hash(&content).to_hex().as_str() != hash.to_ascii_lowercase() {
            return Err(BlobError::Damaged(hash.to_owned()));
        }
        Ok(content)
    }

    fn holds(&self, hash: &str) -> bool {
        is_hash(hash) && self.path(hash).exists()
    }
}
