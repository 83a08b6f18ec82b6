//! Whose turn it is at a provider (pure).
//!
//! All requests of the daemon to one model under one account pass one [`Gate`]. As long as the provider answers, a gate
//! holds nobody up. When the provider limits the rate, has no capacity or says that a quota is used up, the gate closes
//! for a cooldown: then one request probes, and the others follow in order, more and more of them as they are taken.
//! What somebody sits and waits for goes before what runs in the background, which does not starve for it.
//!
//! Time comes in as milliseconds of any clock that does not go back. Absent on purpose: timers, wake-ups (the agent has
//! those), and what to do about a failure ([`crate::retry`]).

use std::collections::BTreeMap;

/// Requests that may stand in all gates together; more are refused.
pub const PLACES_MAX: usize = 1024;
/// Gates and accounts that are remembered; beyond that the one that is free soonest is forgotten.
pub const GATES_MAX: usize = 512;
/// Requests of interactive runs that pass one of a background run before that has its turn.
pub const PASSED_OVER_MAX: u32 = 4;
/// How long a run that could use another model waits for this one, in milliseconds.
pub const PATIENCE_WITH_FALLBACK_MS: u64 = 5_000;
/// How long it is known that a provider answers only so many requests at once, in milliseconds.
pub const CEILING_KEPT_MS: u64 = 30_000;
/// What was learned of a gate is forgotten this long after its cooldown, in milliseconds.
pub const FORGET_MS: u64 = 10 * 60_000;
/// The longest that a gate cools down, in milliseconds (24 h): the longest park of a run.
pub const PARK_MAX_MS: u64 = 24 * 60 * 60_000;
/// How many more requests may be under way for each that was taken after a cooldown.
const GROWTH: u32 = 2;

/// Who pays: a provider and a mark of the key, login or identity that it is asked with. The mark is made by whoever knows
/// the key and tells nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Provider name.
    pub provider: String,
    /// The mark.
    pub mark: u64,
}

/// What has limits of its own at a provider: a model under an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gate {
    /// Who pays.
    pub account: Account,
    /// The model's full name.
    pub model: String,
}

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Somebody sits and waits.
    Interactive,
    /// Nobody does.
    Background,
}

/// A place in a gate. Those that were given out earlier come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Whether a request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Go,
    /// Later: look again then, or when anything in the gates has changed.
    Wait {
        /// The end of the cooldown, if that is what is waited for.
        until_ms: Option<u64>,
    },
    /// The provider has refused as often as this request wanted to try, whoever asked.
    Exhausted,
}

/// As many places are taken as there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// What a provider said when it took no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// The pause that it asked for, in milliseconds.
    pub server_ms: Option<u64>,
    /// Whether more requests than it allows may have been the reason, rather than its own lack of capacity.
    pub by_number: bool,
    /// Whether it counts for all models of the account: a quota.
    pub whole_account: bool,
}

#[derive(Debug, Default)]
struct Standing {
    /// Nobody asks before.
    until_ms: u64,
    /// Who has another model takes that until then.
    avoid_until_ms: u64,
    /// Refusals since the last request that was taken.
    strikes: u32,
    /// Counts refusals that began a cooldown: what was sent before is of an earlier one.
    episode: u64,
    /// How many may be under way, while it is being found out.
    most: Option<u32>,
    /// How many were under way when one more was refused, and until when that counts.
    ceiling: Option<(u32, u64)>,
    /// Requests that have passed a background one since one of those went.
    passed_over: u32,
}

impl Standing {
    fn allowed(&self, now_ms: u64) -> Option<u32> {
        let ceiling = self.ceiling.filter(|(_, until)| *until > now_ms).map(|(count, _)| count);
        match (self.most, ceiling) {
            (Some(most), Some(ceiling)) => Some(most.min(ceiling)),
            (most, ceiling) => most.or(ceiling),
        }
    }

