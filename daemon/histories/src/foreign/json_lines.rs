//! JSON lines of others: bounded, and a line that is wrong is told and passed over.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::{ForeignError, io};

/// The largest file that is read, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// The longest line, in bytes; a picture in base64 stands in one.
pub(crate) const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most lines of a file.
pub(crate) const LINES_MAX: u64 = 500_000;

/// A line, or what is wrong with it.
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    /// It was passed over.
    Wrong(&'static str),
}

/// Where a line is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// Its number, from 1.
    pub(crate) line: u64,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
}

/// A file of JSON lines.
pub(crate) struct JsonLines {
    path: PathBuf,
    input: BufReader<File>,
    number: u64,
    at: u64,
    buffer: Vec<u8>,
}

/// Opens a file to be read, and nothing that is no file.
pub(crate) fn open(path: &Path) -> Result<File, ForeignError> {
    // Before it is opened: a pipe would not let go.
    if !std::fs::metadata(path).map_err(io(path))?.is_file() {
        return Err(ForeignError::NotAFile(path.to_path_buf()));
    }
    let file = File::open(path).map_err(io(path))?;
    let bytes = file.metadata().map_err(io(path))?.len();
    if bytes > FILE_BYTES_MAX {
        let (what, max) = ("too many bytes", FILE_BYTES_MAX);
        return Err(ForeignError::TooLarge { path: path.to_path_buf(), what, max });
    }
    Ok(file)
}

impl JsonLines {
    pub(crate) fn open(path: &Path) -> Result<Self, ForeignError> {
        let input = BufReader::new(open(path)?);
        Ok(Self { path: path.to_path_buf(), input, number: 0, at: 0, buffer: Vec::new() })
    }

    /// The next line that is not empty, with its place.
    pub(crate) fn next(&mut self) -> Result<Option<(Spot, Line<'_>)>, ForeignError> {
        loop {
            self.buffer.clear();
            let from = self.at;
            let read = self.input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(io(&self.path))? as u64;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.at += read;
            if self.number > LINES_MAX {
                let (what, max) = ("too many lines", LINES_MAX);
                return Err(ForeignError::TooLarge { path: self.path.clone(), what, max });
            }
            let spot = Spot { line: self.number, from, bytes: read };
            if read > LINE_BYTES_MAX {
                self.pass_over()?;
                return Ok(Some((spot, Line::Wrong("the line is too long"))));
            }
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Ok(Some((spot, Line::Whole(&self.buffer))));
        }
    }

    /// To the end of a line that is too long, without holding it.
    fn pass_over(&mut self) -> Result<(), ForeignError> {
        while self.buffer.last() != Some(&b'\n') {
            self.buffer.clear();
            let read = self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(io(&self.path))? as u64;
            self.at += read;
            if read == 0 {
                break;
            }
        }
        Ok(())
    }

    /// A line that was seen before.
    pub(crate) fn line_at(&mut self, spot: Spot) -> Result<&[u8], ForeignError> {
        self.input.seek(SeekFrom::Start(spot.from)).map_err(io(&self.path))?;
        self.buffer.clear();
        self.input.by_ref().take(spot.bytes).read_to_end(&mut self.buffer).map_err(io(&self.path))?;
        Ok(&self.buffer)
    }
}

/// The first lines of a file, of at most so many bytes; the last may be cut and is left out then. Tells whether that is
/// all of the file.
pub(crate) fn head(path: &Path, bytes: u64) -> Result<(Vec<u8>, bool), ForeignError> {
    let mut content = Vec::new();
    open(path)?.take(bytes).read_to_end(&mut content).map_err(io(path))?;
    let whole = (content.len() as u64) < bytes;
    if !whole {
        let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        content.truncate(end);
    }
    Ok((content, whole))
}

/// The last lines of a file, of at most so many bytes; the first may be cut.
pub(crate) fn tail(path: &Path, bytes: u64) -> Result<Vec<u8>, ForeignError> {
    let mut file = open(path)?;
    let length = file.metadata().map_err(io(path))?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes))).map_err(io(path))?;
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content).map_err(io(path))?;
    Ok(content)
}

/// A file of JSON that is not larger than this.
pub(crate) fn json_file(path: &Path, most: u64) -> Result<serde_json::Value, String> {
    let file = open(path).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    if content.len() as u64 > most {
        return Err(format!("the file has more than {most} bytes"));
    }
    serde_json::from_slice(&content).map_err(|error| format!("no JSON ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(path: &Path) -> Result<Vec<(u64, bool)>, ForeignError> {
        let mut lines = JsonLines::open(path)?;
        let mut numbers = Vec::new();
        while let Some((spot, line)) = lines.next()? {
            numbers.push((spot.line, matches!(line, Line::Whole(_))));
        }
        Ok(numbers)
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let mut content = vec![b'x'; LINE_BYTES_MAX as usize + 10];
        content.extend(b"\n{}\n\n{}");
        std::fs::write(&path, content).unwrap();
        assert_eq!(numbers(&path).unwrap(), [(1, false), (2, true), (4, true)]);
    }

    #[test]
    fn a_file_of_too_many_lines_or_bytes_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "1\n".repeat(LINES_MAX as usize + 1)).unwrap();
        assert!(numbers(&path).unwrap_err().to_string().contains("too many lines, more than is taken (500000)"));
        // A hole takes no space.
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(numbers(&path).unwrap_err().to_string().contains("too many bytes"));
    }

    #[test]
    fn a_head_ends_with_a_whole_line_and_a_tail_with_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(head(&path, 9).unwrap(), (b"one\ntwo\n".to_vec(), false));
        assert_eq!(head(&path, 100).unwrap(), (b"one\ntwo\nthree\n".to_vec(), true));
        assert_eq!(tail(&path, 6).unwrap(), b"three\n");
        assert!(json_file(&path, 5).unwrap_err().contains("more than 5 bytes"));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(matches!(JsonLines::open(&path).map(drop), Err(ForeignError::NotAFile(_))));
        assert!(matches!(JsonLines::open(dir.path()).map(drop), Err(ForeignError::NotAFile(_))));
    }
}
