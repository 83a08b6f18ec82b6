//! The way to the network for commands that have none: a proxy on a Unix socket that reaches the hosts of `[sandbox]
//! hosts` and no others. It speaks HTTP (`CONNECT` and whole addresses) and SOCKS 5.
//!
//! A command reaches it by the loopback of its own network namespace (see [`relay`]). Names are judged as text, resolved
//! here, once, and the address that was judged is the one that is connected to.

mod hosts;
mod http;
#[cfg(target_os = "linux")]
pub(crate) mod relay;
mod socks;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use hosts::{Host, Verdict, is_public, judge};

/// Most connections at the same time; more wait.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to say what it wants.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// How long a host may take to be found and to answer.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);
/// Most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Gives the rules as they now are.
pub type CurrentHosts = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Why a client does not get to a host.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The rules do not allow it.
    NotAllowed(String),
    /// It can not be had.
    Unreachable(String, io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed(host) => write!(f, "the host {host:?} is not among those of [sandbox] hosts"),
            Self::Unreachable(host, error) => write!(f, "the host {host:?} can not be reached: {error}"),
        }
    }
}

/// A proxy at work; ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    socket: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Listens on a Unix socket, which must not be there yet.
    ///
    /// # Errors
    /// When the socket can not be made.
    pub fn listen(socket: &Path, hosts: CurrentHosts) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        Ok(Self { socket: socket.to_path_buf(), task: tokio::spawn(serve(listener, hosts)) })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        std::fs::remove_file(&self.socket).ok();
    }
}

async fn serve(listener: UnixListener, hosts: CurrentHosts) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut clients = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the proxy of sandboxed commands could not take a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let hosts = Arc::clone(&hosts);
        clients.spawn(async move {
            if let Err(error) = attend(stream, &hosts).await {
                tracing::debug!(%error, "a connection through the proxy ended");
            }
            drop(place);
        });
        while clients.try_join_next().is_some() {}
    }
}

/// One client from its first byte to its last.
async fn attend(mut stream: UnixStream, hosts: &CurrentHosts) -> io::Result<()> {
    let Some((host, port, first, answered)) = timeout(HEAD_TIME_MAX, wanted(&mut stream)).await?? else {
        return Ok(());
    };
    let reached = reach(&host, port, &hosts()).await;
    match &reached {
        Ok(_) => tracing::debug!(host, port, "a sandboxed command reaches a host"),
        Err(refusal) => tracing::info!(%refusal, "a sandboxed command was refused a host"),
    }
    match answered {
        Spoken::Socks => socks::answer(&mut stream, reached.as_ref().err()).await?,
        Spoken::Tunnel => http::answer(&mut stream, reached.as_ref().err()).await?,
        Spoken::Plain if reached.is_err() => http::answer(&mut stream, reached.as_ref().err()).await?,
        Spoken::Plain => {}
    }
    let Ok(mut upstream) = reached else { return Ok(()) };
    upstream.write_all(&first).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
}

/// How a client spoke.
enum Spoken {
    Socks,
    Tunnel,
    Plain,
}

async fn wanted<S>(stream: &mut S) -> io::Result<Option<(String, u16, Vec<u8>, Spoken)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut first = [0];
    if stream.read(&mut first).await? == 0 {
        return Ok(None);
    }
    if first == [socks::VERSION] {
        let (host, port) = socks::wanted(stream).await?;
        return Ok(Some((host, port, Vec::new(), Spoken::Socks)));
    }
    match http::wanted(stream, first[0]).await {
        Ok(wanted) => {
            let spoken = if wanted.tunnel { Spoken::Tunnel } else { Spoken::Plain };
            Ok(Some((wanted.host, wanted.port, wanted.first, spoken)))
        }
        Err(error) => {
            http::answer_nonsense(stream).await?;
            Err(error)
        }
    }
}

/// A connection to a host, if the rules allow it.
async fn reach(host: &str, port: u16, rules: &[String]) -> Result<TcpStream, Refusal> {
    let refused = || Refusal::NotAllowed(host.to_owned());
    let parsed = Host::parse(host).ok_or_else(refused)?;
    let verdict = judge(rules, &parsed);
    if verdict == Verdict::Refused {
        return Err(refused());
    }
    let unreachable = |error: io::Error| Refusal::Unreachable(host.to_owned(), error);
    let connected = async {
        let mut addresses: Vec<SocketAddr> = match parsed {
            Host::Address(address) => vec![(address, port).into()],
            Host::Name(name) => lookup_host((name, port)).await.map_err(unreachable)?.take(ADDRESSES_MAX).collect(),
        };
        addresses.retain(|address| verdict == Verdict::Allowed || is_public(address.ip()));
        if addresses.is_empty() {
            return Err(refused());
        }
        TcpStream::connect(addresses.as_slice()).await.map_err(unreachable)
    };
    timeout(CONNECT_TIME_MAX, connected).await.unwrap_or_else(|_| Err(unreachable(io::ErrorKind::TimedOut.into())))
}
