//! What all wires do with a prompt before they write it.

use mcode_events::message::{Origin, Part};
use mcode_models::{ModelInfo, ModelRequest, PromptMessage, ToolDefinition};
use serde_json::json;

use crate::media::{Prepared, PreparedMedia};

/// Most output tokens we ask for when nobody said; some models list their whole window.
const MAX_OUTPUT_TOKENS: u32 = 128_000;
/// The first message when a prompt would begin with the model's own words.
pub(crate) const CONTINUE: &str = "Continue.";

/// Whether a message was made by the very model that is asked, over the same wire: its opaque data may go back.
pub(crate) fn is_own(request: &ModelRequest, origin: Option<&Origin>) -> bool {
    origin.is_some_and(|origin| is_own_provider(request, Some(origin)) && origin.model == request.model.model)
}

/// Whether this provider gave it over this wire, by whichever model.
pub(crate) fn is_own_provider(request: &ModelRequest, origin: Option<&Origin>) -> bool {
    origin
        .is_some_and(|origin| origin.provider == request.access.provider && origin.wire == request.access.wire.as_str())
}

/// Who makes the answers to this request.
pub(crate) fn origin(request: &ModelRequest) -> Origin {
    Origin {
        provider: request.access.provider.clone(),
        wire: request.access.wire.as_str().to_owned(),
        model: request.model.model.clone(),
    }
}

/// The limit of output tokens: the caller's, else the catalogue's.
pub(crate) fn max_output_tokens(request: &ModelRequest) -> u32 {
    let ModelInfo { max_output_tokens, context_tokens, .. } = request.info;
    let most = if max_output_tokens >= context_tokens { context_tokens / 2 } else { max_output_tokens };
    request.max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS).min(most).max(1)
}

/// The tools to send. Servers refuse a history with calls when no tool is declared, so then the tools of the history
/// are declared, as gone.
pub(crate) fn tools(request: &ModelRequest) -> Vec<ToolDefinition> {
    if !request.tools.is_empty() {
        return request.tools.clone();
    }
    let mut tools: Vec<ToolDefinition> = Vec::new();
    for message in &request.messages {
        let PromptMessage::Assistant { parts, .. } = message else { continue };
        for part in parts {
            if let Part::ToolCall { name, .. } = part
                && !tools.iter().any(|tool| tool.name == *name)
            {
                tools.push(ToolDefinition {
                    name: name.clone(),
                    description: "No longer available.".to_owned(),
                    schema: json!({"type": "object", "properties": {}}),
                });
            }
        }
    }
    tools
}

/// A medium for the model, or the note in its place.
pub(crate) enum Medium<'a> {
    /// It can be shown.
    Shown(&'a Prepared),
    /// It can not.
    Note(String),
}

/// Finds a medium. `documents` says whether this wire takes documents.
pub(crate) fn medium<'a>(
    request: &ModelRequest,
    media: &'a PreparedMedia,
    hash: &str,
    name: &str,
    documents: bool,
) -> Medium<'a> {
    let name = if name.is_empty() { "picture" } else { name };
    let is_document = |prepared: &Prepared| !prepared.is_image();
    match media.get(hash) {
        Some(Ok(prepared)) if is_document(prepared) && documents && !request.info.documents => {
            Medium::Note(format!("({name} left out: this model does not take documents)"))
        }
        _ if !request.info.images => Medium::Note(format!("({name} left out: this model does not take pictures)")),
        None => Medium::Note(format!("({name} left out: its content is no longer at hand)")),
        Some(Err(reason)) => Medium::Note(format!("({name} left out: {reason})")),
        Some(Ok(prepared)) if prepared.is_image() || documents => Medium::Shown(prepared),
        Some(Ok(prepared)) => {
            Medium::Note(format!("({name} left out: this provider does not take {})", prepared.media_type))
        }
    }
}
