//! The project on Unix: everything through folders that are held open.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use crate::ground::{Meta, Names, Seen, Stamp};
use crate::node::Special;

/// Bytes of a folder's listing that are taken at once.
#[cfg(target_os = "linux")]
const LISTING_BYTES: usize = 64 * 1024;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const CONTENT: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The root of a project, held open.
#[derive(Debug)]
pub(crate) struct Ground {
    root: OwnedFd,
}

impl Ground {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: rustix::fs::openat(CWD, root, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())? })
    }

    /// Opens a folder by its path from the root; the empty path is the root. A link anywhere in it is an error.
    pub(crate) fn folder(&self, path: &[u8]) -> io::Result<Folder> {
        Ok(Folder { fd: beneath(self.root.as_fd(), path, FOLDER)? })
    }

    /// The same for a folder in which something is changed: it need not be readable.
    pub(crate) fn place(&self, path: &[u8]) -> io::Result<Folder> {
        match self.folder(path) {
            #[cfg(target_os = "linux")]
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                Ok(Folder { fd: beneath(self.root.as_fd(), path, flags)? })
            }
            other => other,
        }
    }

    /// Has everything that was written to the project's file system on the disk; `false` where there is no such call.
    pub(crate) fn sync_all(&self) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        {
            rustix::fs::syncfs(&self.root)?;
            Ok(true)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(false)
    }
}

#[cfg(target_os = "linux")]
fn beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let from_root = if path.is_empty() { b"." } else { path };
    match rustix::fs::openat2(root, from_root, flags, Mode::empty(), resolve) {
        // Some containers know no such call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => by_steps(root, path, flags),
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    by_steps(root, path, flags)
}

/// Opens folder by folder, none of them a link.
fn by_steps(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut at = rustix::fs::openat(root, c".", flags, Mode::empty())?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if name == b".." {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        at = rustix::fs::openat(&at, name, flags, Mode::empty())?;
    }
    Ok(at)
}

/// A folder, held open.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
}

impl Folder {
    /// What the system says of the folder itself.
    pub(crate) fn own_meta(&self) -> io::Result<Meta> {
        Ok(meta(&rustix::fs::fstat(&self.fd)?))
    }

