//! Connecting to a Unix domain socket of the same user.

use std::io;
use std::path::Path;

use tokio::net::UnixStream;

pub(super) type Stream = UnixStream;

/// Connects, and checks that the other side is ours: keys and prompts go over this.
pub(super) async fn open(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    let peer = stream.peer_cred()?.uid();
    let user = mcode_env::process::user_id();
    if peer == user {
        Ok(stream)
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it is served by user {peer}, and this is user {user}"),
        ))
    }
}

/// Whether the daemon lives but its queue of connections is full.
pub(super) fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
