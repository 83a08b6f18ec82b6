//! The real program, started as the daemon starts it, by a runtime that stands in for the daemon.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mcode_sandbox::hosted::{HEAD_BYTES, HEAD_BYTES_BACKGROUND, Terminal};
use mcode_sandbox::{
    About, CommandSpec, Ended, ExitState, Hosted, HostedSpec, Hosts, InputError, Progress, SpawnError,
    TOOL_CALL_VARIABLE,
};
use mcode_testkit::{nap, running};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const WAIT_MAX: Duration = Duration::from_secs(30);

/// A place for hosts, and the daemon of the moment.
struct Stage {
    folder: tempfile::TempDir,
    daemon: Option<Runtime>,
    hosts: Hosts,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hosts = Self::hosts(&folder);
        Self { daemon: Some(runtime()), hosts, folder }
    }

    fn hosts(folder: &tempfile::TempDir) -> Hosts {
        Hosts::new(mcode_testkit::program("mcode-toolhost"), folder.path().join("toolhosts"))
    }

    /// The daemon dies: everything it held is dropped, and it tells nobody. Another one begins.
    fn replace_daemon(&mut self) {
        self.daemon.take().unwrap().shutdown_timeout(Duration::from_secs(5));
        self.hosts = Self::hosts(&self.folder);
        self.daemon = Some(runtime());
    }

    fn on<T>(&self, future: impl Future<Output = T>) -> T {
        self.daemon.as_ref().unwrap().block_on(async { timeout(WAIT_MAX, future).await.expect("in time") })
    }

    fn start(&self, spec: HostedSpec) -> Hosted {
        self.on(self.hosts.start(spec)).unwrap()
    }

    /// The one command that the next daemon finds.
    fn survivor(&self) -> Hosted {
        let mut found = self.on(self.hosts.survivors());
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0).hosted
    }

    fn folders(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path().join("toolhosts")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn spec(name: &str, command: &str) -> HostedSpec {
    let call = format!("tc_{name}_{}", std::process::id());
    HostedSpec {
        command: CommandSpec {
            argv: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
            cwd: "/".into(),
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                (TOOL_CALL_VARIABLE.to_owned(), call.clone()),
            ]),
            stdin: false,
            umask: Some(0o022),
            policy: None,
        },
        about: About {
            process_id: format!("prc_{name}"),
            thread_id: "thr_1".to_owned(),
            tool_call_id: call,
            command: command.to_owned(),
            given: String::new(),
        },
        limit: None,
        background: false,
        experience: None,
        terminal: None,
    }
}

async fn until(hosted: &Hosted, holds: impl Fn(&Progress) -> bool) -> Progress {
    hosted.progress().wait_for(|now| holds(now)).await.expect("a host tells until all is gone").clone()
}

async fn gone(hosted: &Hosted) -> Progress {
    until(hosted, |now| now.gone).await
}

fn exited(code: i32) -> Option<Ended> {
    Some(Ended::Exited(ExitState { code: Some(code), signal: None }))
}

fn output(hosted: &Hosted) -> String {
    String::from_utf8(hosted.output().since(0, usize::MAX).0).unwrap()
}

