//! Who may give orders: this user's own processes, but no command that is held in a sandbox. One that could would have
//! another's shell do what it must not.

use std::os::unix::net::UnixStream;

/// Whether a connection is to be served.
#[cfg(target_os = "linux")]
pub(crate) fn is_welcome(stream: &UnixStream) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else { return false };
    let gave_up = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(status.lines().any(|line| line.strip_prefix("NoNewPrivs:").is_some_and(|value| value.trim() == "1")))
    };
    // A sandboxed command has given up to gain privileges, for good. Where everything has, as in some containers,
    // nothing can be told apart. A process that is no more counts too: its number may be another's by now.
    let held = gave_up("self") == Some(false) && gave_up(&peer.pid.as_raw_nonzero().to_string()) != Some(false);
    peer.uid == rustix::process::getuid() && !held
}

/// The folder of the socket is closed to other users, and no command is held here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_welcome(_stream: &UnixStream) -> bool {
    true
}
