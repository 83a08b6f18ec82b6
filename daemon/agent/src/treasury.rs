//! Limits in money that all runs share: each request asks before it is sent.
//!
//! What is judged is in [`mcode_models::budget`]. Whoever comes first is judged first, so that nobody is passed by smaller
//! requests for ever. What a request held is released when its cost is on record: in between it counts twice, never not at
//! all. Nothing of this is stored: what was spent comes from the log.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use mcode_events::usage::NanoUsd;
use mcode_ids::GoalId;
use mcode_models::budget::{Admission, Cap, CapScope, Held, judge};
use tokio::sync::Notify;

/// Requests that may wait for others to be paid; more are refused.
pub const WAITING_MAX: usize = 1024;

/// Tells what the log knows to have been spent against a limit; the error is for people.
pub type Spent = Arc<dyn Fn(CapScope) -> BoxFuture<'static, Result<NanoUsd, String>> + Send + Sync>;

/// Why there is no money for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoMoney {
    /// A limit is reached.
    Reached {
        /// Which.
        cap: Cap,
        /// What is spent.
        spent: NanoUsd,
    },
    /// As many wait as may.
    Crowded,
    /// The log could not be asked.
    Unknown(String),
}

/// What is held for requests under way. One for the daemon.
pub struct Treasury {
    state: Mutex<State>,
    changed: Notify,
    spent: Spent,
}

#[derive(Debug, Default)]
struct State {
    held: Held,
    line: BTreeSet<u64>,
    next: u64,
}

impl std::fmt::Debug for Treasury {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Treasury").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Treasury {
    /// One that holds nothing.
    #[must_use]
    pub fn new(spent: Spent) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), spent }
    }

    /// Waits until a request that may cost `bound` fits into all limits, and holds that. Dropping the future gives up.
    pub async fn admit(
        self: &Arc<Self>,
        caps: &[Cap],
        bound: NanoUsd,
        goal: Option<GoalId>,
    ) -> Result<Holding, NoMoney> {
        if caps.is_empty() {
            return Ok(self.hold(&mut self.lock(), bound, goal));
        }
        let waiting = self.join()?;
        loop {
            let changed = self.changed.notified();
            if self.lock().line.first() == Some(&waiting.number) && self.judge(caps, bound).await? {
                let mut state = self.lock();
                return Ok(self.hold(&mut state, bound, goal));
            }
            changed.await;
        }
    }

    /// Whether there is room in all limits. Only the first in line asks, so nobody else holds more meanwhile under a limit.
    async fn judge(&self, caps: &[Cap], bound: NanoUsd) -> Result<bool, NoMoney> {
        for cap in caps {
            // Before what is spent: what is released in between was recorded by then, and counts twice at worst.
            let held = self.lock().held.against(cap.scope);
            let spent = (self.spent)(cap.scope).await.map_err(NoMoney::Unknown)?;
            match judge(*cap, spent, held, bound) {
                Admission::Admit => {}
                Admission::Wait => return Ok(false),
                Admission::Refuse => return Err(NoMoney::Reached { cap: *cap, spent }),
            }
        }
        Ok(true)
    }

    fn join(self: &Arc<Self>) -> Result<Waiting, NoMoney> {
        let mut state = self.lock();
        if state.line.len() >= WAITING_MAX {
            return Err(NoMoney::Crowded);
        }
        let number = state.next;
        state.next += 1;
        state.line.insert(number);
        Ok(Waiting { treasury: Arc::clone(self), number })
    }

    fn hold(self: &Arc<Self>, state: &mut State, bound: NanoUsd, goal: Option<GoalId>) -> Holding {
        Holding { treasury: Arc::clone(self), number: state.held.hold(bound, goal) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the line; left when dropped.
struct Waiting {
    treasury: Arc<Treasury>,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.treasury.lock().line.remove(&self.number);
        self.treasury.changed.notify_waiters();
    }
}

/// What is held for a request; given back when dropped, which is for when its cost is on record.
#[derive(Debug)]
pub struct Holding {
    treasury: Arc<Treasury>,
    number: u64,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.treasury.lock().held.release(self.number);
        self.treasury.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use super::*;

    fn treasury(spent: &Arc<AtomicI64>) -> Arc<Treasury> {
        let spent = Arc::clone(spent);
        Arc::new(Treasury::new(Arc::new(move |_| {
            let spent = Arc::clone(&spent);
            Box::pin(async move { Ok(spent.load(SeqCst)) })
        })))
    }

    const CAPS: [Cap; 1] = [Cap { scope: CapScope::Day, max: 1_000 }];

    #[tokio::test]
    async fn many_at_once_pass_a_limit_by_one_response_at_most() {
        let spent = Arc::new(AtomicI64::new(0));
        let treasury = treasury(&spent);
        let runs: Vec<_> = (0..40)
            .map(|_| {
                let (treasury, spent) = (Arc::clone(&treasury), Arc::clone(&spent));
                tokio::spawn(async move {
                    let holding = treasury.admit(&CAPS, 300, None).await?;
                    tokio::task::yield_now().await;
                    // Each costs less than what was held.
                    spent.fetch_add(130, SeqCst);
                    drop(holding);
                    Ok::<(), NoMoney>(())
                })
            })
            .collect();
        let mut paid = 0;
        for run in runs {
            match run.await.unwrap() {
                Ok(()) => paid += 1,
                Err(error) => {
                    let spent = spent.load(SeqCst);
                    assert_eq!(
                        error,
                        NoMoney::Reached { cap: CAPS[0], spent },
                        "nobody is refused while there is room"
                    );
                }
            }
        }
        assert_eq!((paid, spent.load(SeqCst)), (8, 1_040), "the eighth passes it, and no ninth");
    }

    #[tokio::test]
    async fn who_gives_up_makes_room_in_the_line() {
        let spent = Arc::new(AtomicI64::new(900));
        let treasury = treasury(&spent);
        let first = treasury.admit(&CAPS, 500, None).await.unwrap();
        let second = tokio::spawn({
            let treasury = Arc::clone(&treasury);
            async move { treasury.admit(&CAPS, 50, None).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "the first may cost all that is left");
        second.abort();
        second.await.unwrap_err();
        drop(first);
        treasury.admit(&CAPS, 50, None).await.unwrap();
        // Without a limit nobody waits.
        let _unlimited = treasury.admit(&[], NanoUsd::MAX, None).await.unwrap();
    }

    #[tokio::test]
    async fn the_line_is_bounded() {
        let treasury = treasury(&Arc::new(AtomicI64::new(0)));
        let holding = treasury.admit(&CAPS, 2_000, None).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..WAITING_MAX {
            waiting.push(treasury.join().unwrap());
        }
        assert_eq!(treasury.admit(&CAPS, 1, None).await.unwrap_err(), NoMoney::Crowded);
        drop((holding, waiting));
        treasury.admit(&CAPS, 1, None).await.unwrap();
    }
}
