//! One attempt at a request, streamed.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use mcode_events::event::EventBody;
use mcode_events::state::ThreadState;
use mcode_models::{
    ModelError, ModelErrorKind, ModelRef, ModelRequest, ModelStream, ResolvedModel, Response, StreamEvent,
};
use tokio::time::Instant;

use crate::asking::Asking;
use crate::drive::{Driver, Stop};
use crate::gates::Place;
use crate::live::LiveKey;
use crate::prompt::{self, Surroundings};

/// Unsaved text of a message is put into the log when it is this long, in bytes …
const CHECKPOINT_BYTES: usize = 4 * 1024;

/// … or this old.
const CHECKPOINT_AGE: Duration = Duration::from_secs(2);

/// The longest answer that is taken, in bytes of words, reasoning and arguments together; no real one comes near, and it
/// has to fit into one message to a client.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a request that was cancelled may take to say what it has cost.
const LAST_WORDS_MAX: Duration = Duration::from_millis(200);

/// What of a message is not in the log yet.
struct Unsaved {
    text: String,
    thinking: String,
    since: Instant,
}

/// How an attempt failed.
pub(crate) enum Attempted {
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

impl Driver {
    /// Sends the request and takes the answer in; `place` is told as soon as the provider answers.
    pub(crate) async fn attempt(
        &self,
        asking: &mut Asking,
        request: ModelRequest,
        resolved: &ResolvedModel,
        place: &Place,
    ) -> Result<Response, Attempted> {
        let key = LiveKey::Message(asking.item_id);
        self.services.live.open(key, self.context.run_id);
        let mut stream = resolved.provider.stream(request, self.context.cancel.child_token());
        let mut unsaved = Unsaved { text: String::new(), thinking: String::new(), since: Instant::now() };
        let (mut bytes, mut taken) = (0, false);
        loop {
            let event = tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => {
                    self.checkpoint(asking, &mut unsaved).await?;
                    self.pay_cancelled(asking, &mut stream, resolved).await?;
                    return Err(Attempted::Stop(Stop::Cancelled));
                }
                event = stream.next() => event,
            };
            bytes += event.as_ref().and_then(|event| event.as_ref().ok()).map_or(0, delta_bytes);
            if bytes > ANSWER_BYTES_MAX {
                return Err(Attempted::Failed(endless_answer()));
            }
            if !taken && matches!(event, Some(Ok(_))) {
                taken = true;
                place.taken();
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

    /// What a request that is cancelled has cost until now is spent.
    async fn pay_cancelled(
        &self,
        asking: &Asking,
        stream: &mut ModelStream,
        resolved: &ResolvedModel,
    ) -> Result<(), Stop> {
        let last_words = async {
            loop {
                match stream.next().await {
                    Some(Ok(StreamEvent::Finished(response))) => return response.usage,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return error.usage,
                    None => return None,
                }
            }
        };
        let usage = tokio::time::timeout(LAST_WORDS_MAX, last_words).await.ok().flatten();
        self.pay(asking.turn_id, usage, resolved).await
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
    pub(crate) async fn request(&self, state: &ThreadState, resolved: &ResolvedModel) -> Result<ModelRequest, Stop> {
        let options = &self.context.options;
        let messages = mcode_models::history::prompt_messages(&state.history, &state.ease_of(&resolved.info.id));
        let media = if crate::media::any(&messages) {
            let (blobs, messages) = (Arc::clone(&self.services.blobs), messages.clone());
            tokio::task::spawn_blocking(move || crate::media::bring(&messages, blobs.as_ref()))
                .await
                .unwrap_or_default()
        } else {
            std::collections::BTreeMap::new()
        };
        let plan = self.approved_plan(state).await;
        let surroundings = Surroundings {
            mode: crate::reach::mode(&self.context),
            cwd: &options.cwd,
            project_root: &self.context.project_root.to_string_lossy(),
            add_dirs: &options.add_dirs,
            interactive: options.interactive,
            plan: plan.as_deref(),
            answer_schema: options.answer_schema.as_ref(),
        };
        let model: ModelRef = resolved.info.id.parse().map_err(|()| {
            Stop::Failed(crate::step::model_failure(
                "MODEL_UNKNOWN",
                format!("'{}' is not provider/model", resolved.info.id),
                "",
            ))
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
