//! Where the daemon listens and writes, and what it says when it can not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mcode_endpoint::{SocketPath, connect, health};
use mcode_env::Dirs;
use rustix::process::{Signal, kill_process};

use crate::home::{DAEMON, Home, daemons, wait_until};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// K06: what lies at the path and is not ours stays, and the path is named.
#[tokio::test]
async fn what_is_in_the_way_is_named_and_left() {
    let home = Home::new();
    let path = home.socket.address();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let precious = home.dir.path().join("precious");
    std::fs::write(&precious, "keep").unwrap();
    let refused = || {
        let output = home.command().output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains(path.to_str().unwrap()), "{}", text(&output));
        assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
    };

    std::fs::copy(&precious, path).unwrap();
    refused();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "keep");
    std::fs::remove_file(path).unwrap();

    std::os::unix::fs::symlink(&precious, path).unwrap();
    refused();
    assert!(path.is_symlink());
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "keep");
    std::fs::remove_file(path).unwrap();

    let _foreign = std::os::unix::net::UnixListener::bind(path).unwrap();
    refused();
    std::os::unix::net::UnixStream::connect(path).unwrap();
}

/// A second daemon for the same data is refused, and told where the first one is reached.
#[tokio::test]
async fn data_that_is_in_use_is_told_with_the_socket_to_use() {
    let home = Home::new();
    home.connect().await.unwrap();
    let other = home.dir.path().join("other.sock");
    let output = home.command().arg("--socket").arg(&other).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let reached = format!("--socket {}", home.socket.address().display());
    assert!(text(&output).contains(&reached), "{}", text(&output));
}

/// K07: long places give way to short ones; two homes never share a daemon.
#[tokio::test]
async fn long_socket_paths_have_a_short_place() {
    for length in [90, 107, 108, 109, 200] {
        let root = tempfile::tempdir().unwrap();
        let mut served = Vec::new();
        for last in ["x", "y"] {
            let pad = length - root.path().as_os_str().len() - 2;
            let runtime = root.path().join(format!("{}{last}", "r".repeat(pad)));
            assert_eq!(runtime.as_os_str().len(), length);
            std::fs::create_dir(&runtime).unwrap();
            served.push(serve_in(root.path(), last, &runtime).await);
        }
        assert_ne!(served[0], served[1]);
        for pid in daemons(root.path()) {
            kill_process(pid, Signal::TERM).unwrap();
        }
        wait_until("both end", || daemons(root.path()).is_empty()).await;
        for socket in served.iter().filter(|socket| !socket.starts_with(root.path())) {
            assert!(!socket.exists(), "{} was left", socket.display());
            std::fs::remove_dir_all(socket.parent().unwrap()).unwrap();
        }
    }
}

/// Starts a daemon whose place comes from its environment alone, and reaches it from the same.
async fn serve_in(root: &Path, name: &str, runtime: &Path) -> PathBuf {
    let places = Dirs::under(&root.join(name));
    let dirs = Dirs { runtime: Some(runtime.join("mcode")), ..places };
    let socket = SocketPath::resolve(None, &dirs).unwrap();
    // Tokio's, which waits for children that nobody else waits for.
    tokio::process::Command::new(DAEMON)
        .env_clear()
        .env("HOME", root)
        .env("XDG_RUNTIME_DIR", runtime)
        .env("XDG_DATA_HOME", root.join(name))
        .env("XDG_STATE_HOME", root.join(name))
        .env("TMPDIR", runtime)
        .spawn()
        .unwrap();
    wait_until("the daemon listens", || socket.address().exists()).await;
    let mut ready = false;
    while !ready {
        ready = match connect(&socket).await {
            Ok(channel) => health(&channel).await.unwrap_or(false),
            Err(_) => false,
        };
    }
    socket.address().to_path_buf()
}

#[tokio::test]
async fn an_explicit_path_that_is_too_long_is_refused_with_numbers() {
    let home = Home::new();
    let path = format!("/tmp/{}", "s".repeat(104));
    let output = home.command().args(["--socket", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    for part in [path.as_str(), "109", "104"] {
        assert!(text(&output).contains(part), "{}", text(&output));
    }
}

/// J11: no usable home is told in one line that names path and variable, and nothing is made elsewhere.
#[tokio::test]
async fn a_home_that_is_not_there_is_named() {
    let output = Command::new(DAEMON).env_clear().env("HOME", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("/nonexistent") && text(&output).contains("HOME"), "{}", text(&output));
    assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
    assert!(!Path::new("/nonexistent").exists());

    let output = Command::new(DAEMON).env_clear().env("MCODE_HOME", "here").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("MCODE_HOME is 'here'"), "{}", text(&output));
}

#[tokio::test]
async fn a_place_that_can_not_be_written_is_named_with_its_variable() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    let base = || {
        let mut command = Command::new(DAEMON);
        command.env_clear().env("HOME", root.path()).env("XDG_RUNTIME_DIR", root.path());
        command
    };
    let cases = [("MCODE_HOME", "file/state"), ("XDG_STATE_HOME", "file/mcode"), ("XDG_DATA_HOME", "file/mcode")];
    for (variable, path) in cases {
        let output = base().env(variable, &file).output().unwrap();
        let text = text(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        let path = root.path().join(path);
        assert!(text.contains(variable) && text.contains(path.to_str().unwrap()), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// J11: with a home that is not there, the other folders are enough.
#[tokio::test]
async fn folders_of_their_own_need_no_home() {
    let root = tempfile::tempdir().unwrap();
    let mut child = Command::new(DAEMON)
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", root.path())
        .env("XDG_DATA_HOME", root.path())
        .env("XDG_STATE_HOME", root.path())
        .env("XDG_RUNTIME_DIR", root.path())
        .spawn()
        .unwrap();
    let socket = root.path().join("mcode/v1/mcoded.sock");
    wait_until("the daemon listens", || socket.exists()).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!Path::new("/nonexistent").exists());
}
