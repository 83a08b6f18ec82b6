//! A model server that answers from a script, on 127.0.0.1, over both wires that providers speak.
//!
//! The same [`Script`] serves `POST …/v1/messages` (Anthropic) and `POST …/v1/chat/completions` (Chat Completions): each
//! [`Reply`] is rendered for the wire of the request it answers. It is written on bare TCP because tests need control
//! that HTTP libraries hide: where the bytes are split, where they stall, where the line is cut.
//!
//! Unless told otherwise it also *validates*: a request that the real provider would refuse gets a 400 with the
//! provider's wording, and fails the test at [`ModelServer::finish`].
//!
//! ```no_run
//! use mcode_testkit::{ModelServer, Reply, Script, Wire};
//! use serde_json::json;
//! # async fn example() {
//! let server = ModelServer::start(
//!     Script::new().reply(Reply::tool_calls([("view", json!({"path": "f"}))])).reply(Reply::text("done")),
//! )
//! .await;
//! let base = server.base_url(Wire::Anthropic);
//! // … point the client at `base` …
//! let requests = server.wait_for_requests(2).await;
//! assert_eq!(requests[1].tool_results().len(), 1);
//! server.finish();
//! # }
//! ```

mod connection;
mod recorded;
mod render;
mod reply;
mod script;
mod script_file;
mod server;
mod validate;

pub use recorded::{RecordedRequest, Wire};
pub use reply::{Block, Delivery, Reply, SseStyle, Usage};
pub use script::Script;
pub use script_file::{ScriptFile, ScriptFileError};
pub use server::ModelServer;
