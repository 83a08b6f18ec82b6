//! Tests with real files and real git.

mod bringing;
mod cutting;
mod git;
mod guarding;
mod keeping;
mod random;
mod taking;
mod watching;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use mcode_env::{Clock, ManualClock, SystemClock};

use crate::disk::Disk;
use crate::{
    Choice, Conflict, Depot, Hint, Limits, Node, Pick, Restored, Settings, Snapshot, SnapshotId, Span, TreePath,
};

/// A project and a depot for it.
pub(super) struct Bed {
    _kept: tempfile::TempDir,
    pub(super) root: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) clock: Arc<ManualClock>,
    pub(super) settings: Settings,
    pub(super) disk: Disk,
}

impl Bed {
    pub(super) fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let base = kept.path().canonicalize().unwrap();
        let root = base.join("project");
        fs::create_dir(&root).unwrap();
        let clock = Arc::new(ManualClock::default());
        // An hour ahead: what is written now was written long before each look.
        clock.advance_millis(SystemClock.now().millis() - clock.now().millis() + 3_600_000);
        let settings = Settings { clock: clock.clone(), excludes: None, skip: Vec::new(), limits: Limits::default() };
        let folder = Depot::folder(&base.join("data"), &root);
        Self { _kept: kept, root, folder, clock, settings, disk: Disk::default() }
    }

    pub(super) fn depot(&self) -> Depot {
        Depot::open_with(&self.folder, &self.root, self.settings.clone(), self.disk.clone()).unwrap()
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> String {
        String::from_utf8(fs::read(self.at(path)).unwrap()).unwrap()
    }

    /// Runs a command in the project with a shell.
    pub(super) fn sh(&self, command: &str) -> String {
        sh_in(&self.root, command)
    }
}

pub(super) fn sh_in(folder: &Path, command: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", command])
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

pub(super) fn take(depot: &Depot) -> Snapshot {
    depot.snapshot(Hint::None).unwrap()
}

/// The paths of a snapshot.
pub(super) fn paths(depot: &Depot, id: SnapshotId) -> Vec<String> {
    depot.manifest(id).unwrap().into_iter().map(|(path, _)| path.to_string()).collect()
}

/// Changes as `A path`, `D path`, `M path`, `m path` (mode), `T path`, `R from -> to`.
pub(super) fn changes(depot: &Depot, before: SnapshotId, after: SnapshotId) -> Vec<String> {
    use crate::ChangeKind;
    let text = |change: crate::Change| match change.kind {
        ChangeKind::Added => format!("A {}", change.path),
        ChangeKind::Deleted => format!("D {}", change.path),
        ChangeKind::Modified => format!("M {}", change.path),
        ChangeKind::ModeChanged => format!("m {}", change.path),
        ChangeKind::TypeChanged => format!("T {}", change.path),
        ChangeKind::Renamed { from } => format!("R {from} -> {}", change.path),
    };
    depot.changes(before, after).unwrap().into_iter().map(text).collect()
}

/// Brings back everything, or some paths, that changed between two snapshots.
pub(super) fn bring_back(
    depot: &Depot,
    before: SnapshotId,
    after: SnapshotId,
    picks: &[&str],
    force: bool,
) -> Restored {
    let picks = (!picks.is_empty()).then(|| picks.iter().map(|text| Pick { path: path(text), hunks: None }).collect());
    let now = take(depot).id;
    let plan = depot.plan(&[Span { before, after }], &Choice { picks, force }, now).unwrap();
    let restored = depot.restore(&plan).unwrap();
    assert!(restored.failed.is_empty(), "{:?}", restored.failed);
    restored
}

/// Conflicts as `path: why`.
pub(super) fn conflicts(conflicts: &[Conflict]) -> Vec<String> {
    conflicts.iter().map(|conflict| format!("{}: {}", conflict.path, conflict.kind)).collect()
}

/// Everything below a folder as it is on the disk: kind, mode, content. Without `.git`.
pub(super) fn listing(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.path().symlink_metadata().unwrap();
            let name = format!("{:?}", entry.path().strip_prefix(root).unwrap());
            if entry.file_name() == ".git" {
                continue;
            }
            let text = if meta.is_dir() {
                open.push(entry.path());
                format!("folder {:o}", mode(&meta))
            } else if meta.is_symlink() {
                format!("link {:?}", fs::read_link(entry.path()).unwrap())
            } else {
                format!("file {:o} {:?}", mode(&meta), String::from_utf8_lossy(&fs::read(entry.path()).unwrap()))
            };
            found.insert(name, text);
        }
    }
    found
}

#[cfg(unix)]
fn mode(meta: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    meta.permissions().mode() & 0o7777
}

#[cfg(not(unix))]
fn mode(meta: &fs::Metadata) -> u32 {
    u32::from(meta.permissions().readonly())
}

pub(super) fn file_text(depot: &Depot, id: SnapshotId, at: &str) -> String {
    match depot.node(id, &path(at)).unwrap() {
        Some(Node::File { content, .. }) => String::from_utf8_lossy(&depot.content(&content).unwrap()).into_owned(),
        other => format!("{other:?}"),
    }
}

/// Runs a test of this program in a process of its own, with a variable set.
pub(super) fn run_alone(test: &str, variable: &str, value: &str, wrapper: &[&str]) -> std::process::ExitStatus {
    let program = std::env::current_exe().unwrap();
    let mut words: Vec<&std::ffi::OsStr> = wrapper.iter().map(std::ffi::OsStr::new).collect();
    words.push(program.as_os_str());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"]);
    command.env(variable, value).stdout(Stdio::null()).status().unwrap()
}

/// Whether this is the process in which a test is to be run as somebody who may not read everything. Root starts one.
#[cfg(target_os = "linux")]
pub(super) fn as_ordinary_user(test: &str) -> bool {
    if mcode_env::process::user_id() != 0 {
        return true;
    }
    let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let status = run_alone(test, "TMPDIR", "/tmp", &wrapper);
    assert!(status.success(), "{test} as an ordinary user: {status}");
    false
}
