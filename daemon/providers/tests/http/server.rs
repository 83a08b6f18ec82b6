//! A tiny HTTP server on 127.0.0.1 that answers each request from a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

/// What the server does with one request.
#[derive(Clone)]
pub enum Act {
    /// Writes this and closes.
    Write(Vec<u8>),
    /// Writes this one byte at a time, then closes.
    Drip(Vec<u8>),
    /// Writes this, then stays silent until the client goes.
    Hang(Vec<u8>),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub head: String,
    pub body: String,
}

pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    open: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers the n-th request with the n-th act, and the later ones with the last.
    pub async fn start(acts: Vec<Act>) -> Self {
        Self::start_with(acts, None).await
    }

    pub async fn start_with(acts: Vec<Act>, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::new(AtomicUsize::new(0));
        let (log, count) = (Arc::clone(&seen), Arc::clone(&open));
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acts, log, count, tls) = (acts.clone(), Arc::clone(&log), Arc::clone(&count), tls.clone());
                tokio::spawn(async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    match tls {
                        None => serve(socket, &acts, &log).await,
                        Some(tls) => {
                            if let Ok(socket) = tls.accept(socket).await {
                                serve(socket, &acts, &log).await;
                            }
                        }
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, seen, open, task }
    }

    pub async fn seen(&self) -> Vec<Seen> {
        self.seen.lock().await.clone()
    }

    /// Waits until no connection is open.
    pub async fn until_closed(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while self.open.load(Ordering::SeqCst) > 0 {
            assert!(tokio::time::Instant::now() < deadline, "a connection is still open");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, acts: &[Act], log: &Mutex<Vec<Seen>>) {
    let Some(request) = read_request(&mut socket).await else { return };
    let number = {
        let mut log = log.lock().await;
        log.push(request);
        log.len() - 1
    };
    match acts[number.min(acts.len() - 1)].clone() {
        Act::Write(bytes) => {
            let _gone = socket.write_all(&bytes).await;
            let _gone = socket.shutdown().await;
        }
        Act::Drip(bytes) => {
            for byte in bytes {
                if socket.write_all(&[byte]).await.is_err() || socket.flush().await.is_err() {
                    return;
                }
            }
            let _gone = socket.shutdown().await;
        }
        Act::Hang(bytes) => {
            let _gone = socket.write_all(&bytes).await;
            let mut rest = [0u8; 64];
            // Ends when the client closes.
            while matches!(socket.read(&mut rest).await, Ok(read) if read > 0) {}
        }
    }
}

async fn read_request<S: AsyncRead + Unpin>(socket: &mut S) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut piece = vec![0u8; 16 * 1024];
    loop {
        let read = socket.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse::<usize>().ok())
            .unwrap_or(0);
        if body.len() >= length {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            return Some(Seen { path, head: head.to_owned(), body: body.to_owned() });
        }
    }
}

/// A response that ends with the connection.
pub fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n{body}").into_bytes()
}

pub fn stream(body: &str) -> Vec<u8> {
    response("200 OK", "content-type: text/event-stream\r\n", body)
}
