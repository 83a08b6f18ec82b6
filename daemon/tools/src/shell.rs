//! Running commands: the `shell` and `process` tools, and the table of what they started.

mod clean;
mod environment;
mod held;
mod mentioned;
mod process_tool;
mod render;
mod supervise;
mod table;
mod tool;

use std::sync::Arc;

use mcode_sandbox::{LocalRunner, shell_for};

use crate::tool::Tool;

pub use clean::clean;
pub use environment::command_env;
pub use process_tool::ProcessTool;
pub use table::{ENDED_KEPT_MAX, End, LIVE_MAX, Process, ProcessTable, Stage};
pub use tool::{DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S, ShellTool};

/// The tools that start and tend commands. They share `table`; whoever closes a thread calls
/// [`ProcessTable::kill_thread`], and whoever ends the daemon [`ProcessTable::kill_all`].
#[must_use]
pub fn shell_tools(runner: LocalRunner, table: &Arc<ProcessTable>) -> Vec<Arc<dyn Tool>> {
    let shell = shell_for(&mcode_env::process::var("PATH").unwrap_or_default());
    vec![Arc::new(ShellTool::new(runner, shell, Arc::clone(table))), Arc::new(ProcessTool::new(Arc::clone(table)))]
}
