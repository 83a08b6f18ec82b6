//! Binding and connecting with real sockets.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use mcode_endpoint::{
    Activated, ConnectError, EndpointError, SocketPath, StartError, StartOptions, bind, connect, connect_or_start,
    health, lock_socket,
};
use mcode_env::Dirs;
use tokio::sync::oneshot;

fn socket(home: &Path) -> SocketPath {
    SocketPath::resolve(Some(&home.join("run/v1/mcoded.sock")), &Dirs::under(home)).unwrap()
}

async fn bind_now(socket: &SocketPath) -> Result<mcode_endpoint::Bound, EndpointError> {
    bind(socket, lock_socket(socket, Duration::ZERO).await?, Activated::default())
}

struct Serving {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

async fn serve(bound: mcode_endpoint::Bound) -> Serving {
    let (incoming, lock) = bound.into_parts().unwrap();
    let (_reporter, service) = tonic_health::server::health_reporter();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let wait = async {
            stopped.await.ok();
        };
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, wait)
            .await
            .unwrap();
        drop(lock);
    });
    Serving { stop, task }
}

#[tokio::test]
async fn a_round_trip_and_modes() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    assert!(matches!(connect(&socket).await, Err(ConnectError::NotRunning(_))));
    let serving = serve(bind_now(&socket).await.unwrap()).await;

    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(socket.address()), 0o600);
    assert_eq!(mode(socket.address().parent().unwrap()), 0o700);
    let channel = connect(&socket).await.unwrap();
    assert!(health(&channel).await.unwrap());

    // A second daemon is turned away at once and harms nothing.
    let error = lock_socket(&socket, Duration::from_secs(30)).await.unwrap_err();
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert!(matches!(error, EndpointError::AlreadyRunning { .. }));
    assert!(health(&connect(&socket).await.unwrap()).await.unwrap());

    drop(channel);
    serving.stop.send(()).unwrap();
    serving.task.await.unwrap();
    assert!(!socket.address().exists());
    assert!(matches!(connect(&socket).await, Err(ConnectError::NotRunning(_))));
}

#[tokio::test]
async fn a_stale_socket_gives_way() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    std::fs::create_dir_all(socket.address().parent().unwrap()).unwrap();
    drop(UnixListener::bind(socket.address()).unwrap());
    assert!(socket.address().exists());
    assert!(matches!(connect(&socket).await, Err(ConnectError::NotRunning(_))));
    let serving = serve(bind_now(&socket).await.unwrap()).await;
    assert!(health(&connect(&socket).await.unwrap()).await.unwrap());
    serving.task.abort();
}

#[tokio::test]
async fn what_is_not_ours_stays() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    let path = socket.address();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let precious = home.path().join("precious");
    std::fs::write(&precious, "keep").unwrap();

    let refused = |error: EndpointError| {
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert!(matches!(error, EndpointError::Occupied { .. }), "{error:?}");
    };
    std::fs::copy(&precious, path).unwrap();
    refused(bind_now(&socket).await.unwrap_err());
    assert_eq!(std::fs::read_to_string(path).unwrap(), "keep");
    std::fs::remove_file(path).unwrap();

    symlink(&precious, path).unwrap();
    refused(bind_now(&socket).await.unwrap_err());
    assert!(path.is_symlink());
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "keep");
    std::fs::remove_file(path).unwrap();

    std::fs::create_dir(path).unwrap();
    refused(bind_now(&socket).await.unwrap_err());
    std::fs::remove_dir(path).unwrap();

    let foreign = UnixListener::bind(path).unwrap();
    refused(bind_now(&socket).await.unwrap_err());
    foreign.set_nonblocking(true).unwrap();
    assert!(foreign.accept().is_ok(), "the probe reached the live foreign socket");
    std::os::unix::net::UnixStream::connect(path).unwrap();
}

#[tokio::test]
async fn a_late_end_leaves_the_successor_alone() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    let (incoming, old_lock) = bind_now(&socket).await.unwrap().into_parts().unwrap();
    // The old daemon no longer accepts but is not yet through.
    drop(incoming);
    assert!(!socket.address().exists());
    let error = bind_now(&socket).await.unwrap_err();
    assert!(matches!(error, EndpointError::LockHeld { .. }), "{error}");

    let successor = tokio::spawn({
        let socket = socket.clone();
        async move { bind(&socket, lock_socket(&socket, Duration::from_secs(20)).await?, Activated::default()) }
    });
    drop(old_lock);
    let serving = serve(successor.await.unwrap().unwrap()).await;
    assert!(health(&connect(&socket).await.unwrap()).await.unwrap());
    serving.task.abort();
}

#[tokio::test]
async fn a_socket_that_replaced_ours_is_not_removed() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    let (incoming, _lock) = bind_now(&socket).await.unwrap().into_parts().unwrap();
    std::fs::rename(socket.address(), home.path().join("moved")).unwrap();
    let _other = UnixListener::bind(socket.address()).unwrap();
    drop(incoming);
    assert!(socket.address().exists());
}

