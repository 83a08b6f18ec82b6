//! The daemon's side: one daemon per socket, and only its own socket is ever removed.
//!
//! The lock is taken before anything at the path is looked at, and let go last. So an old daemon that ends late can not
//! remove the socket of its successor, and a successor waits until the old one has let go of its files. A socket that
//! somebody removed while the daemon runs (a cleaner, a log-out) is made again: nobody could reach the daemon otherwise,
//! nor start another one.

use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::EndpointError;
use crate::lock;
use crate::socket::SocketPath;

#[cfg(unix)]
mod peer;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as os;
#[cfg(unix)]
pub use unix::{Activated, Connection, Incoming};

#[cfg(unix)]
mod watch;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as os;
#[cfg(windows)]
pub(crate) use windows::user_sid;
#[cfg(windows)]
pub use windows::{Activated, Connection, Incoming};

/// Pause after an accept that failed, such as when no file descriptors are left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long after a change of its folder the daemon looks whether its socket is still there: whoever removes the folder
/// has done so by then. Also the pause before another try to make it again.
#[cfg(unix)]
pub(crate) const SOCKET_CHECK: Duration = Duration::from_millis(500);

/// The lock of the running daemon; keep it until everything else has ended.
#[derive(Debug, Clone)]
#[must_use = "the daemon may only serve while it holds this"]
pub struct DaemonLock(#[cfg_attr(windows, allow(dead_code, reason = "held for its locks"))] Arc<Mutex<Vec<File>>>);

impl DaemonLock {
    fn new(file: File) -> Self {
        Self(Arc::new(Mutex::new(vec![file])))
    }

    /// Holds the lock of a lock file that had to be made anew, too.
    #[cfg(unix)]
    fn add(&self, file: File) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(file);
    }
}

/// A bound socket and the lock that goes with it.
#[derive(Debug)]
pub struct Bound {
    listener: os::Listener,
    lock: DaemonLock,
}

impl Bound {
    /// The stream of connections for tonic's `serve_with_incoming_shutdown`, and the lock.
    ///
    /// Dropping the stream closes the socket and removes it; drop the lock after the last thread has been put away.
    /// Must be called within a tokio runtime.
    pub fn into_parts(self) -> Result<(Incoming, DaemonLock), EndpointError> {
        let incoming = self.listener.into_incoming(self.lock.clone())?;
        Ok((incoming, self.lock))
    }
}

/// Takes the daemon's lock, waiting up to `wait` for a daemon that is about to end. Nothing is served yet, so this is
/// the time to open what only one daemon may open.
///
/// # Errors
/// [`EndpointError::AlreadyRunning`] at once when another daemon answers there, [`EndpointError::LockHeld`] when it
/// neither answers nor ends.
pub async fn lock_socket(socket: &SocketPath, wait: Duration) -> Result<DaemonLock, EndpointError> {
    socket.create_directory()?;
    Ok(DaemonLock::new(take_lock(socket, wait).await?))
}

/// Binds the socket, or takes the one that the service manager handed over. `lock` is that of the same socket.
///
/// # Errors
/// [`EndpointError::Occupied`] when something that is not ours lies at the path.
pub fn bind(socket: &SocketPath, lock: DaemonLock, activated: Activated) -> Result<Bound, EndpointError> {
    let listener = os::listen(socket, activated)?;
    Ok(Bound { listener, lock })
}

async fn take_lock(socket: &SocketPath, wait: Duration) -> Result<File, EndpointError> {
    let path = socket.lock_file();
    let file = lock::open(path)?;
    let start = Instant::now();
    let mut pause = lock::PAUSE_MIN;
    while !lock::try_lock(&file, path)? {
        if os::answers(socket) {
            return Err(EndpointError::AlreadyRunning {
                path: socket.address().to_path_buf(),
                pid: lock::holder(path),
            });
        }
        if start.elapsed() >= wait {
            let waited_ms = start.elapsed().as_millis();
            return Err(EndpointError::LockHeld { path: path.to_path_buf(), pid: lock::holder(path), waited_ms });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(lock::PAUSE_MAX);
    }
    lock::sign(&file).map_err(EndpointError::io("write the lock file", path))?;
    Ok(file)
}
