//! What a command may touch: plain data, the same on every OS.
//!
//! [`crate::layout`] makes a policy from a project and the user's settings; [`crate::confine`] has the kernel hold it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::git::{Repositories, make_fixable, obeyed};
use crate::git_config;

/// Whether a command may use the network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Network {
    /// As the user himself.
    #[default]
    Allow,
    /// Nothing but Unix sockets and, where a network namespace can be had, a loopback of the command's own.
    Deny,
    /// As [`Network::Deny`], and where a network namespace can be had, the proxy that listens on this Unix socket is
    /// found on that loopback, at [`PROXY_PORT`].
    Proxy(PathBuf),
}

/// Where a command finds the proxy, on its own loopback.
pub const PROXY_PORT: u16 = 3128;

/// Most processes and threads of one command.
pub const PROCESSES_MAX: u32 = 4096;
/// The same where the kernel only counts all processes of a user together.
pub const PROCESSES_OF_USER_MAX: u32 = 16_384;
/// Least size that a file of a command may have, in bytes, however full the disk is.
pub const FILE_BYTES_MIN: u64 = 1 << 30;
/// Most bytes that a command may keep in shared memory, where it has one of its own.
pub const SHARED_BYTES_MAX: u64 = 1 << 30;

/// How much a command may take, with everything it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Processes and threads. Held for the command alone by a cgroup or, for users other than root, by a user
    /// namespace; else, for users other than root, for all of the user's processes together at
    /// [`PROCESSES_OF_USER_MAX`].
    pub processes: u32,
    /// Bytes of any one file. The sum of all files is not held.
    pub file_bytes: u64,
    /// Bytes of memory of all its processes together, where a control group can hold that.
    #[serde(default = "without_limit")]
    pub memory_bytes: u64,
}

const fn without_limit() -> u64 {
    u64::MAX
}

impl Default for Quotas {
    fn default() -> Self {
        Self { processes: PROCESSES_MAX, file_bytes: u64::MAX, memory_bytes: u64::MAX }
    }
}

impl Quotas {
    /// What fits this machine, for a command with its temporary files in this folder.
    pub(crate) fn here(temp: &Path) -> Self {
        Self { file_bytes: file_bytes(temp), memory_bytes: memory_bytes(), ..Self::default() }
    }
}

/// One file may take half of what is free.
#[cfg(unix)]
fn file_bytes(folder: &Path) -> u64 {
    let free = rustix::fs::statvfs(folder).map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
    (free / 2).max(FILE_BYTES_MIN)
}

#[cfg(not(unix))]
fn file_bytes(_folder: &Path) -> u64 {
    u64::MAX
}

/// A command may take three quarters of the machine's memory: what is left keeps the user's other programs going.
#[cfg(target_os = "linux")]
#[allow(clippy::useless_conversion, reason = "a machine word, of 32 bits on some")]
fn memory_bytes() -> u64 {
    let found = rustix::system::sysinfo();
    u64::from(found.totalram).saturating_mul(found.mem_unit.into()) / 4 * 3
}

#[cfg(not(target_os = "linux"))]
fn memory_bytes() -> u64 {
    u64::MAX
}

/// What a command, and everything it starts, may touch. All paths are absolute and without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// Files and folders that may be written, with all below them; nothing else may.
    pub write: Vec<PathBuf>,
    /// Files and folders that may not be read, though the rest of the machine may.
    pub hidden: Vec<PathBuf>,
    /// Files that may be read though they are below a hidden folder.
    pub shown: Vec<PathBuf>,
    /// Files and folders that may not be written though they are below a writable folder.
    pub fixed: Vec<PathBuf>,
    /// Files and folders whose folders above, below a writable one, may not be moved.
    pub pinned: Vec<PathBuf>,
    /// Files and folders that are not there yet, or are links, and that would run or be obeyed outside if they were made
    /// or replaced; not held, but told (see [`crate::watch`]).
    pub absent: Vec<PathBuf>,
    /// The folders that are worked in, of `write`: those searched for repositories.
    pub projects: Vec<PathBuf>,
    /// Unix sockets, or folders of such, that may not be reached.
    pub sockets: Vec<PathBuf>,
    /// The network.
    pub network: Network,
    /// The folder for temporary files, one of `write`; the command's `TMPDIR`.
    pub temp: PathBuf,
    /// How much it may take.
    pub quotas: Quotas,
    /// Does without mount namespaces even where they can be had: what is fixed, sockets, modes and owners are then not
    /// held. For tests of what the rest holds.
    pub without_namespaces: bool,
}

