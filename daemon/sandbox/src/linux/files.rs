//! Landlock: what may be read and written, and that signals and abstract sockets stay among a command's own.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{Mode, OFlags};

use crate::policy::{Policy, holds, within};

/// The rights that are known here; those of a newer kernel are not asked for.
const RIGHTS: ABI = ABI::V5;
/// Most files and folders that are named one by one because something beside them is hidden. What comes after can not
/// be read.
const ENTRIES_MAX: usize = 8192;
/// Devices that may be used. Disks and memory may not, whoever asks.
const DEVICES: [&str; 13] =
    ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "kvm", "dri", "kfd", "nvidiactl"];

/// The rules as the kernel keeps them. What is `covered` by mounts needs no rule that leaves it out.
pub(super) fn ruleset(policy: &Policy, covered: &[PathBuf]) -> io::Result<OwnedFd> {
    let failed = |error: RulesetError| io::Error::other(error.to_string());
    let all = AccessFs::from_all(RIGHTS);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let read = AccessFs::from_read(RIGHTS);
    // Names may be listed everywhere: a right of a folder holds for all below it.
    rules = add(rules, Path::new("/"), AccessFs::ReadDir.into())?;
    let hidden: Vec<PathBuf> = policy.hidden.iter().filter(|path| !covered.contains(path)).cloned().collect();
    for path in readable(&hidden).iter().chain(&policy.shown) {
        rules = add(rules, path, read)?;
    }
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        let made = if name == "shm" { all } else { read | AccessFs::WriteFile | AccessFs::IoctlDev };
        rules = add(rules, &device, made)?;
    }
    let devices_made = AccessFs::MakeChar | AccessFs::MakeBlock;
    for root in &policy.write {
        // Where hidden things below a writable folder can not be covered, what may be read was named one by one.
        let reads = if holds(root, &hidden) { BitFlags::EMPTY } else { read };
        rules = add(rules, root, ((all & !read) & !devices_made & !AccessFs::IoctlDev) | reads)?;
    }
    let fd: Option<OwnedFd> = rules.into();
    fd.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the kernel has no Landlock, or it is turned off"))
}

/// What may be done in a folder that is mounted later: all that the oldest version used here knows.
pub(super) fn all_rights() -> u64 {
    AccessFs::from_all(ABI::V3).bits()
}

/// Grants rights below a folder to a process that is not yet under the rules. System calls only.
#[allow(unsafe_code)]
pub(super) fn grant(rules: &OwnedFd, folder: &CStr, rights: u64) -> io::Result<()> {
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct Beneath {
        allowed_access: u64,
        parent_fd: i32,
    }
    const PATH_BENEATH: libc::c_int = 1;
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
    let beneath = Beneath { allowed_access: rights, parent_fd: folder.as_raw_fd() };
    // SAFETY: both descriptors and the structure, which is laid out as the kernel reads it, outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &raw const beneath, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Grants rights on a path; one that is gone, or can not be opened, is passed over.
fn add(rules: RulesetCreated, path: &Path, rights: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let Some((fd, folder)) = open(path) else { return Ok(rules) };
    let rights = if folder { rights } else { rights & AccessFs::from_file(RIGHTS) };
    if rights.is_empty() {
        return Ok(rules);
    }
    rules.add_rule(PathBeneath::new(fd, rights)).map_err(|error| io::Error::other(error.to_string()))
}

/// A descriptor that names the path and gives no access; whether it is a folder. Symbolic links are not followed: all
/// paths here are resolved, and one that has become a link since is not what was meant.
fn open(path: &Path) -> Option<(OwnedFd, bool)> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let kind = file.metadata().ok()?.file_type();
    (!kind.is_symlink() && !kind.is_block_device()).then(|| (OwnedFd::from(file), kind.is_dir()))
}

/// The fewest paths that together are everything but what is hidden, and the devices.
fn readable(hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut hidden = hidden.to_vec();
    hidden.push(PathBuf::from("/dev"));
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("/")];
    while let Some(path) = open.pop() {
        if within(&path, &hidden) {
            continue;
        }
        if !holds(&path, &hidden) {
            found.push(path);
        } else if let Ok(entries) = std::fs::read_dir(&path) {
            // A symbolic link gives no access: where it leads counts.
            let entries = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
            open.extend(entries.map(|entry| entry.path()));
        }
        if found.len() + open.len() > ENTRIES_MAX {
            tracing::warn!(folder = ?open.last(), "so many files lie beside hidden ones that commands can not read them all");
            found.truncate(ENTRIES_MAX);
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_hidden_is_named_and_no_more_than_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a", "b", "secret"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let hidden = [root.join("secret")];
        let found = readable(&hidden);
        assert!(within(&root.join("a/x"), &found) && within(&root.join("b"), &found));
        assert!(!within(&root.join("secret/x"), &found) && !found.iter().any(|path| root.starts_with(path)));
        assert!(within(Path::new("/usr/bin"), &found) && !within(Path::new("/dev/null"), &found));
        for number in 0..=ENTRIES_MAX {
            std::fs::write(root.join(format!("f{number}")), "").unwrap();
        }
        assert!(readable(&hidden).len() <= ENTRIES_MAX);
    }
}
