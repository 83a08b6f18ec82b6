//! Putting one thing in its place: whole or not at all, and only in the place of what is expected there.
//!
//! What is replaced or removed is first taken aside in one instant and looked at again there. So somebody who saves a
//! file at that very moment loses nothing: it is put back.

use std::io;

use crate::depot::Depot;
use crate::disk::Disk;
use crate::error::CheckpointError;
use crate::ground::{self, Folder, Seen};
use crate::ids::Kind;
use crate::node::Node;

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Something else is there.
    Changed(Option<Node>),
    /// Its folder is none any more.
    Blocked,
    /// A folder that has to go is not empty.
    NotEmpty,
    Failed(CheckpointError),
    System(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::DirectoryNotEmpty { Self::NotEmpty } else { Self::System(error) }
    }
}

/// One name in a folder of the project.
pub(super) struct Place<'p> {
    pub(super) disk: &'p Disk,
    pub(super) folder: &'p Folder,
    pub(super) name: &'p [u8],
    /// A name beside it that is only used here.
    pub(super) aside: &'p [u8],
    /// Size from which files are too large.
    pub(super) limit: u64,
}

/// What is at a name, read from the disk.
pub(super) fn look(folder: &Folder, name: &[u8], limit: u64) -> io::Result<Option<Node>> {
    let meta = match folder.meta(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    Ok(Some(match meta.seen {
        Seen::Folder => Node::Folder { mode: meta.mode() },
        Seen::Special(special) => Node::Special { special },
        Seen::Link => Node::Link { target: folder.link_target(name)?.into() },
        Seen::File | Seen::Unknown if meta.stamp.size > limit => meta.large(),
        Seen::File | Seen::Unknown => match folder.open(name) {
            Ok((mut file, meta)) => {
                let mut content = Vec::new();
                ground::read_within(&mut file, limit, meta.stamp.size, &mut content)?;
                Node::File { mode: meta.mode(), size_bytes: content.len() as u64, content: Kind::Content.id(&content) }
            }
            Err(error) if ground::is_closed(&error) => meta.unreadable(),
            Err(error) => return Err(error),
        },
    }))
}

/// Whether what is there is what is expected.
pub(super) fn is_as(expected: Option<&Node>, there: Option<&Node>) -> bool {
    match (expected, there) {
        // Whether a folder may be read is only known by trying, and does not matter here.
        (Some(Node::Unreadable { folder: true, .. }), Some(Node::Folder { .. })) => true,
        _ => expected == there,
    }
}

impl Place<'_> {
    pub(super) fn look(&self, name: &[u8]) -> io::Result<Option<Node>> {
        look(self.folder, name, self.limit)
    }

    /// Makes a file or link. `sync` has its content on the disk before it gets its name.
    pub(super) fn put(&self, depot: &Depot, from: Option<&Node>, to: &Node, sync: bool) -> Result<(), Trouble> {
        if let (Some(Node::File { content: one, .. }), Node::File { content: other, mode, .. }) = (from, to)
            && one == other
        {
            self.disk.step("set mode")?;
            return Ok(self.folder.set_mode(self.name, *mode)?);
        }
        // What an earlier try has left.
        self.drop_aside()?;
        let written = self.write(depot, to, sync).and_then(|()| self.swap(from));
        if written.is_err() {
            // It was not put in its place, or something else was put back there.
            self.folder.remove(self.aside).ok();
        }
        written
    }

    fn write(&self, depot: &Depot, to: &Node, sync: bool) -> Result<(), Trouble> {
        match to {
            Node::Link { target } => {
                self.disk.step("link")?;
                Ok(self.folder.link(self.aside, target)?)
            }
            Node::File { content, mode, .. } => {
                let content = depot.content(content).map_err(Trouble::Failed)?;
                self.disk.step("create")?;
                let mut file = self.folder.create(self.aside)?;
                self.disk.write(&mut file, &content)?;
                self.folder.give_owner_of(self.name, &file);
                Folder::set_mode_of(&file, *mode)?;
                if sync {
                    self.disk.sync(&file)?;
                }
                Ok(())
            }
            _ => Err(Trouble::System(io::ErrorKind::InvalidInput.into())),
        }
    }

    /// Gives what was written aside its name, in the place of `from` and of nothing else.
    fn swap(&self, from: Option<&Node>) -> Result<(), Trouble> {
        match from {
            None => self.rename_new(),
            Some(Node::Folder { .. } | Node::Unreadable { folder: true, .. }) => {
                self.remove_folder()?;
                self.rename_new()
            }
            Some(_) => self.exchange(from),
        }
    }

    fn rename_new(&self) -> Result<(), Trouble> {
        self.disk.step("rename")?;
        match self.folder.rename_new(self.aside, self.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Trouble::Changed(self.look(self.name)?)),
            other => Ok(other?),
        }
    }

    fn exchange(&self, from: Option<&Node>) -> Result<(), Trouble> {
        self.disk.step("exchange")?;
        match self.folder.exchange(self.aside, self.name) {
            Ok(()) => {}
            // Here somebody who saves between the last look and this is not noticed.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.disk.step("rename")?;
                return Ok(self.folder.rename_over(self.aside, self.name)?);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Trouble::Changed(None)),
            Err(error) => return Err(error.into()),
        }
        let old = self.look(self.aside)?;
        if !is_as(from, old.as_ref()) {
            self.folder.exchange(self.aside, self.name)?;
            return Err(Trouble::Changed(old));
        }
        self.disk.step("remove")?;
        Ok(self.folder.remove(self.aside)?)
    }

    /// Removes a file or link, if it is `from`.
    pub(super) fn take_away(&self, from: Option<&Node>) -> Result<(), Trouble> {
        self.disk.step("rename")?;
        match self.folder.rename_new(self.name, self.aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        let old = self.look(self.aside)?;
        if !is_as(from, old.as_ref()) {
            self.folder.rename_new(self.aside, self.name)?;
            return Err(Trouble::Changed(old));
        }
        let removed = self.disk.step("remove").and_then(|()| self.folder.remove(self.aside));
        if removed.is_err() {
            self.folder.rename_new(self.aside, self.name)?;
        }
        Ok(removed?)
    }

    pub(super) fn remove_folder(&self) -> Result<(), Trouble> {
        self.disk.step("remove folder")?;
        match self.folder.remove_folder(self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    /// Clears up what a restore that was cut off left aside: what has its place is removed, what was only taken aside is
    /// put back. Anything else is somebody's, and stays; `false` then.
    pub(super) fn clear_up(&self, from: Option<&Node>, to: Option<&Node>) -> io::Result<bool> {
        let Some(left) = self.look(self.aside)? else { return Ok(true) };
        let there = self.look(self.name)?;
        if is_as(to, there.as_ref()) {
            // The change was made; what lies aside was there before.
            let known = is_as(from, Some(&left)) || is_as(to, Some(&left));
            if known {
                self.disk.step("remove")?;
                self.folder.remove(self.aside)?;
            }
            return Ok(known);
        }
        if there.is_none() && is_as(from, Some(&left)) {
            self.disk.step("rename")?;
            self.folder.rename_new(self.aside, self.name)?;
            return Ok(true);
        }
        // It was not made yet; what lies aside is a part of what was to come.
        self.drop_aside()?;
        Ok(true)
    }

    fn drop_aside(&self) -> io::Result<()> {
        match self.folder.remove(self.aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
