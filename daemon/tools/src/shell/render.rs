//! A command's output as the model gets it.

use std::sync::Arc;

use mcode_events::blob::Blobs;
use mcode_sandbox::Output;
use mcode_sandbox::hosted::HEAD_BYTES as KEPT_BYTES;

use super::clean::clean;
use crate::output::{BLOB_PREFIX, ceil_boundary, floor_boundary};

/// Bytes of text kept from the beginning.
pub(super) const HEAD_BYTES: usize = 12 * 1024;
/// Bytes of text kept from the end.
pub(super) const TAIL_BYTES: usize = 18 * 1024;
/// Bytes of output looked at from the beginning and from the end: what is cleaned away may be much of it.
const RAW_BYTES: usize = 64 * 1024;

/// The output as text: whole when it is short, else its head and tail with a note between them that states the total
/// and where the rest is. Blocking: it reads a file and may write a blob.
pub(super) fn render(blobs: &Arc<dyn Blobs>, output: &Output) -> String {
    let total = output.total();
    let (start, end) = if total <= 2 * RAW_BYTES as u64 {
        let text = clean(&output.since(0, 2 * RAW_BYTES).0);
        if text.len() <= HEAD_BYTES + TAIL_BYTES {
            return text;
        }
        (text.clone(), text)
    } else {
        (clean(&output.head(RAW_BYTES)), clean(&output.since(0, RAW_BYTES).0))
    };
    let start = start.get(..floor_boundary(&start, HEAD_BYTES)).unwrap_or_default();
    let end = end.get(ceil_boundary(&end, end.len().saturating_sub(TAIL_BYTES))..).unwrap_or_default();
    let kept = kept(blobs, output, total);
    format!("{start}\n[the middle is left out here; full output: {total} bytes, {kept}]\n{end}")
}

/// Keeps the whole output (or as much of it as is kept at all) in a blob, and says where.
fn kept(blobs: &Arc<dyn Blobs>, output: &Output, total: u64) -> String {
    let part =
        if total > KEPT_BYTES { format!("its first {KEPT_BYTES} bytes can be viewed") } else { "view it".to_owned() };
    let lost = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "the output of a command could not be kept");
        "the part left out could not be kept".to_owned()
    };
    let whole = match output.whole() {
        Ok(whole) => whole,
        Err(error) => return lost(&error),
    };
    match blobs.put(clean(&whole).as_bytes(), "text/plain; charset=utf-8") {
        Ok(blob) => format!("{part} with path \"{BLOB_PREFIX}{}\"", blob.hash),
        Err(error) => lost(&error),
    }
}
