//! A disk that fails at one call, for a program under test: any write, sync or rename below one folder, whichever way the
//! program makes it.
//!
//! ```no_run
//! # use std::process::Command;
//! use mcode_testkit::{DiskFailure, FailingDisk};
//! let Some(disk) = FailingDisk::make() else { return };
//! for at in 1.. {
//!     let mut command = Command::new("program");
//!     let tried = disk.arm(&mut command, "/folder".as_ref(), at, DiskFailure::Once);
//!     command.status().unwrap();
//!     // … what is in the folder now has to be whole …
//!     if !tried.fired() {
//!         break; // It made fewer calls than that: all of them were tried.
//!     }
//! }
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// What is preloaded.
const SOURCE: &str = include_str!("failing_disk.c");

/// How a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFailure {
    /// One call fails with an error of the device; later ones do not.
    Once,
    /// From one call on there is no space: writes and renames fail; syncs do not, and do not count.
    Full,
    /// The power is cut before a call.
    PowerCut,
    /// The power is cut in the middle of a write: half of it is on the disk. Only writes count.
    TornWrite,
}

impl DiskFailure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Once, Self::Full, Self::PowerCut, Self::TornWrite];

    /// Whether the program goes on.
    #[must_use]
    pub const fn is_survived(self) -> bool {
        matches!(self, Self::Once | Self::Full)
    }

    const fn letter(self) -> &'static str {
        match self {
            Self::Once => "e",
            Self::Full => "f",
            Self::PowerCut => "k",
            Self::TornWrite => "h",
        }
    }
}

/// Has programs fail.
#[derive(Debug)]
pub struct FailingDisk {
    library: PathBuf,
    dir: TempDir,
}

/// A program that was armed once.
#[derive(Debug)]
pub struct Tried {
    fired: PathBuf,
}

impl Tried {
    /// Whether the call that was to fail was made.
    #[must_use]
    pub fn fired(&self) -> bool {
        self.fired.exists()
    }
}

impl FailingDisk {
    /// Builds what is preloaded. `None`, and a line on stderr that says so, where that cannot be: no C compiler, another
    /// system than Linux, or no right to watch calls.
    #[must_use]
    #[allow(clippy::print_stderr, reason = "a test that is left out has to be seen")]
    pub fn make() -> Option<Self> {
        match Self::try_make() {
            Ok(disk) => Some(disk),
            Err(why) => {
                eprintln!("SKIPPED: no failing disk can be made here: {why}");
                None
            }
        }
    }

    fn try_make() -> Result<Self, String> {
        if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err("it is known for Linux alone".to_owned());
        }
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (source, library) = (dir.path().join("failing_disk.c"), dir.path().join("failing_disk.so"));
        std::fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let built = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
        let built = built.map_err(|error| format!("cc: {error}"))?;
        if !built.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&built.stderr)));
        }
        let disk = Self { library, dir };
        // Whether it works at all: without it every test would pass.
        let mut probe = Command::new("sh");
        probe.args(["-c", "echo x > \"$0\" || exit 3"]).arg(disk.dir.path().join("probe"));
        let tried = disk.arm(&mut probe, disk.dir.path(), 1, DiskFailure::Once);
        let output = probe.output().map_err(|error| error.to_string())?;
        if output.status.code() == Some(97) {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        assert!(tried.fired() && !output.status.success(), "the failing disk does not fail: {output:?}");
        Ok(disk)
    }

    /// Has the call number `at` (from 1) about files below a folder fail in a program that is about to be started. The
    /// programs that this one starts cannot be tried, and die.
    #[must_use]
    pub fn arm(&self, command: &mut Command, under: &Path, at: u32, failure: DiskFailure) -> Tried {
        let fired = self.dir.path().join("fired");
        if fired.exists() {
            std::fs::remove_file(&fired).expect("the mark of the last try can be removed");
        }
        let under = under.canonicalize().expect("the folder that fails is there");
        command
            .env("LD_PRELOAD", &self.library)
            .env("MCODE_FAIL_UNDER", under)
            .env("MCODE_FAIL_AT", at.to_string())
            .env("MCODE_FAIL_HOW", failure.letter())
            .env("MCODE_FAIL_FIRED", &fired);
        Tried { fired }
    }
}
