//! The gates of all providers, shared by all runs: who waits is woken, and who goes away leaves his place.
//!
//! What happens at a gate is decided by [`Governor`]; this adds the time and the waiting. Each request that waits looks
//! for itself whether it is its turn: when anything has changed, and at the end of a pause.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcode_env::{Clock, Timestamp};
use mcode_models::ResolvedModel;
use mcode_models::governor::{Account, Full, Gate, Governor, Limited, Priority, Turn};
use mcode_models::request::Access;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Whoever waits looks at the clock at least this often: it may have been set, or the machine may have slept.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

/// The clock is this much ahead of the timer, in milliseconds, when the machine has slept (or the clock was set).
const SLEPT_MIN_MS: u64 = 2_000;

/// The gates. One for the daemon.
#[derive(Debug)]
pub struct Gates {
    inner: Mutex<Inner>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    marks: RandomState,
}

#[derive(Debug)]
struct Inner {
    governor: Governor,
    begun: Instant,
    begun_wall: Timestamp,
    /// What the timer has missed while the machine slept, in milliseconds.
    slept_ms: u64,
}

impl Inner {
    /// Milliseconds since the start. The time that the machine slept counts, a clock that was set back does not.
    fn now(&mut self, wall: Timestamp) -> u64 {
        let timer = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let clock = wall.millis_since(self.begun_wall);
        if clock > timer.saturating_add(self.slept_ms).saturating_add(SLEPT_MIN_MS) {
            self.slept_ms = clock - timer;
        }
        timer.saturating_add(self.slept_ms)
    }
}

impl Gates {
    /// Gates at which nobody has met a limit yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (begun, begun_wall) = (Instant::now(), clock.now());
        let inner = Mutex::new(Inner { governor: Governor::default(), begun, begun_wall, slept_ms: 0 });
        Self { inner, changed: Notify::new(), clock, marks: RandomState::new() }
    }

    /// The gate of a model. The mark of its account is a hash with a key that only this process has, of all that says who
    /// asks: nothing of it can be told from the mark.
    #[must_use]
    pub fn gate(&self, model: &ResolvedModel) -> Gate {
        Gate { account: self.account(&model.access), model: model.info.id.clone() }
    }

    fn account(&self, access: &Access) -> Account {
        let Access { provider, base_url, key, key_source, headers, identity_env, .. } = access;
        let mut hasher = self.marks.build_hasher();
        // A login is known by its name: its tokens change, and what was learned of its account holds on.
        let source = key_source.as_ref().map(mcode_models::KeySource::name);
        (base_url, key.as_ref().map(|key| key.expose()), source, headers).hash(&mut hasher);
        for (name, value) in identity_env {
            (name, value.expose()).hash(&mut hasher);
        }
        Account { provider: provider.clone(), mark: hasher.finish() }
    }

    /// Takes a place at a gate; see [`Governor::enter`].
    pub fn enter(
        self: &Arc<Self>,
        gate: Gate,
        priority: Priority,
        patience: Duration,
        tries: u32,
    ) -> Result<Place, Full> {
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let (mut inner, now_ms) = self.lock();
        let ticket = inner.governor.enter(now_ms, gate.clone(), priority, patience_ms, tries)?;
        Ok(Place { gates: Arc::clone(self), ticket, gate })
    }

    /// Until when a run that has another model takes that; `None` when this one can be asked.
    #[must_use]
    pub fn avoided_until(&self, gate: &Gate) -> Option<Timestamp> {
        let (inner, now_ms) = self.lock();
        let until_ms = inner.governor.avoided_until(now_ms, gate)?;
        Some(self.moment(now_ms, until_ms))
    }

    /// Takes over what the log of an earlier daemon says of a limit; see [`Governor::restore`].
    pub fn restore(&self, gate: &Gate, until: Timestamp, whole_account: bool) {
        let left_ms = until.millis_since(self.clock.now());
        let (mut inner, now_ms) = self.lock();
        inner.governor.restore(now_ms, gate, now_ms.saturating_add(left_ms), whole_account);
    }

    fn lock(&self) -> (MutexGuard<'_, Inner>, u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = inner.now(self.clock.now());
        (inner, now_ms)
    }

    fn moment(&self, now_ms: u64, until_ms: u64) -> Timestamp {
        self.clock.now().plus_millis(i64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(i64::MAX))
    }
}

/// What a request that waits is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It may be sent.
    Go,
    /// The provider has refused as often as the request wanted to try.
    Exhausted,
    /// Not yet; until the pause is over, if it is for that.
    Wait(Option<Timestamp>),
}

/// A place at a gate, kept over all attempts of a request; it is left when dropped.
#[derive(Debug)]
pub struct Place {
    gates: Arc<Gates>,
    ticket: mcode_models::governor::Ticket,
    gate: Gate,
}

