//! The border between clients and the daemon: where the socket is, binding it, connecting to it, starting the daemon.
//!
//! [`SocketPath`] is the same for client and daemon, given the same environment. [`bind`] takes the daemon's lock before
//! it touches anything at the path and never removes what is not its own. [`connect_or_start`] gives a ready channel,
//! starting one daemon however many clients ask at once. The wire itself (tonic) is not looked at here, except for the
//! standard health service.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

pub mod autostart;
pub mod bind;
pub mod connect;
mod error;
mod lock;
#[cfg(unix)]
mod private_dir;
pub mod socket;

pub use autostart::{StartError, StartOptions, connect_or_start, find_program};
pub use bind::{Activated, Bound, DaemonLock, Incoming, bind, lock_socket};
pub use connect::{ConnectError, connect, health};
pub use error::EndpointError;
pub use lock::{holder_reached_at, lock_file};
pub use socket::SocketPath;
