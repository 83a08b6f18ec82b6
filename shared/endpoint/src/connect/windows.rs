//! Connecting to a named pipe.

use std::io;
use std::path::Path;

use tokio::net::windows::named_pipe::{ClientOptions, NamedPipeClient};
use windows_sys::Win32::Foundation::ERROR_PIPE_BUSY;

pub(super) type Stream = NamedPipeClient;

/// Connects. The name holds the user's SID, and the pipe lets nobody else in.
#[allow(clippy::unused_async, reason = "the same shape as on Unix")]
pub(super) async fn open(path: &Path) -> io::Result<NamedPipeClient> {
    ClientOptions::new().open(path)
}

/// Whether the daemon lives but has no free instance of the pipe.
pub(super) fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed())
}