impl Place {
    /// Whether it is this one's turn, and if not, what may change that: wait for it before asking again.
    pub fn look(&self) -> (Standing, impl Future<Output = ()> + '_) {
        // From here on no change is missed.
        let changed = self.gates.changed.notified();
        let (mut inner, now_ms) = self.gates.lock();
        let turn = inner.governor.poll(now_ms, self.ticket);
        drop(inner);
        let (standing, pause_ms) = match turn {
            Turn::Go => (Standing::Go, None),
            Turn::Exhausted => (Standing::Exhausted, None),
            Turn::Wait { until_ms: None } => (Standing::Wait(None), None),
            Turn::Wait { until_ms: Some(until_ms) } => {
                (Standing::Wait(Some(self.gates.moment(now_ms, until_ms))), Some(until_ms.saturating_sub(now_ms)))
            }
        };
        if standing == Standing::Go {
            // Another one may be the next now.
            self.gates.changed.notify_waiters();
        }
        let pause = pause_ms.map_or(LOOK_AGAIN, |ms| Duration::from_millis(ms.max(1)).min(LOOK_AGAIN));
        (standing, async move {
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
            }
        })
    }

    /// Until when nobody passes; `None` when the gate is open.
    #[must_use]
    pub fn closed_until(&self) -> Option<Timestamp> {
        let (inner, now_ms) = self.gates.lock();
        let until_ms = inner.governor.closed_until(now_ms, &self.gate)?;
        Some(self.gates.moment(now_ms, until_ms))
    }

    /// Whether nobody passes since the quota of the whole account is used up.
    #[must_use]
    pub fn is_of_account(&self) -> bool {
        let (inner, now_ms) = self.gates.lock();
        inner.governor.is_of_account(now_ms, &self.gate)
    }

    /// The provider has begun to answer.
    pub fn taken(&self) {
        self.change(|governor, _| governor.taken(self.ticket));
    }

    /// The provider took no more; the time until the next attempt.
    pub fn limited(&self, limited: Limited, own: impl FnOnce(u32) -> u64) -> Duration {
        let mut left = 0;
        self.change(|governor, now_ms| {
            left = governor.limited(now_ms, self.ticket, limited, own).saturating_sub(now_ms);
        });
        Duration::from_millis(left)
    }

    /// The attempt has ended for reasons that are this request's own.
    pub fn rest(&self) {
        self.change(|governor, _| governor.rest(self.ticket));
    }

    /// Whoever has another model takes that for so long.
    pub fn avoid(&self, span: Duration) {
        let for_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.change(|governor, now_ms| governor.avoid(now_ms, &self.gate, for_ms));
    }

    fn change(&self, change: impl FnOnce(&mut Governor, u64)) {
        let (mut inner, now_ms) = self.gates.lock();
        change(&mut inner.governor, now_ms);
        drop(inner);
        self.gates.changed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.change(|governor, now_ms| governor.leave(now_ms, self.ticket));
    }
}

#[cfg(test)]
mod tests {
    use mcode_env::ManualClock;

    use super::*;

    const PATIENT: Duration = Duration::from_secs(300);

    fn gates() -> (Arc<Gates>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        (Arc::new(Gates::new(Arc::clone(&clock) as Arc<dyn Clock>)), clock)
    }

    fn gate() -> Gate {
        Gate { account: Account { provider: "p".into(), mark: 1 }, model: "p/m".into() }
    }

    fn enter(gates: &Arc<Gates>, priority: Priority) -> Place {
        gates.enter(gate(), priority, PATIENT, 10).unwrap()
    }

    async fn go(place: &Place) {
        loop {
            let (standing, change) = place.look();
            match standing {
                Standing::Go => return,
                Standing::Exhausted => panic!("it was refused too often"),
                Standing::Wait(_) => change.await,
            }
        }
    }

    fn pause(seconds: u64) -> Limited {
        Limited { server_ms: Some(seconds * 1000), by_number: true, whole_account: false }
    }

    /// Twenty wait out one pause; the first to go is the one that met it, and the others follow when it is taken.
    #[tokio::test(start_paused = true)]
    async fn all_wait_for_one_pause_and_go_one_after_the_other() {
        let (gates, _clock) = gates();
        let first = enter(&gates, Priority::Interactive);
        go(&first).await;
        assert_eq!(first.limited(pause(30), |_| 0), Duration::from_secs(30));
        let begun = Instant::now();
        let order = Arc::new(Mutex::new(Vec::new()));
        let others: Vec<_> = (0..19)
            .map(|number| {
                let (place, order) = (enter(&gates, Priority::Interactive), Arc::clone(&order));
                tokio::spawn(async move {
                    go(&place).await;
                    order.lock().unwrap().push(number);
                    place.taken();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                })
            })
            .collect();
        go(&first).await;
        assert!(begun.elapsed() >= Duration::from_secs(30), "{:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert!(order.lock().unwrap().is_empty(), "nobody goes before the first is taken");
        first.taken();
        for other in others {
            other.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..19).collect::<Vec<_>>());
        drop(first);
        let (inner, _) = gates.lock();
        assert_eq!((inner.governor.places(), inner.governor.remembered()), (0, 0), "nothing is left of it");
    }