#[tokio::test]
async fn an_existing_directory_of_an_explicit_path_keeps_its_mode() {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = SocketPath::resolve(Some(&home.path().join("s.sock")), &Dirs::under(home.path())).unwrap();
    let _bound = bind_now(&socket).await.unwrap();
    assert_eq!(home.path().metadata().unwrap().permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn something_else_that_listens_is_named() {
    let home = tempfile::tempdir().unwrap();
    let socket = SocketPath::resolve(Some(&home.path().join("s.sock")), &Dirs::under(home.path())).unwrap();
    let listener = UnixListener::bind(socket.address()).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 no\r\n\r\n").unwrap();
    });
    let channel = connect(&socket).await;
    let failed = match &channel {
        Ok(channel) => health(channel).await.is_err(),
        Err(error) => error.to_string().contains("s.sock"),
    };
    assert!(failed);
    other.join().unwrap();
}

/// As when a daemon is killed while a client waits in the queue of its socket.
#[tokio::test]
async fn a_connection_that_breaks_before_an_answer_is_no_daemon_and_no_stranger() {
    let home = tempfile::tempdir().unwrap();
    let socket = SocketPath::resolve(Some(&home.path().join("s.sock")), &Dirs::under(home.path())).unwrap();
    let listener = UnixListener::bind(socket.address()).unwrap();
    // Closed with unread bytes in it, a connection is reset.
    let dying = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Read::read(&mut stream, &mut [0u8; 1]).unwrap();
        drop(listener);
        drop(stream);
    });
    let program = home.path().join("no-such-daemon");
    let options = StartOptions { program: Some(program), timeout: Duration::from_secs(5), env: None };
    let error = connect_or_start(&socket, &Dirs::under(home.path()), &options).await.unwrap_err();
    dying.join().unwrap();
    assert!(matches!(error, StartError::Spawn { .. }), "it goes on to start a daemon: {error:?}");
}

/// Waits until somebody answers at the socket.
async fn answered(socket: &SocketPath) -> bool {
    let patience = tokio::time::Instant::now() + Duration::from_secs(20);
    while tokio::time::Instant::now() < patience {
        if let Ok(channel) = connect(socket).await
            && health(&channel).await.unwrap_or(false)
        {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_socket_that_somebody_removed_is_made_again() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    let serving = serve(bind_now(&socket).await.unwrap()).await;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;

    std::fs::remove_file(socket.address()).unwrap();
    assert!(answered(&socket).await);
    assert_eq!(mode(socket.address()), 0o600);

    // The whole folder, with the lock in it, as a log-out removes it: still only one daemon may be.
    std::fs::remove_dir_all(home.path().join("run")).unwrap();
    assert!(answered(&socket).await);
    assert_eq!(mode(socket.address().parent().unwrap()), 0o700);
    let error = lock_socket(&socket, Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, EndpointError::AlreadyRunning { .. }), "{error}");

    // At the end the new socket is removed and the lock is free.
    serving.stop.send(()).unwrap();
    serving.task.await.unwrap();
    assert!(!socket.address().exists());
    drop(lock_socket(&socket, Duration::ZERO).await.unwrap());
}

#[tokio::test]
async fn what_took_the_place_of_the_socket_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    let serving = serve(bind_now(&socket).await.unwrap()).await;
    std::fs::remove_file(socket.address()).unwrap();
    std::fs::write(socket.address(), "precious").unwrap();
    // Another daemon looks at its own socket at the same pace: when that came back twice, this one has looked too.
    let clock_home = tempfile::tempdir().unwrap();
    let clock = self::socket(clock_home.path());
    let ticking = serve(bind_now(&clock).await.unwrap()).await;
    for _ in 0..2 {
        std::fs::remove_file(clock.address()).unwrap();
        assert!(answered(&clock).await);
    }
    ticking.stop.send(()).unwrap();
    ticking.task.await.unwrap();
    serving.stop.send(()).unwrap();
    serving.task.await.unwrap();
    assert_eq!(std::fs::read_to_string(socket.address()).unwrap(), "precious");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_gave_its_privileges_up_is_not_served() {
    use std::process::Stdio;
    use tokio::io::AsyncReadExt;
    use tokio_stream::StreamExt;
    let home = tempfile::tempdir().unwrap();
    let socket = socket(home.path());
    let (mut incoming, _lock) = bind_now(&socket).await.unwrap().into_parts().unwrap();
    // Says on its output whether the connection lived on.
    let client = |prepare: &str| {
        let code = format!(
            "import ctypes, socket\n{prepare}\ns = socket.socket(socket.AF_UNIX)\ns.connect({:?})\nprint(s.recv(1))",
            socket.address()
        );
        let mut command = tokio::process::Command::new("python3");
        command.args(["-c", &code]).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    };
    let said = async |mut child: tokio::process::Child| {
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
        text
    };
    let held = client("ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)");
    let (text, none) = tokio::join!(said(held), tokio::time::timeout(Duration::from_secs(2), incoming.next()));
    assert_eq!(text, "b''\n");
    assert!(none.is_err(), "a held process was served");
    let free = client("");
    let stream = tokio::time::timeout(Duration::from_secs(20), incoming.next()).await.unwrap().unwrap().unwrap();
    stream.try_write(b"x").unwrap();
    assert_eq!(said(free).await, "b'x'\n");
}
