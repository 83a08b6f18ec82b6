//! Frames between daemon and host: one byte of kind, four of length, then the body.

use std::io;

use serde::{Deserialize, Serialize};

use super::progress::{HostedSpec, Progress};
use super::tree::Tree;

/// Longest body; a command, its environment and its policy fit in.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes before the body.
const HEADER_BYTES: usize = 5;

const SPEC: u8 = b'S';
const INPUT: u8 = b'I';
const INPUT_END: u8 = b'C';
const END: u8 = b'E';
const BACKGROUND: u8 = b'B';
const TREE: u8 = b'T';
const PROGRESS: u8 = b'P';
const REFUSED: u8 = b'R';

/// What the daemon asks of a host.
#[derive(Debug)]
pub enum Order {
    /// Run this. The first order, and only once.
    Run(Box<HostedSpec>),
    /// Give the command these bytes.
    Input(Vec<u8>),
    /// Close its input once it has taken what waits.
    InputEnd,
    /// End it with everything it started, and why.
    End(String),
    /// It outlives its call from now on.
    Background,
}

/// Why a host did not run what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The program is not there or may not be run: the system's error number, or its words.
    Start(Option<i32>, String),
    /// The policy could not be made ready.
    Policy(Option<i32>, String),
    /// The folder to run in is not there.
    NoSuchFolder,
    /// The host itself could not be set up.
    Host(String),
}

/// What a host tells.
#[derive(Debug)]
pub enum Report {
    /// It runs, or has run: the first report to whoever connects.
    Tree(Tree),
    /// Where the command stands.
    Progress(Progress),
    /// It was not run.
    Refused(Refusal),
}

impl Order {
    /// The frame.
    ///
    /// # Errors
    /// When a path is not text, or the whole is too long.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Run(spec) => frame(SPEC, &serde_json::to_vec(spec)?),
            Self::Input(bytes) => frame(INPUT, bytes),
            Self::InputEnd => frame(INPUT_END, b""),
            Self::End(why) => frame(END, why.as_bytes()),
            Self::Background => frame(BACKGROUND, b""),
        }
    }

    fn decode(kind: u8, body: &[u8]) -> io::Result<Self> {
        Ok(match kind {
            SPEC => Self::Run(Box::new(serde_json::from_slice(body)?)),
            INPUT => Self::Input(body.to_vec()),
            INPUT_END => Self::InputEnd,
            END => Self::End(String::from_utf8_lossy(body).into_owned()),
            BACKGROUND => Self::Background,
            other => return Err(unknown(other)),
        })
    }
}

impl Report {
    /// The frame.
    ///
    /// # Errors
    /// When it is too long.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Tree(tree) => frame(TREE, &serde_json::to_vec(tree)?),
            Self::Progress(progress) => frame(PROGRESS, &serde_json::to_vec(progress)?),
            Self::Refused(refusal) => frame(REFUSED, &serde_json::to_vec(refusal)?),
        }
    }

    fn decode(kind: u8, body: &[u8]) -> io::Result<Self> {
        Ok(match kind {
            TREE => Self::Tree(serde_json::from_slice(body)?),
            PROGRESS => Self::Progress(serde_json::from_slice(body)?),
            REFUSED => Self::Refused(serde_json::from_slice(body)?),
            other => return Err(unknown(other)),
        })
    }
}

fn frame(kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= FRAME_BYTES_MAX).ok_or_else(too_long)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message has more than {FRAME_BYTES_MAX} bytes"))
}

fn unknown(kind: u8) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of the unknown kind {kind}"))
}

/// Bytes that came in, until they make frames.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next order, if all of it is there.
    ///
    /// # Errors
    /// When the bytes are no order.
    pub fn order(&mut self) -> io::Result<Option<Order>> {
        self.next(Order::decode)
    }

    /// The next report, if all of it is there.
    ///
    /// # Errors
    /// When the bytes are no report.
    pub fn report(&mut self) -> io::Result<Option<Report>> {
        self.next(Report::decode)
    }

    fn next<T>(&mut self, decode: impl Fn(u8, &[u8]) -> io::Result<T>) -> io::Result<Option<T>> {
        let [kind, a, b, c, d, ..] = *self.bytes.as_slice() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            return Err(too_long());
        }
        let end = HEADER_BYTES + length;
        let Some(body) = self.bytes.get(HEADER_BYTES..end) else { return Ok(None) };
        let decoded = decode(kind, body)?;
        self.bytes.drain(..end);
        Ok(Some(decoded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let orders = [Order::Input(vec![0, 255, 7]), Order::InputEnd, Order::End("so".into()), Order::Background];
        let bytes: Vec<u8> = orders.iter().flat_map(|order| order.encode().unwrap()).collect();
        let mut incoming = Incoming::default();
        let mut got = Vec::new();
        for byte in bytes {
            incoming.push(&[byte]);
            while let Some(order) = incoming.order().unwrap() {
                got.push(format!("{order:?}"));
            }
        }
        assert_eq!(got, orders.iter().map(|order| format!("{order:?}")).collect::<Vec<_>>());
    }

    #[test]
    fn nonsense_is_an_error_and_a_giant_is_refused_before_it_is_held() {
        let mut incoming = Incoming::default();
        incoming.push(b"?\0\0\0\0");
        assert!(incoming.order().is_err());
        let mut incoming = Incoming::default();
        incoming.push(&[b'I', 255, 255, 255, 255]);
        assert!(incoming.order().is_err());
    }
}
