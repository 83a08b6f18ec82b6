//! A thread that begins a run by itself, because a command in the background has ended.

use std::time::Duration;

use mcode_events::run::{RunOptions, RunStatus, RunTrigger};
use tokio::time::Instant;

use crate::actor::Actor;
use crate::error::ThreadError;
use crate::starting::{Words, Working};

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
        let last = self.state.runs.last()?;
        let by_itself =
            self.state.runs.iter().rev().take_while(|run| run.options.trigger == RunTrigger::Background).count();
        let may = (self.deps.config)().wake != Some(false) && !self.state.ephemeral && by_itself < WAKES_MAX;
        if !may || last.status != RunStatus::Done {
            return None;
        }
        // A schema was for the answer that somebody waited for.
        Some(RunOptions { trigger: RunTrigger::Background, answer_schema: None, ..last.options.clone() })
    }

    async fn begin_told(&mut self, options: RunOptions) -> Result<(), ThreadError> {
        let own =
            || self.own_surroundings(&options).filter(|_| options.kept.as_ref().is_some_and(|kept| kept.own_access));
        // Another daemon began the last run, and its client's keys are gone: the model is told at the next prompt.
        let Some(surroundings) = self.last_surroundings.clone().or_else(own) else { return Ok(()) };
        self.deps.models.resolve(&options.model, &surroundings.client_env)?;
        self.check_day().await?;
        let root = self.project_root(&options.cwd).await;
        let project = crate::trust::project_config(&self.deps, &root).await?;
        let working = Working { options, root, project, surroundings };
        self.begin(Vec::new(), working, Words::Told, None).await.map(drop)
    }
}
