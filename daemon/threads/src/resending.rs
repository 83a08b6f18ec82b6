//! A message of the user's that is said again, changed: the thread goes back, or a fork of it is made, in the commit that
//! begins the run. So nothing is taken back without what takes its place.

use mcode_events::event::{EventBody, NewEvent};
use mcode_events::message::{Part, Role};
use mcode_events::state::{Entry, ThreadState};
use mcode_ids::{Seq, ThreadId};

use crate::actor::Actor;
use crate::command::NewRun;
use crate::error::ThreadError;
use crate::inputs::OWN_MARK;

/// Events before a message that are looked at for those that began its run with it.
const BEGUN_WITH_MAX: u64 = 2;

/// Their bytes at most.
const BEGUN_WITH_BYTES_MAX: usize = 256 * 1024;

/// A message of the user's.
struct Earlier {
    seq: Seq,
    media: Vec<Part>,
}

impl Actor {
    /// What goes before the run when it is said in the place of an earlier message; nothing for any other.
    pub(crate) async fn taken_back(&mut self, run: &mut NewRun) -> Result<Vec<NewEvent>, ThreadError> {
        let Some(resend) = run.resend else { return Ok(Vec::new()) };
        let Some(thread_id) = run.thread_id else {
            let message = "a message can only be said again in a thread that is there".to_owned();
            return Err(ThreadError::InvalidArgument { field: "thread_id", message });
        };
        let earlier = if resend.in_fork {
            earlier(&self.beginning(thread_id, None).await?, thread_id, resend.at)?
        } else {
            earlier(&self.state, thread_id, resend.at)?
        };
        if !run.parts.iter().any(is_media) {
            run.parts.extend(earlier.media);
        }
        let to = self.before(thread_id, earlier.seq).await?;
        if resend.in_fork {
            return self.forked(thread_id, Some(to), &run.title).await;
        }
        Ok(vec![self.rewound(to).await?])
    }

    /// The last event before a message, and before the beginning of its run if it began it: a fork shows no run that was
    /// cut off. The mode and the model that were chosen for it stay.
    async fn before(&self, thread_id: ThreadId, message: Seq) -> Result<Seq, ThreadError> {
        let mut to = message.get().saturating_sub(1).max(1);
        let after = to.saturating_sub(BEGUN_WITH_MAX).max(1);
        let max = u32::try_from(to.saturating_sub(after)).unwrap_or(0);
        let events = self.deps.store.read(thread_id, Seq::new(after), max, BEGUN_WITH_BYTES_MAX).await?;
        for event in events.iter().rev() {
            let begins = matches!(event.body, EventBody::RunStarted { .. } | EventBody::TurnStarted { .. });
            if event.seq.get() != to || !begins {
                break;
            }
            to -= 1;
        }
        Ok(Seq::new(to))
    }
}

const fn is_media(part: &Part) -> bool {
    matches!(part, Part::Media { .. })
}

/// The message of the user's at an event, or the last one. What mcode itself told the model is none.
fn earlier(state: &ThreadState, thread_id: ThreadId, at: Option<Seq>) -> Result<Earlier, ThreadError> {
    let said = state.history.iter().zip(&state.said_at).rev().filter_map(|(entry, seq)| match entry.as_ref() {
        Entry::Message { message, .. } if message.role == Role::User && !message.text().starts_with(OWN_MARK) => {
            Some((message, *seq))
        }
        _ => None,
    });
    let mut before = None;
    for (message, seq) in said {
        if at.is_none_or(|at| at == seq) {
            return Ok(Earlier { seq, media: message.parts.iter().filter(|part| is_media(part)).cloned().collect() });
        }
        if before.is_none() && at.is_some_and(|at| seq < at) {
            before = Some(seq);
        }
    }
    let message = match (at, before) {
        (None, _) => format!("nothing was said in {thread_id} yet"),
        (Some(at), Some(before)) => {
            format!(
                "event {at} of {thread_id} is no message of the user's that counts; event {before} is the one before it"
            )
        }
        (Some(at), None) => format!("event {at} of {thread_id} is no message of the user's that counts"),
    };
    Err(ThreadError::InvalidArgument { field: "resend.at_seq", message })
}
