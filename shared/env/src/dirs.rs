//! Where mcode keeps its files.
//!
//! `MCODE_HOME=<dir>` puts everything under `<dir>/{config,data,state,run}`; otherwise the platform's own places
//! (on Linux the XDG base directories).

use std::path::{Path, PathBuf};

/// The four places, none of them created by asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// What the user writes: `config.toml`, commands, skills.
    pub config: PathBuf,
    /// What must not be lost: the database, blobs, plans.
    pub data: PathBuf,
    /// What may be lost: logs, locks.
    pub state: PathBuf,
    /// Where sockets go, when the system has such a place.
    pub runtime: Option<PathBuf>,
}

/// No place for mcode's files could be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirsError {
    /// Neither a home directory nor an override is known.
    #[error("no home directory is known: HOME is not set and the user has no entry in the user database")]
    NoHome,
    /// The home directory is known but is not there.
    #[error("the home directory {} (from {variable}) does not exist", path.display())]
    HomeMissing {
        /// Where it should be.
        path: PathBuf,
        /// What names it.
        variable: &'static str,
    },
    /// A path that has to be absolute is not.
    #[error("{variable} is '{value}', which is not an absolute path")]
    NotAbsolute {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
}

impl DirsError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoHome | Self::HomeMissing { .. } => "set HOME, or MCODE_HOME to a folder that mcode may use",
            Self::NotAbsolute { .. } => "give the full path, from the root",
        }
    }
}

impl Dirs {
    /// The places for this process, from its environment.
    pub fn from_env() -> Result<Self, DirsError> {
        if let Some(home) = crate::process::var("MCODE_HOME") {
            let root = absolute("MCODE_HOME", home)?;
            return Ok(Self::under(&root));
        }
        Self::platform()
    }

    /// The places under one root folder.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        Self {
            config: root.join("config"),
            data: root.join("data"),
            state: root.join("state"),
            runtime: Some(root.join("run")),
        }
    }

    #[cfg(target_os = "linux")]
    fn platform() -> Result<Self, DirsError> {
        let place = |variable: &'static str, fallback: &str| match crate::process::var(variable) {
            Some(value) => absolute(variable, value).map(|dir| dir.join("mcode")),
            None => home().map(|home| home.join(fallback).join("mcode")),
        };
        Ok(Self {
            config: place("XDG_CONFIG_HOME", ".config")?,
            data: place("XDG_DATA_HOME", ".local/share")?,
            state: place("XDG_STATE_HOME", ".local/state")?,
            runtime: match crate::process::var("XDG_RUNTIME_DIR") {
                Some(value) => Some(absolute("XDG_RUNTIME_DIR", value)?.join("mcode")),
                None => None,
            },
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn platform() -> Result<Self, DirsError> {
        let dirs = directories::ProjectDirs::from("dev", "", "mcode").ok_or(DirsError::NoHome)?;
        Ok(Self {
            config: dirs.config_dir().to_path_buf(),
            data: dirs.data_local_dir().to_path_buf(),
            state: dirs.data_local_dir().join("state"),
            runtime: None,
        })
    }

    /// The environment variable that decides where `place` (one of these directories) is, for messages.
    #[must_use]
    pub fn variable(&self, place: &Path) -> &'static str {
        if crate::process::var("MCODE_HOME").is_some() {
            return "MCODE_HOME";
        }
        let given = |variable: &'static str| crate::process::var(variable).map(|_| variable);
        let named = if !cfg!(target_os = "linux") {
            None
        } else if place == self.config {
            given("XDG_CONFIG_HOME")
        } else if place == self.data {
            given("XDG_DATA_HOME")
        } else if place == self.state {
            given("XDG_STATE_HOME")
        } else {
            given("XDG_RUNTIME_DIR")
        };
        named.unwrap_or(if cfg!(windows) { "APPDATA" } else { "HOME" })
    }

    /// The database of threads.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.data.join("mcode.db")
    }

    /// Large bodies, by their hash.
    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.data.join("blobs")
    }

    /// The user's configuration file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The daemon's log.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.state.join("mcoded.log")
    }
}

/// Where the machine's own configuration is: written by whoever runs the machine, and in force for every user.
#[must_use]
pub fn managed_file() -> PathBuf {
    let place = if cfg!(windows) {
        r"C:\ProgramData\mcode\config.toml"
    } else if cfg!(target_os = "macos") {
        "/Library/Application Support/mcode/config.toml"
    } else {
        "/etc/mcode/config.toml"
    };
    PathBuf::from(place)
}

/// A further file of that kind (`MCODE_MANAGED`), read beside the machine's own, never in its place.
#[must_use]
pub fn further_managed_file() -> Option<PathBuf> {
    crate::process::var("MCODE_MANAGED").map(PathBuf::from)
}

/// The home directory, which has to be there: it is not for mcode to make one.
#[cfg(target_os = "linux")]
fn home() -> Result<PathBuf, DirsError> {
    let dirs = directories::BaseDirs::new().ok_or(DirsError::NoHome)?;
    let path = dirs.home_dir().to_path_buf();
    let variable = if crate::process::var("HOME").is_some() { "HOME" } else { "the user database" };
    if !path.is_absolute() {
        return Err(DirsError::NotAbsolute { variable, value: path.to_string_lossy().into_owned() });
    }
    if path.is_dir() { Ok(path) } else { Err(DirsError::HomeMissing { path, variable }) }
}

fn absolute(variable: &'static str, value: String) -> Result<PathBuf, DirsError> {
    let path = PathBuf::from(&value);
    if path.is_absolute() { Ok(path) } else { Err(DirsError::NotAbsolute { variable, value }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_root_holds_all_four() {
        let dirs = Dirs::under(Path::new("/x"));
        assert_eq!(dirs.config_file(), Path::new("/x/config/config.toml"));
        assert_eq!(dirs.database(), Path::new("/x/data/mcode.db"));
        assert_eq!(dirs.log_file(), Path::new("/x/state/mcoded.log"));
        assert_eq!(dirs.runtime.as_deref(), Some(Path::new("/x/run")));
    }

    #[test]
    fn relative_overrides_are_refused_by_name() {
        let error = absolute("MCODE_HOME", "here".into()).unwrap_err();
        assert_eq!(error.to_string(), "MCODE_HOME is 'here', which is not an absolute path");
    }
}
