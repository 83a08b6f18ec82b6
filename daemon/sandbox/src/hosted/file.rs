//! The file with a command's output: its beginning, then a ring with its end.
//!
//! One process writes, others read at the same time. The header tells how much was printed; it is written after the
//! bytes. A reader looks at it again after reading, so that bytes that were overwritten meanwhile are never given.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::output::Kept;

/// Bytes of the end that can always be read once they were printed.
pub(super) const TAIL_BYTES: u64 = 1024 * 1024;
/// Most bytes that are written before the header tells of them.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// The ring: what can be read, and what may be being overwritten.
const RING_BYTES: u64 = TAIL_BYTES + PIECE_BYTES_MAX as u64;
/// What the file begins with.
const MAGIC: [u8; 8] = *b"mcodeout";
/// Bytes before the output.
const HEADER_BYTES: u64 = 64;
/// Where the changing part of the header begins.
const COUNTS_AT: u64 = 16;
/// Times that a reader tries again because the writer was faster.
const TRIES_MAX: u32 = 16;

/// Writes a command's output.
#[derive(Debug)]
pub struct OutputWriter {
    file: File,
    head_bytes: u64,
    total: u64,
    /// Bytes that are in the file, if it could not be written any further.
    held: Option<u64>,
}

impl OutputWriter {
    /// A new file that keeps the first `head_bytes`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create(path: &Path, head_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut header = [0; COUNTS_AT as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8..].copy_from_slice(&head_bytes.to_le_bytes());
        file.write_all_at(&header, 0)?;
        let writer = Self { file, head_bytes, total: 0, held: None };
        writer.write_counts()?;
        Ok(writer)
    }

    /// Bytes taken.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes the next bytes. What does not fit on the disk is counted only.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            if self.held.is_none() && self.write(piece).is_err() {
                self.held = Some(self.total);
            }
            self.total += piece.len() as u64;
            // The header's block is there since the beginning: a full disk does not hinder this.
            self.write_counts().ok();
        }
    }

    fn write(&self, mut piece: &[u8]) -> io::Result<()> {
        let mut at = self.total;
        while !piece.is_empty() {
            let (place, room) = place_of(at, self.head_bytes);
            let now = piece.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            self.file.write_all_at(&piece[..now], place)?;
            piece = &piece[now..];
            at += now as u64;
        }
        Ok(())
    }

    fn write_counts(&self) -> io::Result<()> {
        let mut counts = [0; 24];
        counts[..8].copy_from_slice(&self.total.to_le_bytes());
        counts[8..16].copy_from_slice(&(!self.total).to_le_bytes());
        counts[16..].copy_from_slice(&self.held.unwrap_or(u64::MAX).to_le_bytes());
        self.file.write_all_at(&counts, COUNTS_AT)
    }
}

/// Where the byte at this offset of the output is in the file, and how many follow it there without a break.
fn place_of(offset: u64, head_bytes: u64) -> (u64, u64) {
    if offset < head_bytes {
        return (HEADER_BYTES + offset, head_bytes - offset);
    }
    let in_ring = (offset - head_bytes) % RING_BYTES;
    (HEADER_BYTES + head_bytes + in_ring, RING_BYTES - in_ring)
}

/// Reads a command's output; the file is opened for each look, so a view costs no descriptor.
#[derive(Debug, Clone)]
pub(super) struct View {
    path: PathBuf,
}

/// The header as it was at one moment.
#[derive(Debug, Clone, Copy)]
struct Header {
    head_bytes: u64,
    total: u64,
    held: u64,
}

