//! Real parts for tests: a scripted model server that speaks the providers' wires over HTTP, a daemon in a home of
//! its own, and throw-away workspaces.
//!
//! Everything here runs for real (sockets, files, processes); there is no mocking. Use it from `tests/` targets and
//! development binaries only: `[dev-dependencies]`, never `[dependencies]` of a shipped crate. Panics are how a test
//! learns of a broken expectation, so this crate may panic.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test support: a broken expectation has to fail the test at once"
)]

#[cfg(unix)]
pub mod crash;
#[cfg(unix)]
pub mod daemon;
#[cfg(unix)]
pub mod failing_disk;
pub mod model_server;
pub mod oauth_issuer;
#[cfg(unix)]
pub mod processes;
pub mod workspace;

#[cfg(unix)]
pub use crash::Crashes;
#[cfg(unix)]
pub use daemon::{Output, TestDaemon, program};
#[cfg(unix)]
pub use failing_disk::{DiskFailure, FailingDisk};
#[cfg(unix)]
pub use processes::{command_lines, nap, running, sleeping};
pub use workspace::Workspace;

pub use oauth_issuer::OauthIssuer;

pub use model_server::{ModelServer, RecordedRequest, Reply, Script, Usage, Wire};
