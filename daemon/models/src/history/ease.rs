//! Leaving out what does not fit into a model's window, or is refused by it (pure).
//!
//! What a provider said of a request is all that is known for sure: windows differ from what catalogues tell, and no two
//! providers count alike. So each time it says "too long" so much is left out that the request gets a good part smaller:
//! first what old tool calls gave, then whole turns from the beginning, and in a long turn its first steps. What the user
//! said first is always kept.

use std::borrow::Cow;
use std::sync::Arc;

use mcode_events::ease::Ease;
use mcode_events::message::{Message, Part, Role};
use mcode_events::state::Entry;
use mcode_events::tool::{ResultPart, ToolResult};

/// Results of up to so many bytes are never cut.
const SHORT_BYTES: usize = 400;
/// So much of a longer one is kept.
const KEPT_BYTES: usize = 200;
/// The newest results are cut last.
const RECENT_RESULTS: usize = 2;
/// Of so many parts of a prompt two are to go at once.
const PARTS: usize = 5;

/// What the model is told in the place of what was left out whole.
pub const LEFT_OUT: &str = "[mcode] Earlier parts of this conversation are left out here: they do not fit into the model's \
                            window. Look again at what you need of files and commands.";
/// What the model is told in the place of a picture or a document.
pub const NO_PICTURE: &str = "[mcode] A picture or document is left out here: the model's provider refused it.";

/// The entries as they go into a prompt.
pub(super) fn applied<'a>(history: &'a [Arc<Entry>], ease: &Ease) -> Cow<'a, [Arc<Entry>]> {
    if *ease == Ease::default() {
        return Cow::Borrowed(history);
    }
    let kept = kept_words(history, ease.messages);
    let mut entries = Vec::with_capacity(history.len());
    for (at, entry) in history.iter().enumerate() {
        if at >= ease.messages || kept.contains(&at) {
            entries.push(eased_entry(entry, at < ease.pictures, at < ease.results));
        }
        if at + 1 == ease.messages {
            entries.extend(note(history));
        }
    }
    Cow::Owned(entries)
}

/// Whether anything in the prompt is a picture or a document.
#[must_use]
pub fn has_pictures(history: &[Arc<Entry>], ease: &Ease) -> bool {
    history.iter().skip(ease.pictures.max(ease.messages)).any(|entry| match entry.as_ref() {
        Entry::Message { message, .. } => message.parts.iter().any(|part| matches!(part, Part::Media { .. })),
        Entry::ToolResult { result, .. } => result.content.iter().any(|part| matches!(part, ResultPart::Media { .. })),
    })
}

/// What to leave out when a prompt made with `ease` is too long; `None` when nothing more can go.
#[must_use]
pub fn smaller(history: &[Arc<Entry>], ease: &Ease) -> Option<Ease> {
    let weights: Vec<usize> = history.iter().enumerate().map(|(at, entry)| weight(entry, at, ease)).collect();
    let target = weights.iter().sum::<usize>() * 2 / PARTS;
    let recent =
        history.iter().enumerate().rev().filter(|(_, entry)| matches!(entry.as_ref(), Entry::ToolResult { .. }));
    let old = recent.map(|(at, _)| at).nth(RECENT_RESULTS - 1).unwrap_or(0);
    let last_word = history.iter().rposition(|entry| speaker(entry) == Some(Role::User)).unwrap_or(0);
    let cut = |until: usize, least: usize| {
        let gained = gain(history, ease, until, target)?;
        (gained.1 >= least.max(1)).then_some(Ease { results: gained.0, ..*ease })
    };
    let dropped = |until: usize| {
        // What the user said in between comes at the place of the note.
        let kept = kept_words(history, until);
        let gone: usize = (ease.messages..until).filter(|at| !kept.contains(at)).map(|at| weights[at]).sum();
        (until > ease.messages && gone > LEFT_OUT.len()).then_some((Ease { messages: until, ..*ease }, gone))
    };
    let first_enough = |bounds: &mut dyn Iterator<Item = usize>| {
        let mut best = None;
        for until in bounds {
            let Some((ease, gone)) = dropped(until) else { continue };
            best = Some(ease);
            if gone >= target {
                break;
            }
        }
        best
    };
    let turns = |at: &usize| speaker(&history[*at]) == Some(Role::User);
    let steps = |at: &usize| speaker(&history[*at]) == Some(Role::Assistant);
    cut(old, target / 2)
        .or_else(|| first_enough(&mut (ease.messages + 1..=last_word).filter(turns)))
        .or_else(|| cut(history.len(), target / 2))
        .or_else(|| first_enough(&mut (last_word.max(ease.messages) + 1..history.len()).filter(steps)))
        .or_else(|| cut(history.len(), 1))
}

