//! The limits in money that all runs share, and what is spent of them.

use std::sync::Arc;

use mcode_agent::treasury::Spent;
use mcode_config::{Effective, ProjectConfig};
use mcode_env::Clock;
use mcode_events::usage::{nanos, usd};
use mcode_models::budget::{Cap, CapScope};
use mcode_store::{Store, UsageFilter, UsageReport};

use crate::deps::Deps;
use crate::error::ThreadError;
use crate::registry::Threads;
use crate::starting::Working;

/// Milliseconds over which the daily limit is counted: any 24 h, so that no midnight doubles it.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The shared limits of a run; those of its project only where they are lower.
pub(crate) fn caps(config: &Effective, project: Option<&ProjectConfig>) -> Vec<Cap> {
    let limits = project.map_or(config.limits, |project| config.with_project(project).limits);
    limits.max_cost_per_day.map(|max| Cap { scope: CapScope::Day, max: nanos(max) }).into_iter().collect()
}

/// What the log says to be spent; also of threads that were deleted since.
pub fn spent(store: Store, clock: Arc<dyn Clock>) -> Spent {
    Arc::new(move |scope| {
        let (store, clock) = (store.clone(), Arc::clone(&clock));
        Box::pin(async move {
            let spent = match scope {
                CapScope::Day => store.spent_since(clock.now().plus_millis(-DAY_MS).millis()).await,
                CapScope::Goal(goal_id) => store.spent_for(goal_id).await,
            };
            spent.map_err(|error| error.to_string())
        })
    })
}

/// Refuses to begin a run when the daily limit is reached, unless its model has no price: what is asked of others on the
/// way is refused then.
pub(crate) async fn check_day(deps: &Deps, working: &Working) -> Result<(), ThreadError> {
    let resolved = deps.models.resolve(&working.options.model, &working.surroundings.client_env);
    if resolved.is_ok_and(|model| model.info.pricing.is_none()) {
        return Ok(());
    }
    let project = working.project.as_deref();
    for Cap { max, .. } in caps(&(deps.config)(), project) {
        let spent = deps.store.spent_since(deps.clock.now().plus_millis(-DAY_MS).millis()).await?;
        if spent >= max {
            let (max, spent) = (usd(max), usd(spent));
            let message = format!("the daily limit of ${max:.2} was reached (${spent:.4} spent in 24 h)");
            return Err(ThreadError::Limit { message });
        }
    }
    Ok(())
}

impl Threads {
    /// Tokens and money, summed over all threads, also those that were deleted.
    pub async fn usage(&self, filter: UsageFilter) -> Result<UsageReport, ThreadError> {
        Ok(self.deps().store.usage(filter).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_project_lowers_the_daily_limit_and_never_raises_it() {
        let mut config = Effective::default();
        let project = |text: &str| ProjectConfig::parse(Path::new("/p/.mcode/config.toml"), text).unwrap();
        let (low, high) =
            (project("[limits]\nmax_cost_per_day = 0.5\n"), project("[limits]\nmax_cost_per_day = 9.0\n"));
        assert_eq!(caps(&config, None), []);
        let day = |max| [Cap { scope: CapScope::Day, max }];
        assert_eq!(caps(&config, Some(&low)), day(500_000_000));
        config.limits.max_cost_per_day = Some(2.0);
        assert_eq!(caps(&config, None), day(2_000_000_000));
        assert_eq!(caps(&config, Some(&low)), day(500_000_000));
        assert_eq!(caps(&config, Some(&high)), day(2_000_000_000));
    }
}
