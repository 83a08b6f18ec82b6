//! A disk that is full, or fails at one call: what was there stays, and all goes on when there is space again.

use mcode_testkit::{DiskFailure, FailingDisk, Reply, Script, TestDaemon};

use crate::setup::{Stage, script, text};

/// Each write, sync and rename of `mcode threads export -o` fails once: the file is whole, or what was there before.
#[test]
#[allow(clippy::print_stderr)]
fn whatever_call_of_an_export_fails_the_file_is_whole_or_the_old_one() {
    let Some(disk) = FailingDisk::make() else { return };
    let stage = Stage::new(Script::new().allow_unused().reply(Reply::text(&"long ".repeat(30_000))));
    if script(&stage.workspace.path(), "id -u") != "0\n" {
        eprintln!("SKIPPED: whose calls are watched gives privileges up, and the daemon serves nobody who has");
        return stage.server.finish();
    }
    let thread = text(&stage.ask(&["--output", "json", "a question"]).ok().json()["thread_id"]);
    let folder = stage.workspace.join("out");
    std::fs::create_dir(&folder).unwrap();
    stage.mcode(&["threads", "export", &thread, "-o", "clean"]).ok();
    // Only when it was written differs from one to the next.
    let clean = stage.workspace.read("clean");
    let shape = |text: &str| text.lines().map(|line| line.len()).collect::<Vec<_>>();
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
