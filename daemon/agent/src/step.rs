//! One step: a model request, with retries, and the tool calls it asked for.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use mcode_events::event::EventBody;
use mcode_events::message::{Message, Part, Role};
use mcode_events::run::{RunError, RunErrorKind, RunStatus};
use mcode_events::state::ThreadState;
use mcode_events::usage::Usage;
use mcode_ids::{ItemId, StepId, TurnId};
use mcode_models::retry::{RetryDecision, RetryPolicy};
use mcode_models::{
    ModelError, ModelErrorKind, ModelRef, ModelRequest, ResolvedModel, Response, StopReason, StreamEvent,
};
use tokio::time::Instant;

use crate::drive::{Driver, Next, Stop};
use crate::easing::EASES_MAX;
use crate::live::LiveKey;
use crate::prompt::{self, Surroundings};

/// Unsaved text of a message is put into the log when it is this long, in bytes …
const CHECKPOINT_BYTES: usize = 4 * 1024;

/// … or this old.
const CHECKPOINT_AGE: Duration = Duration::from_secs(2);

/// The longest answer that is taken, in bytes of words, reasoning and arguments together; no real one comes near, and it
/// has to fit into one message to a client.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Times a model is told that its provider refused its tool call before the run fails.
const REFUSED_CALLS_MAX: u32 = 3;

/// Told when an answer was cut.
const TEXT_IS_CUT: &str = "The answer was cut: the model reached its output limit.";

/// What of a message is not in the log yet.
struct Unsaved {
    text: String,
    thinking: String,
    since: Instant,
}

/// A step that is being asked.
struct Asking {
    turn_id: TurnId,
    item_id: ItemId,
    /// Whether any part of the item has been shown.
    shown: bool,
}

impl Driver {
    pub(crate) async fn step(&mut self, turn_id: TurnId, state: Arc<ThreadState>) -> Result<Next, Stop> {
        let step_id = StepId::from_uuid(self.services.ids.next());
        let item_id = ItemId::from_uuid(self.services.ids.next());
        let model = self.context.options.model.clone();
        drop(state);
        let begin = vec![
            EventBody::StepStarted { step_id, model },
            EventBody::MessageStarted { item_id, role: Role::Assistant },
        ];
        self.services.port.record(turn_id, begin).await?;
        let mut asking = Asking { turn_id, item_id, shown: false };
        let (response, resolved) = match self.ask(&mut asking).await {
            Ok(answer) => answer,
            Err(Asked::Stop(stop)) => return Err(stop),
            Err(Asked::RefusedCall(problem)) => return self.refused_call(step_id, &asking, &problem).await,
        };
        let calls = self.finish_message(&asking, &response, &resolved).await?;
        let stop_reason = response.stop.as_str().to_owned();
        if calls.is_empty() {
            return self.finish_without_calls(turn_id, step_id, &response, stop_reason).await;
        }
        self.run_calls(turn_id, calls).await?;
        let end = vec![EventBody::StepFinished { step_id, status: RunStatus::Done, stop_reason }];
        self.services.port.record(turn_id, end).await?;
        Ok(Next::Step)
    }

    /// Records the complete message, what it cost, and the calls that are about to run, in one commit.
    async fn finish_message(
        &mut self,
        asking: &Asking,
        response: &Response,
        resolved: &ResolvedModel,
    ) -> Result<Vec<crate::calls::Call>, Stop> {
        let message = Message {
            item_id: asking.item_id,
            role: Role::Assistant,
            parts: response.parts.clone(),
            origin: Some(response.origin.clone()),
        };
        let calls = self.prepare_calls(&response.parts);
        let mut bodies = vec![EventBody::MessageFinished { message }];
        if let Some(usage) = priced(response.usage, resolved) {
            bodies.push(EventBody::UsageRecorded { model: resolved.info.id.clone(), usage });
        }
        for call in &calls {
            bodies.push(EventBody::ToolCallStarted { call: call.event(), item_id: asking.item_id });
            self.services.live.open(LiveKey::ToolCall(call.tool_call_id), self.context.run_id);
        }
        self.services.port.record(asking.turn_id, bodies).await?;
        self.services.live.close(LiveKey::Message(asking.item_id));
        Ok(calls)
    }

