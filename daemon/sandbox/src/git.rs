//! What git obeys: its hooks and its configuration, wherever a repository of a project keeps them.
//!
//! A user who runs git in a repository runs what these files name, outside any sandbox. So they are found before a
//! command runs, in the project's own repository and in those below it, and may then not be written.

use std::collections::VecDeque;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::git_config;
use crate::listing;
use crate::policy::within;

/// Most folders that are searched for repositories; the nearest come first.
const FOLDERS_MAX: usize = 2000;
/// Most repositories that are cared for.
const REPOSITORIES_MAX: usize = 256;
/// Most files and folders that are looked at for the submodules of one repository.
const MODULE_ENTRIES_MAX: usize = 4096;
/// Longest git configuration, or link to a repository, that is read, in bytes.
pub(crate) const TEXT_BYTES_MAX: u64 = 256 * 1024;
/// What git obeys in its folder, hooks apart.
pub(crate) const SETTINGS: [&str; 3] = ["config", "config.worktree", "commondir"];
/// What git runs in its folder.
pub(crate) const HOOKS: &str = "hooks";

/// The repositories below some folders.
#[derive(Debug, Default)]
pub(crate) struct Repositories {
    /// Folders that hold `hooks`, `config` and the rest, resolved.
    pub(crate) folders: Vec<PathBuf>,
    /// `.git` files and links: who changes them gives a work tree another repository.
    pub(crate) pointers: Vec<PathBuf>,
    /// Whether everything was looked at.
    pub(crate) complete: bool,
}

impl Repositories {
    /// Looks through `roots`, breadth first and within bounds.
    pub(crate) fn below(roots: &[PathBuf]) -> Self {
        let mut found = Self { complete: true, ..Self::default() };
        let mut waiting: VecDeque<PathBuf> = roots.iter().cloned().collect();
        // Folders that are large and of no interest, unless somebody hides something in them.
        let mut later = VecDeque::new();
        let mut looked = 0;
        while let Some(folder) = waiting.pop_front().or_else(|| later.pop_front()) {
            if looked == FOLDERS_MAX || found.folders.len() >= REPOSITORIES_MAX {
                found.complete = false;
                break;
            }
            looked += 1;
            found.look(&folder, roots, &mut waiting, &mut later);
        }
        found.folders.sort();
        found.folders.dedup();
        found
    }

    fn look(
        &mut self,
        folder: &Path,
        roots: &[PathBuf],
        waiting: &mut VecDeque<PathBuf>,
        later: &mut VecDeque<PathBuf>,
    ) {
        let Some(listed) = listing::of(folder) else { return };
        self.complete &= listed.complete;
        if listed.git {
            self.repository(folder.join(".git"), roots);
        }
        if listed.bare {
            // A repository without a work tree: git takes it for one when it is run in it.
            self.folders.push(folder.to_path_buf());
            return;
        }
        let cache = listed.cache && !roots.iter().any(|root| root == folder);
        let below = listed.folders.iter().map(|name| folder.join(name));
        if cache {
            later.extend(below)
        } else {
            waiting.extend(below)
        }
        later.extend(listed.later.iter().map(|name| folder.join(name)));
    }

    fn repository(&mut self, git: PathBuf, roots: &[PathBuf]) {
        let Ok(kind) = git.symlink_metadata().map(|found| found.file_type()) else { return };
        let folder = if kind.is_dir() {
            Some(git)
        } else {
            let led = leads_to(&git);
            self.pointers.push(git);
            // One outside can not be written anyway.
            led.filter(|led| led.is_dir() && within(led, roots))
        };
        if let Some(folder) = folder {
            self.modules(&folder.join("modules"));
            self.folders.push(folder);
        }
    }

