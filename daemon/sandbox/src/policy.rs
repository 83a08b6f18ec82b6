//! What a command may touch: plain data, the same on every OS.
//!
//! [`crate::layout`] makes a policy from a project and the user's settings; [`crate::confine`] has the kernel hold it.

use std::path::{Path, PathBuf};

/// Whether a command may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// As the user himself.
    #[default]
    Allow,
    /// No sockets but those of this machine's own processes (Unix sockets).
    Deny,
}

/// What a command, and everything it starts, may touch. All paths are absolute and without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Files and folders that may be written, with all below them; nothing else may.
    pub write: Vec<PathBuf>,
    /// Files and folders that may not be read, though the rest of the machine may.
    pub hidden: Vec<PathBuf>,
    /// Files that may be read though they are below a hidden folder.
    pub shown: Vec<PathBuf>,
    /// Files and folders that may not be written though they are below a writable folder.
    pub fixed: Vec<PathBuf>,
    /// Unix sockets, or folders of such, that may not be reached.
    pub sockets: Vec<PathBuf>,
    /// The network.
    pub network: Network,
    /// The folder for temporary files, one of `write`; the command's `TMPDIR`.
    pub temp: PathBuf,
    /// Does without mount namespaces even where they can be had: what is fixed, sockets, modes and owners are then not
    /// held. For tests of what the rest holds.
    pub without_namespaces: bool,
}

impl Policy {
    /// Whether this path, absolute and resolved, is below a writable folder and not fixed.
    #[must_use]
    pub fn may_write(&self, path: &Path) -> bool {
        within(path, &self.write) && !within(path, &self.fixed)
    }

    /// One line about what is held, for a model whose command may have failed because of it. `shown_max` writable
    /// folders are named, the project's first.
    #[must_use]
    pub fn summary(&self, shown_max: usize) -> String {
        let mut named: Vec<String> = self.write.iter().take(shown_max).map(|path| path.display().to_string()).collect();
        if self.write.len() > shown_max {
            named.push("some caches".to_owned());
        }
        let network = if self.network == Network::Deny { "; the network is off" } else { "" };
        let fixed = if self.fixed.is_empty() { "" } else { " (not .git/hooks, .git/config and .mcode in them)" };
        format!("writable are {}{fixed}; temporary files go to $TMPDIR{network}", named.join(", "))
    }
}

/// Whether `path` is one of `roots` or below one.
pub(crate) fn within(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

/// Whether one of `paths` is below `folder`, or is it.
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
        for (path, wanted) in [("/w/a", true), ("/wx", false), ("/w/.git/hooks/pre-commit", false), ("/w/.git/x", true)] {
            assert_eq!(policy.may_write(Path::new(path)), wanted, "{path}");
        }
        let summary = policy.summary(1);
        assert!(summary.contains("/w, some caches") && summary.contains("$TMPDIR"), "{summary}");
        assert!(!summary.contains("network"), "{summary}");
    }
}
