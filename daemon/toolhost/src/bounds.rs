//! What a command may use up: so many processes that work goes on, and not so many that the machine stands still.

/// Most processes and threads that a command may have beside what the machine ran when it began.
pub(crate) const PROCESSES_MAX: u64 = 4096;

/// Processes and threads of the whole machine; `None` where the OS does not tell.
#[cfg(target_os = "linux")]
pub(crate) fn tasks() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn tasks() -> Option<u64> {
    None
}

/// The limit to set for a command: the kernel counts all processes of a user, so what runs already is added.
pub(crate) fn processes_max() -> Option<u64> {
    tasks().map(|tasks| tasks + PROCESSES_MAX)
}

/// Whether the kernel holds no such limit for this user, so that the host has to look for itself.
pub(crate) fn unlimited() -> bool {
    cfg!(target_os = "linux") && rustix::process::geteuid().is_root()
}
