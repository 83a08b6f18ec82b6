//! Which files git tracks, from its index: to git a file that is tracked is not ignored, whatever the lists say.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::node::Reader;
use crate::scan::lists::read_at;

/// Bytes of an index that are read; of a larger one nothing is known.
const INDEX_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Indexes that are remembered.
const INDEXES_MAX: usize = 64;
/// Before each path: dates, numbers, mode, owner and size.
const STAT_BYTES: usize = 40;
/// Lengths of hashes: SHA-1, then SHA-256.
const HASHES: [usize; 2] = [20, 32];

/// The paths that a repository tracks, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracked {
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl Tracked {
    fn path(&self, place: (u32, u32)) -> &[u8] {
        self.bytes.get(place.0 as usize..place.0 as usize + place.1 as usize).unwrap_or_default()
    }

    /// Whether a file is tracked, or anything in a folder.
    pub(crate) fn holds(&self, path: &[u8], is_folder: bool) -> bool {
        if !is_folder {
            return self.places.binary_search_by(|place| self.path(*place).cmp(path)).is_ok();
        }
        let folder = [path, b"/"].concat();
        let first = self.places.partition_point(|place| self.path(*place) < folder.as_slice());
        path.is_empty() || self.places.get(first).is_some_and(|place| self.path(*place).starts_with(&folder))
    }

    fn push(&mut self, path: &[u8]) -> Option<()> {
        let place = (u32::try_from(self.bytes.len()).ok()?, u32::try_from(path.len()).ok()?);
        self.bytes.extend_from_slice(path);
        self.places.push(place);
        Some(())
    }

    /// Reads an index; `None` when it is not understood.
    fn parse(index: &[u8]) -> Option<Self> {
        HASHES.into_iter().find_map(|hash_bytes| Self::parse_with(index, hash_bytes))
    }

    fn parse_with(index: &[u8], hash_bytes: usize) -> Option<Self> {
        let mut reader = Reader(index.strip_prefix(b"DIRC")?);
        let version = u32::from_be_bytes(reader.array()?);
        let count = u32::from_be_bytes(reader.array()?);
        if !(2..=4).contains(&version) {
            return None;
        }
        let mut tracked = Self::default();
        let mut path: Vec<u8> = Vec::new();
        for _ in 0..count {
            let before = reader.0.len();
            reader.bytes(STAT_BYTES + hash_bytes)?;
            let flags = u16::from_be_bytes(reader.array()?);
            if version >= 3 && flags & 0x4000 != 0 {
                reader.u16()?;
            }
            if version == 4 {
                let cut = offset(&mut reader)?;
                path.truncate(path.len().checked_sub(cut)?);
            } else {
                path.clear();
            }
            let length = reader.0.iter().position(|byte| *byte == 0)?;
            path.extend_from_slice(reader.bytes(length)?);
            if version == 4 {
                reader.u8()?;
            } else {
                // Zeros up to a multiple of eight, at least one.
                let taken = before - reader.0.len();
                reader.bytes(8 - taken % 8)?;
            }
            let in_order = tracked.places.last().is_none_or(|last| tracked.path(*last) <= path.as_slice());
            if path.is_empty() || !in_order {
                return None;
            }
            tracked.push(&path)?;
        }
        Some(tracked)
    }
}

/// A number as the fourth version of an index writes it.
fn offset(reader: &mut Reader<'_>) -> Option<usize> {
    let mut byte = reader.u8()?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = reader.u8()?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some(value)
}

/// Indexes that were read, until they change.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Mutex<HashMap<PathBuf, (Seen, Arc<Tracked>)>>);

/// Tells that an index is the one that was read.
type Seen = (Option<SystemTime>, u64, u64);

impl Indexes {
    /// What the repository tracks whose own folder this is.
    pub(super) fn of(&self, git: &Path) -> Arc<Tracked> {
        let path = git.join("index");
        let Ok(found) = fs::symlink_metadata(&path) else { return Arc::default() };
        let seen = (found.modified().ok(), found.len(), inode(&found));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, tracked)) = known.get(&path)
            && *at == seen
        {
            return tracked.clone();
        }
        let whole = found.is_file() && found.len() <= INDEX_BYTES_MAX;
        let index = if whole { read_at(&path, INDEX_BYTES_MAX) } else { None };
        let tracked = Arc::new(index.and_then(|index| Tracked::parse(&index)).unwrap_or_default());
        if known.len() >= INDEXES_MAX {
            known.clear();
        }
        known.insert(path, (seen, tracked.clone()));
        tracked
    }
}

/// Git replaces its index by another file.
#[cfg(unix)]
fn inode(found: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn inode(_found: &fs::Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_index() {
        for bytes in [&b""[..], b"DIRC", b"DIRC\0\0\0\x02\0\0\0\x01", b"DIRC\0\0\0\x09\0\0\0\0", &[0xff; 200]] {
            assert_eq!(Tracked::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(Tracked::parse(b"DIRC\0\0\0\x02\0\0\0\0"), Some(Tracked::default()));
        let mut long = b"DIRC\0\0\0\x04\0\0\0\x01".to_vec();
        long.extend([0; 62]);
        long.extend([0xff; 20]);
        assert_eq!(Tracked::parse(&long), None);
    }

    #[test]
    fn files_and_folders_are_found() {
        let mut tracked = Tracked::default();
        for path in ["a", "a.b", "a/c", "b/d/e"] {
            tracked.push(path.as_bytes()).unwrap();
        }
        assert!(tracked.holds(b"a", false) && tracked.holds(b"a", true) && tracked.holds(b"b/d", true));
        assert!(tracked.holds(b"", true) && !tracked.holds(b"b", false) && !tracked.holds(b"a.", true));
    }
}
