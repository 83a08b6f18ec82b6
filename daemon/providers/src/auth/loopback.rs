//! The listener that a browser comes back to: on this machine only, for one answer, bounded in time, size and number.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::codes::Answer;
use super::data::Redirect;

/// How long one connection may take to say what it wants.
const REQUEST_WAIT: Duration = Duration::from_secs(10);
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Connections at a time; browsers open some that they do not use.
const CONNECTIONS_MAX: usize = 16;

/// Listens for the browser.
#[derive(Debug)]
pub(crate) struct Loopback {
    listener: TcpListener,
    path: String,
    /// What the browser is told to come back to.
    pub(crate) redirect_uri: String,
}

impl Loopback {
    /// Listens at the first free port of those that the issuer knows, or at any.
    ///
    /// # Errors
    /// When none of them is free.
    pub(crate) async fn bind(redirect: &Redirect) -> io::Result<Self> {
        let ports = if redirect.ports.is_empty() { &[0][..] } else { &redirect.ports };
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for port in ports {
            match TcpListener::bind((listens_at(&redirect.host), *port)).await {
                Ok(listener) => {
                    let port = listener.local_addr()?.port();
                    return Ok(Self { listener, path: redirect.path.clone(), redirect_uri: uri(redirect, port) });
                }
                Err(error) => last = error,
            }
        }
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        Err(io::Error::new(last.kind(), format!("port {} of this machine is not free: {last}", ports.join(" and "))))
    }

