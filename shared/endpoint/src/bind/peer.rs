//! Who may talk to the daemon: this user's own processes, but not the commands that the daemon itself holds in a
//! sandbox. One that could would answer its own approvals.

use tokio::net::UnixStream;

/// Whether a connection is to be served.
pub(super) fn is_welcome(stream: &UnixStream) -> bool {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "a connection was dropped: its user is not known");
            return false;
        }
    };
    if peer.uid() != mcode_env::process::user_id() {
        tracing::warn!(uid = peer.uid(), "a connection of another user was dropped");
        return false;
    }
    if is_held(peer.pid()) {
        tracing::warn!(pid = peer.pid(), "a connection of a sandboxed process was dropped");
        return false;
    }
    true
}

/// Whether a process has given up what this one has not: to gain privileges. Every sandboxed command has, for good, and
/// with it all that it starts. A process that is no more counts too, for its number may be another's by now.
#[cfg(target_os = "linux")]
fn is_held(pid: Option<i32>) -> bool {
    let gave_up = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(status.lines().any(|line| line.strip_prefix("NoNewPrivs:").is_some_and(|value| value.trim() == "1")))
    };
    // Where everything has given it up, as in some containers, nothing can be told apart.
    gave_up("self") == Some(false) && pid.is_none_or(|pid| gave_up(&pid.to_string()) != Some(false))
}

/// No command is held here.
#[cfg(not(target_os = "linux"))]
fn is_held(_pid: Option<i32>) -> bool {
    false
}
