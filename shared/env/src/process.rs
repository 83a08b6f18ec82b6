//! What a process was started with: environment, working directory, executable, user.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// One environment variable as text; `None` when unset, empty or not UTF-8.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The whole environment, less what is not UTF-8.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn vars() -> BTreeMap<String, String> {
    std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Whether `MCODE_DISABLE` names this part: `memory`, `mcp`, `hooks`, `update`, `keyring` or `titles`.
#[must_use]
pub fn disabled(part: &str) -> bool {
    var("MCODE_DISABLE").is_some_and(|parts| parts.split(',').any(|named| named.trim() == part))
}

/// The working directory of this process.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the working directory")]
pub fn current_dir() -> io::Result<PathBuf> {
    std::env::current_dir()
}

/// The path of this executable as it was started, without the mark that Linux adds once the file was replaced.
#[allow(clippy::disallowed_methods, reason = "this is the one place that asks for the executable")]
pub fn current_exe() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from))
}

/// The number of the user this process runs as.
#[cfg(unix)]
#[must_use]
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}
