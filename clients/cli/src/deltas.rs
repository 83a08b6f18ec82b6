//! Words that were in the log before they could be seen as live text.
//!
//! Whoever reads JSON lines gets every message as deltas that join to its text; an answer that came faster than we could
//! subscribe, or whose live text was never sent, gets them all the same.

use std::collections::BTreeMap;

use mcode_client::v1;
use mcode_client::v1::event::Body;
use mcode_client::v1::frame;

/// How far each message that is being written was shown.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    shown: BTreeMap<String, Shown>,
}

/// Bytes that were shown.
#[derive(Debug, Default, Clone, Copy)]
struct Shown {
    text: u64,
    thinking: u64,
}

impl Deltas {
    /// Notes a live update.
    pub(crate) fn frame(&mut self, frame: &v1::Frame) {
        match &frame.body {
            Some(frame::Body::TextDelta(delta)) => {
                self.shown.entry(delta.item_id.clone()).or_default().text = end(delta);
            }
            Some(frame::Body::ThinkingDelta(delta)) => {
                self.shown.entry(delta.item_id.clone()).or_default().thinking = end(delta);
            }
            Some(frame::Body::ItemReset(reset)) => drop(self.shown.remove(&reset.item_id)),
            _ => {}
        }
    }

    /// Whether words of this message were shown already.
    pub(crate) fn has_begun(&self, item_id: &str) -> bool {
        self.shown.get(item_id).is_some_and(|shown| shown.text > 0)
    }

    /// What is left to show before this event ends its message.
    pub(crate) fn rest(&mut self, event: &v1::Event) -> Vec<v1::Frame> {
        let Some(Body::MessageFinished(message)) = &event.body else { return Vec::new() };
        if message.role != "assistant" {
            return Vec::new();
        }
        let shown = self.shown.remove(&message.item_id).unwrap_or_default();
        let rest = |whole: &str, from: u64| {
            let text = usize::try_from(from).ok().and_then(|at| whole.get(at..)).unwrap_or_default().to_owned();
            (!text.is_empty()).then(|| v1::Delta { item_id: message.item_id.clone(), offset: from, text })
        };
        let thinking = rest(&message.thinking, shown.thinking).map(frame::Body::ThinkingDelta);
        let text = rest(&message.text, shown.text).map(frame::Body::TextDelta);
        [thinking, text]
            .into_iter()
            .flatten()
            .map(|body| v1::Frame {
                thread_id: event.thread_id.clone(),
                run_id: event.run_id.clone(),
                body: Some(body),
            })
            .collect()
    }
}

fn end(delta: &v1::Delta) -> u64 {
    delta.offset.saturating_add(delta.text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(text: &str) -> v1::Event {
        let message = v1::MessageFinished {
            item_id: "itm_1".into(),
            role: "assistant".into(),
            text: text.into(),
            ..Default::default()
        };
        v1::Event { run_id: "run_1".into(), body: Some(Body::MessageFinished(message)), ..Default::default() }
    }

    fn delta(offset: u64, text: &str) -> frame::Body {
        frame::Body::TextDelta(v1::Delta { item_id: "itm_1".into(), offset, text: text.into() })
    }

    #[test]
    fn what_was_not_seen_live_is_shown_at_the_end() {
        let frame = |body| v1::Frame { run_id: "run_1".into(), body: Some(body), ..Default::default() };
        assert_eq!(Deltas::default().rest(&finished("héy")), [frame(delta(0, "héy"))]);
        let mut deltas = Deltas::default();
        deltas.frame(&frame(delta(0, "hé")));
        assert_eq!(deltas.rest(&finished("héy")), [frame(delta(3, "y"))]);
        deltas.frame(&frame(delta(0, "héy")));
        assert_eq!(deltas.rest(&finished("héy")), []);
        deltas.frame(&frame(delta(0, "lost")));
        let reset = v1::ItemReset { item_id: "itm_1".into(), reason: String::new() };
        deltas.frame(&frame(frame::Body::ItemReset(reset)));
        assert_eq!(deltas.rest(&finished("a")), [frame(delta(0, "a"))]);
    }
}
