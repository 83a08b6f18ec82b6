//! A mount namespace of the command's own: all is read-only but what may be written, what is fixed is read-only in
//! that, and what is hidden or out of reach is covered. Landlock then forbids any further mounting. Shared memory and
//! message queues are the command's own, and so is the network when it is denied.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::{c_path, network};
use crate::policy::{Network, Policy, SHARED_BYTES_MAX, holds, within};

/// Where shared memory is.
const SHARED: &str = "/dev/shm";

/// Most files of a hidden folder that are refused one by one.
const SINGLY_MAX: usize = 256;

/// Why a probe ends when all went well: nothing is to be run.
const PROBED: i32 = libc::ECANCELED;

/// How a namespace can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Namespace {
    /// By right: this user may mount.
    Plain,
    /// Within a user namespace.
    User,
}

/// What the child does to its view of the files.
#[derive(Debug)]
pub(super) struct Mounts {
    namespace: Namespace,
    /// Lines of `/proc/self/uid_map` and `gid_map`: this user and group, as they are.
    maps: [CString; 2],
    /// Folders and files that stay writable.
    write: Vec<CString>,
    /// The same, held open while everything else becomes read-only; room for all.
    trees: Vec<Option<OwnedFd>>,
    /// Folders that can not be moved away, with what is fixed in them.
    pinned: Vec<CString>,
    fixed: Vec<CString>,
    covered_folders: Vec<CString>,
    /// Those that lie in a writable folder: looking a name up in them fails, or git would take what it knows there for
    /// removed.
    refused_folders: Vec<CString>,
    covered_files: Vec<CString>,
    /// Those that lie in a writable folder: opening them fails, or what is written to them would be lost.
    refused_files: Vec<CString>,
    covered: Vec<PathBuf>,
    /// Shared memory of the command's own: where, and with how much.
    shared: Option<(CString, CString)>,
    /// Whether the network is one of the command's own, with nothing in it but a loopback.
    offline: bool,
}

impl Mounts {
    /// Looks at what is there, so that the child only has to act.
    pub(super) fn plan(policy: &Policy, namespace: Namespace) -> io::Result<Self> {
        let paths = |list: &[&Path]| list.iter().map(|path| c_path(path)).collect::<io::Result<Vec<CString>>>();
        let mut write: Vec<&Path> = policy.write.iter().map(AsRef::as_ref).collect();
        write.retain(|path| path.exists());
        let own = Path::new(SHARED).is_dir() && !holds(Path::new(SHARED), &policy.write);
        let shared = own.then(|| Ok::<_, io::Error>((c_path(Path::new(SHARED))?, shared_options()?))).transpose()?;
        let fixed: Vec<&Path> = policy.fixed.iter().map(AsRef::as_ref).filter(|path: &&Path| path.exists()).collect();
        // A folder can be moved with what is fixed in it, unless something is mounted on it too.
        let mut pinned: Vec<&Path> = fixed
            .iter()
            .copied()
            .chain(policy.pinned.iter().map(AsRef::as_ref))
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|folder| within(folder, &policy.write) && !policy.write.iter().any(|root| root == folder))
            .collect();
        pinned.sort_unstable();
        pinned.dedup();
        let in_use = |path: &Path| holds(path, &policy.write) || holds(path, &policy.shown);
        let covered = policy.hidden.iter().chain(&policy.sockets).map(AsRef::as_ref);
        let covered: Vec<&Path> = covered.filter(|path: &&Path| path.exists() && !in_use(path)).collect();
        let (folders, files): (Vec<&Path>, Vec<&Path>) = covered.iter().partition(|path| path.is_dir());
        let (mut refused, files): (Vec<&Path>, Vec<&Path>) =
            files.into_iter().partition(|path| within(path, &policy.write));
        let (mut refused_folders, folders): (Vec<&Path>, Vec<&Path>) =
            folders.into_iter().partition(|path| within(path, &policy.write));
        // Root looks names up wherever it likes, so the files themselves are refused to it.
        let root = rustix::process::geteuid().is_root();
        let singly: Vec<(&Path, Vec<PathBuf>)> =
            refused_folders.iter().filter(|_| root).filter_map(|folder| Some((*folder, files_in(folder)?))).collect();
        refused_folders.retain(|folder| !singly.iter().any(|(other, _)| other == folder));
        refused.extend(singly.iter().flat_map(|(_, files)| files).map(PathBuf::as_path));
        let fixed: Vec<&Path> = fixed.into_iter().chain(singly.iter().map(|(folder, _)| *folder)).collect();
        let write = paths(&write)?;
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let map = |id: u32| CString::new(format!("{id} {id} 1\n")).map_err(io::Error::from);
        Ok(Self {
            namespace,
            maps: [map(user)?, map(group)?],
            trees: write.iter().map(|_| None).collect(),
            write,
            pinned: paths(&pinned)?,
            fixed: paths(&fixed)?,
            covered_folders: paths(&folders)?,
            refused_folders: paths(&refused_folders)?,
            covered_files: paths(&files)?,
            refused_files: paths(&refused)?,
            covered: covered.into_iter().map(Path::to_path_buf).collect(),
            shared,
            offline: policy.network != Network::Allow,
        })
    }

    /// Makes the namespace and everything in it. System calls only.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.separate()?;
        let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", all)?;
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        for (path, tree) in self.write.iter().zip(&mut self.trees) {
            *tree = gone_is_fine(rustix::mount::open_tree(CWD, path.as_c_str(), clone))?;
        }
        attach(c"/", libc::MOUNT_ATTR_RDONLY)?;
        if let Some((path, options)) = &self.shared {
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            rustix::mount::mount(c"tmpfs", path.as_c_str(), c"tmpfs", flags, options.as_c_str())?;
        }
        for (path, tree) in self.write.iter().zip(&mut self.trees) {
            if let Some(tree) = tree.take() {
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(tree, c"", CWD, path.as_c_str(), flags)?;
            }
        }
        for path in &self.pinned {
            gone_is_fine(rustix::mount::mount_bind_recursive(path.as_c_str(), path.as_c_str()))?;
        }
        for path in &self.fixed {
            // Whole: in a user namespace, what others mounted below can not be left out.
            if gone_is_fine(rustix::mount::mount_bind_recursive(path.as_c_str(), path.as_c_str()))?.is_some() {
                attach(path, libc::MOUNT_ATTR_RDONLY)?;
            }
        }
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        for (paths, options) in
            [(&self.covered_folders, c"size=4k,mode=0555"), (&self.refused_folders, c"size=4k,mode=0444")]
        {
            for path in paths {
                gone_is_fine(rustix::mount::mount(c"tmpfs", path.as_c_str(), c"tmpfs", flags, options))?;
            }
        }
        for path in self.covered_files.iter().chain(&self.refused_files) {
            gone_is_fine(rustix::mount::mount_bind(c"/dev/null", path.as_c_str()))?;
        }
        for path in &self.refused_files {
            gone_is_fine(attach(path, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV))?;
        }
        Ok(())
    }

    /// What is covered.
    pub(super) fn covered(&self) -> &[PathBuf] {
        &self.covered
    }

    /// Where shared memory of the command's own was mounted.
    pub(super) fn shared_memory(&self) -> Option<&CStr> {
        self.shared.as_ref().map(|(folder, _)| folder.as_c_str())
    }

    #[allow(unsafe_code)]
    fn separate(&self) -> io::Result<()> {
        let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
        flags.set(UnshareFlags::NEWUSER, self.namespace == Namespace::User);
        flags.set(UnshareFlags::NEWNET, self.offline);
        // SAFETY: none of the flags takes file descriptors from another thread, and the child has one thread only.
        unsafe { rustix::thread::unshare_unsafe(flags)? };
        if self.namespace == Namespace::User {
            put(c"/proc/self/setgroups", c"deny")?;
            put(c"/proc/self/uid_map", &self.maps[0])?;
            put(c"/proc/self/gid_map", &self.maps[1])?;
        }
        if self.offline {
            network::loopback_up()?;
        }
        Ok(())
    }
}

