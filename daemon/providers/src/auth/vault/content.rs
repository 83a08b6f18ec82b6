//! The content of `auth.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mcode_env::{IdGen as _, SystemIds};
use serde::{Deserialize, Serialize};

use super::{About, Tokens};

/// The form that this version writes.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The place where logins are kept does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VaultError {
    /// The file is not what we write.
    #[error("{} is damaged ({reason}); it is left as it is", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; quotes nothing of it.
        reason: String,
    },
    /// It would be a file that is not read again.
    #[error("{} has no room for one more login", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{} can not be used: {reason}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The keyring does not give it.
    #[error("the login of '{provider}' is kept in the system's keyring, which does not give it: {reason}")]
    Keyring {
        /// Whose.
        provider: String,
        /// Why.
        reason: String,
    },
}

impl VaultError {
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), reason: error.to_string() }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Damaged { path, .. } => {
                format!(
                    "Mend {0}, or move it away and log in again; keys of your environment work meanwhile.",
                    path.display()
                )
            }
            Self::Full { .. } => "Log out where you need no login any more: mcode logout PROVIDER".to_owned(),
            Self::Io { path, .. } => format!("Make {} readable and writable for your user.", path.display()),
            Self::Keyring { provider, .. } => {
                format!("Unlock the keyring, or log in again with: mcode login {provider}")
            }
        }
    }
}

/// A stored login; the secrets are missing where the keyring has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) about: About,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<Tokens>,
}

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Content {
    version: u32,
    /// Tells this file's secrets in the keyring from those of another one.
    keyring_id: String,
    pub(super) logins: BTreeMap<String, Entry>,
}

impl Content {
    fn empty() -> Self {
        let keyring_id = SystemIds.next().simple().to_string();
        Self { version: VERSION, keyring_id, logins: BTreeMap::new() }
    }

    /// The name of a login in the keyring.
    pub(super) fn user(&self, provider: &str) -> String {
        format!("login {provider} {}", self.keyring_id)
    }

    /// Reads the file; one that is not there is empty.
    pub(super) fn read(path: &Path) -> Result<Self, VaultError> {
        let damaged = |reason: &str| VaultError::Damaged { path: path.to_path_buf(), reason: reason.to_owned() };
        let bytes = match mcode_env::files::read_bounded(path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => return Ok(Self::empty()),
                io::ErrorKind::FileTooLarge => return Err(damaged("it is larger than any such file can be")),
                io::ErrorKind::InvalidInput => return Err(damaged(&error.to_string())),
                _ => return Err(VaultError::io(path, &error)),
            },
        };
        // Not the parser's words, which may quote what it read.
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_| damaged("it is not JSON"))?;
        if value.get("version").and_then(serde_json::Value::as_u64).is_some_and(|version| version > VERSION.into()) {
            return Err(damaged("a newer version of mcode has written it"));
        }
        serde_json::from_value(value).map_err(|_| damaged("it is not a list of logins"))
    }

    /// Writes the file, readable for its user alone. What could not be read again is not written.
    pub(super) fn write(&self, path: &Path) -> Result<(), VaultError> {
        let failed = |error: io::Error| VaultError::io(path, &error);
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(VaultError::Full { path: path.to_path_buf() });
        }
        close_to_others(path).map_err(failed)?;
        mcode_env::files::write_atomic(path, &text).map_err(failed)
    }
}

/// An existing file keeps its mode when it is replaced, so that is set right first.
#[cfg(unix)]
fn close_to_others(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn close_to_others(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// How the file looks from outside: a change of it is seen by comparing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    modified: Option<SystemTime>,
    bytes: u64,
    /// Every save makes a new file.
    number: u64,
}

impl Seen {
    pub(super) fn of(path: &Path) -> Self {
        let Ok(found) = path.metadata() else { return Self::default() };
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(&found);
        #[cfg(not(unix))]
        let number = 0;
        Self { modified: found.modified().ok(), bytes: found.len(), number }
    }

    pub(super) fn is_there(&self) -> bool {
        *self != Self::default()
    }
}