    /// What is at a name; a link is not followed.
    pub(crate) fn meta(&self, name: &[u8]) -> io::Result<Meta> {
        Ok(meta(&rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Its names, without `.` and `..`, in no order; `false` when there are too many.
    #[cfg(target_os = "linux")]
    pub(crate) fn names(&self, names: &mut Names, buffer: &mut Vec<u8>) -> io::Result<bool> {
        names.clear();
        buffer.clear();
        buffer.reserve(LISTING_BYTES);
        let mut listing = rustix::fs::RawDir::new(&self.fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && !names.push(name, seen(entry.file_type())) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Its names, without `.` and `..`, in no order; `false` when there are too many.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn names(&self, names: &mut Names, _buffer: &mut Vec<u8>) -> io::Result<bool> {
        names.clear();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && !names.push(name, seen(entry.file_type())) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Opens a file for reading. Never a link, and a pipe does not block.
    pub(crate) fn open(&self, name: &[u8]) -> io::Result<(File, Meta)> {
        let fd = rustix::fs::openat(&self.fd, name, CONTENT, Mode::empty())?;
        let meta = meta(&rustix::fs::fstat(&fd)?);
        Ok((File::from(fd), meta))
    }

    /// What the system says of an open file.
    pub(crate) fn meta_of(file: &File) -> io::Result<Meta> {
        Ok(meta(&rustix::fs::fstat(file)?))
    }

    /// Where a link points.
    pub(crate) fn link_target(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.fd, name, Vec::new())?.into_bytes())
    }

    /// Makes a file that was not there, for its owner alone.
    pub(crate) fn create(&self, name: &[u8]) -> io::Result<File> {
        Ok(File::from(rustix::fs::openat(&self.fd, name, NEW, Mode::from_raw_mode(0o600))?))
    }

    /// Sets the permission bits of an open file.
    pub(crate) fn set_mode_of(file: &File, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(file, permissions(mode))?)
    }

    /// Sets the permission bits of a file or folder, which need not be readable. Never of what a link points at.
    pub(crate) fn set_mode(&self, name: &[u8], mode: u32) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let held = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
            if meta(&rustix::fs::fstat(&held)?).seen == Seen::Link {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            match rustix::fs::chmodat(CWD, path, permissions(mode), AtFlags::empty()) {
                // Without /proc it has to be readable.
                Err(rustix::io::Errno::NOENT) => {
                    let readable = rustix::fs::openat(&self.fd, name, CONTENT, Mode::empty())?;
                    Ok(rustix::fs::fchmod(readable, permissions(mode))?)
                }
                other => Ok(other?),
            }
        }
        #[cfg(not(target_os = "linux"))]
        Ok(rustix::fs::chmodat(&self.fd, name, permissions(mode), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives an open file the owner of what is at a name, where that is another than ours and we may.
    pub(crate) fn give_owner_of(&self, name: &[u8], file: &File) {
        let (Ok(old), Ok(new)) =
            (rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW), rustix::fs::fstat(file))
        else {
            return;
        };
        if old.st_uid != new.st_uid || old.st_gid != new.st_gid {
            let (user, group) = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
            rustix::fs::fchown(file, Some(user), Some(group)).ok();
        }
    }

    /// Makes a link.
    pub(crate) fn link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.fd, name)?)
    }

    /// Makes a folder, for its owner alone.
    pub(crate) fn make_folder(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o700))?)
    }

    /// Has two names change places in one instant. `Unsupported` where the file system can not.
    pub(crate) fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            match rustix::fs::renameat_with(&self.fd, one, &self.fd, other, flags) {
                Err(error) if cannot(error) => Err(io::ErrorKind::Unsupported.into()),
                done => Ok(done?),
            }
        }
        #[cfg(not(any(target_os = "linux", target_os = "macos")))]
        {
            let _ = (one, other);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Renames to a name that is free.
    pub(crate) fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, rustix::fs::RenameFlags::NOREPLACE) {
            Err(error) if cannot(error) => {}
            done => return Ok(done?),
        }
        if rustix::fs::statat(&self.fd, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename_over(from, to)
    }

    /// Renames, taking the place of what is there.
    pub(crate) fn rename_over(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file or link.
    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes a folder that is empty.
    pub(crate) fn remove_folder(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Has its names on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // Some file systems do not know it, and a folder that may not be read can not.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::BADF | rustix::io::Errno::NOTSUP) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Whether an error says that a file system has no such rename.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn cannot(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP)
}

fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(raw(mode))
}

/// Modes have 16 bits on some systems.
fn raw<T: TryFrom<u32> + Default>(mode: u32) -> T {
    T::try_from(mode).unwrap_or_default()
}

fn seen(kind: FileType) -> Seen {
    match kind {
        FileType::RegularFile => Seen::File,
        FileType::Symlink => Seen::Link,
        FileType::Directory => Seen::Folder,
        FileType::Unknown => Seen::Unknown,
        FileType::Fifo => Seen::Special(Special::Pipe),
        FileType::Socket => Seen::Special(Special::Socket),
        _ => Seen::Special(Special::Device),
    }
}

/// The system's own numbers differ in width and sign from one system to the next.
fn number<T: TryInto<u64>>(value: T) -> u64 {
    value.try_into().unwrap_or_default()
}

fn nanoseconds(seconds: i64, rest: u64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(rest).unwrap_or_default())
}

fn meta(stat: &rustix::fs::Stat) -> Meta {
    let stamp = Stamp {
        size: number(stat.st_size),
        modified_ns: nanoseconds(stat.st_mtime, number(stat.st_mtime_nsec)),
        changed_ns: nanoseconds(stat.st_ctime, number(stat.st_ctime_nsec)),
        inode: number(stat.st_ino),
        mode: u32::try_from(number(stat.st_mode)).unwrap_or_default(),
    };
    Meta { seen: seen(FileType::from_raw_mode(stat.st_mode)), stamp }
}
