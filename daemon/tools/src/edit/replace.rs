//! `edit`: exact text for exact text, one place or all, one replacement or many in order, all or nothing.

use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_permissions::access::Category;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{blocking, parsed};
use crate::edit::matching::{Replacement, replace};
use crate::fs::change::{self, Change};
use crate::fs::text::{Text, kind_of};
use crate::fs::{MAX_FILE_BYTES, disk, path};
use crate::output::{bounded_diff, counted};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// The most replacements of one call.
const MAX_EDITS: usize = 500;

/// Replaces text in files.
#[derive(Debug, Clone, Copy, Default)]
pub struct EditTool;

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    old_string: Option<String>,
    #[serde(default)]
    new_string: Option<String>,
    #[serde(default)]
    replace_all: bool,
    #[serde(default)]
    edits: Vec<EditArguments>,
}

#[derive(Debug, Deserialize)]
struct EditArguments {
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

impl EditTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self)
    }
}

impl Tool for EditTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit",
            description: "Replaces old_string by new_string in a file, or does several edits in order, all or \
                          nothing. old_string must be in the file exactly, whitespace included, and once unless \
                          replace_all. Line endings and encoding are kept. Refused when the file has changed since \
                          you saw it."
                .into(),
            schema: json!({"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string"},
                "old_string": {"type": "string"},
                "new_string": {"type": "string"},
                "replace_all": {"type": "boolean"},
                "edits": {"type": "array", "description": "Instead of old_string and new_string", "items": {
                    "type": "object", "required": ["old_string", "new_string"], "properties": {
                        "old_string": {"type": "string"},
                        "new_string": {"type": "string"},
                        "replace_all": {"type": "boolean"},
                    }}},
            }}),
            category: Category::Edit,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let arguments: Arguments = parsed("edit", arguments)?;
        let replacements = replacements(&arguments)?;
        let access = path::editing(context, &arguments.path)?;
        // Why it can not be done is told after permission was given: the reason quotes the file.
        let preview = match compute(context, &arguments.path, &replacements) {
            Ok((change, _)) => bounded_diff(change::diff(&change).text),
            Err(failure) => format!("edit {}: {failure}", arguments.path),
        };
        Ok(CallPlan { access, preview, parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        blocking(move || {
            let arguments: Arguments = parsed("edit", &arguments)?;
            let (change, count) = compute(&context, &arguments.path, &replacements(&arguments)?)?;
            let files = change::apply(&context, std::slice::from_ref(&change))?;
            let diff = change::diff(&change);
            let mut summary = counted(count, "replacement", "replacements");
            if let Some(lines) = diff.lines_changed {
                summary = format!("{summary}, {} changed", counted(lines, "line", "lines"));
            }
            let text = match change.before {
                None => format!("{}: created", change.shown),
                Some(_) => format!("{}: {summary}", change.shown),
            };
            Ok(ToolOutput { files, diff: Some(bounded_diff(diff.text)), ..ToolOutput::text(text, summary) })
        })
    }
}

fn replacements(arguments: &Arguments) -> Result<Vec<Replacement>, ToolFailure> {
    let bad = |message: &str| Err(ToolFailure::BadArguments(format!("edit: {message}")));
    match (&arguments.old_string, &arguments.new_string, arguments.edits.as_slice()) {
        (Some(old), Some(new), []) => {
            Ok(vec![Replacement { old: old.clone(), new: new.clone(), all: arguments.replace_all }])
        }
        (None, None, []) => bad("the fields 'old_string' and 'new_string' (or 'edits') are missing"),
        (Some(_), None, []) => bad("the field 'new_string' is missing; give \"\" to remove the text"),
        (None, Some(_), []) => bad("the field 'old_string' is missing; use write for a whole file"),
        (None, None, edits) if edits.len() > MAX_EDITS => {
            bad(&format!("the field 'edits' has {} entries, the limit is {MAX_EDITS}", edits.len()))
        }
        (None, None, edits) => Ok(edits
            .iter()
            .map(|edit| Replacement {
                old: edit.old_string.clone(),
                new: edit.new_string.clone(),
                all: edit.replace_all || arguments.replace_all,
            })
            .collect()),
        _ => bad("give either 'old_string' and 'new_string', or 'edits', not both"),
    }
}

fn compute(context: &CallContext, given: &str, replacements: &[Replacement]) -> Result<(Change, usize), ToolFailure> {
    let resolved = path::resolve_granted(context, given)?;
    let shown = path::shown(context, &resolved);
    let before = disk::read_existing(&resolved, &shown)?;
    let mut text = match &before {
        Some(bytes) => Text::decode(bytes.clone()).ok_or_else(|| {
            let kind = kind_of(bytes).unwrap_or("unknown kind");
            ToolFailure::Failed(format!(
                "{shown}: this is a binary file ({kind}, {} bytes), which edit does not change",
                bytes.len()
            ))
        })?,
        None if replacements.first().is_some_and(|first| first.old.is_empty()) => Text::plain(String::new()),
        None => return Err(disk::missing(&resolved, &shown, &std::io::ErrorKind::NotFound.into())),
    };
    let change = Change { path: resolved, shown, before, after: None, like: None, executable: false };
    // Said first: a file changed by others rarely has the text any more, and that is the reason to give.
    change::check_seen(context, &change)?;
    let shown = &change.shown;
    let mut count = 0;
    for (index, replacement) in replacements.iter().enumerate() {
        let which = if replacements.len() > 1 { format!("edit {}: ", index + 1) } else { String::new() };
        let failed = |reason: String| ToolFailure::Failed(format!("{shown}: {which}{reason} (nothing was changed)"));
        if replacement.old.is_empty() {
            if !text.text.is_empty() {
                return Err(failed("old_string is empty but the file is not; name the text to replace".into()));
            }
            text.text.clone_from(&replacement.new);
            count += 1;
            continue;
        }
        let (new, places) = replace(&text.text, replacement).map_err(failed)?;
        if new.len() as u64 > MAX_FILE_BYTES {
            return Err(failed(format!("the file would grow past {} MB", MAX_FILE_BYTES / 1024 / 1024)));
        }
        text.text = new;
        count += places;
    }
    let after = text.encode().map_err(|lacking| {
        ToolFailure::Failed(format!(
            "{shown}: the file is stored as {}, which has no character '{lacking}' (nothing was changed)",
            text.encoding
        ))
    })?;
    Ok((Change { after: Some(after), ..change }, count))
}
