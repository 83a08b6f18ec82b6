//! Control groups that limit how many processes a command has and how much memory, where this user may make some:
//! version 2 with a delegated tree (as systemd gives to a user's services), or version 1 as root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::policy::Quotas;

/// Beginning of the names of our groups; the number of the process that made them follows.
const PREFIX: &str = "mcode-";

/// Where a group lists its members, and takes new ones.
const MEMBERS: &str = "cgroup.procs";

/// What limits memory: of version 2, and of version 1.
const MEMORY_LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

/// How often is looked for what was started before the command was in its groups.
const PASSES_MAX: u32 = 50;

/// The groups of one command; removed when dropped, if nothing is left in them.
#[derive(Debug)]
pub(crate) struct Groups(Vec<Folder>);

/// The folder of one group, where to write to enter it, and where its members are listed.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    entry: Option<File>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A group that still holds a process can not be removed; the next daemon does it.
        fs::remove_dir(&self.path).ok();
    }
}

impl Groups {
    /// New groups for one command, as far as they can be made.
    pub(super) fn new(quotas: &Quotas) -> Self {
        let Parents { processes, memory } = parents();
        let mut made = Vec::new();
        if let Some(parent) = processes {
            made.push(make(parent, |folder| limit(folder, quotas, memory.as_ref() == Some(parent))));
        }
        if let Some(parent) = memory.as_ref().filter(|memory| processes.as_ref() != Some(*memory)) {
            made.push(make(parent, |folder| limit_memory(folder, quotas.memory_bytes)));
        }
        let told = |made: io::Result<Folder>| {
            made.inspect_err(|error| tracing::debug!(%error, "no control group for a command")).ok()
        };
        Self(made.into_iter().filter_map(told).collect())
    }

    /// Takes a command in that was just started, and what it has started meanwhile, of which `members` knows.
    ///
    /// This goes on beside the command: to enter a group takes the kernel some 10 ms (it waits for all processors to have
    /// passed a quiet point), and a command that the user waits for takes less. What it has by then is taken in too, and
    /// counts from there on.
    pub(super) fn take_in(&mut self, command: u32, members: impl Fn() -> Vec<u32> + Send + 'static) -> io::Result<()> {
        let entries: Vec<(File, PathBuf)> =
            self.0.iter_mut().filter_map(|folder| Some((folder.entry.take()?, folder.path.join(MEMBERS)))).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let take_in = move || {
            for (mut entry, listed) in entries {
                let mut new = vec![command];
                for _ in 0..PASSES_MAX {
                    for pid in &new {
                        enter(&mut entry, *pid);
                    }
                    let inside = fs::read_to_string(&listed).unwrap_or_default();
                    let inside: Vec<u32> = inside.lines().filter_map(|line| line.parse().ok()).collect();
                    new = members().into_iter().filter(|pid| !inside.contains(pid)).collect();
                    if new.is_empty() {
                        break;
                    }
                }
            }
        };
        std::thread::Builder::new().name("groups".to_owned()).spawn(take_in).map(drop)
    }
}

/// Moves a process into a group. One that has ended needs none.
fn enter(entry: &mut File, pid: u32) {
    let ended = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV));
    match entry.write_all(pid.to_string().as_bytes()) {
        Err(error) if !ended(&error) => tracing::warn!(pid, %error, "a command could not enter its control group"),
        _ => {}
    }
}

/// Whether the number of processes can be limited, and memory.
pub(super) fn able() -> (bool, bool) {
    let Parents { processes, memory } = parents();
    (processes.is_some(), memory.is_some())
}

fn limit(folder: &Path, quotas: &Quotas, memory_too: bool) -> io::Result<()> {
    set(&folder.join("pids.max"), &quotas.processes.to_string())?;
    if memory_too { limit_memory(folder, quotas.memory_bytes) } else { Ok(()) }
}

fn limit_memory(folder: &Path, bytes: u64) -> io::Result<()> {
    // The kernel counts in pages and takes no more than what a signed number of bytes can say.
    let bytes = bytes.min(i64::MAX as u64 / 4096 * 4096);
    let file = MEMORY_LIMITS.iter().map(|name| folder.join(name)).find(|file| file.exists());
    let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    set(&file, &bytes.to_string())?;
    // Swap would only make a runaway slower to end; a kernel that does not count it has no such file.
    set(&folder.join("memory.swap.max"), "0").ok();
    Ok(())
}

fn make(parent: &Path, limit: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Folder> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
    fs::create_dir(&path)?;
    let mut folder = Folder { path, entry: None };
    limit(&folder.path)?;
    folder.entry = Some(OpenOptions::new().write(true).open(folder.path.join(MEMBERS))?);
    Ok(folder)
}

/// Gives a value to the kernel.
fn set(file: &Path, value: &str) -> io::Result<()> {
    File::options().write(true).open(file)?.write_all(value.as_bytes())
}

/// Where groups can be made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Parents {
    /// Those that count processes.
    processes: Option<PathBuf>,
    /// Those that count memory; may be the same.
    memory: Option<PathBuf>,
}

/// Found out once.
static PARENTS: OnceLock<Parents> = OnceLock::new();

pub(super) fn parents() -> &'static Parents {
    PARENTS.get_or_init(|| {
        let found = find_parents();
        found.processes.iter().chain(&found.memory).for_each(|parent| sweep(parent));
        found
    })
}

/// Takes over what another process has found out.
pub(super) fn learn(parents: Parents) {
    PARENTS.set(parents).ok();
}

fn find_parents() -> Parents {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let quotas = Quotas::default();
    let processes = own_group(&groups, &mounts, "pids")
        .filter(|parent| make(parent, |folder| limit(folder, &quotas, false)).is_ok());
    let memory = own_group(&groups, &mounts, "memory")
        .filter(|parent| make(parent, |folder| limit_memory(folder, quotas.memory_bytes)).is_ok());
    Parents { processes, memory }
}

/// The folder of this process's own group in the hierarchy with this controller, made ready for groups below it.
fn own_group(groups: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let path = |wanted: &dyn Fn(&str) -> bool| {
        let of = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?.to_owned();
            wanted(&controllers).then(|| fields.next().map(str::to_owned))?
        };
        groups.lines().find_map(of)
    };
    let named = |list: &str| list.split(',').any(|name| name == controller);
    if let Some(own) = path(&named) {
        return mounted(mounts, |kind, options| kind == "cgroup" && named(options), &own);
    }
    let folder = mounted(mounts, |kind, _| kind == "cgroup2", &path(&str::is_empty)?)?;
    let there = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    there.split_whitespace().any(|name| name == controller).then_some(())?;
    // Memory is refused to a group with processes of its own, as the daemon's is.
    set(&folder.join("cgroup.subtree_control"), &format!("+{controller}")).ok()?;
    Some(folder)
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