/// All files in a folder and below; `None` when there are too many to be refused one by one.
fn files_in(folder: &Path) -> Option<Vec<PathBuf>> {
    let (mut waiting, mut found) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(folder) = waiting.pop() {
        for entry in folder.read_dir().ok()?.flatten() {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if !kind.is_symlink() {
                found.push(entry.path());
            }
        }
        if found.len() + waiting.len() > SINGLY_MAX {
            return None;
        }
    }
    Some(found)
}

fn shared_options() -> io::Result<CString> {
    CString::new(format!("size={SHARED_BYTES_MAX},mode=1777")).map_err(io::Error::from)
}

/// What is not there any more needs no cover.
fn gone_is_fine<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn put(file: &CStr, text: &CStr) -> io::Result<()> {
    let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.to_bytes())?;
    Ok(())
}

/// Gives attributes to a mount and every one below it; its others stay.
#[allow(unsafe_code)]
fn attach(path: &CStr, attributes: u64) -> rustix::io::Result<()> {
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_RECURSIVE;
    // SAFETY: the path is a C string and the attributes a structure of the size given; both outlive the call, which
    // only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(rustix::io::Errno::from_raw_os_error(number))
}

/// The kind of namespace that can be had, tried out in children that never run anything.
pub(super) fn probe() -> Option<Namespace> {
    [Namespace::Plain, Namespace::User].into_iter().find(|namespace| works(*namespace))
}

#[allow(unsafe_code)]
#[allow(clippy::disallowed_methods, reason = "this is the crate that starts processes")]
fn works(namespace: Namespace) -> bool {
    use std::os::unix::process::CommandExt;
    let folder = std::env::temp_dir();
    let policy =
        Policy { write: vec![folder.clone()], fixed: vec![folder], network: Network::Deny, ..Policy::default() };
    let Ok(mut mounts) = Mounts::plan(&policy, namespace) else { return false };
    let mut command = std::process::Command::new("/");
    // SAFETY: the closure runs between fork and exec and makes system calls only.
    unsafe {
        command.pre_exec(move || {
            rustix::thread::set_name(c"mcode-command")?;
            mounts.enter()?;
            Err(io::Error::from_raw_os_error(PROBED))
        });
    }
    // Known, so that nobody takes its end for that of a leftover.
    match crate::orphans::started(|| command.spawn(), |child| Some(child.id())) {
        Err(error) if error.raw_os_error() == Some(PROBED) => true,
        Err(error) => {
            tracing::debug!(?namespace, %error, "no mount namespace of this kind");
            false
        }
        Ok(mut child) => {
            child.wait().ok();
            false
        }
    }
}
