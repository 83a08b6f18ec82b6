//! A control group that limits how many processes a command has, where this user may make one: version 2 with a
//! delegated tree (as systemd gives to a user's services), or version 1 as root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Beginning of the names of our groups; the number of the process that made them follows.
const PREFIX: &str = "mcode-";

/// A group of one command; removed when dropped, if nothing is left in it.
#[derive(Debug)]
pub(crate) struct Pids {
    folder: PathBuf,
}

impl Pids {
    /// A new group for at most so many processes and threads; `None` where none can be made.
    pub(super) fn new(processes: u32) -> Option<(Self, OwnedFd)> {
        make(parent()?, processes).inspect_err(|error| tracing::debug!(%error, "no control group for a command")).ok()
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        // A group that still holds a process can not be removed; the next daemon does it.
        fs::remove_dir(&self.folder).ok();
    }
}

fn make(parent: &Path, processes: u32) -> io::Result<(Pids, OwnedFd)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
    fs::create_dir(&folder)?;
    let group = Pids { folder };
    set(&group.folder.join("pids.max"), &processes.to_string())?;
    let entry = OpenOptions::new().write(true).open(group.folder.join("cgroup.procs"))?;
    Ok((group, entry.into()))
}

/// Gives a value to the kernel.
fn set(file: &Path, value: &str) -> io::Result<()> {
    File::options().write(true).open(file)?.write_all(value.as_bytes())
}

/// Moves the calling process into the group. System calls only.
pub(super) fn enter(entry: &OwnedFd) -> io::Result<()> {
    rustix::io::write(entry, b"0")?;
    Ok(())
}

/// Where groups can be made; found out once.
static PARENT: OnceLock<Option<PathBuf>> = OnceLock::new();

pub(super) fn parent() -> Option<&'static PathBuf> {
    PARENT.get_or_init(|| find_parent().inspect(|parent| sweep(parent))).as_ref()
}

/// Takes over what another process has found out.
pub(super) fn learn(parent: Option<PathBuf>) {
    PARENT.set(parent).ok();
}

/// The folder of this process's own group in the hierarchy that counts processes, if groups can be made in it.
fn find_parent() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = |wanted: &dyn Fn(&str) -> bool| {
        let of = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?.to_owned();
            wanted(&controllers).then(|| fields.next().map(str::to_owned))?
        };
        groups.lines().find_map(of)
    };
    let first = || {
        let own = path(&|controllers: &str| controllers.split(',').any(|name| name == "pids"))?;
        mounted(&mounts, |kind, options| kind == "cgroup" && options.split(',').any(|name| name == "pids"), &own)
    };
    let second = || {
        let own = path(&str::is_empty)?;
        let folder = mounted(&mounts, |kind, _| kind == "cgroup2", &own)?;
        let there = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
        there.split_whitespace().any(|name| name == "pids").then_some(())?;
        set(&folder.join("cgroup.subtree_control"), "+pids").ok()?;
        Some(folder)
    };
    let usable = |folder: &PathBuf| make(folder, 1).is_ok();
    first().filter(usable).or_else(|| second().filter(usable))
}

/// Where a group's folder is, from the lines of `mountinfo` (root, mount point, and after ` - ` kind, source, options).
fn mounted(mounts: &str, wanted: impl Fn(&str, &str) -> bool, group: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (place, rest) = line.split_once(" - ")?;
        let (place, rest): (Vec<&str>, Vec<&str>) = (place.split(' ').collect(), rest.split(' ').collect());
        let (root, point) = (place.get(3)?, place.get(4)?);
        if !wanted(rest.first()?, rest.get(2)?) {
            return None;
        }
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

/// Removes what dead daemons left.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            fs::remove_dir(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_group() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      32 23 0:28 /user /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = |kind: &'static str, group: &str| mounted(mounts, move |of, _| of == kind, group);
        assert_eq!(found("cgroup", "/a").unwrap(), Path::new("/sys/fs/cgroup/pids/a"));
        assert_eq!(found("cgroup2", "/user/app").unwrap(), Path::new("/sys/fs/cgroup/app"));
        assert_eq!(found("cgroup2", "/system"), None);
    }
}
