//! The live lane: what is being written right now, for those who watch.
//!
//! Level-triggered: readers wait for a change, then copy what lies beyond their own offset. A slow reader gets larger
//! pieces and less of them; nothing queues up for anybody. The durable event that ends an item holds all of its text,
//! so the item is simply dropped here.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcode_ids::{ItemId, RunId, ToolCallId};
use tokio::sync::watch;

/// The most of a running command's output that is kept for late watchers, in bytes.
pub const OUTPUT_KEPT_BYTES: usize = 64 * 1024;

/// What is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveKey {
    /// A message of the assistant.
    Message(ItemId),
    /// The output of a tool call.
    ToolCall(ToolCallId),
}

/// A text that grows; its beginning may have been dropped.
#[derive(Debug, Clone, Default)]
pub struct LiveText {
    dropped: u64,
    text: String,
}

impl LiveText {
    /// Where the text ends, in bytes from its very beginning.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.dropped + self.text.len() as u64
    }

    /// What lies beyond `offset`, and where that piece begins (later than `offset` if the beginning was dropped).
    #[must_use]
    pub fn after(&self, offset: u64) -> Option<(u64, &str)> {
        let start = offset.max(self.dropped);
        let piece = self.text.get(usize::try_from(start - self.dropped).ok()?..)?;
        (!piece.is_empty()).then_some((start, piece))
    }

    fn push(&mut self, text: &str, keep: Option<usize>) {
        self.text.push_str(text);
        let Some(keep) = keep else { return };
        // Dropping only when twice as much as wanted is there makes the cost of it constant per byte.
        if self.text.len() > keep * 2 {
            let mut cut = self.text.len() - keep;
            while !self.text.is_char_boundary(cut) {
                cut += 1;
            }
            self.text.drain(..cut);
            self.dropped += cut as u64;
        }
    }
}

/// An item that is being written.
#[derive(Debug, Clone)]
pub struct LiveItem {
    /// The run that writes it.
    pub run_id: RunId,
    /// Words, or output.
    pub text: LiveText,
    /// Visible reasoning.
    pub thinking: LiveText,
}

/// Everything that is being written in a thread.
#[derive(Debug, Clone, Default)]
pub struct LiveState {
    /// By item.
    pub items: BTreeMap<LiveKey, LiveItem>,
}

/// The live lane of one thread.
#[derive(Debug, Clone)]
pub struct LiveLane(Arc<watch::Sender<LiveState>>);

impl Default for LiveLane {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(LiveState::default())))
    }
}

impl LiveLane {
    /// For readers.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<LiveState> {
        self.0.subscribe()
    }

    /// Begins an item.
    pub fn open(&self, key: LiveKey, run_id: RunId) {
        self.0.send_modify(|state| {
            state.items.insert(key, LiveItem { run_id, text: LiveText::default(), thinking: LiveText::default() });
        });
    }

    /// More words.
    pub fn push_text(&self, key: LiveKey, text: &str) {
        let keep = matches!(key, LiveKey::ToolCall(_)).then_some(OUTPUT_KEPT_BYTES);
        self.push(key, |item| item.text.push(text, keep));
    }

    /// More reasoning.
    pub fn push_thinking(&self, key: LiveKey, text: &str) {
        self.push(key, |item| item.thinking.push(text, None));
    }

    fn push(&self, key: LiveKey, write: impl FnOnce(&mut LiveItem)) {
        self.0.send_if_modified(|state| match state.items.get_mut(&key) {
            Some(item) => {
                write(item);
                true
            }
            None => false,
        });
    }

    /// Ends an item: its durable event has been published.
    pub fn close(&self, key: LiveKey) {
        self.0.send_if_modified(|state| state.items.remove(&key).is_some());
    }

    /// Ends all items.
    pub fn clear(&self) {
        self.0.send_if_modified(|state| {
            let had = !state.items.is_empty();
            state.items.clear();
            had
        });
    }
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};

    use super::*;

    #[test]
    fn readers_get_what_lies_beyond_their_offset() {
        let ids = SeededIds::new(1);
        let (lane, run_id) = (LiveLane::default(), RunId::from_uuid(ids.next()));
        let key = LiveKey::Message(ItemId::from_uuid(ids.next()));
        lane.push_text(key, "before it is open");
        lane.open(key, run_id);
        lane.push_text(key, "héé");
        let reader = lane.subscribe();
        let state = reader.borrow();
        let text = &state.items[&key].text;
        assert_eq!(text.after(0), Some((0, "héé")));
        assert_eq!(text.after(3), Some((3, "é")));
        assert_eq!(text.after(text.end()), None);
    }

    #[test]
    fn output_keeps_its_tail_only() {
        let ids = SeededIds::new(2);
        let lane = LiveLane::default();
        let key = LiveKey::ToolCall(ToolCallId::from_uuid(ids.next()));
        lane.open(key, RunId::from_uuid(ids.next()));
        for _ in 0..40 {
            lane.push_text(key, &"é".repeat(OUTPUT_KEPT_BYTES / 20));
        }
        let reader = lane.subscribe();
        let state = reader.borrow();
        let text = &state.items[&key].text;
        assert_eq!(text.end(), 40 * (OUTPUT_KEPT_BYTES as u64 / 20) * 2);
        let (start, piece) = text.after(0).unwrap();
        assert!(piece.len() <= OUTPUT_KEPT_BYTES * 2 && piece.len() >= OUTPUT_KEPT_BYTES - 2, "{}", piece.len());
        assert_eq!(start + piece.len() as u64, text.end());
    }
}
