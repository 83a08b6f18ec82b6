//! Letting threads go that the user's policy of what is kept does not keep.
//!
//! Nothing goes unannounced: a policy that would delete something is noted and reported first, and acts only after
//! [`GRACE_MS`]; one that is changed waits anew. Each thread is looked at once more by its own actor, a record says which
//! went and why before it does, and only a few go at once, the one that was used longest ago first.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use mcode_checkpoints::{CheckpointError, SnapshotId};
use mcode_config::Effective;
use mcode_env::Timestamp;
use mcode_events::audit::{AuditEntry, AuditKind};
use mcode_ids::Seq;
use mcode_store::{Due, GRACE_MS, KEEP_TAG, Leaving, Policy};

use crate::actor::Actor;
use crate::audit::brief;
use crate::checkpoints::Depots;
use crate::command::{Command, Reply};
use crate::error::ThreadError;
use crate::registry::Threads;

/// How long after the start it is looked for the first time.
const FIRST: Duration = Duration::from_secs(5);

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(10 * 60);

/// Threads that go before it is looked again: what they gave back may be enough.
const AT_ONCE: usize = 10;

/// A state of files that no thread knows stays for so long, in milliseconds (1 day): one may be about to be written down.
const STATE_AGE_MS: i64 = 24 * 60 * 60 * 1000;

/// What the policy of what is kept does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// The settings, as in the file; empty when there are none.
    pub policy: String,
    /// Which threads it lets go, in that order.
    pub due: Due,
    /// When it was first seen that it would delete something, in milliseconds since 1970 UTC.
    pub noted_ms: Option<i64>,
    /// When it begins to delete, or has begun to; `None` while there is nothing to delete.
    pub acts_ms: Option<i64>,
}

/// The policy of a configuration.
fn policy(config: &Effective) -> Policy {
    let keeping = &config.keeping;
    Policy {
        keep_days: keeping.keep_days,
        project_bytes: keeping.max_bytes_per_project,
        body_bytes: keeping.max_body_bytes,
    }
}

impl Threads {
    /// What the policy does, without doing it.
    pub async fn retention(&self) -> Result<Retention, ThreadError> {
        let (policy, now) = (policy(&(self.deps().config)()), self.deps().clock.now().millis());
        let due = self.deps().store.due(policy, now).await?;
        let noted_ms = self.deps().store.policy_noted(policy).await?.filter(|noted| *noted <= now);
        // What is not noted yet is so by the next look.
        let acts_ms = (!due.leaving.is_empty()).then(|| noted_ms.unwrap_or(now).saturating_add(GRACE_MS));
        Ok(Retention { policy: policy.text(), due, noted_ms, acts_ms })
    }

