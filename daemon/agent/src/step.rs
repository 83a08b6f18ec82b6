//! One step: a model request and the tool calls it asked for.

use mcode_events::event::EventBody;
use mcode_events::message::{Message, Part, Role};
use mcode_events::run::{RunError, RunErrorKind, RunStatus};
use mcode_ids::{ItemId, StepId, TurnId};
use mcode_models::{ModelError, ModelErrorKind, ResolvedModel, Response, StopReason};

use crate::asking::{Answer, Asked, Asking};
use crate::chain::Chain;
use crate::drive::{Driver, Next, Stop};
use crate::live::LiveKey;
use crate::shallow::shallow;

/// Times a model is told that its provider refused its tool call before the run fails.
const REFUSED_CALLS_MAX: u32 = 3;

/// Told when an answer was cut.
const TEXT_IS_CUT: &str = "The answer was cut: the model reached its output limit.";

impl Driver {
    pub(crate) async fn step(&mut self, turn_id: TurnId) -> Result<Next, Stop> {
        let step_id = StepId::from_uuid(self.services.ids.next());
        let item_id = ItemId::from_uuid(self.services.ids.next());
        let mut chain = Chain::new(&self.context.options.model, &self.services.fallback);
        let choice = self.choose(&mut chain);
        let chosen = choice.as_ref().ok().and_then(|choice| chain.name(choice));
        let model = chosen.unwrap_or(&self.context.options.model).clone();
        let begin = vec![
            EventBody::StepStarted { step_id, model },
            EventBody::MessageStarted { item_id, role: Role::Assistant },
        ];
        self.services.port.record(turn_id, begin).await?;
        let mut asking = Asking { turn_id, item_id, shown: false };
        let answer = match self.ask(&mut asking, chain, choice).await {
            Ok(answer) => answer,
            Err(Asked::Stop(stop)) => return Err(stop),
            Err(Asked::RefusedCall(problem)) => return self.refused_call(step_id, &asking, &problem).await,
        };
        let Answer { mut response, resolved, holding } = answer;
        response.parts = shallow(response.parts);
        let calls = self.finish_message(&asking, &response, &resolved).await?;
        // Its cost is on record now.
        drop(holding);
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
        bodies.extend(self.usage_event(response.usage, resolved));
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
                let model = format!("{}/{}", response.origin.provider, response.origin.model);
                let hint = match self.ease(turn_id, &model, &full).await? {
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

pub(crate) fn model_failure(reason: &str, message: String, hint: &str) -> RunError {
    RunError { kind: RunErrorKind::Model, reason: reason.to_owned(), message, hint: hint.to_owned() }
}
