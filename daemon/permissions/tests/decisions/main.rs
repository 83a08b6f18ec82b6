//! What is decided about calls, by which rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod calls;
mod corpus;
mod properties;
mod running;
mod setting;
mod sources;
mod uncertain;
