//! A home of its own for one test, and the daemons that run in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mcode_endpoint::{SocketPath, StartError, StartOptions, connect_or_start};
use mcode_env::Dirs;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;
use tonic::transport::Channel;

/// How long something may take to come true.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
/// The binary under test.
pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_mcoded");

pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) dirs: Dirs,
    pub(crate) socket: SocketPath,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let dirs = Dirs::under(dir.path());
        let socket = SocketPath::resolve(Some(&dir.path().join("run/v1/mcoded.sock")), &dirs).unwrap();
        Self { dir, dirs, socket }
    }

    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        let home = self.dir.path().to_str().unwrap().to_owned();
        BTreeMap::from([("MCODE_HOME".to_owned(), home), ("PATH".to_owned(), "/usr/bin:/bin".to_owned())])
    }

    pub(crate) fn options(&self) -> StartOptions {
        StartOptions { program: Some(PathBuf::from(DAEMON)), env: Some(self.env()), ..StartOptions::default() }
    }

    pub(crate) async fn connect(&self) -> Result<Channel, StartError> {
        connect_or_start(&self.socket, &self.dirs, &self.options()).await
    }

    /// The daemon run by hand.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(DAEMON);
        command.env_clear().envs(self.env()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn daemons(&self) -> Vec<Pid> {
        daemons(self.dir.path())
    }

    pub(crate) fn daemon(&self) -> Pid {
        let all = self.daemons();
        assert_eq!(all.len(), 1, "daemons: {all:?}");
        all[0]
    }

    pub(crate) async fn end(&self, signal: Signal) {
        for pid in self.daemons() {
            kill_process(pid, signal).ok();
        }
        wait_until("all daemons end", || self.daemons().is_empty()).await;
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dirs.log_file()).unwrap_or_default()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for pid in self.daemons() {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Running daemons whose environment names the folder. One that has ended but was not waited for has no environment;
/// a child of a daemon that is about to become a command looks like its parent, and is none.
pub(crate) fn daemons(folder: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment);
        if name.trim() == "mcoded" && text.contains(folder.to_str().unwrap()) {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            parents.push(parent.and_then(Pid::from_raw));
            found.push(pid);
        }
    }
    let all = found.clone();
    let mut parents = parents.into_iter();
    found.retain(|_| !parents.next().flatten().is_some_and(|parent| all.contains(&parent)));
    found
}

pub(crate) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < WAIT_MAX, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
