//! A command's output as the model gets it.

use mcode_sandbox::Spool;
use mcode_sandbox::spool::FILE_BYTES_MAX;

use super::clean::clean;
use crate::output::{BLOB_PREFIX, ceil_boundary, floor_boundary};
use crate::tool::CallContext;

/// Bytes of text kept from the beginning.
pub(super) const HEAD_BYTES: usize = 12 * 1024;
/// Bytes of text kept from the end.
pub(super) const TAIL_BYTES: usize = 18 * 1024;

/// The output as text: whole when it is short, else its head and tail with a note between them that states the total
/// and where the rest is. Blocking: it may read a file and write a blob.
pub(super) fn render(context: &CallContext, spool: &mut Spool) -> String {
    let in_memory = (spool.head().len() + spool.tail().len()) as u64 == spool.total();
    let (start, end) = if in_memory {
        let text = clean(&[spool.head(), spool.tail()].concat());
        if text.len() <= HEAD_BYTES + TAIL_BYTES {
            return text;
        }
        (text.clone(), text)
    } else {
        (clean(spool.head()), clean(spool.tail()))
    };
    let start = start.get(..floor_boundary(&start, HEAD_BYTES)).unwrap_or_default();
    let end = end.get(ceil_boundary(&end, end.len().saturating_sub(TAIL_BYTES))..).unwrap_or_default();
    format!(
        "{start}\n[the middle is left out here; full output: {} bytes, {}]\n{end}",
        spool.total(),
        kept(context, spool)
    )
}

/// Keeps the whole output (or as much of it as is kept at all) in a blob, and says where.
fn kept(context: &CallContext, spool: &mut Spool) -> String {
    let part = if spool.total() > FILE_BYTES_MAX {
        format!("its first {FILE_BYTES_MAX} bytes can be viewed")
    } else {
        "view it".to_owned()
    };
    let lost = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "the output of a command could not be kept");
        "the part left out could not be kept".to_owned()
    };
    let whole = match spool.whole() {
        Ok(whole) => whole,
        Err(error) => return lost(&error),
    };
    match context.blobs.put(clean(&whole).as_bytes(), "text/plain; charset=utf-8") {
        Ok(blob) => format!("{part} with path \"{BLOB_PREFIX}{}\"", blob.hash),
        Err(error) => lost(&error),
    }
}
