//! One pack: records one after the other, then where each is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::CheckpointError;
use crate::ids::{ID_BYTES, Kind, ObjectId};
use crate::node::Reader;

/// Begins a pack.
pub(crate) const MAGIC: &[u8; 8] = b"mcodepk1";
/// Ends a pack.
pub(crate) const END: &[u8; 8] = b"mcodeend";
/// Before each body: kind, whether it is compressed, its length, its length here, its name.
pub(crate) const HEADER_BYTES: usize = 2 + 4 + 4 + ID_BYTES;
/// The last of a pack: where its index begins, how many objects it names, the index' hash, [`END`].
pub(crate) const TRAILER_BYTES: usize = 8 + 8 + ID_BYTES + 8;
/// One line of the index: name, place, and how many bytes the record takes.
pub(crate) const LINE_BYTES: usize = ID_BYTES + 8 + 4;
/// Bytes of a body at most. The largest is a folder of [`crate::limits::ENTRIES_MAX`] long names.
pub(crate) const BODY_BYTES_MAX: usize = 80 * 1024 * 1024;

/// Where a record is in its pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) place: u64,
    /// Bytes of the record.
    pub(crate) bytes: u32,
}

/// What stands before a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) compressed: bool,
    pub(crate) body_bytes: u32,
    pub(crate) stored_bytes: u32,
    pub(crate) id: ObjectId,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind.byte();
        bytes[1] = u8::from(self.compressed);
        bytes[2..6].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[6..10].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[10..].copy_from_slice(&self.id.0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = Kind::from_byte(reader.u8()?)?;
        let compressed = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let header =
            Self { kind, compressed, body_bytes: reader.u32()?, stored_bytes: reader.u32()?, id: reader.id()? };
        let bound = u32::try_from(BODY_BYTES_MAX).unwrap_or(u32::MAX);
        (header.body_bytes <= bound && header.stored_bytes <= header.body_bytes).then_some(header)
    }

    /// Bytes that the record takes.
    pub(crate) fn record_bytes(&self) -> u32 {
        self.stored_bytes.saturating_add(HEADER_BYTES.try_into().unwrap_or(u32::MAX))
    }
}

/// The body of a record, when it is what its name says.
pub(crate) fn body_of(header: &Header, stored: Vec<u8>) -> Option<Vec<u8>> {
    let body =
        if header.compressed { zstd::bulk::decompress(&stored, header.body_bytes as usize).ok()? } else { stored };
    (header.kind.id(&body) == header.id).then_some(body)
}

/// Whether the body of a record is what its name says.
pub(crate) fn is_sound(header: &Header, stored: &[u8]) -> bool {
    if header.compressed {
        let body = zstd::bulk::decompress(stored, header.body_bytes as usize);
        return body.is_ok_and(|body| header.kind.id(&body) == header.id);
    }
    header.kind.id(stored) == header.id
}

/// Reads the record at a place.
pub(crate) fn read_record(file: &File, place: u64) -> io::Result<Option<(Header, Vec<u8>)>> {
    let mut bytes = [0; HEADER_BYTES];
    read_at(file, &mut bytes, place)?;
    let Some(header) = Header::decode(&bytes) else { return Ok(None) };
    let mut stored = vec![0; header.stored_bytes as usize];
    read_at(file, &mut stored, place + HEADER_BYTES as u64)?;
    Ok(Some((header, stored)))
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, place)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, buffer: &mut [u8], place: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(buffer)
}

/// Where the objects of a pack are.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) spots: Vec<(ObjectId, Spot)>,
    /// Its size.
    pub(crate) bytes: u64,
    /// Whether its own list was damaged, so that its records were looked for one by one, up to the first that is not whole.
    pub(crate) searched: bool,
}

/// Opens a pack and reads where its objects are.
pub(crate) fn list(path: &Path) -> Result<Listing, CheckpointError> {
    let fault = || CheckpointError::io("read", path);
    let mut file = File::open(path).map_err(fault())?;
    let bytes = file.metadata().map_err(fault())?.len();
    Ok(match index(&mut file, bytes).map_err(fault())? {
        Some(spots) => Listing { spots, bytes, searched: false },
        None => Listing { spots: search(&file, bytes), bytes, searched: true },
    })
}

/// The list that a pack ends with; `None` when it is damaged.
fn index(file: &mut File, bytes: u64) -> io::Result<Option<Vec<(ObjectId, Spot)>>> {
    let Some(trailer_at) = bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES];
    read_at(file, &mut trailer, trailer_at)?;
    let mut reader = Reader(&trailer);
    let (Some(start), Some(count), Some(hash)) = (reader.u64(), reader.u64(), reader.id()) else { return Ok(None) };
    let length = count.checked_mul(LINE_BYTES as u64);
    if reader.0 != END || length.and_then(|length| start.checked_add(length)) != Some(trailer_at) {
        return Ok(None);
    }
    let mut lines = vec![0; usize::try_from(trailer_at - start).unwrap_or(0)];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut lines)?;
    if blake3::hash(&lines).as_bytes() != &hash.0 {
        return Ok(None);
    }
    let mut reader = Reader(&lines);
    let mut spots = Vec::with_capacity(lines.len() / LINE_BYTES);
    while let (Some(id), Some(place), Some(bytes)) = (reader.id(), reader.u64(), reader.u32()) {
        spots.push((id, Spot { place, bytes }));
    }
    Ok(Some(spots))
}

/// The records of a pack whose list is damaged, up to the first that is not whole.
fn search(file: &File, bytes: u64) -> Vec<(ObjectId, Spot)> {
    let mut spots = Vec::new();
    let mut place = MAGIC.len() as u64;
    while place < bytes {
        let Ok(Some((header, stored))) = read_record(file, place) else { break };
        if is_sound(&header, &stored) {
            spots.push((header.id, Spot { place, bytes: header.record_bytes() }));
        }
        place += u64::from(header.record_bytes());
    }
    spots
}