    /// Repositories of submodules, which lie in that of their project.
    fn modules(&mut self, folder: &Path) {
        let (mut waiting, mut entries) = (vec![folder.to_path_buf()], 0);
        let mut looked = 0;
        while let Some(folder) = waiting.pop() {
            if looked == REPOSITORIES_MAX {
                self.complete = false;
                return;
            }
            looked += 1;
            if folder.join("HEAD").is_file() {
                waiting.push(folder.join("modules"));
                self.folders.push(folder);
                continue;
            }
            for entry in folder.read_dir().into_iter().flatten().flatten().take(MODULE_ENTRIES_MAX - entries) {
                entries += 1;
                waiting.extend(entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| entry.path()));
            }
            self.complete &= entries < MODULE_ENTRIES_MAX;
        }
    }
}

/// Makes what a repository may lack and can not be fixed when it is not there: an empty folder for hooks, and empty
/// settings of its work trees if it has such. Git does as well with empty ones.
pub(crate) fn make_fixable(folder: &Path) {
    // The part of a repository that belongs to a further work tree has its hooks elsewhere.
    if !folder.join("HEAD").is_file() || folder.join("commondir").is_file() {
        return;
    }
    let hooks = folder.join(HOOKS);
    if hooks.symlink_metadata().is_err() {
        std::fs::create_dir(&hooks).ok();
    }
    if git_config::has_worktree_settings(folder) {
        let trees = below_worktrees(folder).into_iter().filter(|tree| tree.join("HEAD").is_file());
        for tree in trees.chain([folder.to_path_buf()]) {
            std::fs::File::create_new(tree.join("config.worktree")).ok();
        }
    }
}

/// What may not be written of a repository.
pub(crate) fn obeyed(folder: &Path, writable: &[PathBuf]) -> Vec<PathBuf> {
    let hooks = folder.join(HOOKS);
    let mut found = Vec::new();
    for path in SETTINGS.iter().map(|name| folder.join(name)).chain([hooks]).chain(worktrees(folder)) {
        match path.symlink_metadata() {
            // The link itself can not be fixed; see [`crate::watch`].
            Ok(kind) if kind.is_symlink() => found.extend(path.canonicalize().ok().filter(|to| within(to, writable))),
            Ok(_) => found.push(path),
            Err(_) => {}
        }
    }
    found.extend(git_config::obeyed(folder, writable).there);
    found
}

/// The settings of further work trees.
pub(crate) fn worktrees(folder: &Path) -> Vec<PathBuf> {
    below_worktrees(folder).iter().flat_map(|tree| SETTINGS.map(|name| tree.join(name))).collect()
}

/// The parts of a repository that belong to further work trees.
fn below_worktrees(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.join("worktrees").read_dir().into_iter().flatten().flatten().take(REPOSITORIES_MAX);
    entries.map(|entry| entry.path()).collect()
}

/// The folder that a `.git` leads to which is none itself: a file that names one, or a link.
pub(crate) fn leads_to(git: &Path) -> Option<PathBuf> {
    if git.is_symlink() { git.canonicalize().ok() } else { named(git) }
}

/// The folder that a `.git` file names, resolved.
pub(crate) fn named(git_file: &Path) -> Option<PathBuf> {
    let text = text(git_file)?;
    git_file.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()
}

/// The repository that the `.git` file of a work tree belongs to. The file can be written by anybody who works there,
/// so it is believed only when the repository names the work tree in return.
pub(crate) fn believed(git_file: &Path) -> Option<PathBuf> {
    let own = named(git_file)?;
    let work_tree = git_file.parent()?;
    if let Some(back) = text(&own.join("gitdir")) {
        if PathBuf::from(back.trim()).canonicalize().ok()? != git_file.canonicalize().ok()? {
            return None;
        }
        let worktrees = own.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "worktrees"))?;
        let common = worktrees.parent()?.to_path_buf();
        return (common.join("HEAD").is_file() && common.join("objects").is_dir()).then_some(common);
    }
    // A submodule: its repository's settings say where it is checked out.
    // As in git, the last one counts.
    let settings = mcode_git::settings(&text(&own.join("config"))?);
    let back = settings.iter().rfind(|setting| setting.is("core", "worktree"))?;
    let back = own.join(&back.value).canonicalize().ok()?;
    (back == work_tree.canonicalize().ok()? && own.join("objects").is_dir()).then_some(own)
}

