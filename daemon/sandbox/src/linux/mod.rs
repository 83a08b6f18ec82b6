//! Linux: Landlock for files, signals and abstract sockets, namespaces where they can be had, seccomp for the network,
//! control groups or limits for how much, and for root a short list of capabilities.
//!
//! Everything is built before the fork. Between fork and exec only system calls are made: no memory is taken, no lock.

mod capabilities;
mod files;
mod groups;
mod kept;
mod lacking;
mod mounts;
mod network;
mod quotas;

pub(crate) use kept::Kept;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use self::groups::{Groups, Parents};
use crate::confine::Strength;
use crate::policy::{Network, Policy, Quotas};

/// Oldest version of Landlock's interface that is used: earlier ones let files be truncated anywhere (Linux 6.2).
const LANDLOCK_MIN: u32 = 3;

/// A policy made ready for one process.
#[derive(Debug)]
pub(crate) struct Confined {
    rules: OwnedFd,
    mounts: Option<mounts::Mounts>,
    /// Where to hand out a listener of the command's own network.
    hand_out: Option<UnixStream>,
    filter: Option<seccompiler::BpfProgram>,
    cwd: CString,
    quotas: Quotas,
    own_user_namespace: bool,
}

impl Confined {
    /// Opens what the policy names and builds what the child will enter.
    ///
    /// # Errors
    /// When something of it can not be had; the command must not run then.
    pub(crate) fn prepare(policy: &Policy, cwd: &Path) -> io::Result<(Self, Kept)> {
        let namespace = if policy.without_namespaces { None } else { namespace() };
        let filter = match policy.network {
            Network::Allow => None,
            Network::Deny | Network::Proxy(_) => Some(network::filter(namespace.is_some())?),
        };
        let mounts = namespace.map(|namespace| mounts::Mounts::plan(policy, namespace)).transpose()?;
        let groups = Groups::new(&policy.quotas);
        let (listener, hand_out) = match &policy.network {
            Network::Proxy(socket) if namespace.is_some() => {
                kept::handing_out(socket).map(|(near, far)| (Some(near), Some(far)))?
            }
            _ => (None, None),
        };
        let confined = Self {
            rules: files::ruleset(policy, mounts.as_ref().map_or(&[], |mounts| mounts.covered()))?,
            mounts,
            hand_out,
            filter,
            cwd: c_path(cwd)?,
            quotas: policy.quotas,
            own_user_namespace: namespace == Some(mounts::Namespace::User),
        };
        Ok((confined, Kept::new(groups, listener)))
    }

    /// The program that runs the command in its place, with its first arguments; none here.
    pub(crate) fn runner(&self) -> Option<(&'static str, Vec<String>)> {
        None
    }

    /// Gives up what the policy does not allow, for good. Called in the child; makes system calls only.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        if let Some(mounts) = &mut self.mounts {
            mounts.enter()?;
            if let Some(folder) = mounts.shared_memory() {
                files::grant(&self.rules, folder, files::all_rights())?;
            }
            if let Some(hand_out) = &self.hand_out {
                kept::hand_out_listener(hand_out)?;
            }
            // Again: the folder this process stands in may lie below what was just mounted.
            rustix::process::chdir(self.cwd.as_c_str())?;
        }
        quotas::lower(&self.quotas, self.own_user_namespace)?;
        capabilities::give_up();
        rustix::thread::set_no_new_privs(true)?;
        restrict(&self.rules)?;
        if let Some(filter) = &self.filter {
            seccompiler::apply_filter(filter).map_err(|_| io::Error::last_os_error())?;
        }
        Ok(())
    }
}

/// Puts the calling thread under the rules.
#[allow(unsafe_code)]
fn restrict(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: the system call takes a descriptor, which lives as long as the borrow, and a number.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The version of Landlock's interface; 0 when the kernel has none or it is off.
#[allow(unsafe_code)]
fn landlock_version() -> u32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the system call reads no memory and only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// The kind of namespace that can be had here; found out once.
static NAMESPACE: OnceLock<Option<mounts::Namespace>> = OnceLock::new();

fn namespace() -> Option<mounts::Namespace> {
    *NAMESPACE.get_or_init(mounts::probe)
}

/// What has to be tried to be known, for a process on the same machine that would try the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Known {
    namespace: Option<mounts::Namespace>,
    groups: Parents,
}

/// What this process has found out; tries what it has not.
pub(crate) fn known() -> Known {
    Known { namespace: namespace(), groups: groups::parents().clone() }
}

/// Takes over what another process has found out, unless this one knows already.
pub(crate) fn learn(known: Known) {
    NAMESPACE.set(known.namespace).ok();
    groups::learn(known.groups);
}

/// What this kernel can hold.
pub(crate) fn strength() -> Strength {
    match landlock_version() {
        0 => Strength::None("the kernel has no Landlock, or it is turned off (boot option lsm=)".to_owned()),
        old if old < LANDLOCK_MIN => {
            Strength::None(format!("the kernel's Landlock is of version {old}, {LANDLOCK_MIN} is needed (Linux 6.2)"))
        }
        landlock => {
            let namespaces = namespace().is_some();
            let (processes, memory) = groups::able();
            let processes = processes || namespace() == Some(mounts::Namespace::User);
            let lacks = lacking::lacking(landlock, namespaces, processes, memory);
            Strength::Enforced { by: format!("landlock-{landlock}+seccomp"), namespaces, processes, memory, lacks }
        }
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}
