//! From the loopback of a command's own network to the proxy's Unix socket.
//!
//! A socket belongs to the network in which it was made. So the command's process makes a listener before it becomes the
//! command, and hands it to the process that started it, which is outside and carries what comes to the proxy.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Most connections of one command at the same time; more wait.
const CONNECTIONS_MAX: usize = 64;

/// Carries connections until dropped.
#[derive(Debug)]
pub(crate) struct Relay(JoinHandle<()>);

impl Relay {
    /// Carries what comes to `listener` to the Unix socket.
    pub(crate) fn begin(listener: OwnedFd, proxy: PathBuf) -> io::Result<Self> {
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Self(tokio::spawn(carry(listener, proxy))))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn carry(listener: tokio::net::TcpListener, proxy: PathBuf) {
    let (places, proxy) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(proxy));
    let mut carried = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((mut near, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let proxy = Arc::clone(&proxy);
        carried.spawn(async move {
            let both =
                async { tokio::io::copy_bidirectional(&mut near, &mut UnixStream::connect(&*proxy).await?).await };
            if let Err(error) = both.await {
                tracing::debug!(%error, "a connection of a sandboxed command ended");
            }
            drop(place);
        });
        while carried.try_join_next().is_some() {}
    }
}
