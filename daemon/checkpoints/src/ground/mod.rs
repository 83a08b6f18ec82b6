//! The project's folders and files, reached from its root without following any link.
//!
//! A command may put a link in the place of a folder between a look and the next. On Unix a folder is opened from the
//! root on without links (`openat2` on Linux, folder by folder elsewhere) and everything is done through it, so what is
//! read or written lies below the root. Windows has the folders above looked at before each use.

use std::fs::File;
use std::io::{self, Read};

use crate::node::{Node, Special};

#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(crate) use other::{Folder, Ground};
#[cfg(unix)]
pub(crate) use unix::{Folder, Ground};

/// Permission bits of files that are kept.
pub(crate) const FILE_MODE: u32 = 0o777;
/// Permission bits of folders that are kept: with the sticky bit, which harms nobody.
pub(crate) const FOLDER_MODE: u32 = 0o1777;
/// Names of one folder at most, ignored ones too.
pub(crate) const NAMES_MAX: usize = 1_000_000;

/// What kind of thing is at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    File,
    Link,
    Folder,
    Special(Special),
    /// The listing of its folder does not say.
    Unknown,
}

/// What tells that a file is the one that was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified_ns: i64,
    /// When content, name or mode were changed last; elsewhere than on Unix, when it was made.
    pub(crate) changed_ns: i64,
    pub(crate) inode: u64,
    /// With the bits that tell the kind.
    pub(crate) mode: u32,
}

/// What the system says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) seen: Seen,
    pub(crate) stamp: Stamp,
}

impl Meta {
    /// Permission bits that are kept.
    pub(crate) fn mode(&self) -> u32 {
        self.stamp.mode & if self.seen == Seen::Folder { FOLDER_MODE } else { FILE_MODE }
    }

    /// What is noted of a file or folder that may not be read.
    pub(crate) fn unreadable(&self) -> Node {
        let folder = self.seen == Seen::Folder;
        let (size_bytes, modified_ns) = if folder { (0, 0) } else { (self.stamp.size, self.stamp.modified_ns) };
        Node::Unreadable { folder, mode: self.mode(), size_bytes, modified_ns }
    }

    /// What is noted of a file that is too large.
    pub(crate) fn large(&self) -> Node {
        Node::Large { mode: self.mode(), size_bytes: self.stamp.size, modified_ns: self.stamp.modified_ns }
    }
}

/// The names of a folder, kept in one piece of memory that is used again for the next.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    places: Vec<(u32, u16, Seen)>,
}

impl Names {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Adds a name; `false` when there are too many.
    pub(crate) fn push(&mut self, name: &[u8], seen: Seen) -> bool {
        let (Ok(place), Ok(length)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len())) else {
            return false;
        };
        if self.places.len() >= NAMES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(name);
        self.places.push((place, length, seen));
        true
    }

    /// Brings them into the order of their bytes.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        let name =
            |(place, length, _): &(u32, u16, Seen)| &bytes[*place as usize..*place as usize + usize::from(*length)];
        self.places.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Seen)> {
        self.places
            .iter()
            .map(|(place, length, seen)| (&self.bytes[*place as usize..*place as usize + usize::from(*length)], *seen))
    }

    /// Whether a name is there; they have to be in order.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let at = |(place, length, _): &(u32, u16, Seen)| {
            &self.bytes[*place as usize..*place as usize + usize::from(*length)]
        };
        self.places.binary_search_by(|place| at(place).cmp(name)).is_ok()
    }
}

/// Whether an error says that something is no longer there, or no longer what it was: a link or file in place of a folder.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return true;
    }
    // A link, or a folder that was moved out of the project at this very moment.
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let known = [Errno::LOOP, Errno::XDEV, Errno::AGAIN];
        if known.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return true;
        }
    }
    false
}

/// Whether an error says that something may not be read, or can not be.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidFilename) {
        return true;
    }
    // A bad sector, a network drive that is gone, a name that is too long: nothing that ends a snapshot.
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let known = [Errno::IO, Errno::NAMETOOLONG, Errno::STALE, Errno::NXIO, Errno::NODEV, Errno::OPNOTSUPP];
        if known.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return true;
        }
    }
    false
}

/// Reads a file to its end, at most `limit` bytes and one more.
pub(crate) fn read_within(file: &mut File, limit: u64, expected: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    buffer.reserve(usize::try_from(expected.min(limit)).unwrap_or(0) + 1);
    file.take(limit.saturating_add(1)).read_to_end(buffer)?;
    Ok(())
}
