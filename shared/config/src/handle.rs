//! The configuration in force, shared by everything in the daemon.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;

use mcode_env::{Dirs, further_managed_file, managed_file};

use crate::check::{self, Findings};
use crate::edit::{ConfigEdit, EditError};
use crate::effective::{Effective, PackEntry, RuleSource};
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
    seen: Vec<Seen>,
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
    managed: Arc<[Managed]>,
    state: Arc<RwLock<State>>,
}

/// A file of whoever runs the machine: its permissions come before the user's, and nobody loosens them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// The file.
    pub file: PathBuf,
    /// It was asked for by name, so that it has to be there.
    pub named: bool,
}

impl ConfigHandle {
    /// Reads the user's file. A file that is not there is an empty one; a broken one leaves the defaults in force, and
    /// [`ConfigHandle::errors`] says so.
    #[must_use]
    pub fn open(dirs: &Dirs) -> Self {
        let further = further_managed_file().map(|file| Managed { file, named: true });
        let managed = std::iter::once(Managed { file: managed_file(), named: false }).chain(further);
        Self::open_managed(dirs, managed.collect())
    }

    /// The same, with these files of the machine in place of its own.
    #[must_use]
    pub fn open_managed(dirs: &Dirs, managed: Vec<Managed>) -> Self {
        let handle = Self { file: dirs.config_file(), managed: managed.into(), state: Arc::default() };
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
        if state().seen != self.seen() {
            // The faults stay in the state for whoever asks for them.
            drop(self.reload());
        }
        state()
    }

    /// How all files look now.
    fn seen(&self) -> Vec<Seen> {
        let managed = self.managed.iter().map(|managed| &managed.file);
        std::iter::once(&self.file).chain(managed).map(|file| Seen::of(file)).collect()
    }

    /// Reads the file again. When it is broken the values in force stay, and the faults are returned.
    #[must_use = "the faults are to be told"]
    pub fn reload(&self) -> Vec<ConfigError> {
        // Before the reading: a change in between is seen by the next look.
        let seen = self.seen();
        let read = self.read_all();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok((effective, origins, warnings)) => {
                let (effective, errors) = (Arc::new(effective), Vec::new());
                *state = State { effective, origins, errors, warnings, read_once: true, seen };
            }
            Err(errors) => {
                state.errors = errors;
                state.seen = seen;
            }
        }
        state.errors.clone()
    }

    /// Changes the user's file and reads it again, one change after the other, also beside those of other processes; gives
    /// what the change gave and the faults of the file then. Blocks while somebody else changes the file.
    ///
    /// # Errors
    /// What opening the file or the change says; nothing is read again then.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut ConfigEdit) -> Result<T, EditError>,
    ) -> Result<(T, Vec<ConfigError>), EditError> {
        let mut edit = ConfigEdit::open(&self.file)?;
        let done = change(&mut edit)?;
        Ok((done, self.reload()))
    }

    /// The user's file and those of the machine, as one.
    fn read_all(&self) -> Result<(Effective, Vec<Origin>, Vec<ConfigError>), Vec<ConfigError>> {
        let (mut effective, found) = read(&self.file, false)?;
        let mut origins = origins(&self.file, found.values);
        let mut warnings = found.warnings;
        let mut rules = crate::effective::PermissionRules::default();
        let mut tests = Vec::new();
        for Managed { file, named } in self.managed.iter() {
            let (managed, found) = read(file, *named)?;
            for (key, _, line) in &found.values {
                if !key.starts_with("permissions") && key != "approve" {
                    let message = "only permissions and approve are taken from a file of the machine".to_owned();
                    warnings.push(ConfigError { file: file.clone(), line: *line, key: key.clone(), message });
                }
            }
            warnings.extend(found.warnings);
            rules.extend(managed.permissions.from_source(RuleSource::Managed));
            tests.extend(managed.permission_tests);
            effective.approve_at_most = stricter(effective.approve_at_most, managed.approve);
            let taken = |origin: &Origin| origin.key.starts_with("permissions") || origin.key == "approve";
            origins.extend(self::origins(file, found.values).into_iter().filter(taken));
        }
        rules.extend(std::mem::take(&mut effective.permissions));
        effective.permissions = rules;
        tests.append(&mut effective.permission_tests);
        effective.permission_tests = tests;
        Ok((effective, origins, warnings))
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
    match mcode_env::files::read_text_bounded(file, CONFIG_BYTES_MAX) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(fault(format!("the file cannot be read: {error}"))),
    }
}

fn origins(file: &Path, values: Vec<(String, String, usize)>) -> Vec<Origin> {
    values.into_iter().map(|(key, value, line)| Origin { key, value, file: file.to_path_buf(), line }).collect()
}

/// The stricter of two words for what is done about calls that would be asked.
pub(crate) fn stricter(one: Option<String>, other: Option<String>) -> Option<String> {
    let strictness = |word: &Option<String>| match word.as_deref() {
        Some("deny") => 2,
        Some("ask") => 1,
        _ => 0,
    };
    if strictness(&other) > strictness(&one) { other } else { one }
}

/// Reads one file. With `required`, one that is not there is a fault.
pub(crate) fn read(file: &Path, required: bool) -> Result<(Effective, Findings), Vec<ConfigError>> {
    if required && !file.exists() {
        let message = "the file is not there".to_owned();
        return Err(vec![ConfigError { file: file.to_path_buf(), line: 0, key: String::new(), message }]);
    }
    let text = read_text(file).map_err(|error| vec![error])?;
    parse(file, &text)
}

/// Reads the text of a file.
pub(crate) fn parse(file: &Path, text: &str) -> Result<(Effective, Findings), Vec<ConfigError>> {
    let found = check::check(file, text);
    if !found.errors.is_empty() {
        return Err(found.errors);
    }
    match toml::from_str::<LowConfig>(text) {
        Ok(low) => Ok((low.into_effective(file, text), found)),
        Err(error) => {
            let line =
                error.span().map_or(0, |span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
            let message = error.message().to_owned();
            Err(vec![ConfigError { file: file.to_path_buf(), line, key: String::new(), message }])
        }
    }
}

/// The packs of a text that holds nothing else, such as one that somebody passed on.
///
/// # Errors
/// What is wrong with it, with line and key; another key is wrong, too.
pub fn parse_packs(file: &Path, text: &str) -> Result<BTreeMap<String, PackEntry>, ConfigError> {
    let fault = |line, key: &str, message: &str| ConfigError {
        file: file.to_path_buf(),
        line,
        key: key.to_owned(),
        message: message.to_owned(),
    };
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(fault(0, "", &format!("the file has more than {CONFIG_BYTES_MAX} bytes")));
    }
    let (effective, found) = parse(file, text).map_err(|mut errors| errors.swap_remove(0))?;
    if let Some((key, _, line)) = found.values.iter().find(|(key, _, _)| !key.starts_with("packs.")) {
        return Err(fault(*line, key, "a file with packs may hold nothing else"));
    }
    match found.warnings.into_iter().next() {
        Some(warning) => Err(warning),
        None if effective.packs.is_empty() => Err(fault(0, "", "there is no [packs.NAME] in it")),
        None => Ok(effective.packs),
    }
}
