//! No network: where a network namespace can be had, one of the command's own with only a loopback in it; else no
//! sockets but Unix ones.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Families of sockets that stay possible without a network of the command's own.
const ALONE: [libc::c_int; 1] = [libc::AF_UNIX];
/// And with one. Others, such as those of virtual machines (`vsock`), are the same in every network namespace.
const WITHIN_OWN: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Set in the numbers of system calls of the x32 interface, which reach the same code.
#[cfg(target_arch = "x86_64")]
const X32: libc::c_long = 0x4000_0000;

/// A filter that refuses sockets of all other families, with "network is unreachable", and `io_uring`, which could make
/// them without a system call that is seen.
pub(super) fn filter(own_network: bool) -> io::Result<BpfProgram> {
    let failed = |error: seccompiler::BackendError| io::Error::other(error.to_string());
    let families: &[libc::c_int] = if own_network { &WITHIN_OWN } else { &ALONE };
    let none_of = families.iter().map(|family| {
        let family = u64::from(family.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    });
    let other = SeccompRule::new(none_of.collect::<Result<_, _>>().map_err(failed)?).map_err(failed)?;
    let mut rules = BTreeMap::new();
    for (call, refused) in [
        (libc::SYS_socket, vec![other]),
        (libc::SYS_io_uring_setup, Vec::new()),
        (libc::SYS_io_uring_enter, Vec::new()),
    ] {
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | X32, refused.clone());
        rules.insert(call, refused);
    }
    let refusal = SeccompAction::Errno(libc::ENETUNREACH.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch).map_err(failed)?.try_into().map_err(failed)
}

/// Turns the loopback of a new network namespace on. System calls only.
#[allow(unsafe_code)]
pub(super) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero bytes are a valid `ifreq`, a structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo\0") {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = IFF_UP;
    // SAFETY: the request lives as long as the call, which reads a structure of this kind.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `IFF_UP` as the structure has it.
const IFF_UP: libc::c_short = 1;
