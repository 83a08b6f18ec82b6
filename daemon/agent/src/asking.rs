//! Asking until there is an answer: which model, whose turn it is, whether there is money, and what to do when it fails.
//!
//! Failures are judged by [`mcode_models::retry`], turns are given by [`crate::gates`], money by [`crate::treasury`]. A run
//! that nobody waits for is parked until a quota starts again; any other is told when that is.

use std::sync::Arc;
use std::time::Duration;

use mcode_env::{Timestamp, Zone};
use mcode_events::event::EventBody;
use mcode_events::message::Role;
use mcode_events::run::{Parked, RunError, RunErrorKind, RunStatus};
use mcode_events::state::ThreadState;
use mcode_ids::{ItemId, TurnId};
use mcode_models::governor::{Limited, PARK_MAX_MS, Priority};
use mcode_models::retry::{RetryDecision, RetryPolicy};
use mcode_models::{ModelError, ModelErrorKind, ResolvedModel, Response};

use crate::attempt::Attempted;
use crate::chain::{Chain, Choice};
use crate::drive::{Driver, Stop};
use crate::easing::EASES_MAX;
use crate::gates::{Place, Standing};
use crate::limits;
use crate::live::LiveKey;
use crate::step::failure;
use crate::treasury::Holding;

/// A model that could not be had is left to those who have no other for this long, if its provider does not say.
const AVOID: Duration = Duration::from_secs(60);

/// Times that one request is parked; one that is refused again each time ends.
const PARKS_MAX: u32 = 8;

/// That a run is held up by limits is told when it is longer than this.
pub(crate) const WAIT_TOLD_MIN: Duration = Duration::from_secs(2);

/// A pause that became so much longer than was told is told again.
const WAIT_TOLD_AGAIN: Duration = Duration::from_secs(30);

/// A step that is being asked.
pub(crate) struct Asking {
    pub(crate) turn_id: TurnId,
    pub(crate) item_id: ItemId,
    /// Whether any part of the item has been shown.
    pub(crate) shown: bool,
}

/// A complete answer, and who gave it.
pub(crate) struct Answer {
    pub(crate) response: Response,
    pub(crate) resolved: ResolvedModel,
    /// What is held for it until its cost is on record.
    pub(crate) holding: Holding,
}

/// Why there is no answer.
pub(crate) enum Asked {
    Stop(Stop),
    RefusedCall(ModelError),
}

impl From<Stop> for Asked {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<crate::port::RecordError> for Asked {
    fn from(error: crate::port::RecordError) -> Self {
        Self::Stop(error.into())
    }
}

/// What came of asking one model.
enum Came {
    Answer(Response, Holding),
    /// Another model may do.
    Failed(ModelError),
}

/// What one model has done so far for this request.
#[derive(Default)]
struct Tries {
    attempt: u32,
    overloads: u32,
    /// Refusals for a quota: they are counted by themselves, as other failures say nothing about it.
    quotas: u32,
    parks: u32,
    eases: u32,
    last: Option<ModelError>,
    /// Until when it was told that it is waited.
    told: Option<Timestamp>,
}

impl Driver {
    /// Asks until there is an answer, trying again and falling back as the policy says.
    pub(crate) async fn ask(
        &mut self,
        asking: &mut Asking,
        mut chain: Chain,
        mut choice: Result<Choice, RunError>,
    ) -> Result<Answer, Asked> {
        loop {
            let resolved = self.take(asking, &mut chain, choice.map_err(stop)?).await?;
            match self.ask_model(asking, &resolved, &chain).await? {
                Came::Answer(response, holding) => return Ok(Answer { response, resolved, holding }),
                Came::Failed(error) => {
                    chain.left = Some(error);
                    choice = self.choose(&mut chain);
                }
            }
        }
    }

