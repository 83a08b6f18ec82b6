//! Going on with less of the history when a provider says that a request is too long, or refuses a picture in it.

use std::sync::Arc;

use mcode_events::ease::Ease;
use mcode_events::event::EventBody;
use mcode_events::state::ThreadState;
use mcode_ids::TurnId;
use mcode_models::history::{has_pictures, smaller};
use mcode_models::{ModelError, ModelErrorKind};

use crate::drive::{Driver, Stop};

/// Times that one request is asked again with less; each leaves out two fifths.
pub(crate) const EASES_MAX: u32 = 8;

/// What can be left out after this failure, and what people are told of it.
fn eased(state: &ThreadState, model: &str, kind: ModelErrorKind) -> Option<(Ease, &'static str)> {
    let now = state.ease_of(model);
    match kind {
        ModelErrorKind::Overflow => {
            let ease = smaller(&state.history, &now)?;
            Some((ease, "the oldest parts of the conversation are not given to this model any more"))
        }
        ModelErrorKind::RefusedMedia if has_pictures(&state.history, &now) => {
            let ease = Ease { pictures: state.history.len(), ..now };
            Some((ease, "pictures and documents of this thread so far are not given to this model any more"))
        }
        _ => None,
    }
}

impl Driver {
    /// Has a model be given less from here on, if the failure is one that this mends; what people are told of it. It is
    /// recorded, so that the thread stays usable whatever becomes of this run.
    pub(crate) async fn ease(&self, turn_id: TurnId, model: &str, error: &ModelError) -> Result<Option<String>, Stop> {
        if !matches!(error.kind, ModelErrorKind::Overflow | ModelErrorKind::RefusedMedia) {
            return Ok(None);
        }
        let state: Arc<ThreadState> = self.services.port.record(turn_id, Vec::new()).await?;
        let Some((ease, told)) = eased(&state, model, error.kind) else { return Ok(None) };
        self.services.port.record(turn_id, vec![EventBody::HistoryEased { model: model.to_owned(), ease }]).await?;
        Ok(Some(format!("{}; {told}", error.message)))
    }
}