/// The text of a file of at most [`TEXT_BYTES_MAX`].
pub(crate) fn text(path: &Path) -> Option<String> {
    path.metadata().ok().filter(|found| found.is_file() && found.len() <= TEXT_BYTES_MAX)?;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    // Git minds no encoding: a stray letter hides no setting.
    (bytes.len() as u64 <= TEXT_BYTES_MAX).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn repository(folder: &Path) {
        for name in ["objects", "refs"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        std::fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(folder.join("config"), "").unwrap();
    }

    #[test]
    fn repositories_are_found_wherever_they_are_also_in_caches() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        for name in [
            ".git",
            "vendor/sub/.git",
            "a/b/c/.git",
            ".git/modules/m/x",
            "bare.git",
            "real",
            "cache/.git",
            "cache/x/.git",
            "node_modules/em/.git",
        ] {
            repository(&root.join(name));
        }
        std::fs::write(root.join("cache/CACHEDIR.TAG"), "").unwrap();
        std::fs::create_dir_all(root.join("module")).unwrap();
        std::fs::write(root.join("module/.git"), "gitdir: ../.git/modules/m/x\n").unwrap();
        std::fs::create_dir_all(root.join("linked")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("linked/.git")).unwrap();
        let found = Repositories::below(std::slice::from_ref(&root));
        assert!(found.complete);
        let wanted = [
            ".git",
            ".git/modules/m/x",
            "a/b/c/.git",
            "bare.git",
            "cache/.git",
            "cache/x/.git",
            "node_modules/em/.git",
            "real",
            "vendor/sub/.git",
        ];
        assert_eq!(found.folders, wanted.map(|name| root.join(name)));
        let mut pointers = found.pointers;
        pointers.sort();
        assert_eq!(pointers, ["linked/.git", "module/.git"].map(|name| root.join(name)));
    }

    #[test]
    fn a_huge_tree_is_not_searched_to_its_end() {
        let kept = tempfile::tempdir().unwrap();
        for number in 0..=FOLDERS_MAX {
            std::fs::create_dir(kept.path().join(number.to_string())).unwrap();
        }
        assert!(!Repositories::below(&[kept.path().to_path_buf()]).complete);
    }

    #[test]
    fn a_submodule_is_believed_when_its_repository_names_it() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        let own = root.join("super/.git/modules/sub");
        repository(&own);
        std::fs::create_dir_all(root.join("super/sub")).unwrap();
        let pointer = root.join("super/sub/.git");
        std::fs::write(&pointer, "gitdir: ../.git/modules/sub\n").unwrap();
        assert_eq!(believed(&pointer), None);
        for settings in ["[core]\n\tworktree = ../../../sub\n", "[core] worktree=\"../../../s\\\nub\" # x\n"] {
            std::fs::write(own.join("config"), settings).unwrap();
            assert_eq!(believed(&pointer), Some(own.clone()), "{settings}");
        }
        std::fs::write(own.join("config"), "# \\\n[x]\nworktree = ../../../sub\n").unwrap();
        assert_eq!(believed(&pointer), None, "it is another setting");
    }

    #[test]
    fn very_many_modules_are_not_looked_at_to_their_end() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        repository(&root.join(".git"));
        std::fs::create_dir(root.join(".git/modules")).unwrap();
        (0..4).for_each(|number| std::fs::write(root.join(".git/modules").join(number.to_string()), "").unwrap());
        assert!(Repositories::below(std::slice::from_ref(&root)).complete);
        for number in 0..=MODULE_ENTRIES_MAX {
            std::fs::write(root.join(".git/modules").join(number.to_string()), "").unwrap();
        }
        assert!(!Repositories::below(&[root]).complete);
    }
}