    /// The answer to the login with this state; whatever else comes is sent away and does not end it.
    pub(crate) async fn answer(&self, state: &str) -> Answer {
        let mut open: JoinSet<Option<Answer>> = JoinSet::new();
        loop {
            tokio::select! {
                Some(done) = open.join_next(), if !open.is_empty() => {
                    if let Ok(Some(answer)) = done {
                        return answer;
                    }
                }
                accepted = self.listener.accept(), if open.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => {
                        let (path, state) = (self.path.clone(), state.to_owned());
                        open.spawn(async move {
                            tokio::time::timeout(REQUEST_WAIT, serve(stream, &path, &state)).await.ok().flatten()
                        });
                    }
                    // Out of files: what is open may end.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }
}

/// Where a browser arrives that is sent to this host: an address of this machine is taken as it is, names lead to the usual
/// one.
fn listens_at(host: &str) -> IpAddr {
    let address = host.trim_matches(['[', ']']).parse().ok().filter(IpAddr::is_loopback);
    address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// What the browser is told to come back to when nothing listens, for codes that are pasted.
pub(crate) fn uri(redirect: &Redirect, port: u16) -> String {
    let host = if redirect.host.contains(':') {
        format!("[{}]", redirect.host.trim_matches(['[', ']']))
    } else {
        redirect.host.clone()
    };
    // Issuers look at the path alone where the port may be any (RFC 8252, section 7.3).
    let port = if port == 0 { String::new() } else { format!(":{port}") };
    format!("http://{host}{port}{}", redirect.path)
}

/// Answers one connection; gives what it said if that is meant for this login.
async fn serve(mut stream: TcpStream, path: &str, state: &str) -> Option<Answer> {
    let target = target(&mut stream).await?;
    let (asked, query) = target.split_once('?').unwrap_or((&target, ""));
    let answer = (asked == path).then(|| Answer::of_query(query)).flatten();
    let (status, text, answer) = match answer {
        None if asked == path => ("400 Bad Request", "This address holds no answer to a login.", None),
        None => ("404 Not Found", "There is nothing here.", None),
        Some(answer) if answer.state() != Some(state) => (
            "400 Bad Request",
            "This answer belongs to another login. Go back to the terminal and open the address that it shows now.",
            None,
        ),
        Some(answer @ Answer::Code { .. }) => {
            ("200 OK", "Thank you. You can close this page and go back to the terminal.", Some(answer))
        }
        Some(answer @ Answer::Refused { .. }) => {
            ("200 OK", "The login was refused. You can close this page; the terminal says more.", Some(answer))
        }
    };
    let page = format!("<!doctype html><meta charset=utf-8><title>mcode</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n\r\n",
        page.len()
    );
    // A browser that does not read our page has given its answer all the same.
    let _gone = stream.write_all(format!("{head}{page}").as_bytes()).await;
    let _gone = stream.shutdown().await;
    answer
}

/// The target of a GET request.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0u8; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&piece[..read]);
        if head.len() > HEAD_BYTES_MAX {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next().map(str::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use mcode_models::Secret;

    use super::*;

    fn redirect(ports: Vec<u16>) -> Redirect {
        Redirect { host: "localhost".into(), ports, path: "/cb".into() }
    }

    async fn get(port: u16, head: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        // The listener may hang up before it has read all of a head that is too large.
        let _hung_up = stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await;
        let mut text = String::new();
        let _cut = stream.read_to_string(&mut text).await;
        text
    }

    fn port(loopback: &Loopback) -> u16 {
        loopback.listener.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn only_the_answer_of_this_login_ends_the_wait() {
        let loopback = Loopback::bind(&redirect(Vec::new())).await.unwrap();
        let port = port(&loopback);
        assert_eq!(loopback.redirect_uri, format!("http://localhost:{port}/cb"));
        let asking = async {
            // One that never says anything holds nobody up.
            let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            for (head, status) in [
                ("GET /favicon.ico HTTP/1.1", "404"),
                ("GET /cb HTTP/1.1", "400"),
                ("GET /cb?code=c&state=other HTTP/1.1", "400"),
                ("GET /cb?code=c HTTP/1.1", "400"),
                ("POST /cb?code=c&state=s HTTP/1.1", ""),
            ] {
                let answer = get(port, head).await;
                assert!(answer.contains(status), "{head}: {answer}");
                assert!(answer.is_empty() == status.is_empty(), "{head}: {answer}");
            }
            assert_eq!(get(port, &format!("GET /{} HTTP/1.1", "x".repeat(HEAD_BYTES_MAX))).await, "");
            let page = get(port, "GET /cb?code=c&state=s HTTP/1.1\r\nHost: localhost").await;
            assert!(page.contains("200 OK") && page.contains("close this page"), "{page}");
            drop(silent);
        };
        let (answer, ()) = tokio::join!(loopback.answer("s"), asking);
        assert_eq!(answer, Answer::Code { code: Secret::new("c"), state: Some("s".into()) });
        drop(loopback);
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err(), "it is closed after use");
    }

    #[test]
    fn it_listens_where_the_browser_is_sent() {
        for (host, address) in [
            ("localhost", "127.0.0.1"),
            ("mcode.localhost", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.2", "127.0.0.2"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            // Never others than this machine.
            ("0.0.0.0", "127.0.0.1"),
            ("192.0.2.1", "127.0.0.1"),
        ] {
            assert_eq!(listens_at(host).to_string(), address, "{host}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_of_ones_own_is_listened_at() {
        let there = Redirect { host: "127.0.0.2".into(), ..redirect(Vec::new()) };
        let loopback = Loopback::bind(&there).await.unwrap();
        let address = loopback.listener.local_addr().unwrap();
        assert_eq!(loopback.redirect_uri, format!("http://{address}/cb"));
        assert!(address.to_string().starts_with("127.0.0.2:"));
    }

    #[tokio::test]
    async fn the_second_port_is_taken_when_the_first_is_not_free() {
        let (first, second) =
            (Loopback::bind(&redirect(Vec::new())).await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let free = second.local_addr().unwrap().port();
        drop(second);
        let both = redirect(vec![port(&first), free]);
        let loopback = Loopback::bind(&both).await.unwrap();
        assert_eq!(port(&loopback), free);
        let error = Loopback::bind(&both).await.unwrap_err();
        assert!(error.to_string().contains(&format!("port {} and {free}", port(&first))), "{error}");
    }
}
