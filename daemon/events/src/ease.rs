//! What of a history the model is not given any more.

use serde::{Deserialize, Serialize};

/// What of a history is left out of prompts, since it does not fit or is refused. Numbers of its first entries; they only
/// grow. The history itself stays as it was, for people and for searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ease {
    /// Entries whose pictures and documents are told of in words.
    #[serde(default)]
    pub pictures: usize,
    /// Entries of which long results are cut to their beginnings.
    #[serde(default)]
    pub results: usize,
    /// Entries that are left out whole, but for what the user said first.
    #[serde(default)]
    pub messages: usize,
}

impl Ease {
    /// Everything that this or `other` leaves out.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pictures: self.pictures.max(other.pictures),
            results: self.results.max(other.results),
            messages: self.messages.max(other.messages),
        }
    }

    /// The same for a history of which only so many entries are left.
    #[must_use]
    pub fn within(self, entries: usize) -> Self {
        let Self { pictures, results, messages } = self;
        Self { pictures: pictures.min(entries), results: results.min(entries), messages: messages.min(entries) }
    }
}
