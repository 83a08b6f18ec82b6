//! One daemon, however it is started and however the last one ended.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcode_endpoint::{ConnectError, StartError, StartOptions, connect, connect_or_start, health};
use rustix::process::{Signal, kill_process};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::home::{DAEMON, Home, wait_until};

/// K01: the socket that a killed daemon leaves is not taken for a daemon.
#[tokio::test]
async fn after_a_kill_the_next_client_starts_one_daemon() {
    let home = Home::new();
    home.connect().await.unwrap();
    let first = home.daemon();
    home.end(Signal::KILL).await;
    assert!(home.socket.address().exists());
    for _ in 0..5 {
        assert!(health(&home.connect().await.unwrap()).await.unwrap());
        assert_ne!(home.daemon(), first);
    }
}

/// K03: clients that start at the same moment get the same daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_cold_starts_make_one_daemon() {
    let home = std::sync::Arc::new(Home::new());
    for round in 0..5 {
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let home = home.clone();
                tokio::spawn(async move { health(&home.connect().await.unwrap()).await.unwrap() })
            })
            .collect();
        for client in clients {
            assert!(client.await.unwrap());
        }
        home.daemon();
        // Every other round the daemon leaves its socket behind.
        home.end(if round % 2 == 0 { Signal::TERM } else { Signal::KILL }).await;
    }
}

/// Without the start lock too: daemons started by hand settle it among themselves.
#[tokio::test]
async fn of_daemons_started_by_hand_one_stays() {
    let home = Home::new();
    let mut started: Vec<_> = (0..6).map(|_| home.command().spawn().unwrap()).collect();
    wait_until("one is left", || home.daemons().len() == 1).await;
    let left = home.daemon().as_raw_nonzero().get();
    assert!(health(&connect(&home.socket).await.unwrap()).await.unwrap());
    started.retain(|child| i32::try_from(child.id()).unwrap() != left);
    assert_eq!(started.len(), 5);
    for child in started {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("(pid {left})")) && text.lines().count() == 1, "{text}");
    }
}

/// K05: a daemon that ends late does not take its successor's socket with it, and the successor waits for it.
#[tokio::test]
async fn a_daemon_that_ends_late_leaves_its_successor_alone() {
    let home = Home::new();
    let channel = home.connect().await.unwrap();
    let old = home.daemon();
    // An open stream holds the old daemon's end up.
    let mut open = HealthClient::new(channel.clone())
        .watch(HealthCheckRequest { service: String::new() })
        .await
        .unwrap()
        .into_inner();
    assert!(open.message().await.unwrap().is_some());
    kill_process(old, Signal::TERM).unwrap();
    wait_until("the old socket is gone", || !home.socket.address().exists()).await;

    let successor = async { home.connect().await.unwrap() };
    let release = async {
        wait_until("both run", || home.daemons().len() == 2).await;
        assert!(matches!(connect(&home.socket).await, Err(ConnectError::NotRunning(_))));
        drop(open);
        drop(channel);
    };
    let (next, ()) = tokio::join!(successor, release);
    wait_until("the old one is gone", || !home.daemons().contains(&old)).await;
    assert!(health(&next).await.unwrap());
    assert!(health(&connect(&home.socket).await.unwrap()).await.unwrap());
    home.daemon();
}

/// K09: a replaced binary is used from then on, and a missing one is named.
#[tokio::test]
async fn a_replaced_binary_is_used_and_a_missing_one_is_named() {
    let home = Home::new();
    let copy = home.dir.path().join("mcoded");
    copy_program(Path::new(DAEMON), &copy);
    let options = StartOptions { program: Some(copy.clone()), ..home.options() };
    let start = || connect_or_start(&home.socket, &home.dirs, &options);
    start().await.unwrap();

    let new = home.dir.path().join("mcoded.new");
    copy_program(Path::new(DAEMON), &new);
    std::fs::rename(&new, &copy).unwrap();
    assert!(health(&start().await.unwrap()).await.unwrap());
    home.end(Signal::TERM).await;
    start().await.unwrap();
    let pid = home.daemon().as_raw_nonzero();
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(command.starts_with(copy.to_str().unwrap()) && !command.contains("(deleted)"), "{command}");

    std::fs::remove_file(&copy).unwrap();
    assert!(health(&start().await.unwrap()).await.unwrap());
    home.end(Signal::TERM).await;
    let error = start().await.unwrap_err();
    assert!(matches!(&error, StartError::Spawn { .. }) && error.to_string().contains("mcoded"), "{error}");
}

/// What a daemon says when it can not start reaches the user, with its status.
#[tokio::test]
async fn a_failed_start_tells_why() {
    let home = Home::new();
    std::fs::write(home.dir.path().join("data"), "in the way").unwrap();
    let error = home.connect().await.unwrap_err();
    let StartError::Ended { status, output } = &error else { panic!("{error:?}") };
    assert_eq!(status.code(), Some(3));
    assert!(output.contains(home.dirs.data.to_str().unwrap()) && output.contains("MCODE_HOME"), "{output}");
    assert!(error.to_string().contains(output), "{error}");
}

/// A daemon that never gets ready does not hold the client for ever.
#[tokio::test]
async fn a_start_has_a_limit() {
    let home = Home::new();
    let options = StartOptions {
        program: Some(write_script(&home, "#!/bin/sh\necho still thinking >&2\nexec sleep 60\n")),
        timeout: Duration::from_millis(300),
        ..home.options()
    };
    let error = connect_or_start(&home.socket, &home.dirs, &options).await.unwrap_err();
    assert!(matches!(&error, StartError::Timeout { .. }) && error.to_string().contains("still thinking"), "{error}");
}

fn write_script(home: &Home, text: &str) -> PathBuf {
    let draft = home.dir.path().join("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = home.dir.path().join("script");
    copy_program(&draft, &script);
    script
}

/// By another process: a file that is open for writing here could be so in a child of another test at the moment it is
/// to be run ("text file busy").
fn copy_program(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-p").arg(from).arg(to).status().unwrap().success());
}
