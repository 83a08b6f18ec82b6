//! `apply_patch`: many files at once, all or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_permissions::access::Category;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{blocking, parsed};
use crate::edit::patch_apply;
use crate::edit::patch_parse::{Action, FilePatch, Hunk, parse};
use crate::fs::change::{self, Change};
use crate::fs::text::Text;
use crate::fs::{MAX_FILE_BYTES, disk, path};
use crate::output::{bounded_diff, counted};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Applies patches.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyPatchTool;

#[derive(Debug, Deserialize)]
struct Arguments {
    patch: String,
}

impl ApplyPatchTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self)
    }
}

impl Tool for ApplyPatchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "apply_patch",
            description: "Changes, creates, deletes or renames many files, all or nothing. patch is a unified diff \
                          (git style), or: '*** Begin Patch', then per file '*** Add File: p' with + lines, \
                          '*** Delete File: p', or '*** Update File: p' (then optionally '*** Move to: q') with \
                          hunks of '@@ line above' and lines that start with space, - or +; then '*** End Patch'. \
                          Context must match exactly."
                .into(),
            schema: json!({"type": "object", "required": ["patch"], "properties": {"patch": {"type": "string"}}}),
            category: Category::Edit,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let arguments: Arguments = parsed("apply_patch", arguments)?;
        let files = read(&arguments)?;
        let mut access = Vec::new();
        for file in &files {
            access.extend(path::editing(context, &file.path)?);
            if let Action::Update { move_to: Some(target), .. } = &file.action {
                access.extend(path::editing(context, target)?);
            }
        }
        // Why it does not fit is told after permission was given: the reason quotes the files.
        let preview = match compute(context, &files) {
            Ok(changes) => change::diffs(&changes),
            Err(failure) => bounded_diff(format!("{failure}\n{}", arguments.patch)),
        };
        Ok(CallPlan { access, preview, parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        blocking(move || {
            let arguments: Arguments = parsed("apply_patch", &arguments)?;
            let changes = compute(&context, &read(&arguments)?)?;
            let versions = change::apply(&context, &changes)?;
            let lines: Vec<String> = changes.iter().map(summary).collect();
            let preview = format!("{} changed", counted(changes.len(), "file", "files"));
            Ok(ToolOutput {
                files: versions,
                diff: Some(change::diffs(&changes)),
                ..ToolOutput::text(lines.join("\n"), preview)
            })
        })
    }
}

fn read(arguments: &Arguments) -> Result<Vec<FilePatch>, ToolFailure> {
    if arguments.patch.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolFailure::BadArguments(format!("apply_patch: more than {} MB", MAX_FILE_BYTES / 1024 / 1024)));
    }
    parse(&arguments.patch).map_err(|reason| ToolFailure::BadArguments(format!("apply_patch: {reason}")))
}

fn summary(change: &Change) -> String {
    let what = match (&change.before, &change.after) {
        (None, _) => "created",
        (_, None) => "deleted",
        (Some(_), Some(_)) => "updated",
    };
    format!("{}: {what}", change.shown)
}

/// Works out what every file shall be; nothing is written.
fn compute(context: &CallContext, files: &[FilePatch]) -> Result<Vec<Change>, ToolFailure> {
    let mut draft = Draft { context, changes: Vec::new() };
    for file in files {
        match &file.action {
            Action::Add { content, executable } => draft.add(&file.path, content, *executable)?,
            Action::Delete(hunks) => draft.delete(&file.path, hunks)?,
            Action::Update { hunks, move_to } => draft.update(&file.path, hunks, move_to.as_deref())?,
        }
    }
    // A file that comes and goes within the patch was never there.
    draft.changes.retain(|change| change.before.is_some() || change.after.is_some());
    Ok(draft.changes)
}

/// The files as the patch has made them so far, so that a file may be named twice.
struct Draft<'a> {
    context: &'a CallContext,
    changes: Vec<Change>,
}

