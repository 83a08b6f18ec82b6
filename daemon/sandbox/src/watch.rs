//! What a command changed of the things that would run outside its sandbox later.
//!
//! A repository that a command makes, a link that can not be fixed, or anything where there are no mount namespaces can
//! not be held beforehand. So a [`Watch`] is taken before a command and asked after it. It only tells: the user may have
//! changed the same files meanwhile, and nobody's work is undone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::git::{self, HOOKS, Repositories, SETTINGS, text};
use crate::policy::Policy;

/// Most files that are kept in mind.
const FILES_MAX: usize = 4096;
/// Most changes that are told.
const TOLD_MAX: usize = 20;
/// What git leaves as examples and never runs.
const EXAMPLE: &str = "sample";
/// Parts of names of git's settings whose values are run, or that name further settings.
const RUNNING: [&str; 18] = [
    "fsmonitor",
    "hookspath",
    "sshcommand",
    "askpass",
    "pager",
    "editor",
    "external",
    "textconv",
    "clean",
    "smudge",
    "process",
    "helper",
    "program",
    "command",
    "driver",
    "include",
    "alias",
    "worktree",
];

/// Enough to see that a file is not the same any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    bytes: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
    number: u64,
}

/// How things were before a command.
#[derive(Debug)]
pub struct Watch {
    roots: Vec<PathBuf>,
    named: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Mark>,
}

impl Watch {
    /// Looks at everything of this kind below the folders that the policy's command works in.
    #[must_use]
    pub fn begin(policy: &Policy) -> Self {
        let roots = policy.projects.clone();
        let below = roots.iter().map(|root| root.join(".git")).chain(policy.absent.iter().cloned());
        // What is fixed elsewhere, such as the repository of a work tree, may not be held everywhere.
        let named = below.chain(policy.fixed.iter().cloned()).collect();
        let mut watch = Self { roots, named, seen: BTreeMap::new() };
        watch.seen = watch.look();
        watch
    }

    /// What is new or different, and is run or obeyed outside the sandbox. The bounded scan may miss what lies deep
    /// in a very large tree.
    #[must_use]
    pub fn changes(&self) -> Vec<PathBuf> {
        let now = self.look();
        // With its whole folder it is gone for good; alone, it was taken away.
        let removed = |path: &&PathBuf| !now.contains_key(*path) && path.parent().is_some_and(Path::is_dir);
        let mut told: Vec<PathBuf> = self.seen.keys().filter(removed).cloned().collect();
        let differs = now.iter().filter(|(path, mark)| match self.seen.get(*path) {
            Some(seen) => seen != *mark,
            None => self.runs_something(path),
        });
        told.extend(differs.map(|(path, _)| path.clone()));
        told.sort();
        told.truncate(TOLD_MAX);
        told
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

    fn look(&self) -> BTreeMap<PathBuf, Mark> {
        let repositories = Repositories::below(&self.roots);
        let mut files = BTreeMap::new();
        let mut add = |path: PathBuf| {
            if files.len() < FILES_MAX
                && let Some(mark) = mark(&path)
            {
                files.insert(path, mark);
            }
        };
        for folder in &repositories.folders {
            SETTINGS.iter().for_each(|name| add(folder.join(name)));
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
        files
    }
}

/// The files right in a folder.
fn below(folder: &Path, add: &mut dyn FnMut(PathBuf)) {
    for entry in folder.read_dir().into_iter().flatten().flatten().take(FILES_MAX) {
        let path = entry.path();
        let example = path.extension().is_some_and(|ending| ending == EXAMPLE);
        if !example && !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add(path);
        }
    }
}

/// Whether the settings of a repository name a program or further settings.
fn names_a_program(path: &Path) -> bool {
    let settings = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("config"));
    let in_git = path.parent().is_some_and(|folder| folder.join("HEAD").is_file());
    if !settings || !in_git {
        return true;
    }
    let Some(text) = text(path) else { return true };
    text.lines().any(|line| {
        let line = line.trim().to_ascii_lowercase();
        let name = line.split('=').next().unwrap_or_default();
        !line.starts_with(['#', ';']) && RUNNING.iter().any(|part| name.contains(part))
    })
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

    #[test]
    fn what_git_would_run_is_told_and_a_plain_new_repository_is_not() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        repository(&root.join("old/.git"), "");
        std::fs::write(root.join("old/.git/hooks/pre-commit"), "true").unwrap();
        let policy = Policy { projects: vec![root.clone()], absent: vec![root.join(".mcode")], ..Policy::default() };
        let watch = Watch::begin(&policy);
        repository(&root.join("plain/.git"), "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = x\n");
        assert_eq!(watch.changes(), Vec::<PathBuf>::new());
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
        assert_eq!(watch.changes(), wanted.map(|name| root.join(name)));
        std::fs::remove_dir_all(root.join("new")).unwrap();
        std::fs::remove_dir_all(root.join(".mcode")).unwrap();
        std::fs::remove_file(root.join("old/.git/hooks/pre-commit")).unwrap();
        assert_eq!(watch.changes(), ["old/.git/config", "old/.git/hooks/pre-commit"].map(|name| root.join(name)));
    }
}
