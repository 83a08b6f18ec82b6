//! A subscription against a real socket: it goes on where it was when the daemon comes back.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(unreachable_pub, dead_code, reason = "shared with the tests of the command line")]

mod scripted;

use std::path::Path;
use std::time::Duration;

use mcode_client::{Client, ConnectOptions, Follow, Piece};
use scripted::{Script, THREAD, finished, said};

async fn client(home: &Path) -> Client {
    Client::connect(ConnectOptions {
        socket: Some(home.join("sock")),
        autostart: false,
        dirs: mcode_env::Dirs::under(home),
        start: Default::default(),
    })
    .await
    .unwrap()
}

async fn next(follow: &mut Follow) -> Piece {
    tokio::time::timeout(Duration::from_secs(20), follow.next()).await.expect("nothing came").unwrap()
}

fn seq(piece: &Piece) -> Option<u64> {
    match piece {
        Piece::Event(event) => Some(event.seq),
        _ => None,
    }
}

#[tokio::test]
async fn a_restart_of_the_daemon_loses_and_repeats_nothing() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("sock");
    let script = Script::default();
    script.append([said("one"), said("two")]);
    let server = script.serve(&socket).await;
    let mut follow = Follow::new(client(home.path()).await, THREAD, Some(0));
    assert_eq!(seq(&next(&mut follow).await), Some(1));
    assert_eq!(seq(&next(&mut follow).await), Some(2));

    server.stop();
    script.append([said("three")]);
    let _server = script.serve(&socket).await;
    assert!(matches!(next(&mut follow).await, Piece::Reconnecting(_)));
    assert_eq!(seq(&next(&mut follow).await), Some(3));
    script.append([finished("done", 0)]);
    assert_eq!(seq(&next(&mut follow).await), Some(4));
    assert_eq!(script.subscribed_after().first(), Some(&Some(0)));
    assert_eq!(script.subscribed_after().last(), Some(&Some(2)));
}

#[tokio::test]
async fn a_daemon_that_stays_away_is_given_up_with_its_socket_named() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("sock");
    let script = Script::default();
    script.append([said("one")]);
    let server = script.serve(&socket).await;
    let mut follow = Follow::new(client(home.path()).await, THREAD, Some(0));
    assert_eq!(seq(&next(&mut follow).await), Some(1));
    server.stop();
    assert!(matches!(next(&mut follow).await, Piece::Reconnecting(_)));
    let error = tokio::time::timeout(Duration::from_secs(30), follow.next()).await.expect("no end").unwrap_err();
    assert_eq!(error.exit_code(), 6);
    assert!(error.message.contains(&socket.display().to_string()), "{}", error.message);
}

#[tokio::test]
async fn a_call_is_repeated_when_the_daemon_came_back_in_between() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("sock");
    let script = Script::default();
    let server = script.serve(&socket).await;
    let client = client(home.path()).await;
    client.list_runs(Default::default()).await.unwrap();
    server.stop();
    let _server = script.serve(&socket).await;
    client.list_runs(Default::default()).await.unwrap();
}
