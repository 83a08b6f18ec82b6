//! Real processes: merging, environment, groups, and their ends.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mcode_sandbox::{
    Child, CommandSpec, LocalRunner, ProcessIdentity, Shell, ShellKind, SpawnError, kill_orphan, shell_for,
};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn spec(command: &str) -> CommandSpec {
    CommandSpec {
        argv: Shell { kind: ShellKind::Posix, program: "/bin/sh".into() }.command(command).unwrap().argv,
        cwd: PathBuf::from("/"),
        env: BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]),
        stdin: false,
        umask: None,
        policy: None,
    }
}

async fn all_output(child: &mut Child) -> String {
    let mut output = child.take_output().unwrap();
    let (mut text, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        let count = output.read(&mut buffer).await.unwrap();
        if count == 0 {
            return String::from_utf8(text).unwrap();
        }
        text.extend_from_slice(&buffer[..count]);
    }
}

async fn output_of(spec: &CommandSpec) -> (String, Option<i32>) {
    let mut child = LocalRunner.spawn(spec).unwrap();
    let text = all_output(&mut child).await;
    (text, child.wait().await.unwrap().code)
}

/// Waits until the group has `count` members or more.
async fn wait_members(child: &Child, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while child.group().members().len() < count {
        assert!(Instant::now() < deadline, "the group never had {count} members");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn both_streams_come_in_order_and_the_code_is_kept() {
    let (text, code) = output_of(&spec("echo a; echo b >&2; echo c; exit 7")).await;
    assert_eq!((text.as_str(), code), ("a\nb\nc\n", Some(7)));
}

#[tokio::test]
async fn the_environment_is_exactly_the_given_one_and_input_is_closed() {
    let mut asked = spec("read x || echo closed");
    assert_eq!(output_of(&asked).await.0, "closed\n");
    asked.argv = vec!["env".into()];
    asked.env.insert("ONLY".into(), "1".into());
    let (text, _) = output_of(&asked).await;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["ONLY=1", &format!("PATH={PATH}")]);
}

/// As a shell does with its background jobs, and `nohup` with what it starts.
#[tokio::test]
#[allow(unsafe_code)]
async fn a_command_hears_signals_that_the_daemon_was_started_without() {
    for signal in [libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler of ours is replaced, and the old state comes back.
        let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
        let mut child = LocalRunner.spawn(&spec(&format!("kill -{signal} $$; echo survived"))).unwrap();
        let output = all_output(&mut child).await;
        let ended = child.wait().await.unwrap();
        // SAFETY: as above.
        unsafe { libc::signal(signal, before) };
        assert_eq!((output.as_str(), ended.signal), ("", Some(signal)));
    }
}

#[tokio::test]
async fn the_mask_is_the_clients() {
    let mut masked = spec("umask");
    masked.umask = Some(0o027);
    assert_eq!(output_of(&masked).await.0, "0027\n");
}

#[tokio::test]
async fn there_is_no_terminal_to_ask_on() {
    let (text, code) = output_of(&spec("( : </dev/tty ) 2>/dev/null && echo tty || echo none")).await;
    assert_eq!((text.as_str(), code), ("none\n", Some(0)));
}

#[tokio::test]
async fn input_reaches_a_command_that_asked_for_it() {
    let mut asked = spec("cat");
    asked.stdin = true;
    let mut child = LocalRunner.spawn(&asked).unwrap();
    let mut stdin = child.take_stdin().unwrap();
    stdin.write_all(b"hello").await.unwrap();
    drop(stdin);
    assert_eq!(all_output(&mut child).await, "hello");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let mut missing = spec("true");
    missing.argv = vec!["no-such-program-here".into()];
    let error = LocalRunner.spawn(&missing).unwrap_err();
    assert_eq!(error.to_string(), "cannot run 'no-such-program-here' in /");
    missing.cwd = PathBuf::from("/no/such/folder");
    assert!(matches!(LocalRunner.spawn(&missing), Err(SpawnError::NoSuchFolder(_))));
}

#[tokio::test]
async fn the_whole_group_ends_even_when_it_ignores_the_first_signal() {
    let mut child = LocalRunner.spawn(&spec("trap '' TERM; (trap '' TERM; sleep 300) & sleep 300")).unwrap();
    wait_members(&child, 3).await;
    let began = Instant::now();
    assert!(child.group().kill(Duration::from_millis(200)).await);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(child.wait().await.unwrap().code, None);
    assert_eq!(child.group().members(), Vec::<u32>::new());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn children_in_groups_and_sessions_of_their_own_end_too() {
    let mut child = LocalRunner.spawn(&spec("setsid sleep 300 & set -m; sleep 300 & sleep 300")).unwrap();
    wait_members(&child, 4).await;
    assert!(child.group().kill(Duration::from_millis(500)).await);
    child.wait().await.unwrap();
    assert_eq!(child.group().members(), Vec::<u32>::new());
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_seen_and_ended() {
    let mut child = LocalRunner.spawn(&spec("sleep 300 & exit 0")).unwrap();
    assert_eq!(child.wait().await.unwrap().code, Some(0));
    assert_eq!(child.group().members().len(), 1);
    assert!(child.group().kill(Duration::from_millis(500)).await);
    assert!(child.group().members().is_empty());
}

#[tokio::test]
async fn a_dropped_child_is_killed() {
    let child = LocalRunner.spawn(&spec("sleep 300 & sleep 300")).unwrap();
    wait_members(&child, 3).await;
    let group = child.group();
    drop(child);
    let deadline = Instant::now() + Duration::from_secs(5);
    while !group.members().is_empty() {
        assert!(Instant::now() < deadline, "still running: {:?}", group.members());
        tokio::task::yield_now().await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_orphan_is_killed_only_under_its_own_identity() {
    let mut child = LocalRunner.spawn(&spec("sleep 300")).unwrap();
    let identity = child.identity();
    assert!(!kill_orphan(ProcessIdentity { started_ticks: identity.started_ticks + 1, ..identity }).await);
    assert!(!kill_orphan(ProcessIdentity { started_ticks: 0, ..identity }).await);
    assert!(child.group().members().contains(&identity.pid));
    assert!(kill_orphan(identity).await);
    assert_eq!(child.wait().await.unwrap().signal, Some(15));
    assert!(!kill_orphan(identity).await);
}

#[tokio::test]
async fn a_command_longer_than_an_argument_runs_from_a_file() {
    let shell = shell_for(PATH);
    let long = format!("x='{}'; echo ${{#x}}", "a".repeat(300_000));
    let command = shell.command(&long).unwrap();
    assert!(command.script().is_some());
    let mut asked = spec("");
    asked.argv = command.argv.clone();
    assert_eq!(output_of(&asked).await, ("300000\n".into(), Some(0)));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_carries_the_id_of_a_tool_call_is_found_and_ended_with_its_session() {
    for leader in ["sleep 300", "exit 0"] {
        let id = format!("tc_of_test_{}_{}", std::process::id(), leader.len());
        let mut asked = spec(&format!("setsid sleep 300 & env -i /bin/sleep 300 & sleep 300 & sleep 0.2; {leader}"));
        asked.env.insert(mcode_sandbox::TOOL_CALL_VARIABLE.into(), id.clone());
        let mut child = LocalRunner.spawn(&asked).unwrap();
        wait_members(&child, 4).await;
        assert_eq!(mcode_sandbox::kill_marked(vec![format!("{id}0")]).await, 0, "another call's id ends nothing");
        if leader == "exit 0" {
            child.wait().await.unwrap();
        }
        assert!(!child.group().members().is_empty());
        let ended = mcode_sandbox::kill_marked(vec!["tc_other".to_owned(), id.clone()]).await;
        assert_eq!(ended, 2, "its own session, and the one that setsid began");
        child.wait().await.unwrap();
        assert_eq!(child.group().members(), Vec::<u32>::new());
        assert_eq!(mcode_sandbox::kill_marked(vec![id]).await, 0, "nothing is left");
    }
}
