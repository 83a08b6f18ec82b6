//! A disk that is full, or fails at one call: what was there stays, and all goes on when there is space again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mcode_testkit::{DiskFailure, FailingDisk, ModelServer, Reply, Script, TestDaemon, Workspace};

use crate::setup::{Stage, script, text};

/// A small disk; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(path: &Path, size: &str) -> Option<Self> {
        let size = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "mcode-test"]).arg(path).output();
        mount.is_ok_and(|output| output.status.success()).then(|| Self(path.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.0).output().ok();
    }
}

/// Takes every byte that is left of a disk.
fn fill(ballast: &Path) {
    let mut ballast = std::fs::File::options().create(true).append(true).open(ballast).unwrap();
    for size in [64 * 1024, 4096, 1] {
        while ballast.write_all(&vec![1u8; size]).is_ok() {}
    }
}

/// Runs a test of this file where it may mount a disk: in a namespace of its own.
#[allow(clippy::print_stderr)]
fn elsewhere(test: &str) {
    const INSIDE: &str = "MCODE_TEST_MAY_MOUNT";
    assert!(std::env::var_os(INSIDE).is_none(), "no disk can be mounted, not even in a namespace of its own");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    match command.args([&format!("filling::{test}"), "--exact", "--nocapture"]).env(INSIDE, "1").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if !String::from_utf8_lossy(&output.stderr).starts_with("unshare:") => {
            panic!("{}", String::from_utf8_lossy(&output.stderr))
        }
        other => eprintln!("SKIPPED: no disk can be mounted here, so {test} was not tried: {other:?}"),
    }
}

/// Case F05: the disk fills during a turn, a setting is changed, there is space again, the daemon starts anew.
#[test]
fn f05_a_disk_that_fills_during_a_turn_loses_no_thread_and_no_setting() {
    let mut daemon = TestDaemon::prepare();
    let home = daemon.home();
    let Some(_disk) = SmallDisk::over(&home, "4m") else {
        return elsewhere("f05_a_disk_that_fills_during_a_turn_loses_no_thread_and_no_setting");
    };
    for dir in ["config", "run"] {
        std::fs::create_dir(home.join(dir)).unwrap();
    }
    let ballast = Arc::new(home.join("ballast"));
    let filling = Arc::clone(&ballast);
    let server = ModelServer::start_blocking(Script::new().fallback(move |request| {
        if request.body.to_string().contains("while it fills") {
            fill(&filling);
        }
        Reply::text("an answer ".repeat(2_000))
    }));
    daemon.use_server(&server);
    let model = "model = \"openai/gpt-5\"\n";
    daemon.write_config(model);
    daemon.restart();
    let (pid, workspace) = (daemon.pid(), Workspace::new());
    let mcode = |daemon: &TestDaemon, words: &[&str]| daemon.mcode_in(&workspace.path(), words);
    let before: Vec<String> = ["one", "two"]
        .into_iter()
        .map(|words| text(&mcode(&daemon, &["ask", "--output", "json", words]).ok().json()["thread_id"]))
        .collect();

    let failing = daemon.spawn_mcode(&workspace.path(), &["ask", "--output", "json", "while it fills"]);
    daemon.wait_until("the daemon to say that the disk is full", || daemon.log().contains("no space is left"));
    fill(&ballast);
    let unchanged = mcode(&daemon, &["config", "set", "model", "openai/gpt-5-mini"]);
    assert_ne!(unchanged.code, 0, "{unchanged:?}");
    assert!(unchanged.stderr.to_lowercase().contains("no space"), "{unchanged:?}");
    assert_eq!(std::fs::read_to_string(home.join("config/config.toml")).unwrap(), model);
    mcode(&daemon, &["daemon", "status"]).ok();
    assert_eq!(daemon.pid(), pid);
    for thread in &before {
        assert!(mcode(&daemon, &["threads", "show", thread]).ok().stdout.contains("an answer"), "it can be read");
    }

    std::fs::remove_file(&*ballast).unwrap();
    // As soon as its end can be kept, whoever waits for it is told.
    let failed = failing.output();
    assert!(failed.code != 0 && failed.stdout.contains("no space is left"), "{failed:?}");
    mcode(&daemon, &["ask", "-t", &before[0], "at once"]).ok();
    daemon.restart();
    let threads = mcode(&daemon, &["threads", "list", "--output", "json"]).ok().json();
    let listed: Vec<String> =
        threads["threads"].as_array().unwrap().iter().map(|thread| text(&thread["thread_id"])).collect();
    assert!(before.iter().all(|thread| listed.contains(thread)), "{listed:?}");
    mcode(&daemon, &["ask", "-t", &before[1], "after the restart"]).ok();
    mcode(&daemon, &["config", "set", "model", "openai/gpt-5-mini"]).ok();
    let checked = mcode(&daemon, &["doctor", "--db"]).ok().stdout;
    assert!(checked.ends_with("all of it is whole\n"), "{checked}");
}

