//! A disk that fills while a run is at work, and has space again.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use mcode_config::Effective;
use mcode_events::run::Delivery;
use mcode_events::{Part, RunStatus};
use mcode_threads::{NewInput, ThreadError};

use crate::ending::whole;
use crate::rig::{Rig, Step, said};

/// A small disk; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(path: &Path) -> Option<Self> {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "mcode-test"]).arg(path).output();
        mount.is_ok_and(|output| output.status.success()).then(|| Self(path.to_path_buf()))
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.0.join("ballast")).unwrap();
        for size in [64 * 1024, 4096, 1] {
            while ballast.write_all(&vec![1u8; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.0).output().ok();
    }
}

#[tokio::test]
async fn a_run_that_meets_a_full_disk_ends_and_the_thread_goes_on_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::over(dir.path()) else {
        eprintln!("not tested: this machine lets nobody but root mount a disk (the store's own test goes further)");
        return;
    };
    let steps = vec![Step::Hold("an answer that cannot be kept"), Step::Say("kept")];
    let rig = Rig::with(dir, steps, Effective::default());
    let (thread_id, run_id) = rig.start("one").await;
    rig.asked(1).await;
    let before = rig.threads.state(thread_id).await.unwrap().last_seq;
    disk.fill();
    // What cannot be kept is not acknowledged.
    let input = || NewInput {
        delivery: Delivery::Steer,
        parts: vec![Part::text("x".repeat(300_000))],
        run_id: None,
        request: None,
    };
    let error = rig.threads.input(thread_id, input()).await.unwrap_err();
    assert!(matches!(error, ThreadError::DiskFull), "{error:?}");
    assert_eq!(rig.threads.state(thread_id).await.unwrap().last_seq, before, "the state is what the log says");
    rig.script.go.add_permits(1);
    // The run cannot record its answer, nor its end; new work is refused for the same reason, and nothing breaks.
    let refused = async {
        loop {
            match rig.threads.start_run(rig.prompt(Some(thread_id), &"y".repeat(300_000))).await {
                Err(ThreadError::DiskFull) => return,
                Err(ThreadError::RunActive { .. }) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), refused).await.expect("the run ends without space too");
    assert_eq!(rig.threads.run(run_id).await.unwrap().record.ended_at_ms, None, "its end is not in the log yet");
    disk.make_room();
    // By itself, since somebody may be waiting for it.
    let state = rig.idle(thread_id).await;
    assert_eq!(state.run(run_id).unwrap().status, RunStatus::Failed);
    let error = state.run(run_id).unwrap().error.clone().unwrap();
    assert!(error.message.contains("disk is full"), "{error:?}");
    whole(&rig.kinds(thread_id).await);
    rig.threads.start_run(rig.prompt(Some(thread_id), "two")).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["one", "two", "kept"]);
    drop(rig);
}
