//! One run: turns of steps, from the first input until nothing is left to do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mcode_env::{Clock, IdGen};
use mcode_events::blob::Blobs;
use mcode_events::event::EventBody;
use mcode_events::message::{Message, Part, Role};
use mcode_events::run::{Delivery, RunError, RunErrorKind, RunOptions, RunStatus};
use mcode_events::state::ThreadState;
use mcode_ids::{ItemId, RunId, ThreadId, TurnId};
use mcode_models::ModelRegistry;
use mcode_models::budget::Cap;
use mcode_models::retry::RetryPolicy;
use mcode_tools::{Bounds, FileLedger, ToolSet};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::gates::Gates;
use crate::limits;
use crate::live::LiveLane;
use crate::port::{RecordError, RunPort};
use crate::repetition::Repetition;
use crate::rules::LiveRules;
use crate::secrets::RunSecrets;
use crate::snapshots::RunSnapshots;
use crate::treasury::Treasury;

/// What a run works with. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RunServices {
    /// The line to the thread.
    pub port: RunPort,
    /// Models by name.
    pub models: Arc<dyn ModelRegistry>,
    /// The tools.
    pub tools: Arc<ToolSet>,
    /// The user's rules.
    pub rules: LiveRules,
    /// What must not be written down.
    pub redactor: RunSecrets,
    /// What commands and file tools are held to.
    pub bounds: Arc<Bounds>,
    /// What the model believes of files.
    pub ledger: Arc<FileLedger>,
    /// Large bodies.
    pub blobs: Arc<dyn Blobs>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Makes ids.
    pub ids: Arc<dyn IdGen>,
    /// Live text.
    pub live: LiveLane,
    /// When to try a model again.
    pub retry: RetryPolicy,
    /// Models to fall back to, in order.
    pub fallback: Vec<String>,
    /// Where all runs wait for providers.
    pub gates: Arc<Gates>,
    /// What all runs may spend together.
    pub treasury: Arc<Treasury>,
    /// The limits of that which count for this run.
    pub caps: Vec<Cap>,
    /// Snapshots of the project's files around what changes them.
    pub snapshots: Arc<RunSnapshots>,
}

/// For whom and where a run works. Never stored.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The thread.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// What it was asked to be.
    pub options: RunOptions,
    /// The project's root.
    pub project_root: PathBuf,
    /// The client's environment, for keys and base URLs.
    pub client_env: Arc<BTreeMap<String, String>>,
    /// The same without secrets, for tools.
    pub tool_env: Arc<BTreeMap<String, String>>,
    /// The client's file mode mask.
    pub umask: u32,
    /// Ends the run.
    pub cancel: CancellationToken,
}

/// How a run ended, as far as the agent knows.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// `Done`, `Failed` or `Cancelled`; `Interrupted` for what was left of an earlier daemon's run.
    pub status: RunStatus,
    /// Why it did not end well.
    pub error: Option<RunError>,
    /// The answer that satisfies the run's schema.
    pub structured: Option<Value>,
}

/// Why a run stops before the model does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    Cancelled,
    Failed(RunError),
    /// What an earlier daemon's run would need to go on is not there any more.
    Interrupted(RunError),
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Failed(RunError {
            kind: RunErrorKind::Internal,
            reason: "LOG".to_owned(),
            message: error.to_string(),
            hint: "see 'mcode daemon logs'; if the disk is full, make room and go on with --thread".to_owned(),
        })
    }
}

/// Runs turns until nothing is left to do. `first_turn` and its input are in the log already.
pub async fn drive(services: RunServices, context: RunContext, first_turn: TurnId) -> RunOutcome {
    let mut driver = Driver::new(services, context);
    outcome(driver.turns(first_turn).await)
}

/// How a run ended, from what its turns came to.
pub(crate) fn outcome(ended: Result<Option<Value>, Stop>) -> RunOutcome {
    let (status, error) = match ended {
        Ok(structured) => return RunOutcome { status: RunStatus::Done, error: None, structured },
        Err(Stop::Cancelled) => (RunStatus::Cancelled, None),
        Err(Stop::Failed(error)) => (RunStatus::Failed, Some(error)),
        Err(Stop::Interrupted(error)) => (RunStatus::Interrupted, Some(error)),
    };
    RunOutcome { status, error, structured: None }
}

/// A run at work.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) services: RunServices,
    pub(crate) context: RunContext,
    pub(crate) repetition: Repetition,
    /// Set while the newest tool call is one that was refused: what was refused, and why.
    pub(crate) last_call_denied: Option<String>,
    answer_tries: u32,
    pub(crate) refused_calls: u32,
    /// The model that was left out last, and the one that was asked instead, as it was told.
    pub(crate) detour: Option<(String, String)>,
}