impl Draft<'_> {
    fn file(&mut self, given: &str) -> Result<&mut Change, ToolFailure> {
        let resolved = path::resolve_granted(self.context, given)?;
        if let Some(index) = self.changes.iter().position(|change| change.path == resolved) {
            return self.changes.get_mut(index).ok_or(ToolFailure::Cancelled);
        }
        let shown = path::shown(self.context, &resolved);
        let before = disk::read_existing(&resolved, &shown)?;
        let after = before.clone();
        let change = Change { path: resolved, shown, before, after, like: None, executable: false };
        change::check_seen(self.context, &change)?;
        self.changes.push(change);
        self.changes.last_mut().ok_or(ToolFailure::Cancelled)
    }

    fn add(&mut self, given: &str, content: &str, executable: bool) -> Result<(), ToolFailure> {
        let file = self.file(given)?;
        if file.after.is_some() {
            return Err(failed(&file.shown, "the patch adds this file, but it exists; update it instead"));
        }
        file.after = Some(content.as_bytes().to_vec());
        file.executable = executable;
        Ok(())
    }

    fn delete(&mut self, given: &str, hunks: &[Hunk]) -> Result<(), ToolFailure> {
        self.no_link(given)?;
        let file = self.existing(given)?;
        if !hunks.is_empty() && !patched(file, hunks)?.is_empty() {
            return Err(failed(&file.shown, "the patch deletes this file, but it holds more than the patch removes"));
        }
        file.after = None;
        Ok(())
    }

    fn update(&mut self, given: &str, hunks: &[Hunk], move_to: Option<&str>) -> Result<(), ToolFailure> {
        let file = self.existing(given)?;
        let content = if hunks.is_empty() { file.after.clone().unwrap_or_default() } else { patched(file, hunks)? };
        let source: PathBuf = file.path.clone();
        let Some(target) = move_to else {
            file.after = Some(content);
            return Ok(());
        };
        self.no_link(given)?;
        let file = self.existing(given)?;
        let like = file.like.clone().unwrap_or_else(|| source.clone());
        let executable = file.executable;
        if path::resolve(self.context, target)? != source {
            self.existing(given)?.after = None;
        }
        let target = self.file(target)?;
        if target.after.is_some() && target.path != source {
            return Err(failed(&target.shown, "the patch moves a file to this name, but there is a file already"));
        }
        target.after = Some(content);
        if target.path != source {
            target.like = Some(like);
            target.executable = executable;
        }
        Ok(())
    }

    /// What a link leads to is not removed by removing the link's name.
    fn no_link(&self, given: &str) -> Result<(), ToolFailure> {
        if path::is_link(self.context, given) {
            return Err(failed(given, "this is a link, which a patch does not delete or move; use rm or mv"));
        }
        Ok(())
    }

    fn existing(&mut self, given: &str) -> Result<&mut Change, ToolFailure> {
        let file = self.file(given)?;
        if file.after.is_none() {
            return Err(disk::missing(Path::new(&file.path), &file.shown, &std::io::ErrorKind::NotFound.into()));
        }
        Ok(file)
    }
}

/// The content of a file with the hunks in it.
fn patched(file: &Change, hunks: &[Hunk]) -> Result<Vec<u8>, ToolFailure> {
    let Some(mut text) = Text::decode(file.after.clone().unwrap_or_default()) else {
        return Err(failed(&file.shown, "this is a binary file, which a patch can not change"));
    };
    text.text = patch_apply::apply(&text.text, hunks).map_err(|reason| failed(&file.shown, &reason))?;
    if text.text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(&file.shown, &format!("it would grow past {} MB", MAX_FILE_BYTES / 1024 / 1024)));
    }
    if text.text.is_empty() {
        return Ok(Vec::new());
    }
    text.encode().map_err(|lacking| {
        failed(&file.shown, &format!("it is stored as {}, which has no character '{lacking}'", text.encoding))
    })
}

fn failed(shown: &str, reason: &str) -> ToolFailure {
    ToolFailure::Failed(format!("{shown}: {reason} (no file was changed)"))
}
