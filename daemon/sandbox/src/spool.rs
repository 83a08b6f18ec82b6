//! Output of any length in memory of fixed size: the head, the tail, the count, and a bounded file of the whole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes kept from the beginning.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes kept from the end.
pub(crate) const TAIL_BYTES_MAX: usize = 64 * 1024;
/// Bytes kept on disk, from the beginning.
pub(crate) const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Where a command's output goes.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
    file: Option<File>,
    file_bytes: u64,
    file_error: Option<io::Error>,
}

impl Spool {
    /// An empty one; the file is made when memory does not hold the whole any more.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// One that never makes a file: [`Spool::whole`] fails once the head is full.
    #[must_use]
    pub(crate) fn in_memory() -> Self {
        Self { file_error: Some(io::ErrorKind::Unsupported.into()), ..Self::default() }
    }

    /// Takes the next bytes. Writes to the file, without waiting for the disk to have them.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let room = HEAD_BYTES_MAX - self.head.len();
        let (to_head, to_tail) = chunk.split_at(room.min(chunk.len()));
        if !to_tail.is_empty() {
            self.write(to_head, to_tail);
        }
        self.head.extend_from_slice(to_head);
        if to_tail.len() >= TAIL_BYTES_MAX {
            self.tail.clear();
        }
        self.tail.extend_from_slice(&to_tail[to_tail.len().saturating_sub(TAIL_BYTES_MAX)..]);
        // Twice the size before it is moved, so that each byte is moved about once.
        if self.tail.len() > 2 * TAIL_BYTES_MAX {
            self.tail.drain(..self.tail.len() - TAIL_BYTES_MAX);
        }
        self.total += chunk.len() as u64;
    }

    /// The file holds everything from the first byte on, and is begun when the head is full.
    fn write(&mut self, to_head: &[u8], rest: &[u8]) {
        if self.file_bytes >= FILE_BYTES_MAX || self.file_error.is_some() {
            return;
        }
        let room = usize::try_from(FILE_BYTES_MAX - self.file_bytes).unwrap_or(usize::MAX);
        let done = (|| {
            if let Some(file) = &mut self.file {
                let part = &rest[..rest.len().min(room)];
                file.write_all(part)?;
                return Ok(part.len());
            }
            // Unlinked at once, so that nothing stays behind however the daemon ends.
            let mut file = tempfile::tempfile()?;
            file.write_all(&self.head)?;
            file.write_all(to_head)?;
            let held = self.head.len() + to_head.len();
            let part = &rest[..rest.len().min(room - held)];
            file.write_all(part)?;
            self.file = Some(file);
            Ok(held + part.len())
        })();
        match done {
            Ok(count) => self.file_bytes += count as u64,
            Err(error) => self.file_error = Some(error),
        }
    }

    /// Bytes taken so far.
    #[must_use]
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The first bytes, at most [`HEAD_BYTES_MAX`].
    #[must_use]
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last bytes that are not in the head, at most [`TAIL_BYTES_MAX`].
    #[must_use]
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(TAIL_BYTES_MAX)..]
    }

    /// What came after the first `offset` bytes, at most `max` of its last bytes, and how many bytes before those were
    /// left out.
    #[must_use]
    pub(crate) fn since(&self, offset: u64, max: usize) -> (Vec<u8>, u64) {
        let wanted = self.total.saturating_sub(offset);
        let take = usize::try_from(wanted).unwrap_or(usize::MAX).min(max);
        let tail = self.tail();
        let bytes = if take <= tail.len() {
            tail[tail.len() - take..].to_vec()
        } else if (self.head.len() + tail.len()) as u64 == self.total {
            let from_head = take - tail.len();
            [&self.head[self.head.len() - from_head..], tail].concat()
        } else {
            tail.to_vec()
        };
        let left_out = wanted - bytes.len() as u64;
        (bytes, left_out)
    }

    /// The whole output, or its first [`FILE_BYTES_MAX`] bytes. Blocking, and as large as that: call where both are fine.
    ///
    /// # Errors
    /// When the file could not be written or read.
    pub(crate) fn whole(&mut self) -> io::Result<Vec<u8>> {
        if let Some(error) = &self.file_error {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        let Some(file) = &mut self.file else { return Ok(self.head.clone()) };
        file.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::with_capacity(usize::try_from(self.file_bytes).unwrap_or_default());
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> Vec<u8> {
        (0..count).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn small_output_stays_in_memory_and_whole() {
        let mut spool = Spool::new();
        spool.push(b"abc");
        spool.push(b"def");
        assert_eq!((spool.head(), spool.tail(), spool.total()), (b"abcdef".as_slice(), b"".as_slice(), 6));
        assert!(spool.file.is_none());
        assert_eq!(spool.whole().unwrap(), b"abcdef");
        assert_eq!(spool.since(2, 100), (b"cdef".to_vec(), 0));
        assert_eq!(spool.since(2, 2), (b"ef".to_vec(), 2));
        assert_eq!(spool.since(6, 100), (Vec::new(), 0));
    }

    #[test]
    fn every_chunking_keeps_head_tail_and_file() {
        let data = numbered(400_000);
        for size in [1_000, 65_536, 65_537, 200_000, 400_000] {
            let mut spool = Spool::new();
            data.chunks(size).for_each(|chunk| spool.push(chunk));
            assert_eq!(spool.total(), 400_000, "{size}");
            assert_eq!(spool.head(), &data[..HEAD_BYTES_MAX], "{size}");
            assert_eq!(spool.tail(), &data[400_000 - TAIL_BYTES_MAX..], "{size}");
            assert!(spool.whole().unwrap() == data, "{size}");
            let (bytes, left_out) = spool.since(1_000, usize::MAX);
            assert_eq!((bytes.len(), left_out), (TAIL_BYTES_MAX, 399_000 - TAIL_BYTES_MAX as u64), "{size}");
        }
    }

    #[test]
    fn the_file_and_the_memory_stop_at_their_limits() {
        let mut spool = Spool::new();
        let chunk = vec![b'y'; 1024 * 1024];
        for _ in 0..20 {
            spool.push(&chunk);
        }
        spool.push(b"END");
        assert_eq!(spool.total(), 20 * 1024 * 1024 + 3);
        assert_eq!(spool.whole().unwrap().len() as u64, FILE_BYTES_MAX);
        assert!(spool.tail().ends_with(b"yyEND"));
        assert!(spool.tail.capacity() <= 4 * TAIL_BYTES_MAX);
    }
}
