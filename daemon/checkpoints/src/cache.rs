//! What the last look at the project found, so that the next one reads only what has changed.
//!
//! In memory it is a tree of folders that share what stays the same. On the disk it is one file with its hash at the end.
//! It is only a cache: damage, or another version, costs the time to read the project again.

use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::ground::Stamp;
use crate::ids::ObjectId;
use crate::node::{self, Node, Reader};
use crate::rules::Print;

/// Begins the file; the number is that of the version.
const MAGIC: &[u8; 8] = b"mcodest2";
/// Bytes of the file at most: of all files and folders that a project may have, with long names.
const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Folders within folders that are looked into.
pub(crate) const DEPTH_MAX: usize = 256;

/// A folder as it was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dir {
    pub(crate) mode: u32,
    pub(crate) tree: ObjectId,
    /// The rules by which its names were judged.
    pub(crate) rules: Print,
    /// All names of `items`, one after the other.
    pub(crate) names: Box<[u8]>,
    /// In the order of their names.
    pub(crate) items: Box<[Item]>,
    /// Names that are ignored, as [`Ignored`] writes them.
    pub(crate) ignored: Box<[u8]>,
    pub(crate) totals: Totals,
}

/// Sums over a folder and all below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Files whose content is kept.
    pub(crate) files: u64,
    /// Bytes of them.
    pub(crate) bytes: u64,
    /// Files that are too large.
    pub(crate) large: u64,
    /// What may not be read.
    pub(crate) unreadable: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.large += other.large;
        self.unreadable += other.unreadable;
    }

    pub(crate) fn count(&mut self, node: &Node) {
        match node {
            Node::File { size_bytes, .. } => {
                self.files += 1;
                self.bytes += size_bytes;
            }
            Node::Large { .. } => self.large += 1,
            Node::Unreadable { .. } => self.unreadable += 1,
            Node::Link { .. } | Node::Folder { .. } | Node::Special { .. } => {}
        }
    }
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Where its name begins, and how long it is.
    pub(crate) name: (u32, u16),
    pub(crate) flags: Flags,
    pub(crate) stamp: Stamp,
    pub(crate) what: What,
}

/// What has to be asked again of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// It was changed so shortly before it was read that it may change again and look the same.
    pub(crate) racy: bool,
    /// It is there only because git tracks it.
    pub(crate) tracked: bool,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Node(Node),
    Folder(Arc<Dir>),
    /// A folder that is still being looked at.
    Open,
}

impl Dir {
    pub(crate) fn name(&self, item: &Item) -> &[u8] {
        name_in(&self.names, item)
    }
}

pub(crate) fn name_in<'a>(names: &'a [u8], item: &Item) -> &'a [u8] {
    let (start, length) = (item.name.0 as usize, usize::from(item.name.1));
    names.get(start..start + length).unwrap_or_default()
}

/// Reads the names that are ignored, in order: whether it is a folder, length, name.
pub(crate) struct Ignored<'a>(pub(crate) &'a [u8]);

impl Ignored<'_> {
    pub(crate) fn push(list: &mut Vec<u8>, name: &[u8], is_folder: bool) {
        list.push(u8::from(is_folder));
        list.extend_from_slice(&u16::try_from(name.len()).unwrap_or_default().to_le_bytes());
        list.extend_from_slice(name);
    }
}

impl<'a> Iterator for Ignored<'a> {
    type Item = (&'a [u8], bool);

    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = Reader(self.0);
        let is_folder = reader.u8()? == 1;
        let length = reader.u16()?;
        let name = reader.bytes(usize::from(length))?;
        self.0 = reader.0;
        Some((name, is_folder))
    }
}

/// Writes the cache. `limit` is the size from which files are too large: what was found under another is of no use.
pub(crate) fn save(disk: &Disk, path: &Path, root: &Dir, limit: u64) -> std::io::Result<()> {
    let mut body = Vec::with_capacity(1024 * 1024);
    body.extend_from_slice(MAGIC);
    body.extend_from_slice(&limit.to_le_bytes());
    put_dir(&mut body, root);
    let hash = blake3::hash(&body);
    body.extend_from_slice(hash.as_bytes());
    let new = path.with_extension("new");
    // Nothing is lost with it, so it need not be on the disk when this returns.
    std::fs::remove_file(&new).ok();
    let mut file = disk.create(&new)?;
    disk.write(&mut file, &body)?;
    drop(file);
    disk.rename(&new, path)
}

