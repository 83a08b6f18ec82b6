//! The part of the fold where a thread goes its own way, or goes back.

use mcode_ids::{Seq, ThreadId};
use serde::{Deserialize, Serialize};

use crate::event::{Event, EventBody};
use crate::message::Role;
use crate::run::RunStatus;
use crate::state::{Entry, OpenItems, ThreadState};
use crate::usage::Usage;

/// Where a thread went its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The thread that was there before.
    pub parent_id: ThreadId,
    /// The last event that is of both.
    pub seq: Seq,
}

impl ThreadState {
    pub(crate) fn apply_branching(&mut self, event: &Event) {
        match &event.body {
            EventBody::ThreadForked { parent_id, parent_seq, title } => {
                self.forked = Some(ForkPoint { parent_id: *parent_id, seq: *parent_seq });
                self.created_at_ms = event.at_ms;
                self.title.clone_from(title);
                (self.archived, self.pinned, self.ephemeral) = (false, false, false);
                self.tags.clear();
                // What the other thread has at work, and paid, is its own.
                self.open = OpenItems::default();
                self.queue.clear();
                self.usage = Usage::default();
                // What waits there for an answer is answered there.
                self.drop_open_plans(event.seq);
                for run in self.runs.iter_mut().filter(|run| run.ended_at_ms.is_none()) {
                    run.status = RunStatus::Interrupted;
                    run.ended_at_ms = Some(event.at_ms);
                }
            }
            EventBody::Rewound { to_seq, tasks } => {
                let left = self.said_at.partition_point(|seq| seq <= to_seq);
                // The model has not seen any more what these show; it has to look again before it changes the files.
                for entry in self.history.drain(left..) {
                    if let Entry::ToolResult { result, .. } = entry.as_ref() {
                        for file in &result.files {
                            self.files.remove(&file.path);
                        }
                    }
                }
                self.said_at.truncate(left);
                let last = self.history.iter().rev().find_map(|entry| match entry.as_ref() {
                    Entry::Message { message, .. } if message.role == Role::User => Some(message.preview()),
                    _ => None,
                });
                self.preview = last.unwrap_or_default();
                for ease in self.eases.values_mut() {
                    *ease = ease.within(left);
                }
                self.tasks.clone_from(tasks);
                self.rewind_plans(*to_seq, event.seq);
            }
            _ => {}
        }
    }
}
