//! What a tool call would do, in the terms that rules speak of.

use std::path::{Path, PathBuf};

/// Where plan mode keeps its plans, from the project's root; the one place in `.mcode` that file tools write.
pub const PLANS: &str = ".mcode/plans";
/// Whether a path (resolved) is a plan of a project: a Markdown file in the folder for them.
#[must_use]
pub fn is_plan(path: &Path, project_root: &Path) -> bool {
    let markdown = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md"));
    markdown && path.starts_with(project_root.join(PLANS))
}

/// Folders whose content runs or is obeyed, wherever they are: a rule must name them to allow changes in them, and file
/// tools change nothing there without being allowed to.
pub const GUARDED: [&str; 2] = [".git", ".mcode"];

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

/// What a command that is given a folder comes upon there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Below {
    /// It is no folder, or the command does not look into it.
    Nothing,
    /// All of this, resolved.
    Files(Vec<PathBuf>),
    /// Too much to be listed.
    Unknown,
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
    /// A command names this path, found on the disk: links followed, wildcards replaced. Only rules that restrict
    /// speak of it; the command itself is judged as [`Access::Command`].
    Mentioned {
        /// The resolved path.
        path: PathBuf,
        /// What is in it that the command may read too.
        below: Below,
        /// The command may change it.
        changes: bool,
    },
    /// Reaches this host.
    Host(String),
    /// Does what the sandbox keeps commands from.
    Unconfined(Unconfined),
    /// Nothing outside the conversation.
    Internal,
}

/// What the sandbox keeps commands from. It is asked about even when the same thing within the sandbox would be
/// allowed, and a run that allows everything does not answer it, the network apart: only a person does, or a rule that
/// names the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unconfined {
    /// Runs the command of this call outside the sandbox.
    Command,
    /// Lets the command of this call use the network as the user does.
    Network,
    /// Changes this path (resolved), which a command could not.
    Edit(PathBuf),
    /// Reads this path (resolved), which a command could not.
    Read(PathBuf),
}

impl Unconfined {
    /// What it is, in words that can be asked about.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match self {
            Self::Command => "running a command outside the sandbox",
            Self::Network => "running a command with the network",
            Self::Edit(_) => "changing what the sandbox keeps from commands",
            Self::Read(_) => "reading what the sandbox hides from commands",
        }
    }
}
