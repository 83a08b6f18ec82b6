//! Running commands: the `shell` and `process` tools, and the table of what they started.

mod attend;
mod clean;
mod environment;
mod found;
mod held;
mod mentioned;
mod process;
mod process_tool;
mod render;
mod row;
mod supervise;
mod table;
mod tool;
mod watched;

use std::sync::Arc;

use mcode_sandbox::{Hosts, shell_for};

use crate::tool::Tool;

pub use attend::{Attending, attend};
pub use clean::clean;
pub use environment::command_env;
pub use found::Found;
pub use process::{End, Process, Stage};
pub use process_tool::ProcessTool;
pub use row::ProcessRow;
pub use table::{ENDED_KEPT_MAX, LIVE_MAX, ProcessTable};
pub use tool::{BACKGROUND_AFTER_S, MAX_TIMEOUT_S, ShellTool};

/// The tools that start and tend commands. They share `table`; whoever closes a thread calls
/// [`ProcessTable::kill_thread`], and whoever ends the daemon [`ProcessTable::kill_all`].
#[must_use]
pub fn shell_tools(hosts: Hosts, table: &Arc<ProcessTable>) -> Vec<Arc<dyn Tool>> {
    let shell = shell_for(&mcode_env::process::var("PATH").unwrap_or_default());
    vec![Arc::new(ShellTool::new(hosts, shell, Arc::clone(table))), Arc::new(ProcessTool::new(Arc::clone(table)))]
}
