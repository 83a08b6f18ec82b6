//! `write`: a whole file, new or in the place of an old one.

use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_permissions::access::Category;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{blocking, parsed};
use crate::fs::change::{self, Change};
use crate::fs::text::{Encoding, Text};
use crate::fs::{MAX_FILE_BYTES, disk, path};
use crate::output::{bounded_diff, counted};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Writes whole files.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteTool;

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

impl WriteTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self)
    }
}

impl Tool for WriteTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write",
            description: "Creates a file (and its folders) or replaces its whole content; mode, byte order mark and \
                          symlink of an existing file are kept. Prefer edit for a part of a file. Refused when the \
                          file has changed since you saw it."
                .into(),
            schema: json!({"type": "object", "required": ["path", "content"], "properties": {
                "path": {"type": "string"},
                "content": {"type": "string", "description": "The whole file, byte for byte"},
            }}),
            category: Category::Edit,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let arguments: Arguments = parsed("write", arguments)?;
        let access = path::editing(context, &arguments.path)?;
        let preview = match compute(context, &arguments) {
            Ok(change) => bounded_diff(change::diff(&change).text),
            Err(failure) => format!("write {}: {failure}", arguments.path),
        };
        Ok(CallPlan { access, preview, parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        blocking(move || {
            let arguments: Arguments = parsed("write", &arguments)?;
            let change = compute(&context, &arguments)?;
            let files = change::apply(&context, std::slice::from_ref(&change))?;
            let lines = counted(arguments.content.lines().count(), "line", "lines");
            let what = match &change.before {
                None => "created",
                Some(_) if change.before == change.after => "unchanged: it already had this content",
                Some(_) => "replaced",
            };
            let text = format!("{}: {what} ({lines}, {} bytes)", change.shown, arguments.content.len());
            let diff = Some(bounded_diff(change::diff(&change).text)).filter(|diff| !diff.is_empty());
            Ok(ToolOutput { files, diff, ..ToolOutput::text(text, format!("{what}, {lines}")) })
        })
    }
}

fn compute(context: &CallContext, arguments: &Arguments) -> Result<Change, ToolFailure> {
    let resolved = path::resolve_granted(context, &arguments.path)?;
    let shown = path::shown(context, &resolved);
    if arguments.content.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolFailure::Failed(format!("{shown}: more than {} MB to write", MAX_FILE_BYTES / 1024 / 1024)));
    }
    let before = disk::read_existing(&resolved, &shown)?;
    let after = stored(before.as_deref(), &arguments.content);
    Ok(Change { path: resolved, shown, before, after: Some(after), like: None, executable: false })
}

/// The bytes of `content` in the place of `before`: its byte order mark, and with it UTF-16, are kept.
fn stored(before: Option<&[u8]>, content: &str) -> Vec<u8> {
    let encoding = match before {
        Some([0xEF, 0xBB, 0xBF, ..]) => Encoding::Utf8,
        Some([0xFF, 0xFE, ..]) => Encoding::Utf16Le,
        Some([0xFE, 0xFF, ..]) => Encoding::Utf16Be,
        _ => return content.as_bytes().to_vec(),
    };
    let text = content.strip_prefix('\u{FEFF}').unwrap_or(content).to_owned();
    Text { text, encoding, mark: true }.encode().unwrap_or_else(|_| content.as_bytes().to_vec())
}