    fn forgotten(&self, now_ms: u64) -> bool {
        let plain = self.strikes == 0 && self.most.is_none() && self.ceiling.is_none_or(|(_, until)| until <= now_ms);
        let last = self.until_ms.max(self.avoid_until_ms);
        last <= now_ms && (plain || last + FORGET_MS <= now_ms)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Asking {
        episode: u64,
        taken: bool,
    },
    /// Between two attempts, for reasons of its own.
    Resting,
}

#[derive(Debug)]
struct Place {
    gate: Gate,
    priority: Priority,
    patience_ms: u64,
    tries: u32,
    strikes_before: u32,
    stage: Stage,
}

/// The gates of all providers, and who stands in them.
#[derive(Debug, Default)]
pub struct Governor {
    gates: BTreeMap<Gate, Standing>,
    quotas: BTreeMap<Account, u64>,
    places: BTreeMap<Ticket, Place>,
    next: u64,
}

impl Governor {
    /// Takes a place. A cooldown longer than `patience_ms` is not waited for: the provider is asked all the same, by one
    /// at a time. `tries` is how many more refusals are waited out, whoever meets them.
    pub fn enter(
        &mut self,
        now_ms: u64,
        gate: Gate,
        priority: Priority,
        patience_ms: u64,
        tries: u32,
    ) -> Result<Ticket, Full> {
        self.sweep(now_ms);
        if self.places.len() >= PLACES_MAX {
            return Err(Full);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let strikes_before = self.gates.get(&gate).map_or(0, |standing| standing.strikes);
        let stage = Stage::Waiting;
        self.places.insert(ticket, Place { gate, priority, patience_ms, tries, strikes_before, stage });
        Ok(ticket)
    }

    /// Whether it is this one's turn. One that goes is under way until [`Self::limited`], [`Self::rest`] or
    /// [`Self::leave`].
    pub fn poll(&mut self, now_ms: u64, ticket: Ticket) -> Turn {
        let Some(place) = self.places.get_mut(&ticket) else { return Turn::Exhausted };
        if matches!(place.stage, Stage::Asking { .. }) {
            return Turn::Go;
        }
        place.stage = Stage::Waiting;
        let (gate, priority, patience_ms) = (place.gate.clone(), place.priority, place.patience_ms);
        let (strikes_before, tries) = (place.strikes_before, place.tries);
        let until_ms = self.until(&gate);
        let standing = self.gates.get(&gate);
        if standing.is_some_and(|standing| standing.strikes.saturating_sub(strikes_before) >= tries) {
            return Turn::Exhausted;
        }
        let closed = until_ms > now_ms;
        if closed && until_ms - now_ms <= patience_ms {
            return Turn::Wait { until_ms: Some(until_ms) };
        }
        let episode = standing.map_or(0, |standing| standing.episode);
        // Whoever does not wait for the end of a pause asks alone, also where only the account's quota is used up.
        let most = if closed { Some(1) } else { standing.and_then(|standing| standing.allowed(now_ms)) };
        if let Some(most) = most {
            let asking = self.asking(&gate).count();
            if asking >= most as usize || self.first(now_ms, &gate) != Some(ticket) {
                return Turn::Wait { until_ms: None };
            }
            let others = self.ready(now_ms, &gate).any(|(_, place)| place.priority == Priority::Background);
            if let Some(standing) = self.gates.get_mut(&gate) {
                standing.passed_over = match priority {
                    Priority::Interactive if others => standing.passed_over + 1,
                    Priority::Interactive => standing.passed_over,
                    Priority::Background => 0,
                };
            }
        }
        self.begin(ticket, episode);
        Turn::Go
    }

    /// The provider has begun to answer: it takes requests.
    pub fn taken(&mut self, ticket: Ticket) {
        let Some(place) = self.places.get_mut(&ticket) else { return };
        let Stage::Asking { episode, taken: false } = place.stage else { return };
        place.stage = Stage::Asking { episode, taken: true };
        let gate = place.gate.clone();
        let Some(standing) = self.gates.get_mut(&gate) else {
            self.quotas.remove(&gate.account);
            return;
        };
        // One that was sent before the cooldown says nothing about its end.
        if episode < standing.episode {
            return;
        }
        (standing.until_ms, standing.avoid_until_ms, standing.strikes) = (0, 0, 0);
        standing.most = standing.most.map(|most| most.saturating_add(GROWTH));
        self.quotas.remove(&gate.account);
        let mut waits = false;
        for place in self.places.values_mut().filter(|place| place.gate == gate && place.stage == Stage::Waiting) {
            place.strikes_before = 0;
            waits = true;
        }
        if let Some(standing) = self.gates.get_mut(&gate).filter(|_| !waits) {
            standing.most = None;
        }
    }

    /// The provider took no more. The request keeps its place and waits; gives the end of the cooldown. `own` is the
    /// pause after so many refusals in a row when the provider names none.
    pub fn limited(&mut self, now_ms: u64, ticket: Ticket, limited: Limited, own: impl FnOnce(u32) -> u64) -> u64 {
        let Some(place) = self.places.get_mut(&ticket) else { return now_ms };
        let gate = place.gate.clone();
        let episode = if let Stage::Asking { episode, .. } = place.stage { episode } else { 0 };
        place.stage = Stage::Waiting;
        let taken = self.asking(&gate).filter(|place| matches!(place.stage, Stage::Asking { taken: true, .. })).count();
        let standing = self.gates.entry(gate.clone()).or_default();
        let pause = if episode >= standing.episode {
            standing.strikes = standing.strikes.saturating_add(1);
            standing.episode += 1;
            limited.server_ms.unwrap_or_else(|| own(standing.strikes))
        } else {
            limited.server_ms.unwrap_or(0)
        };
        let until_ms = now_ms.saturating_add(pause.min(PARK_MAX_MS));
        standing.most = Some(1);
        if limited.by_number && taken > 0 {
            standing.ceiling = Some((u32::try_from(taken).unwrap_or(u32::MAX), now_ms + CEILING_KEPT_MS));
        }
        standing.until_ms = standing.until_ms.max(until_ms);
        if limited.whole_account {
            let quota = self.quotas.entry(gate.account.clone()).or_default();
            *quota = until_ms.max(*quota);
        }
        self.bound();
        self.until(&gate)
    }

    /// Takes over what an earlier process knew of a limit: nobody asks before `until_ms`, then one probes, also when that is
    /// past already.
    pub fn restore(&mut self, now_ms: u64, gate: &Gate, until_ms: u64, whole_account: bool) {
        let until_ms = until_ms.clamp(now_ms, now_ms.saturating_add(PARK_MAX_MS));
        let standing = self.gates.entry(gate.clone()).or_default();
        standing.until_ms = standing.until_ms.max(until_ms);
        (standing.most, standing.strikes) = (Some(1), standing.strikes.max(1));
        if whole_account {
            let quota = self.quotas.entry(gate.account.clone()).or_default();
            *quota = until_ms.max(*quota);
        }
        self.bound();
    }

    /// Whether a gate is closed since the quota of its whole account is used up.
    #[must_use]
    pub fn is_of_account(&self, now_ms: u64, gate: &Gate) -> bool {
        let until = self.until(gate);
        until > now_ms && self.quotas.get(&gate.account).is_some_and(|quota| *quota >= until)
    }

    /// Whoever has another model takes that for so long.
    pub fn avoid(&mut self, now_ms: u64, gate: &Gate, for_ms: u64) {
        let standing = self.gates.entry(gate.clone()).or_default();
        standing.avoid_until_ms = standing.avoid_until_ms.max(now_ms.saturating_add(for_ms.min(PARK_MAX_MS)));
        self.bound();
    }

    /// Until when a run that has another model takes that; `None` when this one can be asked.
    #[must_use]
    pub fn avoided_until(&self, now_ms: u64, gate: &Gate) -> Option<u64> {
        let avoid = self.gates.get(gate).map_or(0, |standing| standing.avoid_until_ms);
        let cools = Some(self.until(gate)).filter(|until| *until > now_ms.saturating_add(PATIENCE_WITH_FALLBACK_MS));
        Some(cools.unwrap_or(0).max(avoid)).filter(|until| *until > now_ms)
    }

    /// Until when nobody passes; `None` when the gate is open.
    #[must_use]
    pub fn closed_until(&self, now_ms: u64, gate: &Gate) -> Option<u64> {
        Some(self.until(gate)).filter(|until| *until > now_ms)
    }

    /// The request has ended otherwise, and may be sent again: [`Self::poll`] takes it back into the line.
    pub fn rest(&mut self, ticket: Ticket) {
        if let Some(place) = self.places.get_mut(&ticket) {
            place.stage = Stage::Resting;
        }
    }

    /// Gives the place up.
    pub fn leave(&mut self, now_ms: u64, ticket: Ticket) {
        self.places.remove(&ticket);
        self.sweep(now_ms);
    }

    /// How many requests stand in the gates.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// How many gates and accounts are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.gates.len() + self.quotas.len()
    }

