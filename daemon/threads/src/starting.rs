//! Making threads and starting runs, and settling what runs wait for.

use std::sync::Arc;
use std::time::Duration;

use mcode_agent::{ApprovalAnswer, RunContext, RunPort, RunServices};
use mcode_events::event::{ApprovalOutcome, EventBody, NewEvent};
use mcode_events::run::{Delivery, QueuedInput, RunOptions};
use mcode_ids::{QuestionId, RequestId, RunId, Seq, TurnId};
use mcode_permissions::Effect;
use mcode_store::StoredResponse;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::Actor;
use crate::command::{Answered, NewRun, NewThread, Resolution, RunSurroundings, Started};
use crate::deps::RuleChange;
use crate::error::ThreadError;
use crate::run::ActiveRun;

/// Milliseconds over which the daily budget is counted.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What a run begins with.
enum Words {
    /// What the user says now.
    New(Vec<mcode_events::Part>),
    /// What the user said while the last run ended. It leaves the queue in the commit that begins its run, so that it
    /// cannot be lost in between.
    Queued(QueuedInput),
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
        let options = self.options(&run)?;
        if let Some(schema) = &options.answer_schema {
            mcode_agent::answer::check_schema(schema)
                .map_err(|message| ThreadError::InvalidArgument { field: "answer_schema", message })?;
        }
        // Fails before anything is recorded when the model is unknown or has no key.
        self.deps.models.resolve(&options.model, &run.surroundings.client_env)?;
        self.check_day().await?;
        let mut events = Vec::new();
        if self.state.last_seq == Seq::ZERO {
            events.push(self.created(&new_thread(&run, &options)).await?);
        } else {
            if self.state.model != options.model {
                events.push(NewEvent::of_thread(EventBody::ModelChanged { model: options.model.clone() }));
            }
            if self.state.mode != options.mode {
                events.push(NewEvent::of_thread(EventBody::ModeChanged { mode: options.mode.clone() }));
            }
        }
        self.begin(events, options, Words::New(run.parts), run.surroundings, run.request).await
    }

    /// Records the run's beginning in one commit, then lets the agent work.
    async fn begin(
        &mut self,
        mut events: Vec<NewEvent>,
        options: RunOptions,
        words: Words,
        surroundings: RunSurroundings,
        request: Option<(RequestId, String)>,
    ) -> Result<Started, ThreadError> {
        let run_id = RunId::from_uuid(self.deps.ids.next());
        let turn_id = TurnId::from_uuid(self.deps.ids.next());
        let started = Started { thread_id: self.thread_id, run_id, seq: self.state.last_seq };
        let mut bodies = vec![EventBody::RunStarted { options: options.clone() }, EventBody::TurnStarted { turn_id }];
        let taken: Vec<&QueuedInput> = match &words {
            // What was left for the model since the last run comes before the new words.
            Words::New(_) => self.state.queue.iter().collect(),
            // What was told beside it comes too; another queued input is a turn of its own.
            Words::Queued(first) => {
                let steering =
                    |input: &&QueuedInput| input.delivery == Delivery::Steer && input.input_id != first.input_id;
                self.state.queue.iter().filter(steering).chain([first]).collect()
            }
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
        self.spawn(run_id, turn_id, options, surroundings).await;
        Ok(started)
    }

    async fn spawn(&mut self, run_id: RunId, turn_id: TurnId, options: RunOptions, surroundings: RunSurroundings) {
        let cancel = CancellationToken::new();
        let project_root = match self.state.project_id {
            Some(id) => self.deps.store.project(id).await.ok().flatten().map(|project| project.root),
            None => None,
        };
        let cwd = std::path::PathBuf::from(&options.cwd);
        // A run that stands outside its thread's project (a worktree, another folder) has its own root.
        let project_root =
            project_root.map(std::path::PathBuf::from).filter(|root| cwd.starts_with(root)).unwrap_or(cwd);
        let services = RunServices {
            port: RunPort::new(run_id, self.signal_sender.clone()),
            models: Arc::clone(&self.deps.models),
            tools: Arc::clone(&self.deps.tools),
            rules: (self.deps.rules)(),
            ledger: Arc::clone(&self.ledger),
            blobs: self.deps.store.blobs(),
            clock: Arc::clone(&self.deps.clock),
            ids: Arc::clone(&self.deps.ids),
            live: self.live.clone(),
            retry: self.deps.retry,
            fallback: (self.deps.config)().fallback.clone(),
        };
        // A limit beyond what the clock can hold is none.
        let deadline =
            options.limits.max_time_ms.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit)));
        let context = RunContext {
            thread_id: self.thread_id,
            run_id,
            options,
            project_root,
            client_env: Arc::clone(&surroundings.client_env),
            tool_env: Arc::clone(&surroundings.tool_env),
            umask: surroundings.umask,
            cancel: cancel.clone(),
        };
        let task = tokio::spawn(mcode_agent::drive(services, context, turn_id));
        self.active = Some(ActiveRun::new(run_id, cancel, task, deadline, surroundings));
    }

    /// Inputs that were queued while the last run ended begin another one like it.
    pub(crate) async fn start_queued(&mut self, last: ActiveRun) {
        let Some(input) = self.state.queue.iter().find(|input| crate::inputs::wants_turn(input)).cloned() else {
            return;
        };
        let Some(options) = self.state.run(last.run_id).map(|run| run.options.clone()) else { return };
        let words = Words::Queued(input);
        if let Err(error) = self.begin(Vec::new(), options, words, last.surroundings, None).await {
            tracing::error!(thread_id = %self.thread_id, %error, "a queued run could not be started");
        }
    }

    fn options(&self, run: &NewRun) -> Result<RunOptions, ThreadError> {
        let config = (self.deps.config)();
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mode = run.mode.clone().or_else(|| known(&self.state.mode)).unwrap_or_else(|| "build".to_owned());
        let model = run
            .model
            .clone()
            .or_else(|| known(&self.state.model))
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
        })
    }

    async fn check_day(&self) -> Result<(), ThreadError> {
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
            // It writes a file.
            let keep = Arc::clone(&self.deps.change_rule);
            let change = RuleChange { effect: Effect::Allow, rule: rule.clone(), add: true };
            tokio::task::spawn_blocking(move || keep(&change))
                .await
                .map_err(|error| ThreadError::Store(Box::new(error)))?
                .map_err(|message| ThreadError::InvalidArgument { field: "decision", message })?;
            outcome = ApprovalOutcome::AllowedAlways;
            kept = Some(rule.clone());
        }
        let body = EventBody::ApprovalResolved {
            approval_id: resolution.approval_id,
            outcome,
            by: resolution.by,
            reason: resolution.reason.clone(),
        };
        let seq = self.state.last_seq.next();
        self.append(self.settled(body), None).await?;
        self.pending.settle_approval(resolution.approval_id, ApprovalAnswer { outcome, reason: resolution.reason });
        Ok(Answered { seq, rule: kept })
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

fn new_thread(run: &NewRun, options: &RunOptions) -> NewThread {
    let words: String = run
        .parts
        .iter()
        .filter_map(|part| if let mcode_events::Part::Text { text } = part { Some(text.as_str()) } else { None })
        .collect();
    NewThread {
        cwd: run.cwd.clone(),
        title: if run.title.is_empty() { mcode_agent::prompt::first_title(&words) } else { run.title.clone() },
        model: options.model.clone(),
        mode: options.mode.clone(),
        ephemeral: run.ephemeral,
    }
}

pub(crate) fn configured_approval(text: Option<&str>) -> Option<mcode_events::run::ApprovalPolicy> {
    use mcode_events::run::ApprovalPolicy;
    match text {
        Some("ask") => Some(ApprovalPolicy::Ask),
        Some("deny") => Some(ApprovalPolicy::Deny),
        Some("all") => Some(ApprovalPolicy::All),
        _ => None,
    }
}
