//! Mending what is damaged: the store sets it aside, and each thread is told and taken up again.

use std::path::PathBuf;

use mcode_events::event::{EventBody, NewEvent};
use mcode_ids::ThreadId;
use mcode_store::{ArchiveError, Check, Copied, Mended};

use crate::actor::Actor;
use crate::command::Command;
use crate::error::ThreadError;
use crate::registry::Threads;

impl Threads {
    /// Looks through everything that is kept.
    pub async fn check(&self) -> Result<Check, ThreadError> {
        Ok(self.deps().store.check().await?)
    }

    /// Writes a copy of everything into a file that is not there yet.
    pub async fn back_up(&self, path: PathBuf) -> Result<Copied, ArchiveError> {
        self.deps().store.back_up(path).await
    }

    /// Mends what can be mended; a notice in each thread says what it has lost. Bodies whose folder looks absent are given
    /// up only when the user knows that they are lost.
    pub async fn mend(&self, bodies_are_lost: bool) -> Result<Mended, ThreadError> {
        let mended = self.deps().store.mend(bodies_are_lost).await?;
        let hurt: std::collections::BTreeSet<ThreadId> =
            mended.set_aside.keys().chain(mended.lost.keys()).chain(&mended.threads).copied().collect();
        for thread_id in hurt {
            let text = told(&mended, thread_id);
            let asked = self.ask(thread_id, |reply| Command::Mended { text: text.clone(), reply }).await;
            // A body may be named by a log whose own thread is gone.
            if let Err(error) = asked {
                tracing::warn!(%thread_id, %error, "the thread could not be told what it has lost");
            }
        }
        Ok(mended)
    }
}

/// What a thread is told; empty when it has lost nothing.
fn told(mended: &Mended, thread_id: ThreadId) -> String {
    let count = |count: Option<&u64>, one: &str, more: &str| {
        count.map(|count| if *count == 1 { format!("1 {one}") } else { format!("{count} {more}") })
    };
    let events =
        count(mended.set_aside.get(&thread_id), "event that could not be read", "events that could not be read");
    let bodies = count(mended.lost.get(&thread_id), "stored body", "stored bodies");
    let lost: Vec<String> = events.into_iter().chain(bodies.map(|bodies| format!("{bodies} that are lost"))).collect();
    if lost.is_empty() {
        return String::new();
    }
    format!("This thread was mended: {} were set aside, and the thread goes on without them.", lost.join(" and "))
}

impl Actor {
    /// Takes the thread up as its log is now.
    pub(crate) async fn mended(&mut self, text: String) -> Result<(), ThreadError> {
        if self.damage.is_some() {
            self.reload().await;
            self.head.send_replace(self.state.last_seq);
        }
        if text.is_empty() || self.state.project_id.is_none() {
            return Ok(());
        }
        let notice = EventBody::Notice { level: "warning".to_owned(), text };
        self.append(vec![NewEvent::of_thread(notice)], None).await.map(drop)
    }
}
