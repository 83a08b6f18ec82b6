//! Money of a request: held before it is sent, recorded when it is known.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mcode_events::event::EventBody;
use mcode_events::run::{RunError, RunErrorKind};
use mcode_events::usage::{Usage, UsagePurpose, usd};
use mcode_ids::TurnId;
use mcode_models::budget::{self, CapScope};
use mcode_models::{ModelRequest, ResolvedModel};

use crate::asking::{Asking, WAIT_TOLD_MIN};
use crate::drive::{Driver, Stop};
use crate::gates::{Place, Standing};
use crate::treasury::{Holding, NoMoney};

/// Said to a run that waits for money.
const WAITS_FOR_MONEY: &str = "requests of other runs may use up what is left of a limit in money; \
                               the run goes on when it is known what they have cost";

impl Driver {
    /// Holds what the request may cost. While others may still leave room for it, it waits without its turn; `None` when
    /// that has to be waited for anew then.
    pub(crate) async fn admit(
        &self,
        asking: &Asking,
        request: &ModelRequest,
        place: &Place,
    ) -> Result<Option<Holding>, Stop> {
        let (treasury, caps) = (&self.services.treasury, &self.services.caps);
        let waited = AtomicBool::new(false);
        let waits = || {
            if !waited.swap(true, Relaxed) {
                // Somebody else may ask the provider meanwhile.
                place.rest();
            }
        };
        let (bound, goal) = (budget::bound(request), self.context.options.goal_id);
        let admitted = treasury.admit(caps, bound, goal, waits);
        let long = tokio::time::sleep(WAIT_TOLD_MIN);
        tokio::pin!(admitted, long);
        let mut told = false;
        let holding = loop {
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => return Err(Stop::Cancelled),
                admitted = &mut admitted => break admitted.map_err(|why| Stop::Failed(no_money_error(why)))?,
                () = &mut long, if !told => {
                    told = true;
                    let body = EventBody::Notice { level: "warning".to_owned(), text: WAITS_FOR_MONEY.to_owned() };
                    self.services.port.record(asking.turn_id, vec![body]).await?;
                }
            }
        };
        // What is held must not be held through a pause of the provider.
        let goes = !waited.load(Relaxed) || place.look().0 == Standing::Go;
        Ok(goes.then_some(holding))
    }

    /// Tokens of a failed attempt were spent all the same.
    pub(crate) async fn pay(
        &self,
        turn_id: TurnId,
        usage: Option<Usage>,
        resolved: &ResolvedModel,
    ) -> Result<(), Stop> {
        let Some(body) = self.usage_event(usage, resolved) else { return Ok(()) };
        self.services.port.record(turn_id, vec![body]).await?;
        Ok(())
    }

    /// What is recorded of a request's cost.
    pub(crate) fn usage_event(&self, usage: Option<Usage>, resolved: &ResolvedModel) -> Option<EventBody> {
        let (usage, priced) = budget::price(usage?, &resolved.info);
        let (model, goal_id) = (resolved.info.id.clone(), self.context.options.goal_id);
        Some(EventBody::UsageRecorded { model, usage, purpose: UsagePurpose::Work, priced, goal_id })
    }
}

fn no_money_error(no_money: NoMoney) -> RunError {
    let (kind, reason, message, hint) = match no_money {
        NoMoney::Reached { cap, spent } => {
            let (max, spent) = (usd(cap.max), usd(spent));
            match cap.scope {
                CapScope::Day => (
                    RunErrorKind::Limit,
                    "DAY_COST_LIMIT",
                    format!("the daily limit of ${max:.2} was reached (${spent:.4} spent in 24 h)"),
                    "raise max_cost_per_day under [limits] in config.toml, or wait; then go on with --thread",
                ),
                CapScope::Goal(goal) => (
                    RunErrorKind::Limit,
                    "GOAL_COST_LIMIT",
                    format!("the limit of ${max:.2} of goal {goal} was reached (${spent:.4} spent)"),
                    "raise the goal's own limit, then go on with --thread",
                ),
            }
        }
        NoMoney::Crowded => (
            RunErrorKind::Limit,
            "DAY_COST_LIMIT",
            "too many requests wait for what is left of a limit".to_owned(),
            "wait until some runs have ended: mcode runs list --active",
        ),
        NoMoney::Unknown(why) => (
            RunErrorKind::Internal,
            "LOG",
            format!("what was spent can not be read: {why}"),
            "see 'mcode daemon logs'; then go on with --thread",
        ),
    };
    RunError { kind, reason: reason.to_owned(), message, hint: hint.to_owned() }
}
