//! Bodies too large for an event, kept once under the hash of their content.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names a stored body.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobRef {
    /// BLAKE3 of the content, 64 hex digits.
    pub hash: String,
    /// Size of the content in bytes.
    pub size_bytes: u64,
    /// What it is, as a MIME type.
    pub media_type: String,
}

/// A body could not be kept or brought.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Nothing is stored under this hash.
    #[error("blob {0} is not in the store")]
    Missing(String),
    /// The stored content is not what its hash says.
    #[error("blob {0} is damaged: its content does not match its hash")]
    Damaged(String),
    /// The disk refused.
    #[error("blob {hash} could not be stored or read")]
    Io {
        /// The hash.
        hash: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// Keeps and brings bodies by hash. Blocking: call from a thread that may wait for the disk.
pub trait Blobs: Send + Sync + fmt::Debug {
    /// Keeps `content`; the same content twice is stored once.
    fn put(&self, content: &[u8], media_type: &str) -> Result<BlobRef, BlobError>;
    /// The content of a stored body.
    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError>;
    /// Whether there is a body of this hash, damaged or not.
    fn holds(&self, hash: &str) -> bool {
        !matches!(self.get(hash), Err(BlobError::Missing(_)))
    }
}