    async fn finish_without_calls(
        &mut self,
        turn_id: TurnId,
        step_id: StepId,
        response: &Response,
        stop_reason: String,
    ) -> Result<Next, Stop> {
        let mut bodies = Vec::new();
        if response.stop == StopReason::Length {
            bodies.push(EventBody::Notice { level: "warning".to_owned(), text: TEXT_IS_CUT.to_owned() });
        }
        bodies.push(EventBody::StepFinished { step_id, status: RunStatus::Done, stop_reason });
        self.services.port.record(turn_id, bodies).await?;
        match response.stop {
            StopReason::Pause => Ok(Next::Step),
            StopReason::Refusal => Err(Stop::Failed(model_failure(
                "MODEL_REFUSAL",
                format!("the model refused to answer ({})", response.stop_raw),
                "put the request in other words, or use another model",
            ))),
            StopReason::ContextFull => {
                let full = "the conversation no longer fits into the model's window";
                let full = ModelError::new(ModelErrorKind::Overflow, full);
                let hint = match self.ease(turn_id, &full).await? {
                    Some(_) => "go on with --thread: its oldest parts are left out from now on",
                    None => "start a new thread, or use a model with a larger window",
                };
                Err(Stop::Failed(failure(&full.with_hint(hint))))
            }
            StopReason::Stop | StopReason::ToolUse | StopReason::Length | StopReason::Other => {
                Ok(Next::Answer(text_of(response)))
            }
        }
    }

    /// The provider refused the model's own tool call: the model is told, a few times.
    async fn refused_call(&mut self, step_id: StepId, asking: &Asking, problem: &ModelError) -> Result<Next, Stop> {
        self.refused_calls += 1;
        if self.refused_calls > REFUSED_CALLS_MAX {
            return Err(Stop::Failed(failure(problem)));
        }
        self.discard(asking, &problem.message).await?;
        let end = vec![EventBody::StepFinished {
            step_id,
            status: RunStatus::Failed,
            stop_reason: problem.kind.reason().to_ascii_lowercase(),
        }];
        self.services.port.record(asking.turn_id, end).await?;
        self.tell_model(asking.turn_id, &format!("Your last tool call was refused: {}", problem.message)).await?;
        Ok(Next::Step)
    }

    async fn discard(&self, asking: &Asking, reason: &str) -> Result<(), Stop> {
        let body = EventBody::MessageDiscarded {
            item_id: asking.item_id,
            status: RunStatus::Failed,
            text: String::new(),
            reason: reason.to_owned(),
        };
        self.services.port.record(asking.turn_id, vec![body]).await?;
        self.services.live.close(LiveKey::Message(asking.item_id));
        Ok(())
    }

    /// Asks until there is an answer, trying again and falling back as the policy says.
    async fn ask(&mut self, asking: &mut Asking) -> Result<(Response, ResolvedModel), Asked> {
        let mut models = self.services.fallback.clone().into_iter().peekable();
        let mut model = self.context.options.model.clone();
        let (mut attempt, mut overloads, mut eases, mut left) = (0u32, 0u32, 0u32, None);
        loop {
            let resolved = match self.services.models.resolve(&model, &self.context.client_env) {
                Ok(resolved) => resolved,
                Err(error) => {
                    let error = self.services.redactor.error(error);
                    // A fallback that can not be asked must not hide why it was wanted.
                    let Some(left) = &left else { return Err(stop(failure(&error))) };
                    let Some(next) = models.next() else { return Err(stop(failure(left))) };
                    self.begin_anew(asking, &format!("{}; going on with {next}", error.message)).await?;
                    model = next;
                    continue;
                }
            };
            attempt += 1;
            let error = match self.attempt(asking, &resolved).await {
                Ok(response) => return Ok((response, resolved)),
                Err(Attempted::Stop(end)) => return Err(Asked::Stop(end)),
                Err(Attempted::Failed(error)) => self.services.redactor.error(error),
            };
            if error.kind == ModelErrorKind::BadToolCall {
                return Err(Asked::RefusedCall(error));
            }
            self.pay(asking.turn_id, &error, &resolved).await?;
            if eases < EASES_MAX
                && let Some(told) = self.ease(asking.turn_id, &error).await?
            {
                self.begin_anew(asking, &told).await?;
                (attempt, eases) = (0, eases + 1);
                continue;
            }
            overloads = if error.kind == ModelErrorKind::Overloaded { overloads + 1 } else { 0 };
            let policy = RetryPolicy { has_fallback: models.peek().is_some(), ..self.services.retry };
            let next = match policy.decide(attempt, overloads, &error, mcode_env::ids::jitter(1000)) {
                RetryDecision::Retry { after } => {
                    self.wait_to_retry(asking, &error, attempt, after).await?;
                    continue;
                }
                RetryDecision::Fallback => models.next(),
                RetryDecision::GiveUp if falls_back(error.kind) => models.next(),
                RetryDecision::GiveUp => None,
            };
            let Some(next) = next else { return Err(stop(failure(&error))) };
            self.begin_anew(asking, &format!("{}; going on with {next}", error.message)).await?;
            (model, attempt, overloads, left) = (next, 0, 0, Some(error));
        }
    }

