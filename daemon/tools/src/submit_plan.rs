//! The `submit_plan` tool: hands a plan to the user, who approves it, asks for changes, or declines it.
//!
//! The tool finds the plan and says what it is; that it is recorded, asked about and carried out is the agent's
//! (`agent/plans.rs`). What is asked about is the text that was read here, whatever becomes of the file.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_permissions::access::{Access, Category, PLANS, is_plan};
use serde_json::{Value, json};

use crate::fs::{disk, path};
use crate::tool::{CallContext, CallPlan, Submission, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Largest plan, in bytes: all of it is part of each prompt once it is approved.
pub const PLAN_BYTES_MAX: usize = 64 * 1024;

/// Longest title, in characters.
const TITLE_CHARS_MAX: usize = 120;

/// Hands a plan to the user.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubmitPlanTool;

impl SubmitPlanTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self)
    }
}

/// The resolved path of a plan: a Markdown file in the folder for plans, with no link on the way out of it.
fn plan_path(arguments: &Value, context: &CallContext) -> Result<PathBuf, ToolFailure> {
    let given = arguments["path"].as_str().unwrap_or_default();
    let found = path::resolve(context, given)?;
    if is_plan(&found, &context.project_root) {
        return Ok(found);
    }
    Err(ToolFailure::BadArguments(format!(
        "the field 'path' is '{given}', which is no plan: write it to a Markdown file in {PLANS} of the project, such as \
         {PLANS}/what-it-does.md, and submit that"
    )))
}

fn read(path: &Path, context: &CallContext) -> Result<Submission, ToolFailure> {
    let shown = path::shown(context, path);
    let (file, meta) = disk::open(path, &shown)?;
    let too_large = || {
        ToolFailure::Failed(format!(
            "{shown} has more than {PLAN_BYTES_MAX} bytes, which is too much for a plan: shorten it"
        ))
    };
    if meta.len() > PLAN_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut bounded = std::io::Read::take(file, PLAN_BYTES_MAX as u64 + 1);
    std::io::Read::read_to_end(&mut bounded, &mut bytes).map_err(|error| disk::refusal(&shown, &error))?;
    if bytes.len() > PLAN_BYTES_MAX {
        return Err(too_large());
    }
    let text = String::from_utf8(bytes).map_err(|_| ToolFailure::Failed(format!("{shown} is not UTF-8 text")))?;
    if text.trim().is_empty() {
        return Err(ToolFailure::Failed(format!("{shown} is empty: write the plan into it first")));
    }
    let inner = path.strip_prefix(&context.project_root).unwrap_or(path);
    let parts = inner.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    let name = parts.collect::<Vec<_>>().join("/");
    Ok(Submission { title: title(&text, path), path: name, text })
}

/// The first heading of a plan, else the name of its file.
fn title(text: &str, path: &Path) -> String {
    let heading = text.lines().find_map(|line| line.trim().strip_prefix("# ")).map(str::trim);
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let title = heading.filter(|title| !title.is_empty()).map_or(name, str::to_owned);
    title.chars().filter(|char| !char.is_control()).take(TITLE_CHARS_MAX).collect()
}

impl Tool for SubmitPlanTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "submit_plan",
            description: format!(
                "Hands a plan to the user for approval. In plan mode: write it to a Markdown file in {PLANS} first, with a \
                 # heading. The user approves it (then the mode is build, and you carry it out), asks for changes (edit \
                 the same file and submit it again), or declines it."
            ),
            schema: json!({
                "type": "object",
                "properties": {"path": {"type": "string", "description": format!("The plan: a Markdown file in {PLANS}")}},
                "required": ["path"],
                "additionalProperties": false
            }),
            category: Category::Internal,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let given = arguments["path"].as_str().unwrap_or_default();
        plan_path(arguments, context)?;
        let access: Vec<Access> = path::reading(context, given)?;
        Ok(CallPlan { access, preview: format!("submit {given}"), parallel: false })
    }

    fn submission(&self, arguments: &Value, context: &CallContext) -> Option<Result<Submission, ToolFailure>> {
        Some(plan_path(arguments, context).and_then(|path| read(&path, context)))
    }

    fn run(&self, _arguments: Value, _context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        Box::pin(async {
            let text = "The user approved the plan. The mode is build from here on: carry the plan out, and check what you \
                        do as it says. It stays part of what you are told.";
            Ok(ToolOutput::text(text, "approved"))
        })
    }
}
