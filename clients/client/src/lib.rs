//! What every client of `mcoded` needs: a connection that starts the daemon, typed calls with deadlines, errors that a
//! user can act on, a subscription that survives a restart of the daemon, and the fold of a run into its result.
//!
//! Nothing here prints or ends the process, and nothing here knows the daemon's own types: the wire is all there is.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod calls;
pub mod connect;
pub mod error;
pub mod follow;
mod fresh;
pub mod ids;
pub mod json;
pub mod lines;
pub mod view;

pub use connect::{Client, ConnectOptions};
pub use error::{ClientError, ErrorKind};
pub use follow::{Follow, Piece};
pub use mcode_proto::v1;
pub use prost::Message as Wire;
pub use view::{RunView, ToolCallView};
