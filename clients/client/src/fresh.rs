//! Live text that was shown already is left out when a new connection brings it again.

use std::collections::BTreeMap;

use mcode_proto::v1;
use mcode_proto::v1::event::Body;
use mcode_proto::v1::frame;

/// How far each item that is being written was given out.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    given: BTreeMap<(String, Lane), u64>,
}

/// An item has reasoning beside its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Words,
    Thinking,
}

impl Fresh {
    /// What of a frame is new; `None` when nothing is.
    pub(crate) fn part(&mut self, mut frame: v1::Frame) -> Option<v1::Frame> {
        let (delta, lane) = match &mut frame.body {
            Some(frame::Body::TextDelta(delta) | frame::Body::ToolOutputDelta(delta)) => (delta, Lane::Words),
            Some(frame::Body::ThinkingDelta(delta)) => (delta, Lane::Thinking),
            Some(frame::Body::ItemReset(reset)) => {
                let item_id = reset.item_id.clone();
                self.forget(&item_id);
                return Some(frame);
            }
            None => return Some(frame),
        };
        let given = self.given.entry((delta.item_id.clone(), lane)).or_default();
        let end = delta.offset.saturating_add(delta.text.len() as u64);
        if end <= *given {
            return None;
        }
        let known = usize::try_from(given.saturating_sub(delta.offset)).ok()?;
        // The daemon cuts between characters, and so did the earlier frame.
        let fresh = delta.text.get(known..)?.to_owned();
        delta.offset = end - fresh.len() as u64;
        delta.text = fresh;
        *given = end;
        Some(frame)
    }

    /// An item that has ended is not brought again.
    pub(crate) fn event(&mut self, event: &v1::Event) {
        match &event.body {
            Some(Body::MessageFinished(message)) => self.forget(&message.item_id),
            Some(Body::MessageDiscarded(message)) => self.forget(&message.item_id),
            Some(Body::ToolCallFinished(call)) => self.forget(&call.tool_call_id),
            _ => {}
        }
    }

    fn forget(&mut self, item_id: &str) {
        self.given.retain(|(known, _), _| known != item_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(offset: u64, text: &str) -> v1::Frame {
        let delta = v1::Delta { item_id: "itm_1".into(), offset, text: text.into() };
        v1::Frame { body: Some(frame::Body::TextDelta(delta)), ..Default::default() }
    }

    #[test]
    fn text_that_comes_again_is_cut() {
        let mut fresh = Fresh::default();
        assert_eq!(fresh.part(words(0, "héy ")), Some(words(0, "héy ")));
        assert_eq!(fresh.part(words(0, "héy ")), None);
        assert_eq!(fresh.part(words(0, "héy you")), Some(words(5, "you")));
        assert_eq!(fresh.part(words(8, "!")), Some(words(8, "!")));
        // Output whose beginning the daemon no longer has goes on where it is.
        assert_eq!(fresh.part(words(100, "tail")), Some(words(100, "tail")));
        let reset = v1::ItemReset { item_id: "itm_1".into(), reason: String::new() };
        fresh.part(v1::Frame { body: Some(frame::Body::ItemReset(reset)), ..Default::default() });
        assert_eq!(fresh.part(words(0, "anew")), Some(words(0, "anew")));
    }

    #[test]
    fn an_ended_item_is_forgotten() {
        let mut fresh = Fresh::default();
        fresh.part(words(0, "x"));
        let message = v1::MessageFinished { item_id: "itm_1".into(), ..Default::default() };
        fresh.event(&v1::Event { body: Some(Body::MessageFinished(message)), ..Default::default() });
        assert!(fresh.given.is_empty());
    }
}
