//! Names of what is kept: hashes of content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a hash.
pub(crate) const ID_BYTES: usize = 32;

/// What kind of body an object holds. The kinds are hashed apart, so that a file whose content looks like a folder is
/// never taken for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The bytes of a file.
    Content,
    /// The entries of a folder.
    Tree,
    /// What a snapshot is made of.
    Root,
}

impl Kind {
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Content => 1,
            Self::Tree => 2,
            Self::Root => 3,
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Content),
            2 => Some(Self::Tree),
            3 => Some(Self::Root),
            _ => None,
        }
    }

    /// The hash of a body of this kind.
    pub(crate) fn id(self, body: &[u8]) -> ObjectId {
        let hash = match self {
            Self::Content => blake3::hash(body),
            Self::Tree => blake3::Hasher::new_derive_key("mcode depot 1: folder").update(body).finalize(),
            Self::Root => blake3::Hasher::new_derive_key("mcode depot 1: snapshot").update(body).finalize(),
        };
        ObjectId(*hash.as_bytes())
    }
}

/// The hash of a body. For the content of a file it is its BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(crate) [u8; ID_BYTES]);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not the name of a snapshot (expected 64 hex digits)")]
pub struct ParseIdError {
    /// What was given, cut at 80 characters.
    pub text: String,
}

impl FromStr for ObjectId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut id = [0; ID_BYTES];
        let bytes = text.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
        let whole = bytes.len() == 2 * ID_BYTES
            && bytes.chunks_exact(2).zip(&mut id).all(|(pair, byte)| match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => {
                    *byte = u8::try_from(high * 16 + low).unwrap_or_default();
                    true
                }
                _ => false,
            });
        whole.then_some(Self(id)).ok_or_else(|| ParseIdError { text: text.chars().take(80).collect() })
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Names a snapshot by what it holds: two snapshots of the same state are the same snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotId(pub(crate) ObjectId);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for SnapshotId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_nothing_else_is() {
        let id = SnapshotId(Kind::Root.id(b"x"));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(serde_json::from_str::<SnapshotId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        let text = id.to_string();
        for wrong in ["", "x", &text[1..], &text.to_uppercase(), &format!("{text}0"), &text.replace(&text[..1], "g")] {
            assert!(wrong.parse::<SnapshotId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_never_named_like_a_folder_of_the_same_bytes() {
        let ids = [Kind::Content, Kind::Tree, Kind::Root].map(|kind| kind.id(b"the same"));
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_eq!(ids[0].to_string(), blake3::hash(b"the same").to_hex().as_str());
    }
}
