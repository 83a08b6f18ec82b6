//! The log: to a file that is rotated and never grows beyond a limit, or to standard error in the foreground.
//!
//! `MCODE_LOG` holds a filter such as `debug` or `mcode_agent=trace,warn`.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of one log file.
const LOG_FILE_BYTES_MAX: u64 = 5 * 1024 * 1024;
/// Files that are kept: the current one, `.1` and `.2`.
const LOG_FILES_MAX: u32 = 3;
/// Most bytes of all log files together.
#[cfg(test)]
const LOG_TOTAL_BYTES_MAX: u64 = LOG_FILE_BYTES_MAX * LOG_FILES_MAX as u64;
/// Most bytes of one line; the rest is cut off.
const LOG_LINE_BYTES_MAX: usize = 64 * 1024;
/// Filter when `MCODE_LOG` does not say.
const FILTER: &str = "info";

/// Logs to the file; panics are logged too.
pub(crate) fn to_file(path: &Path) -> io::Result<()> {
    let file = RotatingFile::open(path, LOG_FILE_BYTES_MAX)?;
    let (filter, fault) = filter();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).init();
    finish(fault);
    Ok(())
}

/// Logs to standard error.
pub(crate) fn to_stderr() {
    let (filter, fault) = filter();
    let colours = io::stderr().is_terminal() && mcode_env::process::var("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(|| Redacting(io::stderr())).init();
    finish(fault);
}

fn filter() -> (EnvFilter, Option<String>) {
    let wanted = mcode_env::process::var("MCODE_LOG");
    match EnvFilter::builder().parse(wanted.as_deref().unwrap_or(FILTER)) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(FILTER), Some(error.to_string())),
    }
}

fn finish(fault: Option<String>) {
    if let Some(fault) = fault {
        tracing::warn!("MCODE_LOG is not a filter ({fault}); '{FILTER}' is used");
    }
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::force_capture();
        tracing::error!("internal fault: {panic}\n{trace}");
    }));
}

/// A line without what looks like a key. A line is one piece: a key is not split between two.
fn without_secrets(line: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(line).map(mcode_text::redact) {
        Ok(Cow::Borrowed(_)) => Cow::Borrowed(line),
        Ok(Cow::Owned(clean)) => Cow::Owned(clean.into_bytes()),
        // The log writes text; what is none is shown as such.
        Err(_) => Cow::Owned(mcode_text::redact(&String::from_utf8_lossy(line)).into_owned().into_bytes()),
    }
}

/// Takes secrets out of the lines that are written.
struct Redacting<W>(W);

impl<W: Write> Write for Redacting<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&without_secrets(line)).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A log file that makes room for itself.
#[derive(Debug, Clone)]
struct RotatingFile(Arc<Mutex<Current>>);

#[derive(Debug)]
struct Current {
    path: PathBuf,
    file: File,
    size: u64,
    size_max: u64,
}

impl RotatingFile {
    fn open(path: &Path, size_max: u64) -> io::Result<Self> {
        let file = open_append(path)?;
        let size = file.metadata()?.len();
        Ok(Self(Arc::new(Mutex::new(Current { path: path.to_path_buf(), file, size, size_max }))))
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Current {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let line = without_secrets(line);
        let line = line.get(..LOG_LINE_BYTES_MAX).unwrap_or(&line);
        if self.size > 0 && self.size + line.len() as u64 > self.size_max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        if !line.ends_with(b"\n") {
            self.file.write_all(b"\n")?;
            self.size += 1;
        }
        Ok(())
    }

    /// Moves each file one on; where that is not possible the current one starts anew, so that the limit holds.
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |number: u32| match number {
            0 => self.path.clone(),
            number => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{number}"));
                PathBuf::from(name)
            }
        };
        let mut moved = Ok(());
        for number in (1..LOG_FILES_MAX).rev() {
            moved = fs::rename(numbered(number - 1), numbered(number));
        }
        if moved.is_err() {
            self.file.set_len(0)?;
        }
        self.file = open_append(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }
}

impl Write for &RotatingFile {
    /// Takes one line. A log that can not be written (the disk is full) must not stop the daemon, nor be complained of
    /// in the log.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(line).ok();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RotatingFile {
    type Writer = &'a RotatingFile;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(dir: &Path) -> Vec<(String, u64)> {
        let mut all: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn keys_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcoded.log");
        let log = RotatingFile::open(&path, LOG_FILE_BYTES_MAX).unwrap();
        let key = ["sk", "ant", "api03-abcdefghijklmnop"].join("-");
        (&log).write_all(format!("internal fault: bad key {key}\n").as_bytes()).unwrap();
        (&log).write_all(&[b"\xff ", key.as_bytes(), b"\n"].concat()).unwrap();
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(written, "internal fault: bad key [redacted Anthropic key]\n\u{fffd} [redacted Anthropic key]\n");
        let mut out = Redacting(Vec::new());
        out.write_all(format!("x-api-key: {key}").as_bytes()).unwrap();
        assert_eq!(out.0, b"x-api-key: [redacted]");
    }

    #[test]
    fn the_total_never_exceeds_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let log = RotatingFile::open(&dir.path().join("mcoded.log"), LOG_FILE_BYTES_MAX).unwrap();
        let line = [b"x".repeat(60_000), b"\n".to_vec()].concat();
        let lines = LOG_TOTAL_BYTES_MAX / line.len() as u64 + 100;
        for _ in 0..lines {
            (&log).write_all(&line).unwrap();
        }
        let sizes = sizes(dir.path());
        let names: Vec<&str> = sizes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mcoded.log", "mcoded.log.1", "mcoded.log.2"]);
        assert!(sizes.iter().all(|(_, size)| *size <= LOG_FILE_BYTES_MAX), "{sizes:?}");
        assert!(sizes.iter().map(|(_, size)| size).sum::<u64>() <= LOG_TOTAL_BYTES_MAX);
    }

    #[test]
    fn the_newest_lines_are_kept_in_order_and_long_ones_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcoded.log");
        let log = RotatingFile::open(&path, 20).unwrap();
        for number in 0..10 {
            (&log).write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("mcoded.log.2"), "line 4\nline 5\n");
        assert_eq!(read("mcoded.log.1"), "line 6\nline 7\n");
        assert_eq!(read("mcoded.log"), "line 8\nline 9\n");
        (&log).write_all(&b"y".repeat(LOG_LINE_BYTES_MAX + 5)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), LOG_LINE_BYTES_MAX as u64 + 1);
        // A file that was left full by the last daemon is rotated as well.
        let again = RotatingFile::open(&path, 20).unwrap();
        (&again).write_all(b"new\n").unwrap();
        assert_eq!(read("mcoded.log"), "new\n");
    }
}
