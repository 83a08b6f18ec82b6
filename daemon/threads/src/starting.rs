//! Making threads and starting runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcode_agent::{Resumption, RunContext, RunOutcome, RunPort, RunSecrets, RunServices, RunSnapshots};
use mcode_config::ProjectConfig;
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::run::{ApprovalPolicy, Delivery, QueuedInput, RunLimits, RunOptions};
use mcode_ids::{RequestId, RunId, Seq, TurnId};
use mcode_models::packs::{Role, Wishes};
use mcode_permissions::Mode;
use mcode_store::StoredResponse;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::Actor;
use crate::command::{NewRun, NewThread, RunSurroundings, Started};
use crate::error::ThreadError;
use crate::rules::Place;
use crate::run::ActiveRun;

/// A run that is about to begin: as what, where, and for whom.
pub(crate) struct Working {
    pub(crate) options: RunOptions,
    pub(crate) root: PathBuf,
    /// What the project says, if it is trusted.
    pub(crate) project: Option<Arc<ProjectConfig>>,
    pub(crate) surroundings: RunSurroundings,
}

/// What a run begins with.
pub(crate) enum Words {
    /// What the user says now.
    New(Vec<mcode_events::Part>),
    /// What the user said while the last run ended. It leaves the queue in the commit that begins its run, so that it
    /// cannot be lost in between.
    Queued(QueuedInput),
    /// What the model is told of commands that have ended in the background.
    Told,
}

impl Actor {
    pub(crate) async fn create(
        &mut self,
        thread: &NewThread,
        request: Option<(RequestId, String)>,
    ) -> Result<Seq, ThreadError> {
        let event = self.created(thread).await?;
        let request = request.map(|(id, fingerprint)| {
            (id, StoredResponse { fingerprint, response: crate::registry::encode_made(self.thread_id, Seq::new(1)) })
        });
        self.append(vec![event], request).await
    }

    async fn created(&self, thread: &NewThread) -> Result<NewEvent, ThreadError> {
        let place = crate::project::resolve(&self.deps, thread.cwd.clone()).await?;
        Ok(NewEvent::of_thread(EventBody::ThreadCreated {
            project_id: place.project.project_id,
            cwd: thread.cwd.clone(),
            root: place.root,
            title: thread.title.clone(),
            model: thread.model.clone(),
            mode: thread.mode.as_str().to_owned(),
            ephemeral: thread.ephemeral,
        }))
    }

    pub(crate) async fn start(&mut self, run: NewRun) -> Result<Started, ThreadError> {
        let in_fork = run.resend.is_some_and(|resend| resend.in_fork);
        let started = self.try_start(run).await;
        if started.is_err() && in_fork {
            // Nothing came of the fork whose state this was to be.
            self.reload().await;
        }
        started
    }

    async fn try_start(&mut self, mut run: NewRun) -> Result<Started, ThreadError> {
        // What a damaged log says of a run at work is only what can be read of it.
        if let Some(damage) = &self.damage {
            return Err(damage.clone().into());
        }
        self.record_left_end().await?;
        if let Some(run_id) = self.state.open.run {
            return Err(ThreadError::RunActive { thread_id: self.thread_id, run_id });
        }
        let mut events = self.taken_back(&mut run).await?;
        let root = self.project_root(&run.cwd).await;
        let project = crate::trust::project_config(&self.deps, &root).await?;
        let mut options = self.options(&run, project.as_deref())?;
        if let Some(schema) = &options.answer_schema {
            mcode_agent::answer::check_schema(schema)
                .map_err(|message| ThreadError::InvalidArgument { field: "answer_schema", message })?;
        }
        // Fails before anything is recorded when the model is unknown or has no key.
        self.deps.models.resolve(&options.model, &run.surroundings.client_env)?;
        options.kept = Some(self.kept(&run.surroundings, &options, &self.fallback(project.as_deref())));
        let untitled = self.state.last_seq == Seq::ZERO && run.title.is_empty();
        if self.state.last_seq == Seq::ZERO {
            // It was there when the run was asked for, and was deleted since.
            if let Some(thread_id) = run.thread_id {
                return Err(ThreadError::NotFound { what: "thread", id: thread_id.to_string() });
            }
            events.push(self.created(&new_thread(&run, &options)).await?);
        } else {
            if self.state.model != options.model {
                events.push(NewEvent::of_thread(EventBody::ModelChanged { model: options.model.clone() }));
            }
            if self.state.mode != options.mode {
                events.push(NewEvent::of_thread(EventBody::ModeChanged { mode: options.mode.clone() }));
            }
        }
        let working = Working { options, root, project, surroundings: run.surroundings };
        let title = if untitled { self.title_wanted(&working, &spoken(&run.parts)) } else { None };
        let started = self.begin(events, working, Words::New(run.parts), run.request).await?;
        self.begin_titling(title);
        Ok(started)
    }

