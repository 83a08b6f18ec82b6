//! Speaks to language models over five wires (Anthropic Messages, Chat Completions with its dialects, Responses, Gemini,
//! Bedrock Converse), and a scripted model.
//!
//! Each provider makes one attempt per call and gives normal-form events; whether to try again is the agent's word.
//! A wire is three parts: `request` writes the body, `stream` decodes frames, `errors` classifies; [`exchange`] drives
//! them over HTTP. Hostile or broken servers are the rule here: every read is bounded, a frame that does not parse
//! ends the stream, and nothing of an answer counts before its end was seen.
//! Keys come from the client, the configuration or a stored login ([`auth`]).
//! Absent on purpose: retries, and anything that runs a tool.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answer;
pub mod anthropic;
pub mod auth;
pub mod bedrock;
pub mod chat;
pub mod decode;
mod effort;
mod exchange;
pub mod failure;
#[cfg(test)]
mod fixtures;
mod frames;
pub mod gemini;
mod google;
pub mod http;
mod ids;
pub mod known;
pub mod media;
mod prompt;
mod refused;
pub mod registry;
pub mod responses;
pub mod scan;
pub mod scripted;
pub mod sse;
#[cfg(test)]
mod testing;

pub use auth::desk::Desk;
pub use auth::{Auth, AuthParts};
pub use http::install_crypto;
pub use registry::Registry;