    /// Who goes away does not hold up those behind him.
    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_dropped_is_free() {
        let (gates, _clock) = gates();
        let probe = enter(&gates, Priority::Interactive);
        go(&probe).await;
        probe.limited(pause(1), |_| 0);
        go(&probe).await;
        let next = enter(&gates, Priority::Background);
        let waits = tokio::spawn(async move { go(&next).await });
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!waits.is_finished());
        drop(probe);
        waits.await.unwrap();
    }

    /// A machine that slept through a pause goes on when it wakes, and a clock that is set back changes nothing.
    #[tokio::test(start_paused = true)]
    async fn sleep_counts_and_a_clock_set_back_does_not() {
        let (gates, clock) = gates();
        let place = gates.enter(gate(), Priority::Background, Duration::from_secs(86_400), 10).unwrap();
        go(&place).await;
        place.limited(pause(7_200), |_| 0);
        clock.advance_millis(-3_600_000);
        assert!(matches!(place.look().0, Standing::Wait(Some(_))));
        clock.advance_millis(3_600_000 + 7_200_000);
        assert_eq!(place.look().0, Standing::Go);
    }

    /// What was known of a limit holds in the next process: all wait for its end as one, and one probes.
    #[tokio::test(start_paused = true)]
    async fn a_limit_of_an_earlier_process_is_waited_out_by_all_together() {
        for (left_ms, whole_account) in [(600_000, false), (600_000, true), (-5_000, false)] {
            let (gates, clock) = gates();
            let patient = || gates.enter(gate(), Priority::Background, Duration::from_secs(86_400), 10).unwrap();
            for earlier_ms in [1_000, 0] {
                gates.restore(&gate(), clock.now().plus_millis(left_ms - earlier_ms), whole_account);
            }
            let places: Vec<Place> = (0..3).map(|_| patient()).collect();
            if left_ms > 0 {
                assert!(places.iter().all(|place| matches!(place.look().0, Standing::Wait(Some(_)))));
                assert_eq!(places[0].is_of_account(), whole_account);
                clock.advance_millis(left_ms);
            }
            let standings: Vec<Standing> = places.iter().map(|place| place.look().0).collect();
            assert_eq!(standings, [Standing::Go, Standing::Wait(None), Standing::Wait(None)], "{left_ms}");
            places[0].taken();
            assert!(places.iter().all(|place| place.look().0 == Standing::Go));
        }
    }

    struct NoKey;

    impl mcode_models::GiveKey for NoKey {
        fn give<'a>(
            &'a self,
            _refused: Option<&'a mcode_models::Secret>,
        ) -> futures::future::BoxFuture<'a, Result<mcode_models::GivenKey, mcode_models::ModelError>> {
            Box::pin(std::future::ready(Err(mcode_models::ModelError::new(mcode_models::ModelErrorKind::Auth, "none"))))
        }
    }

    #[test]
    fn accounts_differ_by_all_that_says_who_asks() {
        let (gates, _clock) = gates();
        let access = Access {
            provider: "p".into(),
            wire: mcode_models::Wire::OpenaiChat,
            base_url: "http://h".into(),
            key: Some(mcode_models::Secret::new("one")),
            key_source: None,
            key_place: Default::default(),
            headers: Default::default(),
            network_env: Default::default(),
            identity_env: Default::default(),
            key_word: "none".into(),
            withheld: None,
            idle_timeout_ms: 1,
        };
        let mark = |access: Access| gates.account(&access).mark;
        let one = mark(access.clone());
        assert_eq!(one, mark(access.clone()));
        assert_ne!(one, mark(Access { key: Some(mcode_models::Secret::new("two")), ..access.clone() }));
        let login = |name: &str| {
            let key_source = Some(mcode_models::KeySource::new(name, Arc::new(NoKey)));
            mark(Access { key: None, key_source, ..access.clone() })
        };
        assert_eq!(login("of one"), login("of one"), "whatever its token is now");
        assert_ne!(login("of one"), login("of two"));
        assert_ne!(one, mark(Access { base_url: "http://i".into(), ..access.clone() }));
        let identity = [("AWS_PROFILE".to_owned(), mcode_models::Secret::new("x"))];
        assert_ne!(one, mark(Access { identity_env: identity.into(), ..access.clone() }));
        // Another process gives it another mark.
        assert_ne!(one, Gates::new(Arc::new(ManualClock::default())).account(&access).mark);
    }
}
