//! Lines of a file, bounded, counted.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use super::Limits;
use crate::error::{Fault, ImportError};

/// A place in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) bytes: u64,
    /// Lines before it.
    pub(crate) lines: u64,
}

/// A file, line by line.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    place: Place,
    limits: Limits,
}

impl<R: Read + Seek> Lines<R> {
    /// From the beginning of the file, wherever it was read up to.
    pub(crate) fn new(input: R, limits: Limits) -> Result<Self, ImportError> {
        let mut lines = Self { input: BufReader::new(input), place: Place { bytes: 0, lines: 0 }, limits };
        lines.go_to(Place { bytes: 0, lines: 0 })?;
        Ok(lines)
    }

    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The number of the line that was read last.
    pub(crate) const fn number(&self) -> u64 {
        self.place.lines
    }

    pub(crate) fn go_to(&mut self, place: Place) -> Result<(), ImportError> {
        self.input.seek(SeekFrom::Start(place.bytes)).map_err(|error| Fault::Io(error).at(place.lines + 1))?;
        self.place = place;
        Ok(())
    }

    /// Reads the next line, with its line feed, into `line`; tells whether there was one.
    pub(crate) fn read(&mut self, line: &mut Vec<u8>) -> Result<bool, ImportError> {
        line.clear();
        let number = self.place.lines + 1;
        let most = self.limits.line_bytes;
        let read = self.input.by_ref().take(most + 1).read_until(b'\n', line);
        let read = read.map_err(|error| Fault::Io(error).at(number))? as u64;
        if read == 0 {
            return Ok(false);
        }
        self.place = Place { bytes: self.place.bytes + read, lines: number };
        if read > most {
            return Err(Fault::Limit { what: "the length of this line in bytes", max: most }.at(number));
        }
        if self.place.bytes > self.limits.file_bytes {
            return Err(Fault::Limit { what: "the size of the file in bytes", max: self.limits.file_bytes }.at(number));
        }
        if line.last() != Some(&b'\n') {
            return Err(Fault::CutOff.at(number));
        }
        Ok(true)
    }
}
