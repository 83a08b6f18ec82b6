//! Limits in money that all runs share: each request asks before it is sent.
//!
//! What is judged is in [`mcode_models::budget`]. Whoever comes first is judged first, so that nobody is passed by smaller
//! requests for ever; only those under other limits pass one that has to wait for its own. What a request held is released when its cost is on record: in between it counts twice, never not at
//! all. Nothing of this is stored: what was spent comes from the log.

use std::collections::BTreeMap;
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
    /// Held by the one that is judged, so that nobody else holds more meanwhile.
    judging: tokio::sync::Mutex<()>,
    spent: Spent,
}

#[derive(Debug, Default)]
struct State {
    held: Held,
    /// Who waits, and for which limit once that is known.
    line: BTreeMap<u64, Option<Cap>>,
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
        Self { state: Mutex::default(), changed: Notify::new(), judging: tokio::sync::Mutex::default(), spent }
    }

    /// Waits until a request that may cost `bound` fits into all limits, and holds that. Dropping the future gives up.
    /// `waits` is called each time when it has to wait for others.
    pub async fn admit(
        self: &Arc<Self>,
        caps: &[Cap],
        bound: NanoUsd,
        goal: Option<GoalId>,
        waits: impl Fn(),
    ) -> Result<Holding, NoMoney> {
        if caps.is_empty() {
            return Ok(self.hold(&mut self.lock(), bound, goal));
        }
        let waiting = self.join()?;
        loop {
            let changed = self.changed.notified();
            if self.is_next(waiting.number, caps) {
                let _judged = self.judging.lock().await;
                let stuck = self.judge(caps, bound).await?;
                let mut state = self.lock();
                if stuck.is_none() {
                    return Ok(self.hold(&mut state, bound, goal));
                }
                if state.line.insert(waiting.number, stuck) != Some(stuck) {
                    // Those behind may be next now.
                    self.changed.notify_waiters();
                }
            }
            waits();
            changed.await;
        }
    }

    /// How many wait, to be judged or for others to be paid.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().line.len()
    }

    /// Whether nobody before this one in line waits for a limit that it would use up, or was not judged yet.
    fn is_next(&self, number: u64, caps: &[Cap]) -> bool {
        let holds_up = |stuck: &Cap| caps.iter().any(|cap| cap.scope == stuck.scope && cap.max <= stuck.max);
        let state = self.lock();
        state.line.range(..number).all(|(_, stuck)| stuck.as_ref().is_some_and(|stuck| !holds_up(stuck)))
    }

    /// The first limit in which there is no room until others are paid. Only one is judged at a time, so nobody else holds
    /// more meanwhile under a limit.
    async fn judge(&self, caps: &[Cap], bound: NanoUsd) -> Result<Option<Cap>, NoMoney> {
        for cap in caps {
            // Before what is spent: what is released in between was recorded by then, and counts twice at worst.
            let held = self.lock().held.against(cap.scope);
            let spent = (self.spent)(cap.scope).await.map_err(NoMoney::Unknown)?;
            match judge(*cap, spent, held, bound) {
                Admission::Admit => {}
                Admission::Wait => return Ok(Some(*cap)),
                Admission::Refuse => return Err(NoMoney::Reached { cap: *cap, spent }),
            }
        }
        Ok(None)
    }

    fn join(self: &Arc<Self>) -> Result<Waiting, NoMoney> {
        let mut state = self.lock();
        if state.line.len() >= WAITING_MAX {
            return Err(NoMoney::Crowded);
        }
        let number = state.next;
        state.next += 1;
        state.line.insert(number, None);
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
                    let holding = treasury.admit(&CAPS, 300, None, || ()).await?;
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
        let first = treasury.admit(&CAPS, 500, None, || ()).await.unwrap();
        let second = tokio::spawn({
            let treasury = Arc::clone(&treasury);
            async move { treasury.admit(&CAPS, 50, None, || ()).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "the first may cost all that is left");
        second.abort();
        second.await.unwrap_err();
        drop(first);
        treasury.admit(&CAPS, 50, None, || ()).await.unwrap();
        // Without a limit nobody waits.
        let _unlimited = treasury.admit(&[], NanoUsd::MAX, None, || ()).await.unwrap();
    }

    #[tokio::test]
    async fn the_line_is_bounded() {
        let treasury = treasury(&Arc::new(AtomicI64::new(0)));
        let holding = treasury.admit(&CAPS, 2_000, None, || ()).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..WAITING_MAX {
            waiting.push(treasury.join().unwrap());
        }
        assert_eq!(treasury.admit(&CAPS, 1, None, || ()).await.unwrap_err(), NoMoney::Crowded);
        drop((holding, waiting));
        treasury.admit(&CAPS, 1, None, || ()).await.unwrap();
    }

    /// A small limit that is used up holds up nobody who has a larger one.
    #[tokio::test]
    async fn who_waits_for_a_limit_of_his_own_is_passed_by_those_under_others() {
        let treasury = treasury(&Arc::new(AtomicI64::new(900)));
        let wide = [Cap { scope: CapScope::Day, max: 100_000 }];
        let first = treasury.admit(&CAPS, 500, None, || ()).await.unwrap();
        let waits = Arc::new(AtomicI64::new(0));
        let head = tokio::spawn({
            let (treasury, waits) = (Arc::clone(&treasury), Arc::clone(&waits));
            let waits = move || {
                waits.fetch_add(1, SeqCst);
            };
            async move { treasury.admit(&CAPS, 50, None, waits).await }
        });
        tokio::task::yield_now().await;
        let passes = tokio::spawn({
            let treasury = Arc::clone(&treasury);
            async move { treasury.admit(&wide, 50, None, || ()).await }
        });
        let passed = tokio::time::timeout(std::time::Duration::from_secs(20), passes).await.unwrap().unwrap().unwrap();
        assert!(!head.is_finished() && waits.load(SeqCst) > 0, "the one before it waits and knows it");
        let smaller = tokio::spawn({
            let treasury = Arc::clone(&treasury);
            async move { treasury.admit(&CAPS, 1, None, || ()).await.map(drop) }
        });
        drop((first, passed));
        drop(head.await.unwrap().unwrap());
        smaller.await.unwrap().unwrap();
        assert!(treasury.lock().line.is_empty(), "nothing is left of it");
    }
}