    fn begin(&mut self, ticket: Ticket, episode: u64) {
        if let Some(place) = self.places.get_mut(&ticket) {
            place.stage = Stage::Asking { episode, taken: false };
        }
    }

    fn until(&self, gate: &Gate) -> u64 {
        let own = self.gates.get(gate).map_or(0, |standing| standing.until_ms);
        own.max(self.quotas.get(&gate.account).copied().unwrap_or(0))
    }

    fn asking<'a>(&'a self, gate: &'a Gate) -> impl Iterator<Item = &'a Place> {
        self.places.values().filter(move |place| place.gate == *gate && matches!(place.stage, Stage::Asking { .. }))
    }

    /// Those that wait for nothing but their turn, in order.
    fn ready<'a>(&'a self, now_ms: u64, gate: &'a Gate) -> impl Iterator<Item = (Ticket, &'a Place)> {
        let left = self.until(gate).saturating_sub(now_ms);
        let waits = move |place: &Place| place.gate == *gate && place.stage == Stage::Waiting;
        let places =
            self.places.iter().filter(move |(_, place)| waits(place) && (left == 0 || left > place.patience_ms));
        places.map(|(ticket, place)| (*ticket, place))
    }

    fn first(&self, now_ms: u64, gate: &Gate) -> Option<Ticket> {
        let of = |priority| move |(ticket, place): (Ticket, &Place)| (place.priority == priority).then_some(ticket);
        let background = self.ready(now_ms, gate).find_map(of(Priority::Background));
        let starved = self.gates.get(gate).is_some_and(|standing| standing.passed_over >= PASSED_OVER_MAX);
        if starved && background.is_some() {
            return background;
        }
        self.ready(now_ms, gate).find_map(of(Priority::Interactive)).or(background)
    }

    fn sweep(&mut self, now_ms: u64) {
        let places = &self.places;
        let used = |gate: &Gate| places.values().any(|place| place.gate == *gate);
        self.gates.retain(|gate, standing| !standing.forgotten(now_ms) || used(gate));
        self.quotas.retain(|_, until_ms| *until_ms > now_ms);
    }

    /// Forgets what is free soonest when too much is remembered.
    fn bound(&mut self) {
        while self.gates.len() > GATES_MAX {
            let soonest = self.gates.iter().min_by_key(|(_, standing)| standing.until_ms).map(|(gate, _)| gate.clone());
            soonest.and_then(|gate| self.gates.remove(&gate));
        }
        while self.quotas.len() > GATES_MAX {
            let soonest = self.quotas.iter().min_by_key(|(_, until_ms)| **until_ms).map(|(account, _)| account.clone());
            soonest.and_then(|account| self.quotas.remove(&account));
        }
    }
}

#[cfg(test)]
mod tests;
