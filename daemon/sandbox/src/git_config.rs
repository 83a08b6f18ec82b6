//! What a repository's settings name: programs, folders of hooks, and further settings.

use std::path::{Path, PathBuf};

use mcode_git::{Setting, leads, runs, settings};

use crate::git::text;
use crate::policy::within;

/// Most files of further settings that are read for one repository.
const INCLUDED_MAX: usize = 16;
/// Most paths that the settings of one repository name.
const NAMED_MAX: usize = 256;

/// What the settings of a repository name in folders that may be written: what is there, and what is not yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Obeyed {
    /// Files and folders, resolved.
    pub(crate) there: Vec<PathBuf>,
    /// Where they would be.
    pub(crate) absent: Vec<PathBuf>,
}

/// Whether the value is run, or leads to what is obeyed.
pub(crate) fn is_obeyed(setting: &Setting) -> bool {
    runs(setting) || leads(setting)
}

/// What the settings of the repository in `folder` name. Looks at the disk, within bounds.
pub(crate) fn obeyed(folder: &Path, writable: &[PathBuf]) -> Obeyed {
    let mut found = Obeyed::default();
    let mut waiting: Vec<PathBuf> = ["config", "config.worktree"].map(|name| folder.join(name)).to_vec();
    let mut bases: Vec<PathBuf> = folder.parent().map(Path::to_path_buf).into_iter().collect();
    bases.extend(writable.iter().cloned());
    let mut read = 0;
    while let Some(file) = waiting.pop() {
        let Some(text) = text(&file).filter(|_| read < INCLUDED_MAX) else { continue };
        read += 1;
        for setting in settings(&text).into_iter().filter(is_obeyed) {
            let value = setting.value.as_str();
            if setting.section.starts_with("include") {
                let included = file.parent().unwrap_or(folder).join(value);
                if found.name(included.clone(), writable, true) {
                    waiting.push(included);
                }
            } else if setting.is("core", "hookspath") || setting.is("init", "templatedir") {
                let places: Vec<PathBuf> = bases.iter().map(|base| base.join(value)).collect();
                let there = places.iter().any(|place| place.exists());
                // Git counts from the work tree, which is not known here for sure.
                for place in places.into_iter().filter(|place| !there || place.exists()) {
                    found.name(place, writable, true);
                }
            } else {
                let words =
                    value.trim_start_matches('!').split(|char: char| char.is_whitespace() || "'\";|&()".contains(char));
                for word in words.filter(|word| !word.is_empty()) {
                    for place in bases.iter().map(|base| base.join(word)).filter(|place| place.is_file()) {
                        found.name(place, writable, false);
                    }
                }
            }
        }
    }
    found
}

impl Obeyed {
    /// Notes a path, if it lies where commands may write; whether it is there.
    fn name(&mut self, path: PathBuf, writable: &[PathBuf], also_absent: bool) -> bool {
        if self.there.len() + self.absent.len() >= NAMED_MAX {
            return false;
        }
        // A project as a whole is not fixed, whatever its settings name.
        let inside = |path: &PathBuf| within(path, writable) && !writable.iter().any(|root| root.starts_with(path));
        match path.canonicalize() {
            Ok(resolved) if inside(&resolved) => {
                if !self.there.contains(&resolved) {
                    self.there.push(resolved);
                }
                true
            }
            Err(_) if also_absent => {
                let above = path.parent().and_then(|above| above.canonicalize().ok());
                let resolved = above.zip(path.file_name()).map(|(above, name)| above.join(name));
                self.absent.extend(resolved.filter(|path| inside(path) && !self.absent.contains(path)));
                false
            }
            _ => false,
        }
    }
}

/// Whether a repository has settings for each of its work trees.
pub(crate) fn has_worktree_settings(folder: &Path) -> bool {
    let on = |setting: &Setting| setting.is("extensions", "worktreeconfig") && setting.is_on();
    text(&folder.join("config")).is_some_and(|text| settings(&text).iter().any(on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_settings_name_in_the_project_is_found() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        for name in ["p/.git/x", "p/.hooks/pre-push", "p/tools/clean.sh", "p/more", "p/src/main", "out/x"] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let (project, git) = (root.join("p"), root.join("p/.git"));
        std::fs::write(
            git.join("config"),
            "[core]\nhooksPath = .hooks\nfsmonitor = true\n[include]\npath = ../more\npath = ../later\npath = ../../out/x\n",
        )
        .unwrap();
        std::fs::write(project.join("more"), "[filter \"x\"]\nclean = sh ./tools/clean.sh %f\n").unwrap();
        let found = obeyed(&git, std::slice::from_ref(&project));
        let mut there = found.there;
        there.sort();
        assert_eq!(there, [".hooks", "more", "tools/clean.sh"].map(|name| project.join(name)));
        assert_eq!(found.absent, [project.join("later")]);
        std::fs::write(git.join("config"), "[core]\nhooksPath = .\n").unwrap();
        assert_eq!(obeyed(&git, std::slice::from_ref(&project)), Obeyed::default(), "the project as a whole");
    }
}
