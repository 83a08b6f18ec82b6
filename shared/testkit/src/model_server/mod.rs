//! A model server that answers from a script, on 127.0.0.1, over every wire that providers speak.
//!
//! The same [`Script`] serves all of them: each [`Reply`] is rendered for the wire of the request it answers.
//!
//! | wire | request | a turn is told as |
//! |---|---|---|
//! | Anthropic Messages | `POST …/v1/messages`, `…/models/M:streamRawPredict` | named events |
//! | Chat Completions | `POST …/chat/completions` | chunks and `[DONE]`; thinking is not signed |
//! | OpenAI Responses | `POST …/responses` | items; thinking is encrypted where `include` asks for it |
//! | Gemini | `POST …/models/M:streamGenerateContent?alt=sse` | answers; what follows a thought is signed |
//! | Bedrock Converse | `POST …/model/M/converse-stream` | binary frames with checksums |
//!
//! It is written on bare TCP because tests need control that HTTP libraries hide: where the bytes are split, where they
//! stall, where the line is cut.
//!
//! Unless told otherwise it also *validates*: a request that the real provider would refuse gets a 400 with the
//! provider's wording, and fails the test at [`ModelServer::finish`]. What it gave out (signatures, encrypted
//! reasoning) is taken back only for the model that it came from, on the same wire, with what it came with.
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

mod answering;
mod connection;
mod given;
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
