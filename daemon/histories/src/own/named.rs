//! Which bodies events name.

use std::collections::BTreeMap;

use mcode_events::blob::{BlobRef, Blobs};
use mcode_events::message::Part;
use mcode_events::tool::ResultPart;
use mcode_events::{EventBody, Message};

/// Digits of a hash.
const HASH_DIGITS: usize = 64;

/// What a body is taken for that is named in words only.
pub(crate) const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";

/// A hash in its short form.
pub(crate) type Hash = [u8; 32];

/// Bodies that were named, and what they are.
#[derive(Debug, Default)]
pub(crate) struct Named(pub(crate) BTreeMap<Hash, Option<String>>);

impl Named {
    /// Notes what an event names. A reference counts whether or not its body is there; of what only looks like a hash
    /// in `payload` that counts which the store holds, as it does in the store itself.
    pub(crate) fn look(&mut self, body: &EventBody, payload: &str, blobs: &dyn Blobs) {
        for blob in references(body) {
            if let Some(hash) = hash(&blob.hash) {
                self.0.insert(hash, Some(blob.media_type.clone()));
            }
        }
        for word in words(payload) {
            let Some(hash) = hash(word) else { continue };
            if !self.0.contains_key(&hash) && blobs.holds(word) {
                self.0.insert(hash, None);
            }
        }
    }
}

/// Words that may be hashes.
pub(crate) fn words(payload: &str) -> impl Iterator<Item = &str> {
    payload.split(|char: char| !char.is_ascii_hexdigit()).filter(|word| word.len() == HASH_DIGITS)
}

/// The hash that these digits are; capitals are no hash, as they name no file of the store.
pub(crate) fn hash(digits: &str) -> Option<Hash> {
    if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    blake3::Hash::from_hex(digits).ok().map(|hash| *hash.as_bytes())
}

/// The digits of a hash.
pub(crate) fn digits(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// Bodies that an event refers to.
pub(crate) fn references<'a>(body: &'a EventBody) -> Vec<&'a BlobRef> {
    fn of_parts(parts: &[Part]) -> Vec<&BlobRef> {
        parts.iter().filter_map(|part| if let Part::Media { blob, .. } = part { Some(blob) } else { None }).collect()
    }
    match body {
        EventBody::InputQueued { parts, .. } | EventBody::MessageFinished { message: Message { parts, .. } } => {
            of_parts(parts)
        }
        EventBody::ToolCallFinished { result, .. } => {
            let media = |part: &'a ResultPart| match part {
                ResultPart::Media { blob, .. } => Some(blob),
                ResultPart::Text { .. } => None,
            };
            result.content.iter().filter_map(media).collect()
        }
        _ => Vec::new(),
    }
}
