//! Opening what a path was resolved to, and nothing that was put in its place since.
//!
//! A path is resolved once and judged; a link that takes the place of one of its parts afterwards must not lead
//! elsewhere. Linux refuses such links (`openat2`), macOS too (`O_NOFOLLOW_ANY`); other systems only in the last part.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Opens a resolved path for reading; a pipe never blocks.
///
/// # Errors
/// The system's reason; a link anywhere in the path is one.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    os::open(path, os::Wanted::Content)
}

/// A folder held open, so that what is made in it is made there.
#[derive(Debug)]
pub(crate) struct Folder {
    file: Option<File>,
    path: PathBuf,
}

impl Folder {
    /// Opens a resolved folder.
    ///
    /// # Errors
    /// The system's reason; a link anywhere in the path is one.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = os::folder(path)?;
        let path = file.as_ref().and_then(os::by_descriptor).unwrap_or_else(|| path.to_path_buf());
        Ok(Self { file, path })
    }

    /// The folder above a resolved path.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub(crate) fn above(path: &Path) -> io::Result<Self> {
        Self::open(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// A path that leads to this very folder while it is held.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to a name in this very folder while it is held.
    ///
    /// # Errors
    /// When `path` has no name.
    pub(crate) fn child(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(self.path.join(path.file_name().ok_or(io::ErrorKind::InvalidInput)?))
    }

    /// Makes what was done in it last; a file system that can not do so has done its best.
    pub(crate) fn sync(&self) {
        if let Some(Err(error)) = self.file.as_ref().map(File::sync_all) {
            tracing::debug!(%error, "a folder could not be synced");
        }
    }
}

#[cfg(unix)]
mod os {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    use rustix::fs::{CWD, Mode, OFlags};

    /// What something is opened for.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Wanted {
        Content,
        Folder,
    }

    pub(super) fn open(path: &Path, wanted: Wanted) -> io::Result<File> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags |= if wanted == Wanted::Folder { OFlags::DIRECTORY } else { OFlags::NONBLOCK };
        Ok(File::from(steady(path, flags)?))
    }

    pub(super) fn folder(path: &Path) -> io::Result<Option<File>> {
        match open(path, Wanted::Folder) {
            // A folder may be entered and written though it may not be read.
            #[cfg(target_os = "linux")]
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                Ok(Some(File::from(steady(path, flags)?)))
            }
            other => other.map(Some),
        }
    }

    #[cfg(target_os = "linux")]
    fn steady(path: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
        use rustix::fs::ResolveFlags;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Some containers know no such call.
            Err(rustix::io::Errno::NOSYS) => Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?),
            other => Ok(other?),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn steady(path: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
        #[cfg(target_os = "macos")]
        let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::NOFOLLOW_ANY;
        Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
    }

    /// A path to what a descriptor holds, where the system has one.
    pub(super) fn by_descriptor(file: &File) -> Option<PathBuf> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        (cfg!(target_os = "linux") && path.exists()).then_some(path)
    }
}

#[cfg(not(unix))]
mod os {
    use std::fs::File;
    use std::io;
    use std::path::{Path, PathBuf};

    /// What something is opened for.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Wanted {
        Content,
    }

    pub(super) fn open(path: &Path, _wanted: Wanted) -> io::Result<File> {
        File::open(path)
    }

    /// Folders are not opened here.
    pub(super) fn folder(path: &Path) -> io::Result<Option<File>> {
        path.metadata().map(|_| None)
    }

    pub(super) fn by_descriptor(_file: &File) -> Option<PathBuf> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_takes_the_place_of_a_part_is_refused() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        for folder in ["a/b", "secret/b"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("f"), folder).unwrap();
        }
        assert!(open(&root.join("a/b/f")).is_ok() && Folder::open(&root.join("a/b")).is_ok());
        std::fs::rename(root.join("a"), root.join("old")).unwrap();
        symlink("secret", root.join("a")).unwrap();
        for error in [open(&root.join("a/b/f")).map(drop), Folder::open(&root.join("a/b")).map(drop)] {
            assert_eq!(error.unwrap_err().raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        }
    }

    #[test]
    fn what_is_made_in_a_held_folder_is_made_there() {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        let folder = Folder::open(&root.join("a")).unwrap();
        std::fs::rename(root.join("a"), root.join("moved")).unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        std::fs::write(folder.child(Path::new("x/new")).unwrap(), "").unwrap();
        assert!(root.join("moved/new").exists() && !root.join("a/new").exists());
    }
}
