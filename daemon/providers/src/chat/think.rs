//! Splits `<think>…</think>` off the start of content, as local models write it.
//!
//! Only the very start counts: a model that writes about the tag in the middle of its answer is not touched. The tag
//! may be cut anywhere. Some templates write the opening tag themselves, so that only the closing one is seen; that
//! can be told only at the end, and is done for answers whose whole beginning up to the tag is at hand.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A piece of content after the split.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Words.
    Text(&'a str),
    /// Reasoning.
    Thinking(&'a str),
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing but white space or a part of the tag was seen.
    #[default]
    Start,
    /// Inside the reasoning.
    Thinking,
    /// After the tag, white space is still dropped.
    AfterTag,
    /// Content as it is.
    Text,
}

/// The splitter of one response.
#[derive(Debug, Default)]
pub(crate) struct ThinkSplit {
    state: State,
    held: String,
}

impl ThinkSplit {
    /// A splitter that passes everything through as text.
    pub(crate) fn off() -> Self {
        Self { state: State::Text, held: String::new() }
    }

    /// Takes more content.
    pub(crate) fn feed(&mut self, delta: &str, give: &mut impl FnMut(Piece<'_>)) {
        if self.state == State::Text {
            return give(Piece::Text(delta));
        }
        self.held.push_str(delta);
        self.settle(give);
    }

    fn settle(&mut self, give: &mut impl FnMut(Piece<'_>)) {
        loop {
            match self.state {
                State::Start => {
                    let begin = self.held.trim_start();
                    if let Some(rest) = begin.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.state = State::Thinking;
                        continue;
                    }
                    if OPEN.starts_with(begin) {
                        return;
                    }
                    self.state = State::Text;
                    return give(Piece::Text(&std::mem::take(&mut self.held)));
                }
                State::Thinking => {
                    if let Some(at) = self.held.find(CLOSE) {
                        let rest = self.held.split_off(at + CLOSE.len());
                        self.held.truncate(at);
                        let thinking = std::mem::replace(&mut self.held, rest);
                        if !thinking.is_empty() {
                            give(Piece::Thinking(&thinking));
                        }
                        self.state = State::AfterTag;
                        continue;
                    }
                    let keep = tag_tail(&self.held);
                    let rest = self.held.split_off(self.held.len() - keep);
                    let thinking = std::mem::replace(&mut self.held, rest);
                    if !thinking.is_empty() {
                        give(Piece::Thinking(&thinking));
                    }
                    return;
                }
                State::AfterTag => {
                    let rest = self.held.trim_start();
                    if rest.is_empty() {
                        self.held.clear();
                        return;
                    }
                    let rest = rest.to_owned();
                    self.held.clear();
                    self.state = State::Text;
                    return give(Piece::Text(&rest));
                }
                State::Text => return,
            }
        }
    }

    /// The content ended: gives what was held back.
    pub(crate) fn finish(&mut self, give: &mut impl FnMut(Piece<'_>)) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        give(if self.state == State::Thinking { Piece::Thinking(&held) } else { Piece::Text(&held) });
    }
}

/// How many bytes at the end of `text` may be the beginning of the closing tag.
fn tag_tail(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|length| text.ends_with(&CLOSE[..*length])).unwrap_or(0)
}

/// Content whose opening tag was written by the template: reasoning and words, when a closing tag stands in it
/// without an opening one.
pub(crate) fn split_unopened(text: &str) -> Option<(&str, &str)> {
    let at = text.find(CLOSE)?;
    if text[..at].contains(OPEN) {
        return None;
    }
    // A tag in the midst of a line is a quotation, not the end of reasoning.
    let before = &text[..at];
    let alone = before.is_empty() || before.ends_with('\n');
    let rest = &text[at + CLOSE.len()..];
    let rest_alone = rest.is_empty() || rest.starts_with('\n');
    (alone && rest_alone).then(|| (before.trim(), rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&str]) -> (String, String) {
        let mut splitter = ThinkSplit::default();
        let (mut text, mut thinking) = (String::new(), String::new());
        let mut give = |piece: Piece<'_>| match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::Thinking(more) => thinking.push_str(more),
        };
        for piece in pieces {
            splitter.feed(piece, &mut give);
        }
        splitter.finish(&mut give);
        (text, thinking)
    }

    #[test]
    fn any_cut_of_the_tags_gives_the_same() {
        let content = "\n<think>one < two </thin\n</think>\n\nansw<think>er";
        let expected = ("answ<think>er".to_owned(), "one < two </thin\n".to_owned());
        for first in 0..=content.len() {
            for second in first..=content.len() {
                assert_eq!(split(&[&content[..first], &content[first..second], &content[second..]]), expected);
            }
        }
    }

    #[test]
    fn other_content_is_not_touched() {
        for content in ["", "hi", "<", "<thin", "  <thing>", "a <think>b</think>", "<b>x"] {
            assert_eq!(split(&[content]), (content.to_owned(), String::new()), "{content}");
        }
        assert_eq!(split(&["<think>never closed"]), (String::new(), "never closed".to_owned()));
    }

    #[test]
    fn a_closing_tag_alone_ends_reasoning_only_on_its_own_line() {
        assert_eq!(split_unopened("so it is\n</think>\n\nyes"), Some(("so it is", "yes")));
        assert_eq!(split_unopened("write `</think>` to end it"), None);
        assert_eq!(split_unopened("none"), None);
    }
}
