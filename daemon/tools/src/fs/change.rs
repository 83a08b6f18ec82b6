//! Changing files, one or many, all or nothing: checked against what the model has seen, undone when a later one fails.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mcode_events::tool::FileVersion;
use similar::{DiffOp, TextDiff};

use crate::fs::disk::{self, Owner};
use crate::fs::steady::Folder;
use crate::fs::text::Text;
use crate::output::bounded_diff;
use crate::tool::{CallContext, ToolFailure};

/// The largest sum of both sides of which a diff is made, in bytes.
const MAX_DIFFED_BYTES: usize = 4 * 1024 * 1024;
/// How long a diff may search for its shortest form before it takes a longer one.
const DIFF_TIME_MAX: Duration = Duration::from_secs(1);

/// One file as it was when looked at and as it shall be.
#[derive(Debug, Clone)]
pub struct Change {
    /// Resolved.
    pub path: PathBuf,
    /// The path as told to the model.
    pub shown: String,
    /// The content that the change was made from; `None` when there was no file.
    pub before: Option<Vec<u8>>,
    /// The content to be; `None` removes the file.
    pub after: Option<Vec<u8>>,
    /// A new file takes its permissions from this one.
    pub like: Option<PathBuf>,
    /// A new file may be run, as far as the client's mode mask allows.
    pub executable: bool,
}

/// A change in lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeDiff {
    /// Unified, with 3 lines around; not yet bounded.
    pub text: String,
    /// Lines that differ, a replaced line counted once. `None` when the file is too large to compare.
    pub lines_changed: Option<usize>,
}

/// BLAKE3 of a content, as the ledger holds it.
#[must_use]
pub fn hash(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

/// Refuses when the model has seen another content than the one its change was made from.
///
/// # Errors
/// [`ToolFailure::Failed`] that tells the model to view the file again.
pub fn check_seen(context: &CallContext, change: &Change) -> Result<(), ToolFailure> {
    let (Some(seen), Some(now)) = (context.ledger.seen(&change.path), &change.before) else { return Ok(()) };
    if seen == hash(now) {
        return Ok(());
    }
    Err(ToolFailure::Failed(format!(
        "{}: changed since it was read; view it again before you change it (nothing was written)",
        change.shown
    )))
}

/// Does all the changes or none, and notes in the ledger what the files now hold.
///
/// # Errors
/// [`ToolFailure::Failed`] with the first file that can not be changed; those changed before it are as they were,
/// unless the message names one that could not be brought back.
pub fn apply(context: &CallContext, changes: &[Change]) -> Result<Vec<FileVersion>, ToolFailure> {
    for change in changes {
        check_seen(context, change)?;
        disk::check_writable(&change.path).map_err(|error| disk::refusal(&change.shown, &error))?;
    }
    // Looked up before anything is written: a moved file is gone by the time its new name is made.
    let owners: Vec<Option<Owner>> = changes
        .iter()
        .map(|change| disk::owner(&change.path).or_else(|| change.like.as_deref().and_then(disk::owner)))
        .collect();
    let mut done: Vec<Done<'_>> = Vec::new();
    for (change, owner) in changes.iter().zip(owners) {
        if context.cancel.is_cancelled() {
            return Err(undo(context, &done, ToolFailure::Cancelled));
        }
        let mut this = Done { change, owner, folders: Vec::new() };
        let outcome = step(context, &mut this);
        done.push(this);
        if let Err(failure) = outcome {
            let failed = done.pop();
            if let Some(failed) = &failed {
                remove_folders(&failed.folders);
            }
            return Err(undo(context, &done, failure));
        }
    }
    let note = |change: &Change| context.ledger.note(&change.path, change.after.as_deref().map(hash));
    Ok(changes.iter().map(note).collect())
}

struct Done<'a> {
    change: &'a Change,
    owner: Option<Owner>,
    folders: Vec<PathBuf>,
}

