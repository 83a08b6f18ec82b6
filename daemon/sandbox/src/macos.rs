//! macOS: the command is run by `sandbox-exec`, which has the kernel hold a Seatbelt profile. Type-checked only: nobody
//! has run this yet, so what it claims is what [`crate::self_test`] finds.

use std::io;
use std::path::Path;

use crate::confine::Strength;
use crate::policy::Policy;
use crate::seatbelt;

/// Apple calls it deprecated and runs its own services with it.
const RUNNER: &str = "/usr/bin/sandbox-exec";

/// A policy made ready for one process.
#[derive(Debug)]
pub(crate) struct Confined {
    profile: String,
}

/// Nothing goes on outside for a command here.
#[derive(Debug)]
pub(crate) struct Kept;

impl Confined {
    /// Writes the profile.
    ///
    /// # Errors
    /// When a path can not be written in one; the command must not run then.
    pub(crate) fn prepare(policy: &Policy, _cwd: &Path) -> io::Result<(Self, Kept)> {
        Ok((Self { profile: seatbelt::profile(policy)? }, Kept))
    }

    /// The program that runs the command in its place, with its first arguments.
    pub(crate) fn runner(&self) -> Option<(&'static str, Vec<String>)> {
        Some((RUNNER, vec!["-p".to_owned(), self.profile.clone()]))
    }

    /// `sandbox-exec` does it.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    pub(crate) fn started(&mut self, _command: u32, _members: impl Fn() -> Vec<u32>) -> io::Result<()> {
        Ok(())
    }
}

/// What this system can hold.
pub(crate) fn strength() -> Strength {
    if !Path::new(RUNNER).exists() {
        return Strength::None(format!("{RUNNER} is not there"));
    }
    let lacks = [
        "without a network commands have no localhost either, and hosts of [sandbox] hosts are not reached",
        "how many processes a command has, and how large a file it makes, is not limited",
    ];
    let lacks = lacks.map(str::to_owned).to_vec();
    Strength::Enforced { by: "seatbelt".to_owned(), namespaces: false, processes: false, memory: false, lacks }
}