#[test]
fn output_and_exit_status_come_through() {
    let stage = Stage::new();
    let hosted = stage.start(spec("plain", "echo out; echo err >&2; umask; exit 7"));
    let end = stage.on(gone(&hosted));
    assert_eq!((end.ended, end.output_bytes), (exited(7), 13));
    assert_eq!(output(&hosted), "out\nerr\n0022\n");
    hosted.give_up();
    drop(hosted);
    stage.on(async {
        while !stage.folders().is_empty() {
            tokio::task::yield_now().await;
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_leaves_no_core_and_has_a_most_of_processes() {
    let stage = Stage::new();
    let mut limits = spec("limits", "ulimit -c; ulimit -u");
    limits.command.argv[0] = "/bin/bash".to_owned();
    let hosted = stage.start(limits);
    stage.on(gone(&hosted));
    let text = output(&hosted);
    let (core, processes) = text.trim().split_once('\n').unwrap();
    assert_eq!(core, "0");
    assert!((4097..100_000).contains(&processes.parse::<u64>().unwrap()), "{text}");
}

#[test]
fn what_can_not_be_run_is_named_and_leaves_nothing() {
    let stage = Stage::new();
    let mut missing = spec("missing", "");
    missing.command.argv = vec!["no-such-program-here".into()];
    let error = stage.on(stage.hosts.start(missing.clone())).unwrap_err();
    assert_eq!(error.to_string(), "cannot run 'no-such-program-here' in /");
    missing.command.cwd = "/no/such/folder".into();
    assert!(matches!(stage.on(stage.hosts.start(missing)), Err(SpawnError::NoSuchFolder(_))));
    assert_eq!(stage.folders(), Vec::<PathBuf>::new());
    let nowhere = Hosts::new("/no/such/toolhost".into(), stage.folder.path().join("toolhosts"));
    let error = stage.on(nowhere.start(spec("x", "true"))).unwrap_err().to_string();
    assert!(error.contains("/no/such/toolhost"), "{error}");
}

#[test]
fn a_command_goes_on_without_its_daemon_and_is_read_by_the_next() {
    let mut stage = Stage::new();
    let go = stage.folder.path().join("go");
    let command = format!("echo before; while [ ! -e {0} ]; do sleep 0.02; done; echo after; exit 4", go.display());
    let hosted = stage.start(spec("goes_on", &command));
    let identity = hosted.identity();
    stage.on(until(&hosted, |now| now.output_bytes == 7));
    drop(hosted);
    stage.replace_daemon();
    let hosted = stage.survivor();
    assert_eq!((hosted.identity(), output(&hosted).as_str()), (identity, "before\n"));
    std::fs::write(&go, "").unwrap();
    assert_eq!(stage.on(gone(&hosted)).ended, exited(4));
    assert_eq!(output(&hosted), "before\nafter\n");
}

#[test]
fn a_daemon_that_was_replaced_while_it_still_runs_ends_nothing() {
    let stage = Stage::new();
    let go = stage.folder.path().join("go");
    let hosted = stage.start(spec("taken", &format!("while [ ! -e {} ]; do sleep 0.02; done; exit 6", go.display())));
    let next = runtime();
    let found = next.block_on(Stage::hosts(&stage.folder).survivors()).remove(0).hosted;
    // The line of the first is closed now, which it notices in its own time.
    stage.on(async {
        let mut progress = hosted.progress();
        while progress.changed().await.is_ok() {}
        assert!(!progress.borrow().gone);
    });
    std::fs::write(&go, "").unwrap();
    let end = next.block_on(async { timeout(WAIT_MAX, gone(&found)).await }).unwrap();
    assert_eq!(end.ended, exited(6));
}

#[test]
fn an_end_that_no_daemon_saw_is_found_later() {
    let mut stage = Stage::new();
    let go = stage.folder.path().join("go");
    let command = format!("while [ ! -e {} ]; do sleep 0.02; done; echo ok; exit 3", go.display());
    drop(stage.start(spec("unseen", &command)));
    stage.replace_daemon();
    std::fs::write(&go, "").unwrap();
    let status = stage.folders()[0].join("status");
    stage.on(async {
        while !std::fs::read_to_string(&status).is_ok_and(|text| text.contains("\"gone\":true")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let hosted = stage.survivor();
    let end = stage.on(gone(&hosted));
    assert_eq!((end.ended, output(&hosted).as_str()), (exited(3), "ok\n"));
    assert_eq!(stage.on(hosted.write(b"x")), Err(InputError::Closed));
    hosted.give_up();
    drop(hosted);
    assert_eq!(stage.folders(), Vec::<PathBuf>::new());
}

#[test]
fn the_time_limit_is_kept_while_no_daemon_runs() {
    let mut stage = Stage::new();
    let mut limited = spec("limited", "sleep 300 & sleep 300");
    limited.limit = Some(Duration::from_millis(300));
    drop(stage.start(limited));
    stage.replace_daemon();
    let end = stage.on(gone(&stage.survivor()));
    assert_eq!(end.ended, Some(Ended::TimedOut(Duration::from_millis(300))));
}

#[test]
fn input_reaches_a_command_of_an_earlier_daemon() {
    let mut stage = Stage::new();
    let mut server = spec("server", "while read line; do echo \"got $line\"; done; echo end");
    (server.background, server.command.stdin) = (true, true);
    let hosted = stage.start(server);
    stage.on(hosted.write(b"one\n")).unwrap();
    stage.on(until(&hosted, |now| now.output_bytes == 8));
    drop(hosted);
    stage.replace_daemon();
    let hosted = stage.survivor();
    stage.on(hosted.write(b"two\n")).unwrap();
    stage.on(hosted.close_input());
    assert_eq!(stage.on(gone(&hosted)).ended, exited(0));
    assert_eq!(output(&hosted), "got one\ngot two\nend\n");
    assert_eq!(stage.on(hosted.write(b"three\n")), Err(InputError::Closed));
}

#[test]
fn a_command_that_does_not_read_is_not_given_without_end() {
    let stage = Stage::new();
    let mut deaf = spec("deaf", "sleep 300");
    (deaf.background, deaf.command.stdin) = (true, true);
    let hosted = stage.start(deaf);
    let piece = vec![b'x'; 100 * 1024];
    stage.on(async {
        let mut refused = None;
        for _ in 0..10 {
            // Nobody reads, so no write is ever done; each counts as given all the same.
            if let Ok(result) = timeout(Duration::from_millis(50), hosted.write(&piece)).await {
                refused = Some(result);
                break;
            }
        }
        assert_eq!(refused, Some(Err(InputError::Full)));
        hosted.end("so").await;
        assert_eq!(gone(&hosted).await.ended, Some(Ended::Killed("so".into())));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn what_leaves_its_session_and_its_parent_ends_too() {
    let nap = nap();
    let stage = Stage::new();
    let command = format!("(setsid sh -c 'trap \"\" TERM; sleep {nap} & sleep {nap}' &) ; (sleep {nap} &) ; exit 0");
    let hosted = stage.start(spec("escapes", &command));
    let end = stage.on(until(&hosted, |now| now.ended.is_some()));
    assert!(end.ended == exited(0) && !end.gone, "{end:?}");
    stage.on(async {
        while hosted.members().len() != 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(hosted.usage().rss_bytes > 0);
    stage.on(hosted.end("it was enough"));
    assert_eq!(stage.on(gone(&hosted)).ended, Some(Ended::Killed("it was enough".into())));
    assert_eq!(running(&nap), Vec::<u32>::new());
}

#[cfg(target_os = "linux")]
#[test]
fn a_bomb_of_processes_ends_with_its_limit() {
    let nap = nap();
    let stage = Stage::new();
    // Bounded, so that a fault of what is tested does not take the machine with it.
    let bomb = format!("b() {{ [ $1 -gt 0 ] && {{ b $(($1 - 1)) & b $(($1 - 1)) & }}; sleep {nap}; }}; b 8; wait");
    let mut bounded = spec("bomb", &bomb);
    bounded.limit = Some(Duration::from_millis(500));
    let hosted = stage.start(bounded);
    let end = stage.on(gone(&hosted));
    assert_eq!(end.ended, Some(Ended::TimedOut(Duration::from_millis(500))));
    assert_eq!(running(&nap), Vec::<u32>::new());
}

#[cfg(target_os = "linux")]
#[test]
fn a_stopped_host_does_not_hold_up_the_end() {
    let nap = nap();
    let stage = Stage::new();
    let hosted = stage.start(spec("stopped", &format!("exec sleep {nap}")));
    // The host is the command's parent.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", hosted.identity().pid)).unwrap();
    let host: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    let host = rustix::process::Pid::from_raw(host).unwrap();
    rustix::process::kill_process(host, rustix::process::Signal::STOP).unwrap();
    stage.on(hosted.end("the test has seen enough"));
    let end = stage.on(gone(&hosted));
    assert!(matches!(end.ended, Some(Ended::Lost(_))), "{end:?}");
    assert_eq!(running(&nap), Vec::<u32>::new());
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_whose_host_is_killed_is_ended_and_told_as_lost() {
    let nap = nap();
    for with_daemon in [true, false] {
        let mut stage = Stage::new();
        let hosted = stage.start(spec("lost", &format!("echo so far; (setsid sleep {nap} &); sleep {nap}")));
        stage.on(until(&hosted, |now| now.output_bytes == 7));
        let status = std::fs::read_to_string(stage.folders()[0].join("status")).unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let host = status["tree"]["host"]["pid"].as_i64().unwrap();
        let kill = || std::process::Command::new("kill").args(["-9", &host.to_string()]).status().unwrap();
        let end = if with_daemon {
            kill();
            stage.on(gone(&hosted))
        } else {
            drop(hosted);
            stage.replace_daemon();
            kill();
            stage.on(gone(&stage.survivor()))
        };
        assert!(matches!(end.ended, Some(Ended::Lost(_))), "{end:?}");
        assert_eq!(running(&nap), Vec::<u32>::new());
    }
}

#[test]
fn a_terminal_is_one() {
    let stage = Stage::new();
    let mut shell = spec(
        "terminal",
        "test -t 0 && test -t 1 && stty size; read line; echo \"[$line]\"; cat; : </dev/tty && echo tty",
    );
    shell.terminal = Some(Terminal { rows: 33, columns: 111 });
    shell.command.stdin = true;
    let hosted = stage.start(shell);
    stage.on(hosted.write(b"typed\n")).unwrap();
    stage.on(hosted.close_input());
    assert_eq!(stage.on(gone(&hosted)).ended, exited(0));
    let text = output(&hosted).replace("\r\n", "\n");
    assert!(text.contains("33 111\n") && text.contains("[typed]\n") && text.contains("tty\n"), "{text:?}");
}

#[test]
fn long_output_keeps_its_beginning_and_its_end() {
    let mut stage = Stage::new();
    let command = "yes | head -c 40000000; printf END-MARK";
    for (name, background, head) in [("long", false, HEAD_BYTES), ("long_background", true, HEAD_BYTES_BACKGROUND)] {
        let hosted = stage.start(HostedSpec { background, ..spec(name, command) });
        if background {
            drop(hosted);
            stage.replace_daemon();
        }
        let hosted = stage.on(stage.hosts.survivors()).pop().unwrap().hosted;
        assert_eq!(stage.on(gone(&hosted)).output_bytes, 40_000_008);
        let (last, left_out) = hosted.output().since(0, 12);
        assert_eq!((last, left_out), (b"y\ny\nEND-MARK".to_vec(), 39_999_996));
        assert_eq!(hosted.output().whole().unwrap().len() as u64, head);
        let size = std::fs::metadata(stage.folders()[0].join("output")).unwrap().len();
        assert!(size < head + 2 * 1024 * 1024, "{size}");
        hosted.give_up();
    }
}

#[test]
fn a_hundred_commands_end_without_a_trace() {
    let nap = nap();
    let stage = Stage::new();
    stage.on(async {
        let mut all = Vec::new();
        for at in 0..100 {
            let command = format!("(setsid sleep {nap} &); sleep {nap} & sleep {nap}");
            all.push(stage.hosts.start(spec(&format!("many_{at}"), &command)).await.unwrap());
        }
        for hosted in &all {
            hosted.end("enough").await;
        }
        for hosted in &all {
            gone(hosted).await;
            hosted.give_up();
        }
    });
    #[cfg(target_os = "linux")]
    assert_eq!(running(&nap), Vec::<u32>::new());
    stage.on(async {
        while !stage.folders().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
