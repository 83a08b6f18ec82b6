//! A folder as a list of names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use ignore::WalkBuilder;

use crate::fs::disk;
use crate::output::counted;
use crate::tool::{ToolFailure, ToolOutput};

/// The most names that are listed.
const MAX_LISTED: usize = 1000;
/// The most names that are read from one folder.
const MAX_READ: usize = 100_000;

/// The names in a folder, sorted, folders with `/`, links with their target, those that git ignores marked.
///
/// # Errors
/// [`ToolFailure::Failed`] when the folder can not be read.
pub fn view(path: &Path, shown: &str) -> Result<ToolOutput, ToolFailure> {
    let entries = fs::read_dir(path).map_err(|error| disk::refusal(shown, &error))?;
    let mut names: Vec<(OsString, String)> = Vec::new();
    for entry in entries.take(MAX_READ).flatten() {
        let name = entry.file_name();
        let mut line = name.to_string_lossy().into_owned();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => line.push('/'),
            Ok(kind) if kind.is_symlink() => {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                line = format!("{line} -> {}", target.display());
            }
            _ => {}
        }
        names.push((name, line));
    }
    names.sort();
    let kept = not_ignored(path);
    let total = names.len();
    let lines: Vec<String> = names
        .into_iter()
        .take(MAX_LISTED)
        .map(|(name, line)| if kept.contains(&name) { line } else { format!("{line} (ignored)") })
        .collect();
    let count = counted(total, "entry", "entries");
    let note = match total {
        0 => "[empty folder]".to_owned(),
        _ if total > MAX_LISTED => format!("[{MAX_LISTED} of {count} shown; use glob for the others]"),
        _ => format!("[{count}]"),
    };
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&note);
    Ok(ToolOutput::text(text, count))
}

fn not_ignored(path: &Path) -> BTreeSet<OsString> {
    WalkBuilder::new(path)
        .max_depth(Some(1))
        .hidden(false)
        .require_git(false)
        .build()
        .flatten()
        .take(MAX_READ)
        .filter(|entry| entry.depth() == 1)
        .map(|entry| entry.file_name().to_owned())
        .collect()
}
