//! Detaching a child from the console.

use std::path::Path;

use tokio::process::Command;
use windows_sys::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, DETACHED_PROCESS};

/// A directory that is always there.
pub(super) const ROOT: &str = r"C:\";

/// Whether this is a file that can be run.
pub(super) fn is_program(path: &Path) -> bool {
    path.is_file()
}

/// No console, and a process group of its own, so that Ctrl+C does not reach it.
pub(super) fn detach(command: &mut Command) {
    command.creation_flags(DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP);
}

/// Whether a tool call has started this process.
pub(super) fn is_of_a_tool_call(mark: &str) -> bool {
    !mcode_env::process::var(mark).unwrap_or_default().is_empty()
}
