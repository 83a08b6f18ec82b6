//! The configuration in force, shared by everything in the daemon.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;

use mcode_env::Dirs;

use crate::check::{self, Findings};
use crate::effective::Effective;
use crate::error::ConfigError;
use crate::low::LowConfig;

/// Most bytes of a configuration file.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Dotted key.
    pub key: String,
    /// The value as TOML; a secret is masked.
    pub value: String,
    /// The file.
    pub file: PathBuf,
    /// Line in the file, from 1.
    pub line: usize,
}

#[derive(Debug, Default)]
struct State {
    effective: Arc<Effective>,
    origins: Vec<Origin>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
    read_once: bool,
    seen: Seen,
}

/// How a file looked from outside when it was read: a change of it is seen by comparing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Seen {
    fn of(file: &Path) -> Self {
        file.metadata()
            .map_or_else(|_| Self::default(), |found| Self { modified: found.modified().ok(), bytes: found.len() })
    }
}

/// The configuration in force. Clones are the same one. A file that somebody changed is read again before the next
/// answer, so that nobody has to tell the daemon about an edit.
#[derive(Debug, Clone)]
pub struct ConfigHandle {
    file: PathBuf,
    state: Arc<RwLock<State>>,
}

impl ConfigHandle {
    /// Reads the user's file. A file that is not there is an empty one; a broken one leaves the defaults in force, and
    /// [`ConfigHandle::errors`] says so.
    #[must_use]
    pub fn open(dirs: &Dirs) -> Self {
        let handle = Self { file: dirs.config_file(), state: Arc::default() };
        drop(handle.reload());
        handle
    }

    /// The values in force. Later reloads do not change what was handed out.
    #[must_use]
    pub fn current(&self) -> Arc<Effective> {
        Arc::clone(&self.looked_at().effective)
    }

    /// What was last read, after a look whether it still is what the file says.
    fn looked_at(&self) -> RwLockReadGuard<'_, State> {
        let state = || self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state().seen != Seen::of(&self.file) {
            // The faults stay in the state for whoever asks for them.
            drop(self.reload());
        }
        state()
    }

    /// Reads the file again. When it is broken the values in force stay, and the faults are returned.
    #[must_use = "the faults are to be told"]
    pub fn reload(&self) -> Vec<ConfigError> {
        // Before the reading: a change in between is seen by the next look.
        let seen = Seen::of(&self.file);
        let read = read(&self.file);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok((effective, found)) => {
                let origin = |(key, value, line)| Origin { key, value, file: self.file.clone(), line };
                *state = State {
                    effective: Arc::new(effective),
                    origins: found.values.into_iter().map(origin).collect(),
                    errors: Vec::new(),
                    warnings: found.warnings,
                    read_once: true,
                    seen,
                };
            }
            Err(errors) => {
                state.errors = errors;
                state.seen = seen;
            }
        }
        state.errors.clone()
    }

    /// Faults of the last reading; while there are any, older values are in force.
    #[must_use]
    pub fn errors(&self) -> Vec<ConfigError> {
        self.looked_at().errors.clone()
    }

    /// The faults that leave nothing good in force: the file has been broken since the start, so the user's own rules
    /// are not known and no work should begin.
    #[must_use]
    pub fn blocking_errors(&self) -> Vec<ConfigError> {
        let state = self.looked_at();
        if state.read_once { Vec::new() } else { state.errors.clone() }
    }

    /// Keys that nobody knows and other things that are unwise, in the values in force.
    #[must_use]
    pub fn warnings(&self) -> Vec<ConfigError> {
        self.looked_at().warnings.clone()
    }

    /// Where the value of `key`, and of all keys below it, comes from; the empty key means all. Nothing is returned for
    /// a key that no file sets.
    #[must_use]
    pub fn explain(&self, key: &str) -> Vec<Origin> {
        let state = self.looked_at();
        let below = |candidate: &str| match candidate.strip_prefix(key) {
            Some(rest) => key.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        };
        state.origins.iter().filter(|origin| below(&origin.key)).cloned().collect()
    }

    /// The file that is read.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// The text of a configuration file; one that is not there is empty.
pub(crate) fn read_text(file: &Path) -> Result<String, ConfigError> {
    let fault = |message: String| ConfigError { file: file.to_path_buf(), line: 0, key: String::new(), message };
    let mut text = String::new();
    match File::open(file).and_then(|open| open.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text)) {
        Ok(length) if length as u64 > CONFIG_BYTES_MAX => {
            Err(fault(format!("the file has more than {CONFIG_BYTES_MAX} bytes")))
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(fault(format!("the file cannot be read: {error}"))),
    }
}

fn read(file: &Path) -> Result<(Effective, Findings), Vec<ConfigError>> {
    let text = read_text(file).map_err(|error| vec![error])?;
    let found = check::check(file, &text);
    if !found.errors.is_empty() {
        return Err(found.errors);
    }
    match toml::from_str::<LowConfig>(&text) {
        Ok(low) => Ok((low.into_effective(file, &text), found)),
        Err(error) => {
            let line =
                error.span().map_or(0, |span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
            let message = error.message().to_owned();
            Err(vec![ConfigError { file: file.to_path_buf(), line, key: String::new(), message }])
        }
    }
}