    /// Records the run's beginning in one commit, then lets the agent work. Nothing begins when the day's budget is spent.
    pub(crate) async fn begin(
        &mut self,
        mut events: Vec<NewEvent>,
        mut working: Working,
        words: Words,
        request: Option<(RequestId, String)>,
    ) -> Result<Started, ThreadError> {
        crate::spending::check_day(&self.deps, &working).await?;
        // Of a model that can not be asked nothing is known; the run says why.
        let resolved = self.deps.models.resolve(&working.options.model, &working.surroundings.client_env);
        working.options.key_source = resolved.map(|resolved| resolved.access.key_word).unwrap_or_default();
        let run_id = RunId::from_uuid(self.deps.ids.next());
        let turn_id = TurnId::from_uuid(self.deps.ids.next());
        let started = Started { thread_id: self.thread_id, run_id, seq: self.state.last_seq };
        let options = working.options.clone();
        let mut bodies = vec![EventBody::RunStarted { options }, EventBody::TurnStarted { turn_id }];
        let taken: Vec<&QueuedInput> = match &words {
            // What was left for the model since the last run comes before the new words.
            Words::New(_) => self.state.queue.iter().collect(),
            // What was told beside it comes too; another queued input is a turn of its own.
            Words::Queued(first) => {
                let steering =
                    |input: &&QueuedInput| input.delivery == Delivery::Steer && input.input_id != first.input_id;
                self.state.queue.iter().filter(steering).chain([first]).collect()
            }
            Words::Told => self.state.queue.iter().filter(|input| input.delivery == Delivery::Steer).collect(),
        };
        for input in taken {
            bodies.push(EventBody::InputTaken { input_id: input.input_id, delivered: true });
            bodies.push(EventBody::MessageFinished { message: self.user_message(input.parts.clone()) });
        }
        if let Words::New(parts) = words {
            bodies.push(EventBody::MessageFinished { message: self.user_message(parts) });
        }
        events.extend(bodies.into_iter().map(|body| NewEvent::of_run(run_id, Some(turn_id), body)));
        let request = request.map(|(id, fingerprint)| {
            (id, StoredResponse { fingerprint, response: crate::registry::encode_started(started) })
        });
        self.append(events, request).await?;
        self.spawn(run_id, turn_id, working);
        Ok(started)
    }

    /// What a run like this works with, where its project is and what that says now.
    pub(crate) async fn working(
        &self,
        options: RunOptions,
        surroundings: RunSurroundings,
    ) -> Result<Working, ThreadError> {
        let root = self.project_root(&options.cwd).await;
        let project = crate::trust::project_config(&self.deps, &root).await?;
        Ok(Working { options, root, project, surroundings })
    }

    /// The root of the work tree that a run in this folder is of.
    pub(crate) async fn project_root(&self, cwd: &str) -> PathBuf {
        let cwd = PathBuf::from(cwd);
        let known = Some(PathBuf::from(&self.state.root)).filter(|root| root.is_absolute() && cwd.starts_with(root));
        if let Some(root) = known {
            return root;
        }
        let folder = cwd.clone();
        let root = tokio::task::spawn_blocking(move || crate::project::root_of(&folder)).await;
        root.ok().and_then(Result::ok).unwrap_or(cwd)
    }

    /// Keys that the configuration knows: their values are not written down.
    fn keys(&self, surroundings: &RunSurroundings) -> Vec<String> {
        let config = (self.deps.config)();
        let key = |text: &String| match text.split_once(':') {
            Some(("env", name)) => surroundings.client_env.get(name).cloned(),
            Some(("keyring" | "command", _)) => None,
            _ => Some(text.clone()),
        };
        let keys = config.providers.values().filter_map(|provider| provider.api_key.as_ref()).filter_map(key);
        keys.chain(config.providers.values().flat_map(|provider| provider.headers.values().cloned())).collect()
    }

    /// Models to fall back to.
    fn fallback(&self, project: Option<&ProjectConfig>) -> Vec<String> {
        let own = project.map(|project| project.fallback.clone()).filter(|models| !models.is_empty());
        own.unwrap_or_else(|| (self.deps.config)().fallback.clone())
    }

