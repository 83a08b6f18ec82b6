//! One request beside a conversation: a title, and whatever else is worth a model's word but no user's wait.
//!
//! It keeps to the same gates and limits of money as runs do, behind all of them, and gives up soon: nothing depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use mcode_events::event::EventBody;
use mcode_events::usage::{Usage, UsagePurpose};
use mcode_events::{Message, Part, Role};
use mcode_ids::ItemId;
use mcode_models::budget::{self, Cap};
use mcode_models::governor::Priority;
use mcode_models::{ModelError, ModelRef, ModelRegistry, ModelRequest, ResolvedModel, StreamEvent, SystemPart};
use tokio_util::sync::CancellationToken;

use crate::gates::{Gates, Place, Standing};
use crate::treasury::{Holding, Treasury};

/// How long a request beside the conversation may wait and take, all in all.
pub const ASIDE_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a request beside the conversation goes through.
#[derive(Debug, Clone)]
pub struct Aside {
    /// Models.
    pub models: Arc<dyn ModelRegistry>,
    /// Where requests wait for their turn.
    pub gates: Arc<Gates>,
    /// Where money is held.
    pub treasury: Arc<Treasury>,
    /// Limits in money.
    pub caps: Vec<Cap>,
    /// The client's environment, which may hold the key.
    pub client_env: Arc<BTreeMap<String, String>>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct AsideRequest {
    /// `provider/model`.
    pub model: String,
    /// What the model is told about its job.
    pub system: String,
    /// What it is given.
    pub words: String,
    /// The message's id.
    pub item_id: ItemId,
    /// Tokens of the answer.
    pub max_output_tokens: u32,
    /// What it is for.
    pub purpose: UsagePurpose,
}

/// What came of it.
#[derive(Debug)]
pub struct AsideAnswer {
    /// The answer, or why there is none.
    pub text: Result<String, String>,
    /// What it has cost, to be recorded.
    pub paid: Option<EventBody>,
    /// What is held for it; dropped when the cost is on record.
    pub holding: Option<Holding>,
}

impl AsideAnswer {
    /// No answer, and nothing was paid.
    #[must_use]
    pub fn none(why: impl Into<String>) -> Self {
        Self { text: Err(why.into()), paid: None, holding: None }
    }
}

impl Aside {
    /// Asks once.
    pub async fn ask(&self, request: AsideRequest) -> AsideAnswer {
        let answered = tokio::time::timeout(ASIDE_TIME_MAX, self.try_ask(request)).await;
        answered.unwrap_or_else(|_| AsideAnswer::none("it took too long"))
    }

    async fn try_ask(&self, asked: AsideRequest) -> AsideAnswer {
        let purpose = asked.purpose;
        let (request, resolved) = match self.request(asked) {
            Ok(made) => made,
            Err(why) => return AsideAnswer::none(why),
        };
        let gate = self.gates.gate(&resolved);
        let Ok(place) = self.gates.enter(gate, Priority::Background, ASIDE_TIME_MAX, 1) else {
            return AsideAnswer::none("too many requests wait for models already");
        };
        let holding = loop {
            if !its_turn(&place).await {
                return AsideAnswer::none("the provider takes no more requests");
            }
            let waited = std::sync::atomic::AtomicBool::new(false);
            let waits = || {
                waited.store(true, std::sync::atomic::Ordering::Relaxed);
                place.rest();
            };
            match self.treasury.admit(&self.caps, budget::bound(&request), None, waits).await {
                Ok(holding) if !waited.load(std::sync::atomic::Ordering::Relaxed) => break holding,
                Ok(_) => {}
                Err(_) => return AsideAnswer::none("there is no money for it"),
            }
        };
        let (text, usage) = answer(request, &resolved, &place).await;
        let paid = usage.map(|usage| {
            let (usage, priced) = budget::price(usage, &resolved.info);
            EventBody::UsageRecorded { model: resolved.info.id.clone(), usage, purpose, priced, goal_id: None }
        });
        AsideAnswer { text, paid, holding: Some(holding) }
    }

    fn request(&self, asked: AsideRequest) -> Result<(ModelRequest, ResolvedModel), String> {
        let resolved = self.models.resolve(&asked.model, &self.client_env).map_err(|error| error.to_string())?;
        let id = &resolved.info.id;
        let model: ModelRef = id.parse().map_err(|()| format!("'{id}' is not provider/model"))?;
        let parts = vec![Part::text(asked.words)];
        let message = Message { item_id: asked.item_id, role: Role::User, parts, origin: None };
        let request = ModelRequest {
            model,
            info: resolved.info.clone(),
            access: resolved.access.clone(),
            system: vec![SystemPart { text: asked.system }],
            messages: mcode_models::history::prompt_messages(
                &[Arc::new(mcode_events::state::Entry::Message { message, turn_id: None })],
                &mcode_events::Ease::default(),
            ),
            media: BTreeMap::new(),
            tools: Vec::new(),
            thinking: None,
            max_output_tokens: Some(asked.max_output_tokens),
            cache_key: String::new(),
            answer_schema: None,
        };
        Ok((request, resolved))
    }
}

/// Waits for its turn; whether it has come.
async fn its_turn(place: &Place) -> bool {
    loop {
        let (standing, change) = place.look();
        match standing {
            Standing::Go => return true,
            Standing::Exhausted => return false,
            Standing::Wait(_) => change.await,
        }
    }
}

/// Streams the answer to its end.
async fn answer(
    request: ModelRequest,
    resolved: &ResolvedModel,
    place: &Place,
) -> (Result<String, String>, Option<Usage>) {
    let cancel = CancellationToken::new();
    let _cancelled_when_left = cancel.clone().drop_guard();
    let mut stream = resolved.provider.stream(request, cancel);
    let mut bytes = 0;
    while let Some(event) = stream.next().await {
        match event {
            Ok(StreamEvent::Finished(response)) => {
                place.taken();
                let texts = response.parts.iter().filter_map(|part| match part {
                    Part::Text { text, .. } => Some(text.as_str()),
                    _ => None,
                });
                return (Ok(texts.collect()), response.usage);
            }
            Ok(StreamEvent::TextDelta(text) | StreamEvent::ThinkingDelta(text)) => bytes += text.len(),
            Ok(StreamEvent::Started | StreamEvent::ToolCallDelta { .. }) => {}
            Err(error) => {
                refused(&error, place);
                return (Err(error.to_string()), error.usage);
            }
        }
        if bytes > ANSWER_BYTES_MAX {
            break;
        }
    }
    place.rest();
    (Err("the answer has no end".to_owned()), None)
}

/// A limit is told to all who wait for the same model.
fn refused(error: &ModelError, place: &Place) {
    if error.is_limit() {
        place.limited(crate::asking::limited(error, error.retry_after), |_| 0);
    } else {
        place.rest();
    }
}
