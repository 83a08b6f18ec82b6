//! What a tool call would do, in the terms that rules speak of.

use std::path::PathBuf;

/// The kind of effect a tool call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Looks at files.
    Read,
    /// Changes files.
    Edit,
    /// Runs programs.
    Execute,
    /// Reaches the network.
    Network,
    /// Touches nothing outside the conversation (asking the user, the task list).
    Internal,
}

/// One effect of a tool call. A call has all the effects it names; the strictest decision wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Reads this path (resolved: absolute, symlinks followed as far as they exist).
    ReadPath(PathBuf),
    /// Creates, changes or removes this path (resolved likewise).
    EditPath(PathBuf),
    /// Runs this shell command in this folder.
    Command {
        /// As the model wrote it.
        command: String,
        /// Where.
        cwd: PathBuf,
    },
    /// Reaches this host.
    Host(String),
    /// Nothing outside the conversation.
    Internal,
}