/// Each write, sync and rename of `mcode threads export -o` fails once: the file is whole, or what was there before.
#[test]
#[allow(clippy::print_stderr)]
fn whatever_call_of_an_export_fails_the_file_is_whole_or_the_old_one() {
    let Some(disk) = FailingDisk::make() else { return };
    let stage = Stage::new(Script::new().allow_unused().reply(Reply::text("long ".repeat(30_000))));
    if script(&stage.workspace.path(), "id -u") != "0\n" {
        eprintln!("SKIPPED: whose calls are watched gives privileges up, and the daemon serves nobody who has");
        return stage.server.finish();
    }
    let thread = text(&stage.ask(&["--output", "json", "a question"]).ok().json()["thread_id"]);
    let folder = stage.workspace.join("out");
    std::fs::create_dir(&folder).unwrap();
    stage.mcode(&["threads", "export", &thread, "-o", "clean"]).ok();
    // Only its head, which says when it was written, and its end, which seals it, differ from one to the next.
    let clean = stage.workspace.read("clean");
    let shape = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        (lines.len(), lines[1..lines.len() - 1].concat())
    };
    for failure in DiskFailure::ALL {
        for at in 1..200 {
            let path = folder.join(format!("{failure:?}{at}"));
            std::fs::write(&path, "the old one").unwrap();
            let words = ["threads", "export", &thread, "--force", "-o", path.to_str().unwrap()];
            let mut command = stage.daemon.command(&stage.workspace.path(), &words);
            let tried = disk.arm(&mut command, &folder, at, failure);
            let output = command.output().unwrap();
            let name = format!("{failure:?} at call {at}: {output:?}");
            let content = std::fs::read_to_string(&path).unwrap();
            let is_old = content == "the old one";
            assert!(is_old || shape(&content) == shape(&clean), "{name}: {} bytes", content.len());
            assert!(!is_old || !output.status.success(), "{name}");
            if failure.is_survived() {
                assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "{name}");
            }
            for left in std::fs::read_dir(&folder).unwrap() {
                std::fs::remove_file(left.unwrap().path()).unwrap();
            }
            if !tried.fired() {
                assert!(output.status.success() && (at > 2 || failure == DiskFailure::TornWrite), "{name}");
                break;
            }
        }
    }
    stage.server.finish();
}

/// Each write, sync and rename of a change of the settings without a daemon fails once: the file has the old content or
/// the new one, and is never empty.
#[test]
fn whatever_call_of_a_changed_setting_fails_the_file_is_the_old_or_the_new_one() {
    let Some(disk) = FailingDisk::make() else { return };
    let daemon = TestDaemon::prepare();
    let file = daemon.home().join("config/config.toml");
    let old = "# mine\nmodel = \"openai/gpt-5\"\n[threads]\ntitles = false\n";
    for failure in DiskFailure::ALL {
        for at in 1..100 {
            daemon.write_config(old);
            let words = ["--no-autostart", "config", "set", "model", "openai/gpt-5-mini"];
            let mut command = daemon.command(&daemon.user_home(), &words);
            let tried = disk.arm(&mut command, &daemon.home().join("config"), at, failure);
            let output = command.output().unwrap();
            let name = format!("{failure:?} at call {at}: {output:?}");
            let content = std::fs::read_to_string(&file).unwrap();
            let new = old.replace("gpt-5", "gpt-5-mini");
            assert!(content == old || content == new, "{name}: {content:?}");
            assert!(!output.status.success() || content == new, "{name}");
            if failure.is_survived() && tried.fired() {
                assert!(!output.status.success(), "{name}: what failed was called done");
            }
            if !tried.fired() {
                assert!(output.status.success() && (at > 2 || failure == DiskFailure::TornWrite), "{name}");
                break;
            }
        }
    }
}
