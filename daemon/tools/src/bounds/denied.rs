//! Deny rules on paths, held for whatever a command starts and for files under other names.

use std::path::{Path, PathBuf};

use mcode_permissions::access::{Access, Below, Unconfined};
use mcode_sandbox::{Denied, Policy, Strength};

use super::{Bounds, CallBounds};

impl CallBounds {
    /// Whether what deny rules name is out of the reach of such a call of this tool and of all it would start: the
    /// kernel holds it, so that the words of a command need not be searched for it. Blocking.
    #[must_use]
    pub fn shields(&self, tool: &str, accesses: &[Access]) -> bool {
        // What is written to a process reaches one that was started earlier, under other rules perhaps.
        let outside = Access::Unconfined(Unconfined::Command);
        tool == "shell" && !accesses.contains(&outside) && self.holds_all()
    }

    /// For a command under deny rules on paths that can not all be found, since there is too much: what it may reach then
    /// is not known, whatever its words. Blocking.
    #[must_use]
    pub fn unfound(&self) -> Option<Access> {
        let rules = &self.reach.denied;
        if (rules.view.is_empty() && rules.edit.is_empty()) || self.denied().left_out.is_empty() {
            return None;
        }
        Some(Access::Mentioned { path: self.reach.project_root.clone(), below: Below::Unknown, changes: true })
    }

    /// Whether the kernel holds all that deny rules name. Blocking.
    pub(super) fn holds_all(&self) -> bool {
        if !self.namespaces() || self.bounds.settings().enabled == Some(false) {
            return false;
        }
        let denied = self.denied();
        denied.left_out.is_empty() && !denied.elsewhere
    }

    /// The name that a deny rule knows this file by, when that is another. Blocking.
    #[must_use]
    pub fn original(&self, path: &Path) -> Option<PathBuf> {
        let rules = &self.reach.denied;
        if (rules.view.is_empty() && rules.edit.is_empty()) || !mcode_sandbox::denied::has_further_names(path) {
            return None;
        }
        self.denied().original(path).map(Path::to_path_buf)
    }

    /// What deny rules stand for at this moment. Blocking.
    pub(super) fn denied(&self) -> &Denied {
        self.denied.get_or_init(|| {
            let added = self.reach.add_dirs.iter().filter_map(|folder| folder.canonicalize().ok());
            let roots: Vec<PathBuf> = std::iter::once(self.reach.project_root.clone()).chain(added).collect();
            let rules = &self.reach.denied;
            Denied::of(&rules.view, &rules.edit, &roots, !self.namespaces())
        })
    }

    /// The same effects on the names that deny rules know, of files that have several.
    pub(super) fn by_other_names(&self, accesses: &[Access]) -> Vec<Access> {
        let other = |access: &Access| match access {
            Access::ReadPath(path) => self.original(path).map(Access::ReadPath),
            Access::EditPath(path) => self.original(path).map(Access::EditPath),
            Access::Mentioned { path, changes, .. } => {
                self.original(path).map(|path| Access::Mentioned { path, below: Below::Nothing, changes: *changes })
            }
            _ => None,
        };
        accesses.iter().filter_map(other).collect()
    }

    /// What of the deny rules this policy does not hold, and what holding them costs, one sentence each.
    pub(super) fn lacks(&self, policy: &Policy) -> Vec<String> {
        let denied = self.denied();
        let mut lacks: Vec<String> = denied
            .left_out
            .iter()
            .map(|why| format!("deny rules on paths are not wholly held for what a command starts: {why}"))
            .collect();
        if self.namespaces() {
            return lacks;
        }
        let in_writable = |paths: &[PathBuf]| {
            paths.iter().find(|path| policy.write.iter().any(|root| path.starts_with(root))).cloned()
        };
        if let Some(path) = in_writable(&denied.fixed).or_else(|| in_writable(&denied.hidden)) {
            lacks.push(format!(
                "deny rules on changing files are not held for what a command starts, only told afterwards (such as {}): \
                 that takes mount namespaces",
                path.display()
            ));
        }
        if let Some(path) = in_writable(&denied.hidden) {
            lacks.push(format!(
                "since a deny rule hides {}, a command can not read what it makes itself right in the folders above that; \
                 the next command can. With mount namespaces it could",
                path.display()
            ));
        }
        lacks
    }

    /// Where what commands planted goes.
    pub(crate) fn aside(&self) -> PathBuf {
        self.bounds.aside(self.thread)
    }

    /// What all calls have in common.
    pub(crate) fn of_all(&self) -> &Bounds {
        &self.bounds
    }

    fn namespaces(&self) -> bool {
        matches!(self.bounds.known_strength(), Some(Strength::Enforced { namespaces: true, .. }))
    }
}
