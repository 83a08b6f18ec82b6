//! What is at a path, and folders as they are kept.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ID_BYTES, ObjectId};
use crate::path;

/// What is at a path.
///
/// Modes are the permission bits of Unix without set-user and set-group bits, which are neither kept nor given back;
/// elsewhere 0o644, or 0o444 for what is read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Node {
    /// A file whose content is kept.
    File {
        /// Permission bits.
        mode: u32,
        /// Its size.
        size_bytes: u64,
        /// The hash of its content.
        content: ObjectId,
    },
    /// A symbolic link; never followed.
    Link {
        /// Where it points.
        #[serde(with = "quoted")]
        target: Arc<[u8]>,
    },
    /// A folder. What is in it has paths of its own.
    Folder {
        /// Permission bits.
        mode: u32,
    },
    /// A file that is too large to be kept.
    Large {
        /// Permission bits.
        mode: u32,
        /// Its size.
        size_bytes: u64,
        /// When it was changed last, in nanoseconds since 1970.
        modified_ns: i64,
    },
    /// A file or folder that may not be read.
    Unreadable {
        /// Whether it is a folder.
        folder: bool,
        /// Permission bits.
        mode: u32,
        /// Its size; 0 for folders.
        size_bytes: u64,
        /// When it was changed last, in nanoseconds since 1970; 0 for folders.
        modified_ns: i64,
    },
    /// A socket, pipe or device; never opened.
    Special {
        /// Which.
        special: Special,
    },
}

/// What is neither file, folder nor link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Special {
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device, or something unknown.
    Device,
}

impl Node {
    /// Its size, where it has one.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::File { size_bytes, .. } | Self::Large { size_bytes, .. } | Self::Unreadable { size_bytes, .. } => {
                *size_bytes
            }
            Self::Link { target } => target.len() as u64,
            Self::Folder { .. } | Self::Special { .. } => 0,
        }
    }

    /// Its permission bits, where it has some.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        match self {
            Self::File { mode, .. }
            | Self::Folder { mode }
            | Self::Large { mode, .. }
            | Self::Unreadable { mode, .. } => Some(*mode),
            Self::Link { .. } | Self::Special { .. } => None,
        }
    }

    /// Whether it is a folder that can be looked into.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }

    /// Whether it can be made again from what is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Link { .. } | Self::Folder { .. })
    }
}

mod quoted {
    //! Bytes in JSON as text.
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::path;

    pub(super) fn serialize<S: Serializer>(bytes: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&path::text_of(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
        let text = String::deserialize(deserializer)?;
        path::bytes_of(&text).map(Arc::from).ok_or_else(|| serde::de::Error::custom("its quotes are not in order"))
    }
}

/// An entry of a folder as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(crate) node: Node,
    /// The folder's own entries, when it is one.
    pub(crate) tree: Option<ObjectId>,
}

const FILE: u8 = 1;
const LINK: u8 = 2;
const FOLDER: u8 = 3;
const LARGE: u8 = 4;
const UNREADABLE: u8 = 5;
const UNREADABLE_FOLDER: u8 = 6;
const SPECIAL: u8 = 7;

/// Adds an entry to a folder's body. Entries come in the order of their names' bytes.
pub(crate) fn encode(body: &mut Vec<u8>, name: &[u8], node: &Node, tree: Option<&ObjectId>) {
    let mut put = |tag: u8, fields: &[&[u8]]| {
        body.push(tag);
        body.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        body.extend_from_slice(name);
        fields.iter().for_each(|field| body.extend_from_slice(field));
    };
    match node {
        Node::File { mode, size_bytes, content } => {
            put(FILE, &[&mode.to_le_bytes(), &size_bytes.to_le_bytes(), &content.0]);
        }
        Node::Link { target } => put(LINK, &[&(target.len() as u64).to_le_bytes(), target]),
        Node::Folder { mode } => {
            let tree = tree.map_or([0; ID_BYTES], |tree| tree.0);
            put(FOLDER, &[&mode.to_le_bytes(), &tree]);
        }
        Node::Large { mode, size_bytes, modified_ns } => {
            put(LARGE, &[&mode.to_le_bytes(), &size_bytes.to_le_bytes(), &modified_ns.to_le_bytes()]);
        }
        Node::Unreadable { folder, mode, size_bytes, modified_ns } => {
            let tag = if *folder { UNREADABLE_FOLDER } else { UNREADABLE };
            put(tag, &[&mode.to_le_bytes(), &size_bytes.to_le_bytes(), &modified_ns.to_le_bytes()]);
        }
        Node::Special { special } => {
            let byte = match special {
                Special::Pipe => 1,
                Special::Socket => 2,
                Special::Device => 3,
            };
            put(SPECIAL, &[&[byte]]);
        }
    }
}

