//! Commands that outlive the daemon: each is tended by a host, a process of its own (`mcode-toolhost`).
//!
//! The daemon and the host speak over a socket. The daemon sends the [`HostedSpec`], then [`wire::Order`]s; the host
//! tells where it stands as a [`Progress`], always the whole of it, so that nothing depends on having seen the one
//! before. Output goes into a bounded file beside the host's [`folder::Status`], where the next daemon finds both.
//!
//! Where there are no Unix sockets the command is tended within the daemon and ends with it ([`Hosts`] is the same).

#[cfg(unix)]
pub mod folder;
pub mod output;
pub mod progress;
#[cfg(unix)]
pub mod tree;
#[cfg(unix)]
pub mod wire;

#[cfg(unix)]
mod converse;
#[cfg(unix)]
mod file;
#[cfg(unix)]
#[path = "apart.rs"]
mod hosts;
#[cfg(any(windows, test))]
mod memory;
#[cfg(unix)]
mod survivors;
#[cfg(any(windows, test))]
#[cfg_attr(not(windows), allow(dead_code, unreachable_pub, reason = "here it is only tested"))]
mod within;
#[cfg(windows)]
use within as hosts;

pub use hosts::{Hosted, Hosts};
pub use output::Output;
pub use progress::{About, Ended, HostedSpec, InputError, Progress, Survivor, Terminal, Usage};

/// Most commands that are tended at the same time.
pub const HOSTS_MAX: usize = 1024;
/// Bytes from the beginning of a command's output that are kept.
pub const HEAD_BYTES: u64 = 16 * 1024 * 1024;
/// The same of a command that was started in the background: its news are polled, and it may live long.
pub const HEAD_BYTES_BACKGROUND: u64 = 1024 * 1024;
/// Bytes of input that may wait for a command that does not read.
pub const INPUT_BYTES_MAX: usize = 256 * 1024;
