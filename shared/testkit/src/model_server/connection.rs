//! HTTP/1.1 by hand: reading one request, writing one reply, with control over every byte.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::reply::Delivery;

/// Largest request head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Largest request body: more than any provider takes.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One request as it came.
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// A connection and what was read beyond the last request.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it; the connection may serve another request.
    Whole,
    /// As much as the script wanted; the connection is to be closed.
    Cut,
    /// The client left before the end.
    ClientLeft,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.buffer).await
    }

    /// The next request; `None` when the client closed the connection between two requests.
    pub(super) async fn request(&mut self) -> io::Result<Option<Head>> {
        let head_end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(broken("request head too large"));
            }
            if self.fill().await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(broken("request head cut")) };
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        self.buffer.drain(..head_end + 4);
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let method = first.next().unwrap_or_default().to_owned();
        let target = first.next().unwrap_or_default().to_owned();
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        if headers.get("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let chunked = headers.get("transfer-encoding").is_some_and(|value| value.contains("chunked"));
        let body = if chunked {
            self.chunked_body().await?
        } else {
            let length = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            self.take(length).await?
        };
        Ok(Some(Head { method, target, headers, body }))
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_BYTES_MAX {
            return Err(broken("request body too large"));
        }
        while self.buffer.len() < length {
            if self.fill().await? == 0 {
                return Err(broken("request body cut"));
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..at]).into_owned();
                self.buffer.drain(..at + 2);
                return Ok(line);
            }
            if self.buffer.len() > HEAD_BYTES_MAX || self.fill().await? == 0 {
                return Err(broken("request body cut"));
            }
        }
    }

    async fn chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| broken("chunk size"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            if body.len() + size > BODY_BYTES_MAX {
                return Err(broken("request body too large"));
            }
            body.extend(self.take(size).await?);
            self.line().await?;
        }
    }

    /// A reply with a known length.
    pub(super) async fn send_whole(
        &mut self,
        code: u16,
        headers: &BTreeMap<String, String>,
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {code} {}\r\ncontent-length: {}\r\n", reason(code), body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes).await
    }

    /// Waits, but no longer than the client does. `false` = it left.
    pub(super) async fn pause(&mut self, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        let deadline = tokio::time::Instant::now() + time;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return true,
                read = self.stream.read_buf(&mut self.buffer) => {
                    if !matches!(read, Ok(bytes) if bytes > 0) {
                        return false;
                    }
                }
            }
        }
    }

    async fn until_the_client_leaves(&mut self) {
        while matches!(self.stream.read_buf(&mut self.buffer).await, Ok(bytes) if bytes > 0) {}
    }

    /// An event stream, chunked, delivered as the script wants it.
    pub(super) async fn send_stream(
        &mut self,
        content_type: &str,
        headers: &BTreeMap<String, String>,
        body: &[u8],
        delivery: &Delivery,
    ) -> Sent {
        let mut head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n"
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let stop = delivery.stall_after.into_iter().chain(delivery.cut_after).min();
        let whole = stop.is_none_or(|stop| stop >= body.len()) && delivery.stall_after.is_none();
        let part = &body[..stop.unwrap_or(body.len()).min(body.len())];
        let mut out = head.into_bytes();
        if delivery.split.is_none() {
            push_chunk(&mut out, part);
            if whole && delivery.cut_after.is_none() {
                out.extend_from_slice(b"0\r\n\r\n");
            }
            if self.stream.write_all(&out).await.is_err() {
                return Sent::ClientLeft;
            }
        } else {
            if self.stream.write_all(&out).await.is_err() {
                return Sent::ClientLeft;
            }
            if let Some(sent) = self.send_pieces(part, delivery).await {
                return sent;
            }
            if whole && delivery.cut_after.is_none() && self.stream.write_all(b"0\r\n\r\n").await.is_err() {
                return Sent::ClientLeft;
            }
        }
        if delivery.stall_after.is_some() {
            self.until_the_client_leaves().await;
            return Sent::ClientLeft;
        }
        if delivery.cut_after.is_some() { Sent::Cut } else { Sent::Whole }
    }

    async fn send_pieces(&mut self, body: &[u8], delivery: &Delivery) -> Option<Sent> {
        for piece in body.chunks(delivery.split.unwrap_or(body.len()).max(1)) {
            let mut out = Vec::with_capacity(piece.len() + 16);
            push_chunk(&mut out, piece);
            if self.stream.write_all(&out).await.is_err() || !self.pause(delivery.delay).await {
                return Some(Sent::ClientLeft);
            }
        }
        None
    }
}

fn push_chunk(out: &mut Vec<u8>, piece: &[u8]) {
    // An empty chunk would end the body.
    if piece.is_empty() {
        return;
    }
    out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
    out.extend_from_slice(piece);
    out.extend_from_slice(b"\r\n");
}

fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Scripted",
    }
}