/// The cache as it was saved; `None` when there is none of any use.
pub(crate) fn load(path: &Path, limit: u64) -> Option<Arc<Dir>> {
    let size = std::fs::metadata(path).ok()?.len();
    if size > BYTES_MAX {
        return None;
    }
    let file = std::fs::read(path).ok()?;
    let (body, hash) = file.split_at_checked(file.len().checked_sub(blake3::OUT_LEN)?)?;
    if blake3::hash(body).as_bytes() != hash {
        return None;
    }
    let mut reader = Reader(body.strip_prefix(MAGIC)?);
    if reader.u64()? != limit {
        return None;
    }
    let root = get_dir(&mut reader, 0)?;
    reader.0.is_empty().then_some(root)
}

fn put_sized(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    body.extend_from_slice(bytes);
}

fn put_dir(body: &mut Vec<u8>, dir: &Dir) {
    body.extend_from_slice(&dir.mode.to_le_bytes());
    body.extend_from_slice(&dir.tree.0);
    body.extend_from_slice(&dir.rules);
    put_sized(body, &dir.names);
    put_sized(body, &dir.ignored);
    body.extend_from_slice(&(dir.items.len() as u64).to_le_bytes());
    for item in &dir.items {
        body.extend_from_slice(&item.name.0.to_le_bytes());
        body.extend_from_slice(&item.name.1.to_le_bytes());
        body.push(u8::from(item.flags.racy) | u8::from(item.flags.tracked) << 1);
        let stamp = &item.stamp;
        body.extend_from_slice(&stamp.size.to_le_bytes());
        body.extend_from_slice(&stamp.modified_ns.to_le_bytes());
        body.extend_from_slice(&stamp.changed_ns.to_le_bytes());
        body.extend_from_slice(&stamp.inode.to_le_bytes());
        body.extend_from_slice(&stamp.mode.to_le_bytes());
        match &item.what {
            What::Node(node) => node::encode(body, b"", node, None),
            What::Folder(dir) => {
                body.push(0);
                put_dir(body, dir);
            }
            What::Open => body.push(u8::MAX),
        }
    }
}

fn get_dir(reader: &mut Reader<'_>, depth: usize) -> Option<Arc<Dir>> {
    if depth > DEPTH_MAX {
        return None;
    }
    let (mode, tree, rules) = (reader.u32()?, reader.id()?, reader.array()?);
    let (names, ignored): (Box<[u8]>, Box<[u8]>) = (reader.sized()?.into(), reader.sized()?.into());
    let count = usize::try_from(reader.u64()?).ok()?;
    // An item takes more than that.
    let mut items = Vec::with_capacity(count.min(reader.0.len() / 40));
    let mut totals = Totals::default();
    for _ in 0..count {
        let item = get_item(reader, depth)?;
        let end = item.name.0 as usize + usize::from(item.name.1);
        if end > names.len() {
            return None;
        }
        match &item.what {
            What::Node(node) => totals.count(node),
            What::Folder(dir) => totals.add(dir.totals),
            What::Open => return None,
        }
        items.push(item);
    }
    Some(Arc::new(Dir { mode, tree, rules, names, items: items.into(), ignored, totals }))
}

fn get_item(reader: &mut Reader<'_>, depth: usize) -> Option<Item> {
    let name = (reader.u32()?, reader.u16()?);
    let bits = reader.u8()?;
    let flags = Flags { racy: bits & 1 != 0, tracked: bits & 2 != 0 };
    let stamp = Stamp {
        size: reader.u64()?,
        modified_ns: reader.i64()?,
        changed_ns: reader.i64()?,
        inode: reader.u64()?,
        mode: reader.u32()?,
    };
    let what = match reader.u8()? {
        0 => What::Folder(get_dir(reader, depth + 1)?),
        tag => {
            reader.u16()?;
            What::Node(reader.node(tag)?.0)
        }
    };
    Some(Item { name, flags, stamp, what })
}
