//! No network: no sockets but Unix ones.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// A filter that refuses sockets of every kind but Unix ones, with "network is unreachable", and `io_uring`, which
/// could make them without a system call that is seen.
pub(super) fn filter() -> io::Result<BpfProgram> {
    let failed = |error: seccompiler::BackendError| io::Error::other(error.to_string());
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix).map_err(failed)?;
    let other = vec![SeccompRule::new(vec![other]).map_err(failed)?];
    let rules = BTreeMap::from([
        (libc::SYS_socket, other),
        (libc::SYS_io_uring_setup, Vec::new()),
        (libc::SYS_io_uring_enter, Vec::new()),
    ]);
    let refusal = SeccompAction::Errno(libc::ENETUNREACH.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch).map_err(failed)?.try_into().map_err(failed)
}