impl Header {
    fn read(file: &File) -> io::Result<Self> {
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        for _ in 0..TRIES_MAX {
            let mut bytes = [0; COUNTS_AT as usize + 24];
            file.read_exact_at(&mut bytes, 0)?;
            let total = number(&bytes[16..24]);
            if bytes[..8] == MAGIC && number(&bytes[24..32]) == !total {
                return Ok(Self { head_bytes: number(&bytes[8..16]), total, held: number(&bytes[32..40]) });
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the file with the output is damaged"))
    }

    /// The first byte of the end that can be read; what lies between it and the head is gone.
    fn tail_from(&self) -> u64 {
        self.head_bytes.max(self.total.saturating_sub(TAIL_BYTES))
    }

    /// The last byte that can be read.
    fn end(&self) -> u64 {
        self.total.min(self.held)
    }
}

impl View {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Kept for View {
    fn total(&self) -> io::Result<u64> {
        Ok(Header::read(&File::open(&self.path)?)?.total)
    }

    fn head(&self, max: usize) -> io::Result<Vec<u8>> {
        let file = File::open(&self.path)?;
        let header = Header::read(&file)?;
        read(&file, header, 0, header.end().min(header.head_bytes).min(max as u64))
    }

    fn last(&self, offset: u64, max: usize) -> io::Result<(Vec<u8>, u64)> {
        let file = File::open(&self.path)?;
        for _ in 0..TRIES_MAX {
            let header = Header::read(&file)?;
            let end = header.end();
            let mut from = end.saturating_sub(max as u64).max(offset).min(end);
            // Between the head and what the ring still holds there is a gap: what was printed last counts.
            if end > header.head_bytes && header.tail_from() > header.head_bytes {
                from = from.max(header.tail_from().min(end));
            }
            let bytes = read(&file, header, from, end)?;
            let now = Header::read(&file)?;
            if end <= header.head_bytes || now.total <= from.max(header.head_bytes) + TAIL_BYTES {
                return Ok((bytes, header.total));
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "the command prints faster than its output can be read"))
    }

    fn whole(&self) -> io::Result<Vec<u8>> {
        let file = File::open(&self.path)?;
        let header = Header::read(&file)?;
        if header.held < header.total.min(header.head_bytes) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "there was no space to keep it"));
        }
        read(&file, header, 0, header.total.min(header.head_bytes))
    }
}

fn read(file: &File, header: Header, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?];
    let (mut done, mut at) = (0, from);
    while done < bytes.len() {
        let (place, room) = place_of(at, header.head_bytes);
        let now = (bytes.len() - done).min(usize::try_from(room).unwrap_or(usize::MAX));
        file.read_exact_at(&mut bytes[done..done + now], place)?;
        done += now;
        at += now as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 300_000;

    fn numbered(from: u64, count: u64) -> Vec<u8> {
        (from..from + count).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    fn stage() -> (tempfile::TempDir, OutputWriter, View) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        let writer = OutputWriter::create(&path, HEAD).unwrap();
        (folder, writer, View::at(path))
    }

    #[test]
    fn head_tail_and_count_are_kept_for_any_length_and_chunking() {
        for length in [0, 1, HEAD - 1, HEAD, HEAD + 1, HEAD + TAIL_BYTES, HEAD + TAIL_BYTES + 1, 5_000_000] {
            for size in [1_000, 65_536, 200_001] {
                let (_folder, mut writer, view) = stage();
                let data = numbered(0, length);
                data.chunks(size).for_each(|chunk| writer.push(chunk));
                assert_eq!(view.total().unwrap(), length);
                let head = usize::try_from(length.min(HEAD)).unwrap();
                assert!(view.whole().unwrap() == data[..head] && view.head(10).unwrap() == data[..head.min(10)]);
                for max in [1, 70_000, usize::try_from(TAIL_BYTES).unwrap()] {
                    let (last, total) = view.last(0, max).unwrap();
                    assert!(total == length && last == data[data.len().saturating_sub(max)..], "{length} {size} {max}");
                }
                let all = view.last(0, usize::MAX).unwrap().0;
                let kept = if length <= HEAD + TAIL_BYTES { data.len() } else { usize::try_from(TAIL_BYTES).unwrap() };
                assert!(all == data[data.len() - kept..], "{length} {size}: {}", all.len());
                assert!(view.last(length, 9).unwrap().0.is_empty());
            }
        }
    }

    #[test]
    fn the_file_stops_growing() {
        let (folder, mut writer, view) = stage();
        let chunk = vec![b'y'; 1 << 20];
        for _ in 0..64 {
            writer.push(&chunk);
        }
        writer.push(b"END");
        let size = std::fs::metadata(folder.path().join("output")).unwrap().len();
        assert!(size <= HEADER_BYTES + HEAD + RING_BYTES, "{size}");
        assert_eq!((view.total().unwrap(), view.last(0, 4).unwrap().0), (64 * (1 << 20) + 3, b"yEND".to_vec()));
    }

    #[test]
    fn a_reader_beside_the_writer_never_gets_overwritten_bytes() {
        let (_folder, mut writer, view) = stage();
        let writing = std::thread::spawn(move || {
            for at in (0..60_000_000).step_by(60_000) {
                writer.push(&numbered(at, 60_000));
            }
        });
        let mut looks = 0;
        while !writing.is_finished() || looks == 0 {
            let Ok((bytes, total)) = view.last(0, 300_000) else { continue };
            let from = total - bytes.len() as u64;
            assert!(bytes == numbered(from, bytes.len() as u64), "torn at {from}");
            looks += 1;
        }
        writing.join().unwrap();
    }

    #[test]
    fn what_is_no_output_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        std::fs::write(&path, [7; 100]).unwrap();
        assert!(View::at(path).total().is_err());
        assert!(View::at(folder.path().join("none")).total().is_err());
    }
}