/// Cutting results before `until`, from the oldest on, until so much is gained: how far, and what it gives.
fn gain(history: &[Arc<Entry>], ease: &Ease, until: usize, enough: usize) -> Option<(usize, usize)> {
    let mut gained = (0, 0);
    for (at, entry) in history.iter().enumerate().take(until).skip(ease.results.max(ease.messages)) {
        let Entry::ToolResult { result, .. } = entry.as_ref() else { continue };
        let bytes = text_bytes(result);
        if bytes > SHORT_BYTES {
            gained = (at + 1, gained.1 + bytes - KEPT_BYTES);
        }
        if gained.1 >= enough {
            break;
        }
    }
    (gained.1 > 0).then_some(gained)
}

/// Which of the entries that go are kept all the same: what the user said first, and last, if nothing of the user's is
/// behind them.
fn kept_words(history: &[Arc<Entry>], gone: usize) -> Vec<usize> {
    let users = |entry: &Arc<Entry>| speaker(entry) == Some(Role::User);
    let (before, behind) = history.split_at(gone.min(history.len()));
    let last = if behind.iter().any(users) { None } else { before.iter().rposition(users) };
    before.iter().position(users).into_iter().chain(last).collect()
}

fn speaker(entry: &Entry) -> Option<Role> {
    if let Entry::Message { message, .. } = entry { Some(message.role) } else { None }
}

/// Bytes of an entry in the prompt, about.
fn weight(entry: &Entry, at: usize, ease: &Ease) -> usize {
    if at < ease.messages {
        return 0;
    }
    match entry {
        Entry::Message { message, .. } => message.parts.iter().map(part_bytes).sum(),
        Entry::ToolResult { result, .. } => {
            let bytes = text_bytes(result);
            if at < ease.results && bytes > SHORT_BYTES { KEPT_BYTES } else { bytes }
        }
    }
}

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text, .. } | Part::Thinking { text, .. } => text.len(),
        Part::ToolCall { arguments, .. } => arguments.to_string().len(),
        Part::RedactedThinking { opaque } | Part::Provider { opaque } => opaque.0.to_string().len(),
        Part::Media { .. } => 0,
    }
}

fn text_bytes(result: &ToolResult) -> usize {
    let texts = result.content.iter();
    texts.map(|part| if let ResultPart::Text { text } = part { text.len() } else { 0 }).sum()
}

fn eased_entry(entry: &Arc<Entry>, without_pictures: bool, cut: bool) -> Arc<Entry> {
    match entry.as_ref() {
        Entry::Message { message, turn_id } if without_pictures => {
            let parts = message.parts.iter().map(|part| match part {
                Part::Media { .. } => Part::text(NO_PICTURE),
                other => other.clone(),
            });
            Arc::new(Entry::Message {
                message: Message { parts: parts.collect(), ..message.clone() },
                turn_id: *turn_id,
            })
        }
        Entry::ToolResult { name, result } if without_pictures || cut => {
            let mut content: Vec<ResultPart> = result
                .content
                .iter()
                .map(|part| match part {
                    ResultPart::Media { .. } if without_pictures => ResultPart::Text { text: NO_PICTURE.to_owned() },
                    other => other.clone(),
                })
                .collect();
            if cut && text_bytes(result) > SHORT_BYTES {
                content = vec![ResultPart::Text { text: beginning(&result.joined_text()) }];
            }
            Arc::new(Entry::ToolResult { name: name.clone(), result: ToolResult { content, ..result.clone() } })
        }
        Entry::Message { .. } | Entry::ToolResult { .. } => Arc::clone(entry),
    }
}

fn beginning(text: &str) -> String {
    let kept = text.floor_char_boundary(KEPT_BYTES);
    format!(
        "{}\n[mcode] {} further bytes of this result are left out here, to make room. Call the tool again if you need them.",
        &text[..kept],
        text.len() - kept
    )
}

/// The note in the place of what is left out, said by whoever speaks for the user.
fn note(history: &[Arc<Entry>]) -> Option<Arc<Entry>> {
    history.iter().find_map(|entry| match entry.as_ref() {
        Entry::Message { message, .. } if message.role == Role::User => Some(Arc::new(Entry::Message {
            message: Message { parts: vec![Part::text(LEFT_OUT)], ..message.clone() },
            turn_id: None,
        })),
        _ => None,
    })
}
