//! Reaching the daemon, and reaching it again.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcode_endpoint::{SocketPath, StartOptions};
use mcode_env::Dirs;
use mcode_proto::{API_LEVEL, v1};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::error::{ClientError, ErrorKind};

/// Deadline of calls that the daemon answers from memory or its database.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// Deadline of calls that wait for something to end, such as a tool that is being killed.
pub const LONG_CALL_DEADLINE: Duration = Duration::from_secs(120);

/// Deadline of calls that look through or copy everything that is kept: a gigabyte takes some seconds.
pub const STORAGE_DEADLINE: Duration = Duration::from_secs(3600);

/// How often a call is made anew after the connection broke.
const RETRIES: u32 = 2;

/// How to reach the daemon.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// `--socket`; else `MCODE_SOCKET`, else the place that `dirs` gives.
    pub socket: Option<PathBuf>,
    /// Start a daemon when none answers.
    pub autostart: bool,
    /// Where mcode keeps its files.
    pub dirs: Dirs,
    /// How a daemon is started.
    pub start: StartOptions,
}

/// A connection to the daemon. Cloning is cheap; all clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ConnectOptions,
    socket: SocketPath,
    // Held only to copy the channel out or in.
    channel: Mutex<Channel>,
}

impl Client {
    /// Connects, starting the daemon when that is allowed and none answers.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Daemon`] or [`ErrorKind::Config`], with what to do about it.
    pub async fn connect(options: ConnectOptions) -> Result<Self, ClientError> {
        let socket = SocketPath::resolve(options.socket.as_deref(), &options.dirs)?;
        let channel = open(&socket, &options).await?;
        Ok(Self { shared: Arc::new(Shared { options, socket, channel: Mutex::new(channel) }) })
    }

    /// The socket this client talks to.
    #[must_use]
    pub fn socket(&self) -> &SocketPath {
        &self.shared.socket
    }

    /// The channel, for services that have no method here.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.shared.channel.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the connection anew, with a new daemon if need be.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn reconnect(&self) -> Result<(), ClientError> {
        let channel = open(&self.shared.socket, &self.shared.options).await?;
        *self.shared.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
        Ok(())
    }

    /// Asks the daemon for its version and checks that it can work with this client.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Daemon`] when it can not be asked or is not compatible.
    pub async fn handshake(&self) -> Result<v1::GetInfoResponse, ClientError> {
        let info = self.get_info(v1::GetInfoRequest {}).await?;
        check_compatible(&info)?;
        Ok(info)
    }

    /// Makes a unary call with a deadline; when the connection breaks it is made anew, so `request` must be harmless
    /// to repeat (a read, or with a request id).
    pub(crate) async fn unary<Q, A, F, C>(
        &self,
        name: &str,
        deadline: Duration,
        request: Q,
        call: C,
    ) -> Result<A, ClientError>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
        C: Fn(Channel, Request<Q>) -> F,
    {
        let mut tries = 0;
        loop {
            let mut message = Request::new(request.clone());
            message.set_timeout(deadline);
            let error = match tokio::time::timeout(deadline, call(self.channel(), message)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => ClientError::from(status),
                Err(_) => return Err(ClientError::deadline(name, deadline.as_secs())),
            };
            if !error.retryable || tries == RETRIES {
                return Err(error);
            }
            tries += 1;
            // A daemon without autostart that is gone stays gone: the reason of the connection is the better one.
            self.reconnect().await?;
        }
    }
}

async fn open(socket: &SocketPath, options: &ConnectOptions) -> Result<Channel, ClientError> {
    if options.autostart {
        Ok(mcode_endpoint::connect_or_start(socket, &options.dirs, &options.start).await?)
    } else {
        Ok(mcode_endpoint::connect(socket).await?)
    }
}

fn check_compatible(info: &v1::GetInfoResponse) -> Result<(), ClientError> {
    if info.api_compatible <= API_LEVEL {
        return Ok(());
    }
    let message = format!(
        "the daemon (version {}) works with clients of API level {} and later, but this one has level {API_LEVEL}",
        info.version, info.api_compatible
    );
    Err(ClientError::new(ErrorKind::Daemon, "DAEMON_INCOMPATIBLE", message)
        .hint("use the mcode that belongs to the daemon, or end the daemon with: mcode daemon restart"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_wants_newer_clients_is_refused() {
        let info = |api_compatible| v1::GetInfoResponse { version: "9".into(), api_compatible, ..Default::default() };
        assert!(check_compatible(&info(API_LEVEL)).is_ok());
        let error = check_compatible(&info(API_LEVEL + 1)).unwrap_err();
        assert_eq!((error.exit_code(), error.reason.as_str()), (6, "DAEMON_INCOMPATIBLE"));
    }

    #[tokio::test]
    async fn without_autostart_a_missing_daemon_is_named_by_its_socket() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s");
        let options = ConnectOptions {
            socket: Some(socket.clone()),
            autostart: false,
            dirs: Dirs::under(home.path()),
            start: StartOptions::default(),
        };
        let error = Client::connect(options).await.unwrap_err();
        assert_eq!((error.exit_code(), error.reason.as_str()), (6, "DAEMON_UNREACHABLE"));
        assert!(error.message.contains(&socket.display().to_string()), "{}", error.message);
        assert!(error.hint.is_some());
    }
}