    async fn ask_model(&self, asking: &mut Asking, resolved: &ResolvedModel, chain: &Chain) -> Result<Came, Asked> {
        let place = self.place(resolved).map_err(stop)?;
        let mut tries = Tries::default();
        loop {
            let Some(state) = self.its_turn(asking, &place, resolved, &mut tries).await? else {
                place.avoid(AVOID);
                let closed = place.closed_until().map(|until| until.millis_since(self.services.clock.now()));
                return Ok(Came::Failed(tries.last.unwrap_or_else(|| refused_often(resolved, closed))));
            };
            if let Some(run) = state.run(self.context.run_id) {
                limits::check_spending(&self.context.options.limits, run).map_err(stop)?;
            }
            let request = self.request(&state, resolved).await?;
            drop(state);
            let Some(holding) = self.admit(asking, &request, &place).await? else { continue };
            tries.attempt += 1;
            let error = match self.attempt(asking, request, resolved, &place).await {
                Ok(response) => return Ok(Came::Answer(response, holding)),
                Err(Attempted::Stop(end)) => return Err(Asked::Stop(end)),
                Err(Attempted::Failed(error)) => self.services.redactor.error(error),
            };
            self.pay(asking.turn_id, error.usage, resolved).await?;
            drop(holding);
            if error.kind == ModelErrorKind::BadToolCall {
                return Err(Asked::RefusedCall(error));
            }
            if tries.eases < EASES_MAX
                && let Some(told) = self.ease(asking.turn_id, &resolved.info.id, &error).await?
            {
                place.rest();
                self.begin_anew(asking, &told).await?;
                (tries.attempt, tries.eases) = (0, tries.eases + 1);
                continue;
            }
            if let Some(error) = self.after_failure(asking, &place, &mut tries, error, chain).await? {
                return Ok(Came::Failed(error));
            }
        }
    }

    /// What is done about a failure: `None` when the same model is asked again.
    async fn after_failure(
        &self,
        asking: &mut Asking,
        place: &Place,
        tries: &mut Tries,
        error: ModelError,
        chain: &Chain,
    ) -> Result<Option<ModelError>, Asked> {
        tries.overloads = if error.kind == ModelErrorKind::Overloaded { tries.overloads + 1 } else { 0 };
        let policy = RetryPolicy { has_fallback: self.has_free(chain), ..self.services.retry };
        let quota = error.kind == ModelErrorKind::Quota;
        tries.quotas += u32::from(quota);
        let attempt = if quota { tries.quotas } else { tries.attempt.saturating_sub(tries.quotas) };
        let decision = policy.decide(attempt, tries.overloads, &error, mcode_env::ids::jitter(1000));
        if let RetryDecision::Retry { after } = decision {
            self.again(asking, place, tries, &error, after).await?;
            tries.last = Some(error);
            return Ok(None);
        }
        if let (true, Some(delay)) = (error.is_limit(), error.retry_after) {
            place.limited(limited(&error, Some(delay)), |_| 0);
        }
        let another = falls_back(error.kind) && chain.has_next();
        if another {
            place.avoid(error.retry_after.unwrap_or(AVOID));
            return Ok(Some(error));
        }
        if tries.parks < PARKS_MAX && self.parks(&error) {
            // Its turn comes when the pause is over.
            *tries =
                Tries { parks: tries.parks + 1, eases: tries.eases, last: Some(error.clone()), ..Tries::default() };
            self.begin_anew(asking, &error.message).await?;
            return Ok(None);
        }
        Err(stop(self.with_the_time(&error)))
    }

    /// A place at the model's gate.
    fn place(&self, resolved: &ResolvedModel) -> Result<Place, RunError> {
        let background = self.context.options.is_background();
        let (priority, patience) = if background {
            (Priority::Background, Duration::from_millis(PARK_MAX_MS))
        } else {
            (Priority::Interactive, self.services.retry.max_server_delay)
        };
        let gate = self.services.gates.gate(resolved);
        let tries = self.services.retry.max_attempts_waiting;
        self.services.gates.enter(gate, priority, patience, tries).map_err(|_full| RunError {
            kind: RunErrorKind::Model,
            reason: ModelErrorKind::RateLimited.reason().to_owned(),
            message: "too many requests wait for models already".to_owned(),
            hint: "wait until some runs have ended: mcode runs list --active".to_owned(),
        })
    }

