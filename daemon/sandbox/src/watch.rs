//! What a command changed of the things that would run outside its sandbox later.
//!
//! A repository that a command makes, a link that can not be fixed, or anything where there are no mount namespaces can
//! not be held beforehand. So a [`Watch`] is taken before a command and asked after it. What it finds is told; what was
//! certainly not there before can be moved aside ([`crate::aside`]). The user may have changed the same files meanwhile,
//! so nobody's work is undone. It can be kept as text, for a daemon that takes the command over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::git::{self, HOOKS, Repositories, SETTINGS, text};
use crate::git_config;
use crate::listing;
use crate::policy::{Policy, within};

/// Most files that are kept in mind.
const FILES_MAX: usize = 4096;
/// What git leaves as examples and never runs.
const EXAMPLE: &str = "sample";
/// Where mcode keeps what it obeys of a project, once that is trusted as it is.
const TRUSTED: &str = ".mcode";

/// Enough to see that a file is not the same any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    bytes: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
    number: u64,
}

/// How things were before a command.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Watch {
    roots: Vec<PathBuf>,
    named: Vec<PathBuf>,
    /// Of `named`: what was not there, or is a link.
    absent: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Mark>,
    /// The folders of repositories and of their hooks, by their numbers.
    folders: BTreeMap<PathBuf, u64>,
    /// Where the system tells when files were made.
    began: Option<SystemTime>,
    /// Whether everything was looked at.
    #[serde(default)]
    complete: bool,
}

/// What was found after a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// All changes, by path.
    pub found: Vec<Change>,
    /// Whether everything was looked at, as far as that could be done before the command.
    pub complete: bool,
}

/// A change that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// It was certainly not there before, and something obeys it: nobody misses it there.
    pub planted: bool,
}

impl Watch {
    /// Over a command that can write nothing that anything obeys.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Looks at everything of this kind below the folders that the policy's command works in.
    #[must_use]
    pub fn begin(policy: &Policy) -> Self {
        Self::among(policy, Repositories::below(&policy.projects))
    }

    /// [`Policy::with_repositories`] and [`Watch::begin`], with one search for both.
    #[must_use]
    pub fn over(policy: Policy) -> (Policy, Self) {
        let found = Repositories::below(&policy.projects);
        let policy = policy.with(&found);
        let watch = Self::among(&policy, found);
        (policy, watch)
    }

    fn among(policy: &Policy, repositories: Repositories) -> Self {
        let roots = policy.projects.clone();
        let below = roots.iter().map(|root| root.join(".git")).chain(policy.absent.iter().cloned());
        // What is fixed elsewhere, such as the repository of a work tree, may not be held everywhere.
        let hidden = policy.hidden.iter().filter(|path| within(path, &policy.write));
        let named = below.chain(policy.fixed.iter().cloned()).chain(hidden.cloned()).collect();
        let mut watch = Self {
            roots,
            named,
            absent: policy.absent.clone(),
            seen: BTreeMap::new(),
            folders: BTreeMap::new(),
            began: listing::shortly_before_now(),
            complete: false,
        };
        let hooks = repositories.folders.iter().map(|folder| folder.join(HOOKS));
        let folders = repositories.folders.iter().cloned().chain(hooks);
        watch.folders = folders.filter_map(|folder| Some((folder.clone(), number_of_folder(&folder)?))).collect();
        (watch.seen, watch.complete) = watch.look(repositories);
        watch
    }

