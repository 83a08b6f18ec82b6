//! Pictures and documents, which the model sees as they are.

use mcode_events::tool::ResultPart;

use crate::fs::disk;
use crate::output::counted;
use crate::tool::{CallContext, ToolFailure, ToolOutput};

/// The largest picture or document that is given, in bytes.
pub const MAX_MEDIA_BYTES: u64 = 20 * 1024 * 1024;

/// The MIME type of a picture or document that models take, from the first bytes of a file.
#[must_use]
pub fn media_type(first: &[u8]) -> Option<&'static str> {
    let kind = infer::get(first)?.mime_type();
    matches!(kind, "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "application/pdf").then_some(kind)
}

/// A file as a picture or document.
///
/// # Errors
/// [`ToolFailure::Failed`] when it is larger than [`MAX_MEDIA_BYTES`], or can not be read or kept.
pub fn view(
    context: &CallContext,
    path: &std::path::Path,
    shown: &str,
    media_type: &str,
) -> Result<ToolOutput, ToolFailure> {
    let (_, meta) = disk::open(path, shown)?;
    if meta.len() > MAX_MEDIA_BYTES {
        return Err(ToolFailure::Failed(format!(
            "{shown}: {media_type} of {} bytes; the limit for pictures and documents is {} MB",
            meta.len(),
            MAX_MEDIA_BYTES / 1024 / 1024
        )));
    }
    let content = disk::read_whole(path, shown)?;
    let blob = context
        .blobs
        .put(&content, media_type)
        .map_err(|error| ToolFailure::Failed(format!("{shown}: could not be kept: {error}")))?;
    let size = counted(content.len(), "byte", "bytes");
    let name = path.file_name().map_or_else(|| shown.to_owned(), |name| name.to_string_lossy().into_owned());
    let text = format!("{shown}: {media_type}, {size}");
    Ok(ToolOutput {
        content: vec![ResultPart::Text { text }, ResultPart::Media { blob, name }],
        preview: format!("{media_type}, {size}"),
        files: vec![context.ledger.note(path, Some(super::change::hash(&content)))],
        ..ToolOutput::default()
    })
}
