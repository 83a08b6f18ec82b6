//! What the daemon takes over from whoever starts it, what it leaves on disk, and what signals do.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use mcode_endpoint::{StartOptions, connect, connect_or_start, health};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, kill_process};

use crate::home::{DAEMON, Home, wait_until};

/// The exit status. Waits on the runtime, so that the client side of the connection sees the goodbye.
async fn end_of(child: &mut std::process::Child) -> Option<i32> {
    let mut status = None;
    wait_until("the daemon ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    status.unwrap().code()
}

#[tokio::test]
async fn nothing_of_the_client_is_kept() {
    let home = Home::new();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    fcntl_setfd(&writer, FdFlags::empty()).unwrap();
    let mut env = home.env();
    env.insert("ANTHROPIC_API_KEY".to_owned(), "sk-secret".to_owned());
    env.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    let options = StartOptions { env: Some(env), ..home.options() };
    connect_or_start(&home.socket, &home.dirs, &options).await.unwrap();

    // A script that waits for the end of its pipe does not wait for the daemon.
    drop(writer);
    let mut rest = Vec::new();
    fs::File::from(reader).read_to_end(&mut rest).unwrap();

    let pid = home.daemon().as_raw_nonzero();
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(environment.contains("LANG=C.UTF-8") && !environment.contains("sk-secret"), "{environment}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(rustix::process::getsid(Some(home.daemon())).unwrap(), home.daemon());
}

#[tokio::test]
async fn files_are_closed_to_others() {
    let home = Home::new();
    home.connect().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let directory = home.socket.address().parent().unwrap();
    for dir in [&home.dirs.data, &home.dirs.state, &directory.to_path_buf()] {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    for file in [home.socket.address(), home.socket.lock_file(), &home.dirs.log_file()] {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    assert!(home.log().contains("serving"), "{}", home.log());
}

#[tokio::test]
async fn a_second_daemon_keeps_away_from_the_same_data() {
    let home = Home::new();
    home.connect().await.unwrap();
    let pid = home.daemon().as_raw_nonzero();
    let other = home.dir.path().join("other.sock");
    let output = home.command().arg("--socket").arg(&other).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains(&format!("(pid {pid})")) && text.contains(home.dirs.data.to_str().unwrap()), "{text}");
    assert!(!other.exists());
    assert!(health(&home.connect().await.unwrap()).await.unwrap());
}

#[tokio::test]
async fn a_hangup_reads_the_configuration_again() {
    let home = Home::new();
    fs::create_dir_all(&home.dirs.config).unwrap();
    home.connect().await.unwrap();
    let file = home.dirs.config_file();
    fs::write(&file, "model = \"a/b\"\nmodle = \"x\"\n").unwrap();
    kill_process(home.daemon(), Signal::HUP).unwrap();
    wait_until("the slip is in the log", || home.log().contains(&format!("{}:2: modle", file.display()))).await;
    fs::write(&file, "model = 5\n").unwrap();
    kill_process(home.daemon(), Signal::HUP).unwrap();
    wait_until("the fault is in the log", || home.log().contains(&format!("{}:1: model: expected", file.display())))
        .await;
    assert!(health(&connect(&home.socket).await.unwrap()).await.unwrap());
}

#[tokio::test]
async fn an_end_on_a_signal_is_clean() {
    let home = Home::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = home.command().arg("--foreground").spawn().unwrap();
        wait_until("it listens", || home.socket.address().exists()).await;
        let channel = home.connect().await.unwrap();
        kill_process(home.daemon(), signal).unwrap();
        assert_eq!(end_of(&mut child).await, Some(0));
        assert!(!home.socket.address().exists());
        drop(channel);
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(log.contains("serving") && log.contains("ended"), "{log}");
    }
    assert!(!home.dirs.log_file().exists(), "the foreground logs to standard error alone");
}

/// A socket that systemd made is served and left in its place.
#[tokio::test]
async fn a_handed_over_socket_is_served_and_not_removed() {
    let home = Home::new();
    let path = home.socket.address();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    fcntl_setfd(listener.as_fd(), FdFlags::empty()).unwrap();
    let number = listener.as_raw_fd();
    // The process id has to be known before the program is started, hence the shell.
    let script = format!("exec 3<&{number} {number}<&-; LISTEN_PID=$$ LISTEN_FDS=1 exec {DAEMON}");
    let mut child =
        std::process::Command::new("bash").arg("-c").arg(script).env_clear().envs(home.env()).spawn().unwrap();
    drop(listener);
    let channel = connect(&home.socket).await.unwrap();
    assert!(health(&channel).await.unwrap());
    drop(channel);
    kill_process(home.daemon(), Signal::TERM).unwrap();
    assert_eq!(end_of(&mut child).await, Some(0));
    assert!(path.exists());
}