    /// What is new or different, and is run or obeyed outside the sandbox. The bounded scan may miss what lies deep
    /// in a very large tree.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let (now, complete) = self.look(Repositories::below(&self.roots));
        // With its whole folder it is gone for good; alone, it was taken away.
        let removed = |path: &&PathBuf| !now.contains_key(*path) && path.parent().is_some_and(Path::is_dir);
        let mut told: Vec<PathBuf> = self.seen.keys().filter(removed).cloned().collect();
        let differs = now.iter().filter(|(path, mark)| match self.seen.get(*path) {
            Some(seen) => seen != *mark,
            None => self.runs_something(path),
        });
        told.extend(differs.map(|(path, _)| path.clone()));
        told.sort();
        let found = told.into_iter().map(|path| Change { planted: self.is_planted(&path), path }).collect();
        Changes { found, complete: complete || !self.complete }
    }

    /// Whether a file that is told was certainly not there before, and is obeyed where it lies.
    fn is_planted(&self, path: &Path) -> bool {
        let Ok(found) = path.symlink_metadata() else { return false };
        let trusted_first = path.components().any(|part| part.as_os_str() == TRUSTED);
        if self.seen.contains_key(path) || found.is_dir() || trusted_first {
            return false;
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return false;
        };
        // Its content came with the command: its folder is the one whose names were known, or it was made since.
        let known = self.folders.get(folder).is_some_and(|number| number_of_folder(folder) == Some(*number));
        let made = found.created().ok().zip(self.began).is_some_and(|(time, began)| time >= began);
        if !known && !made && !self.absent.iter().any(|absent| path == absent) {
            return false;
        }
        match name {
            // What it leads to is looked at by itself, if that lies where we look.
            ".git" => !git::leads_to(path).is_some_and(|folder| within(&folder, &self.roots)),
            "commondir" => {
                let named = text(path).and_then(|text| folder.join(text.trim()).canonicalize().ok());
                !named.is_some_and(|named| folder.starts_with(named.join("worktrees")))
            }
            _ if is_settings(path) => text(path).is_none_or(|text| runs(&text, false)),
            _ => true,
        }
    }

    /// Whether a file that was not there before is run or obeyed. The plain settings of a new repository are neither,
    /// nor is a further work tree of one that was there.
    fn runs_something(&self, path: &Path) -> bool {
        let known = |folder: &Path| self.seen.keys().any(|seen| seen.starts_with(folder));
        match path.file_name().and_then(|name| name.to_str()) {
            Some(".git") => !git::believed(path).is_some_and(|folder| known(&folder)),
            Some("commondir") => {
                let folder = path.parent().unwrap_or(path);
                let named = text(path).and_then(|text| folder.join(text.trim()).canonicalize().ok());
                !named.is_some_and(|named| folder.starts_with(named.join("worktrees")) && known(&named))
            }
            _ => names_a_program(path),
        }
    }

    /// How the files are now, and whether that is all of them.
    fn look(&self, repositories: Repositories) -> (BTreeMap<PathBuf, Mark>, bool) {
        let (mut files, mut complete) = (BTreeMap::new(), repositories.complete);
        let mut add = |path: PathBuf| {
            let Some(mark) = mark(&path) else { return };
            if files.len() < FILES_MAX {
                files.insert(path, mark);
            } else {
                complete = false;
            }
        };
        for folder in &repositories.folders {
            SETTINGS.iter().for_each(|name| add(folder.join(name)));
            git::worktrees(folder).into_iter().for_each(&mut add);
            let hooks = folder.join(HOOKS);
            if hooks.is_symlink() {
                add(hooks.clone());
            }
            below(&hooks.canonicalize().unwrap_or(hooks), &mut add);
        }
        repositories.pointers.into_iter().for_each(&mut add);
        for path in &self.named {
            match path.symlink_metadata() {
                Ok(kind) if kind.is_dir() && !path.ends_with(".git") => below(path, &mut add),
                Ok(kind) if !kind.is_dir() => add(path.clone()),
                _ => {}
            }
        }
        (files, complete)
    }
}

/// The files right in a folder.
fn below(folder: &Path, add: &mut dyn FnMut(PathBuf)) {
    // One more than is kept, so that the cut is noticed.
    for entry in folder.read_dir().into_iter().flatten().flatten().take(2 * FILES_MAX) {
        let path = entry.path();
        let example = path.extension().is_some_and(|ending| ending == EXAMPLE);
        if !example && !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add(path);
        }
    }
}

/// Whether the settings of a repository name a program or further settings.
fn names_a_program(path: &Path) -> bool {
    !is_settings(path) || text(path).is_none_or(|text| runs(&text, true))
}

/// Whether this is a file of settings in a repository.
fn is_settings(path: &Path) -> bool {
    let settings = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("config"));
    settings && path.parent().is_some_and(|folder| folder.join("HEAD").is_file())
}

/// Whether settings name what is run or obeyed; with `elsewhere`, also another work tree.
fn runs(text: &str, elsewhere: bool) -> bool {
    let found = mcode_git::settings(text);
    found.iter().any(|setting| git_config::is_obeyed(setting) || (elsewhere && setting.is("core", "worktree")))
}

/// The number of a folder on the disk; `None` for anything else, and for a link.
fn number_of_folder(folder: &Path) -> Option<u64> {
    let found = folder.symlink_metadata().ok().filter(std::fs::Metadata::is_dir)?;
    Some(numbers(&found).1)
}

fn mark(path: &Path) -> Option<Mark> {
    let found = path.symlink_metadata().ok()?;
    let (changed, number) = numbers(&found);
    Some(Mark { bytes: found.len(), modified: found.modified().ok(), changed, number })
}

#[cfg(unix)]
fn numbers(found: &std::fs::Metadata) -> ((i64, i64), u64) {
    use std::os::unix::fs::MetadataExt;
    ((found.ctime(), found.ctime_nsec()), found.ino())
}