    /// What a run works with, and where.
    fn outfit(&self, run_id: RunId, working: &Working, cancel: &CancellationToken) -> (RunServices, RunContext) {
        let Working { options, root, project, surroundings } = working;
        let place = Place { thread_id: Some(self.thread_id), root: root.clone(), project: project.clone() };
        let keys = self.keys(surroundings);
        // A thread may be gone on with in another work tree, whose files are others.
        let is_own = *root == crate::checkpoints::root_of(&self.state);
        let other = if is_own { String::new() } else { root.to_string_lossy().into_owned() };
        let marks = self.state.checkpoints.iter().rev();
        let last = marks.map(|mark| &mark.checkpoint).find(|it| it.root == other).map(|it| it.snapshot.clone());
        let services = RunServices {
            port: RunPort::new(run_id, self.signal_sender.clone()),
            models: Arc::clone(&self.deps.models),
            tools: Arc::clone(&self.deps.tools),
            rules: self.deps.rules.live(place),
            redactor: RunSecrets::of(&surroundings.client_env, &surroundings.tool_env, &keys),
            bounds: Arc::clone(&self.deps.bounds),
            ledger: Arc::clone(&self.ledger),
            blobs: self.deps.store.blobs(),
            clock: Arc::clone(&self.deps.clock),
            ids: Arc::clone(&self.deps.ids),
            live: self.live.clone(),
            retry: self.deps.retry,
            fallback: self.fallback(project.as_deref()),
            gates: Arc::clone(&self.deps.gates),
            treasury: Arc::clone(&self.deps.treasury),
            caps: crate::spending::caps(&(self.deps.config)(), project.as_deref()),
            snapshots: Arc::new(RunSnapshots::new(self.deps.depots.snapshots_of(root, last.as_deref()), other, last)),
        };
        let context = RunContext {
            thread_id: self.thread_id,
            run_id,
            options: options.clone(),
            project_root: root.clone(),
            client_env: Arc::clone(&surroundings.client_env),
            tool_env: Arc::clone(&surroundings.tool_env),
            umask: surroundings.umask,
            cancel: cancel.clone(),
        };
        (services, context)
    }

    fn spawn(&mut self, run_id: RunId, turn_id: TurnId, working: Working) {
        let cancel = CancellationToken::new();
        let (services, context) = self.outfit(run_id, &working, &cancel);
        let limit = working.options.limits.max_time_ms.map(Duration::from_millis);
        let task = tokio::spawn(mcode_agent::drive(services, context, turn_id));
        self.watch_over(run_id, cancel, task, limit, working.surroundings);
    }

    /// Lets the agent go on with a run of an earlier daemon, for as long as is left of its time.
    pub(crate) fn spawn_resumed(
        &mut self,
        run_id: RunId,
        working: Working,
        resumption: Resumption,
        left: Option<Duration>,
    ) {
        let cancel = CancellationToken::new();
        let (services, context) = self.outfit(run_id, &working, &cancel);
        let task = tokio::spawn(mcode_agent::resume(services, context, resumption));
        self.watch_over(run_id, cancel, task, left, working.surroundings);
    }

    fn watch_over(
        &mut self,
        run_id: RunId,
        cancel: CancellationToken,
        task: tokio::task::JoinHandle<RunOutcome>,
        limit: Option<Duration>,
        surroundings: RunSurroundings,
    ) {
        // A limit beyond what the clock can hold is none.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.active = Some(ActiveRun::new(run_id, cancel, task, deadline, surroundings));
    }

    /// Inputs that were queued while the last run ended begin another one like it, with what that has left of its limits.
    pub(crate) async fn start_queued(&mut self, last: ActiveRun) {
        let Some(input) = self.state.queue.iter().find(|input| crate::inputs::wants_turn(input)).cloned() else {
            return;
        };
        let Some(run) = self.state.run(last.run_id) else { return };
        let begun = match crate::waking::options_to_queue(run) {
            Some(options) => self.begin_queued(options, last.surroundings, input).await,
            None => Err(ThreadError::Limit { message: "a limit of the run was reached".to_owned() }),
        };
        if let Err(error) = begun {
            tracing::warn!(thread_id = %self.thread_id, %error, "a queued run could not be started");
            let text = format!("what was said last waits for the next prompt: {error}");
            let notice = NewEvent::of_thread(EventBody::Notice { level: "warning".to_owned(), text });
            if let Err(error) = self.append(vec![notice], None).await {
                tracing::warn!(thread_id = %self.thread_id, %error, "that an input waits could not be recorded");
            }
        }
    }

