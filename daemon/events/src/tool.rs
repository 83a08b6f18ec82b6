//! Tool calls and their results.

use mcode_ids::ToolCallId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::BlobRef;

/// How a tool call ended, or where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallStatus {
    /// The tool did what it was asked.
    Done,
    /// The tool could not do it; the result says why.
    Failed,
    /// Permission was refused; nothing was run.
    Denied,
    /// The user cancelled.
    Cancelled,
    /// The daemon ended while it ran.
    Interrupted,
}

impl ToolCallStatus {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A tool call that was started (or refused before it was).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Our id.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub name: String,
    /// The arguments that are run, after repair.
    pub arguments: Value,
}

/// A piece of what a tool gives the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResultPart {
    /// Words.
    Text {
        /// The words, bounded and valid UTF-8.
        text: String,
    },
    /// A picture or document.
    Media {
        /// The content.
        blob: BlobRef,
        /// What to call it when it can not be shown.
        name: String,
    },
}

/// The content of a file as a tool last saw or wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// Resolved absolute path.
    pub path: String,
    /// BLAKE3 of the content; `None` when the file was removed.
    pub hash: Option<String>,
}

/// What became of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// How it ended.
    pub status: ToolCallStatus,
    /// What the model gets.
    pub content: Vec<ResultPart>,
    /// One line for people.
    pub preview: String,
    /// For `shell`: the exit status of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Files that were read or written, as they now are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileVersion>,
    /// A unified diff of what was changed, for people; bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl ToolResult {
    /// A result of one text.
    #[must_use]
    pub fn text(tool_call_id: ToolCallId, status: ToolCallStatus, text: impl Into<String>) -> Self {
        let text = text.into();
        let preview = text.lines().next().unwrap_or_default().chars().take(200).collect();
        Self {
            tool_call_id,
            status,
            content: vec![ResultPart::Text { text }],
            preview,
            exit_code: None,
            files: Vec::new(),
            diff: None,
        }
    }

    /// The text parts, joined by newlines.
    #[must_use]
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|part| if let ResultPart::Text { text } = part { Some(text.as_str()) } else { None })
            .collect();
        texts.join("\n")
    }
}

/// State of an entry of the model's task list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Finished.
    Completed,
    /// Dropped.
    Cancelled,
}

/// An entry of the model's task list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskItem {
    /// Stable name of the entry within the list.
    pub id: String,
    /// What is to be done.
    pub content: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// The same in the progressive form ("Running the tests").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
}
