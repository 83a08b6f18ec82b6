//! Detaching a child: a session of its own, and no file of ours left open in it.

use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::process::Command;

/// A directory that is always there and keeps no file system from being unmounted.
pub(super) const ROOT: &str = "/";

/// Whether this is a file that can be run.
pub(super) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Gives the child a session of its own, so that neither Ctrl+C nor a closing terminal reaches it, and marks what we
/// inherited (a pipe of a script, a lock) to be closed in it, so that nobody waits for the daemon's end.
pub(super) fn detach(command: &mut Command) {
    let inherited = open_files();
    let prepare = move || {
        rustix::process::setsid()?;
        for number in &inherited {
            // SAFETY: the descriptor is only borrowed for this call; if it was closed meanwhile, the call fails with
            // EBADF, which is ignored.
            #[allow(unsafe_code, reason = "descriptors that are known by number only")]
            let file = unsafe { BorrowedFd::borrow_raw(*number) };
            if rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC).is_err() {
                continue;
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only setsid and fcntl are called, which are async-signal-safe; nothing is
    // allocated, and the list of numbers was made before.
    #[allow(unsafe_code, reason = "the standard library has no safe way to start a session")]
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Numbers of the open files beyond standard error. What other threads open meanwhile is closed on exec anyway.
fn open_files() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(|number| *number > 2).collect()
}

/// Whether a tool call has started this process: it, or a process above it, carries the mark. A clean environment hides
/// only one of them: the program that tends the command carries it too.
pub(super) fn is_of_a_tool_call(mark: &str) -> bool {
    !mcode_env::process::var(mark).unwrap_or_default().is_empty() || ancestor_is_marked(mark)
}

/// Processes above this one that are looked at; more would be a circle.
#[cfg(target_os = "linux")]
const ANCESTORS_MAX: usize = 512;

#[cfg(target_os = "linux")]
fn ancestor_is_marked(mark: &str) -> bool {
    let start = format!("{mark}=");
    let mut next = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    for _ in 0..ANCESTORS_MAX {
        if next <= 1 {
            return false;
        }
        // Those of other users do not show it, and none of them is a tool call's.
        let environ = std::fs::read(format!("/proc/{next}/environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(start.as_bytes())) {
            return true;
        }
        next = parent_of(next).unwrap_or(0);
    }
    false
}

/// The number behind the name in parentheses and the state.
#[cfg(target_os = "linux")]
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn ancestor_is_marked(_mark: &str) -> bool {
    false
}