/// How a turn goes on after a step.
pub(crate) enum Next {
    /// The model wants another step.
    Step,
    /// The model has said all it wanted: its final words.
    Answer(String),
}

impl Driver {
    pub(crate) fn new(services: RunServices, context: RunContext) -> Self {
        Self {
            services,
            context,
            repetition: Repetition::default(),
            last_call_denied: None,
            answer_tries: 0,
            refused_calls: 0,
            detour: None,
        }
    }

    pub(crate) async fn turns(&mut self, first_turn: TurnId) -> Result<Option<Value>, Stop> {
        let mut turn_id = first_turn;
        loop {
            self.look_at_files(turn_id).await?;
            let structured = match self.turn(turn_id).await {
                Ok(structured) => structured,
                Err(stop) => {
                    self.settle_files(turn_id).await.ok();
                    return Err(stop);
                }
            };
            self.settle_files(turn_id).await?;
            self.services
                .port
                .record(turn_id, vec![EventBody::TurnFinished { turn_id, status: RunStatus::Done }])
                .await?;
            let next = TurnId::from_uuid(self.services.ids.next());
            if self.services.port.take_inputs(next, Delivery::Queue).await?.is_empty() {
                return Ok(structured);
            }
            turn_id = next;
        }
    }

    async fn turn(&mut self, turn_id: TurnId) -> Result<Option<Value>, Stop> {
        loop {
            self.steered(turn_id).await?;
            let state = self.services.port.record(turn_id, Vec::new()).await?;
            self.tell_of_changes(turn_id, &state).await?;
            self.check_limits(&state)?;
            drop(state);
            match self.step(turn_id).await? {
                Next::Step => {}
                Next::Answer(text) => {
                    // What the user said while the model wrote its last words must not be lost.
                    if self.steered(turn_id).await? {
                        continue;
                    }
                    if let Some(end) = self.answered(turn_id, &text).await? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// Takes what the user has said meanwhile into the turn; whether there was anything.
    async fn steered(&mut self, turn_id: TurnId) -> Result<bool, Stop> {
        let any = !self.services.port.take_inputs(turn_id, Delivery::Steer).await?.is_empty();
        if any {
            // The user has answered a refusal with new words: the turn no longer ends on it.
            self.last_call_denied = None;
        }
        Ok(any)
    }

    /// The end of a turn, or `None` when the model has to answer again.
    async fn answered(&mut self, turn_id: TurnId, text: &str) -> Result<Option<Option<Value>>, Stop> {
        if let Some(denied) = self.last_call_denied.take() {
            return Err(Stop::Failed(RunError {
                kind: RunErrorKind::Permission,
                reason: "PERMISSION_DENIED".to_owned(),
                message: format!("the run ended after a refused tool call: {denied}"),
                hint: "allow it with a rule under [permissions], answer when asked, or use --approve all".to_owned(),
            }));
        }
        let Some(schema) = self.context.options.answer_schema.clone() else { return Ok(Some(None)) };
        match crate::answer::check(&schema, text) {
            Ok(value) => Ok(Some(Some(value))),
            Err(problem) if self.answer_tries + 1 < crate::answer::TRIES_MAX => {
                self.answer_tries += 1;
                self.tell_model(turn_id, &problem).await?;
                Ok(None)
            }
            Err(problem) => Err(Stop::Failed(RunError {
                kind: RunErrorKind::Run,
                reason: "ANSWER_SCHEMA".to_owned(),
                message: format!(
                    "the answer did not satisfy the schema after {} tries: {problem}",
                    crate::answer::TRIES_MAX
                ),
                hint: "loosen the schema or use another model".to_owned(),
            })),
        }
    }

    /// Says something to the model in the user's place, marked as ours.
    pub(crate) async fn tell_model(&self, turn_id: TurnId, text: &str) -> Result<(), Stop> {
        let message = Message {
            item_id: ItemId::from_uuid(self.services.ids.next()),
            role: Role::User,
            parts: vec![Part::text(format!("[mcode] {text}"))],
            origin: None,
        };
        self.services.port.record(turn_id, vec![EventBody::MessageFinished { message }]).await?;
        Ok(())
    }

    fn check_limits(&self, state: &ThreadState) -> Result<(), Stop> {
        if self.context.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        match state.run(self.context.run_id) {
            Some(run) => limits::check(&self.context.options.limits, run).map_err(Stop::Failed),
            None => Ok(()),
        }
    }
}
