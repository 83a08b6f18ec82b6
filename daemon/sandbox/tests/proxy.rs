//! The proxy, and commands that have nothing else.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcode_sandbox::proxy::Proxy;
use mcode_sandbox::{CommandSpec, LocalRunner, Network, Policy, Strength, self_test};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

const TIME_MAX: Duration = Duration::from_secs(20);

/// A proxy for these hosts.
fn proxy(folder: &Path, hosts: &[&str]) -> Proxy {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    Proxy::listen(&folder.join("proxy"), Arc::new(move || hosts.clone())).unwrap()
}

/// Says something to the proxy, and gives what it answers, up to its end or `most` bytes.
async fn say(proxy: &Proxy, words: &[u8], most: usize) -> Vec<u8> {
    let mut stream = UnixStream::connect(proxy.socket()).await.unwrap();
    stream.write_all(words).await.unwrap();
    let mut answer = vec![0; most];
    let mut length = 0;
    let read = async {
        while length < most {
            match stream.read(&mut answer[length..]).await {
                Ok(0) | Err(_) => break,
                Ok(count) => length += count,
            }
        }
    };
    tokio::time::timeout(TIME_MAX, read).await.unwrap();
    answer.truncate(length);
    answer
}

/// `CONNECT` to this host: the status.
async fn connect(proxy: &Proxy, host: &str) -> String {
    let mut words = b"CONNECT ".to_vec();
    words.extend_from_slice(host.as_bytes());
    words.extend_from_slice(b":443 HTTP/1.1\r\n\r\n");
    String::from_utf8_lossy(&say(proxy, &words, 12).await).into_owned()
}

/// SOCKS 5 to this host: the code of the reply.
async fn socks(proxy: &Proxy, host: &[u8], port: u16) -> Option<u8> {
    let mut words = vec![5, 1, 0, 5, 1, 0, 3, u8::try_from(host.len()).unwrap()];
    words.extend_from_slice(host);
    words.extend_from_slice(&port.to_be_bytes());
    say(proxy, &words, 12).await.get(3).copied()
}

/// D18: hosts that are not what they seem.
#[tokio::test]
async fn hosts_that_only_look_allowed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(folder.path(), &["*.ok.test"]);
    for host in ["evil.test\0.ok.test", "evil.test#.ok.test", "ok.test.evil.test", "EVIL.TEST:80@ok.test"] {
        let status = connect(&proxy, host).await;
        assert!(status.ends_with("403") || status.ends_with("400"), "{host:?}: {status}");
        assert_eq!(socks(&proxy, host.as_bytes(), 443).await, Some(2), "{host:?}");
        let whole = format!("GET http://{host}/ HTTP/1.1\r\n\r\n");
        let status = String::from_utf8_lossy(&say(&proxy, whole.as_bytes(), 12).await).into_owned();
        assert!(status.ends_with("403") || status.ends_with("400"), "{host:?}: {status}");
    }
    // Allowed, but nobody knows the name: that is another answer.
    assert!(connect(&proxy, "a.ok.test").await.ends_with("502"));
    assert_eq!(socks(&proxy, b"a.ok.test", 443).await, Some(4));
}

#[tokio::test]
async fn an_allowed_host_is_reached_and_the_host_field_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let mut heads = Vec::new();
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            heads.push(String::from_utf8_lossy(&buffer[..count]).into_owned());
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await.unwrap();
        }
        heads
    });
    let proxy = proxy(folder.path(), &["127.0.0.1"]);
    let whole = format!("GET http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: evil.test\r\n\r\n");
    assert!(say(&proxy, whole.as_bytes(), 1000).await.ends_with(b"hello"));
    let tunnel = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET /y HTTP/1.0\r\n\r\n");
    assert!(say(&proxy, tunnel.as_bytes(), 1000).await.ends_with(b"hello"));
    let mut words = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    words.extend_from_slice(&port.to_be_bytes());
    words.extend_from_slice(b"GET /z HTTP/1.0\r\n\r\n");
    assert!(say(&proxy, &words, 1000).await.ends_with(b"hello"));
    let heads = served.await.unwrap();
    assert!(heads[0].starts_with(&format!("GET /x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n")), "{heads:?}");
    assert!(heads[1].starts_with("GET /y") && heads[2].starts_with("GET /z"), "{heads:?}");
    assert!(connect(&proxy, "localhost").await.ends_with("403"));
}

