//! HTTP proxying: `CONNECT host:port`, and requests with a whole `http://` address.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Refusal;

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Most header fields.
const FIELDS_MAX: usize = 128;
/// The port of plain HTTP.
const PORT: u16 = 80;

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The host as it was written.
    pub(super) host: String,
    pub(super) port: u16,
    /// What the host is to be sent first: nothing of a tunnel, else the head of the request made its own, and what was
    /// read beyond it.
    pub(super) first: Vec<u8>,
    /// Whether the client waits for a word before it goes on.
    pub(super) tunnel: bool,
}

/// Reads the head of a request; `begun` was read already.
pub(super) async fn wanted<S: AsyncRead + Unpin>(stream: &mut S, begun: u8) -> io::Result<Wanted> {
    let mut bytes = vec![begun];
    let mut chunk = [0; 4096];
    loop {
        if let Some(wanted) = parse(&bytes)? {
            return Ok(wanted);
        }
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(bad("the head of the request is too long"));
        }
        match stream.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
    }
}

/// `None` when the head is not whole yet.
fn parse(bytes: &[u8]) -> io::Result<Option<Wanted>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes).map_err(|error| bad(&error.to_string()))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(bad("no request line"));
    };
    let rest = bytes.get(length..).unwrap_or_default();
    if method.eq_ignore_ascii_case("CONNECT") {
        let (host, port) = authority(target, None)?;
        return Ok(Some(Wanted { host, port, first: rest.to_vec(), tunnel: true }));
    }
    let whole = target.strip_prefix("http://").ok_or_else(|| bad("neither CONNECT nor an http:// address"))?;
    let end = whole.find(['/', '?', '#']).unwrap_or(whole.len());
    let (named, path) = whole.split_at(end);
    let (host, port) = authority(named, Some(PORT))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // The host is that of the address, whatever the client wrote beside it; one request a connection.
    let mut first = format!("{method} {path} HTTP/1.{minor}\r\nHost: {named}\r\nConnection: close\r\n").into_bytes();
    for field in request.headers.iter().filter(|field| passed_on(field.name)) {
        first.extend_from_slice(field.name.as_bytes());
        first.extend_from_slice(b": ");
        first.extend_from_slice(field.value);
        first.extend_from_slice(b"\r\n");
    }
    first.extend_from_slice(b"\r\n");
    first.extend_from_slice(rest);
    Ok(Some(Wanted { host, port, first, tunnel: false }))
}

/// Whether a header field is for the host and not for the proxy.
fn passed_on(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !name.starts_with("proxy-") && !matches!(name.as_str(), "host" | "connection" | "keep-alive" | "te" | "upgrade")
}

/// `host:port`; the host may be an IPv6 address in brackets. Who it is, is judged later.
fn authority(text: &str, default: Option<u16>) -> io::Result<(String, u16)> {
    let split = text.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let (host, port) = match (split, default) {
        (Some((host, port)), _) => (host, port.parse().map_err(|_| bad("the port is no number"))?),
        (None, Some(port)) => (text, port),
        (None, None) => return Err(bad("the port is missing")),
    };
    Ok((host.to_owned(), port))
}

/// Tells the client that its tunnel is there, or why it can not be reached.
pub(super) async fn answer<S: AsyncWrite + Unpin>(stream: &mut S, refusal: Option<&Refusal>) -> io::Result<()> {
    let Some(refusal) = refusal else {
        return stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
    };
    let status = match refusal {
        Refusal::NotAllowed(_) => "403 Forbidden",
        Refusal::Unreachable(..) => "502 Bad Gateway",
    };
    let body = format!("mcode: {refusal}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// Tells the client that its request can not be read.
pub(super) async fn answer_nonsense<S: AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_requests() {
        let parsed = |text: &str| parse(text.as_bytes()).unwrap().unwrap();
        let tunnel = parsed("CONNECT a.test:443 HTTP/1.1\r\nHost: other\r\n\r\nmore");
        let wanted = Wanted { host: "a.test".into(), port: 443, first: b"more".to_vec(), tunnel: true };
        assert_eq!(tunnel, wanted);
        assert_eq!(parsed("CONNECT [::1]:443 HTTP/1.1\r\n\r\n").host, "[::1]");
        let plain =
            parsed("GET http://a.test/x?y HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: x\r\nA: b\r\n\r\n");
        assert_eq!((plain.host.as_str(), plain.port), ("a.test", 80));
        let sent = String::from_utf8(plain.first).unwrap();
        assert_eq!(sent, "GET /x?y HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nA: b\r\n\r\n");
        assert!(parse(b"GET http://a.test/ HTTP/1.1\r\n").unwrap().is_none());
        for text in ["CONNECT a.test HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET https://a/ HTTP/1.1\r\n\r\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let userinfo = "GET http://EVIL.TEST:80@ok.test/ HTTP/1.1\r\n\r\n";
        assert!(parse(userinfo.as_bytes()).is_err());
    }
}
