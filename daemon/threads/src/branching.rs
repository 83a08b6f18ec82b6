//! Threads that go their own way, go back, or are called otherwise.

use std::sync::Arc;

use mcode_events::closing_events;
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::run::RunStatus;
use mcode_events::state::ThreadState;
use mcode_ids::{Seq, ThreadId};
use mcode_store::StoredResponse;
use mcode_tools::FileLedger;

use crate::actor::Actor;
use crate::command::{Change, NewFork};
use crate::error::ThreadError;

/// Longest title, in characters.
pub const TITLE_CHARS_MAX: usize = 200;

/// Tags of one thread.
pub const TAGS_MAX: usize = 20;

/// Longest tag, in characters.
pub const TAG_CHARS_MAX: usize = 50;

impl Actor {
    /// Makes this thread, which is new, from the beginning of another. Nothing of that is copied.
    pub(crate) async fn fork(&mut self, fork: NewFork) -> Result<Seq, ThreadError> {
        let NewFork { parent_id, at, title, request } = fork;
        let events = self.forked(parent_id, at, &title).await?;
        let parent_seq = self.state.last_seq;
        let request = request.map(|(id, fingerprint)| {
            let response = crate::registry::encode_made(self.thread_id, parent_seq);
            (id, StoredResponse { fingerprint, response })
        });
        self.append(events, request).await?;
        Ok(parent_seq)
    }

    /// Takes on the state of another thread at an event; gives the first events of this one, which is new.
    pub(crate) async fn forked(
        &mut self,
        parent_id: ThreadId,
        at: Option<Seq>,
        title: &str,
    ) -> Result<Vec<NewEvent>, ThreadError> {
        let state = self.beginning(parent_id, at).await?;
        let parent_seq = state.last_seq;
        if parent_seq == Seq::ZERO || at.is_some_and(|at| at != parent_seq) {
            let message = format!("{parent_id} has no event {}", at.unwrap_or_default());
            return Err(ThreadError::InvalidArgument { field: "at_seq", message });
        }
        let title = if title.is_empty() { state.title.clone() } else { checked_title(title)? };
        // The model is told what became of calls that were at work there. Nothing else of them is this thread's.
        let called = |new: &NewEvent| matches!(new.body, EventBody::ToolCallFinished { .. });
        let ends = closing_events(&state, RunStatus::Interrupted, "the thread was forked while it ran", false);
        let mut events: Vec<NewEvent> = ends.into_iter().filter(called).collect();
        events.push(NewEvent::of_thread(EventBody::ThreadForked { parent_id, parent_seq, title }));
        self.ledger = Arc::new(FileLedger::new(state.files.clone()));
        // What waits in the other thread is said there.
        self.state = Arc::new(ThreadState { thread_id: self.thread_id, queue: Vec::new(), ..state });
        Ok(events)
    }

    pub(crate) async fn beginning(&self, parent_id: ThreadId, at: Option<Seq>) -> Result<ThreadState, ThreadError> {
        let loaded = self.deps.store.load_to(parent_id, at).await?;
        let loaded = loaded.ok_or_else(|| ThreadError::NotFound { what: "thread", id: parent_id.to_string() })?;
        match loaded.damage {
            // What comes before the damage can be gone on with in a fork.
            Some(damage) => Err(damage.into()),
            None => Ok(loaded.state),
        }
    }

    /// Changes what the thread is called and where lists show it.
    pub(crate) async fn change(&mut self, change: Change) -> Result<Seq, ThreadError> {
        if let Some(expected) = change.expected.filter(|seq| *seq != self.state.last_seq) {
            return Err(ThreadError::MovedOn { thread_id: self.thread_id, expected, actual: self.state.last_seq });
        }
        let state = &self.state;
        let title = change.title.as_deref().map(checked_title).transpose()?.filter(|title| *title != state.title);
        let tags = change.tags.map(checked_tags).transpose()?.filter(|tags| *tags != state.tags);
        let archived = change.archived.filter(|archived| *archived != state.archived);
        let pinned = change.pinned.filter(|pinned| *pinned != state.pinned);
        let bodies = [
            title.map(|title| EventBody::TitleChanged { title }),
            archived.map(|archived| EventBody::ArchivedChanged { archived }),
            pinned.map(|pinned| EventBody::PinnedChanged { pinned }),
            tags.map(|tags| EventBody::TagsChanged { tags }),
        ];
        self.append(bodies.into_iter().flatten().map(NewEvent::of_thread).collect(), None).await
    }

    /// Goes back to an event: what was said after it is not given to the model any more. Gives how much that is.
    pub(crate) async fn rewind(&mut self, to: Seq) -> Result<u32, ThreadError> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone().into());
        }
        self.record_left_end().await?;
        if let Some(run_id) = self.state.open.run {
            return Err(ThreadError::RunActive { thread_id: self.thread_id, run_id });
        }
        if to == Seq::ZERO || to > self.state.last_seq {
            let message = format!("{} has no event {to}", self.thread_id);
            return Err(ThreadError::InvalidArgument { field: "to_seq", message });
        }
        let before = self.state.history.len();
        let back = self.rewound(to).await?;
        self.append(vec![back], None).await?;
        Ok(u32::try_from(before - self.state.history.len()).unwrap_or(u32::MAX))
    }

    /// The event that goes back to another.
    pub(crate) async fn rewound(&self, to: Seq) -> Result<NewEvent, ThreadError> {
        let then = self.deps.store.load_to(self.thread_id, Some(to)).await?;
        let tasks = then.map(|then| then.state.tasks).unwrap_or_default();
        Ok(NewEvent::of_thread(EventBody::Rewound { to_seq: to, tasks }))
    }
}

/// A title in one line, within its limit.
fn checked_title(title: &str) -> Result<String, ThreadError> {
    let line = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = match line.chars().count() {
        0 => "it is empty".to_owned(),
        count if count > TITLE_CHARS_MAX => format!("{count} characters are more than {TITLE_CHARS_MAX}"),
        _ if line.chars().any(char::is_control) => "it holds control characters".to_owned(),
        _ => return Ok(line),
    };
    Err(ThreadError::InvalidArgument { field: "title", message })
}

/// Tags in their order, each once.
fn checked_tags(tags: Vec<String>) -> Result<Vec<String>, ThreadError> {
    let refuse = |message| Err(ThreadError::InvalidArgument { field: "tags", message });
    let mut kept: Vec<String> = Vec::new();
    for tag in tags {
        let tag = tag.trim().to_owned();
        if tag.is_empty() || tag.chars().count() > TAG_CHARS_MAX {
            return refuse(format!("a tag has 1 to {TAG_CHARS_MAX} characters"));
        }
        if tag.chars().any(|char| char.is_control() || char.is_whitespace() || char == ',') {
            return refuse(format!("'{}' holds a space or a comma", tag.escape_debug()));
        }
        if !kept.contains(&tag) {
            kept.push(tag);
        }
    }
    if kept.len() > TAGS_MAX { refuse(format!("{} tags are more than {TAGS_MAX}", kept.len())) } else { Ok(kept) }
}