impl Policy {
    /// Whether this path, absolute and resolved, is below a writable folder and neither fixed nor hidden.
    #[must_use]
    pub fn may_write(&self, path: &Path) -> bool {
        within(path, &self.write) && !within(path, &self.fixed) && self.may_read(path)
    }

    /// Whether this path, absolute and resolved, is not hidden.
    #[must_use]
    pub fn may_read(&self, path: &Path) -> bool {
        within(path, &self.shown) || !within(path, &self.hidden)
    }

    /// The same without any folder to write but the one for temporary files.
    #[must_use]
    pub fn looking_only(mut self) -> Self {
        self.write = vec![self.temp.clone()];
        self.fixed.clear();
        self
    }

    /// Fixes what git obeys in the repositories below the folders that are worked in. Looks at the disk, within bounds,
    /// and makes a missing folder for hooks.
    #[must_use]
    pub fn with_repositories(self) -> Self {
        let found = Repositories::below(&self.projects);
        self.with(&found)
    }

    /// The same for the repositories that were found.
    pub(crate) fn with(mut self, found: &Repositories) -> Self {
        if !found.complete {
            tracing::debug!(folders = ?self.projects, "too much to search all of it for repositories");
        }
        for folder in &found.folders {
            make_fixable(folder);
            self.fixed.extend(obeyed(folder, &self.write));
            self.absent.extend(git_config::obeyed(folder, &self.write).absent);
        }
        self.fixed.extend(found.pointers.iter().filter(|pointer| !pointer.is_symlink()).cloned());
        self.fixed.sort();
        self.fixed.dedup();
        self
    }

    /// Variables by which programs find the proxy; none where there is no proxy.
    #[must_use]
    pub fn proxy_env(&self) -> Vec<(&'static str, String)> {
        if !matches!(self.network, Network::Proxy(_)) {
            return Vec::new();
        }
        let (http, socks) = (format!("http://127.0.0.1:{PROXY_PORT}"), format!("socks5h://127.0.0.1:{PROXY_PORT}"));
        let of_http = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name, http.clone()));
        let of_all = ["ALL_PROXY", "all_proxy"].map(|name| (name, socks.clone()));
        let none = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
        of_http.into_iter().chain(of_all).chain(none).collect()
    }

    /// One line about what is held, for a model whose command may have failed because of it. `shown_max` writable
    /// folders are named, the project's first.
    #[must_use]
    pub fn summary(&self, shown_max: usize) -> String {
        let mut named: Vec<String> = self.write.iter().take(shown_max).map(|path| path.display().to_string()).collect();
        if self.write.len() > shown_max {
            named.push("some caches".to_owned());
        }
        let network = match self.network {
            Network::Allow => "",
            Network::Deny => "; the network is off",
            Network::Proxy(_) => "; of the network, only the hosts that the user has listed can be reached",
        };
        let fixed = if self.fixed.is_empty() { "" } else { " (not .git/hooks, .git/config and .mcode in them)" };
        format!("writable: {}{fixed}; temporary files go to $TMPDIR{network}", named.join(", "))
    }
}

/// Whether `path` is one of `roots` or below one.
pub(crate) fn within(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

/// Whether one of `paths` is below `folder`, or is it.
#[cfg(target_os = "linux")]
pub(crate) fn holds(folder: &Path, paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fixed_is_not_writable_though_its_folder_is() {
        let policy = Policy {
            write: vec!["/w".into(), "/cache".into()],
            fixed: vec!["/w/.git/hooks".into()],
            temp: "/t".into(),
            ..Policy::default()
        };
        for (path, wanted) in [("/w/a", true), ("/wx", false), ("/w/.git/hooks/pre-commit", false), ("/w/.git/x", true)]
        {
            assert_eq!(policy.may_write(Path::new(path)), wanted, "{path}");
        }
        let summary = policy.summary(1);
        assert!(summary.contains("/w, some caches") && summary.contains("$TMPDIR"), "{summary}");
        assert!(!summary.contains("network"), "{summary}");
    }
}
