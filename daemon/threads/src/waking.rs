//! A thread that begins a run by itself, because a command in the background has ended.

use std::time::Duration;

use mcode_events::run::{RunLimits, RunOptions, RunRecord, RunStatus, RunTrigger};
use tokio::time::Instant;

use crate::actor::Actor;
use crate::error::ThreadError;
use crate::starting::Words;

/// Runs in a row that a thread begins by itself; then it waits for a person.
pub(crate) const WAKES_MAX: usize = 8;

/// How long the ends of several commands are waited for, so that they are told in one run.
const WAKE_AFTER: Duration = Duration::from_millis(300);

impl Actor {
    /// A command has ended by itself, and the model was left a notice of it.
    pub(crate) fn wake_soon(&mut self) {
        if self.wake_at.is_none() {
            self.wake_at = Some(Instant::now() + WAKE_AFTER);
        }
    }

    /// Begins a run that is told what has ended, if the thread is idle and may.
    pub(crate) async fn wake(&mut self) {
        self.wake_at = None;
        let told = self.state.queue.iter().any(|input| !crate::inputs::wants_turn(input));
        if self.closing || self.active.is_some() || self.state.open.run.is_some() || !told {
            return;
        }
        let Some(options) = self.options_to_wake() else { return };
        if let Err(error) = self.begin_told(options).await {
            tracing::warn!(thread_id = %self.thread_id, %error, "the end of a command could not wake its thread");
        }
    }

    /// Those of the last run, if it came to its end and not too many runs since a person's were begun like this.
    fn options_to_wake(&self) -> Option<RunOptions> {
        let runs = &self.state.runs;
        let last = runs.last()?;
        let by_itself = runs.iter().rev().take_while(|run| run.options.trigger == RunTrigger::Background).count();
        let may = (self.deps.config)().wake != Some(false) && !self.state.ephemeral && by_itself < WAKES_MAX;
        if !may || last.status != RunStatus::Done {
            return None;
        }
        // From the person's run on: what that was given is for all that it has led to.
        let led_to = runs.get(runs.len().checked_sub(by_itself + 1)?..)?;
        let limits = what_is_left(&led_to.first()?.options.limits, led_to)?;
        // A schema was for the answer that somebody waited for.
        Some(RunOptions { trigger: RunTrigger::Background, answer_schema: None, limits, ..last.options.clone() })
    }

    async fn begin_told(&mut self, options: RunOptions) -> Result<(), ThreadError> {
        let own =
            || self.own_surroundings(&options).filter(|_| options.kept.as_ref().is_some_and(|kept| kept.own_access));
        // Another daemon began the last run, and its client's keys are gone: the model is told at the next prompt.
        let Some(surroundings) = self.last_surroundings.clone().or_else(own) else { return Ok(()) };
        self.deps.models.resolve(&options.model, &surroundings.client_env)?;
        let working = self.working(options, surroundings).await?;
        self.begin(Vec::new(), working, Words::Told, None).await.map(drop)
    }
}

/// What a run is that begins with words that were queued while this one ended; `None` when a limit of this one is reached.
pub(crate) fn options_to_queue(last: &RunRecord) -> Option<RunOptions> {
    let limits = what_is_left(&last.options.limits, std::slice::from_ref(last))?;
    let trigger = match last.options.trigger {
        // What is queued is a person's words.
        RunTrigger::Background => RunTrigger::Person,
        other => other,
    };
    Some(RunOptions { limits, trigger, ..last.options.clone() })
}

/// What a run has left of its limits: nothing of one that is reached.
pub(crate) fn limits_left(run: &RunRecord) -> RunLimits {
    let limits = run.options.limits;
    RunLimits {
        max_steps: limits.max_steps.map(|max| max.saturating_sub(run.steps)),
        max_tokens: limits.max_tokens.map(|max| max.saturating_sub(run.usage.total_tokens())),
        max_cost_usd: limits.max_cost_usd.map(|max| (max - run.usage.cost_usd).max(0.0)),
        max_time_ms: limits.max_time_ms,
    }
}

/// What of a run's limits it and its followers have left; `None` when one is reached. The time limit is each run's own.
fn what_is_left(limits: &RunLimits, runs: &[RunRecord]) -> Option<RunLimits> {
    let steps: u32 = runs.iter().map(|run| run.steps).sum();
    let tokens: u64 = runs.iter().map(|run| run.usage.total_tokens()).sum();
    let cost: f64 = runs.iter().map(|run| run.usage.cost_usd).sum();
    let left = RunLimits {
        max_steps: limits.max_steps.map(|max| max.saturating_sub(steps)),
        max_tokens: limits.max_tokens.map(|max| max.saturating_sub(tokens)),
        max_cost_usd: limits.max_cost_usd.map(|max| max - cost),
        max_time_ms: limits.max_time_ms,
    };
    let reached =
        left.max_steps == Some(0) || left.max_tokens == Some(0) || left.max_cost_usd.is_some_and(|it| it <= 0.0);
    (!reached).then_some(left)
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};
    use mcode_events::Usage;
    use mcode_events::run::ApprovalPolicy;
    use mcode_ids::RunId;

    use super::*;

    #[test]
    fn limits_are_for_all_that_a_persons_run_has_led_to() {
        let limits =
            RunLimits { max_steps: Some(5), max_tokens: Some(100), max_cost_usd: Some(1.0), max_time_ms: Some(7) };
        let run = |steps, input_tokens, cost_usd| RunRecord {
            run_id: RunId::from_uuid(SeededIds::new(1).next()),
            options: RunOptions {
                model: "a/b".into(),
                mode: "build".into(),
                thinking: None,
                approval: ApprovalPolicy::Ask,
                interactive: false,
                limits,
                cwd: "/".into(),
                add_dirs: Vec::new(),
                answer_schema: None,
                trigger: RunTrigger::Person,
                model_given: false,
                detached: false,
                goal_id: None,
                kept: None,
                key_source: String::new(),
            },
            status: RunStatus::Done,
            started_at_ms: 0,
            ended_at_ms: Some(1),
            error: None,
            steps,
            resumed: 0,
            parked: None,
            usage: Usage { input_tokens, cost_usd, ..Usage::default() },
        };
        let mut woken = run(2, 40, 0.25);
        woken.options.trigger = RunTrigger::Background;
        let queued = options_to_queue(&woken).unwrap();
        assert_eq!(
            (queued.limits.max_steps, queued.limits.max_tokens, queued.trigger),
            (Some(3), Some(60), RunTrigger::Person)
        );
        assert_eq!(options_to_queue(&run(5, 0, 0.0)), None);
        let left = what_is_left(&limits, &[run(2, 40, 0.25), run(1, 10, 0.25)]).unwrap();
        assert_eq!((left.max_steps, left.max_tokens), (Some(2), Some(50)));
        assert_eq!((left.max_cost_usd, left.max_time_ms), (Some(0.5), Some(7)));
        for spent in [run(5, 0, 0.0), run(1, 100, 0.0), run(1, 1, 1.0)] {
            assert_eq!(what_is_left(&limits, &[spent]), None);
        }
        assert!(what_is_left(&RunLimits::default(), &[run(900, 9, 9.0)]).is_some());
    }
}
