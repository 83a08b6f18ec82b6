//! Brings the bytes of pictures and documents that a prompt names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mcode_events::blob::{BlobRef, Blobs};
use mcode_events::message::Part;
use mcode_models::request::{MediaData, PromptMessage};

/// Media in one request together, in bytes; older ones beyond that are sent as a note.
pub const REQUEST_MEDIA_BYTES_MAX: usize = 24 * 1024 * 1024;

/// The media that the messages name, newest first, up to [`REQUEST_MEDIA_BYTES_MAX`]. Blocking.
#[must_use]
pub fn bring(messages: &[PromptMessage], blobs: &dyn Blobs) -> BTreeMap<String, MediaData> {
    let (mut media, mut tried, mut total) = (BTreeMap::new(), BTreeSet::new(), 0usize);
    for blob in messages.iter().rev().flat_map(named) {
        if !tried.insert(&blob.hash) {
            continue;
        }
        // A missing or damaged picture must not stop the conversation: the wire sends a note in its place.
        let Ok(bytes) = blobs.get(&blob.hash) else { continue };
        if total + bytes.len() > REQUEST_MEDIA_BYTES_MAX {
            break;
        }
        total += bytes.len();
        media.insert(blob.hash.clone(), MediaData { media_type: blob.media_type.clone(), bytes: Arc::from(bytes) });
    }
    media
}

/// Whether the messages name any media.
#[must_use]
pub fn any(messages: &[PromptMessage]) -> bool {
    messages.iter().any(|message| !named(message).is_empty())
}

fn named(message: &PromptMessage) -> Vec<&BlobRef> {
    match message {
        PromptMessage::User(parts) => parts
            .iter()
            .filter_map(|part| if let Part::Media { blob, .. } = part { Some(blob) } else { None })
            .collect(),
        PromptMessage::Tools(answers) => {
            answers.iter().flat_map(|answer| answer.media.iter().map(|(blob, _)| blob)).collect()
        }
        PromptMessage::Assistant { .. } => Vec::new(),
    }
}