    /// Waits for its turn; gives the state when it has come, and `None` when the provider has refused too often, whoever
    /// asked. A run that was parked, by an earlier daemon perhaps, is at work again from then on.
    async fn its_turn(
        &self,
        asking: &Asking,
        place: &Place,
        resolved: &ResolvedModel,
        tries: &mut Tries,
    ) -> Result<Option<Arc<ThreadState>>, Stop> {
        let mut parked = false;
        let goes = loop {
            let (standing, change) = place.look();
            match standing {
                Standing::Go => break true,
                Standing::Exhausted => break false,
                Standing::Wait(None) => {}
                Standing::Wait(Some(until)) => {
                    if tries.told.is_none() {
                        // An earlier daemon may have told it.
                        let state = self.services.port.record(asking.turn_id, Vec::new()).await?;
                        let run = state.run(self.context.run_id).and_then(|run| run.parked.as_ref());
                        let told = run.filter(|told| told.model == resolved.info.id);
                        (tries.told, parked) =
                            (told.map(|told| Timestamp::from_millis(told.until_ms)), parked || told.is_some());
                    }
                    let of_account = place.is_of_account();
                    let bodies = self.told_of_wait(resolved, until, of_account, tries, &mut parked);
                    if !bodies.is_empty() {
                        self.services.port.record(asking.turn_id, bodies).await?;
                    }
                }
            }
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => return Err(Stop::Cancelled),
                () = change => {}
            }
        };
        let mut state = self.services.port.record(asking.turn_id, Vec::new()).await?;
        if state.run(self.context.run_id).is_some_and(|run| run.status == RunStatus::Waiting) {
            let body = EventBody::status(RunStatus::Running);
            state = self.services.port.record(asking.turn_id, vec![body]).await?;
        }
        Ok(goes.then_some(state))
    }

    /// What is recorded of a wait: nothing of a short one, once the time of a longer one.
    fn told_of_wait(
        &self,
        resolved: &ResolvedModel,
        until: Timestamp,
        whole_account: bool,
        tries: &mut Tries,
        parked: &mut bool,
    ) -> Vec<EventBody> {
        let left = Duration::from_millis(until.millis_since(self.services.clock.now()));
        let told_before = tries.told.map(|told| Duration::from_millis(until.millis_since(told)));
        let model = &resolved.info.id;
        let park = left > self.services.retry.max_server_delay && !*parked;
        let tell = if park { true } else { told_before.map_or(left >= WAIT_TOLD_MIN, |more| more >= WAIT_TOLD_AGAIN) };
        if !tell {
            return Vec::new();
        }
        tries.told = Some(until);
        let time = self.clock_text(until);
        let mut bodies = Vec::new();
        *parked |= park;
        let text = if *parked {
            let run = self.context.run_id;
            format!("{model} takes no requests until {time}; the run waits and goes on then (mcode runs cancel {run})")
        } else {
            format!("{model} takes no requests for {:.0} s; the run goes on then", left.as_secs_f64())
        };
        bodies.push(EventBody::Notice { level: "warning".to_owned(), text });
        if *parked {
            // The next daemon waits as long.
            let parked = Parked { model: model.clone(), until_ms: until.millis(), whole_account };
            bodies.push(EventBody::RunStatusChanged { status: RunStatus::Waiting, parked: Some(parked) });
        }
        bodies
    }

    /// Whether the run is of those that wait for a quota, and the quota one that starts again.
    fn parks(&self, error: &ModelError) -> bool {
        let known = error.retry_after.is_some_and(|delay| delay <= Duration::from_millis(PARK_MAX_MS));
        self.context.options.is_background() && error.is_limit() && known && error.should_retry != Some(false)
    }