    /// Tokens of a failed attempt were spent all the same.
    async fn pay(&self, turn_id: TurnId, error: &ModelError, resolved: &ResolvedModel) -> Result<(), Stop> {
        let Some(usage) = priced(error.usage, resolved) else { return Ok(()) };
        let body = EventBody::UsageRecorded { model: resolved.info.id.clone(), usage };
        self.services.port.record(turn_id, vec![body]).await?;
        Ok(())
    }

    async fn wait_to_retry(
        &self,
        asking: &mut Asking,
        error: &ModelError,
        attempt: u32,
        after: Duration,
    ) -> Result<(), Stop> {
        let text =
            format!("{}; trying again in {:.1} s (attempt {} failed)", error.message, after.as_secs_f64(), attempt);
        self.begin_anew(asking, &text).await?;
        tokio::select! {
            () = self.context.cancel.cancelled() => Err(Stop::Cancelled),
            () = tokio::time::sleep(after) => Ok(()),
        }
    }

    /// Tells what happened; if part of the message was shown already, it is taken back and begun anew.
    async fn begin_anew(&self, asking: &mut Asking, why: &str) -> Result<(), Stop> {
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

    /// One attempt, streamed.
    async fn attempt(&self, asking: &mut Asking, resolved: &ResolvedModel) -> Result<Response, Attempted> {
        let state = self.services.port.record(asking.turn_id, Vec::new()).await?;
        let request = self.request(&state, resolved).await?;
        drop(state);
        let key = LiveKey::Message(asking.item_id);
        self.services.live.open(key, self.context.run_id);
        let mut stream = resolved.provider.stream(request, self.context.cancel.child_token());
        let mut unsaved = Unsaved { text: String::new(), thinking: String::new(), since: Instant::now() };
        let mut bytes = 0;
        loop {
            let event = tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => {
                    self.checkpoint(asking, &mut unsaved).await?;
                    return Err(Attempted::Stop(Stop::Cancelled));
                }
                event = stream.next() => event,
            };
            bytes += event.as_ref().and_then(|event| event.as_ref().ok()).map_or(0, delta_bytes);
            if bytes > ANSWER_BYTES_MAX {
                return Err(Attempted::Failed(endless_answer()));
            }
            match event {
                Some(Ok(StreamEvent::TextDelta(text))) => {
                    self.services.live.push_text(key, &text);
                    unsaved.text.push_str(&text);
                }
                Some(Ok(StreamEvent::ThinkingDelta(text))) => {
                    self.services.live.push_thinking(key, &text);
                    unsaved.thinking.push_str(&text);
                }
                Some(Ok(StreamEvent::Started | StreamEvent::ToolCallDelta { .. })) => continue,
                Some(Ok(StreamEvent::Finished(response))) => return Ok(*response),
                Some(Err(error)) if error.kind == ModelErrorKind::Cancelled => {
                    return Err(Attempted::Stop(Stop::Cancelled));
                }
                Some(Err(error)) => return Err(Attempted::Failed(error)),
                None => {
                    let text = "the model's answer ended before it was complete";
                    return Err(Attempted::Failed(ModelError::new(ModelErrorKind::Transport, text)));
                }
            }
            asking.shown = true;
            let long = unsaved.text.len() + unsaved.thinking.len() >= CHECKPOINT_BYTES;
            if long || unsaved.since.elapsed() >= CHECKPOINT_AGE {
                self.checkpoint(asking, &mut unsaved).await?;
            }
        }
    }

