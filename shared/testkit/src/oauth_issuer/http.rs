//! As much HTTP as an issuer and a browser need.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long either side may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A request as it came.
pub(super) struct Incoming {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// Reads one request; `None` when the client left.
pub(super) fn read(stream: &mut TcpStream) -> Option<Incoming> {
    stream.set_read_timeout(Some(SILENCE_MAX)).ok()?;
    let mut bytes = Vec::new();
    let mut piece = [0u8; 8192];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut lines = head.split("\r\n");
            let mut first = lines.next()?.split(' ');
            let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let length = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let (path, query) = target.split_once('?').unwrap_or((&target, ""));
                let body = bytes[end + 4..end + 4 + length].to_vec();
                return Some(Incoming { method, path: path.to_owned(), query: query.to_owned(), headers, body });
            }
        }
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&piece[..length]);
    }
}

/// Writes one answer and closes.
pub(super) fn write(stream: &mut TcpStream, status: u16, headers: &str, body: &str) {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n", body.len());
    // Whoever asked may have left.
    stream.write_all(format!("{head}{body}").as_bytes()).ok();
}

/// Gets an address of this machine, as a browser does; head and body of the answer.
///
/// # Panics
/// When nothing answers there.
#[must_use]
pub fn get(url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("not an address of this machine: {url}"));
    let (host, target) =
        rest.split_once('/').map_or((rest, String::from("/")), |(host, path)| (host, format!("/{path}")));
    let mut stream =
        TcpStream::connect(host.replace("localhost", "127.0.0.1")).unwrap_or_else(|error| panic!("{url}: {error}"));
    stream.set_read_timeout(Some(SILENCE_MAX)).expect("a timeout can be set");
    write!(stream, "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
        .expect("the request can be sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap_or_else(|error| panic!("{url}: {error}"));
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}