    /// The failure of a run that somebody waits for: with the time when it would go on.
    pub(crate) fn with_the_time(&self, error: &ModelError) -> RunError {
        let mut failed = failure(error);
        let long = error.retry_after.filter(|delay| error.is_limit() && *delay > self.services.retry.max_server_delay);
        let Some(delay) = long else { return failed };
        let until = self.services.clock.now().plus_millis(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
        let time = self.clock_text(until);
        failed.message.push_str(&format!("; it starts again at {time}"));
        if delay <= Duration::from_millis(PARK_MAX_MS) {
            failed.hint = format!("use another model, or let it go on by itself at {time}: mcode ask --detach");
        }
        failed
    }

    /// A moment as the client's people write it.
    pub(crate) fn clock_text(&self, moment: Timestamp) -> String {
        let zone = self.context.client_env.get("TZ").and_then(|zone| Zone::parse(zone));
        zone.unwrap_or_else(Zone::system).clock_text(moment, self.services.clock.now())
    }

    /// Gets ready for another attempt at the same model. Limits are waited out at its gate, by all together.
    async fn again(
        &self,
        asking: &mut Asking,
        place: &Place,
        tries: &mut Tries,
        error: &ModelError,
        after: Duration,
    ) -> Result<(), Stop> {
        let policy = self.services.retry;
        let after = if error.is_limit() {
            let own = |strikes| millis(policy.own_delay(strikes, mcode_env::ids::jitter(1000)).max(after));
            place.limited(limited(error, error.retry_after.map(|_| after)), own)
        } else {
            place.rest();
            after
        };
        let seconds = after.as_secs_f64();
        let text = format!("{}; trying again in {seconds:.1} s (attempt {} failed)", error.message, tries.attempt);
        self.begin_anew(asking, &text).await?;
        if error.is_limit() {
            tries.told = Some(self.services.clock.now().plus_millis(i64::try_from(millis(after)).unwrap_or(i64::MAX)));
            return Ok(());
        }
        tokio::select! {
            () = self.context.cancel.cancelled() => Err(Stop::Cancelled),
            () = tokio::time::sleep(after) => Ok(()),
        }
    }

    /// Tells what happened; if part of the message was shown already, it is taken back and begun anew.
    pub(crate) async fn begin_anew(&self, asking: &mut Asking, why: &str) -> Result<(), Stop> {
        let mut bodies = vec![EventBody::Notice { level: "warning".to_owned(), text: why.to_owned() }];
        let old = LiveKey::Message(asking.item_id);
        if asking.shown {
            bodies.push(EventBody::MessageDiscarded {
                item_id: asking.item_id,
                status: RunStatus::Failed,
                text: String::new(),
                reason: why.to_owned(),
            });
            asking.item_id = ItemId::from_uuid(self.services.ids.next());
            asking.shown = false;
            bodies.push(EventBody::MessageStarted { item_id: asking.item_id, role: Role::Assistant });
        }
        self.services.port.record(asking.turn_id, bodies).await?;
        if old != LiveKey::Message(asking.item_id) {
            self.services.live.close(old);
        }
        Ok(())
    }
}

/// What the gate is told of a failure that is a limit.
pub(crate) fn limited(error: &ModelError, server: Option<Duration>) -> Limited {
    Limited {
        server_ms: server.map(millis),
        by_number: error.kind == ModelErrorKind::RateLimited,
        whole_account: error.kind == ModelErrorKind::Quota && !error.of_model,
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Said to a run whose request was never sent, since the provider has refused those of others; `closed_ms` is how long that
/// will last.
fn refused_often(resolved: &ResolvedModel, closed_ms: Option<u64>) -> ModelError {
    let text = format!("{} has refused the requests of other runs again and again", resolved.info.id);
    let mut error = ModelError::new(ModelErrorKind::RateLimited, text);
    error.retry_after = closed_ms.map(Duration::from_millis);
    error.with_hint("Try again later, or choose another model.")
}

pub(crate) fn stop(error: RunError) -> Asked {
    Asked::Stop(Stop::Failed(error))
}

/// Whether another model may do where this one is out of reach.
const fn falls_back(kind: ModelErrorKind) -> bool {
    matches!(
        kind,
        ModelErrorKind::Overloaded
            | ModelErrorKind::RateLimited
            | ModelErrorKind::Quota
            | ModelErrorKind::Server
            | ModelErrorKind::Transport
            | ModelErrorKind::UnknownModel
    )
}