#[cfg(not(unix))]
fn numbers(_found: &std::fs::Metadata) -> ((i64, i64), u64) {
    ((0, 0), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path, config: &str) {
        for name in ["objects", "refs", "hooks"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        std::fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(folder.join("hooks/pre-commit.sample"), "").unwrap();
        std::fs::write(folder.join("config"), config).unwrap();
    }

    fn paths(watch: &Watch, planted: bool) -> Vec<PathBuf> {
        watch
            .changes()
            .found
            .into_iter()
            .filter(|change| !planted || change.planted)
            .map(|change| change.path)
            .collect()
    }

    #[test]
    fn what_git_would_run_is_told_and_a_plain_new_repository_is_not() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        repository(&root.join("old/.git"), "");
        std::fs::write(root.join("old/.git/hooks/pre-commit"), "true").unwrap();
        let policy = Policy { projects: vec![root.clone()], absent: vec![root.join(".mcode")], ..Policy::default() };
        let watch = Watch::begin(&policy);
        repository(&root.join("plain/.git"), "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = x\n");
        assert_eq!(watch.changes(), Changes { found: Vec::new(), complete: true });
        repository(&root.join("new/.git"), "[core]\n\tfsmonitor = ./x\n");
        std::fs::write(root.join("new/.git/hooks/post-checkout"), "x").unwrap();
        std::fs::write(root.join("old/.git/hooks/pre-commit"), "false").unwrap();
        std::fs::write(root.join("old/.git/config"), "[user]\n\tname = x\n").unwrap();
        std::fs::create_dir(root.join(".mcode")).unwrap();
        std::fs::write(root.join(".mcode/config.toml"), "").unwrap();
        let wanted = [
            ".mcode/config.toml",
            "new/.git/config",
            "new/.git/hooks/post-checkout",
            "old/.git/config",
            "old/.git/hooks/pre-commit",
        ];
        assert_eq!(paths(&watch, false), wanted.map(|name| root.join(name)));
        let planted = ["new/.git/config", "new/.git/hooks/post-checkout"];
        assert_eq!(paths(&watch, true), planted.map(|name| root.join(name)));
        let kept: Watch = serde_json::from_str(&serde_json::to_string(&watch).unwrap()).unwrap();
        assert_eq!(kept.changes(), watch.changes(), "another daemon sees something else");
        std::fs::remove_dir_all(root.join("new")).unwrap();
        std::fs::remove_dir_all(root.join(".mcode")).unwrap();
        std::fs::remove_file(root.join("old/.git/hooks/pre-commit")).unwrap();
        let wanted = ["old/.git/config", "old/.git/hooks/pre-commit"].map(|name| root.join(name));
        assert_eq!(paths(&watch, false), wanted);
    }

    #[test]
    fn what_hides_behind_a_comment_or_a_stray_letter_is_told() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        let watch = Watch::begin(&Policy { projects: vec![root.clone()], ..Policy::default() });
        repository(&root.join("a/.git"), "[core]\n bare = false # \\\nfsmonitor = ./x\n");
        repository(&root.join("b/.git"), "[branch \"cleanup\"]\n\tremote = origin\n");
        repository(&root.join("c/.git"), "[submodule \"x\"]\n\tupdate = !./x\n");
        repository(&root.join("d/.git"), "");
        std::fs::write(root.join("d/.git/config"), b"# \xe4\n[core]\n\tbare = false\n").unwrap();
        let wanted = ["a/.git/config", "c/.git/config"].map(|name| root.join(name));
        assert_eq!(paths(&watch, true), wanted);
    }

    #[test]
    fn a_record_of_an_earlier_daemon_is_read() {
        let golden = include_str!("../tests/golden/watch.json");
        let watch: Watch = serde_json::from_str(golden).unwrap();
        assert_eq!(watch.roots, [PathBuf::from("/p")]);
        assert_eq!(watch.folders[Path::new("/p/.git")], 12);
        assert!(watch.complete && watch.began.is_some() && watch.seen.len() == 1);
        let written = serde_json::to_value(&watch).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(golden).unwrap(), "a new field needs a default");
        // One from before it was noted whether all was looked at.
        let mut older = written;
        older.as_object_mut().unwrap().remove("complete");
        assert!(!serde_json::from_value::<Watch>(older).unwrap().complete);
    }

    #[cfg(unix)]
    #[test]
    fn the_users_own_files_are_never_taken_for_planted() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        repository(&root.join(".git"), "");
        for name in ["src/hooks/use.ts", "lib/mine"] {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), "of the user").unwrap();
        }
        // Older than what the clock's tick leaves open.
        let old = root.join("lib/mine").metadata().unwrap().created().unwrap();
        while listing::shortly_before_now().unwrap() <= old {
            std::thread::yield_now();
        }
        let watch = Watch::begin(&Policy { projects: vec![root.clone()], ..Policy::default() });
        // A folder of theirs is made to look like a repository, and hooks are made to lead to another.
        for name in ["src/objects", "src/refs"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("src/HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::rename(root.join(".git/hooks"), root.join(".git/h")).unwrap();
        std::os::unix::fs::symlink("../lib", root.join(".git/hooks")).unwrap();
        std::fs::write(root.join(".git/commondir"), "../src\n").unwrap();
        let told = paths(&watch, false);
        assert!(told.contains(&root.join("src/hooks/use.ts")) && told.contains(&root.join("lib/mine")), "{told:?}");
        assert_eq!(paths(&watch, true), [".git/commondir", ".git/hooks"].map(|name| root.join(name)));
    }
}