/// The entries of a folder's body; `None` when it is not one.
pub(crate) fn decode(body: &[u8]) -> Option<Vec<Entry>> {
    let mut reader = Reader(body);
    let mut entries: Vec<Entry> = Vec::new();
    while !reader.0.is_empty() {
        let entry = reader.entry()?;
        if !path::is_name(&entry.name) || entries.last().is_some_and(|last| last.name >= entry.name) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// Reads numbers and bytes off a body, and nothing past its end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn id(&mut self) -> Option<ObjectId> {
        self.array().map(ObjectId)
    }

    /// Bytes with their number before them.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.u64()?).ok()?;
        self.bytes(count)
    }

    fn entry(&mut self) -> Option<Entry> {
        let tag = self.u8()?;
        let length = self.u16()?;
        let name = self.bytes(usize::from(length))?.into();
        let (node, tree) = self.node(tag)?;
        Some(Entry { name, node, tree })
    }

    /// What follows a tag and a name.
    pub(crate) fn node(&mut self, tag: u8) -> Option<(Node, Option<ObjectId>)> {
        let node = match tag {
            FILE => Node::File { mode: self.u32()?, size_bytes: self.u64()?, content: self.id()? },
            LINK => Node::Link { target: self.sized()?.into() },
            FOLDER => {
                let mode = self.u32()?;
                return Some((Node::Folder { mode }, Some(self.id()?)));
            }
            LARGE => Node::Large { mode: self.u32()?, size_bytes: self.u64()?, modified_ns: self.i64()? },
            UNREADABLE | UNREADABLE_FOLDER => Node::Unreadable {
                folder: tag == UNREADABLE_FOLDER,
                mode: self.u32()?,
                size_bytes: self.u64()?,
                modified_ns: self.i64()?,
            },
            SPECIAL => {
                let special = match self.u8()? {
                    1 => Special::Pipe,
                    2 => Special::Socket,
                    3 => Special::Device,
                    _ => return None,
                };
                Node::Special { special }
            }
            _ => return None,
        };
        Some((node, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Kind;

    fn sample() -> Vec<Entry> {
        let id = Kind::Content.id(b"x");
        let nodes = [
            Node::File { mode: 0o750, size_bytes: 1, content: id },
            Node::Link { target: Arc::from(&b"../\xff"[..]) },
            Node::Folder { mode: 0o755 },
            Node::Large { mode: 0o644, size_bytes: 1 << 40, modified_ns: -5 },
            Node::Unreadable { folder: false, mode: 0, size_bytes: 3, modified_ns: 7 },
            Node::Unreadable { folder: true, mode: 0, size_bytes: 0, modified_ns: 0 },
            Node::Special { special: Special::Socket },
        ];
        let entry = |(number, node): (usize, Node)| Entry {
            name: format!("{number}\n").into_bytes().into(),
            tree: node.is_folder().then_some(id),
            node,
        };
        nodes.into_iter().enumerate().map(entry).collect()
    }

    fn body(entries: &[Entry]) -> Vec<u8> {
        let mut body = Vec::new();
        entries.iter().for_each(|entry| encode(&mut body, &entry.name, &entry.node, entry.tree.as_ref()));
        body
    }

    #[test]
    fn a_folder_is_read_as_it_was_written() {
        let entries = sample();
        assert_eq!(decode(&body(&entries)).unwrap(), entries);
        for entry in entries {
            let json = serde_json::to_string(&entry.node).unwrap();
            assert_eq!(serde_json::from_str::<Node>(&json).unwrap(), entry.node, "{json}");
        }
    }

    #[test]
    fn a_cut_or_odd_folder_is_none() {
        let whole = body(&sample());
        let ends: Vec<usize> = (0..whole.len()).filter(|end| decode(&whole[..*end]).is_some()).collect();
        assert_eq!(ends.len(), sample().len(), "only whole entries are a folder: {ends:?}");
        for name in ["..", ".git", "a/b", ""] {
            let mut body = Vec::new();
            encode(&mut body, name.as_bytes(), &Node::Folder { mode: 0 }, None);
            assert!(decode(&body).is_none(), "{name}");
        }
        let twice = [sample()[0].clone(), sample()[0].clone()];
        assert!(decode(&self::body(&twice)).is_none());
    }
}
