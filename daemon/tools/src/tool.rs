//! The trait, and what goes in and out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_env::{Clock, IdGen};
use mcode_events::blob::Blobs;
use mcode_events::tool::{FileVersion, ResultPart, TaskItem};
use mcode_ids::{ThreadId, ToolCallId};
use mcode_permissions::access::{Access, Category};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::bounds::CallBounds;
use crate::ledger::FileLedger;
use crate::port::ToolPort;

/// A tool as it is told to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does; short, exact, and true word for word.
    pub description: String,
    /// JSON Schema of the arguments; the root is an object.
    pub schema: Value,
    /// What kind of effect it has.
    pub category: Category,
}

/// Where and for whom a call runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The thread.
    pub thread_id: ThreadId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The run's folder; relative paths start here. Absolute, resolved.
    pub cwd: PathBuf,
    /// The project's root; `cwd` is in it.
    pub project_root: PathBuf,
    /// The client's environment, secrets already taken out.
    pub env: Arc<BTreeMap<String, String>>,
    /// The client's file mode mask, on Unix.
    pub umask: u32,
    /// What the model believes of files.
    pub ledger: Arc<FileLedger>,
    /// Large bodies.
    pub blobs: Arc<dyn Blobs>,
    /// The run.
    pub port: Arc<dyn ToolPort>,
    /// The model's present task list.
    pub tasks: Vec<TaskItem>,
    /// What it may touch.
    pub bounds: CallBounds,
    /// Its words were not searched for what deny rules name, because the kernel holds that.
    pub shielded: bool,
    /// What permission was given for; `None` while the call is only planned.
    pub granted: Option<Arc<[Access]>>,
    /// Ends the call.
    pub cancel: CancellationToken,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Makes ids.
    pub ids: Arc<dyn IdGen>,
}

/// What a call would do, found without doing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPlan {
    /// Everything it touches.
    pub access: Vec<Access>,
    /// What people are shown when asked: the command, or a unified diff. Bounded.
    pub preview: String,
    /// May run beside other calls of the same step.
    pub parallel: bool,
}

impl CallPlan {
    /// Of a call that touches nothing any more.
    #[must_use]
    pub fn of_nothing() -> Self {
        Self { access: vec![Access::Internal], preview: String::new(), parallel: false }
    }
}

/// What a tool gives back when it did what it was asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// What the model gets, bounded.
    pub content: Vec<ResultPart>,
    /// One line for people, such as `12 lines` or `exit 0 in 1.2 s`.
    pub preview: String,
    /// Exit status of a command.
    pub exit_code: Option<i32>,
    /// Files read or written, as they now are.
    pub files: Vec<FileVersion>,
    /// A unified diff of what was changed, bounded.
    pub diff: Option<String>,
    /// The call did not succeed, though the tool worked (a command that exited with 1).
    pub failed: bool,
}

impl ToolOutput {
    /// An output of one text.
    #[must_use]
    pub fn text(text: impl Into<String>, preview: impl Into<String>) -> Self {
        Self { content: vec![ResultPart::Text { text: text.into() }], preview: preview.into(), ..Self::default() }
    }
}

/// Why a tool did not do it. The message goes to the model and names the field, the path and the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// The arguments do not fit; nothing was done.
    #[error("{0}")]
    BadArguments(String),
    /// It could not be done; nothing was changed unless the message says so.
    #[error("{0}")]
    Failed(String),
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// A plan that a call hands to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Its file, from the project's root.
    pub path: String,
    /// Its first heading, or the name of the file.
    pub title: String,
    /// Its text, as it was read.
    pub text: String,
}

/// Something a model can call.
pub trait Tool: Send + Sync + fmt::Debug {
    /// How it is told to the model.
    fn spec(&self) -> ToolSpec;
    /// What this call would touch. Blocking (it may look at the disk). Arguments were checked against the schema.
    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure>;
    /// The plan that this call hands to the user; `None` for all but the tool that does so. Blocking.
    fn submission(&self, _arguments: &Value, _context: &CallContext) -> Option<Result<Submission, ToolFailure>> {
        None
    }
    /// Does it. Permission was given for what [`Tool::plan`] named.
    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>>;
}
