//! Making threads and starting runs, and settling what runs wait for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcode_agent::{ApprovalAnswer, Resumption, RunContext, RunOutcome, RunPort, RunSecrets, RunServices};
use mcode_config::ProjectConfig;
use mcode_events::event::{ApprovalOutcome, EventBody, NewEvent};
use mcode_events::run::{ApprovalPolicy, Delivery, QueuedInput, RunOptions, RunTrigger};
use mcode_ids::{QuestionId, RequestId, RunId, Seq, TurnId};
use mcode_store::StoredResponse;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::Actor;
use crate::command::{Answered, GrantScope, NewRun, NewThread, Resolution, RunSurroundings, Started};
use crate::error::ThreadError;
use crate::permissions::GrantPlace;
use crate::rules::Place;
use crate::run::ActiveRun;

/// Milliseconds over which the daily budget is counted.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

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
        let project = crate::project::resolve(&self.deps, thread.cwd.clone()).await?;
        Ok(NewEvent::of_thread(EventBody::ThreadCreated {
            project_id: project.project_id,
            cwd: thread.cwd.clone(),
            title: thread.title.clone(),
            model: thread.model.clone(),
            mode: thread.mode.clone(),
            ephemeral: thread.ephemeral,
        }))
    }

    pub(crate) async fn start(&mut self, run: NewRun) -> Result<Started, ThreadError> {
        // What a damaged log says of a run at work is only what can be read of it.
        if let Some(damage) = &self.damage {
            return Err(damage.clone().into());
        }
        self.record_left_end().await?;
        if let Some(run_id) = self.state.open.run {
            return Err(ThreadError::RunActive { thread_id: self.thread_id, run_id });
        }
        let root = self.project_root(&run.cwd).await;
        let project = crate::trust::project_config(&self.deps, &root).await?;
        let mut options = self.options(&run, project.as_deref())?;
        if let Some(schema) = &options.answer_schema {
            mcode_agent::answer::check_schema(schema)
                .map_err(|message| ThreadError::InvalidArgument { field: "answer_schema", message })?;
        }
        // Fails before anything is recorded when the model is unknown or has no key.
        self.deps.models.resolve(&options.model, &run.surroundings.client_env)?;
        self.check_day().await?;
        options.kept = Some(self.kept(&run.surroundings, &options, &self.fallback(project.as_deref())));
        let mut events = Vec::new();
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
        self.begin(events, working, Words::New(run.parts), run.request).await
    }

    /// Records the run's beginning in one commit, then lets the agent work.
    pub(crate) async fn begin(
        &mut self,
        mut events: Vec<NewEvent>,
        working: Working,
        words: Words,
        request: Option<(RequestId, String)>,
    ) -> Result<Started, ThreadError> {
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

    /// The root of the project that a run in this folder is of.
    pub(crate) async fn project_root(&self, cwd: &str) -> PathBuf {
        let cwd = PathBuf::from(cwd);
        let known = match self.state.project_id {
            Some(id) => self.deps.store.project(id).await.ok().flatten().map(|project| PathBuf::from(project.root)),
            None => {
                let folder = cwd.clone();
                let root = tokio::task::spawn_blocking(move || crate::project::root_of(&folder)).await;
                root.ok().and_then(Result::ok)
            }
        };
        // A run that stands outside its thread's project (a worktree, another folder) has its own root.
        known.filter(|root| cwd.starts_with(root)).unwrap_or(cwd)
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

    /// Inputs that were queued while the last run ended begin another one like it.
    pub(crate) async fn start_queued(&mut self, last: ActiveRun) {
        let Some(input) = self.state.queue.iter().find(|input| crate::inputs::wants_turn(input)).cloned() else {
            return;
        };
        let Some(options) = self.state.run(last.run_id).map(|run| run.options.clone()) else { return };
        let words = Words::Queued(input);
        let root = self.project_root(&options.cwd).await;
        let begun = match crate::trust::project_config(&self.deps, &root).await {
            Ok(project) => {
                let working = Working { options, root, project, surroundings: last.surroundings };
                self.begin(Vec::new(), working, words, None).await.map(drop)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            tracing::error!(thread_id = %self.thread_id, %error, "a queued run could not be started");
        }
    }

    fn options(&self, run: &NewRun, project: Option<&ProjectConfig>) -> Result<RunOptions, ThreadError> {
        let mut config = (self.deps.config)();
        if let Some(project) = project {
            config = Arc::new(config.with_project(project));
        }
        let of_project = |mode: &str| project.and_then(|it| it.mode_models.get(mode).or(it.model.as_ref())).cloned();
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mode = run.mode.clone().or_else(|| known(&self.state.mode)).unwrap_or_else(|| "build".to_owned());
        let model = run
            .model
            .clone()
            .or_else(|| known(&self.state.model))
            .or_else(|| of_project(&mode))
            .or_else(|| self.deps.models.default_model(&mode, &run.surroundings.client_env))
            .ok_or_else(|| ThreadError::InvalidArgument {
                field: "model",
                message: "no model is configured and no provider key was found".to_owned(),
            })?;
        let mut limits = run.limits;
        limits.max_steps = limits.max_steps.or(config.limits.max_steps_per_run);
        limits.max_tokens = limits.max_tokens.or(config.limits.max_tokens_per_run);
        limits.max_cost_usd = limits.max_cost_usd.or(config.limits.max_cost_per_run);
        let approval = run.approval.or_else(|| configured_approval(config.approve.as_deref())).unwrap_or_default();
        let approval = at_most(approval, configured_approval(config.approve_at_most.as_deref()));
        let approval = at_most(approval, run.approval_at_most);
        Ok(RunOptions {
            model,
            mode,
            thinking: run.thinking,
            approval,
            interactive: run.interactive,
            limits,
            cwd: run.cwd.clone(),
            add_dirs: run.add_dirs.clone(),
            answer_schema: run.answer_schema.clone(),
            trigger: if run.approval_at_most.is_some() { RunTrigger::Tool } else { RunTrigger::Person },
            kept: None,
        })
    }

    pub(crate) async fn check_day(&self) -> Result<(), ThreadError> {
        let Some(max) = (self.deps.config)().limits.max_cost_per_day else { return Ok(()) };
        let spent = self.deps.store.cost_since(self.deps.clock.now().plus_millis(-DAY_MS).millis()).await?;
        if spent < max {
            return Ok(());
        }
        Err(ThreadError::Limit {
            message: format!("the daily limit of ${max:.2} was reached (${spent:.4} spent in 24 h)"),
        })
    }

    pub(crate) async fn resolve(&mut self, resolution: Resolution) -> Result<Answered, ThreadError> {
        let Some(request) = self.state.open.approvals.get(&resolution.approval_id).cloned() else {
            return Err(ThreadError::AlreadyResolved(format!("approval {}", resolution.approval_id)));
        };
        let mut outcome = if resolution.allow { ApprovalOutcome::Allowed } else { ApprovalOutcome::Denied };
        let mut kept = None;
        if let (true, true, Some(rule)) = (resolution.allow, resolution.always, &request.proposed_rule) {
            self.keep(rule, &resolution).await?;
            outcome = ApprovalOutcome::AllowedAlways;
            kept = Some(rule.clone());
        }
        let body = EventBody::ApprovalResolved {
            approval_id: resolution.approval_id,
            outcome,
            by: resolution.by.clone(),
            reason: resolution.reason.clone(),
        };
        let seq = self.state.last_seq.next();
        self.append(self.settled(body), None).await?;
        let said = (resolution.by.as_str(), resolution.reason.as_str());
        self.record_answer(&request, outcome, said, self.state.open.run).await;
        self.pending.settle_approval(resolution.approval_id, ApprovalAnswer { outcome, reason: resolution.reason });
        Ok(Answered { seq, rule: kept })
    }

    /// Keeps the rule that was proposed: for good in the user's file, else as a grant.
    async fn keep(&self, rule: &str, resolution: &Resolution) -> Result<(), ThreadError> {
        let root = match self.state.active_run() {
            Some(run) => self.project_root(&run.options.cwd.clone()).await,
            None => self.project_root(&self.state.cwd.clone()).await,
        };
        let scope = resolution.scope;
        crate::permissions::keep_rule(
            &self.deps,
            rule,
            GrantPlace {
                thread_id: (scope == GrantScope::Thread).then_some(self.thread_id),
                root: (scope == GrantScope::Project).then(|| root.to_string_lossy().into_owned()),
                until_ms: resolution.until_ms,
            },
            &resolution.by,
        )
        .await
    }

    pub(crate) async fn answer(&mut self, question_id: QuestionId, answer: String) -> Result<Answered, ThreadError> {
        if !self.state.open.questions.contains_key(&question_id) {
            return Err(ThreadError::AlreadyResolved(format!("question {question_id}")));
        }
        let body = EventBody::QuestionAnswered { question_id, answer: Some(answer.clone()) };
        let seq = self.state.last_seq.next();
        self.append(self.settled(body), None).await?;
        self.pending.settle_question(question_id, Some(answer));
        Ok(Answered { seq, rule: None })
    }
}

/// The stricter of what a run wants and what it may have at most.
pub(crate) fn at_most(wanted: ApprovalPolicy, most: Option<ApprovalPolicy>) -> ApprovalPolicy {
    match (wanted, most) {
        (_, None | Some(ApprovalPolicy::All)) => wanted,
        (ApprovalPolicy::Deny, _) | (_, Some(ApprovalPolicy::Deny)) => ApprovalPolicy::Deny,
        (ApprovalPolicy::Ask | ApprovalPolicy::All, Some(ApprovalPolicy::Ask)) => ApprovalPolicy::Ask,
    }
}

fn new_thread(run: &NewRun, options: &RunOptions) -> NewThread {
    let words: String = run
        .parts
        .iter()
        .filter_map(|part| if let mcode_events::Part::Text { text, .. } = part { Some(text.as_str()) } else { None })
        .collect();
    NewThread {
        cwd: run.cwd.clone(),
        title: if run.title.is_empty() { mcode_agent::prompt::first_title(&words) } else { run.title.clone() },
        model: options.model.clone(),
        mode: options.mode.clone(),
        ephemeral: run.ephemeral,
    }
}

pub(crate) fn configured_approval(text: Option<&str>) -> Option<ApprovalPolicy> {
    match text {
        Some("ask") => Some(ApprovalPolicy::Ask),
        Some("deny") => Some(ApprovalPolicy::Deny),
        Some("all") => Some(ApprovalPolicy::All),
        _ => None,
    }
}