    async fn begin_queued(
        &mut self,
        options: RunOptions,
        surroundings: RunSurroundings,
        input: QueuedInput,
    ) -> Result<(), ThreadError> {
        let working = self.working(options, surroundings).await?;
        self.begin(Vec::new(), working, Words::Queued(input), None).await.map(drop)
    }

    fn options(&self, run: &NewRun, project: Option<&ProjectConfig>) -> Result<RunOptions, ThreadError> {
        let mut config = (self.deps.config)();
        if let Some(project) = project {
            config = Arc::new(config.with_project(project));
        }
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let at_most = run.asker.at_most();
        let wanted = run.mode.or_else(|| known(&self.state.mode).map(|mode| Mode::of_log(&mode))).unwrap_or_default();
        // A run that only looks starts none that changes things.
        let mode = at_most.map_or(wanted, |bounds| wanted.max(bounds.mode)).as_str();
        let wishes = Wishes {
            run: run.model.as_deref(),
            thread: self.state.chosen_model(mode),
            last: Some(self.state.model.as_str()),
            project_mode: project.and_then(|project| project.mode_models.get(mode)).map(String::as_str),
            project: project.and_then(|project| project.model.as_deref()),
        };
        let assigned = self.deps.models.for_role(Role::of_mode(mode), &wishes, &run.surroundings.client_env)?;
        let assigned = assigned.ok_or_else(|| ThreadError::InvalidArgument {
            field: "model",
            message: "no model is configured and no provider key was found".to_owned(),
        })?;
        let mut limits = run.limits;
        limits.max_steps = limits.max_steps.or(config.limits.max_steps_per_run);
        limits.max_tokens = limits.max_tokens.or(config.limits.max_tokens_per_run);
        limits.max_cost_usd = limits.max_cost_usd.or(config.limits.max_cost_per_run);
        if let Some(bounds) = at_most {
            // What the call's own run has left, and never more than the settings give to any.
            let settings = RunLimits {
                max_steps: config.limits.max_steps_per_run,
                max_tokens: config.limits.max_tokens_per_run,
                max_cost_usd: config.limits.max_cost_per_run,
                max_time_ms: None,
            };
            limits = limits.within(bounds.limits).within(settings);
        }
        let approval = run.approval.or_else(|| configured_approval(config.approve.as_deref())).unwrap_or_default();
        let approval = stricter(approval, configured_approval(config.approve_at_most.as_deref()));
        let approval = stricter(approval, at_most.map(|bounds| bounds.approval));
        Ok(RunOptions {
            model: assigned.model,
            mode: mode.to_owned(),
            thinking: run.thinking.or(assigned.thinking),
            approval,
            interactive: run.interactive,
            limits,
            cwd: run.cwd.clone(),
            add_dirs: run.add_dirs.clone(),
            answer_schema: run.answer_schema.clone(),
            trigger: run.asker.trigger(),
            model_given: run.model.is_some(),
            detached: run.detached,
            goal_id: None,
            kept: None,
            key_source: String::new(),
        })
    }
}

/// The stricter of what a run wants and what it may have at most.
pub(crate) fn stricter(wanted: ApprovalPolicy, most: Option<ApprovalPolicy>) -> ApprovalPolicy {
    match (wanted, most) {
        (_, None | Some(ApprovalPolicy::All)) => wanted,
        (ApprovalPolicy::Deny, _) | (_, Some(ApprovalPolicy::Deny)) => ApprovalPolicy::Deny,
        (ApprovalPolicy::Ask | ApprovalPolicy::All, Some(ApprovalPolicy::Ask)) => ApprovalPolicy::Ask,
    }
}

fn new_thread(run: &NewRun, options: &RunOptions) -> NewThread {
    NewThread {
        cwd: run.cwd.clone(),
        title: if run.title.is_empty() {
            mcode_agent::prompt::first_title(&spoken(&run.parts))
        } else {
            run.title.clone()
        },
        model: options.model.clone(),
        mode: Mode::of_log(&options.mode),
        ephemeral: run.ephemeral,
    }
}

/// The words of what the user says.
fn spoken(parts: &[mcode_events::Part]) -> String {
    let text = |part: &mcode_events::Part| match part {
        mcode_events::Part::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    parts.iter().filter_map(text).collect()
}

/// What the configuration says about calls that would be asked. Its words are checked when it is read; one that nobody
/// knows would be the strictest.
pub(crate) fn configured_approval(text: Option<&str>) -> Option<ApprovalPolicy> {
    match text {
        Some("ask") => Some(ApprovalPolicy::Ask),
        Some("all") => Some(ApprovalPolicy::All),
        Some(_) => Some(ApprovalPolicy::Deny),
        None => None,
    }
}