#[tokio::test]
async fn nonsense_is_answered_or_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(folder.path(), &["*"]);
    for words in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\0\0\0\0",
        b"CONNECT a HTTP/1.1\r\n\r\n",
        b"CONNECT a:99999 HTTP/1.1\r\n\r\n",
    ] {
        assert!(say(&proxy, words, 12).await.ends_with(b"400"), "{words:?}");
    }
    // A login is not offered, other commands are not known, and the internet is not this machine.
    assert_eq!(say(&proxy, &[5, 1, 2], 2).await, [5, 0xFF]);
    assert_eq!(say(&proxy, &[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80], 12).await[3], 7);
    assert!(
        connect(&proxy, "localhost").await.ends_with("403")
            && connect(&proxy, "169.254.169.254").await.ends_with("403")
    );
    assert!(say(&proxy, &vec![b'a'; 100_000], 12).await.len() <= 12);
}

/// Runs a command that has only the proxy.
async fn run(root: &Path, proxy: &Proxy, script: &str) -> String {
    let policy = Policy {
        write: vec![root.join("w")],
        network: Network::Proxy(proxy.socket().to_path_buf()),
        temp: root.join("w"),
        ..Policy::default()
    };
    let mut env = BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    env.extend(policy.proxy_env().into_iter().map(|(name, value)| (name.to_owned(), value)));
    env.remove("NO_PROXY");
    env.remove("no_proxy");
    let spec = CommandSpec {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        cwd: root.join("w"),
        env,
        stdin: false,
        umask: None,
        policy: Some(Arc::new(policy)),
    };
    let mut child = LocalRunner.spawn(&spec).unwrap_or_else(|error| panic!("{error:?}"));
    let mut output = child.take_output().unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4096]);
    let read = async {
        while let Ok(count @ 1..) = output.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..count]);
        }
        child.wait().await.unwrap();
    };
    tokio::time::timeout(TIME_MAX, read).await.expect("the command did not end");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn python() -> PathBuf {
    let output =
        std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_reaches_the_allowed_host_and_no_other() {
    if !matches!(self_test().await, Strength::Enforced { namespaces: true, .. }) {
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("w")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4096];
            let _ = stream.read(&mut buffer).await.unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.unwrap();
        }
    });
    let proxy = proxy(&root, &["localhost"]);
    let python = python();
    let get = |url: &str| {
        let code = format!("import urllib.request; print(urllib.request.urlopen(\"{url}\", timeout=9).read())");
        format!("{} -c '{code}' 2>&1", python.display())
    };
    let reached = run(&root, &proxy, &get(&format!("http://localhost:{port}/"))).await;
    assert!(reached.contains("hello"), "{reached}");
    let refused = run(&root, &proxy, &get(&format!("http://127.0.0.1:{port}/"))).await;
    assert!(refused.contains("403"), "{refused}");
    let past =
        run(&root, &proxy, &format!("unset http_proxy HTTP_PROXY; {}", get(&format!("http://localhost:{port}/"))))
            .await;
    assert!(!past.contains("hello"), "{past}");
    // By the Unix socket itself it is the same proxy.
    let raw = format!(
        "{} -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{}\"); \
         s.send(b\"GET http://localhost:{port}/ HTTP/1.0\\r\\n\\r\\n\"); print(s.recv(99))'",
        python.display(),
        proxy.socket().display()
    );
    assert!(run(&root, &proxy, &raw).await.contains("200 OK"));
    served.await.unwrap();
}
