//! The client's side: a gRPC channel over the socket.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::service_fn;

use crate::error::EndpointError;
use crate::lock::{PAUSE_MAX, PAUSE_MIN};
use crate::socket::SocketPath;

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as os;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as os;

/// Bytes of one stream that may be on their way unread. Small, so that a reader that sleeps stops its writer.
pub const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Bytes of all streams of a connection that may be on their way unread: room for 256 sleeping readers.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// How long a connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer of the health service may take.
pub const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// No channel to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens at the path.
    #[error("no daemon answers at {}", .0.display())]
    NotRunning(PathBuf),
    /// Somebody listens, but not a daemon of ours.
    #[error("what listens at {} is not a daemon of yours", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// We may not connect.
    #[error("not allowed to connect to {}", path.display())]
    Permission {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// No answer in time.
    #[error("no answer at {} within {} s", path.display(), waited.as_secs())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The place of the socket is not safe to use.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Connects once; starts nothing. A connection that breaks later is made anew by the channel.
///
/// # Errors
/// See [`ConnectError`]; [`ConnectError::NotRunning`] is the one that starting a daemon mends.
pub async fn connect(socket: &SocketPath) -> Result<Channel, ConnectError> {
    socket.verify_directory()?;
    let first = Arc::new(Mutex::new(Some(open(socket).await?)));
    let target = socket.clone();
    let connector = service_fn(move |_: Uri| {
        let ready = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let target = target.clone();
        async move {
            match ready {
                Some(stream) => Ok::<_, ConnectError>(TokioIo::new(stream)),
                None => open(&target).await.map(TokioIo::new),
            }
        }
    });
    Endpoint::from_static("http://mcoded.localhost")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .connect_timeout(CONNECT_TIMEOUT)
        .connect_with_connector(connector)
        .await
        .map_err(|source| match broke_off(&source) {
            true => ConnectError::NotRunning(socket.address().to_path_buf()),
            false => ConnectError::Refused { path: socket.address().to_path_buf(), source: source.into() },
        })
}

/// Whether an error is a connection that broke: whoever was at its other end is gone, as a daemon that was killed
/// while we waited in its queue.
pub(crate) fn broke_off(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
            matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected | UnexpectedEof)
        })
}

/// Opens the stream, waiting while the daemon's queue is full.
async fn open(socket: &SocketPath) -> Result<os::Stream, ConnectError> {
    let path = socket.address();
    let tries = async {
        let mut pause = PAUSE_MIN;
        loop {
            match os::open(path).await {
                Err(error) if os::is_busy(&error) => {}
                other => return other,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    };
    let path = path.to_path_buf();
    let Ok(result) = tokio::time::timeout(CONNECT_TIMEOUT, tries).await else {
        return Err(ConnectError::Timeout { path, waited: CONNECT_TIMEOUT });
    };
    result.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
            ConnectError::NotRunning(path)
        }
        // It ended while we waited in its queue.
        _ if broke_off(&source) => ConnectError::NotRunning(path),
        io::ErrorKind::PermissionDenied => ConnectError::Permission { path, source },
        _ => ConnectError::Refused { path, source: source.into() },
    })
}

/// Asks whether the daemon is ready to serve.
///
/// # Errors
/// The status of the call; `DEADLINE_EXCEEDED` after [`HEALTH_TIMEOUT`].
pub async fn health(channel: &Channel) -> Result<bool, tonic::Status> {
    let mut client = HealthClient::new(channel.clone());
    let call = client.check(HealthCheckRequest { service: String::new() });
    match tokio::time::timeout(HEALTH_TIMEOUT, call).await {
        Ok(response) => Ok(response?.into_inner().status() == ServingStatus::Serving),
        Err(_) => Err(tonic::Status::deadline_exceeded("the daemon did not say whether it is ready")),
    }
}
