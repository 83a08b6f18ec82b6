//! Named pipes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use interprocess::local_socket::tokio::{Listener as PipeListener, Stream as PipeStream};
use interprocess::local_socket::traits::tokio::Listener as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::windows::local_socket::ListenerOptionsExt;
use interprocess::os::windows::security_descriptor::SecurityDescriptor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use widestring::U16CString;
use windows_sys::Win32::Foundation::{CloseHandle, HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::ConvertSidToStringSidW;
use windows_sys::Win32::Security::{GetTokenInformation, TOKEN_QUERY, TOKEN_USER, TokenUser};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::{ACCEPT_PAUSE, DaemonLock};
use crate::error::EndpointError;
use crate::socket::SocketPath;

/// Accepted connections that wait to be served.
const QUEUE: usize = 16;
/// Bytes for a `TOKEN_USER` with the longest SID, in units of its alignment.
const TOKEN_USER_WORDS: usize = 32;

/// Nothing hands pipes over.
#[derive(Debug, Default)]
pub struct Activated;

impl Activated {
    /// Always empty here.
    ///
    /// # Errors
    /// None.
    pub fn from_env() -> Result<Self, EndpointError> {
        Ok(Self)
    }
}

/// A listening pipe.
pub(super) struct Listener {
    name: SocketPath,
    sddl: U16CString,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Prepares the pipe; it is made in [`Listener::into_incoming`], within the runtime.
pub(super) fn listen(socket: &SocketPath, _: Activated) -> Result<Listener, EndpointError> {
    let refuse = EndpointError::io("find the user for", socket.address());
    let sddl = user_sid().and_then(|sid| {
        // Protected: full access for this user, nothing inherited, nobody else.
        U16CString::from_str(format!("D:P(A;;GA;;;{sid})")).map_err(|error| io::Error::other(error.to_string()))
    });
    Ok(Listener { name: socket.clone(), sddl: sddl.map_err(refuse)? })
}

/// Whether somebody serves the pipe.
pub(super) fn answers(socket: &SocketPath) -> bool {
    tokio::net::windows::named_pipe::ClientOptions::new().open(socket.address()).is_ok()
}

impl Listener {
    pub(super) fn into_incoming(self, lock: DaemonLock) -> Result<Incoming, EndpointError> {
        let path = self.name.address();
        let make = || -> io::Result<PipeListener> {
            let name = path.to_fs_name::<GenericFilePath>()?;
            let rules = SecurityDescriptor::deserialize(&self.sddl)?;
            ListenerOptions::new().name(name).security_descriptor(rules).create_tokio()
        };
        let listener = make().map_err(EndpointError::io("make the pipe", path))?;
        let (send, receive) = mpsc::channel(QUEUE);
        // Accepting is a future and not a poll function, hence a task; it ends with the stream.
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = send.closed() => return,
                };
                match accepted {
                    Ok(stream) => {
                        if send.send(Ok(Connection(stream))).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
        Ok(Incoming { receive, _lock: lock })
    }
}

/// Connections of the same user: the pipe's rules let nobody else in.
#[derive(Debug)]
pub struct Incoming {
    receive: mpsc::Receiver<io::Result<Connection>>,
    _lock: DaemonLock,
}

impl Incoming {
    /// Pipes are in no directory and need not be removed.
    #[must_use]
    pub fn owns_socket(&self) -> bool {
        false
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receive.poll_recv(context)
    }
}

/// An accepted connection.
#[derive(Debug)]
pub struct Connection(PipeStream);

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The security identifier of the user, as text (`S-1-5-…`).
#[allow(unsafe_code, reason = "the system's interface")]
pub(crate) fn user_sid() -> io::Result<String> {
    let mut token: HANDLE = std::ptr::null_mut();
    // SAFETY: `token` is a valid place for the handle; the pseudo handle of the process needs no closing.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buffer = [0u64; TOKEN_USER_WORDS];
    let mut used = 0u32;
    let size = u32::try_from(size_of_val(&buffer)).unwrap_or(0);
    // SAFETY: the buffer is `size` bytes long and aligned for TOKEN_USER; the handle is open.
    let got = unsafe { GetTokenInformation(token, TokenUser, buffer.as_mut_ptr().cast(), size, &raw mut used) };
    let failure = io::Error::last_os_error();
    // SAFETY: the handle is ours and is not used again.
    unsafe { CloseHandle(token) };
    if got == 0 {
        return Err(failure);
    }
    let mut text: *mut u16 = std::ptr::null_mut();
    // SAFETY: the call above wrote a TOKEN_USER, whose SID points into the same buffer, which still lives.
    let converted = unsafe {
        let user = &*buffer.as_ptr().cast::<TOKEN_USER>();
        ConvertSidToStringSidW(user.User.Sid, &raw mut text)
    };
    if converted == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave a string that ends with a zero; it is copied, and then freed as documented.
    let sid = unsafe {
        let sid = widestring::U16CStr::from_ptr_str(text).to_string_lossy();
        LocalFree(text.cast());
        sid
    };
    Ok(sid)
}