fn step(context: &CallContext, this: &mut Done<'_>) -> Result<(), ToolFailure> {
    let change = this.change;
    let refused = |error: io::Error| disk::refusal(&change.shown, &error);
    // Somebody else may have written since the change was worked out.
    if disk::read_existing(&change.path, &change.shown)? != change.before {
        return Err(ToolFailure::Failed(format!(
            "{}: changed by somebody else at this moment; view it again (nothing was written)",
            change.shown
        )));
    }
    if change.before == change.after {
        return Ok(());
    }
    let Some(after) = &change.after else { return disk::remove(&change.path).map_err(refused) };
    this.folders = disk::create_parents(&change.path, context.umask).map_err(refused)?;
    let mode = if change.executable { 0o777 } else { 0o666 } & !context.umask;
    disk::replace(&change.path, after, this.owner.as_ref(), mode).map_err(refused)
}

/// Brings back what was done, newest first, and gives the failure with what could not be brought back.
fn undo(context: &CallContext, done: &[Done<'_>], failure: ToolFailure) -> ToolFailure {
    let mut stuck = Vec::new();
    for Done { change, owner, folders } in done.iter().rev() {
        let outcome = match &change.before {
            _ if change.before == change.after => Ok(()),
            Some(before) => disk::replace(&change.path, before, owner.as_ref(), 0o666 & !context.umask),
            None => disk::remove(&change.path),
        };
        if let Err(error) = outcome {
            stuck.push(format!("{} ({error})", change.shown));
        }
        remove_folders(folders);
    }
    if stuck.is_empty() {
        return failure;
    }
    ToolFailure::Failed(format!(
        "{failure}; these files were changed and could not be brought back: {}",
        stuck.join(", ")
    ))
}

/// Removes folders that were made for a file; one that is in use meanwhile stays.
fn remove_folders(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        let removed = Folder::above(folder).and_then(|above| std::fs::remove_dir(above.child(folder)?));
        if let Err(error) = removed {
            tracing::debug!(%error, "a folder made for a change stays");
        }
    }
}

/// What a change does, in lines.
#[must_use]
pub fn diff(change: &Change) -> ChangeDiff {
    let name = |side: &str, content: &Option<Vec<u8>>| match content {
        Some(_) => format!("{side}/{}", change.shown),
        None => "/dev/null".to_owned(),
    };
    let (old_name, new_name) = (name("a", &change.before), name("b", &change.after));
    let sizes = [&change.before, &change.after].map(|side| side.as_ref().map_or(0, Vec::len));
    let header = format!("--- {old_name}\n+++ {new_name}\n");
    if sizes.iter().sum::<usize>() > MAX_DIFFED_BYTES {
        let text = format!("{header}[no diff of a large file: {} bytes before, {} bytes after]\n", sizes[0], sizes[1]);
        return ChangeDiff { text, lines_changed: None };
    }
    let side = |content: &Option<Vec<u8>>| Text::decode(content.clone().unwrap_or_default()).map(|text| text.text);
    let (Some(before), Some(after)) = (side(&change.before), side(&change.after)) else {
        let text = format!("{header}[not text: {} bytes before, {} bytes after]\n", sizes[0], sizes[1]);
        return ChangeDiff { text, lines_changed: None };
    };
    let diff = TextDiff::configure().timeout(DIFF_TIME_MAX).diff_lines(before.as_str(), after.as_str());
    let changed = diff.ops().iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let lines_changed = changed.map(|op| op.old_range().len().max(op.new_range().len())).sum();
    let text = diff.unified_diff().context_radius(3).header(&old_name, &new_name).to_string();
    ChangeDiff { text, lines_changed: Some(lines_changed) }
}

/// The diffs of many changes one after the other, bounded.
#[must_use]
pub fn diffs(changes: &[Change]) -> String {
    bounded_diff(changes.iter().map(|change| diff(change).text).collect())
}
