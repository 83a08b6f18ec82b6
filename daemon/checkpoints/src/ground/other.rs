//! The project where folders can not be held open: by paths, each folder above looked at before it is used.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::ground::{Meta, Names, Seen, Stamp};
use crate::node::Special;

/// The root of a project.
#[derive(Debug)]
pub(crate) struct Ground {
    root: PathBuf,
}

impl Ground {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        if fs::metadata(root)?.is_dir() {
            return Ok(Self { root: root.to_path_buf() });
        }
        Err(io::ErrorKind::NotADirectory.into())
    }

    /// A folder by its path from the root; the empty path is the root. A link anywhere in it is an error.
    pub(crate) fn folder(&self, path: &[u8]) -> io::Result<Folder> {
        let mut at = self.root.clone();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at.push(text(name)?);
            if !fs::symlink_metadata(&at)?.file_type().is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(Folder { path: at })
    }

    /// The same for a folder in which something is changed.
    pub(crate) fn place(&self, path: &[u8]) -> io::Result<Folder> {
        self.folder(path)
    }

    /// There is no such call.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Unix")]
    pub(crate) fn sync_all(&self) -> io::Result<bool> {
        Ok(false)
    }
}

/// A folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    fn at(&self, name: &[u8]) -> io::Result<PathBuf> {
        Ok(self.path.join(text(name)?))
    }

    /// What the system says of the folder itself.
    pub(crate) fn own_meta(&self) -> io::Result<Meta> {
        fs::symlink_metadata(&self.path).map(|found| meta(&found))
    }

    /// What is at a name; a link is not followed.
    pub(crate) fn meta(&self, name: &[u8]) -> io::Result<Meta> {
        fs::symlink_metadata(self.at(name)?).map(|found| meta(&found))
    }

    /// Its names, in no order; `false` when there are too many. Names that are no text are left out.
    pub(crate) fn names(&self, names: &mut Names, _buffer: &mut Vec<u8>) -> io::Result<bool> {
        names.clear();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let seen = entry.metadata().map_or(Seen::Unknown, |found| meta(&found).seen);
            if let Some(name) = entry.file_name().to_str()
                && !names.push(name.as_bytes(), seen)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, name: &[u8]) -> io::Result<(File, Meta)> {
        let path = self.at(name)?;
        if fs::symlink_metadata(&path)?.file_type().is_symlink() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let file = File::open(path)?;
        let meta = Self::meta_of(&file)?;
        Ok((file, meta))
    }

    /// What the system says of an open file.
    pub(crate) fn meta_of(file: &File) -> io::Result<Meta> {
        file.metadata().map(|found| meta(&found))
    }

    /// Where a link points.
    pub(crate) fn link_target(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let target = fs::read_link(self.at(name)?)?;
        Ok(target.to_str().ok_or(io::ErrorKind::InvalidFilename)?.as_bytes().to_vec())
    }

    /// Makes a file that was not there.
    pub(crate) fn create(&self, name: &[u8]) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.at(name)?)
    }

    /// Sets whether an open file may be written.
    pub(crate) fn set_mode_of(file: &File, mode: u32) -> io::Result<()> {
        let mut permissions = file.metadata()?.permissions();
        permissions.set_readonly(mode & 0o200 == 0);
        file.set_permissions(permissions)
    }

    /// Sets whether a file may be written; folders have no such bits here.
    pub(crate) fn set_mode(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let path = self.at(name)?;
        let found = fs::symlink_metadata(&path)?;
        if !found.is_file() {
            return Ok(());
        }
        let mut permissions = found.permissions();
        permissions.set_readonly(mode & 0o200 == 0);
        fs::set_permissions(path, permissions)
    }

    /// Owners are not given here.
    #[allow(clippy::unused_self, reason = "as on Unix")]
    pub(crate) fn give_owner_of(&self, _name: &[u8], _file: &File) {}

    /// Makes a link, which Windows allows to some users only.
    pub(crate) fn link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        let target = text(target)?;
        #[cfg(windows)]
        {
            if self.path.join(target).is_dir() {
                return std::os::windows::fs::symlink_dir(target, self.at(name)?);
            }
            std::os::windows::fs::symlink_file(target, self.at(name)?)
        }
        #[cfg(not(windows))]
        {
            let _ = (name, target);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Makes a folder.
    pub(crate) fn make_folder(&self, name: &[u8]) -> io::Result<()> {
        fs::create_dir(self.at(name)?)
    }

    /// There is no such call.
    #[allow(clippy::unused_self, reason = "as on Unix")]
    pub(crate) fn exchange(&self, _one: &[u8], _other: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Renames to a name that is free.
    pub(crate) fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        if fs::symlink_metadata(self.at(to)?).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename_over(from, to)
    }

    /// Renames, taking the place of what is there.
    pub(crate) fn rename_over(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let to = self.at(to)?;
        writable(&to)?;
        fs::rename(self.at(from)?, to)
    }

    /// Removes a file or link.
    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        let path = self.at(name)?;
        writable(&path)?;
        match fs::remove_file(&path) {
            // A link to a folder is one to Windows.
            Err(_) if fs::symlink_metadata(&path)?.file_type().is_symlink() => fs::remove_dir(&path),
            other => other,
        }
    }

    /// Removes a folder that is empty.
    pub(crate) fn remove_folder(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_dir(self.at(name)?)
    }

    /// There is no such call.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Unix")]
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Windows neither replaces nor removes what is read-only.
fn writable(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let mut permissions = found.permissions();
    if permissions.readonly() && found.is_file() {
        #[allow(
            clippy::permissions_set_readonly_false,
            reason = "it is replaced or removed next, and has one bit here"
        )]
        permissions.set_readonly(false);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

fn text(name: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(name).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

fn meta(found: &Metadata) -> Meta {
    let kind = found.file_type();
    let seen = if kind.is_symlink() {
        Seen::Link
    } else if kind.is_dir() {
        Seen::Folder
    } else if kind.is_file() {
        Seen::File
    } else {
        Seen::Special(Special::Device)
    };
    let nanoseconds = |time: io::Result<std::time::SystemTime>| {
        let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    };
    let mode = match (seen, found.permissions().readonly()) {
        (Seen::Folder, _) => 0o755,
        (_, true) => 0o444,
        (_, false) => 0o644,
    };
    let stamp = Stamp {
        size: found.len(),
        modified_ns: nanoseconds(found.modified()),
        changed_ns: nanoseconds(found.created()),
        inode: 0,
        mode,
    };
    Meta { seen, stamp }
}
