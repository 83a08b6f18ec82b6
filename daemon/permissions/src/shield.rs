//! What rules forbid, as plain data for whoever keeps it out of the reach of commands.

use std::path::{Path, PathBuf};

use crate::paths::Places;
use crate::rule::{RuleSet, Subject};

/// The files that deny rules are about: globs for absolute, resolved paths, in which `*` stays within a folder and `**`
/// does not. What fits `x` is meant with everything below it. A place that can not be looked at can not be changed
/// either, so everything in `view` is also in `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeniedPaths {
    /// Not to be read.
    pub view: Vec<String>,
    /// Not to be created, changed or removed.
    pub edit: Vec<String>,
}

impl RuleSet {
    /// What the deny rules forbid in a run of this project.
    #[must_use]
    pub fn denied_paths(&self, project_root: &Path, extra_dirs: &[PathBuf], home: Option<&Path>) -> DeniedPaths {
        let places = Places { project_root, extra_dirs, home };
        let mut denied = DeniedPaths::default();
        for rule in &self.deny {
            let reading = matches!(rule.subject, Subject::View | Subject::Read);
            let everything = matches!(rule.subject, Subject::Edit) && rule.pattern.is_none();
            let named = rule.path_pattern().and_then(|pattern| pattern.absolute_glob(&places));
            let Some(glob) = named.or_else(|| everything.then(|| "/**".to_owned())) else { continue };
            if reading && !denied.view.contains(&glob) {
                denied.view.push(glob.clone());
            }
            if !denied.edit.contains(&glob) {
                denied.edit.push(glob);
            }
        }
        denied
    }
}
