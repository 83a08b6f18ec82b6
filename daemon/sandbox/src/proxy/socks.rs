//! SOCKS 5 (RFC 1928), as far as a client that wants a TCP connection needs it.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Refusal;

/// First byte of everything a client says.
pub(super) const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const NO_METHOD: u8 = 0xFF;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_SUCH_COMMAND: u8 = 7;

/// Reads where a client wants to go, after its first byte: the host as it was written, and the port.
pub(super) async fn wanted<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<(String, u16)> {
    let count = usize::from(stream.read_u8().await?);
    let mut methods = vec![0; count];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_LOGIN) {
        stream.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client wants to log in"));
    }
    stream.write_all(&[VERSION, NO_LOGIN]).await?;
    let command = read_version(stream).await?;
    let _reserved = stream.read_u8().await?;
    let host = match stream.read_u8().await? {
        IPV4 => IpAddr::from(stream.read_u32().await?.to_be_bytes()).to_string(),
        IPV6 => IpAddr::from(stream.read_u128().await?.to_be_bytes()).to_string(),
        NAME => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown kind of address")),
    };
    let port = stream.read_u16().await?;
    if command != CONNECT {
        reply(stream, NO_SUCH_COMMAND).await?;
        return Err(io::Error::new(io::ErrorKind::Unsupported, "only TCP connections are made"));
    }
    Ok((host, port))
}

/// Tells the client that it is connected, or why not.
pub(super) async fn answer<S: AsyncWrite + Unpin>(stream: &mut S, refusal: Option<&Refusal>) -> io::Result<()> {
    let code = match refusal {
        None => SUCCEEDED,
        Some(Refusal::NotAllowed(_)) => NOT_ALLOWED,
        Some(Refusal::Unreachable(..)) => UNREACHABLE,
    };
    reply(stream, code).await
}

async fn read_version<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<u8> {
    if stream.read_u8().await? != VERSION {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not SOCKS 5"));
    }
    stream.read_u8().await
}

/// With the address that nobody looks at: 0.0.0.0:0.
async fn reply<S: AsyncWrite + Unpin>(stream: &mut S, code: u8) -> io::Result<()> {
    stream.write_all(&[VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]).await
}
