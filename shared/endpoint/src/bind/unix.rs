//! Unix domain sockets.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Sleep;
use tokio_stream::Stream;

use super::peer::is_welcome;
use super::watch::FolderWatch;
use super::{ACCEPT_PAUSE, DaemonLock, SOCKET_CHECK};
use crate::error::EndpointError;
use crate::lock;
use crate::socket::SocketPath;

/// An accepted connection.
pub type Connection = UnixStream;

/// The socket that systemd handed over, if any.
#[derive(Debug, Default)]
pub struct Activated(Option<StdListener>);

impl Activated {
    /// Takes the socket out of the environment (`LISTEN_FDS`). Call it once, before threads are started: the variables
    /// are removed.
    ///
    /// # Errors
    /// [`EndpointError::Activation`] when what was handed over is not a stream socket.
    pub fn from_env() -> Result<Self, EndpointError> {
        listenfd::ListenFd::from_env().take_unix_listener(0).map(Self).map_err(EndpointError::Activation)
    }
}

/// A listening socket, and how to know it again when it is ours to remove.
#[derive(Debug)]
pub(super) struct Listener {
    socket: StdListener,
    own: Option<OwnFile>,
    path: SocketPath,
}

/// A file that we made: removed only while the path still leads to it.
#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OwnFile {
    fn at(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_path_buf(), device: meta.dev(), inode: meta.ino() })
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let same = fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| meta.dev() == self.device && meta.ino() == self.inode && meta.file_type().is_socket());
        if same && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket could not be removed");
        }
    }
}

/// Listens. The caller holds the daemon's lock.
pub(super) fn listen(socket: &SocketPath, activated: Activated) -> Result<Listener, EndpointError> {
    let path = socket.address();
    if let Some(listener) = activated.0 {
        listener.set_nonblocking(true).map_err(EndpointError::Activation)?;
        return Ok(Listener { socket: listener, own: None, path: socket.clone() });
    }
    clear_stale(path)?;
    let (listener, own) = make(path)?;
    Ok(Listener { socket: listener, own: Some(own), path: socket.clone() })
}

/// Makes the socket where nothing is.
fn make(path: &Path) -> Result<(StdListener, OwnFile), EndpointError> {
    let listener = StdListener::bind(path).map_err(EndpointError::io("bind", path))?;
    let own = OwnFile::at(path).map_err(EndpointError::io("look at", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(EndpointError::io("close to others", path))?;
    listener.set_nonblocking(true).map_err(EndpointError::io("prepare", path))?;
    Ok((listener, own))
}

/// Removes the socket of a daemon that was killed; refuses everything else.
fn clear_stale(path: &Path) -> Result<(), EndpointError> {
    let occupied = |what| Err(EndpointError::Occupied { path: path.to_path_buf(), what });
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(EndpointError::io("look at", path)(error)),
    };
    let kind = meta.file_type();
    if kind.is_symlink() {
        return occupied("a symbolic link");
    }
    if !kind.is_socket() {
        return occupied(if kind.is_dir() { "a directory" } else { "a file and not a socket" });
    }
    if meta.uid() != mcode_env::process::user_id() {
        return occupied("a socket of another user");
    }
    match try_connect(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(EndpointError::io("remove the stale socket", path)),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(_) => occupied("a socket that another program serves"),
    }
}

/// Whether somebody listens at the socket. Never blocks, even when the other side's queue is full.
pub(super) fn answers(socket: &SocketPath) -> bool {
    matches!(try_connect(socket.address()), Ok(()) | Err(Errno::AGAIN))
}

fn try_connect(path: &Path) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &address)
}

impl Listener {
    pub(super) fn into_incoming(self, lock: DaemonLock) -> Result<Incoming, EndpointError> {
        let listener = UnixListener::from_std(self.socket).map_err(EndpointError::Activation)?;
        let watch = self.own.as_ref().and_then(|own| own.path.parent()).and_then(FolderWatch::of);
        Ok(Incoming { own: self.own, listener, pause: None, path: self.path, watch, check: None, lost: false, lock })
    }
}

/// Connections of the same user; all others are dropped before a byte is read.
#[derive(Debug)]
pub struct Incoming {
    // Removed from the directory before the socket is closed, so that nobody connects to a socket that ends.
    own: Option<OwnFile>,
    listener: UnixListener,
    pause: Option<Pin<Box<Sleep>>>,
    path: SocketPath,
    watch: Option<FolderWatch>,
    check: Option<Pin<Box<Sleep>>>,
    lost: bool,
    lock: DaemonLock,
}

impl Incoming {
    /// Whether the socket is ours to remove (it is not when the service manager made it).
    #[must_use]
    pub fn owns_socket(&self) -> bool {
        self.own.is_some()
    }

    /// Makes the socket again when nothing is left at its path. What else may lie there is left alone.
    fn keep(&mut self) {
        let gone = |path: &Path| fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if self.own.is_none() || !gone(self.path.address()) {
            return;
        }
        match self.make_again() {
            Ok(listener) => {
                // Connections that wait at the old one got no answer; their clients try again.
                self.listener = listener;
                self.lost = false;
                // The folder itself may be another one now.
                self.watch = self.path.address().parent().and_then(FolderWatch::of);
                tracing::warn!(path = %self.path.address().display(), "the socket had been removed; it was made again");
            }
            Err(error) if !self.lost => {
                self.lost = true;
                tracing::warn!(%error, "the socket was removed and can not be made again yet");
            }
            Err(_) => {}
        }
    }

    /// Looks at the socket a while after its folder has changed, and again and again while it is lost.
    fn poll_keep(&mut self, context: &mut Context<'_>) {
        loop {
            let changed = self.watch.as_mut().is_some_and(|watch| watch.poll_changed(context).is_ready());
            if (changed || self.lost) && self.check.is_none() {
                self.check = Some(Box::pin(tokio::time::sleep(SOCKET_CHECK)));
            }
            let due = self.check.as_mut().is_some_and(|check| check.as_mut().poll(context).is_ready());
            if due {
                self.check = None;
                self.keep();
            } else if !changed {
                return;
            }
        }
    }

    fn make_again(&mut self) -> Result<UnixListener, EndpointError> {
        self.path.create_directory()?;
        let lock_file = self.path.lock_file();
        if !lock_file.exists() {
            let file = lock::open(lock_file)?;
            if !lock::try_lock(&file, lock_file)? {
                let pid = lock::holder(lock_file);
                return Err(EndpointError::AlreadyRunning { path: lock_file.to_path_buf(), pid });
            }
            lock::sign(&file).map_err(EndpointError::io("write the lock file", lock_file))?;
            self.lock.add(file);
        }
        let (listener, own) = make(self.path.address())?;
        let listener = UnixListener::from_std(listener).map_err(EndpointError::io("prepare", self.path.address()))?;
        self.own = Some(own);
        Ok(listener)
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_keep(context);
        loop {
            if let Some(pause) = self.pause.as_mut() {
                std::task::ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match std::task::ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) if is_welcome(&stream) => return Poll::Ready(Some(Ok(stream))),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_PAUSE)));
                }
            }
        }
    }
}