    /// Keeps to the policy for as long as the daemon runs.
    pub async fn keep_to_policy(&self) {
        tokio::time::sleep(FIRST).await;
        loop {
            match self.let_go().await {
                Ok(gone) if gone > 0 => tracing::info!(gone, "threads were let go by the policy of what is kept"),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "threads that are not kept cannot be let go now"),
            }
            self.sweep_states().await;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Lets go what the policy does not keep; how many threads. Nothing, while a policy is new.
    pub async fn let_go(&self) -> Result<usize, ThreadError> {
        let mut gone = 0;
        loop {
            // The configuration may have been changed since the last few.
            let (policy, now) = (policy(&(self.deps().config)()), self.deps().clock.now().millis());
            let store = &self.deps().store;
            if policy.is_off() {
                store.forget_policy().await?;
                return Ok(gone);
            }
            let due = store.due(policy, now).await?;
            if due.leaving.is_empty() {
                return Ok(gone);
            }
            let known = store.policy_noted(policy).await?;
            let noted = store.note_policy(policy).await?;
            if known != Some(noted) {
                tracing::warn!(
                    policy = policy.text(),
                    threads = due.leaving.len(),
                    "the policy of what is kept would \
                     delete threads; it waits for 3 days: mcode doctor --db --retention shows them"
                );
            }
            if now < noted.saturating_add(GRACE_MS) {
                return Ok(gone);
            }
            let before = gone;
            for leaving in due.leaving {
                if gone - before == AT_ONCE {
                    break;
                }
                gone += usize::from(self.retire(&leaving, &policy.text()).await?);
            }
            if gone == before {
                return Ok(gone);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Lets a thread go; `false` when it is in use or was used since.
    async fn retire(&self, leaving: &Leaving, policy: &str) -> Result<bool, ThreadError> {
        let thread_id = leaving.thread_id;
        let used = Timestamp::from_millis(leaving.updated_at_ms).to_string();
        let entry = AuditEntry {
            subject: brief(&format!("{} ({})", leaving.title, leaving.root)),
            why: format!("{}: last used {used}, {} bytes", leaving.why.key(), leaving.bytes),
            rule: Some(policy.to_owned()),
            asker: "mcoded".to_owned(),
            answerer: "configuration".to_owned(),
            thread_id: Some(thread_id),
            ..AuditEntry::new(AuditKind::LetGo, "delete")
        };
        let expected = leaving.last_seq;
        let asked =
            self.ask(thread_id, |reply| Command::Retire { expected, entry: Box::new(entry.clone()), reply }).await;
        match asked {
            Ok(_) => Ok(true),
            Err(ThreadError::MovedOn { .. } | ThreadError::Damaged(_) | ThreadError::Busy(_)) => Ok(false),
            Err(ThreadError::NotLoaded { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Drops the states of files that no thread knows any more, of projects that have lost threads.
    async fn sweep_states(&self) {
        for root in self.deps().depots.held.take_left() {
            let named = match self.deps().store.snapshots_named(root.to_string_lossy().into_owned()).await {
                Ok(named) => named,
                Err(error) => {
                    tracing::debug!(%error, "which states of files are known cannot be told now");
                    continue;
                }
            };
            let (depots, before) = (std::sync::Arc::clone(&self.deps().depots), self.deps().clock.now());
            let before = Timestamp::from_millis(before.millis().saturating_sub(STATE_AGE_MS));
            let swept = tokio::task::spawn_blocking(move || depots.sweep(&root, &named, before)).await;
            if let Ok(Err(error)) = swept {
                tracing::debug!(%error, "states of files that nobody knows could not be dropped");
            }
        }
    }
}

impl Actor {
    /// Forgets the thread, when nothing of it is in use and nothing came since it was looked at.
    pub(crate) async fn retire(&mut self, expected: Seq, entry: AuditEntry, reply: Reply<u32>) {
        let state = &self.state;
        let in_use = self.active.is_some()
            || !state.open.is_empty()
            || state.pinned
            || state.tags.iter().any(|tag| tag == KEEP_TAG)
            || self.head.receiver_count() > 0
            || !self.deps.processes.list(self.thread_id).is_empty();
        let refused = if let Some(damage) = &self.damage {
            Some(damage.clone().into())
        } else if in_use || state.last_seq != expected {
            Some(ThreadError::MovedOn { thread_id: self.thread_id, expected, actual: state.last_seq })
        } else {
            self.deps.store.audit(vec![entry]).await.err().map(ThreadError::from)
        };
        match refused {
            Some(error) => drop(reply.send(Err(error))),
            None => self.end(true, reply),
        }
    }
}

impl Depots {
    /// Drops all states that were taken before a moment but those that are named or held. Blocking.
    pub(crate) fn sweep(&self, root: &Path, named: &HashSet<String>, before: Timestamp) -> Result<(), CheckpointError> {
        if !self.has(root) {
            return Ok(());
        }
        let mut keep: HashSet<SnapshotId> = named.iter().filter_map(|name| name.parse().ok()).collect();
        keep.extend(self.held.of(root));
        self.depot(root)?.retain(&keep, before).map(drop)
    }
}
