//! How much a command may take: limits of the kernel that each process hands on to those it starts.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::policy::{PROCESSES_OF_USER_MAX, Quotas};

/// Lowers the limits, for good. Called after a user namespace was entered, since processes are counted in it from
/// there on. System calls only.
pub(super) fn lower(quotas: &Quotas, own_user_namespace: bool) -> io::Result<()> {
    let processes = if own_user_namespace { quotas.processes } else { PROCESSES_OF_USER_MAX };
    lower_one(Resource::Nproc, processes.into())?;
    lower_one(Resource::Fsize, quotas.file_bytes)?;
    // What a crashed command leaves holds what it knew.
    lower_one(Resource::Core, 0)
}

/// Never raises one.
fn lower_one(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    setrlimit(resource, Rlimit { current: least(now.current), maximum: least(now.maximum) })?;
    Ok(())
}
