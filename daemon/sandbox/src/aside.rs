//! Moving aside what a command planted, so that nothing runs it outside the sandbox and nobody's work is lost.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::watch::{Change, Watch};

/// Longest file that is copied when it can not be moved, because the folders are on different disks; in bytes.
#[cfg(unix)]
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The file.
    pub path: PathBuf,
    /// Where it lies now, if it was moved; else it was left as it is.
    pub moved_to: Option<PathBuf>,
}

/// What became of all changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// By path; what was moved first and is there again stands twice.
    pub settled: Vec<Settled>,
    /// Something may have been planted that was not looked at: there is too much, and it was not before.
    pub cut: bool,
}

impl Watch {
    /// Moves what was planted into a folder, which is made for it, and tells of all changes but those in `known`.
    /// Blocking.
    #[must_use]
    pub fn settle(&self, folder: &Path, known: &[Settled]) -> Settlement {
        // What was moved and is there again was planted again.
        let left = known.iter().filter(|old| old.moved_to.is_none());
        let left: HashSet<&Path> = left.map(|old| old.path.as_path()).collect();
        let all: HashSet<&Path> = known.iter().map(|old| old.path.as_path()).collect();
        // Only that something was moved aside is no change.
        let gone = |path: &Path| all.contains(path) && path.symlink_metadata().is_err();
        let changes = self.changes();
        let news = changes.found.into_iter().filter(|it| !left.contains(it.path.as_path()) && !gone(&it.path));
        let settled = news.map(|Change { path, planted }| {
            let moved_to = planted.then(|| moved(&path, folder)).and_then(|moved| {
                moved
                    .inspect_err(|error| tracing::warn!(%error, ?path, "what a command planted could not be moved"))
                    .ok()
            });
            Settled { path, moved_to }
        });
        Settlement { settled: settled.collect(), cut: !changes.complete }
    }
}

/// Moves a file into a folder, under a name that tells where it was.
fn moved(path: &Path, folder: &Path) -> io::Result<PathBuf> {
    private_folder(folder)?;
    let name = path.to_string_lossy().trim_start_matches('/').replace(['/', '\\'], "%");
    let name: String = name.chars().rev().take(120).collect::<Vec<_>>().into_iter().rev().collect();
    let free = (0..1000).map(|number| match number {
        0 => folder.join(&name),
        _ => folder.join(format!("{name}.{number}")),
    });
    let to = free.into_iter().find(|to| to.symlink_metadata().is_err()).ok_or(io::ErrorKind::AlreadyExists)?;
    os::take(path, &to)?;
    Ok(to)
}

fn private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(unix)]
mod os {
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Mode, OFlags};

    /// Moves a file or link; no link in its path is followed, for something may still change the folders above it.
    pub(super) fn take(from: &Path, to: &Path) -> io::Result<()> {
        let (Some(above), Some(name)) = (from.parent(), from.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let above = steady(above)?;
        match rustix::fs::renameat(&above, name, CWD, to) {
            Err(rustix::io::Errno::XDEV) => {}
            other => return Ok(other?),
        }
        let found = rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Symlink {
            let target = rustix::fs::readlinkat(&above, name, Vec::new())?;
            rustix::fs::symlinkat(target, CWD, to)?;
        } else {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = File::from(rustix::fs::openat(&above, name, flags, Mode::empty())?);
            let meta = file.metadata()?;
            if !meta.is_file() || meta.len() > super::COPIED_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::CrossesDevices, "it lies on another disk"));
            }
            let mut copy = File::create_new(to)?;
            io::copy(&mut io::Read::take(file, super::COPIED_BYTES_MAX), &mut copy)?;
            copy.sync_all()?;
        }
        Ok(rustix::fs::unlinkat(&above, name, AtFlags::empty())?)
    }

    #[cfg(target_os = "linux")]
    fn steady(folder: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat2(CWD, folder, flags, Mode::empty(), rustix::fs::ResolveFlags::NO_SYMLINKS) {
            // Some containers know no such call.
            Err(rustix::io::Errno::NOSYS) => Ok(rustix::fs::openat(CWD, folder, flags, Mode::empty())?),
            other => Ok(other?),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn steady(folder: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        #[cfg(target_os = "macos")]
        let flags = flags | OFlags::NOFOLLOW_ANY;
        #[cfg(not(target_os = "macos"))]
        let flags = flags | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(CWD, folder, flags, Mode::empty())?)
    }
}

#[cfg(not(unix))]
mod os {
    /// Commands are not watched here; a plain move will do.
    pub(super) fn take(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        std::fs::rename(from, to)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn what_was_planted_is_moved_and_what_was_there_stays() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        let (project, aside) = (root.join("p"), root.join("aside/thr"));
        for name in ["hooks", "objects", "refs"] {
            std::fs::create_dir_all(project.join(".git").join(name)).unwrap();
        }
        let write = |name: &str, text: &str| std::fs::write(project.join(name), text).unwrap();
        write(".git/HEAD", "ref: refs/heads/main\n");
        write(".git/config", "");
        write(".git/hooks/pre-push", "mine");
        let watch = Watch::begin(&Policy { projects: vec![project.clone()], ..Policy::default() });
        write(".git/hooks/pre-push", "theirs");
        write(".git/hooks/pre-commit", "planted");
        write(".git/commondir", "../x\n");
        let settled = watch.settle(&aside, &[]).settled;
        let names: Vec<(PathBuf, bool)> = settled.iter().map(|it| (it.path.clone(), it.moved_to.is_some())).collect();
        let wanted = [(".git/commondir", true), (".git/hooks/pre-commit", true), (".git/hooks/pre-push", false)];
        assert_eq!(names, wanted.map(|(name, moved)| (project.join(name), moved)));
        assert!(!project.join(".git/hooks/pre-commit").exists() && project.join(".git/hooks/pre-push").exists());
        let now = settled[1].moved_to.clone().unwrap();
        assert!(now.starts_with(&aside) && std::fs::read_to_string(&now).unwrap() == "planted", "{now:?}");
        assert_eq!(watch.settle(&aside, &settled), Settlement::default(), "it is told again");
        // A folder that was replaced by a link is not followed.
        std::fs::rename(project.join(".git/hooks"), root.join("outside")).unwrap();
        std::os::unix::fs::symlink(root.join("outside"), project.join(".git/hooks")).unwrap();
        assert!(os::take(&project.join(".git/hooks/pre-push"), &aside.join("x")).is_err());
        assert!(root.join("outside/pre-push").exists());
    }
}
