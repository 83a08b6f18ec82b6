//! Finding the lists of what is ignored.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::ground::{Folder, Ground, Names, Seen};
use crate::path::{as_os, joined};
use crate::rules::{LIST_BYTES_MAX, Lists, Outside};
use crate::scan::{Indexes, Scan};

/// Folders above the project's root that are looked at for a repository.
const ABOVE_MAX: usize = 64;
/// Bytes of a file that says where a repository is.
const LINK_BYTES_MAX: u64 = 4096;

/// A repository that begins at a folder.
struct Repository {
    /// Its exclude list; empty when it has none.
    exclude: Vec<u8>,
    /// Where its index is.
    git: PathBuf,
}

impl Repository {
    fn add_to(&self, lists: &mut Lists, own: Option<&[u8]>, indexes: &Indexes) {
        lists.repository = true;
        lists.exclude = (!self.exclude.is_empty()).then(|| self.exclude.clone());
        lists.own = own.map(<[u8]>::to_vec);
        lists.tracked = Some(indexes.of(&self.git));
    }
}

/// The lists of a folder of the project. The files' own are taken from `names`, so that most folders cost nothing.
pub(super) fn of_folder(scan: &Scan<'_>, path: &[u8], folder: &Folder, names: &Names, own: Option<&[u8]>) -> Lists {
    let list = |name: &[u8]| if names.holds(name) { read_in(folder, name, LIST_BYTES_MAX) } else { None };
    let mut lists = Lists { plain: list(b".ignore"), git: list(b".gitignore"), ..Lists::default() };
    if names.holds(b".git") {
        let at = as_os(path).map(|path| scan.root.join(path));
        let repository = at.and_then(|at| match folder.meta(b".git").map(|meta| meta.seen) {
            Ok(Seen::Folder) => {
                in_folder(scan.ground, path).map(|exclude| Repository { exclude, git: at.join(".git") })
            }
            Ok(Seen::File) => read_in(folder, b".git", LINK_BYTES_MAX).and_then(|link| elsewhere(&link, &at)),
            _ => None,
        });
        if let Some(repository) = repository {
            repository.add_to(&mut lists, own, scan.indexes);
        }
    }
    lists
}

/// The exclude list of a repository whose `.git` is a folder; empty when it has none, `None` when it is no repository.
fn in_folder(ground: &Ground, path: &[u8]) -> Option<Vec<u8>> {
    let git = ground.folder(&joined(path, b".git")).ok()?;
    git.meta(b"HEAD").ok()?;
    let info = ground.folder(&joined(path, b".git/info")).ok();
    Some(info.and_then(|info| read_in(&info, b"exclude", LIST_BYTES_MAX)).unwrap_or_default())
}

/// The repository of a work tree or submodule: its `.git` is a file that says where it is.
fn elsewhere(link: &[u8], folder: &Path) -> Option<Repository> {
    let line = std::str::from_utf8(link).ok()?.lines().next()?;
    let git = folder.join(line.strip_prefix("gitdir:")?.trim());
    let common = read_at(&git.join("commondir"), LINK_BYTES_MAX)
        .and_then(|text| Some(git.join(std::str::from_utf8(&text).ok()?.trim())))
        .unwrap_or_else(|| git.clone());
    let exclude = read_at(&common.join("info/exclude"), LIST_BYTES_MAX).unwrap_or_default();
    Some(Repository { exclude, git })
}

fn read_in(folder: &Folder, name: &[u8], limit: u64) -> Option<Vec<u8>> {
    let (file, meta) = folder.open(name).ok()?;
    if meta.seen != Seen::File {
        return None;
    }
    read(file, limit)
}

/// Reads a file that is no part of the project; a pipe in its place does not block.
pub(super) fn read_at(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    read(file, limit)
}

fn read(file: File, limit: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text).ok()?;
    Some(text)
}

/// The lists of the repository that the project's root lies in, when it is not the root of one itself.
pub(super) fn above(root: &Path, own: Option<&[u8]>, indexes: &Indexes) -> Outside {
    let mut outside = Outside::default();
    if is_repository(root).is_some() {
        return outside;
    }
    let mut way = Vec::new();
    let mut below: &Path = root;
    for folder in root.ancestors().skip(1).take(ABOVE_MAX) {
        let Some(name) = below.file_name().map(std::ffi::OsStr::as_encoded_bytes) else { break };
        way = if way.is_empty() { name.to_vec() } else { joined(name, &way) };
        below = folder;
        let list = |name: &str| read_at(&folder.join(name), LIST_BYTES_MAX).filter(|text| !text.is_empty());
        let mut lists = Lists { plain: list(".ignore"), git: list(".gitignore"), ..Lists::default() };
        let repository = is_repository(folder);
        if let Some(repository) = &repository {
            repository.add_to(&mut lists, own, indexes);
        }
        outside.above.insert(0, (way.clone(), lists));
        if repository.is_some() {
            return outside;
        }
    }
    // In no repository only the user's own list is left.
    outside.above = vec![(Vec::new(), Lists { own: own.map(<[u8]>::to_vec), ..Lists::default() })];
    outside
}

/// The repository whose root is `folder`; `None` when it is none.
fn is_repository(folder: &Path) -> Option<Repository> {
    let git: PathBuf = folder.join(".git");
    let found = std::fs::symlink_metadata(&git).ok()?;
    if found.is_dir() {
        git.join("HEAD").symlink_metadata().ok()?;
        let exclude = read_at(&git.join("info/exclude"), LIST_BYTES_MAX).unwrap_or_default();
        return Some(Repository { exclude, git });
    }
    elsewhere(&read_at(&git, LINK_BYTES_MAX)?, folder)
}

/// Where the user's own list of what git ignores is: `core.excludesFile` of the settings in `home` and `config` (what
/// `XDG_CONFIG_HOME` names, else `.config` in `home`), otherwise `git/ignore` in `config`. It need not exist.
#[must_use]
pub fn global_excludes(home: &Path, config: Option<&Path>) -> PathBuf {
    let config = config.map_or_else(|| home.join(".config"), Path::to_path_buf);
    let mut path = config.join("git/ignore");
    for file in [config.join("git/config"), home.join(".gitconfig")] {
        let text = read_at(&file, LIST_BYTES_MAX).unwrap_or_default();
        for setting in mcode_git::settings(&String::from_utf8_lossy(&text)) {
            if setting.is("core", "excludesfile") {
                path = match setting.value.strip_prefix("~/") {
                    Some(rest) => home.join(rest),
                    None => home.join(&setting.value),
                };
            }
        }
    }
    path
}
