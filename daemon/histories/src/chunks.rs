//! A writer that passes on what it gets in pieces of a bounded size.

use std::io::{self, Write};

/// The largest piece that is passed on, in bytes.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Gathers what is written and gives it to `send` in pieces of at most [`CHUNK_BYTES`]. The last piece is given by
/// [`Write::flush`]; an error of `send` ends the writing.
#[derive(Debug)]
pub struct Chunks<F> {
    gathered: Vec<u8>,
    send: F,
}

impl<F: FnMut(Vec<u8>) -> io::Result<()>> Chunks<F> {
    /// A writer to `send`.
    pub const fn new(send: F) -> Self {
        Self { gathered: Vec::new(), send }
    }
}

impl<F: FnMut(Vec<u8>) -> io::Result<()>> Write for Chunks<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.gathered.len());
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == CHUNK_BYTES {
            (self.send)(std::mem::take(&mut self.gathered))?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() { Ok(()) } else { (self.send)(std::mem::take(&mut self.gathered)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_bounded_and_nothing_is_lost() {
        let mut pieces = Vec::new();
        let mut chunks = Chunks::new(|piece| {
            pieces.push(piece);
            Ok(())
        });
        let text: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|number| (number % 251) as u8).collect();
        for part in text.chunks(10_007) {
            chunks.write_all(part).unwrap();
        }
        chunks.flush().unwrap();
        chunks.flush().unwrap();
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK_BYTES, CHUNK_BYTES, 7]);
        assert_eq!(pieces.concat(), text);
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_writing() {
        let mut chunks = Chunks::new(|_| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(chunks.write_all(&vec![0; CHUNK_BYTES]).is_err());
    }
}
