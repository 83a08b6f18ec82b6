//! Writing a pack.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::Disk;
use crate::error::CheckpointError;
use crate::ids::{Kind, ObjectId};
use crate::store::pack::{END, HEADER_BYTES, Header, LINE_BYTES, MAGIC, Spot};

/// How much is gathered before it is written.
const BUFFER_BYTES: usize = 1024 * 1024;
/// Bodies of fewer bytes are kept as they are.
const COMPRESSED_FROM: usize = 64;
/// Above this level, source texts take much longer and get hardly smaller.
const LEVEL: i32 = 1;

/// What one thread needs to compress.
pub(crate) struct Bench {
    compressor: zstd::bulk::Compressor<'static>,
    buffer: Vec<u8>,
}

impl Bench {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { compressor: zstd::bulk::Compressor::new(LEVEL)?, buffer: Vec::new() })
    }

    /// The body, smaller if it can be made so.
    fn press(&mut self, body: &[u8]) -> Option<&[u8]> {
        if body.len() < COMPRESSED_FROM {
            return None;
        }
        self.buffer.clear();
        self.buffer.reserve(zstd::zstd_safe::compress_bound(body.len()));
        let length = self.compressor.compress_to_buffer(body, &mut self.buffer).ok()?;
        (length < body.len()).then(|| &self.buffer[..length])
    }
}

/// Takes new objects from many threads into one pack. What was not finished is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    disk: Disk,
    /// Where it is written.
    path: PathBuf,
    /// Bytes at most.
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Made with the first object.
    file: Option<File>,
    /// The file is there and has not got its name.
    unnamed: bool,
    buffer: Vec<u8>,
    /// Bytes written and gathered.
    length: u64,
    spots: HashMap<ObjectId, Spot>,
    order: Vec<ObjectId>,
}

impl Writer {
    /// A pack that is written at `path`. Nothing is made until there is something to keep.
    pub(crate) fn new(disk: Disk, path: PathBuf, limit: u64) -> Self {
        Self { disk, path, limit, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this very pack has it already.
    pub(crate) fn holds(&self, id: &ObjectId) -> bool {
        self.inner().spots.contains_key(id)
    }

    /// Adds a body, unless it is there.
    pub(crate) fn put(&self, bench: &mut Bench, kind: Kind, id: ObjectId, body: &[u8]) -> Result<(), CheckpointError> {
        if self.holds(&id) {
            return Ok(());
        }
        let pressed = bench.press(body);
        let stored = pressed.unwrap_or(body);
        let too_large = || CheckpointError::TooLarge { cap_bytes: self.limit };
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| too_large());
        let header = Header {
            kind,
            compressed: pressed.is_some(),
            body_bytes: length(body)?,
            stored_bytes: length(stored)?,
            id,
        };
        self.put_record(&header, stored)
    }

    /// Adds a record as it is.
    pub(crate) fn put_record(&self, header: &Header, stored: &[u8]) -> Result<(), CheckpointError> {
        let mut inner = self.inner();
        if inner.spots.contains_key(&header.id) {
            return Ok(());
        }
        if inner.file.is_none() {
            inner.file = Some(self.disk.create(&self.path).map_err(self.fault())?);
            inner.unnamed = true;
            inner.buffer = Vec::with_capacity(BUFFER_BYTES);
            inner.buffer.extend_from_slice(MAGIC);
            inner.length = MAGIC.len() as u64;
        }
        let place = inner.length;
        let records = (HEADER_BYTES + LINE_BYTES) as u64 * (inner.order.len() as u64 + 1);
        if place + records + stored.len() as u64 > self.limit {
            return Err(CheckpointError::TooLarge { cap_bytes: self.limit });
        }
        inner.buffer.extend_from_slice(&header.encode());
        inner.buffer.extend_from_slice(stored);
        let bytes = header.record_bytes();
        inner.length += u64::from(bytes);
        inner.spots.insert(header.id, Spot { place, bytes });
        inner.order.push(header.id);
        if inner.buffer.len() >= BUFFER_BYTES {
            self.flush(&mut inner)?;
        }
        Ok(())
    }

    fn fault(&self) -> impl FnOnce(io::Error) -> CheckpointError {
        CheckpointError::io("write", &self.path)
    }

    fn flush(&self, inner: &mut Inner) -> Result<(), CheckpointError> {
        if let Some(file) = &mut inner.file {
            self.disk.write(file, &inner.buffer).map_err(self.fault())?;
        }
        inner.buffer.clear();
        Ok(())
    }

    /// Ends the pack, has it on the disk, and gives it its name in `folder`. `None` when there was nothing to keep.
    pub(crate) fn finish(self, folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
        let mut inner = self.inner();
        if inner.file.is_none() {
            return Ok(None);
        }
        let start = inner.length;
        let mut lines = Vec::with_capacity(inner.order.len() * LINE_BYTES);
        for id in &inner.order {
            lines.extend_from_slice(&id.0);
            let spot = inner.spots.get(id).copied().unwrap_or(Spot { place: 0, bytes: 0 });
            lines.extend_from_slice(&spot.place.to_le_bytes());
            lines.extend_from_slice(&spot.bytes.to_le_bytes());
        }
        let hash = blake3::hash(&lines);
        inner.buffer.extend_from_slice(&lines);
        let count = inner.order.len() as u64;
        for part in [&start.to_le_bytes()[..], &count.to_le_bytes(), hash.as_bytes(), END] {
            inner.buffer.extend_from_slice(part);
        }
        self.flush(&mut inner)?;
        if let Some(file) = &inner.file {
            self.disk.sync(file).map_err(self.fault())?;
        }
        // Windows renames no open file.
        inner.file = None;
        // Named by what it holds: the same pack written twice is one.
        let path = folder.join(format!("{}.pack", &hash.to_hex()[..32]));
        self.disk.rename(&self.path, &path).map_err(self.fault())?;
        inner.unnamed = false;
        self.disk.sync_folder(folder).map_err(CheckpointError::io("write", folder))?;
        Ok(Some(path))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        inner.file = None;
        if inner.unnamed {
            // Half a pack would only take up the space that was missing.
            std::fs::remove_file(&self.path).ok();
        }
    }
}