    async fn checkpoint(&self, asking: &Asking, unsaved: &mut Unsaved) -> Result<(), Stop> {
        unsaved.since = Instant::now();
        if unsaved.text.is_empty() && unsaved.thinking.is_empty() {
            return Ok(());
        }
        let body = EventBody::MessageCheckpointed {
            item_id: asking.item_id,
            text: std::mem::take(&mut unsaved.text),
            thinking: std::mem::take(&mut unsaved.thinking),
        };
        self.services.port.record(asking.turn_id, vec![body]).await?;
        Ok(())
    }

    /// The request for the state as it stands.
    async fn request(&self, state: &ThreadState, resolved: &ResolvedModel) -> Result<ModelRequest, Stop> {
        let options = &self.context.options;
        let messages = mcode_models::history::prompt_messages(&state.history, &state.ease);
        let media = if crate::media::any(&messages) {
            let (blobs, messages) = (Arc::clone(&self.services.blobs), messages.clone());
            tokio::task::spawn_blocking(move || crate::media::bring(&messages, blobs.as_ref()))
                .await
                .unwrap_or_default()
        } else {
            std::collections::BTreeMap::new()
        };
        let surroundings = Surroundings {
            mode: crate::reach::mode(&self.context),
            cwd: &options.cwd,
            project_root: &self.context.project_root.to_string_lossy(),
            add_dirs: &options.add_dirs,
            interactive: options.interactive,
            answer_schema: options.answer_schema.as_ref(),
        };
        let model: ModelRef = resolved.info.id.parse().map_err(|()| {
            Stop::Failed(model_failure("MODEL_UNKNOWN", format!("'{}' is not provider/model", resolved.info.id), ""))
        })?;
        Ok(ModelRequest {
            model,
            info: resolved.info.clone(),
            access: resolved.access.clone(),
            system: prompt::system(&surroundings),
            messages,
            media,
            tools: prompt::tools(&self.services.tools.specs()),
            thinking: options.thinking,
            max_output_tokens: None,
            cache_key: self.context.thread_id.to_string(),
            answer_schema: options.answer_schema.clone(),
        })
    }
}

/// Why there is no answer.
enum Asked {
    Stop(Stop),
    RefusedCall(ModelError),
}

impl From<Stop> for Asked {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// How an attempt failed.
enum Attempted {
    Stop(Stop),
    Failed(ModelError),
}

impl From<Stop> for Attempted {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<crate::port::RecordError> for Attempted {
    fn from(error: crate::port::RecordError) -> Self {
        Self::Stop(error.into())
    }
}

const fn delta_bytes(event: &StreamEvent) -> usize {
    match event {
        StreamEvent::TextDelta(text) | StreamEvent::ThinkingDelta(text) => text.len(),
        StreamEvent::ToolCallDelta { arguments, .. } => arguments.len(),
        StreamEvent::Started | StreamEvent::Finished(_) => 0,
    }
}

fn endless_answer() -> ModelError {
    // Of a kind that is not tried again: it would only cost the same once more.
    let text = format!("the model's answer is longer than {} MB and has no end", ANSWER_BYTES_MAX / 1024 / 1024);
    ModelError::new(ModelErrorKind::InvalidRequest, text).with_hint("use another model, or ask for less at once")
}

fn stop(error: RunError) -> Asked {
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

fn priced(usage: Option<Usage>, resolved: &ResolvedModel) -> Option<Usage> {
    let mut usage = usage?;
    if let Some(pricing) = &resolved.info.pricing {
        usage.cost_usd = pricing.cost(&usage);
    }
    Some(usage)
}

fn text_of(response: &Response) -> String {
    response
        .parts
        .iter()
        .filter_map(|part| if let Part::Text { text, .. } = part { Some(text.as_str()) } else { None })
        .collect()
}

/// A model's failure as the end of a run.
pub(crate) fn failure(error: &ModelError) -> RunError {
    RunError {
        kind: RunErrorKind::Model,
        reason: error.kind.reason().to_owned(),
        message: error.message.clone(),
        hint: error.hint.clone(),
    }
}

fn model_failure(reason: &str, message: String, hint: &str) -> RunError {
    RunError { kind: RunErrorKind::Model, reason: reason.to_owned(), message, hint: hint.to_owned() }
}
