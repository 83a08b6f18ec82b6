//! States of a project's files that were kept around what the agent did.

use mcode_ids::{CheckpointId, Seq, ToolCallId, TurnId};
use serde::{Deserialize, Serialize};

/// Changed files that an event names; the others are counted.
pub const FILES_NAMED_MAX: usize = 50;

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its path within the project, as text.
    pub path: String,
    /// `added`, `modified`, `deleted`, `renamed`, `mode` or `type`.
    pub change: String,
}

/// What differs between two states.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// Files that are new.
    pub added: u32,
    /// Files that are other than they were.
    pub modified: u32,
    /// Files that are gone.
    pub deleted: u32,
    /// The first [`FILES_NAMED_MAX`] of them.
    pub files: Vec<ChangedFile>,
}

impl Changes {
    /// Whether nothing differs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.added == 0 && self.modified == 0 && self.deleted == 0
    }

    /// How many files differ.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.added.saturating_add(self.modified).saturating_add(self.deleted)
    }
}

/// A state of the project's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// The root of the work tree that it is of; empty for the thread's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// The state that came before it in the thread, by its name in the project's depot; `None` for the first.
    pub before: Option<String>,
    /// The state, by its name in the project's depot.
    pub snapshot: String,
    /// The call that made it so; `None` when it was somebody else, or the first look.
    pub tool_call_id: Option<ToolCallId>,
    /// What differs from the one before.
    pub changes: Changes,
}

/// A checkpoint where it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMark {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its event.
    pub seq: Seq,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: i64,
    /// The turn.
    pub turn_id: Option<TurnId>,
}
